"""Keeps applications away from a directory while it is migrated.

RocksDB and Kafka Streams lock their directories with POSIX locks on a file, and refuse to start if they can't. We hold
a shared one: it keeps both out, and lets us read. It is Linux's own kind of lock, as a plain one would be given back as
soon as any part of this process closes the same file.
"""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from statestore.bytestore.directory_view import LOCK_FILE, refuse_if_in_use
from statestore.errors import DirectoryInUseError, DirectoryNotAccessibleError
from statestore.recovery.file_lock import FileLock
from upgrade_tools.states.task import APPLICATION_LOCK

_FLOCK: Final = struct.Struct("hhqqi4x")
"""`struct flock` of Linux on 64 bits: type, whence, start, length, process."""
_WHOLE_FILE: Final = _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
_SET_LOCK: Final = getattr(fcntl, "F_OFD_SETLK", None)


@contextmanager
def kept_from_applications(tasks: Iterable[Path], *, create: bool) -> Iterator[None]:
    """Hold the locks of these tasks' application and databases for the duration, as far as their files are there.

    With `create`, that of the application is there meanwhile even if it is missing. Raises DirectoryInUseError if
    somebody else has one of them, and DirectoryNotAccessibleError.
    """
    with ExitStack() as held:
        directories = list(tasks)
        for application in sorted({task.parent for task in directories}):
            _hold(application / APPLICATION_LOCK, application, held, create=create)
        for task in directories:
            for lock in sorted(task.rglob(LOCK_FILE)):
                _hold(lock, task, held, create=False)
        yield


@contextmanager
def alone_on(workspace: Path) -> Iterator[None]:
    """Hold WORKSPACE.lock for the duration. Raises DirectoryInUseError if another migration does."""
    path = workspace.with_name(f"{workspace.name}.lock")
    lock = FileLock(path)
    try:
        held = lock.acquire()
    except PermissionError as cause:
        raise DirectoryNotAccessibleError(str(path.parent), cause=str(cause)) from cause
    if not held:
        raise DirectoryInUseError(str(workspace), lock=str(path))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        lock.release()


def _hold(lock: Path, where: Path, held: ExitStack, *, create: bool) -> None:
    if _SET_LOCK is None:
        refuse_if_in_use(lock, where)  # an operating system without such locks: asked once is all there is
        return
    if create and not lock.exists():
        held.callback(lock.unlink, missing_ok=True)
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT if create else os.O_RDONLY, 0o644)
    except FileNotFoundError:
        return
    except PermissionError as cause:
        raise DirectoryNotAccessibleError(str(where), cause=str(cause)) from cause
    held.callback(os.close, descriptor)
    try:
        fcntl.fcntl(descriptor, _SET_LOCK, _WHOLE_FILE)
    except BlockingIOError as cause:
        raise DirectoryInUseError(str(where), lock=str(lock)) from cause
    except PermissionError as cause:  # EACCES: POSIX lets systems say so of a lock that is held
        raise DirectoryInUseError(str(where), lock=str(lock)) from cause
