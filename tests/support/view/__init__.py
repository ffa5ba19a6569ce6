"""States that views read."""
