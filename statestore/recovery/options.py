"""What can be set about snapshots, retention and restores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from statestore.recovery.restore_progress import StateRestoreListener

DEFAULT_RETAINED_VERSIONS: Final = 100
"""Spark's default of spark.sql.streaming.minBatchesToRetain."""


@dataclass(frozen=True)
class RecoveryOptions:
    """When snapshots are made, and how much history is kept. Picklable, if the listener is."""

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

    @property
    def retained(self) -> int:
        """`retained_versions`, with Spark's default for None."""
        return DEFAULT_RETAINED_VERSIONS if self.retained_versions is None else self.retained_versions

    def __post_init__(self) -> None:
        for name in ("snapshot_every_deltas", "snapshot_every_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)!r}")
        if self.snapshot_budget_ms < 0:
            raise ValueError(f"snapshot_budget_ms must not be negative, but is {self.snapshot_budget_ms!r}")
        if self.retained_versions is not None and self.retained_versions < 1:
            raise ValueError(f"retained_versions must be at least 1, not {self.retained_versions!r}")
