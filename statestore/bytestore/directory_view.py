"""Databases that are read without a change to them: through a view, a directory of links to their tables.

Even a read-only open by rocksdict writes into a database's directory, and a store that is being upgraded can only be
opened for writing. In a view all of that happens beside the tables, which RocksDB never changes. So the code that opens
stores opens them here, too, and nothing of what it does gets back.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from statestore.errors import (
    DirectoryDamagedError,
    DirectoryInUseError,
    DirectoryNotAccessibleError,
    LocalStateCorruptedError,
    StateStoreError,
)

LOCK_FILE: Final = "LOCK"
CURRENT_FILE: Final = "CURRENT"
_TABLES: Final = ".sst"
_OF_DATABASES: Final = "MANIFEST-"
_NOT_NEEDED: Final = (LOCK_FILE, "LOG")


def refuse_if_in_use(lock: Path, where: Path) -> None:
    """Raise DirectoryInUseError if another process holds the POSIX lock on the file `lock`, which may be missing.

    RocksDB and Kafka Streams lock their directories so. Not for a database that this process itself has open.
    """
    try:
        descriptor = os.open(lock, os.O_RDONLY)
    except FileNotFoundError:
        return
    except PermissionError as cause:
        raise DirectoryNotAccessibleError(str(where), cause=str(cause)) from cause
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError as cause:
        raise DirectoryInUseError(str(where), lock=str(lock)) from cause
    finally:
        os.close(descriptor)


@contextmanager
def view_of(directory: Path, *entries: str, work_dir: str | None = None) -> Iterator[Path]:
    """Hand out a directory, gone afterwards, that has what `directory` has under these names; None of them is all.

    Errors that are raised inside, and name it, name `directory` instead; damage is raised as DirectoryDamagedError.
    Raises DirectoryInUseError if one of the databases is open in another process, and DirectoryNotAccessibleError.
    """
    with TemporaryDirectory(prefix="statestore-view-", dir=work_dir) as temporary:
        view = Path(temporary)
        try:
            for name in entries or sorted(os.listdir(directory)):
                _link(directory / name, view / name, directory)
        except PermissionError as cause:
            raise DirectoryNotAccessibleError(str(directory), cause=str(cause)) from cause
        try:
            yield view
        except LocalStateCorruptedError as damage:
            found = damage.cause.replace(str(view), str(directory))
            raise DirectoryDamagedError(damage.path.replace(str(view), str(directory)), cause=found) from damage
        except StateStoreError as error:
            error.args = tuple(_renamed(argument, view, directory) for argument in error.args)
            raise


def _renamed(argument: object, view: Path, directory: Path) -> object:
    return argument.replace(str(view), str(directory)) if isinstance(argument, str) else argument


def _link(source: Path, target: Path, where: Path) -> None:
    """Make `target` what `source` is, if that is there."""
    if source.is_dir():
        target.mkdir(parents=True)
        refuse_if_in_use(source / LOCK_FILE, where)
        names = sorted(os.listdir(source))
        parts = [name for name in names if name.startswith(_OF_DATABASES) or name.endswith(_TABLES)]
        if parts and CURRENT_FILE not in names:
            # RocksDB would make a new, empty database of it.
            raise DirectoryDamagedError(str(source), cause=f"there is {parts[0]}, and no {CURRENT_FILE}")
        for name in names:
            _link(source / name, target / name, where)
    elif source.suffix == _TABLES:
        target.symlink_to(source.absolute())
    elif source.exists() and not source.name.startswith(_NOT_NEEDED):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
