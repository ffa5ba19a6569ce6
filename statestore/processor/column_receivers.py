"""How each kind of node handles records in columns, and how columns and single records become each other.

Rows that columns can't handle exactly as the scalar code does go through the scalar code: so both do the same, errors
included.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.errors import SerializationError
from statestore.errors.readable import record_place
from statestore.format.json_serde import json_column
from statestore.format.serde import Serde
from statestore.format.serde_columns import BYTES_COLUMNS, DOUBLE_COLUMNS, INT64_COLUMNS, STRING_COLUMNS, ColumnSerde
from statestore.headers.record_columns import RecordColumns
from statestore.headers.topic_columns import SINK_COLUMNS
from statestore.interception.task_passages import SendBatch
from statestore.processor.context import BatchReceiver, Receiver, TaskRecordContext
from statestore.processor.nodes import SinkNode
from statestore.processor.processor import BatchProcessor
from statestore.processor.receivers import locate_failures
from statestore.processor.record import Record

_TYPES = {bytes: pa.binary(), str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


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
