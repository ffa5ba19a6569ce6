"""Record v2: one record inside a batch of Kafka's message format v2, the first with headers.

    record  := size:varint body:u8[size]
    body    := attributes:i8 timestamp_delta:varlong offset_delta:varint
               key_size:varint key:u8[key_size] value_size:varint value:u8[value_size]
               header_count:varint header[header_count]
    header  := key_size:varint key:u8[key_size] value_size:varint value:u8[value_size]

A key or value size of -1 is a null, 0 an empty one; header keys are UTF-8 and never null. The deltas count from the
batch that holds the record: `BatchBase`. Kafka writes attributes of 0: no bit of them has a meaning yet.
Source: KIP-82, "Wire protocol change"; Kafka's DefaultRecord.

As in Kafka, any negative size of a key or value reads as null, malformed UTF-8 is replaced, and `body` must end where
its last header does.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.records.header_bytes import MIN_HEADER_SIZE, decode_key, encode_headers
from statestore.format.varint import (
    INT64_MAX,
    INT64_MIN,
    decode_varint,
    decode_varlong,
    encode_varint,
    encode_varlong,
    take_bytes,
)

NO_SEQUENCE: Final = -1  # the sequence of a record whose producer is not idempotent

_NULL_SIZE: Final = encode_varint(-1)
_NO_HEADERS: Final = encode_varint(0)
_SEQUENCE_MASK: Final = 0x7FFFFFFF


class RecordV2(NamedTuple):
    """A record as it stands in its batch. Key and value may be None; the headers are in order and may repeat keys."""

    timestamp_delta: int = 0
    """Milliseconds after the batch's base timestamp, a signed 64-bit integer."""
    offset_delta: int = 0
    """Records after the batch's base offset, a signed 32-bit integer."""
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    attributes: int = 0
    """A signed 8-bit integer."""


class BatchBase(NamedTuple):
    """What a batch says once for all its records."""

    offset: int = 0
    timestamp_ms: int = 0
    """Of the first record, in milliseconds since the epoch."""
    sequence: int = NO_SEQUENCE
    """Of the first record; negative if the producer is not idempotent."""
    log_append_time_ms: int | None = None
    """Stands for the timestamps of all records; None where records keep their own."""


class RecordPosition(NamedTuple):
    """Where and when a record is, its batch considered."""

    offset: int
    timestamp_ms: int
    sequence: int


def position_of(record: RecordV2, base: BatchBase) -> RecordPosition:
    """Return offset, timestamp and sequence of a record of the batch; sequences start again at 0 after 2^31 - 1.

    Raises FormatError if offset or timestamp do not fit into 64 bits, where Kafka goes on at the other end.
    """
    offset = base.offset + record.offset_delta
    timestamp_ms = base.timestamp_ms + record.timestamp_delta
    if base.log_append_time_ms is not None:
        timestamp_ms = base.log_append_time_ms
    for what, number in (("record offset", offset), ("record timestamp", timestamp_ms)):
        if not INT64_MIN <= number <= INT64_MAX:
            raise FormatError(what, f"{number} does not fit into 64 bits")
    sequence = NO_SEQUENCE if base.sequence < 0 else (base.sequence + record.offset_delta) & _SEQUENCE_MASK
    return RecordPosition(offset, timestamp_ms, sequence)


def encode_record(record: RecordV2) -> bytes:
    """Return the record's bytes, size first.

    Raises TypeError if a header key is not a str, or a key or value neither bytes nor None; ValueError if a number does
    not fit into its field, a header key holds a lone surrogate (Kafka writes a record that nobody can read), or the
    record exceeds 2^31 - 1 bytes.
    """
    if not -128 <= record.attributes <= 127:
        raise ValueError(f"attributes are a signed 8-bit integer, got {record.attributes}")
    body = b"".join(
        (
            (record.attributes & 0xFF).to_bytes(1, "big"),
            encode_varlong(record.timestamp_delta),
            encode_varint(record.offset_delta),
            *_sized(record.key),
            *_sized(record.value),
            encode_headers(record.headers) or _NO_HEADERS,
        )
    )
    return encode_varint(len(body)) + body


def _sized(data: bytes | None) -> tuple[bytes, bytes]:
    if data is None:
        return _NULL_SIZE, b""
    if not isinstance(data, bytes):
        raise TypeError(f"a record's key and value must be bytes or None, got {type(data).__name__}")
    return encode_varint(len(data)), data


def decode_record(data: bytes, position: int = 0) -> tuple[RecordV2, int]:
    """Return the record at `position` (0 or more) of `data`, and the position after it.

    Raises TruncatedError, NegativeLengthError, VarintError or FormatError where `data` does not follow the layout.
    """
    size, start = decode_varint(data, position, "record size")
    if size < 0:
        raise NegativeLengthError("record", length=size)
    # Cut out, so that no length inside can lead into the next record.
    body, end = take_bytes(data, start, size, "record")
    return _decode_body(body), end


def _decode_body(body: bytes) -> RecordV2:
    if not body:
        raise TruncatedError("record attributes", wanted=1, got=0)
    attributes = body[0] - 256 if body[0] > 127 else body[0]
    timestamp_delta, position = decode_varlong(body, 1, "record timestamp delta")
    offset_delta, position = decode_varint(body, position, "record offset delta")
    key, position = _read_nullable(body, position, "record key")
    value, position = _read_nullable(body, position, "record value")
    headers, position = _read_headers(body, position)
    if position != len(body):
        raise FormatError("record", f"has {len(body) - position} bytes behind its last header")
    return RecordV2(timestamp_delta, offset_delta, key, value, headers, attributes)


def _read_headers(body: bytes, position: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = decode_varint(body, position, "header count")
    if count < 0:
        raise NegativeLengthError("headers", length=count)
    if count * MIN_HEADER_SIZE > len(body) - position:
        raise TruncatedError("headers", wanted=count * MIN_HEADER_SIZE, got=len(body) - position)
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        size, position = decode_varint(body, position, "header key size")
        if size < 0:
            raise NegativeLengthError("header key", length=size)
        key, position = take_bytes(body, position, size, "header key")
        value, position = _read_nullable(body, position, "header value")
        headers.append((decode_key(key), value))
    return tuple(headers), position


def _read_nullable(body: bytes, position: int, what: str) -> tuple[bytes | None, int]:
    size, position = decode_varint(body, position, f"{what} size")
    return (None, position) if size < 0 else take_bytes(body, position, size, what)
