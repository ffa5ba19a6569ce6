"""How the memory that state may take is divided. The one owner of the split.

Python workers of one executor share no memory, so each task that runs at once on an executor has an equal part. A
task's part is divided:

    1/2     to uncommitted writes: Python objects, the largest per byte of state, and full in every large batch
    1/4     to the write buffers of the shard's database: the larger, the fewer files an applied delta becomes
    1/8     to the buffers of the database that uncommitted writes spill to: files of a few MB are enough for it
    1/16    to the block cache. Uncompressed blocks are read in place from mapped files and do not go there; it bounds
            the rest

and 1/16 is left for the record batch of a delta that is being encoded.

In-memory stores take memory beside it: those of the shard at work without a bound. Those of other shards, which are
kept so that they need not be loaded again, are bounded by half a task's part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DEFAULT_TASK_BYTES: Final = 256 << 20
"""The default of a task; also the budget of tools and readers, which open a shard at a time."""
MIN_TASK_BYTES: Final = 16 << 20
"""With less the write buffers are so small that RocksDB does nothing but flush and compact."""


@dataclass(frozen=True)
class DatabaseMemory:
    """What one RocksDB database may hold in memory, of all its column families together."""

    write_buffers_bytes: int
    block_cache_bytes: int


@dataclass(frozen=True)
class MemoryBudget:
    """What the state on one executor may take in memory, in bytes; `concurrent_tasks` run there at once. Picklable.

    Raises ValueError if a task's part of it is less than 16 MiB.
    """

    memory_bytes: int = DEFAULT_TASK_BYTES
    concurrent_tasks: int = 1

    def __post_init__(self) -> None:
        if self.concurrent_tasks < 1:
            raise ValueError(f"concurrent_tasks must be at least 1, got {self.concurrent_tasks}")
        if self.task_bytes < MIN_TASK_BYTES:
            raise ValueError(
                f"{self.memory_bytes} bytes of memory for the state leave {self.task_bytes} for each of "
                f"{self.concurrent_tasks} concurrent tasks; give it at least {MIN_TASK_BYTES * self.concurrent_tasks}"
            )

    @property
    def task_bytes(self) -> int:
        """One task's part of the budget."""
        return self.memory_bytes // self.concurrent_tasks

    @property
    def pending_bytes(self) -> int:
        """What uncommitted writes and their changelog may take before they go to disk."""
        return self.task_bytes // 2

    @property
    def kept_images_bytes(self) -> int:
        """What a process may keep of the in-memory stores of shards that no batch uses, beside a task's part."""
        return self.task_bytes // 2

    @property
    def database(self) -> DatabaseMemory:
        """What the database of a shard's local copy may hold."""
        return DatabaseMemory(self.task_bytes // 4, self.task_bytes // 16)

    @property
    def spill_database(self) -> DatabaseMemory:
        """What the database that uncommitted writes spill to may hold."""
        return DatabaseMemory(self.task_bytes // 8, 1 << 20)
