"""Shards without Spark, and locations that behave as others do."""

MAX_BYTES = 1 << 30
"""More than any file has that a test reads."""
