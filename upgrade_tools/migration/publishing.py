"""Puts what was made in its place in one step: there is either all of it, or what was there before."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from statestore.errors.new_state import DirectoryNotAccessibleError
from statestore.errors.state import LocalDiskFullError
from upgrade_tools.errors import NoRoomError

_TABLES: Final = ".sst"
_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_HERE: Final = -100
"""AT_FDCWD: paths are relative to the working directory."""
_EXCHANGE: Final = 2
"""RENAME_EXCHANGE of Linux."""
_NOT_SUPPORTED: Final = (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP)


@contextmanager
def write_errors(where: Path) -> Iterator[None]:
    """Turn errors of the operating system, or of RocksDB, from writing to `where` into errors of a tool.

    Raises NoRoomError, after which the same command can continue, and DirectoryNotAccessibleError.
    """
    try:
        yield
    except LocalDiskFullError as cause:
        raise NoRoomError(str(where), needed_bytes=None, free_bytes=_free_bytes(where)) from cause
    except OSError as cause:
        if cause.errno in _NO_SPACE:
            raise NoRoomError(str(where), needed_bytes=None, free_bytes=_free_bytes(where)) from cause
        raise DirectoryNotAccessibleError(str(where), cause=str(cause)) from cause


def _free_bytes(where: Path) -> int:
    """Return the free room on the disk of a path, which need not exist."""
    return shutil.disk_usage(next(path for path in (where, *where.parents) if path.is_dir())).free


def sync_tree(directory: Path) -> None:
    """Sync `directory`, and all files and directories below it, to disk."""
    for parent, _, files in os.walk(directory, topdown=False):
        for name in files:
            _sync(os.path.join(parent, name))
        _sync(parent)


def sync_entry(path: Path) -> None:
    """Sync to disk that `path` exists, or does not."""
    _sync(os.fspath(path.parent))


def exchange(one: Path, other: Path) -> bool:
    """Give two directories each other's names in one step; False if the filesystem can't."""
    rename: object = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if not callable(rename):
        return False
    if rename(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        sync_entry(one)
        return True
    code = ctypes.get_errno()
    if code in _NOT_SUPPORTED:
        return False
    raise OSError(code, os.strerror(code), str(one), None, str(other))


def link_tree(source: Path, target: Path) -> None:
    """Make `target` an independent copy of the databases in `source`.

    RocksDB never changes a table, so tables are hard links where the filesystem has them.
    """
    shutil.copytree(source, target, copy_function=_link_table, dirs_exist_ok=True)


def _link_table(source: str, target: str) -> None:
    if source.endswith(_TABLES):
        try:
            if os.path.exists(target):
                os.unlink(target)
            os.link(source, target)
            return
        except OSError as cause:
            if cause.errno not in (errno.EXDEV, errno.EPERM, errno.EMLINK, errno.ENOTSUP):
                raise
    shutil.copy2(source, target)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
