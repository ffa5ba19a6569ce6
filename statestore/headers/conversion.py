"""Between records and the message formats: v2, which has headers, and v0 and v1, which have none.

Up: a message of an old producer becomes a record with empty headers. Down: a record for an old consumer loses its
headers, and the caller learns how many there were.
Source: KIP-82, "Compatibility, Deprecation, and Migration Plan"; Kafka's RecordsUtil.downConvert.
"""

from __future__ import annotations

from typing import NamedTuple

from statestore.format.records.message_v0_v1 import MessageV0V1
from statestore.format.records.record_v2 import BatchBase, RecordV2, position_of
from statestore.headers.records import NO_TIMESTAMP, ConsumerRecord, ProducerRecord, TimestampType


class DownConverted(NamedTuple):
    """A message without headers, and what it cost."""

    message: MessageV0V1
    dropped_headers: int
    """How many headers the record had."""


def to_record_v2(
    record: ProducerRecord[bytes | None, bytes | None], *, base_timestamp_ms: int, offset_delta: int = 0
) -> RecordV2:
    """Return a serialised record as it stands in a batch of this base timestamp, as the batch's `offset_delta`-th.

    Raises ValueError if it has no timestamp: give it one first.
    """
    if record.timestamp_ms is None:
        raise ValueError(f"the record for topic {record.topic!r} has no timestamp: give it one before it is written")
    return RecordV2(
        timestamp_delta=record.timestamp_ms - base_timestamp_ms,
        offset_delta=offset_delta,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers),
    )


def from_record_v2(
    record: RecordV2, topic: str, partition: int, base: BatchBase
) -> ConsumerRecord[bytes | None, bytes | None]:
    """Return a record of a batch as a consumer gets it, with its headers.

    Raises FormatError if offset or timestamp do not fit into 64 bits, ValueError if the offset is negative.
    """
    position = position_of(record, base)
    return ConsumerRecord(
        topic,
        partition,
        position.offset,
        key=record.key,
        value=record.value,
        timestamp_ms=position.timestamp_ms,
        timestamp_type=_timestamp_type(base.log_append_time_ms is not None),
        headers=record.headers,
    )


def down_convert(record: ConsumerRecord[bytes | None, bytes | None], magic: int) -> DownConverted:
    """Return a record as a message of format v0 or v1 (`magic`), without its headers; in v0 without its timestamp, too.

    Raises ValueError if magic is neither 0 nor 1.
    """
    if magic not in (0, 1):
        raise ValueError(f"only formats v0 and v1 have no headers to convert to, got {magic}")
    message = MessageV0V1(
        magic,
        record.offset,
        record.key,
        record.value,
        timestamp_ms=record.timestamp_ms if magic else NO_TIMESTAMP,
        is_log_append_time=bool(magic) and record.timestamp_type is TimestampType.LOG_APPEND_TIME,
    )
    return DownConverted(message, len(record.headers))


def up_convert(message: MessageV0V1, topic: str, partition: int) -> ConsumerRecord[bytes | None, bytes | None]:
    """Return a message of format v0 or v1 as a consumer gets it: its headers are empty.

    Raises ValueError if the offset is negative.
    """
    return ConsumerRecord(
        topic,
        partition,
        message.offset,
        key=message.key,
        value=message.value,
        timestamp_ms=message.timestamp_ms,
        timestamp_type=(
            _timestamp_type(message.is_log_append_time) if message.magic else TimestampType.NO_TIMESTAMP_TYPE
        ),
    )


def _timestamp_type(is_log_append_time: bool) -> TimestampType:
    return TimestampType.LOG_APPEND_TIME if is_log_append_time else TimestampType.CREATE_TIME
