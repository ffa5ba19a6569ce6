"""Reports each micro-batch's figures: kept as objects, logged in a line, and given to a function of the user's."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import StreamingQueryListener

from statestore.recovery.commit.figures import SizeFigures
from statestore.spark.figures import BatchFigures, batch_figures, size_text, sums_by_store
from statestore.spark.heads import ClientHeads
from statestore.spark.messaging_metrics import MessagingExporter, messaging_exporter
from statestore.spark.metrics import Exporter, opentelemetry_exporter, prometheus_exporter, readings
from statestore.spark.sessions import is_connect

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )
    from typing_extensions import Self  # typing has it from Python 3.11 on

_LOG = logging.getLogger(__name__)


class StateStoreListener(StreamingQueryListener):
    """Collects the figures of all queries of a session: `spark.streams.addListener(StateStoreListener())`.

    Logs each batch in one line: at INFO, or at WARNING if something needs attention, which the line says. Spark calls
    listeners soon after a batch has ended, in a thread of its own; a query never waits for them. In a client of Spark
    Connect it also publishes the heads of states, which in a classic session the driver does anyway.
    """

    def __init__(self, on_batch: Callable[[BatchFigures], object] | None = None, *, history: int = 100) -> None:
        """Keep the figures of the last `history` batches, of all queries together.

        `on_batch` is called with the figures of each `stateful()` operator and batch. Errors that it raises are logged
        and harm neither the query nor other listeners.
        """
        self._on_batch = on_batch
        self._exporters: list[Exporter] = []
        self._messaging_exporters: list[MessagingExporter] = []
        self._lock = threading.Lock()
        self._history: deque[BatchFigures] = deque(maxlen=history)
        self._called: dict[str, set[tuple[str, int]]] = {}
        """By run, the state and number of each shard that was called."""
        self._sizes: dict[str, dict[int, Mapping[str, SizeFigures]]] = {}
        """By state and shard, the sizes of the stores."""
        self._heads = ClientHeads()

    def to_prometheus(self, registry: CollectorRegistry | None = None) -> Self:
        """Add the figures up in metrics of a registry of `prometheus_client`, the default one for None; return self.

        Serve them with its `start_http_server(port)`. Needs the extra `prometheus`.
        """
        self._exporters.append(prometheus_exporter(registry))
        return self

    def to_opentelemetry(self, provider: MeterProvider | None = None) -> Self:
        """Add the figures up in instruments of a meter provider, the one that is configured for None; return self.

        Queries that read or write Kafka also get the metrics for messaging that OpenTelemetry itself names. Needs the
        extra `opentelemetry`.
        """
        self._exporters.append(opentelemetry_exporter(provider))
        self._messaging_exporters.append(messaging_exporter(provider))
        return self

    def batches(self, query_id: str | None = None) -> list[BatchFigures]:
        """Return the figures that are kept, oldest first; of one query, or of all queries for None."""
        with self._lock:
            kept = list(self._history)
        return [figures for figures in kept if query_id in (None, figures.query_id)]

    def sizes(self, state_id: str) -> dict[str, SizeFigures]:
        """Return the size of each store of a state, summed over the shards called since the listener was added.

        A batch has figures only of the shards that it called. Of a global store each shard's copy counts.
        """
        with self._lock:
            shards = list(self._sizes.get(state_id, {}).values())
        return sums_by_store(SizeFigures, shards)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there are no figures yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Keep and log a batch's figures."""
        try:
            found = batch_figures(event.progress)
            for figures in found:
                self._take(figures, self._called.setdefault(figures.run_id, set()))
            if found:
                for exporter in self._messaging_exporters:
                    exporter(event.progress, found)
            # Only Spark's client tells a listener of its session.
            if self.spark is not None and is_connect(self.spark):
                self._heads.take(self.spark, event.progress)
        except Exception:
            # Spark would only print it.
            _LOG.exception("no figures of batch %d of query %s", event.progress.batchId, event.progress.id)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: no batch ran."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Forget the run; its figures stay."""
        self._called.pop(str(event.runId), None)
        self._heads.forget(str(event.runId))

    def _take(self, figures: BatchFigures, called: set[tuple[str, int]]) -> None:
        with self._lock:
            self._history.append(figures)
            self._sizes.setdefault(figures.state_id, {}).update((each.shard, each.sizes) for each in figures.shards)
        restored = {(figures.state_id, shard.shard) for shard in figures.shards if shard.restore.shards}
        restored_again = len(restored & called)
        troubles = troubles_of(figures, restored_again=restored_again)
        called.update((figures.state_id, shard.shard) for shard in figures.shards)
        _LOG.log(logging.WARNING if troubles else logging.INFO, "%s", "; ".join([str(figures), *troubles]))
        if self._on_batch is not None:
            try:
                self._on_batch(figures)
            except Exception:
                _LOG.exception("on_batch failed on batch %d of query %s", figures.batch_id, figures.query_id)
        for exporter in self._exporters:
            for reading in readings(figures, restored_again=restored_again):
                exporter(reading)


def troubles_of(figures: BatchFigures, *, restored_again: int) -> list[str]:
    """Return what needs attention; `restored_again` counts shards restored after their first call in the run."""
    troubles = []
    if restored_again:
        troubles.append("restored while running: an executor was lost, or shards have moved to another one")
    if figures.records.dropped_records_total:
        troubles.append(f"records dropped that no serde could read: {figures.records.dropped_records_total}")
    left_out = figures.records.refused_records_total + figures.records.failed_records_total
    if left_out:
        classes = ", ".join(f"{error} {count}" for error, count in sorted(figures.failures.items()))
        troubles.append(f"records refused, or failed on, and left out: {left_out} ({classes})")
    if figures.spill.spills:
        troubles.append(
            f"spilled {size_text(figures.spill.size_bytes)} to local disk: a larger MemoryOptions.state_bytes is faster"
        )
    if figures.snapshot.failed:
        troubles.append(f"snapshots failed: {figures.snapshot.failed}; the logs of the executors say why")
    if figures.snapshot.overdue:
        troubles.append(
            f"shards without a snapshot for too long: {figures.snapshot.overdue}; in the end the query stops"
        )
    return troubles
