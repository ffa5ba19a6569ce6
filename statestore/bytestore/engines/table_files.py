"""Table files of RocksDB: looked at without the database that they belong to, and made beside it."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final

import rocksdict

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY, RocksDBDatabase, list_families
from statestore.bytestore.engines.rocksdb_options import database_options, engine_errors
from statestore.bytestore.protocol import Pair
from statestore.errors.state import LocalStateCorruptedError


def live_tables(database: str) -> set[str]:
    """Return the names of the tables that a database knows. Raises LocalStateCorruptedError, StoreError."""
    options = rocksdict.Options(raw_mode=True)
    families = {name: options for name in list_families(database)}
    with engine_errors(database, database):
        opened = rocksdict.Rdict(
            database, options, column_families=families, access_type=rocksdict.AccessType.read_only()
        )
        try:
            return {table["name"].lstrip("/") for table in opened.live_files()}
        finally:
            opened.close()


def unreadable_tables(tables: Sequence[Path], scratch: Path) -> list[str]:
    """Return the names of the table files that RocksDB can't read to their end, in order; nothing is changed.

    `scratch` is a missing directory, made and removed here, with room for one table. Every block is read and its
    checksum verified, at some hundred MB/s. Raises StoreError, LocalDiskFullError.
    """
    return [table.name for table in _irreparable_tables(tables, scratch) if not _can_be_ingested(table, scratch)]


def _irreparable_tables(tables: Sequence[Path], scratch: Path) -> list[Path]:
    """Return the tables that can't be read to their end, and those that no database has written.

    Repairing a database that has lost all but its tables reads them all, and moves bad ones away. It also moves away
    tables whose family has another name than repair makes of its number, and a table made to be ingested has neither.
    """
    if not tables:
        return []
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        for table in tables:
            (scratch / table.name).symlink_to(table.absolute())
        with engine_errors(str(scratch), str(scratch)):
            rocksdict.Rdict.repair(str(scratch), rocksdict.Options(raw_mode=True))
        return [table for table in tables if not (scratch / table.name).is_symlink()]
    finally:
        shutil.rmtree(scratch)


def _can_be_ingested(table: Path, scratch: Path) -> bool:
    """Return whether a copy of a table can be ingested, as one that was made for it, and read to its end."""
    scratch.mkdir()
    link = scratch / "table"
    link.symlink_to(table.absolute())  # RocksDB takes no name that is not UTF-8
    try:
        database = RocksDBDatabase(str(scratch), [], compacting=False)
        try:
            store = database.family(DEFAULT_FAMILY)
            # By default RocksDB copies the table, which belongs to another database.
            store.ingest(str(link), rocksdict.IngestExternalFileOptions())
            deque(store.range(None, None), maxlen=0)
        finally:
            database.close()
    except LocalStateCorruptedError:
        return False
    finally:
        shutil.rmtree(scratch)
    return True


_UNFINISHED: Final = "next-table"


class SortedFill:
    """Fills the family `family` of an open database, to which nothing else writes meanwhile."""

    table_bytes: ClassVar[int] = 64 << 20
    """About how large a table gets, and so how much is repeated after an interruption."""

    def __init__(self, database: RocksDBDatabase, family: str) -> None:
        self._database = database
        self._family = family
        self._unfinished = os.path.join(database.path, _UNFINISHED)

    @property
    def last_key(self) -> bytes | None:
        """The greatest key, None if there is none: what is put next must be greater."""
        last = next(self._database.family(self._family).range(None, None, reverse=True), None)
        return None if last is None else last[0]

    def put_all(self, pairs: Iterable[Pair], on_entries: Callable[[int], None] | None = None) -> int:
        """Put entries with ascending keys; return how many there were. `on_entries` gets the number of each step.

        Raises StoreError if they are not in order, and LocalDiskFullError. After a failure, all but the last table is
        kept.
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
