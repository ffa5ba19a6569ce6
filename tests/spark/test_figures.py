"""Figures of a real query, by way of Spark to a listener: exact, for every batch, operator and shard."""

from __future__ import annotations

import queue
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from prometheus_client import CollectorRegistry
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from orders import Order, running_total_topology, seeded_orders, write_orders
from statestore import Headers
from statestore.format.keys.partitioner import partition_column
from statestore.middleware import FailureHandling
from statestore.recovery.commit.figures import (
    DeltaFigures,
    RestoreFigures,
    SnapshotFigures,
    SpillFigures,
    StoreFigures,
    total,
)
from statestore.spark import BatchFigures, StateStoreListener, batch_figures, stateful
from statestore.spark.figures import RecordFigures
from tests.support.spark.queries import KAFKA_ROWS, SHARDS

VIAS = ("transform_with_state", "apply_in_pandas_with_state")
ORDERS = seeded_orders(100)


class Unreadable(Order):
    """An order whose value no JSON serde reads."""

    @property
    def value(self) -> bytes:
        return b"{"


BATCHES: list[list[Order]] = [ORDERS[:40], [*ORDERS[40:69], Unreadable(*ORDERS[69])], ORDERS[70:]]
BAD = {0: 0, 1: 1, 2: 0}


@dataclass
class Told:
    """What was told of a query with two operators, which has lost the local disk of the first one before batch 2."""

    home: Path
    listener: StateStoreListener
    metrics: CollectorRegistry
    progress: list[StreamingQueryProgress]

    def batches(self, via: str) -> list[BatchFigures]:
        location = f"file://{self.home / via / 'state'}"
        return [figures for figures in self.listener.batches() if figures.state_location == location]

    def delta_sizes(self, via: str) -> list[int]:
        """Return the size of the deltas of each version, those of all shards together."""
        sizes = dict.fromkeys(range(1, len(BATCHES) + 1), 0)
        for path in (self.home / via / "state" / "shards").glob("*/deltas/*.arrow"):
            sizes[int(path.name.split("-")[0])] += path.stat().st_size
        return list(sizes.values())


@pytest.fixture(scope="module")
def told(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Told:
    home = tmp_path_factory.mktemp("figures")
    came: queue.SimpleQueue[BatchFigures] = queue.SimpleQueue()
    progress: list[StreamingQueryProgress] = []

    def run() -> None:
        records = spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1).parquet(str(home / "input"))
        first, second = (
            stateful(
                records,
                running_total_topology(),
                shards=SHARDS,
                state_location=home / via / "state",
                local_dir=str(home / via / "local"),
                via=via,
                failures=FailureHandling(deserialization="continue"),
            )
            for via in VIAS
        )
        writer = first.union(second).writeStream.format("noop").queryName("orders")
        started = writer.option("checkpointLocation", str(home / "checkpoint")).trigger(availableNow=True).start()
        started.awaitTermination()
        progress.extend(started.recentProgress)

    def take(figures: BatchFigures) -> None:
        came.put(figures)
        raise RuntimeError("harms nobody")

    metrics = CollectorRegistry()
    listener = StateStoreListener(take).to_prometheus(metrics)
    spark.streams.addListener(listener)
    try:
        for number, orders in enumerate(BATCHES):
            write_orders(orders, home / "input" / f"{number}.parquet")
            if number == 0:
                continue
            run()
            shutil.rmtree(home / VIAS[0] / "local")
        for _ in BATCHES:
            for _ in VIAS:
                came.get(timeout=60)
    finally:
        spark.streams.removeListener(listener)
    return Told(home, listener, metrics, progress)


def shard_of(order: Order) -> int:
    return int(partition_column(pa.array([order.key], pa.binary()), SHARDS)[0])


def written(orders: Sequence[Order]) -> StoreFigures:
    """Return what running totals of these orders write: of each customer the total, with the last order's headers."""
    last = {order.key: order for order in orders if not isinstance(order, Unreadable)}
    header_bytes = sum(len(Headers(order.headers).to_bytes()) for order in last.values())
    return StoreFigures(len(last), 0, sum(map(len, last)), 8 * len(last), header_bytes)


@pytest.mark.parametrize("via", VIAS)
def test_every_batch_is_told_of_with_exact_figures(told: Told, via: str) -> None:
    batches = told.batches(via)
    assert [(figures.query_name, figures.batch_id, figures.version) for figures in batches] == [
        ("orders", 0, 1),
        ("orders", 1, 2),
        ("orders", 2, 3),
    ]
    for figures, orders, size_bytes in zip(batches, BATCHES, told.delta_sizes(via), strict=True):
        bad = BAD[figures.batch_id]
        assert figures.records == RecordFigures(len(orders), bad, 0, len(orders) - bad)
        assert figures.stores == {"totals": written(orders)}
        assert figures.delta == DeltaFigures(SHARDS, size_bytes)
        assert (figures.spill, figures.snapshot) == (SpillFigures(), SnapshotFigures())
        assert min(figures.times[:3]) > 0


@pytest.mark.parametrize("via", VIAS)
def test_every_shard_has_its_own(told: Told, via: str) -> None:
    for figures, orders in zip(told.batches(via), BATCHES, strict=True):
        assert [shard.shard for shard in figures.shards] == list(range(SHARDS))
        for shard in figures.shards:
            of_shard = [order for order in orders if shard_of(order) == shard.shard]
            assert shard.records.process_total == len(of_shard)
            assert shard.stores == {"totals": written(of_shard)}
        assert figures.slowest in figures.shards


def test_a_lost_local_disk_shows_as_a_restore(told: Told) -> None:
    lost, kept = (told.batches(via) for via in VIAS)
    read = total(StoreFigures, (figures.stores["totals"] for figures in lost[:2]))
    assert lost[2].restore[:3] == (SHARDS, read.entries_put, sum(told.delta_sizes(VIAS[0])[:2]))
    assert lost[2].restore.elapsed_ms > 0
    assert lost[2].times.open_ms >= lost[2].restore.elapsed_ms
    assert {figures.restore for figures in (*lost[:2], *kept)} == {RestoreFigures()}


def test_a_query_itself_knows_the_same(told: Told) -> None:
    known = [figures for progress in told.progress for figures in batch_figures(progress)]
    order = [(figures.batch_id, figures.state_id) for figures in known]
    by_batch = {(figures.batch_id, figures.state_id): figures for figures in told.listener.batches()}
    assert [by_batch[batch] for batch in order] == known
    assert len(known) == len(by_batch) == len(BATCHES) * len(VIAS)


@pytest.mark.parametrize("via", VIAS)
def test_metrics_count_all_batches_of_a_shard(told: Told, via: str) -> None:
    batches = told.batches(via)
    for shard in range(SHARDS):
        of_shard = [order for orders in BATCHES for order in orders if shard_of(order) == shard]
        labels = {"query": "orders", "state": batches[0].state_id, "shard": str(shard)}
        bad = sum(isinstance(order, Unreadable) for order in of_shard)
        for name, value in (("process", len(of_shard)), ("dropped_records", bad)):
            assert told.metrics.get_sample_value(f"statestore_{name}_total", labels) == value
        assert told.metrics.get_sample_value("statestore_version", labels) == len(BATCHES)
