"""Punctuation in a streaming query: by stream time with the data, by the wall clock also without any."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import DataFrame

from orders import START_MS, Order
from statestore import Processor, ProcessorContext, PunctuationType, Record, Serdes, Stores, Topology, ValueAndTimestamp
from statestore.errors import TopologyChangedError
from statestore.spark import read_store, stateful
from tests.support.spark.queries import OrderQuery

TICK_MS = 10_000
WALL_CLOCK_TICK_MS = 400
PATIENCE_S = 120


def orders(*times_s: int) -> list[Order]:
    return [Order("ada", 1, 0, time_s, START_MS + time_s * 1000, [("n", b"%d" % time_s)]) for time_s in times_s]


class Ticking(Processor):
    """Counts records and punctuations in a store, and forwards what it counted at each punctuation."""

    kind: PunctuationType
    interval_ms: int

    def init(self, context: ProcessorContext) -> None:
        self.context, self.counts = context, context.state_store("counts")
        context.schedule(self.interval_ms, self.kind, self.tick)

    def process(self, record: Record[str, Any]) -> None:
        self.add("records")

    def add(self, name: str) -> int:
        seen = self.counts.get(name)
        count = (seen.value if seen else 0) + 1
        self.counts.put(name, ValueAndTimestamp(count, 0))
        return count

    def tick(self, now_ms: int) -> None:
        assert self.context.record_metadata is None
        ticks = self.add("ticks")
        seen = self.counts.get("records")
        told = [self.context.shard, ticks, seen.value if seen else 0, now_ms]
        self.context.forward(Record("tick", told, self.context.current_stream_time_ms + 1))


class StreamTicking(Ticking):
    kind = PunctuationType.STREAM_TIME
    interval_ms = TICK_MS


class WallClockTicking(Ticking):
    kind = PunctuationType.WALL_CLOCK_TIME
    interval_ms = WALL_CLOCK_TICK_MS


def topology(processor: type[Processor], *, is_divided: bool = False) -> Topology:
    """Return a topology of one stage, or of two, of which the second one ticks."""
    made = Topology()
    made.add_source("orders", key_serde=Serdes.string(), value_serde=Serdes.json())
    parent = "orders"
    if is_divided:
        parent = "again"
        serdes: dict[str, Any] = {"key_serde": Serdes.string(), "value_serde": Serdes.json()}
        made.add_repartition("between", "to-between", parent, ["orders"], **serdes)
    made.add_processor("ticking", processor, [parent])
    made.add_state_store(
        Stores.timestamped_key_value_store_builder(
            Stores.persistent_timestamped_key_value_store("counts"), Serdes.string(), Serdes.int64()
        ),
        "ticking",
    )
    made.add_sink("ticks", "ticks", ["ticking"], value_serde=Serdes.json())
    return made


def told(row: Any) -> tuple[int, ...]:
    return tuple(Serdes.json().deserialize(bytes(row.value)))


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_stream_time_goes_on_across_batches_and_restarts(order_query: OrderQuery) -> None:
    times_s = [0, 4, 11, 12, 35, 36, 41]
    for time_s in times_s:
        order_query.add(orders(time_s))
    order_query.run(topology(StreamTicking), shards=1)
    order_query.add(orders(49, 50))
    order_query.run(topology(StreamTicking), shards=1)
    # With the first record, and then once for each ten seconds that were reached or passed.
    assert [told(row) for row in order_query.outputs] == [
        (0, 1, 1, START_MS),
        (0, 2, 3, START_MS + 11_000),
        (0, 3, 5, START_MS + 35_000),
        (0, 4, 7, START_MS + 41_000),
        (0, 5, 9, START_MS + 50_000),
    ]
    assert {bytes(row.key) for row in order_query.outputs} == {b"tick"}
    assert all(row.headers == [] for row in order_query.outputs)


class LiveQuery:
    """A query that goes on until it is stopped; what each batch put out is kept by the batch's number."""

    def __init__(self, query: OrderQuery, shards: int) -> None:
        self.batches: dict[int, list[tuple[int, ...]]] = defaultdict(list)
        rows = stateful(
            query.records(),
            topology(WallClockTicking, is_divided=is_divided(query)),
            shards=shards,
            state_location=query.home / "state",
            local_dir=str(query.home / "local"),
            via=query.via,
        )
        self._query = (
            rows.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", str(query.home / "checkpoint"))
            .trigger(processingTime="200 milliseconds")
            .start()
        )

    def _take(self, batch: DataFrame, number: int) -> None:
        self.batches[number] = [told(row) for row in batch.collect()]

    def ticks(self) -> list[tuple[int, ...]]:
        return [tick for number in sorted(self.batches) for tick in self.batches[number]]

    def wait_until(self, reached: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not reached():
            assert self._query.isActive, self._query.exception()
            assert time.monotonic() < deadline, (dict(self.batches), self._query.lastProgress)
            time.sleep(0.1)

    def stop(self) -> None:
        self._query.stop()
        self._query.awaitTermination()


def is_divided(query: OrderQuery) -> bool:
    return query.via == "transform_with_state"  # Spark takes one operator of the other kind


def ticks_in_state(query: OrderQuery) -> dict[int, int]:
    location = query.home / ("state/stage-1" if is_divided(query) else "state")
    places: dict[str, Any] = {"checkpoint_location": query.home / "checkpoint", "state_location": location}
    rows = read_store(query.spark, "counts", **places).collect()
    return {row.shard: Serdes.int64().deserialize(bytes(row.value)) for row in rows if row.key == b"ticks"}


@pytest.mark.slow
def test_the_wall_clock_ticks_without_data_in_every_shard_and_after_a_restart(order_query: OrderQuery) -> None:
    shards = 2
    order_query.add(orders(0))  # one key: one of the shards never has a record
    first = LiveQuery(order_query, shards)
    # The second tick of each is one without data.
    first.wait_until(lambda: all(sum(tick[0] == shard for tick in first.ticks()) >= 2 for shard in range(shards)))
    first.stop()
    before = ticks_in_state(order_query)
    assert sorted(before) == list(range(shards))

    order_query.add(orders(1))  # Spark runs no batch after a restart before there is data
    second = LiveQuery(order_query, shards)
    second.wait_until(
        lambda: all(
            any(tick[0] == shard and tick[1] > before[shard] + 1 for tick in second.ticks()) for shard in range(shards)
        )
    )
    second.stop()

    # A batch that was put out but not committed is put out again under its number, with the same time.
    batches = {**first.batches, **second.batches}
    ticks = [tick for number in sorted(batches) for tick in batches[number]]
    records = 0
    for shard in range(shards):
        mine = [tick for tick in ticks if tick[0] == shard]
        assert [tick[1] for tick in mine] == list(range(1, len(mine) + 1)), "no tick is lost, none counted twice"
        times_ms = [tick[3] for tick in mine]
        assert all(later - earlier > 0 for earlier, later in pairwise(times_ms))
        committed = ticks_in_state(order_query)[shard]
        assert len(mine) - 1 <= committed <= len(mine)
        records += mine[-1][2]
    assert records == 2


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_the_wall_clock_can_not_be_added_to_a_query_that_began_without(order_query: OrderQuery) -> None:
    order_query.add(orders(0))
    order_query.run(topology(StreamTicking), shards=1)
    with pytest.raises(TopologyChangedError, match="Spark can't give timers"):
        order_query.run(topology(WallClockTicking), shards=1)
