"""Tells of every micro-batch what its state came to: typed figures, a line in the log, and a call to whoever asks."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from statestore.recovery.commit.figures import StoreFigures, total
from statestore.spark.figures import BatchFigures, batch_figures

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_LOG = logging.getLogger(__name__)
_DEFAULT_HISTORY: Final = 100


class StateStoreListener(StreamingQueryListener):
    """Collects the figures of all queries of a session: `spark.streams.addListener(StateStoreListener())`.

    Each batch is logged in one line: at INFO, or at WARNING if there is something to look at, which the line says.
    Spark tells its listeners of a batch soon after it ended, in a thread of its own; a query never waits for them.
    """

    def __init__(
        self, on_batch: Callable[[BatchFigures], object] | None = None, *, history: int = _DEFAULT_HISTORY
    ) -> None:
        """Keep the figures of the last `history` batches, of all queries together.

        `on_batch` is called with the figures of each `stateful()` operator and batch. What it raises is logged, and
        harms neither the query nor other listeners.
        """
        self._on_batch = on_batch
        self._lock = threading.Lock()
        self._history: deque[BatchFigures] = deque(maxlen=history)
        self._called: dict[str, set[tuple[str, int]]] = {}
        """By run, the shards that were called, with their states."""

    def batches(self, query_id: str | None = None) -> list[BatchFigures]:
        """Return the figures that are kept, oldest first; of one query, or of all if that is None."""
        with self._lock:
            kept = list(self._history)
        return [figures for figures in kept if query_id in (None, figures.query_id)]

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing: there are no figures yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Take note of a batch."""
        try:
            for figures in batch_figures(event.progress):
                self._take(figures, self._called.setdefault(figures.run_id, set()))
        except Exception:
            # Spark would only print it.
            _LOG.exception("no figures of batch %d of query %s", event.progress.batchId, event.progress.id)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing: no batch ran."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the run; its figures stay."""
        self._called.pop(str(event.runId), None)

    def _take(self, figures: BatchFigures, called: set[tuple[str, int]]) -> None:
        with self._lock:
            self._history.append(figures)
        restored = {(figures.state_id, shard.shard) for shard in figures.shards if shard.restore.shards}
        troubles = troubles_of(figures, restored_again=len(restored & called))
        called.update((figures.state_id, shard.shard) for shard in figures.shards)
        _LOG.log(logging.WARNING if troubles else logging.INFO, "%s", "; ".join([summary_of(figures), *troubles]))
        if self._on_batch is None:
            return
        try:
            self._on_batch(figures)
        except Exception:
            _LOG.exception("on_batch failed on batch %d of query %s", figures.batch_id, figures.query_id)


def summary_of(figures: BatchFigures) -> str:
    """Return one line that says what the batch did."""
    query = f"query {figures.query_name or figures.query_id}, batch {figures.batch_id}"
    records, slowest = figures.records, figures.slowest
    if slowest is None:
        return f"{query}: no shard was called"
    changed = total(StoreFigures, figures.stores.values())
    parts = [
        f"{query}: {records.process_total} records in, {records.records_produced_total} out",
        f"{changed.entries_put} entries put, {changed.entries_deleted} deleted, {_size(changed.header_bytes)} of "
        f"headers, {_size(figures.delta.size_bytes)} of deltas",
        f"shards: {len(figures.shards)}, version {figures.version}, the slowest {slowest.shard} "
        f"({slowest.elapsed_ms:.0f} ms)",
    ]
    restore, snapshot, upgrade = figures.restore, figures.snapshot, figures.upgrade
    if restore.shards:
        restored = f"{restore.restore_total} entries, {_size(restore.size_bytes)}, {restore.elapsed_ms:.0f} ms"
        parts.append(f"shards restored: {restore.shards} ({restored})")
    if snapshot.finished:
        parts.append(f"snapshots finished: {snapshot.finished} ({_size(snapshot.uploaded_bytes)} uploaded)")
    if any(upgrade):
        parts.append(f"entries upgraded: {upgrade.entries_moved} (about {upgrade.entries_left} left)")
    return "; ".join(parts)


def troubles_of(figures: BatchFigures, *, restored_again: int) -> list[str]:
    """Return what somebody should look at.

    `restored_again` is how many shards were restored that the run had called before: its first call may restore one.
    """
    troubles = []
    if restored_again:
        troubles.append("restored while running: an executor was lost, or shards have moved to another one")
    if figures.records.dropped_records_total:
        troubles.append(f"records dropped that no serde could read: {figures.records.dropped_records_total}")
    if figures.spill.spills:
        troubles.append(f"spilled {_size(figures.spill.size_bytes)} to local disk: more memory_bytes would be faster")
    if figures.snapshot.failed:
        troubles.append(f"snapshots failed: {figures.snapshot.failed}; the logs of the executors say why")
    if figures.snapshot.overdue:
        troubles.append(
            f"shards without a snapshot for too long: {figures.snapshot.overdue}; in the end the query stops"
        )
    return troubles


def _size(size_bytes: float) -> str:
    for unit in ("B", "kB", "MB", "GB"):
        if size_bytes < 999.5:  # what would be rounded to 1,000 is one of the next unit
            return f"{size_bytes:.3g} {unit}"
        size_bytes /= 1_000
    return f"{size_bytes:.3g} TB"
