"""Databases read without a change to them: through a view, a directory of links to their tables.

Even a read-only open by rocksdict writes into a database's directory, and a store that is being upgraded can only be
opened for writing. In a view all writes go beside the tables, which RocksDB never changes. So the code that opens
stores can open them in a view, and nothing that it does gets back to the directory.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from statestore.bytestore.engines.rocksdb import list_families
from statestore.bytestore.engines.table_files import live_tables
from statestore.errors import StateStoreError
from statestore.errors.new_state import DirectoryDamagedError, DirectoryInUseError, DirectoryNotAccessibleError
from statestore.errors.state import LocalStateCorruptedError

LOCK_FILE: Final = "LOCK"
CURRENT_FILE: Final = "CURRENT"
_TABLES: Final = ".sst"
_OF_DATABASES: Final = "MANIFEST-"
_NOT_NEEDED: Final = (LOCK_FILE, "LOG")
_MAX_DEPTH: Final = 2  # how many levels of directories a state has: `rocksdb/STORE`, `STORE/SEGMENT`


@contextmanager
def accessible(path: str) -> Iterator[None]:
    """Raise OSError as DirectoryNotAccessibleError, and damage as DirectoryDamagedError."""
    try:
        yield
    except PermissionError as cause:
        raise DirectoryNotAccessibleError(path, cause=str(cause)) from cause
    except OSError as cause:
        full = cause.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "Make space there, or name another work_dir" if full else "Check the directory, and its disk"
        raise DirectoryNotAccessibleError(
            os.fsdecode(cause.filename or path), cause=str(cause), remedy=remedy
        ) from cause
    except LocalStateCorruptedError as damage:
        raise DirectoryDamagedError(damage.path, cause=_one_line(damage.cause)) from damage


def refuse_if_in_use(lock: Path, where: Path) -> None:
    """Raise DirectoryInUseError if another process has the POSIX lock on a file, which may be missing.

    Raises DirectoryNotAccessibleError, too.
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
    """Hand out a temporary directory with what `directory` has under these names; without names, with all it has.

    Errors raised inside name `directory` instead of the view; damage is raised as DirectoryDamagedError.
    Raises DirectoryInUseError if one of the databases is open in another process, DirectoryDamagedError if it has
    tables that it does not know, and DirectoryNotAccessibleError.
    """
    with TemporaryDirectory(prefix="statestore-view-", dir=work_dir) as temporary:
        view = Path(temporary)
        with accessible(str(directory)):
            for name in entries:
                _link(directory / name, view / name, directory, _MAX_DEPTH)
            if not entries:
                _link_all(directory, view, directory, _MAX_DEPTH)
        try:
            for current in sorted(view.rglob(CURRENT_FILE)):
                _refuse_unknown_tables(current.parent)
            yield view
        except LocalStateCorruptedError as damage:
            found = _one_line(damage.cause.replace(str(view), str(directory)))
            raise DirectoryDamagedError(damage.path.replace(str(view), str(directory)), cause=found) from damage
        except StateStoreError as error:
            old, new = str(view), str(directory)
            error.args = tuple(each.replace(old, new) if isinstance(each, str) else each for each in error.args)
            raise


def tables_in(database: Path) -> list[Path]:
    """Return the table files in a database's directory, in order. Raises OSError."""
    return sorted(path for path in database.iterdir() if path.suffix == _TABLES)


def families_in(database: Path) -> tuple[str, ...]:
    """Return the column families of a database, in order; none if there is none. Raises OSError, and as RocksDB."""
    for path in (database / CURRENT_FILE, *database.glob(f"{_OF_DATABASES}*")):
        if path.is_file():
            _require_readable(path)
    try:
        str(database).encode()
    except UnicodeEncodeError:
        # RocksDB takes no name that is not UTF-8.
        with TemporaryDirectory(prefix="statestore-view-") as temporary:
            linked = Path(temporary, "database")
            linked.symlink_to(database.absolute())
            return list_families(str(linked))
    return list_families(str(database))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _refuse_unknown_tables(database: Path) -> None:
    """Raise LocalStateCorruptedError if there are tables that the database's MANIFEST does not know.

    RocksDB takes a cut MANIFEST for a whole one, and opens without the tables in the part that is missing.
    """
    known = live_tables(str(database))
    unknown = [table.name for table in tables_in(database) if table.name not in known]
    if unknown:
        raise LocalStateCorruptedError(
            database.name,
            path=str(database),
            cause=f"its MANIFEST does not know {', '.join(unknown)}: it was cut, or the application was killed while "
            "writing; if so, start and stop the application once, and RocksDB cleans up",
        )


def _link(source: Path, target: Path, where: Path, depth: int) -> None:
    """Make `target` a link or copy of `source`, if that exists; of directories only so many levels."""
    if source.is_dir():
        if depth > 0:
            target.mkdir(parents=True)
            _link_all(source, target, where, depth - 1)
    elif source.is_file() and not source.name.startswith(_NOT_NEEDED):
        target.parent.mkdir(parents=True, exist_ok=True)
        _require_readable(source)
        if source.suffix == _TABLES:
            target.symlink_to(source.absolute())
        else:
            shutil.copyfile(source, target)


def _link_all(source: Path, target: Path, where: Path, depth: int) -> None:
    refuse_if_in_use(source / LOCK_FILE, where)
    names = sorted(os.listdir(source))
    parts = [name for name in names if name.startswith(_OF_DATABASES) or name.endswith(_TABLES)]
    if parts and CURRENT_FILE not in names:
        # RocksDB would make a new, empty database of it.
        raise DirectoryDamagedError(str(source), cause=f"there is {parts[0]}, and no {CURRENT_FILE}")
    for name in names:
        _link(source / name, target / name, where, depth)


def _require_readable(path: Path) -> None:
    """Raise PermissionError if this user can't read a file: RocksDB's error would not say so."""
    os.close(os.open(path, os.O_RDONLY))
