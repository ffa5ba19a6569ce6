"""Copies of shards on this machine, in directories or in memory: how far each one is, and who holds it.

local_copy      a copy, on RocksDB or in memory: opened at a committed version, caught up or rebuilt
local_directory where copies lie, how their databases are opened, and locks: one process at a time
marker          which version a copy holds

Imports `restore`, `commit` and `location`; `snapshots`, `shard_batch` and `making` import it, Spark's side for
the directory. Start at `local_copy`.
"""
