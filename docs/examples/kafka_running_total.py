"""The main job from Kafka to Kafka: headers live in the topics and in state, and state survives a lost disk.

Run with `make demo-kafka`. It starts a broker of its own, and stops it.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark import cloudpickle
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

import orders as orders_module
from demo_session import demo_session
from orders import PARTITIONS, TOPIC, Order, running_total_topology, seeded_orders
from show import check_store, show_store, show_totals
from statestore import Serdes
from statestore.spark import read_store, recommended_settings, stateful
from statestore.testing.jars import connector_jars
from statestore.testing.kafka_broker import KafkaBroker

ORDERS = 200
ORDERS_BEFORE_RESTART = 120
# More than a third of those: Spark rounds down in each partition, and what is left would be a batch of its own.
ORDERS_PER_BATCH = 44
SHOW_EVERY = 25
CORES = 2
SETTINGS = recommended_settings(cores=CORES)
Result = tuple[int, list[tuple[str, "bytes | None"]]]
"""Total and headers."""


def main() -> int:
    """Run the demo; return 0 if all that came out of state is right, 1 if not."""
    started = time.monotonic()
    # Python workers do not know this directory: the processor travels with the query. A package would be installed.
    cloudpickle.register_pickle_by_value(orders_module)
    print("== Starting Kafka and Spark.", flush=True)
    with tempfile.TemporaryDirectory(prefix="statestore-demo-") as directory, KafkaBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        broker.create_topic("totals", PARTITIONS)
        spark = demo_session("statestore Kafka demo", SETTINGS.session.as_options(), cores=CORES, jars=connector_jars())
        right = run(spark, broker.bootstrap_servers, Path(directory))
        spark.stop()
    print(f"\nDone in {time.monotonic() - started:.0f} s.")
    return 0 if right else 1


def run(spark: SparkSession, servers: str, home: Path) -> bool:
    """Run the query, lose the local state, run it on, and check what is in the topics and in the store."""
    orders = seeded_orders(ORDERS)
    first, more = orders[:ORDERS_BEFORE_RESTART], orders[ORDERS_BEFORE_RESTART:]

    print(f"\n== {len(first)} orders are in the topic {TOPIC!r}; the query puts their totals into the topic 'totals':")
    produce(spark, servers, TOPIC, first)
    run_query(spark, servers, home)

    shutil.rmtree(home / "local")
    print(
        f"\n== Stopped. The local state directory is deleted; restarting from the checkpoint, {len(more)} orders more:"
    )
    produce(spark, servers, TOPIC, more)
    run_query(spark, servers, home)

    results = read_topic(spark, servers, "totals")
    print(
        f"\n== {len(results)} records are in the topic 'totals', a total with the headers of each order; some of them:"
    )
    show_totals(results[::SHOW_EVERY])

    print("\n== What the store holds, read back from the durable location:")
    entries = read_store(spark, "totals", checkpoint_location=home / "checkpoint", state_location=home / "state")
    found = entries.collect()
    show_store(found)

    in_topic = as_orders(read_topic(spark, servers, TOPIC))
    right = [check_store(found, in_topic), check_results(results, in_topic), check_sent(in_topic, orders)]
    print("\nState is exactly once, Spark's Kafka sink at least once: after a failure a total may come twice.")
    return all(right)


def produce(spark: SparkSession, servers: str, topic: str, orders: Sequence[Order]) -> None:
    """Append orders to a topic. Kafka chooses the partition by the key; the timestamp is the time of writing."""
    rows = [(order.key, order.value, order.headers) for order in orders]
    frame = spark.createDataFrame(rows, "key binary, value binary, headers array<struct<key:string,value:binary>>")
    # In one task, so that one producer sends them all, in their order.
    frame.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", topic).save()


def run_query(spark: SparkSession, servers: str, home: Path) -> None:
    """Run the query until it has processed every order that is in the topic."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", ORDERS_PER_BATCH)
        .options(**SETTINGS.source.as_options())
        .load()
    )
    totals = stateful(
        records,
        running_total_topology(),
        shards=PARTITIONS,
        state_location=home / "state",
        local_dir=str(home / "local"),
    )
    # Each row names its topic, and the sink writes a headers column without being asked to.
    query = (
        totals.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(home / "checkpoint"))
        .options(**SETTINGS.sink.as_options())
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for progress in query.recentProgress:
        print(f"-- batch {progress['batchId']}: {progress['numInputRows']} orders")


def read_topic(spark: SparkSession, servers: str, topic: str) -> list[Row]:
    """Return all records of a topic, those of a partition in the order of their offsets."""
    rows = (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("includeHeaders", "true")
        .load()
        .withColumn("timestamp_ms", f.unix_millis("timestamp"))
    )
    return sorted(rows.collect(), key=lambda row: (row.partition, row.offset))


def as_orders(rows: Iterable[Row]) -> list[Order]:
    """Return the orders in records of their topic."""
    return [
        Order(
            row.key.decode(),
            json.loads(row.value)["amount"],
            row.partition,
            row.offset,
            row.timestamp_ms,
            as_pairs(row.headers),
        )
        for row in rows
    ]


def as_pairs(headers: list[Row] | None) -> list[tuple[str, bytes | None]]:
    """Return headers as pairs. Spark's Kafka source gives null for none."""
    return [(header.key, header.value) for header in headers or []]


def results_by_customer(rows: Iterable[Row]) -> dict[str, list[Result]]:
    """Return what came out for each customer, in order."""
    results: dict[str, list[Result]] = {}
    for row in rows:
        total = Serdes.int64().deserialize(bytes(row.value))
        results.setdefault(row.key.decode(), []).append((total, as_pairs(row.headers)))
    return results


def expected_results(orders: Iterable[Order]) -> dict[str, list[Result]]:
    """Return what must come out for each customer, in order, by a plain fold."""
    results: dict[str, list[Result]] = {}
    for order in orders:
        of_customer = results.setdefault(order.customer, [])
        before = of_customer[-1][0] if of_customer else 0
        of_customer.append((before + order.amount, order.headers))
    return results


def check_results(results: list[Row], orders: list[Order]) -> bool:
    """Compare the result records with a plain fold over the orders, print the outcome, and return it."""
    right = results_by_customer(results) == expected_results(orders)
    print(f"== Check of {len(results)} result records, one per order, against a plain fold: {outcome(right)}")
    return right


def check_sent(in_topic: list[Order], sent: list[Order]) -> bool:
    """Compare the orders in the topic, which the other checks go by, with those sent; print the outcome, return it."""
    right = expected_results(in_topic) == expected_results(sent)
    print(f"== Check of {len(in_topic)} orders in the topic against those sent: {outcome(right)}")
    return right


def outcome(right: bool) -> str:
    """Return a check's outcome in words."""
    return "all equal" if right else "DIFFERENT"


if __name__ == "__main__":
    sys.exit(main())
