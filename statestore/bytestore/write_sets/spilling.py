"""What a batch's uncommitted writes take in memory, and the local disk that they go to when that is too much.

What else a batch can't hold in memory goes to files in the same directory: see SpillSpace.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol

from statestore.bytestore.engines.local_disk_errors import local_disk_errors
from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.bytestore.engines.rocksdb import RocksDBByteStore, RocksDBDatabase
from statestore.errors import StoreError

_LOG = logging.getLogger(__name__)

ENTRY_BYTES: Final = 300
"""What a key with its value takes beside their own bytes, in a write set and a changelog: two bytes objects, and a slot
in each of two dicts, with the room that dicts keep free. Measured with CPython 3.11."""


class HoldsWrites(Protocol):
    """Something that holds uncommitted writes in memory."""

    def held_bytes(self) -> int:
        """Return about how much memory they take."""

    def spill(self) -> None:
        """Bring them to disk, and hold none."""


class PendingMemory:
    """Counts what is written to all stores of a batch, and has its holders spill when they hold more than the limit.

    Who writes adds to `written_bytes`, and calls `relieve` when that is above `limit_bytes`. A write that replaces
    another one is counted too: what is really held is found out only then, so that a hot key costs no more than others.
    """

    def __init__(self, limit_bytes: int = sys.maxsize) -> None:
        self.limit_bytes = limit_bytes
        self.written_bytes = 0  # not less than what is held
        self.spills = 0
        self.failure: BaseException | None = None  # what a spill failed with, None if none did
        self._holders: list[HoldsWrites] = []

    def add(self, holder: HoldsWrites) -> None:
        """Have `holder` spill when there is too much."""
        self._holders.append(holder)

    def add_first(self, holder: HoldsWrites) -> None:
        """Have `holder` spill before all others: it reads what they hold."""
        self._holders.insert(0, holder)

    @contextmanager
    def final(self) -> Iterator[None]:
        """Make what fails in here final: the same is raised each time that anybody comes here again.

        A spill that failed may have brought a part of the writes to disk, and who made the write that it was for was
        stopped halfway. User code may swallow the error and go on, so it must come back before the batch is committed.
        """
        if self.failure is not None:
            # Without its traceback, which would grow each time.
            raise self.failure.with_traceback(None)
        try:
            yield
        except BaseException as failure:
            self.failure = failure
            raise

    def relieve(self) -> None:
        """Have all holders spill, unless most of what was written is no longer held. A failure is `final`."""
        with self.final():
            self._relieve()

    def _relieve(self) -> None:
        held = sum(holder.held_bytes() for holder in self._holders)
        # Not the limit itself: just below it, the next writes would make us look again at once, and again.
        if held <= self.limit_bytes // 2:
            self.written_bytes = held
            return
        # All of them: a write set and its changelog hold the same bytes, so one alone sets nothing free.
        for holder in self._holders:
            holder.spill()
        self.spills += 1
        self.written_bytes = 0


class SpillSpace:
    """A directory on local disk for what a batch can't hold in memory, which is gone when the batch ends.

    The directory is made at the first spill. The caller holds a lock that keeps all others away from it, so what is
    there at the beginning was left by a process that died, and is removed.
    """

    def __init__(self, directory: Path, budget: MemoryBudget) -> None:
        self.directory = directory
        self._writes = directory / "writes"
        self.pending = PendingMemory(budget.pending_bytes)
        self._memory = budget.spill_database
        self._names: list[str] = []
        self._database: RocksDBDatabase | None = None

    def __enter__(self) -> SpillSpace:
        if self.directory.exists():
            _LOG.info("removing %s, which a process left that died", self.directory)
            shutil.rmtree(self.directory)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._database is not None:
                self._database.close()
        except StoreError as failure:
            # Nobody needs what could not be written any more, and the batch is in its delta or has failed already.
            _LOG.warning("closing what was spilled: %s", failure)
        finally:
            if self.directory.exists():
                shutil.rmtree(self.directory)

    def reserve(self, name: str) -> None:
        """Say that `store` may be asked for; before the first spill, which makes all of them at once."""
        self._names.append(name)

    def store(self, name: str) -> RocksDBByteStore:
        """Return an ordered map on disk for the store `name`, empty at the first call."""
        if self._database is None:
            self.make_directory()
            self._database = RocksDBDatabase(str(self._writes), self._names, memory=self._memory)
        return self._database.family(name)

    def make_directory(self) -> Path:
        """Return the directory, which is there from now on. Raises LocalDiskFullError, LocalDirectoryError."""
        with local_disk_errors("spilled writes", self.directory):
            self.directory.mkdir(exist_ok=True)
        return self.directory

    @property
    def size_bytes(self) -> int:
        """What the writes of all stores take on disk now."""
        size_bytes = 0
        for parent, _, names in os.walk(self._writes):
            for name in names:
                # RocksDB may be removing a table that it has no more use for.
                with suppress(FileNotFoundError):
                    size_bytes += os.stat(os.path.join(parent, name)).st_size
        return size_bytes
