"""Offline tools for state: they work on files, without Spark and without the running query."""
