"""`with_middleware`: a chain of interceptors on a DataFrame, without any state."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from statestore.errors import InputSchemaError, TopologyError
from statestore.format.records.header_columns import HEADERS_TYPE, encode_header_column
from statestore.headers.topic_columns import (
    SINK_COLUMNS,
    SOURCE_COLUMNS,
    SinkFields,
    SourceFields,
    sink_batch,
    sink_records,
)
from statestore.interception.chain import Interceptors, query_chain
from statestore.interception.failures import FailureHandling, FailureStage, TaskFailures, stage_of
from statestore.processor.context import TaskRecordContext
from statestore.processor.interceptors import TaskInterceptors
from statestore.processor.nodes import InterceptorNode
from statestore.processor.punctuation import Punctuations
from statestore.spark.query_failure import sentence_first
from statestore.spark.query_settings import session_properties
from statestore.spark.shards.pack import rows_of, source_columns
from statestore.spark.shards.schema import OUTPUT_SCHEMA, check_choice, check_column_type, check_input_schema

_SIDES: Final = ("ingest", "emit")
_SINK_TYPES: Final = {"key": "binary", "value": "binary", "topic": "string", "timestamp": "timestamp"}
_PLACES: Final = ("partition", "offset")


def with_middleware(
    records: DataFrame,
    interceptors: Interceptors = None,
    *,
    side: str = "ingest",
    failures: FailureHandling | None = None,
) -> DataFrame:
    """Return the records of a stream or batch after the hooks of one side of a chain.

    Args:
        records: for "ingest" in the shape of Spark's Kafka source with headers, for "emit" in that of its sink: key,
            value, topic, timestamp and headers, as `stateful` returns them.
        interceptors: as `stateful` takes them; those that the session names go around them.
        side: "ingest" calls on_ingest and its columns, the last interceptor first, as a consumer would; "emit" calls
            on_emit, the first interceptor first, as a producer would.
        failures: what to do about refused records. Dead letters are in the result as they came, with the topic for dead
            letters and without partition and offset.

    The result has the columns key, value, topic, timestamp, headers, and for "ingest" partition and offset. Each task
    of Spark has interceptors of its own, which are told the time of its start; its partition's number is the shard.

    Raises InputSchemaError, ValueError for illegal arguments, what a chain raises, and TopologyError for an interceptor
    that needs state; one that schedules calls by a clock ends the query with TopologyError. `stateful` has both.
    """
    check_choice("side", side, _SIDES)
    chain = query_chain(interceptors, session_properties(records.sparkSession))
    for interceptor in chain:
        if interceptor.stores():
            raise TopologyError(
                f"interceptor {interceptor.name!r} keeps state, and with_middleware() has none: give it to stateful()"
            )
    handling = (failures or FailureHandling()).around(chain)
    schema = OUTPUT_SCHEMA
    if side == "ingest":
        check_input_schema(records.schema)
        schema += ", partition int, offset bigint"
    else:
        records = _sink_rows(records)
    nodes = tuple(InterceptorNode(interceptor, (), {}) for interceptor in chain)
    return records.mapInArrow(_Passing(nodes, handling, side).__call__, schema)


def _sink_rows(records: DataFrame) -> DataFrame:
    for name, wanted in _SINK_TYPES.items():
        if name not in records.columns:
            raise InputSchemaError(name, f"is missing; outgoing records need it as {wanted}")
        check_column_type(records.schema[name], wanted)
    if "headers" not in records.columns:
        raise InputSchemaError("headers", "is missing; outgoing records need it, empty if they have no headers")
    check_column_type(records.schema["headers"], "array<struct<key:string,value:binary>>")
    return records.select(*_SINK_TYPES, "headers")


@dataclass(frozen=True)
class _Passing:
    """Passes the rows of a task through one side of a chain. Runs as a mapInArrow function."""

    nodes: tuple[InterceptorNode, ...]
    handling: FailureHandling
    side: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with sentence_first():
            yield from self._passed(batches)

    def _passed(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        shard = 0 if context is None else context.partitionId()
        clocks = TaskRecordContext(system_time_ms=int(time.time() * 1000))
        letters: list[SinkFields] = []
        failures = TaskFailures(self.handling, shard, lambda *record: letters.append(record))

        def refuse(source: SourceFields | None, interceptor: str, error: Exception) -> None:
            if not failures.goes_on(stage_of(error, FailureStage.REFUSAL), interceptor, error, source):
                raise error

        punctuations = Punctuations({})
        made = TaskInterceptors(self.nodes, shard, clocks, {}, punctuations, refuse)
        made.init()
        try:
            if scheduled := sorted(punctuations.recorded()):
                raise TopologyError(
                    f"{scheduled[0]} schedules calls by a clock, and with_middleware() has none: give it to stateful()"
                )
            for batch in (each for each in batches if each.num_rows):
                if self.side == "ingest":
                    passed: Iterable[pa.RecordBatch] = made.ingest.batches(source_columns(batch))
                else:
                    passed = _emitted(made, _sink_columns(batch))
                yield from map(self._rows, passed)
                yield from map(self._rows, _taken(letters))
            made.finish_batch()
            yield from map(self._rows, _taken(letters))
        finally:
            for _, close in made.close():
                close()

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        rows = rows_of(batch)
        if self.side == "ingest" and len(batch.schema) == len(SINK_COLUMNS):
            for name in _PLACES:
                rows = rows.append_column(name, pa.nulls(rows.num_rows, SOURCE_COLUMNS.field(name).type))
        return rows


def _taken(letters: list[SinkFields]) -> list[pa.RecordBatch]:
    """Return the dead letters so far as a batch, if there are any, and clear them."""
    taken = [sink_batch(*zip(*letters, strict=True))] if letters else []
    letters.clear()
    return taken


def _emitted(made: TaskInterceptors, records: pa.RecordBatch) -> list[pa.RecordBatch]:
    sent: list[pa.RecordBatch] = []

    def original(topic: str, partition: int, row: int) -> SourceFields:
        # Outgoing records have no place in a topic yet.
        _, timestamp_ms, key, value, header_bytes = next(sink_records(records.slice(row, 1)))
        return topic, -1, -1, timestamp_ms, key, value, header_bytes

    emission = made.emission(_refuse_alone, sent.append, lambda: None, original)
    count = records.num_rows
    places = [records.column("topic"), pa.array(np.zeros(count, np.int32)), pa.array(np.arange(count))]
    emission.send_batch(records, pa.record_batch(places, names=["topic", "partition", "offset"]))
    return sent


def _refuse_alone(*record: object) -> None:
    raise AssertionError(f"records must go out in columns, but one with {len(record)} fields went alone")


def _sink_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return Spark's rows of Kafka's sink in SINK_COLUMNS. Raises InputSchemaError for a null topic or timestamp."""
    for name in ("topic", "timestamp"):
        if batch.column(name).null_count:
            raise InputSchemaError(name, f"holds null; an outgoing record needs a {name}")
    topic = batch.column("topic").cast(pa.string()).dictionary_encode()
    parts = [
        topic.cast(SINK_COLUMNS.field("topic").type),
        pc.divide(batch.column("timestamp").cast(pa.int64()), 1000),
        batch.column("key").cast(pa.binary()),
        batch.column("value").cast(pa.binary()),
        encode_header_column(batch.column("headers").cast(HEADERS_TYPE)),
    ]
    return pa.record_batch(parts, schema=SINK_COLUMNS)
