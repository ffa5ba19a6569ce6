"""The main job with a real broker: from topic to topic through Spark's Kafka source and sink.

What must come out is folded from the orders that are in their topic, because Kafka sets their timestamps and offsets.
"""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.semconv._incubating.attributes import messaging_attributes as attribute
from opentelemetry.semconv._incubating.metrics import messaging_metrics
from pyspark.sql import SparkSession

from kafka_running_total import expected_results, results_by_customer
from orders import Order, expected_totals, seeded_orders
from statestore.spark import read_store
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.kafka.records import KafkaOrderQuery, Seen, with_unusual_headers
from tests.support.spark.told import EndingListener

ORDERS = with_unusual_headers(seeded_orders(120))
ORDERS_BEFORE_RESTART = 70


@dataclass(frozen=True)
class Job:
    """A query that was stopped, lost its local copies and was started again, with what was there each time."""

    before_restart: Seen
    at_the_end: Seen
    counted: dict[tuple[str, str | None], int]
    """By name and topic, OpenTelemetry's counters of the second run."""


@pytest.fixture(scope="module")
def job(spark: SparkSession, broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory) -> Job:
    home, via = tmp_path_factory.mktemp("job"), "apply_in_pandas_with_state"
    query = KafkaOrderQuery(spark, home, via, broker=broker, name="orders-of-job", partitions=4)
    query.add(ORDERS[:ORDERS_BEFORE_RESTART])
    query.run()
    before_restart = query.seen()
    shutil.rmtree(query.home / "local")
    query.add(ORDERS[ORDERS_BEFORE_RESTART:])
    reader, listener = InMemoryMetricReader(), EndingListener()
    spark.streams.addListener(listener.to_opentelemetry(MeterProvider([reader], shutdown_on_exit=False)))
    try:
        query.run()
        assert listener.has_ended.wait(60)
    finally:
        spark.streams.removeListener(listener)
    return Job(before_restart, query.seen(), counted(reader))


def counted(reader: InMemoryMetricReader) -> dict[tuple[str, str | None], int]:
    data = reader.get_metrics_data()
    assert data is not None
    metrics = [metric for found in data.resource_metrics for scope in found.scope_metrics for metric in scope.metrics]
    return {
        (metric.name, point.attributes.get(attribute.MESSAGING_DESTINATION_NAME)): point.value
        for metric in metrics
        if metric.name.startswith("messaging.client.")
        for point in metric.data.data_points
    }


def test_the_topic_holds_the_orders_that_were_sent(job: Job) -> None:
    # All else is measured by the topic. The same fold over both compares each customer's orders, headers included.
    assert expected_results(job.before_restart.orders) == expected_results(ORDERS[:ORDERS_BEFORE_RESTART])
    assert expected_results(job.at_the_end.orders) == expected_results(ORDERS)
    assert {order.partition for order in job.at_the_end.orders} == {0, 1, 2, 3}


def test_each_order_comes_out_once_in_order_with_its_headers(job: Job) -> None:
    for seen, count in ((job.before_restart, ORDERS_BEFORE_RESTART), (job.at_the_end, len(ORDERS))):
        assert len(seen.results) == count
        assert results_by_customer(seen.results) == expected_results(seen.orders)


def test_state_equals_a_fold_over_the_topic_also_after_a_lost_disk(job: Job) -> None:
    for seen in (job.before_restart, job.at_the_end):
        assert seen.totals == expected_totals(seen.orders)


def test_opentelemetry_counts_the_messages_as_its_conventions_say(job: Job) -> None:
    messages = len(ORDERS) - ORDERS_BEFORE_RESTART
    assert job.counted == {
        (messaging_metrics.MESSAGING_CLIENT_CONSUMED_MESSAGES, "orders-orders-of-job"): messages,
        (messaging_metrics.MESSAGING_CLIENT_SENT_MESSAGES, None): messages,
    }


def test_a_shard_has_the_number_of_its_keys_partition(spark: SparkSession, broker: KafkaBroker, tmp_path: Path) -> None:
    partitions = 5
    rng = random.Random(3)
    # Of every length, because murmur2 takes four bytes at a time, and with bytes that are negative in Java.
    keys = ["".join(rng.choices("aZ0 é世\x7f", k=length)) for length in range(20) for _ in range(10)]
    query = KafkaOrderQuery(
        spark,
        tmp_path,
        "transform_with_state",
        broker=broker,
        name="shards",
        partitions=partitions,
        orders_per_batch=len(keys),
    )
    query.add([Order(key, 1, partition=0, offset=0, timestamp_ms=0, headers=[]) for key in keys])
    query.run(shards=partitions, shard_by="key")
    entries = read_store(
        spark, "totals", checkpoint_location=tmp_path / "checkpoint", state_location=tmp_path / "state"
    ).collect()
    partition_of = {order.customer: order.partition for order in query.orders()}
    assert partition_of.keys() == {*keys}
    assert {*partition_of.values()} == {*range(partitions)}
    assert {row.key.decode(): row.shard for row in entries} == partition_of
