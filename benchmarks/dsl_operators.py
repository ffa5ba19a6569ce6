"""Operators of statestore.dsl beside Spark's own for the same, over the same rows.

Records are those of workload.py, in Kafka's shape with three headers; their values are whole numbers, which are in a
column `amount` too: Spark's operators read that, the key and the timestamp, and none of the rest. Event time goes on by
1 ms a record. Two streams that are joined have half of the records each.
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

from statestore import Serdes, Topology
from statestore.dsl import (
    BufferConfig,
    EmitStrategy,
    JoinWindows,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from statestore.format.serde_columns import INT64_COLUMNS
from workload import KAFKA_ROWS, records, write_batch

SCHEMA: Final = f"{KAFKA_ROWS}, amount bigint"
SIZE_MS: Final = 60_000
ADVANCE_MS: Final = 20_000
GAP_MS: Final = 30_000
WITHIN_MS: Final = 60_000
APART_MS: Final = 30_000
"""How far apart records are that are joined."""
LATENESS_MS: Final = 60_000
"""Of windows the grace, of Spark's queries the watermark: nothing is late."""
TOPIC: Final = "in"
LEFT, RIGHT = "left", "right"
Program = Callable[[KStream], KTable[Any] | KStream]
"""Makes of the input what is put out."""
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


UPDATE: Final = "once a key and batch"
EACH: Final = "each change"
BY_RECORDS: Final = "once a key and batch, by records"
CLOSE: Final = "on close"
SUPPRESSED: Final = "on close, by suppress()"
JOINED: Final = "each pair"


def one_input(program: Program, *, in_columns: bool = True) -> Callable[[], Topology]:
    """Return what makes the topology of a program with one input."""

    def topology() -> Topology:
        builder = StreamsBuilder(in_columns=in_columns)
        made = program(builder.stream(TOPIC, key_serde=Serdes.bytes(), value_serde=Serdes.int64()))
        (made.to_stream() if isinstance(made, KTable) else made).to("out")
        return builder.build()

    return topology


def _kept(is_cached: bool) -> Materialized:
    kept = Materialized.as_("kept")
    return kept.with_caching_enabled() if is_cached else kept


def forms(table: Callable[[KStream, Materialized], KTable[Any]]) -> dict[str, Callable[[], Topology]]:
    """Return an aggregate as Spark's update mode puts it out, at each change, and record by record."""

    def cached(stream: KStream) -> KTable[Any]:
        return table(stream, _kept(True))

    return {
        UPDATE: one_input(cached),
        EACH: one_input(lambda stream: table(stream, _kept(False))),
        BY_RECORDS: one_input(cached, in_columns=False),
    }


def _tumbling() -> TimeWindows:
    return TimeWindows.of_size_and_grace(SIZE_MS, LATENESS_MS)


def _sessions(stream: KStream, kept: Materialized) -> KTable[Any]:
    windows = SessionWindows.of_inactivity_gap_and_grace(GAP_MS, LATENESS_MS)
    return stream.group_by_key().windowed_by(windows).count(materialized=kept)


def _final_sessions(stream: KStream) -> KTable[Any]:
    windows = SessionWindows.of_inactivity_gap_and_grace(GAP_MS, LATENESS_MS)
    sessions = stream.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    return sessions.count(materialized=_kept(False))


def _final_windows(stream: KStream) -> KTable[Any]:
    windows = stream.group_by_key().windowed_by(_tumbling()).emit_strategy(EmitStrategy.on_window_close())
    return windows.count(materialized=_kept(False))


def _suppressed_windows(stream: KStream) -> KTable[Any]:
    windows = stream.group_by_key().windowed_by(_tumbling()).count(materialized=_kept(True))
    return windows.suppress(Suppressed.until_window_closes(BufferConfig.unbounded()))


def two_inputs(join: Callable[[KStream, KStream], KStream]) -> Callable[[], Topology]:
    """Return what makes the topology of a join of two topics."""

    def topology() -> Topology:
        builder = StreamsBuilder()
        sides = [builder.stream(topic, key_serde=Serdes.bytes(), value_serde=Serdes.int64()) for topic in (LEFT, RIGHT)]
        join(*sides).to("out", value_serde=Serdes.int64())
        return builder.build()

    return topology


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


def _sum_of_both(left: int, right: int | None) -> int:
    return left + (right or 0)


def _near() -> JoinWindows:
    return JoinWindows.of_time_difference_and_grace(APART_MS, LATENESS_MS)


def _windowed(rows: DataFrame, advance_ms: int = SIZE_MS) -> DataFrame:
    window = F.window("timestamp", f"{SIZE_MS} milliseconds", f"{advance_ms} milliseconds")
    return _watermarked(rows).groupBy(window, "key").count()


def _watermarked(rows: DataFrame, timestamp: str = "timestamp") -> DataFrame:
    return rows.withWatermark(timestamp, f"{LATENESS_MS} milliseconds")


OPERATORS: Final = (
    Operator(
        "count",
        forms(lambda stream, kept: stream.group_by_key().count(materialized=kept)),
        lambda rows: rows[TOPIC].groupBy("key").count(),
        "update",
    ),
    Operator(
        "sum",
        forms(lambda stream, kept: stream.group_by_key().sum(materialized=kept)),
        lambda rows: rows[TOPIC].groupBy("key").agg(F.sum("amount")),
        "update",
    ),
    Operator(
        "tumbling windows",
        forms(lambda stream, kept: stream.group_by_key().windowed_by(_tumbling()).count(materialized=kept)),
        lambda rows: _windowed(rows[TOPIC]),
        "update",
    ),
    Operator(
        "hopping windows, 3 a record",
        forms(
            lambda stream, kept: (
                stream.group_by_key().windowed_by(_tumbling().advance_by(ADVANCE_MS)).count(materialized=kept)
            )
        ),
        lambda rows: _windowed(rows[TOPIC], ADVANCE_MS),
        "update",
    ),
    Operator(
        "tumbling windows, once",
        {CLOSE: one_input(_final_windows), SUPPRESSED: one_input(_suppressed_windows)},
        lambda rows: _windowed(rows[TOPIC]),
        "append",
    ),
    Operator(
        "sessions",
        {CLOSE: one_input(_final_sessions), UPDATE: one_input(lambda stream: _sessions(stream, _kept(True)))},
        # Spark has no sessions in update mode.
        lambda rows: (
            _watermarked(rows[TOPIC]).groupBy(F.session_window("timestamp", f"{GAP_MS} milliseconds"), "key").count()
        ),
        "append",
    ),
    Operator(
        "deduplication",
        {EACH: one_input(lambda stream: stream.deduplicate(WITHIN_MS, materialized=Materialized.as_("kept")))},
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
        {JOINED: two_inputs(lambda left, right: left.join(right, _sum_of_both, _near()))},
        lambda inputs: _joined_rows(inputs, "inner"),
        "append",
        (LEFT, RIGHT),
    ),
    Operator(
        "stream-stream left join",
        {JOINED: two_inputs(lambda left, right: left.left_join(right, _sum_of_both, _near()))},
        lambda inputs: _joined_rows(inputs, "left"),
        "append",
        (LEFT, RIGHT),
    ),
)


def records_of(first: int, count: int, keys: int, topic: str = TOPIC) -> pa.RecordBatch:
    """Return the records numbered from `first`; of another topic than TOPIC with other keys."""
    made = records(first, count, seed=1 + (topic == RIGHT), keys=keys)
    amounts = pa.array(np.arange(first, first + count) % 1_000)
    columns: dict[str, Any] = dict(zip(made.schema.names, made.columns, strict=True))
    columns |= {"value": INT64_COLUMNS.serialize(amounts), "topic": pa.array([topic] * count), "amount": amounts}
    return pa.record_batch(columns)


def write_topic(directory: Path, topic: str, batches: int, records_per_batch: int, keys: int) -> None:
    """Write a topic as Parquet files, PARTITIONS files a micro-batch."""
    directory.mkdir(parents=True)
    for number in range(batches):
        write_batch(directory, number, records_of(number * records_per_batch, records_per_batch, keys, topic))
