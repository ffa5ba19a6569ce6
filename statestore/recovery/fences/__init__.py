"""Runs of a query on a shard: which of them may write, and from which commit."""
