"""What a shard did in a batch, in figures, counted on the executor.

Each of these classes is used for one shard and for all shards of a batch together: every figure is a sum. A figure that
Kafka Streams has a metric for has its name, with `_` for `-`, and counts one batch instead of all since the start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

F = TypeVar("F", bound=tuple[float, ...])


class StoreFigures(NamedTuple):
    """What the changelog of a store has of a batch: of several writes to a key most often the last one only."""

    entries_put: int = 0
    entries_deleted: int = 0
    key_bytes: int = 0
    value_bytes: int = 0
    header_bytes: int = 0
    """As KIP-1271 encodes headers; a delete has the headers of the record that caused it."""


class DeltaFigures(NamedTuple):
    """The changelogs of a batch, as files in the durable location."""

    deltas: int = 0
    """One for each shard that was changed."""
    size_bytes: int = 0
    """As they are written: compressed."""


class RestoreFigures(NamedTuple):
    """Local copies that were rebuilt, or were more than one version behind."""

    shards: int = 0
    restore_total: int = 0
    """Entries of snapshots, which are an estimate, and records of deltas."""
    size_bytes: int = 0
    """What was read of snapshots and deltas."""
    elapsed_ms: float = 0.0


class SpillFigures(NamedTuple):
    """Uncommitted writes that were more than may be held in memory."""

    spills: int = 0
    size_bytes: int = 0
    """What they took on the local disk at the end of the batch."""


class SnapshotFigures(NamedTuple):
    """Snapshots, which are made beside the batches and take several of them."""

    begun: int = 0
    finished: int = 0
    """Named by a commit pointer: from now on, shards are restored from it."""
    failed: int = 0
    """Attempts that went wrong since the last batch; a later batch tries again."""
    uploaded_bytes: int = 0
    """Of those that finished, without tables that they share with the one before."""
    elapsed_ms: float = 0.0
    """Of those that finished, from beginning to end."""
    overdue: int = 0
    """Shards without a snapshot for `warn_after_deltas` deltas or more: they take space, and time to restore."""


class UpgradeFigures(NamedTuple):
    """Entries of stores that were given a newer format."""

    entries_moved: int = 0
    entries_left: int = 0
    """RocksDB's estimate; 0 if, and only if, the upgrade is finished."""


class SizeFigures(NamedTuple):
    """What a store of a shard holds after the batch, estimated without reading it.

    Entries that are overwritten count twice until RocksDB compacts them.
    """

    entries: int = 0
    size_bytes: int = 0
    """Of compressed tables and of write buffers, which take a MiB at a time; of in-memory stores, their memory."""
    header_bytes: int = 0
    """The same share of `size_bytes` that headers have of what this batch wrote; 0 if it wrote nothing."""


def total(kind: Callable[..., F], figures: Iterable[F]) -> F:
    """Return the sum of figures of one kind; zeros if there are none."""
    return kind(*map(sum, zip(kind(), *figures, strict=True)))


@dataclass(frozen=True)
class CommitFigures:
    """The figures of one shard's batch. None of them counts unless Spark keeps the batch."""

    restore: RestoreFigures = field(default_factory=RestoreFigures)
    stores: Mapping[str, StoreFigures] = field(default_factory=dict)
    """Of the stores that were written to."""
    sizes: Mapping[str, SizeFigures] = field(default_factory=dict)
    """Of all stores, after the batch."""
    delta: DeltaFigures = field(default_factory=DeltaFigures)
    spill: SpillFigures = field(default_factory=SpillFigures)
    snapshot: SnapshotFigures = field(default_factory=SnapshotFigures)
    upgrade: UpgradeFigures = field(default_factory=UpgradeFigures)


class Stopwatch:
    """Measures steps one after the other, from the moment that it is made."""

    def __init__(self) -> None:
        self._since_ns = time.perf_counter_ns()

    def lap_ms(self) -> float:
        """Return the milliseconds since it was made or last asked, without pauses."""
        now_ns = time.perf_counter_ns()
        elapsed_ns, self._since_ns = now_ns - self._since_ns, now_ns
        return elapsed_ns / 1e6

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do not count the time that passes within."""
        began_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self._since_ns += time.perf_counter_ns() - began_ns
