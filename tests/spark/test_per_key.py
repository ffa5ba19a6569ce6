"""Processors in the style of Spark's own, in real queries: as Spark's own they compute, and headers stay."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.sql import DataFrame, SparkSession

import customer_totals
import customer_totals_in_spark
from orders import START_MS, Order, seeded_orders
from statestore import ExpiredTimer, KeyContext, Serdes, StatefulProcessorHandle, Topology
from statestore.spark import HeaderStatefulProcessor, per_key_topology, stateful
from tests.support.spark.queries import OrderQuery

ORDERS = seeded_orders(60)
PATIENCE_S = 120
FILES = [ORDERS[:25], ORDERS[25:50], ORDERS[50:]]
Results = list[tuple[str, Any]]


def json_topology(processor: type[HeaderStatefulProcessor], output_topic: str, **options: Any) -> Topology:
    """Return the topology of a processor that takes orders, and puts out JSON."""
    return per_key_topology(
        processor,
        key_serde=Serdes.string(),
        value_serde=Serdes.json(),
        output_value_serde=Serdes.json(),
        output_topic=output_topic,
        **options,
    )


@pytest.fixture(scope="module")
def results_of_spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Results:
    """What the processor puts out before it is moved, in the order of micro-batches."""
    query = OrderQuery(spark, tmp_path_factory.mktemp("before"), "none")
    query.add(*FILES)
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    before = {name: spark.conf.get(name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        rows = customer_totals_in_spark.customer_totals(query.records())
        query.collect(rows, output_mode="update")
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    return [(row.key, json.loads(row.value)) for row in query.outputs]


def by_key(results: Results) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key, value in results:
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_a_moved_processor_puts_out_what_it_did_and_headers_too(
    order_query: OrderQuery, results_of_spark: Results
) -> None:
    for orders in FILES[:2]:
        order_query.add(orders)
    order_query.run(customer_totals.customer_totals_topology())
    order_query.add(FILES[2])
    order_query.run(customer_totals.customer_totals_topology())  # restarted from the checkpoint
    results = [(row.key.decode(), json.loads(row.value)) for row in order_query.outputs]
    assert by_key(results) == by_key(results_of_spark)
    assert {row.topic for row in order_query.outputs} == {"customer-totals"}

    wanted = []
    for orders in FILES:
        last = {order.customer: order for order in sorted(orders, key=lambda order: (order.partition, order.offset))}
        wanted += [(name, order.timestamp_ms, order.headers) for name, order in last.items()]
    found = [
        (
            row.key.decode(),
            round(row.timestamp.timestamp() * 1000),
            [(header.key, header.value) for header in row.headers],
        )
        for row in order_query.outputs
    ]
    assert sorted(found, key=str) == sorted(wanted, key=str)

    rows = order_query.rows_of("total")
    last = {name: (timestamp_ms, headers) for name, timestamp_ms, headers in wanted}
    assert {
        row.key.decode(): (row.timestamp_ms, [(header.key, header.value) for header in row.headers]) for row in rows
    } == last


class Reminding(HeaderStatefulProcessor):
    """Sets a timer ten seconds after each row, keeps amounts for five, and says what it knows when a timer fires."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.amounts = handle.get_list_state("amounts", Serdes.int64(), ttl_ms=5_000, ttl_clock="event")

    def handle_input_rows(self, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Iterator[pd.DataFrame]:
        for frame in rows:
            for timestamp, order in zip(frame["timestamp"], frame["value"], strict=True):
                self.handle.register_timer(int(timestamp.timestamp() * 1000) + 10_000)
                self.amounts.append_value(order["amount"])
        yield pd.DataFrame({"value": [["seen", list(self.amounts.get())]], "topic": ["seen"]})

    def handle_expired_timer(
        self, key: str, context: KeyContext, expired_timer: ExpiredTimer
    ) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"value": [["fired", expired_timer.expiry_time_ms - START_MS, list(self.amounts.get())]]})


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_timers_and_expiry_go_on_after_a_restart(order_query: OrderQuery, tmp_path: Path) -> None:
    topology = json_topology(Reminding, "reminders", time_mode="event_time")

    def order(offset: int, second: int) -> Order:
        return Order("ada", second, 0, offset, START_MS + second * 1000, [("n", b"%d" % second)])

    order_query.add([order(0, 0), order(1, 1)])
    order_query.add([order(2, 6)])
    order_query.run(topology)
    order_query.add([order(3, 10)])
    order_query.run(topology)
    assert [(row.topic, json.loads(row.value)) for row in order_query.outputs] == [
        ("seen", ["seen", [0, 1]]),
        ("seen", ["seen", [6]]),
        ("seen", ["seen", [6, 10]]),
        ("reminders", ["fired", 10_000, [6, 10]]),
    ]


class Late(HeaderStatefulProcessor):
    """Says after a moment that a key was seen, and forgets it."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.seen = handle.get_map_state("seen", Serdes.string(), Serdes.int64())

    def handle_input_rows(self, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Iterator[pd.DataFrame]:
        self.seen.update_value("rows", sum(len(frame) for frame in rows))
        self.handle.register_timer(context.current_system_time_ms + 1)
        return iter(())

    def handle_expired_timer(
        self, key: str, context: KeyContext, expired_timer: ExpiredTimer
    ) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"value": [dict(self.seen.iterator())]})
        self.seen.clear()


@pytest.mark.parametrize("via", ["transform_with_state"])
@pytest.mark.slow
def test_timers_by_the_wall_clock_fire_once_without_more_records(order_query: OrderQuery) -> None:
    topology = json_topology(Late, "late", time_mode="processing_time", timer_resolution_ms=50)
    order_query.add([Order("ada", 1, 0, offset, START_MS, []) for offset in range(2)])
    rows = stateful(
        order_query.records(),
        topology,
        shards=1,
        state_location=order_query.home / "state",
        local_dir=str(order_query.home / "local"),
        via=order_query.via,
    )
    batches: list[int] = []

    def take(batch: DataFrame, number: int) -> None:
        order_query.outputs.extend(batch.collect())
        batches.append(number)

    query = (
        rows.writeStream.foreachBatch(take).option("checkpointLocation", str(order_query.home / "checkpoint")).start()
    )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while len(batches) < 5 and time.monotonic() < deadline:
            assert query.isActive, query.exception()
            time.sleep(0.1)
    finally:
        query.stop()
    assert [json.loads(row.value) for row in order_query.outputs] == [{"rows": 2}]
