"""Shards without Spark, and locations that behave as others do."""
