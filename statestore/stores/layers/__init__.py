"""Layers below a typed store, which `builder` stacks: caching, expiring, and two in `layer`, where to start."""
