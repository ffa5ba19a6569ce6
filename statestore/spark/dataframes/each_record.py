"""A callback for each record of a streaming DataFrame: KIP-82's single-record consumer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from statestore.errors import InputError
from statestore.headers.records import ConsumerRecord, ProducerRecord, TimestampType

_POSITION = {"partition", "offset"}


def for_each_record(rows: DataFrame, callback: Callable[[Any], None]) -> DataStreamWriter:
    """Return a writer that calls `callback` once a row, on the executors; set a checkpoint and start it.

    Rows of Spark's Kafka source come as ConsumerRecords; rows of `stateful`, which have no partition and offset, as
    ProducerRecords. Keys and values are bytes. At least once: if a task runs again, so does the callback. Raises
    InputError if the DataFrame is not a stream of either.
    """
    missing = {"key", "value", "topic", "timestamp", "headers"} - set(rows.columns)
    if missing or not rows.isStreaming:
        problem = f"lacks {sorted(missing)}" if missing else "is a batch"
        raise InputError(f"for_each_record() needs a stream of Kafka's source or of stateful(); this one {problem}")
    # As a number: Python reads a timestamp in the time zone of the machine.
    timed = rows.withColumn("timestamp", f.unix_millis("timestamp"))
    to_record = _consumer_record if set(rows.columns) >= _POSITION else _producer_record

    def call(row: Row) -> None:
        callback(to_record(row))

    return timed.writeStream.foreach(call)


def _consumer_record(row: Row) -> ConsumerRecord[bytes | None, bytes | None]:
    return ConsumerRecord(
        row.topic,
        row.partition,
        row.offset,
        key=_bytes(row.key),
        value=_bytes(row.value),
        timestamp_ms=row.timestamp,
        timestamp_type=TimestampType.CREATE_TIME,
        headers=_headers(row),
    )


def _producer_record(row: Row) -> ProducerRecord[bytes | None, bytes | None]:
    return ProducerRecord(
        row.topic, key=_bytes(row.key), value=_bytes(row.value), timestamp_ms=row.timestamp, headers=_headers(row)
    )


def _headers(row: Row) -> list[tuple[str, bytes | None]]:
    return [(header.key, _bytes(header.value)) for header in row.headers or ()]


def _bytes(data: bytearray | None) -> bytes | None:
    return None if data is None else bytes(data)
