"""Locks between processes of one machine: a process that dies gives them back.

A process that is forked has the open file of its parent, and with it the lock, for as long as either has it open. User
code may fork, and what it forks may live on. So a child closes the files of its parent's locks right after the fork,
which leaves the lock to the parent, and a parent unlocks before it closes: not every fork is one that Python sees.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_locks: set[FileLock] = set()
"""The locks of this process."""


class FileLock:
    """An exclusive lock on a file (flock). It belongs to this object, not to a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Take the lock if nobody has it; return whether it was free."""
        self._file = open(self._path, "ab")  # noqa: SIM115  open for as long as the lock is held
        _locks.add(self)  # before it is locked: another thread may fork at any moment
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._close()
            return False
        except BaseException:
            self._close()
            raise
        return True

    def release(self) -> None:
        """Give the lock back; harmless without it, also in a process that was forked from the one that has it."""
        if self._file is not None:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, None
        _locks.discard(self)
        if file is not None:
            file.close()


def _leave_locks_to_parent() -> None:
    for lock in list(_locks):
        lock._close()


os.register_at_fork(after_in_child=_leave_locks_to_parent)


@contextmanager
def try_lock(path: Path) -> Iterator[bool]:
    """Hold the lock beside `path`, in PATH.lock, for the duration, if it is free; say whether it was."""
    lock = FileLock(path.with_suffix(".lock"))
    has_lock = lock.acquire()
    try:
        yield has_lock
    finally:
        lock.release()
