"""Typed stores, what they hold, and the builders that describe them."""
