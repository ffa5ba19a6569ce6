"""The workload's operator as a query of Spark, and how a query goes over files into nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress
from pyspark.sql.streaming.query import StreamingQuery

from statestore import Processor
from statestore.spark import stateful
from workload import KAFKA_ROWS, PARTITIONS, CountAndKeep, counting_topology

Operator = Callable[[DataFrame, Path], DataFrame]
"""Makes of rows what is to run; the directory is the query's."""


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
    rows = spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", files_per_batch).parquet(str(source))
    writer = operator(rows, scratch).writeStream.format("noop").outputMode(output_mode)
    return writer.option("checkpointLocation", str(scratch / "checkpoint")).trigger(availableNow=True).start()


def measured(query: StreamingQuery, warm_up: int) -> list[StreamingQueryProgress]:
    """Return the batches that had rows, without those of the warm-up."""
    return [batch for batch in query.recentProgress if batch.numInputRows][warm_up:]


def rows_per_s(batches: list[StreamingQueryProgress]) -> float:
    """Return the rate of batches, of the time that each took from its trigger to its end."""
    return sum(batch.numInputRows for batch in batches) / sum(b.durationMs["triggerExecution"] for b in batches) * 1e3
