"""RocksDB's options, and what its errors and those of its disk mean.

Options are for a database that is opened for one micro-batch and closed again: no compression, reads through mmap, a
bloom filter, universal compaction.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike, fspath
from typing import Any, Final

import rocksdict

from statestore.bytestore.engines.memory_budget import DatabaseMemory
from statestore.errors import LocalDirectoryError, StoreError
from statestore.errors.state import (
    LocalDiskFullError,
    LocalStateCorruptedError,
    LocalStateLockedError,
    StoreClosedError,
)

_BLOOM_BITS_PER_KEY = 10
_TABLE_FILE_BYTES = 32 << 20
"""Snapshots upload and compactions replace whole files: smaller ones mean less of both."""
_OPENING_THREADS = 1
"""RocksDB starts so many for each family that it opens, however few tables there are. The default of 16 took a quarter
of the CPU time of an open; tables are mapped, so there is little to wait for."""
_SORTED_RUNS = 8
"""From so many on, RocksDB merges runs of like size (universal compaction, Kafka Streams' style too). Each batch makes
one. Merging by levels would write 25 times a batch's bytes at a million keys and 10,000 changes a batch; this, 5."""
_SUPERSEDED_PERCENT = 50
"""From so many superseded entries on, measured by the size of the oldest run, all runs are merged into one."""
_MAX_WRITE_BUFFER_BYTES = 64 << 20  # RocksDB's own default; larger ones make flushes long and gain nothing
# How RocksDB reports files that are damaged, cut, missing or of another layout. "No space left", "Too many open files"
# and the like are not among them: throwing the copy away would not help.
_DAMAGE = (
    "Corruption",
    "No such file or directory",
    "larger than file length",
    "Column families not opened",
    "does not exist",
)
_FULL = ("No space left on device", "Disk quota exceeded")


def database_options(
    memory: DatabaseMemory | None = None, cache: rocksdict.Cache | None = None, *, compacting: bool = True
) -> rocksdict.Options:
    """Return the options of a database or a family. `cache` is one for all families of the database."""
    options = rocksdict.Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_compression_type(rocksdict.DBCompressionType.none())
    options.set_allow_mmap_reads(True)
    options.set_keep_log_file_num(1)
    options.set_stats_dump_period_sec(0)
    # Otherwise a family that is hardly written to would keep a gigabyte of write-ahead log.
    options.set_max_total_wal_size(64 << 20)
    options.set_max_file_opening_threads(_OPENING_THREADS)
    options.set_target_file_size_base(_TABLE_FILE_BYTES)
    options.set_disable_auto_compactions(not compacting)
    options.set_compaction_style(rocksdict.DBCompactionStyle.universal())
    options.set_level_zero_file_num_compaction_trigger(_SORTED_RUNS)
    universal = rocksdict.UniversalCompactOptions()
    universal.max_size_amplification_percent = _SUPERSEDED_PERCENT
    options.set_universal_compaction_options(universal)
    table = rocksdict.BlockBasedOptions()
    table.set_bloom_filter(_BLOOM_BITS_PER_KEY, False)
    if cache is not None:
        table.set_block_cache(cache)
    if memory is not None:
        # Of all families together: RocksDB flushes the largest before they exceed it. A single family has room for the
        # buffer that is written to and the one that is being flushed.
        options.set_db_write_buffer_size(memory.write_buffers_bytes)
        options.set_write_buffer_size(min(_MAX_WRITE_BUFFER_BYTES, memory.write_buffers_bytes // 2))
    options.set_block_based_table_factory(table)
    return options


def write_options(write_ahead_log: bool, *, waits: bool) -> Any:
    """Return the options of a write that may have to wait for a flush, or is refused then."""
    options: Any = rocksdict.WriteOptions()  # its type stub takes the property for a method
    options.disable_wal = not write_ahead_log
    options.no_slowdown = not waits
    return options


@contextmanager
def engine_errors(store: str, path: str) -> Iterator[None]:
    """Turn rocksdict's errors, which are plain Exceptions told apart by their text, into ours."""
    try:
        yield
    except rocksdict.DbClosedError as cause:
        raise StoreClosedError(store) from cause
    except Exception as cause:
        if type(cause) is not Exception:
            raise
        text = str(cause)
        if "lock hold by current process" in text or "While lock file" in text:
            raise LocalStateLockedError(store, path=path) from cause
        # An empty table can't be mapped: that is damage; to lack memory for a mapping is not.
        is_emptied = "while mmap file for read" in text and text.endswith("Invalid argument")
        if is_emptied or any(sign in text for sign in _DAMAGE):
            raise LocalStateCorruptedError(store, path=path, cause=text) from cause
        if any(sign in text for sign in _FULL):
            raise LocalDiskFullError(store, path=path, cause=text) from cause
        raise StoreError(store, f"RocksDB at {path}: {text}") from cause


_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def local_disk_errors(store: str, path: str | PathLike[str]) -> Iterator[None]:
    """Raise an OSError at the local `path` as LocalDiskFullError or LocalDirectoryError; `store` says whose it is."""
    try:
        yield
    except OSError as cause:
        if cause.errno in _NO_SPACE:
            raise LocalDiskFullError(store, path=fspath(path), cause=str(cause)) from cause
        raise LocalDirectoryError(fspath(path), cause=str(cause)) from cause
