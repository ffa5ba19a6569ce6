"""Where a machine keeps the local copies of shards, and how the databases in there are opened.

The seam for everything that is not the durable location: a subclass can open other databases, or in another place.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import IO, Final, Protocol

from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.engines.table_files import unreadable_tables
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors import LocalDirectoryError
from statestore.recovery.location.shard_files import path_part

_ONLY_FOR_THE_USER: Final = 0o700
_TEMPORARY: Final = "temporary"


class RunningThread(Protocol):
    """What `LocalDirectory.start_thread` started."""

    def join(self, timeout: float | None = None) -> None:
        """Wait for its end, for so many seconds at most; None is without limit."""

    def is_alive(self) -> bool:
        """Return whether it has not ended yet."""


class LocalDirectory:
    """A directory on each machine that runs tasks, which may be lost at any time. Picklable.

    `path` of None is one directory per user, which nobody else may read, in the temporary directory of each machine.
    What is made below either of them is for the user alone too; a given one stays as it is. `memory` is what the state
    on one executor may take; None is the default budget, for one task at a time.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, memory: MemoryBudget | None = None) -> None:
        self.path = None if path is None else os.fspath(path)
        self.memory = memory or MemoryBudget()

    @classmethod
    def of(
        cls, local_dir: str | os.PathLike[str] | LocalDirectory | None, memory: MemoryBudget | None = None
    ) -> LocalDirectory:
        """Return `local_dir` as a LocalDirectory; a path or None gets the budget `memory`."""
        return local_dir if isinstance(local_dir, LocalDirectory) else cls(local_dir, memory=memory)

    def shard(self, state_id: str, shard: int) -> Path:
        """Return the directory of a shard, which need not exist. Raises UnsafeNameError, LocalDirectoryError."""
        return Path(self.path or private_directory(), path_part(state_id), f"shard-{shard:04d}")

    def open_database(self, path: Path, families: Sequence[str]) -> RocksDBDatabase:
        """Return the database at `path`, open, with at least these families. Raises what RocksDBDatabase raises."""
        return RocksDBDatabase(str(path), families, memory=self.memory.database)

    def spill_space(self, path: Path) -> SpillSpace:
        """Return the directory at `path` for what a batch can't hold in memory. No other batch may use it."""
        return SpillSpace(path, self.memory)

    def unreadable_tables(self, tables: Sequence[Path], scratch: Path) -> list[str]:
        """Return those tables that can't be read to their end; `scratch` is there for the time of the call."""
        return unreadable_tables(tables, scratch)

    def start_thread(self, name: str, run: Callable[[], None]) -> RunningThread:
        """Have `run` done beside the batches of this process. Raises RuntimeError if there is no thread to be had."""
        # No daemon: one that is in the middle of a call when Python ends crashes the process.
        thread = threading.Thread(target=run, name=name)
        thread.start()
        return thread


def make_shard_directory(path: Path) -> None:
    """Make the directories of a shard and of its state for the user alone, or close them to others. Raises OSError."""
    # The user gives the directory above them, which is made as the umask says.
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    for directory in (path.parent, path):
        found = _make_private(directory)
        if not stat.S_ISDIR(found.st_mode):
            # The user may have put a link to a directory there, for another disk; this fails for anything else.
            directory.mkdir(exist_ok=True)


def discard(path: Path) -> None:
    """Remove a directory, if it is there. Its name is free at once; a process that has it open keeps its files."""
    with suppress(FileNotFoundError):
        os.rename(path, path.with_name(f"{path.name}.discarded-{uuid.uuid4().hex}"))
    for discarded in path.parent.glob(f"{path.name}.discarded-*"):
        # Also those of a process that was killed meanwhile.
        shutil.rmtree(discarded, ignore_errors=True)


def _make_private(path: str | os.PathLike[str]) -> os.stat_result:
    """Make a directory for the user alone, or close one to others if it is the user's; return what is there."""
    with suppress(FileExistsError):
        os.mkdir(path, _ONLY_FOR_THE_USER)
    found = os.lstat(path)
    is_own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid()
    if is_own and stat.S_IMODE(found.st_mode) != _ONLY_FOR_THE_USER:
        # Older releases made it as the umask said.
        os.chmod(path, _ONLY_FOR_THE_USER)
    return found


def private_directory(directory: str | os.PathLike[str] | None = None) -> str:
    """Return the user's directory in one, None is the temporary one. Raises LocalDirectoryError if another made it."""
    path = os.path.join(directory or tempfile.gettempdir(), f"statestore-{os.getuid()}")
    try:
        found = _make_private(path)
    except OSError as cause:
        raise LocalDirectoryError(path, cause=str(cause)) from cause
    if not stat.S_ISDIR(found.st_mode):
        raise LocalDirectoryError(path, cause="it is not a directory")
    if found.st_uid != os.getuid():
        raise LocalDirectoryError(path, cause=f"it belongs to the user {found.st_uid}, not to {os.getuid()}")
    return path


@contextmanager
def temporary_copies(directory: str | os.PathLike[str] | None = None) -> Iterator[Path]:
    """Hand out an empty directory, and remove those that dead processes have left beside it.

    Each has a number and a lock, as copies of a shard have. It is below `directory`, None is the temporary one. Raises
    LocalDirectoryError, OSError.
    """
    parent = Path(private_directory(directory), _TEMPORARY)
    parent.mkdir(exist_ok=True)
    with ExitStack() as held:
        own: Path | None = None
        for number in count():
            path = parent / f"{number}"
            if own is not None and not path.with_suffix(".lock").exists():
                break
            with ExitStack() as looking:
                if looking.enter_context(try_lock(path)):
                    discard(path)
                    if own is None:
                        own = path
                        held.enter_context(looking.pop_all())
        assert own is not None  # there always is a next number
        held.callback(discard, own)
        _make_private(own)
        yield own


_locks: set[FileLock] = set()  # of this process


class FileLock:
    """An exclusive lock on a file (flock), held by this object, not by a thread; it ends with the process.

    A fork has the open file, and with it the lock, for as long as it lives. So a child closes it right after the fork,
    and a parent unlocks before it closes, as Python does not see every fork.
    """

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
        """Release the lock; harmless without it, also in a process that was forked from the one that has it."""
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
