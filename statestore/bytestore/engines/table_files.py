"""Table files of RocksDB, looked at without the database that they belong to."""

from __future__ import annotations

import shutil
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import rocksdict

from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY, RocksDBDatabase, list_families
from statestore.bytestore.engines.rocksdb_options import engine_errors
from statestore.errors.state import LocalStateCorruptedError


def live_tables(database: str) -> set[str]:
    """Return the names of the table files that the database at `database` knows. Writes nothing but a file of options.

    Raises LocalStateCorruptedError, StoreError.
    """
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

    `scratch` is a directory that is not there, and not there again afterwards; it has room for one table. Every block
    is read and its checksum taken, at some hundred MB/s. Raises StoreError, LocalDiskFullError.
    """
    return [table.name for table in _irreparable_tables(tables, scratch) if not _can_be_ingested(table, scratch)]


def _irreparable_tables(tables: Sequence[Path], scratch: Path) -> list[Path]:
    """Return the tables that can't be read to their end, and those that no database has written.

    To repair a database that has lost all but its tables is to read them all; a bad one is moved away. So is one whose
    family has another name than repair makes of its number, and a table that was made to be ingested says neither.
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
    """Return whether a copy of a table can be ingested, which takes one that was made for it, and read to its end."""
    scratch.mkdir()
    link = scratch / "table"
    link.symlink_to(table.absolute())  # RocksDB takes no name that is not UTF-8
    try:
        database = RocksDBDatabase(str(scratch), [], compacting=False)
        try:
            store = database.family(DEFAULT_FAMILY)
            # Copied, not moved or linked: the table belongs to another database.
            store.ingest(str(link), rocksdict.IngestExternalFileOptions())
            deque(store.range(None, None), maxlen=0)
        finally:
            database.close()
    except LocalStateCorruptedError:
        return False
    finally:
        shutil.rmtree(scratch)
    return True
