"""A global store in a streaming query: every shard reads all of its topic, before the other records of a batch."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import functions as f

from orders import START_MS, Order
from statestore import Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueTimestampHeaders
from tests.support.spark.queries import OrderQuery

CUSTOMERS = ["ada", "bjarne", "chen", "dolores", "emeka", "fatima", "grace", "hiro"]


class KeepRate(Processor):
    """Keeps the latest rate of each customer."""

    def init(self, context: ProcessorContext) -> None:
        self.rates = context.state_store("rates")

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        rate = record.value["amount"]
        self.rates.put(record.key, ValueTimestampHeaders(rate, record.timestamp_ms, record.headers))


class ApplyRate(Processor):
    """Multiplies an order's amount by the rate of any customer, and hands on the rate's headers."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.rates = context, context.state_store("rates")
        assert not hasattr(self.rates, "put")

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        rate = self.rates.get("everyone")
        value = None if rate is None else rate.value * record.value["amount"]
        self.context.forward(record.with_value(value).with_headers(rate.headers if rate else record.headers))


def topology() -> Topology:
    made = Topology()
    builder = Stores.timestamped_key_value_store_with_headers_builder(
        Stores.persistent_timestamped_key_value_store_with_headers("rates"), Serdes.string(), Serdes.int64()
    )
    made.add_global_store(
        builder, "rates-in", "rates", "keep", KeepRate, key_serde=Serdes.string(), value_serde=Serdes.json()
    )
    made.add_source("orders", "orders", key_serde=Serdes.string(), value_serde=Serdes.json())
    made.add_processor("apply", ApplyRate, ["orders"])
    made.add_sink("out", "out", ["apply"], value_serde=Serdes.json())
    return made


def orders(offset: int) -> list[Order]:
    return [Order(name, 1, 0, offset + n, START_MS + offset + n, []) for n, name in enumerate(CUSTOMERS)]


def rate(amount: int, offset: int) -> Order:
    return Order("everyone", amount, 0, offset, START_MS, [("rate", b"%d" % amount)])


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_every_shard_sees_the_whole_topic_before_its_records(order_query: OrderQuery) -> None:
    for batch in (orders(0), [*orders(10), rate(3, 0), rate(5, 1)], orders(20)):
        order_query.add(batch)
    topic = f.when(f.col("key") == f.lit(b"everyone"), "rates").otherwise("orders")  # by name after the orders
    order_query.run(topology(), records=order_query.records().withColumn("topic", topic))

    told = [
        (row.key.decode(), Serdes.json().deserialize(bytes(row.value)) if row.value else None, row.headers)
        for row in order_query.outputs
    ]
    assert sorted(name for name, _, _ in told) == sorted(CUSTOMERS * 3)
    assert [value for _, value, _ in told[:8]] == [None] * 8
    assert [value for _, value, _ in told[8:]] == [5] * 16, "the latest rate, also in the batch that brought it"
    assert {tuple(map(tuple, headers)) for _, _, headers in told[8:]} == {(("rate", b"5"),)}

    rows = order_query.rows_of("rates")
    assert [(row.shard, row.key, Serdes.int64().deserialize(bytes(row.value))) for row in rows] == [(0, b"everyone", 5)]
