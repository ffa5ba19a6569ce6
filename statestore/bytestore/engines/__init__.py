"""Byte stores that hold entries: RocksDB, and memory."""
