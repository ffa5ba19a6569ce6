"""Operators of statestore.dsl beside Spark's own for the same, over the same rows.

Records are those of workload.py, in Kafka's shape with three headers; their values are whole numbers, which are in a
column `amount` too. Spark's operators read that, the key and the timestamp, and none of the rest; in their other form
they keep the headers of the latest record too, as those here do. A batch takes BATCH_MS of event time, so that windows
close in each. Two streams that are joined have half of the records each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame, GroupedData
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
    LINES,
    RIGHT,
    SIZE_MS,
    SUPPRESSED,
    TOPIC,
    UPDATE,
    WITHIN_MS,
    forms,
    topology_of,
)
from statestore import Serdes, Topology
from statestore.format.serde_columns import INT64_COLUMNS
from workload import KAFKA_ROWS, START_MS, records, write_batch

SCHEMA: Final = f"{KAFKA_ROWS}, amount bigint"
BATCH_MS: Final = 250_000
WORDS_OF_LINE: Final = 5
Inputs = Mapping[str, DataFrame]
"""The rows of each topic."""
Forms = Mapping[str, Callable[[Inputs], DataFrame]]
"""Spark's operators, by the name of a form."""
SPARK: Final = "Spark's own"
SPARK_WITH_HEADERS: Final = "Spark's own, headers kept"
"""With the headers of the latest record, which each row puts out as those here do."""


@dataclass(frozen=True)
class Operator:
    """An operator here, in one form or several, and Spark's own."""

    name: str
    here: Mapping[str, Callable[[], Topology]]
    """By the name of a form, what makes its topology; the first form puts out what Spark's operator does."""
    spark: Forms
    """What they make is in a column `total`."""
    spark_mode: str
    topics: tuple[str, ...] = (TOPIC,)


def _joins(how: str) -> Forms:
    return {
        SPARK: lambda inputs: _joined_rows(inputs, how, {}),
        SPARK_WITH_HEADERS: lambda inputs: _joined_rows(
            inputs, how, {"headers": F.coalesce("right_headers", "headers")}
        ),
    }


def _joined_rows(inputs: Inputs, how: str, kept: Mapping[str, Column]) -> DataFrame:
    left = _watermarked(inputs[LEFT].select("key", "timestamp", "amount", *kept))
    right_names = {"key": "right_key", "timestamp": "right_time", "amount": "right", "headers": "right_headers"}
    right = inputs[RIGHT].select("key", "timestamp", "amount", *kept).withColumnsRenamed(right_names)
    right = _watermarked(right, "right_time")
    apart = F.expr(f"INTERVAL {APART_MS // 1_000} SECONDS")
    is_near = F.col("right_time").between(F.col("timestamp") - apart, F.col("timestamp") + apart)
    pairs = left.join(right, (F.col("key") == F.col("right_key")) & is_near, how)
    total = F.coalesce("right", F.lit(0)) + F.col("amount")
    return pairs.select("key", "timestamp", total.alias("total"), *(each.alias(name) for name, each in kept.items()))


def _aggregates(grouped: Callable[[DataFrame], GroupedData], total: Callable[[], Column], topic: str = TOPIC) -> Forms:
    def aggregated(inputs: Inputs, *more: Column) -> DataFrame:
        return grouped(inputs[topic]).agg(total().alias("total"), *more)

    return {
        SPARK: aggregated,
        SPARK_WITH_HEADERS: lambda inputs: aggregated(inputs, F.max_by("headers", "offset").alias("headers")),
    }


def _number() -> Column:
    return F.count(F.lit(1))


def _sum() -> Column:
    return F.sum("amount")


def _by_key(rows: DataFrame) -> GroupedData:
    return rows.groupBy("key")


def _by_window(rows: DataFrame, advance_ms: int = SIZE_MS) -> GroupedData:
    window = F.window("timestamp", f"{SIZE_MS} milliseconds", f"{advance_ms} milliseconds")
    return _watermarked(rows).groupBy(window, "key")


def _by_session(rows: DataFrame) -> GroupedData:
    return _watermarked(rows).groupBy(F.session_window("timestamp", f"{GAP_MS} milliseconds"), "key")


def _by_word(rows: DataFrame) -> GroupedData:
    words = F.explode(F.split(F.col("value").cast("string"), " ")).alias("key")
    return rows.select(words, "headers", "offset").groupBy("key")


def _deduplicated(inputs: Inputs) -> DataFrame:
    rows = inputs[TOPIC].withWatermark("timestamp", f"{WITHIN_MS} milliseconds")
    return rows.dropDuplicatesWithinWatermark(["key"])


def _watermarked(rows: DataFrame, timestamp: str = "timestamp") -> DataFrame:
    return rows.withWatermark(timestamp, f"{LATENESS_MS} milliseconds")


OPERATORS: Final = (
    Operator(
        "count",
        forms(programs.count),
        _aggregates(_by_key, _number),
        "update",
    ),
    Operator(
        "sum",
        forms(programs.total),
        _aggregates(_by_key, _sum),
        "update",
    ),
    Operator(
        "sum by a function",
        forms(programs.reduced),
        _aggregates(_by_key, _sum),
        "update",
    ),
    Operator(
        "agg of sum, count and max",
        forms(programs.several),
        _aggregates(_by_key, lambda: F.struct(_sum(), _number(), F.max("amount"))),
        "update",
    ),
    Operator(
        "word count",
        {UPDATE: topology_of(programs.word_count, value_serde=Serdes.string(), topics=[LINES])},
        _aggregates(_by_word, _number, LINES),
        "update",
        (LINES,),
    ),
    Operator(
        "tumbling windows",
        forms(programs.tumbling),
        _aggregates(_by_window, _number),
        "update",
    ),
    Operator(
        "hopping windows, 3 a record",
        forms(programs.hopping),
        _aggregates(partial(_by_window, advance_ms=ADVANCE_MS), _number),
        "update",
    ),
    Operator(
        "tumbling windows, once",
        {CLOSE: topology_of(programs.final_windows), SUPPRESSED: topology_of(programs.suppressed_windows)},
        _aggregates(_by_window, _number),
        "append",
    ),
    Operator(
        "sessions",
        {CLOSE: topology_of(programs.final_sessions), UPDATE: topology_of(programs.sessions)},
        # Spark has no sessions in update mode.
        _aggregates(_by_session, _number),
        "append",
    ),
    Operator(
        "deduplication",
        {EACH: topology_of(programs.deduplicated)},
        {
            SPARK: lambda inputs: _deduplicated(inputs).select("key", "amount", "timestamp"),
            SPARK_WITH_HEADERS: lambda inputs: _deduplicated(inputs).select("key", "amount", "timestamp", "headers"),
        },
        "append",
    ),
    Operator(
        "stream-stream join",
        {JOINED: topology_of(programs.joined, topics=[LEFT, RIGHT])},
        _joins("inner"),
        "append",
        (LEFT, RIGHT),
    ),
    Operator(
        "stream-stream left join",
        {JOINED: topology_of(programs.left_joined, topics=[LEFT, RIGHT])},
        _joins("left"),
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
        "value": _lines(first, count, keys) if topic == LINES else INT64_COLUMNS.serialize(amounts),
        "topic": pa.array([topic] * count),
        "timestamp": pa.array(times_us // 1_000 * 1_000).cast(made.schema.field("timestamp").type),
        "amount": amounts,
    }
    return pa.record_batch(columns)


def _lines(first: int, count: int, words: int) -> pa.BinaryArray:
    """Return as many lines, of WORDS_OF_LINE of `words` different words."""
    drawn = np.random.default_rng(first).integers(words, size=(count, WORDS_OF_LINE))
    return pa.array([" ".join(f"word{word}" for word in line).encode() for line in drawn.tolist()], pa.binary())


def write_topic(directory: Path, topic: str, batches: int, records_per_batch: int, keys: int) -> None:
    """Write a topic as Parquet files, PARTITIONS files a micro-batch."""
    directory.mkdir(parents=True)
    for number in range(batches):
        write_batch(directory, number, records_of(number, records_per_batch, keys, topic))
