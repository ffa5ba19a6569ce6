"""Where a machine keeps the local copies of shards, and how the databases in there are opened.

The seam for everything that is not the durable location: who wants other databases or another place hands out a
subclass.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from statestore.bytestore.memory_budget import MemoryBudget
from statestore.bytestore.rocksdb import RocksDBDatabase
from statestore.bytestore.spilling import SpillSpace


class LocalDirectory:
    """A directory on each machine that runs tasks, which may be lost at any time. Picklable.

    `path` of None is one directory per user in the temporary directory of the machine that it is asked for on. `memory`
    is what the state on one executor may take; None is the default budget, for one task at a time.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, memory: MemoryBudget | None = None) -> None:
        self.path = None if path is None else os.fspath(path)
        self.memory = memory or MemoryBudget()

    @classmethod
    def of(
        cls, local_dir: str | os.PathLike[str] | LocalDirectory | None, memory: MemoryBudget | None = None
    ) -> LocalDirectory:
        """Return what is given, if that is a path or None as a directory there, with that budget."""
        return local_dir if isinstance(local_dir, LocalDirectory) else cls(local_dir, memory=memory)

    def shard(self, state_id: str, shard: int) -> Path:
        """Return the directory of a shard on this machine; it need not exist."""
        root = self.path or os.path.join(tempfile.gettempdir(), f"statestore-{os.getuid()}")
        return Path(root, state_id, f"shard-{shard:04d}")

    def open_database(self, path: Path, families: Sequence[str]) -> RocksDBDatabase:
        """Return the database at `path`, open, with at least these families. Raises what RocksDBDatabase raises."""
        return RocksDBDatabase(str(path), families, memory=self.memory.database)

    def spill_space(self, path: Path) -> SpillSpace:
        """Return the directory at `path` for what a batch can't hold in memory. The caller has it for itself."""
        return SpillSpace(path, self.memory)
