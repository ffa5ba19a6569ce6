"""Keeps applications away from a directory while it is migrated.

RocksDB and Kafka Streams lock their directories with POSIX locks on a file, and refuse to start if they can't. We hold
a shared lock: it keeps both out, and lets us read. It belongs to an open file, as Linux and macOS offer it: a plain one
would be released as soon as any code in this process closes the same file.
"""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from statestore.bytestore.kafka_streams.directory_view import LOCK_FILE, refuse_if_in_use
from statestore.errors.new_state import DirectoryInUseError, DirectoryNotAccessibleError
from upgrade_tools.migration.publishing import write_errors
from upgrade_tools.states.task import APPLICATION_LOCK

_FLOCKS: Final[dict[str, Callable[[int], bytes]]] = {
    "linux": lambda kind: struct.pack("hhqqi4x", kind, os.SEEK_SET, 0, 0, 0),
    "darwin": lambda kind: struct.pack("qqihh", 0, 0, 0, kind, os.SEEK_SET),
}
"""`struct flock` on 64 bits for a lock of a whole file: type, whence, start, length, process; reversed on macOS."""
_SET_LOCK: Final = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform in _FLOCKS else None
_ALONE: Final = fcntl.LOCK_EX | fcntl.LOCK_NB
_HELD_ELSEWHERE: Final = (BlockingIOError, PermissionError)
"""EAGAIN and EACCES: POSIX allows either for a lock that is held."""


@contextmanager
def exclude_applications(tasks: Iterable[Path], *, create: bool) -> Iterator[None]:
    """Hold the existing lock files of these tasks' application and databases for the duration.

    With `create`, a missing one of the application is created meanwhile. Raises DirectoryInUseError if one is held by
    another process, and DirectoryNotAccessibleError.
    """
    with ExitStack() as held:
        directories = list(tasks)
        for application in sorted({task.parent for task in directories}):
            _hold_lock(application / APPLICATION_LOCK, application, held, create=create)
        for task in directories:
            for lock in sorted(task.rglob(LOCK_FILE)):
                _hold_lock(lock, task, held, create=False)
        yield


@contextmanager
def lock_workspace(workspace: Path) -> Iterator[None]:
    """Hold WORKSPACE.lock for the duration. Raises DirectoryInUseError if another migration does."""
    path = workspace.with_name(f"{workspace.name}.lock")
    with ExitStack() as held:
        _lock_file(path, workspace, held, os.O_RDWR | os.O_CREAT, lambda file: fcntl.flock(file, _ALONE))
        held.callback(path.unlink, missing_ok=True)  # while it is held, so that no other process holds it
        yield


@contextmanager
def lock_location(location: Path) -> Iterator[None]:
    """Hold a lock on a directory itself for the duration, creating it if missing; it gets no lock file.

    Raises DirectoryInUseError if another migration does, and DirectoryNotAccessibleError.
    """
    with ExitStack() as held:
        with write_errors(location):
            location.mkdir(parents=True, exist_ok=True)
        _lock_file(location, location, held, os.O_RDONLY, lambda directory: fcntl.flock(directory, _ALONE))
        yield


def _hold_lock(lock: Path, where: Path, held: ExitStack, *, create: bool) -> None:
    if _SET_LOCK is None:
        refuse_if_in_use(lock, where)  # without such locks, only the present state can be checked
        return
    is_new = create and not lock.exists()
    descriptor = _lock_file(
        lock, where, held, os.O_RDWR | os.O_CREAT if create else os.O_RDONLY, partial(_set_lock, kind=fcntl.F_RDLCK)
    )
    if is_new and descriptor is not None:
        held.callback(_remove_if_alone, lock, descriptor)


def _lock_file(path: Path, where: Path, held: ExitStack, flags: int, take: Callable[[int], None]) -> int | None:
    """Return the descriptor of a file that is at `path` and that `take` has locked, None if there is no such file.

    The holder of a lock may remove its file, so another file may be in its place by the time that the lock is free.
    """
    while True:
        try:
            descriptor = os.open(path, flags, 0o644)
        except FileNotFoundError:
            return None
        except PermissionError as cause:
            raise DirectoryNotAccessibleError(str(where), cause=str(cause)) from cause
        opened = held.enter_context(ExitStack())
        opened.callback(os.close, descriptor)
        try:
            take(descriptor)
        except _HELD_ELSEWHERE as cause:
            raise DirectoryInUseError(str(where), lock=str(path)) from cause
        if _is_at(path, descriptor):
            return descriptor
        opened.close()


def _set_lock(descriptor: int, kind: int) -> None:
    assert _SET_LOCK is not None  # `_hold_lock` returns early without it
    fcntl.fcntl(descriptor, _SET_LOCK, _FLOCKS[sys.platform](kind))


def _is_at(path: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _remove_if_alone(lock: Path, descriptor: int) -> None:
    """Remove a lock file that was made here, while it is held; leave it if another migration holds it by now."""
    with suppress(*_HELD_ELSEWHERE):
        _set_lock(descriptor, fcntl.F_WRLCK)
        lock.unlink(missing_ok=True)
