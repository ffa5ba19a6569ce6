"""Layers below a typed store, which `builder` stacks: expiring, and three in `layer`, where to start."""
