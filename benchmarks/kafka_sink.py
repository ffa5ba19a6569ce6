"""The sink of transactions beside Spark's own Kafka sink: the same rows to the same broker, in turn in one session.

    python benchmarks/kafka_sink.py --rows 200000 --rounds 5

Both write each batch of a query that reads Parquet, in as many tasks as there are cores. Printed: the best of the
rounds, and as a ratio to Spark's sink, for a large batch in rows/s and for a batch of 100 rows in ms. "reading" is the
same rows to nowhere; the first batch of a run reads the markers, and ends what earlier runs left. At the end, the
processor time of all processes for a counting query with each sink, the best of two runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from count_query import rows_of, started
from peers.process_figures import ProcessFigures, descendants
from statestore.spark import recommended_settings, stateful
from statestore.spark.kafka_sink import KafkaTransactions
from statestore.testing.jars import connector_jars
from statestore.testing.kafka_broker import KafkaBroker
from workload import CountAndKeepColumns, counting_topology, write_input

SMALL = 100
KEYS = 100_000
VALUE_BYTES = 100
PARTITIONS = 8
Sink: TypeAlias = Callable[[DataFrame, int], None]


def main(rows: int, rounds: int) -> None:
    """Measure and print."""
    cores = os.cpu_count() or 1
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path)
    with tempfile.TemporaryDirectory() as directory, KafkaBroker(jvm_options=()) as broker:
        spark = session(cores)
        broker.create_topic("out", PARTITIONS)
        for size, unit in ((rows, "rows/s"), (SMALL, "ms a batch")):
            path = str(Path(directory) / str(size))
            for _ in range(rounds + 1):
                made_rows(spark, size, cores).write.mode("append").parquet(path)
            batches = spark.readStream.schema(spark.read.parquet(path).schema)
            batches = batches.option("maxFilesPerTrigger", cores).parquet(path)
            best = measured(sinks(broker.bootstrap_servers, cores), batches)
            for name, seconds in best.items():
                figure = size / seconds if unit == "rows/s" else 1_000 * seconds
                ratio = seconds / best["Spark's sink"]
                print(
                    f"{size:>9,} rows  {name:<14} {figure:>12,.0f} {unit:<11} {ratio:5.2f} times the time", flush=True
                )
        source = Path(directory) / "records"
        write_input(source, rounds, rows // 2)
        for name, packed in (("Spark's sink", False), ("transactions", False), ("packed", True)):
            each_us = []
            for turn in range(2):
                home = Path(directory) / f"{name}-{turn}"
                counted = stateful(
                    rows_of(spark, source),
                    counting_topology(CountAndKeepColumns),
                    shards=PARTITIONS,
                    state_location=home / "state",
                    local_dir=str(home / "local"),
                    packed=packed,
                )
                sink = sinks(broker.bootstrap_servers, cores)["transactions" if packed else name]
                each_us.append(cpu_s(counted, sink, home) / (rounds - 1) / (rows // 2) * 1e6)
            print(f"counting query  {name:<14} {min(each_us):6.1f} us of processors a record", flush=True)
        spark.stop()


def cpu_s(counted: DataFrame, sink: Sink, home: Path) -> float:
    """Return the processor time that a query with a sink takes for its batches after the first."""
    figures = ProcessFigures(lambda: descendants(os.getpid()))
    seen_s = []

    def write(batch: DataFrame, batch_id: int) -> None:
        sink(batch, batch_id)
        seen_s.append(sum(figures.cpu_s().values()))

    started(counted.writeStream.foreachBatch(write), home).awaitTermination()
    return seen_s[-1] - seen_s[0]


def session(cores: int) -> SparkSession:
    """Return a session as one is recommended."""
    spark = (
        SparkSession.builder.master(f"local[{cores}]")
        .config(map=recommended_settings(cores=cores).session.as_options())
        .config("spark.jars", ",".join(str(jar) for jar in connector_jars()))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def made_rows(spark: SparkSession, rows: int, tasks: int) -> DataFrame:
    """Return rows of the Kafka sink's shape, with three headers."""
    number = f.col("id").cast("string")
    headers = [f.struct(f.lit(name).alias("key"), number.cast("binary").alias("value")) for name in ("a", "b", "c")]
    return spark.range(0, rows, 1, tasks).select(
        (f.col("id") % KEYS).cast("string").cast("binary").alias("key"),
        f.rpad(number, VALUE_BYTES, "x").cast("binary").alias("value"),
        f.lit("out").alias("topic"),
        f.array(*headers).alias("headers"),
    )


def sinks(servers: str, cores: int) -> dict[str, Sink]:
    """Return what writes a batch, by name."""
    settings = recommended_settings(cores=cores).sink.as_options()
    transactions = KafkaTransactions(servers, markers="markers")

    def to_spark(batch: DataFrame, _: int) -> None:
        batch.write.format("kafka").option("kafka.bootstrap.servers", servers).options(**settings).save()

    def first_of_a_run(batch: DataFrame, batch_id: int) -> None:
        KafkaTransactions(servers, markers="markers", writer="runs")(batch, batch_id)

    return {
        "reading": lambda batch, _: batch.write.format("noop").mode("overwrite").save(),
        "Spark's sink": to_spark,
        "transactions": transactions,
        "first of a run": first_of_a_run,
    }


def measured(writers: dict[str, Sink], batches: DataFrame) -> dict[str, float]:
    """Return the shortest time of each for a batch, in seconds, after one that is not counted."""
    best = dict.fromkeys(writers, float("inf"))

    def write_all(batch: DataFrame, batch_id: int) -> None:
        for name, write in writers.items():
            started_s = time.perf_counter()
            write(batch, batch_id)
            if batch_id:
                best[name] = min(best[name], time.perf_counter() - started_s)

    batches.writeStream.foreachBatch(write_all).trigger(availableNow=True).start().awaitTermination()
    return best


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    main(arguments.rows, arguments.rounds)
