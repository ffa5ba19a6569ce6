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
from orders import PARTITIONS, TOPIC, Order, running_total_topology, seeded_orders
from show import check_store, show_store, show_totals
from statestore import Serdes
from statestore.spark import read_store, stateful
from statestore.testing.jars import connector_jars
from statestore.testing.kafka_broker import KafkaBroker

ORDERS = 200
ORDERS_BEFORE_RESTART = 120
ORDERS_PER_BATCH = 40
RESULTS_SHOWN = 8
Headers = list[tuple[str, "bytes | None"]]


def main() -> int:
    """Run the demo; return 0 if all that came out of state is right, 1 if not."""
    started = time.monotonic()
    # Python workers do not know this directory: the processor travels with the query. A package would be installed.
    cloudpickle.register_pickle_by_value(orders_module)
    print(
        f"== Starting a Kafka broker with the topics {TOPIC!r} and 'totals', {PARTITIONS} partitions each.", flush=True
    )
    with tempfile.TemporaryDirectory(prefix="statestore-demo-") as directory, KafkaBroker() as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        broker.create_topic("totals", PARTITIONS)
        spark = (
            SparkSession.builder.master("local[2]")
            .appName("statestore Kafka demo")
            .config("spark.jars", ",".join(str(jar) for jar in connector_jars()))
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.session.timeZone", "UTC")
            .getOrCreate()
        )
        spark.sparkContext.setLogLevel("ERROR")
        right = run(spark, broker.bootstrap_servers, Path(directory))
        spark.stop()
    print(f"\nDone in {time.monotonic() - started:.0f} s.")
    return 0 if right else 1


def run(spark: SparkSession, servers: str, home: Path) -> bool:
    """Run the query, lose the local state, run it on, and check what is in the store and in the topic."""
    orders = seeded_orders(ORDERS)

    print(
        f"\n== {ORDERS_BEFORE_RESTART} orders go into the topic, and a total with the order's headers comes out for each:"
    )
    produce(spark, servers, orders[:ORDERS_BEFORE_RESTART])
    run_query(spark, servers, home)

    shutil.rmtree(home / "local")
    print(
        f"\n== Stopped. The local state directory is deleted; {ORDERS - ORDERS_BEFORE_RESTART} more orders go into the"
    )
    print("   topic; restarting from the checkpoint:")
    produce(spark, servers, orders[ORDERS_BEFORE_RESTART:])
    run_query(spark, servers, home)

    results = read_topic(spark, servers, "totals")
    print(f"\n== {RESULTS_SHOWN} of the {len(results)} records that are in the topic 'totals' now:")
    show_totals(results[:: len(results) // RESULTS_SHOWN][:RESULTS_SHOWN])

    print("\n== What the store holds, read back from the durable location:")
    entries = read_store(spark, "totals", checkpoint_location=home / "checkpoint", state_location=home / "state")
    found = entries.collect()
    show_store(found)

    in_topic = as_orders(read_topic(spark, servers, TOPIC))
    right = [check_sent(in_topic, orders), check_store(found, in_topic), check_results(results, in_topic)]
    print("\nSpark's Kafka sink is at least once, state is exactly once: after a failure a total may be in the topic")
    print("twice, the same both times, but no order is ever counted twice.")
    return all(right)


def produce(spark: SparkSession, servers: str, orders: Sequence[Order]) -> None:
    """Append orders to their topic. Kafka chooses the partition by the key, and the time is that of writing."""
    rows = [(order.key, order.value, order.headers) for order in orders]
    frame = spark.createDataFrame(rows, "key binary, value binary, headers array<struct<key:string,value:binary>>")
    # In one task, so that one producer sends them all, in their order.
    frame.coalesce(1).write.format("kafka").option("kafka.bootstrap.servers", servers).option("topic", TOPIC).save()


def run_query(spark: SparkSession, servers: str, home: Path) -> None:
    """Run the query until it has processed every order that is in the topic."""
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("includeHeaders", "true")
        .option("maxOffsetsPerTrigger", ORDERS_PER_BATCH)
        .load()
    )
    totals = stateful(
        records,
        running_total_topology(),
        shards=PARTITIONS,
        state_location=home / "state",
        local_dir=str(home / "local"),
    )
    # The result has a topic column, and a headers column, which the sink writes without being asked.
    query = (
        totals.writeStream.format("kafka")
        .option("kafka.bootstrap.servers", servers)
        .option("checkpointLocation", str(home / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    for progress in query.recentProgress:
        print(f"-- batch {progress['batchId']}: {progress['numInputRows']} orders")


def read_topic(spark: SparkSession, servers: str, topic: str) -> list[Row]:
    """Return all records of a topic, those of a partition in the order of their offsets: a batch read of its own."""
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
            bytes(row.key).decode(),
            json.loads(bytes(row.value))["amount"],
            row.partition,
            row.offset,
            row.timestamp_ms,
            as_headers(row),
        )
        for row in rows
    ]


def as_headers(row: Row) -> Headers:
    """Return a record's headers as pairs; Spark's source gives null for none."""
    return [(header.key, header.value) for header in row.headers or []]


def results_by_customer(rows: Iterable[Row]) -> dict[str, list[tuple[int, Headers]]]:
    """Return the totals and headers in records of the topic 'totals', those of a customer in their order."""
    results: dict[str, list[tuple[int, Headers]]] = {}
    for row in rows:
        total = Serdes.int64().deserialize(bytes(row.value))
        results.setdefault(bytes(row.key).decode(), []).append((total, as_headers(row)))
    return results


def expected_results(orders: Iterable[Order]) -> dict[str, list[tuple[int, Headers]]]:
    """Return what `results_by_customer` must be, by a plain fold over the orders."""
    results: dict[str, list[tuple[int, Headers]]] = {}
    for order in orders:
        of_customer = results.setdefault(order.customer, [])
        before = of_customer[-1][0] if of_customer else 0
        of_customer.append((before + order.amount, order.headers))
    return results


def check_sent(in_topic: list[Order], sent: list[Order]) -> bool:
    """Compare the orders in the topic, whose fold decides what is right, with those sent; print the outcome."""
    right = expected_results(in_topic) == expected_results(sent)
    print(
        f"\n== Check of {len(in_topic)} orders in the topic against those sent: {'all equal' if right else 'DIFFERENT'}"
    )
    return right


def check_results(results: list[Row], orders: list[Order]) -> bool:
    """Compare the result records with a plain fold over the orders, print the outcome, and return it."""
    right = results_by_customer(results) == expected_results(orders)
    outcome = "all equal" if right else "DIFFERENT"
    print(f"\n== Check of {len(results)} result records, one per order, against a plain fold: {outcome}")
    return right


if __name__ == "__main__":
    sys.exit(main())
