"""The workload's operator as a query of Spark, and how a query goes over files into nothing."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statestore import Processor
from statestore.spark import recommended_settings, stateful
from workload import KAFKA_ROWS, PARTITIONS, CountAndKeep, counting_topology

PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
MEMORY_BYTES = 3 << 29
"""What is given to the session, if it has what is recommended: the default."""
Operator = Callable[[DataFrame, Path], DataFrame]
"""Makes of rows what is to run; the directory is the query's."""


def session(
    name: str,
    partitions: int,
    *,
    is_recommended: bool = True,
    memory_bytes: int = MEMORY_BYTES,
    batch_bytes_max: int | None = None,
    jars: Sequence[Path] = (),
) -> SparkSession:
    """Return a session of the machine's cores, with Spark's own state in RocksDB, and with more jars."""
    cores = os.cpu_count() or 1
    builder = SparkSession.builder.master(f"local[{cores}]").appName(f"statestore {name}")
    if is_recommended:
        settings = recommended_settings(cores=cores, memory_bytes=memory_bytes, batch_bytes_max=batch_bytes_max)
        builder = builder.config(map=settings.session.as_options())
    if jars:
        builder = builder.config("spark.jars", ",".join(map(str, jars)))
    spark = (
        builder.config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.shuffle.partitions", str(partitions))
        .config("spark.sql.streaming.stateStore.providerClass", PROVIDER)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


def operator(
    via: str = "transform_with_state", *, shards: int = PARTITIONS, processor: type[Processor] = CountAndKeep
) -> Operator:
    """Return the workload's operator through one of Spark's entry points."""

    def counted(rows: DataFrame, scratch: Path) -> DataFrame:
        return stateful(
            rows,
            counting_topology(processor),
            shards=shards,
            state_location=scratch / "state",
            local_dir=str(scratch / "local"),
            via=via,
        )

    return counted


def rows_of(
    spark: SparkSession, source: Path, *, schema: str = KAFKA_ROWS, files_per_batch: int = PARTITIONS
) -> DataFrame:
    """Return the rows of the files of `source`, so many files a micro-batch."""
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", files_per_batch).parquet(str(source))


def start(
    spark: SparkSession,
    source: Path,
    scratch: Path,
    operator: Operator,
    *,
    files_per_batch: int = PARTITIONS,
    output_mode: str = "append",
) -> StreamingQuery:
    """Start `operator` over the files of `source`; nothing is done with what it puts out."""
    rows = rows_of(spark, source, files_per_batch=files_per_batch)
    return started(operator(rows, scratch).writeStream.format("noop").outputMode(output_mode), scratch)


def started(writer: DataStreamWriter, scratch: Path) -> StreamingQuery:
    """Start a query until all that there is is done; its checkpoint lies in the query's directory."""
    return writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True).start()


def measured(query: StreamingQuery, warm_up: int) -> list[StreamingQueryProgress]:
    """Return the batches that had rows, without those of the warm-up."""
    return [batch for batch in query.recentProgress if batch.numInputRows][warm_up:]


def rows_per_s(batches: list[StreamingQueryProgress]) -> float:
    """Return the rate of batches, of the time that each took from its trigger to its end."""
    return sum(batch.numInputRows for batch in batches) / sum(b.durationMs["triggerExecution"] for b in batches) * 1e3
