"""Table files of RocksDB, looked at without the database that they belong to."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import rocksdict

from statestore.bytestore.rocksdb import engine_errors, list_families


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

    `scratch` is a directory that is not there, and not there again afterwards. Every block is
    read and its checksum taken, at some hundred MB/s. Raises StoreError.
    """
    if not tables:
        return []
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        for table in tables:
            (scratch / table.name).symlink_to(table.absolute())
        # To repair a database that has lost all but its tables is to read them all; a bad one is moved away.
        with engine_errors(str(scratch), str(scratch)):
            rocksdict.Rdict.repair(str(scratch), rocksdict.Options(raw_mode=True))
        return [table.name for table in tables if not (scratch / table.name).is_symlink()]
    finally:
        shutil.rmtree(scratch)
