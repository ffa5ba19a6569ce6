"""Runs the order topology from Kafka to Kafka, and says what went through the broker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession

from kafka_running_total import SETTINGS, as_orders, produce, read_topic
from orders import Order, Total, running_total_topology
from statestore import Topology
from statestore.spark import stateful
from statestore.spark.kafka_sink import KafkaCluster
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.spark.queries import SHARDS, OrderQuery, run_to_the_end

ORDERS_PER_BATCH = 40
HEADERS: list[list[tuple[str, bytes | None]]] = [
    [("tenant", b"eu"), ("tenant", b"us"), ("tenant", b"eu")],
    [("null", None), ("empty", b""), ("null", b""), ("empty", None)],
    [("größe", "groß".encode()), ("トレース", b"\x00\xff"), ("", b"a key of no characters")],
]


def with_unusual_headers(orders: Sequence[Order]) -> list[Order]:
    """Return the orders with what Kafka allows: headers repeated, null, empty and not ASCII, or none at all."""
    kinds = len(HEADERS) + 1
    return [
        order._replace(headers=[] if number % kinds == len(HEADERS) else order.headers + HEADERS[number % kinds])
        for number, order in enumerate(orders)
    ]


@dataclass(frozen=True)
class Seen:
    """What is in the topics, in the order of partitions and offsets, and in the store."""

    orders: list[Order]
    results: list[Row]
    totals: dict[str, Total]


class KafkaOrderQuery(OrderQuery):
    """A query from a topic of orders to a topic of results, both its own."""

    def __init__(
        self,
        spark: SparkSession,
        home: Path,
        via: str,
        *,
        broker: KafkaBroker,
        name: str,
        partitions: int,
        orders_per_batch: int = ORDERS_PER_BATCH,
    ) -> None:
        super().__init__(spark, home, via)
        self.servers = broker.bootstrap_servers
        self._orders_per_batch = orders_per_batch
        self._orders, self._results = f"orders-{name}", f"totals-{name}"
        for topic in (self._orders, self._results):
            KafkaCluster(self.servers).create_topic(topic, partitions, {})

    def add(self, orders: Sequence[Order]) -> None:
        """Append orders to their topic."""
        produce(self.spark, self.servers, self._orders, orders)

    def records(self) -> DataFrame:
        """Return the stream of orders."""
        return (
            self.spark.readStream.format("kafka")
            .option("kafka.bootstrap.servers", self.servers)
            .option("subscribe", self._orders)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", self._orders_per_batch)
            .options(**SETTINGS.source.as_options())
            .load()
        )

    def run(self, topology: Topology | None = None, *, checkpoint: str = "checkpoint", **options: Any) -> None:
        """Run the query until it has processed every order; what it puts out is in the topic of results."""
        topology = topology or running_total_topology()
        topology.sinks["totals"] = replace(topology.sinks["totals"], topic=self._results)
        arguments: dict[str, Any] = {
            "shards": SHARDS,
            "state_location": self.home / "state",
            "local_dir": str(self.home / "local"),
            "via": self.via,
            **options,
        }
        writer = stateful(self.records(), topology, **arguments).writeStream.format("kafka")
        writer = writer.option("kafka.bootstrap.servers", self.servers).options(**SETTINGS.sink.as_options())
        run_to_the_end(writer, self.home / checkpoint)

    def orders(self) -> list[Order]:
        """Return the orders in their topic, by batch read."""
        return as_orders(read_topic(self.spark, self.servers, self._orders))

    def seen(self) -> Seen:
        """Return what is there now."""
        return Seen(self.orders(), read_topic(self.spark, self.servers, self._results), self.totals())
