"""What can be set about snapshots, retention, restores and upgrades."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from statestore.recovery.restore.restore import StateRestoreListener

DEFAULT_RETAINED_VERSIONS: Final = 100
"""Spark's default of spark.sql.streaming.minBatchesToRetain."""


@dataclass(frozen=True)
class RecoveryOptions:
    """When snapshots are made, how much history is kept, and what upgrades take. Picklable, if the listener is."""

    snapshot_every_deltas: int = 50
    """A snapshot is begun when so many deltas were committed since the last one."""
    snapshot_every_bytes: int = 256 << 20
    """Or when they are this large together."""
    snapshot_budget_ms: float = 20
    """How long the end of a batch waits, at most, for an upload that this process has begun before."""
    retained_versions: int | None = None
    """How many of a shard's versions before the last one can be restored; older files are removed. None is what Spark
    retains of batches, spark.sql.streaming.minBatchesToRetain: with less, Spark could go back to what is not there.
    """
    restore_listener: StateRestoreListener | None = None
    """Who is told of restores."""
    upgrade_budget_ms: float = 50
    """After a store was given a newer format, how long each shard and batch may take to move entries that no record
    touches.
    """
    warn_after_deltas: int | None = None
    """How many deltas since a shard's newest snapshot make the next one overdue: this is logged, and counted in the
    figures of each batch. None is 4 times `snapshot_every_deltas`, 0 is never.
    """
    stop_after_deltas: int | None = None
    """With more deltas than this since a shard's newest snapshot, a batch waits for the one that is being uploaded. If
    that does not help, the query stops with SnapshotOverdueError. None is 100 times `snapshot_every_deltas`, 0 never.
    """

    def is_overdue(self, deltas_since_snapshot: int) -> bool:
        """Return whether so many deltas without a snapshot are to be reported."""
        warn_after = 4 * self.snapshot_every_deltas if self.warn_after_deltas is None else self.warn_after_deltas
        return 0 < warn_after <= deltas_since_snapshot

    @property
    def most_deltas(self) -> int | None:
        """How many deltas there may be since the newest snapshot; None if there is no limit."""
        if self.stop_after_deltas is None:
            return 100 * self.snapshot_every_deltas
        return self.stop_after_deltas or None

    @property
    def retained(self) -> int:
        """`retained_versions`, with Spark's default for None."""
        return DEFAULT_RETAINED_VERSIONS if self.retained_versions is None else self.retained_versions

    def __post_init__(self) -> None:
        for name in ("snapshot_every_deltas", "snapshot_every_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        for name in ("warn_after_deltas", "stop_after_deltas"):
            value = getattr(self, name)
            if value and value <= self.snapshot_every_deltas:
                least = f"more than snapshot_every_deltas ({self.snapshot_every_deltas})"
                raise ValueError(f"{name} must be {least}, or 0 for never, not {value!r}")
        if self.snapshot_budget_ms < 0:
            raise ValueError(f"snapshot_budget_ms must not be negative, but is {self.snapshot_budget_ms!r}")
        if self.retained_versions is not None and self.retained_versions < 1:
            raise ValueError(f"retained_versions must be at least 1, not {self.retained_versions!r}")
