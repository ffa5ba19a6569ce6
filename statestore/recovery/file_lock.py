"""Locks between processes of one machine: a process that dies gives them back."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


class FileLock:
    """An exclusive lock on a file (flock). It belongs to this object, not to a thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held: IO[bytes] | None = None

    def acquire(self) -> bool:
        """Take the lock if nobody has it; return whether it was free."""
        file = open(self._path, "ab")  # noqa: SIM115  open for as long as the lock is held
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        except BaseException:
            file.close()
            raise
        self._held = file
        return True

    def release(self) -> None:
        """Give the lock back; harmless without it."""
        held, self._held = self._held, None
        if held is not None:
            held.close()


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold the lock beside `path`, in PATH.lock, for the duration, if it is free; say whether it was."""
    lock = FileLock(path.with_suffix(".lock"))
    held = lock.acquire()
    try:
        yield held
    finally:
        lock.release()
