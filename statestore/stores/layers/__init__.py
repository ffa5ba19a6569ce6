"""Layers below a typed store, which `builder` stacks: caching, changelogging, expiring, retaining. Start at `layer`."""
