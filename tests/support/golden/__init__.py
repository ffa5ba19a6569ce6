"""States and directories that were written once, and what is in them."""
