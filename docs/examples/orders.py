"""A seeded stream of orders in the shape of Spark's Kafka source, and a topology that totals them."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from statestore import Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueTimestampHeaders

TOPIC = "orders"
PARTITIONS = 4
CUSTOMERS = ["ada", "bjarne", "chen", "dolores", "emeka", "fatima", "grace", "hiro", "ines", "jürgen"]
START_MS = 1_700_000_000_000
Total = tuple[int, int, list[tuple[str, "bytes | None"]]]
"""What the store holds of a customer: total, timestamp and headers."""


class RunningTotal(Processor):
    """Adds up the amounts of each customer's orders, and keeps the headers of the latest order beside the total."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.totals = context, context.state_store("totals")

    def process(self, record: Record[str, dict[str, Any]]) -> None:
        seen = self.totals.get(record.key)  # ValueTimestampHeaders | None
        total = (seen.value if seen else 0) + record.value["amount"]
        self.totals.put(record.key, ValueTimestampHeaders.make(total, record.timestamp_ms, record.headers))
        self.context.forward(record.with_value(total))


def running_total_topology() -> Topology:
    """Return orders -> running total -> totals, with the store `totals`."""
    topology = Topology()
    topology.add_source("orders", key_serde=Serdes.string(), value_serde=Serdes.json())
    topology.add_processor("total", RunningTotal, parents=["orders"])
    topology.add_state_store(
        Stores.timestamped_key_value_store_with_headers_builder(
            Stores.persistent_timestamped_key_value_store_with_headers("totals"), Serdes.string(), Serdes.int64()
        ),
        "total",
    )
    topology.add_sink("totals", topic="totals", parents=["total"])
    return topology


class Order(NamedTuple):
    """One order, as it stands in the topic."""

    customer: str
    amount: int
    partition: int
    offset: int
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]

    @property
    def key(self) -> bytes:
        """The record's key."""
        return self.customer.encode()

    @property
    def value(self) -> bytes:
        """The record's value."""
        return json.dumps({"amount": self.amount}).encode()


def seeded_orders(count: int, seed: int = 7) -> list[Order]:
    """Return `count` orders, the same for the same seed. A customer's orders are all in one partition."""
    rng = random.Random(seed)
    offsets = [0] * PARTITIONS
    orders = []
    for number in range(count):
        customer = rng.choice(CUSTOMERS)
        partition = CUSTOMERS.index(customer) % PARTITIONS
        headers: list[tuple[str, bytes | None]] = [
            ("trace-id", f"{rng.getrandbits(64):016x}".encode()),
            ("tenant", rng.choice([b"eu", b"us"])),
            ("schema-id", b"42"),
        ]
        if rng.random() < 0.1:
            headers.append(("tenant", None))  # a repeated key and a null value: both are kept
        timestamp_ms = START_MS + number * 1000
        orders.append(Order(customer, rng.randint(1, 500), partition, offsets[partition], timestamp_ms, headers))
        offsets[partition] += 1
    return orders


def expected_totals(orders: Iterable[Order]) -> dict[str, Total]:
    """Return total, timestamp and headers of each customer, by a plain fold: what the store must hold."""
    totals: dict[str, Total] = {}
    for order in orders:
        before = totals[order.customer][0] if order.customer in totals else 0
        totals[order.customer] = (before + order.amount, order.timestamp_ms, order.headers)
    return totals


KAFKA_SHAPE = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)

KAFKA_ROWS = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
    "headers array<struct<key:string,value:binary>>"
)
"""The same, as Spark has it."""


def write_orders(orders: Sequence[Order], path: Path) -> None:
    """Write orders as a Parquet file of Kafka's shape; it appears whole or not at all."""
    rows = [kafka_row(TOPIC, order.key, order) for order in orders]
    path.parent.mkdir(parents=True, exist_ok=True)
    # Spark takes files in the order of their modification times: let that be the order of the orders.
    write_rows(rows, path, modified_s=orders[0].timestamp_ms / 1000)


def total_orders(
    spark: Any, batches: Sequence[Sequence[Order]], *, shards: int, state: str | Path, checkpoint: str | Path
) -> None:
    """Run the running total over batches of orders, as new ones from Kafka, until there are no more."""
    from statestore.spark import stateful

    source = Path(f"{checkpoint}-input")
    for number, batch in enumerate(batches):
        write_orders(batch, source / f"{number}.parquet")
    records = spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1).parquet(str(source))
    totals = stateful(records, running_total_topology(), shards=shards, state_location=state)
    writer = totals.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def kafka_row(topic: str, key: bytes, record: Any) -> dict[str, Any]:
    """Return a row of KAFKA_SHAPE; `record` has value, partition, offset, timestamp_ms and headers."""
    return {
        "key": key,
        "value": record.value,
        "topic": topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": datetime.fromtimestamp(record.timestamp_ms / 1000, tz=timezone.utc),
        "headers": [{"key": key, "value": value} for key, value in record.headers],
    }


def write_rows(rows: list[dict[str, Any]], path: Path, modified_s: float) -> None:
    """Write rows of KAFKA_SHAPE as a Parquet file of this modification time; it appears whole or not at all."""
    partial = path.with_name(f".{path.name}")
    pq.write_table(pa.Table.from_pylist(rows, schema=KAFKA_SHAPE), partial)
    os.utime(partial, (modified_s, modified_s))
    os.replace(partial, path)
