"""Fills a column family with entries that come in the order of their keys, as fast as tables can be written.

Each table is made beside the database, and RocksDB takes it as it is: no buffer in memory, no compaction. The last key
that is there says how far it is, so what was cut off goes on from there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import ClassVar, Final

import rocksdict

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.engines.rocksdb_options import database_options, engine_errors
from statestore.bytestore.protocol import Pair

_UNFINISHED: Final = "next-table"


class SortedFill:
    """Fills the family `family` of an open database, of which nobody else writes to that family meanwhile."""

    table_bytes: ClassVar[int] = 64 << 20
    """About how large a table gets, and so how much is done again of what was cut off."""

    def __init__(self, database: RocksDBDatabase, family: str) -> None:
        self._database = database
        self._family = family
        self._unfinished = os.path.join(database.path, _UNFINISHED)

    @property
    def last_key(self) -> bytes | None:
        """The greatest key that is there, None if there is none: what is put next must be greater."""
        last = next(self._database.family(self._family).range(None, None, reverse=True), None)
        return None if last is None else last[0]

    def put_all(self, pairs: Iterable[Pair], on_entries: Callable[[int], None] | None = None) -> int:
        """Put entries with ascending keys; return how many there were. `on_entries` is told of each step's.

        Raises StoreError if they are not in order, and LocalDiskFullError. All before a failure is kept, but for the
        last table.
        """
        left = chunks(pairs)
        entries = 0
        for step in left:
            entries += self._put_table(step, left, on_entries)
        return entries

    def _put_table(self, step: list[Pair], left: Iterator[list[Pair]], on_entries: Callable[[int], None] | None) -> int:
        """Make one table of `step` and what comes next of `left`, and add it to the database."""
        with suppress(FileNotFoundError):
            os.unlink(self._unfinished)  # of a process that was killed
        entries = 0
        with engine_errors(self._family, self._database.path):
            table = rocksdict.SstFileWriter(database_options())
            table.open(self._unfinished)
            while step:
                for key, value in step:
                    table[key] = value
                entries += len(step)
                if on_entries is not None:
                    on_entries(len(step))
                if table.file_size() >= self.table_bytes:
                    break
                step = next(left, [])
            table.finish()
        self._database.ingest(self._family, self._unfinished)
        return entries
