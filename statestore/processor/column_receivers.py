"""How each kind of node handles records in columns, and how columns and single records become each other.

Rows that columns can't handle exactly as the scalar code does go through the scalar code: so both do the same, errors
included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import DeserializationError, SerializationError, TopologyError
from statestore.errors.readable import record_place
from statestore.format.binary_columns import Flags, Integers, row_sizes
from statestore.format.json_serde import json_column
from statestore.format.serde import Serde, columns_of
from statestore.format.serde_columns import BYTES_COLUMNS, DOUBLE_COLUMNS, INT64_COLUMNS, STRING_COLUMNS, ColumnSerde
from statestore.headers.record_columns import ORIGIN, RecordColumns
from statestore.headers.topic_columns import SINK_COLUMNS
from statestore.interception.task_passages import SendBatch
from statestore.processor.context import BatchReceiver, Receiver, TaskRecordContext
from statestore.processor.earlier_times import EarlierTimes
from statestore.processor.nodes import SinkNode, SourceNode
from statestore.processor.processor import BatchProcessor
from statestore.processor.punctuation import stream_time_intervals_ms
from statestore.processor.receivers import locate_failures
from statestore.processor.record import Record
from statestore.processor.topology import Topology
from statestore.recovery.commit.pointer_fields import RecordedPunctuations

_ROWS_MIN: Final = 128
"""From here on, columns are faster than single records."""
T = TypeVar("T")

_TYPES = {bytes: pa.binary(), str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


class ReadColumns(NamedTuple):
    """What a source makes of a batch; each column has a row for each row of the batch."""

    records: RecordColumns
    """Key and value of a row that is not readable are null."""
    is_readable: Flags
    is_timed: Flags
    stream_times_ms: Integers
    """The shard's stream time after each row."""


class ColumnSource:
    """Turns batches of its topics into RecordColumns. Raises TopologyError unless both its serdes have columns."""

    def __init__(
        self,
        node: SourceNode,
        children: Sequence[BatchReceiver],
        earlier: EarlierTimes | None = None,
        *,
        is_needed: bool = True,
    ) -> None:
        """`is_needed` of False means that all below take single records, too."""
        self.node = node
        self.rows_min = 0 if is_needed else _ROWS_MIN
        """Fewer rows are faster one by one."""
        self._earlier = earlier if node.takes_time_on else None
        self.children = children
        self._key = columns_of(node.key_serde, "key", self._no_columns)
        self._value = columns_of(node.value_serde, "value", self._no_columns)

    def _no_columns(self, problem: str) -> TopologyError:
        return TopologyError(
            f"source {self.node.name!r} has a batch processor below it, but {problem}: give it Serdes.bytes() and "
            "decode the column in process_batch(), or a serde with columns (Serdes.of)"
        )

    def read(self, batch: pa.RecordBatch, stream_time_ms: int) -> ReadColumns:
        """Return what a batch of SOURCE_COLUMNS holds; `stream_time_ms` is the shard's before it."""
        keys, values, timestamps = (batch.column(name) for name in ("key", "value", "timestamp_ms"))
        sizes = row_sizes(keys) + row_sizes(values) + row_sizes(batch.column("headers"))
        key, key_is_readable = _deserialized(self.node.key_serde, self._key, keys)
        value, value_is_readable = _deserialized(self.node.value_serde, self._value, values)
        is_readable = key_is_readable & value_is_readable
        times = timestamps.to_numpy()
        read_times = np.where(is_readable, times, -1) if self.node.takes_time_on else np.full(len(times), -1)
        stream_times = np.maximum(np.maximum.accumulate(read_times), stream_time_ms)
        origin = [batch.column(name) for name in ("topic", "partition", "offset")]
        of_records = stream_times
        if self._earlier is not None:
            earlier = self._earlier.of_many(pc.fill_null(keys, b""), batch.column("partition").to_numpy())
            of_records = np.maximum(stream_times, earlier)
        origin += [pa.array(of_records, pa.int64()), pa.array(sizes, pa.int64())]
        records = RecordColumns.adopt(
            key, value, timestamps, batch.column("headers"), pa.record_batch(origin, schema=ORIGIN)
        )
        return ReadColumns(records, is_readable, times >= 0, stream_times)


def source_runs(
    batch: pa.RecordBatch, sources: Mapping[str | None, ColumnSource | None]
) -> Iterator[tuple[ColumnSource | None, pa.RecordBatch]]:
    """Yield the rows of a batch in their order, those together that follow each other and go to the same source.

    None is for rows that go one by one. `sources` has one for each topic, and under None that of all others.
    """
    runs: list[tuple[ColumnSource | None, int, int]] = []
    for source, start, end in topic_runs(batch, _by_topic(sources)):
        if source is not None and end - start < source.rows_min:
            source = None
        if source is None and runs and runs[-1][0] is None:
            start = runs.pop()[1]
        runs.append((source, start, end))
    return ((source, batch.slice(start, end - start)) for source, start, end in runs)


def are_cut_short(
    topology: Topology, recorded: RecordedPunctuations, first: Callable[[], pa.RecordBatch | None]
) -> bool:
    """Return whether columns would be so short that nodes that take either way are faster with single records.

    They are where sources alternate, or punctuators by stream time that earlier batches `recorded` run often. `first`
    returns the first records of a batch, None if it has none; it is only called where the answer depends on them.
    """
    intervals_ms = stream_time_intervals_ms(recorded)
    if not topology.has_nodes_either_way or (len(topology.sources) < 2 and not intervals_ms):
        return False
    batch = first()
    if batch is None:
        return False
    sources = {topic: each.name for each in topology.sources.values() for topic in each.topics or (None,)}
    runs = sum(1 for _ in topic_runs(batch, _by_topic(sources)))
    span_ms = int(np.ptp(batch.column("timestamp_ms").to_numpy()))
    runs += sum(span_ms // interval_ms for interval_ms in intervals_ms)
    return runs > 1 and batch.num_rows < runs * _ROWS_MIN


def _by_topic(sources: Mapping[str | None, T]) -> Callable[[str], T | None]:
    """Return what gives the source of a topic; under None is that of all others."""
    return lambda topic: sources.get(topic, sources.get(None))


def topic_runs(batch: pa.RecordBatch, of: Callable[[str], T]) -> Iterator[tuple[T, int, int]]:
    """Yield start and end of the runs of rows whose topics have the same value of `of`, in order, with that value."""
    if not batch.num_rows:
        return
    topics = batch.column("topic")
    of_topic = [of(topic) for topic in topics.dictionary.to_pylist()]
    number_of = {id(each): number for number, each in enumerate(of_topic)}
    numbers = np.array([number_of[id(each)] for each in of_topic])[topics.indices.to_numpy()]
    starts = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist()]
    for start, end in zip(starts, [*starts[1:], batch.num_rows], strict=True):
        yield of_topic[numbers[start]], start, end


def processor_batches(name: str, processor: BatchProcessor, context: TaskRecordContext) -> BatchReceiver:
    """Return a function that passes columns to a batch processor, while no record is the current one."""
    process = locate_failures(name, processor.process_batch, context)

    def receive(records: RecordColumns) -> None:
        with context.in_batch(_describe(records)):
            process(records)

    return receive


def one_by_one(receive: Receiver, context: TaskRecordContext) -> BatchReceiver:
    """Return a function that passes each row, as the current record, to a node that takes records."""

    def receive_rows(records: RecordColumns) -> None:
        keys, values = records.key.to_pylist(), records.value.to_pylist()
        with closing(context.rows(records)) as rows:
            for row in rows:
                receive(Record.adopt(keys[row], values[row], context.timestamp_ms, context.headers))

    return receive_rows


def as_columns(name: str, receive: BatchReceiver, context: TaskRecordContext) -> Receiver:
    """Return a function that passes a single record to a node that takes columns."""

    def receive_record(record: Record[Any, Any]) -> None:
        columns = (_column_of_one(name, "key", record.key), _column_of_one(name, "value", record.value))
        times, headers = pa.array([record.timestamp_ms], pa.int64()), pa.array([record._headers.to_bytes()])
        receive(RecordColumns.adopt(*columns, times, headers, context.origin()))

    return receive_record


def sink_batches(
    node: SinkNode, send: SendBatch, receive: Receiver, context: TaskRecordContext, *, is_by_rows: bool = False
) -> BatchReceiver:
    """Return a function that sends columns to the sink's topic.

    Rows go to `receive` one by one if `is_by_rows`, or if a function chooses the topic of each record.
    """
    by_rows = one_by_one(receive, context)
    topic = node.topic
    if not isinstance(topic, str) or is_by_rows:
        return by_rows
    topics = pa.array([topic], pa.string())

    def receive_batch(records: RecordColumns) -> None:
        key_columns = _columns_to_write(node.key_serde, records.key.type)
        value_columns = _columns_to_write(node.value_serde, records.value.type)
        if key_columns is None or value_columns is None:
            return by_rows(records)
        try:
            key, value = key_columns.serialize(records.key), value_columns.serialize(records.value)
        except SerializationError:
            return by_rows(records)
        codes = pa.array(np.zeros(len(records), np.int32))
        columns = [pa.DictionaryArray.from_arrays(codes, topics), records.timestamp_ms, key, value, records.headers]
        send(pa.record_batch(columns, schema=SINK_COLUMNS), records.origin)
        return None

    return receive_batch


def _deserialized(serde: Serde[Any], columns: ColumnSerde, data: pa.BinaryArray) -> tuple[pa.Array, Flags]:
    """Return the deserialized column, and which rows could be read; the others are null."""
    try:
        return columns.deserialize(data), np.ones(len(data), np.bool_)
    except DeserializationError:
        is_readable = np.array([_is_readable(serde, item) for item in data.to_pylist()], np.bool_)
        kept = pc.if_else(pa.array(is_readable), data, pa.scalar(None, pa.binary()))
        return columns.deserialize(kept), is_readable


def _is_readable(serde: Serde[Any], data: bytes | None) -> bool:
    try:
        if data is not None:
            serde.deserialize(data)
    except DeserializationError:
        return False
    return True


def _columns_to_write(serde: Serde[Any] | None, type_: pa.DataType) -> ColumnSerde | None:
    """Return how a sink writes a column, None if only row by row. Without a serde, the type decides."""
    if serde is not None:
        return serde.columns
    if pa.types.is_binary(type_) or pa.types.is_null(type_):
        return BYTES_COLUMNS
    if pa.types.is_string(type_):
        return STRING_COLUMNS
    if pa.types.is_integer(type_):
        return INT64_COLUMNS
    return DOUBLE_COLUMNS if pa.types.is_floating(type_) else None


def _column_of_one(node: str, what: str, item: object) -> pa.Array:
    if isinstance(item, (dict, list)):
        return json_column([item])
    type_ = pa.null() if item is None else _TYPES.get(type(item))
    if type_ is None:
        raise TypeError(
            f"batch processor {node!r} received a record whose {what} is of type {type(item).__name__}: a column "
            "can hold bytes, str, int, float, bool, dict or list"
        )
    return pa.array([item], type_)


def _describe(records: RecordColumns) -> str:
    doing = f"in process_batch() of {len(records)} record{'s' * (len(records) != 1)}"
    if records.origin is None:
        return doing
    topic, partition, offset = (column[0].as_py() for column in records.origin.columns[:3])
    return f"{doing}, the first of them {record_place(topic, partition, offset)}"
