"""The query that `make soak` runs, and what must come of its input."""
