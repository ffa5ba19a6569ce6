"""Table files of RocksDB, looked at without the database that they belong to."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

import rocksdict

from statestore.bytestore.rocksdb import engine_errors


def unreadable_tables(tables: Sequence[Path], scratch: Path) -> list[str]:
    """Return the names of the table files that RocksDB can't read to their end, in order; nothing is changed.

    `scratch`, on the same filesystem, is a directory that is not there, and not there again afterwards. Every block is
    read and its checksum taken, at some hundred MB/s. Raises StoreError.
    """
    if not tables:
        return []
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    try:
        for table in tables:
            os.link(table, scratch / table.name)
        # To repair a database that has lost all but its tables is to read them all; a bad one is moved away.
        with engine_errors(str(scratch), str(scratch)):
            rocksdict.Rdict.repair(str(scratch), rocksdict.Options(raw_mode=True))
        return [table.name for table in tables if not (scratch / table.name).exists()]
    finally:
        shutil.rmtree(scratch)
