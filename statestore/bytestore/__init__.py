"""Ordered maps of bytes to bytes, and the only place that knows RocksDB."""
