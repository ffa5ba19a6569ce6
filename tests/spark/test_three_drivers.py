"""One topology, unchanged, under three drivers: both of Spark's entry points and the test driver say the same."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from orders import Order, seeded_orders
from statestore import (
    BatchProcessor,
    Headers,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordColumns,
    Serdes,
    Topology,
)
from statestore.processor.record import RecordMetadata
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.headed_stores import HeadedStores
from tests.support.spark.queries import OrderQuery

TEXT, INT = Serdes.string(), Serdes.int64()
TICK_MS = 7_000


def with_schema(value: dict[str, Any], headers: Headers) -> bytes:
    headers.add("schema", b"totals-1")
    return bytes(Serdes.json().serialize(value))


def of_any_schema(data: bytes, headers: Headers) -> Any:
    return Serdes.json().deserialize(data)


SCHEMA_IN_HEADER = Serdes.of_headers("totals", with_schema, of_any_schema)


class Totals(Processor):
    """Totals per customer, told to one child, and all of them to another one every seven seconds of stream time."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.totals = context, context.state_store("totals")
        context.schedule(TICK_MS, PunctuationType.STREAM_TIME, self.tell_all)

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        seen = self.totals.get(record.key)
        total = (seen.value if seen else 0) + record.value["amount"]
        metadata = self.context.record_metadata
        assert metadata is not None
        record.headers.remove("schema-id").add("offset", b"%d" % metadata.offset)
        self.totals.put_value(record.key, total)
        self.context.forward(record.with_value({"total": total}), "out")

    def tell_all(self, now_ms: int) -> None:
        tell_all(self, now_ms)


def tell_all(processor: Any, now_ms: int) -> None:
    with processor.totals.all() as entries:
        for key, held in entries:
            told = Record(key, {"at": now_ms, "total": held.value}, now_ms, held.headers)
            processor.context.forward(told, "by-tenant")
    processor.totals.put_value("ticks", now_ms)


class TotalsInColumns(BatchProcessor):
    """The same, all of a batch at once."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.totals = context, context.state_store("totals")
        context.schedule(TICK_MS, PunctuationType.STREAM_TIME, self.tell_all)

    def process_batch(self, records: RecordColumns) -> None:
        groups = records.by_key
        before = pc.fill_null(self.totals.get_many(groups.keys).value, 0).to_numpy()
        amounts = pa.array([json.loads(value)["amount"] for value in records.value.to_pylist()], pa.int64())
        totals = pa.array(before[groups.codes] + groups.running_sum(amounts))
        offsets = records.offset.cast(pa.string()).cast(pa.binary())
        counted = records.without_header("schema-id").with_header("offset", offsets).with_columns(value=totals)
        self.totals.put_many(counted)
        told = pa.StructArray.from_arrays([totals], ["total"])
        self.context.forward_batch(counted.with_columns(value=told), "out")

    def tell_all(self, now_ms: int) -> None:
        tell_all(self, now_ms)


def topic_of_tenant(record: Record[Any, Any], metadata: RecordMetadata | None) -> str:
    assert metadata is None, "a punctuation comes from no record"
    tenant = record.headers.last_header("tenant")
    return "nobody" if tenant is None or tenant.value is None else tenant.value.decode()


def topology(in_columns: bool = False) -> Topology:
    made = Topology()
    made.add_source("orders", "orders", key_serde=TEXT, value_serde=Serdes.bytes() if in_columns else Serdes.json())
    made.add_processor("totals", TotalsInColumns if in_columns else Totals, ["orders"])
    builder = HeadedStores(TEXT, INT).key_value("totals")
    made.add_state_store(builder if in_columns else builder.with_caching_enabled(), "totals")
    made.add_sink("out", "out", ["totals"], key_serde=TEXT, value_serde=SCHEMA_IN_HEADER)
    made.add_sink("by-tenant", topic_of_tenant, ["totals"], key_serde=TEXT)
    return made


def in_one_partition(orders: list[Order]) -> list[Order]:
    return [order._replace(partition=0, offset=number) for number, order in enumerate(orders)]


def outputs_of_test_driver(
    orders: list[Order], in_columns: bool = False
) -> tuple[list[tuple[Any, ...]], dict[str, tuple[Any, ...]]]:
    with TopologyTestDriver(topology(in_columns)) as driver:
        source = driver.create_input_topic("orders", key_serde=TEXT, value_serde=Serdes.json())
        for order in orders:
            value = {"amount": order.amount}
            source.pipe_input(TestRecord(order.customer, value, order.timestamp_ms, Headers(order.headers)))
        found = [
            (topic, record.key, record.value, record.timestamp_ms, list(record.headers))
            for topic in driver.produced_topic_names()
            if not topic.endswith("-changelog")
            for record in driver.create_output_topic(
                topic, key_serde=Serdes.bytes(), value_serde=Serdes.bytes()
            ).read_records_to_list()
        ]
        store = driver.get_timestamped_key_value_store_with_headers("totals")
        with store.all() as entries:
            held = {key: (value.value, value.timestamp_ms, list(value.headers)) for key, value in entries}
        return found, held


def by_topic(outputs: list[tuple[Any, ...]]) -> dict[str, list[tuple[Any, ...]]]:
    topics: dict[str, list[tuple[Any, ...]]] = {}
    for topic, *rest in outputs:
        topics.setdefault(topic, []).append(tuple(rest))
    return topics


@pytest.mark.parametrize("in_columns", [False, True], ids=["records", "columns"])
def test_outputs_and_state_are_those_of_the_test_driver(order_query: OrderQuery, in_columns: bool) -> None:
    orders = in_one_partition(seeded_orders(50))
    for start in range(0, len(orders), 20):
        order_query.add(orders[start : start + 20])
    order_query.run(topology(in_columns), shards=1)
    expected, held = outputs_of_test_driver(orders)
    if in_columns:
        assert outputs_of_test_driver(orders, in_columns) == (expected, held)

    found = [
        (
            row.topic,
            bytes(row.key),
            bytes(row.value),
            int(row.timestamp.timestamp() * 1000),
            [(header.key, header.value) for header in row.headers],
        )
        for row in order_query.outputs
    ]
    assert len(found) > len(orders)
    assert {"out", "eu", "us"} <= by_topic(found).keys()
    assert by_topic(found) == by_topic(expected)

    rows = order_query.rows_of("totals")
    assert held == {
        row.key.decode(): (
            INT.deserialize(bytes(row.value)),
            row.timestamp_ms,
            [(header.key, header.value) for header in row.headers],
        )
        for row in rows
    }
