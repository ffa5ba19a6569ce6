"""Operators of statestore.dsl beside Spark's own for the same, over the same rows.

Records are those of workload.py, in Kafka's shape with three headers; their values are whole numbers, which are in a
column `amount` too: Spark's operators read that, the key and the timestamp, and none of the rest. A batch takes
BATCH_MS of event time, so that windows close in each. Two streams that are joined have half of the records each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import dsl_programs as programs
from dsl_programs import (
    ADVANCE_MS,
    APART_MS,
    CLOSE,
    EACH,
    GAP_MS,
    JOINED,
    LATENESS_MS,
    LEFT,
    RIGHT,
    SIZE_MS,
    SUPPRESSED,
    TOPIC,
    UPDATE,
    WITHIN_MS,
    forms,
    one_input,
    two_inputs,
)
from statestore import Topology
from statestore.format.serde_columns import INT64_COLUMNS
from workload import KAFKA_ROWS, START_MS, records, write_batch

SCHEMA: Final = f"{KAFKA_ROWS}, amount bigint"
BATCH_MS: Final = 250_000
Inputs = Mapping[str, DataFrame]
"""The rows of each topic."""


@dataclass(frozen=True)
class Operator:
    """An operator here, in one form or several, and Spark's own."""

    name: str
    here: Mapping[str, Callable[[], Topology]]
    """By the name of a form, what makes its topology; the first form puts out what Spark's operator does."""
    spark: Callable[[Inputs], DataFrame]
    spark_mode: str
    topics: tuple[str, ...] = (TOPIC,)


def _joined_rows(inputs: Inputs, how: str) -> DataFrame:
    left = _watermarked(inputs[LEFT].select("key", "timestamp", "amount"))
    right = _watermarked(
        inputs[RIGHT].select(
            F.col("key").alias("right_key"), F.col("timestamp").alias("right_time"), F.col("amount").alias("right")
        ),
        "right_time",
    )
    apart = F.expr(f"INTERVAL {APART_MS // 1_000} SECONDS")
    is_near = F.col("right_time").between(F.col("timestamp") - apart, F.col("timestamp") + apart)
    pairs = left.join(right, (F.col("key") == F.col("right_key")) & is_near, how)
    return pairs.select("key", "timestamp", F.coalesce("right", F.lit(0)) + F.col("amount"))


def _windowed(rows: DataFrame, advance_ms: int = SIZE_MS) -> DataFrame:
    window = F.window("timestamp", f"{SIZE_MS} milliseconds", f"{advance_ms} milliseconds")
    return _watermarked(rows).groupBy(window, "key").count()


def _watermarked(rows: DataFrame, timestamp: str = "timestamp") -> DataFrame:
    return rows.withWatermark(timestamp, f"{LATENESS_MS} milliseconds")


OPERATORS: Final = (
    Operator(
        "count",
        forms(programs.count),
        lambda rows: rows[TOPIC].groupBy("key").count(),
        "update",
    ),
    Operator(
        "sum",
        forms(programs.total),
        lambda rows: rows[TOPIC].groupBy("key").agg(F.sum("amount")),
        "update",
    ),
    Operator(
        "tumbling windows",
        forms(programs.tumbling),
        lambda rows: _windowed(rows[TOPIC]),
        "update",
    ),
    Operator(
        "hopping windows, 3 a record",
        forms(programs.hopping),
        lambda rows: _windowed(rows[TOPIC], ADVANCE_MS),
        "update",
    ),
    Operator(
        "tumbling windows, once",
        {CLOSE: one_input(programs.final_windows), SUPPRESSED: one_input(programs.suppressed_windows)},
        lambda rows: _windowed(rows[TOPIC]),
        "append",
    ),
    Operator(
        "sessions",
        {CLOSE: one_input(programs.final_sessions), UPDATE: one_input(programs.sessions)},
        # Spark has no sessions in update mode.
        lambda rows: (
            _watermarked(rows[TOPIC]).groupBy(F.session_window("timestamp", f"{GAP_MS} milliseconds"), "key").count()
        ),
        "append",
    ),
    Operator(
        "deduplication",
        {EACH: one_input(programs.deduplicated)},
        lambda rows: (
            rows[TOPIC]
            .withWatermark("timestamp", f"{WITHIN_MS} milliseconds")
            .dropDuplicatesWithinWatermark(["key"])
            .select("key", "amount", "timestamp")
        ),
        "append",
    ),
    Operator(
        "stream-stream join",
        {JOINED: two_inputs(programs.joined)},
        lambda inputs: _joined_rows(inputs, "inner"),
        "append",
        (LEFT, RIGHT),
    ),
    Operator(
        "stream-stream left join",
        {JOINED: two_inputs(programs.left_joined)},
        lambda inputs: _joined_rows(inputs, "left"),
        "append",
        (LEFT, RIGHT),
    ),
)


def records_of(number: int, count: int, keys: int, topic: str = TOPIC, *, batch_ms: int = BATCH_MS) -> pa.RecordBatch:
    """Return a batch of records, which takes `batch_ms` of event time; of another topic than TOPIC with other keys."""
    first = number * count
    made = records(first, count, seed=1 + (topic == RIGHT), keys=keys)
    amounts = pa.array(np.arange(first, first + count) % 1_000)
    times_us = START_MS * 1_000 + number * batch_ms * 1_000 + np.arange(count) * (batch_ms * 1_000) // count
    columns: dict[str, Any] = dict(zip(made.schema.names, made.columns, strict=True))
    columns |= {
        "value": INT64_COLUMNS.serialize(amounts),
        "topic": pa.array([topic] * count),
        "timestamp": pa.array(times_us // 1_000 * 1_000).cast(made.schema.field("timestamp").type),
        "amount": amounts,
    }
    return pa.record_batch(columns)


def write_topic(directory: Path, topic: str, batches: int, records_per_batch: int, keys: int) -> None:
    """Write a topic as Parquet files, PARTITIONS files a micro-batch."""
    directory.mkdir(parents=True)
    for number in range(batches):
        write_batch(directory, number, records_of(number, records_per_batch, keys, topic))
