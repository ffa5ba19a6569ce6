"""Records that wait in a buffer: those of suppressed tables, and of streams that join versioned tables.

    key      := 00 timestamp:i64 key:u8[..] sequence:i32
    buffered := timestamp:i64 offset:i64 topic_size:i32 topic:u8[topic_size] partition:i32
                header_count:i32 { key_size:i32 key:u8[key_size] value_size:i32 value:u8[value_size] }[header_count]
                prior_size:i32 prior:u8[prior_size] old_size:i32 old:u8[old_size] new_size:i32 new:u8[new_size]
                [ buffer_time:i64 ]

All numbers are big-endian. A size of -1 is a null value; an old size of -2 says that `old` is `prior`. The buffer time
follows in changelogs only, and says when the record is due. A header count of -1 is no headers. The key is that of
buffers of streams; suppressed tables have their own.
Source: Kafka Streams' BufferValue, ProcessorRecordContext and TimeFirstWindowKeySchema.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.records.header_bytes import MIN_HEADER_SIZE, encode_headers, parse_headers
from statestore.format.varint import take_bytes

BUFFERED_KEYS: Final = "buffered"  # what is recorded of the keys of a buffer's store. Never rename.
TIMES_SUFFIX: Final = "-times"
"""Behind the name of a suppressed table's store, that of the one beside it in order of time. Never rename."""
LOGGED_HEADERS: Final = encode_headers([("v", b"\x03")])
"""The headers of records in the changelog of a suppressed table; one without is of another version to Kafka Streams."""

_TIME_FIRST: Final = 0
_PLACE: Final = struct.Struct(">Bq")
_WHERE: Final = struct.Struct(">qqi")
_INT: Final = struct.Struct(">i")
_TIME: Final = struct.Struct(">q")
FIXED_BYTES: Final = 28
"""What Kafka counts of a record beside texts and values: two times, an offset and a partition."""
_NULL: Final = -1
SAME_AS_PRIOR: Final = -2  # the size of an old value that is the prior one
_NULL_SIZE: Final = _INT.pack(_NULL)


class BufferedRecord(NamedTuple):
    """A record in a buffer, with where it came from. `header_bytes` is in KIP-1271's encoding."""

    timestamp_ms: int
    new: bytes | None
    header_bytes: bytes = b""
    topic: str = ""
    partition: int = -1
    offset: int = -1
    old: bytes | None = None  # what a suppressed key was before the change that waits
    prior: bytes | None = None  # what was sent on of a suppressed key last, before anything of it waited

    def counted_bytes(self, key: bytes) -> int:
        """Return what Kafka counts for a key with this record, texts by their UTF-16. Raises as `parse_headers`."""
        headers = parse_headers(self.header_bytes) if self.header_bytes else []
        old = None if self.old == self.prior else self.old
        values = (key, self.prior, old, self.new, *(value for _, value in headers))
        texts = (self.topic, *(name for name, _ in headers))
        return FIXED_BYTES + sum(len(value) for value in values if value is not None) + sum(map(utf16_units, texts))


def encode_buffered_key(timestamp_ms: int, key: bytes, sequence: int) -> bytes:
    """Return the key of a record in a buffer: in order of time, then of key, then of arrival."""
    return _PLACE.pack(_TIME_FIRST, timestamp_ms) + key + _INT.pack(sequence)


def decode_buffered_key(data: bytes) -> tuple[int, bytes, int]:
    """Return timestamp, key and sequence. Raises TruncatedError or FormatError for other bytes."""
    if len(data) < _PLACE.size + _INT.size:
        raise TruncatedError("buffered key", wanted=_PLACE.size + _INT.size, got=len(data))
    prefix, timestamp_ms = _PLACE.unpack_from(data)
    if prefix != _TIME_FIRST:
        raise FormatError("buffered key", f"begins with {prefix}, not {_TIME_FIRST}")
    (sequence,) = _INT.unpack(data[-_INT.size :])
    return timestamp_ms, data[_PLACE.size : -_INT.size], sequence


def buffered_key(data: bytes) -> bytes:
    """Return the key of the record that a key of a buffer is of. Raises likewise."""
    return decode_buffered_key(data)[1]


def encode_buffered_record(record: BufferedRecord, *, buffer_time_ms: int | None = None) -> bytes:
    """Return the bytes of a record, with `buffer_time_ms` those of a changelog. Raises as `parse_headers`."""
    topic = record.topic.encode()
    headers = parse_headers(record.header_bytes) if record.header_bytes else []
    parts = [
        _WHERE.pack(record.timestamp_ms, record.offset, len(topic)),
        topic,
        _INT.pack(record.partition),
        _INT.pack(len(headers)),
    ]
    for key, value in headers:
        parts += _sized(key.encode())
        parts += _sized(value)
    parts += _sized(record.prior)
    if record.old is not None and record.old == record.prior:
        parts.append(_INT.pack(SAME_AS_PRIOR))
    else:
        parts += _sized(record.old)
    parts += _sized(record.new)
    if buffer_time_ms is not None:
        parts.append(_TIME.pack(buffer_time_ms))
    return b"".join(parts)


def decode_buffered_record(data: bytes) -> BufferedRecord:
    """Return the record of these bytes. Raises TruncatedError, NegativeLengthError or FormatError for others."""
    return _decode(_Fields(data))


def decode_logged_record(data: bytes) -> tuple[BufferedRecord, int]:
    """Return the record of a changelog, and when it is due, in milliseconds since the epoch. Raises likewise."""
    fields = _Fields(data)
    record = _decode(fields)
    (time_ms,) = _TIME.unpack(fields.take("buffer time", _TIME.size))
    if fields.left:
        raise FormatError("buffered record", f"{fields.left} bytes follow it")
    return record, int(time_ms)


def _decode(fields: _Fields) -> BufferedRecord:
    timestamp_ms, offset, topic_size = _WHERE.unpack(fields.take("buffered record", _WHERE.size))
    if topic_size < 0:
        raise NegativeLengthError("topic", length=topic_size)
    topic = _text("topic", fields.take("topic", topic_size))
    partition, count = fields.number("partition"), fields.number("header count")
    if count * MIN_HEADER_SIZE > fields.left:
        raise TruncatedError("headers", wanted=count * MIN_HEADER_SIZE, got=fields.left)
    headers = []
    for _ in range(count):
        key = fields.value("header key")
        if key is None:
            raise NegativeLengthError("header key", length=_NULL)
        headers.append((_text("header key", key), fields.value("header value")))
    prior = fields.value("prior value")
    old = fields.value("old value", prior)
    new = fields.value("new value")
    return BufferedRecord(timestamp_ms, new, encode_headers(headers), topic, partition, offset, old, prior)


class _Fields:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def take(self, what: str, size: int) -> bytes:
        taken, self._at = take_bytes(self._data, self._at, size, what)
        return taken

    def number(self, what: str) -> int:
        number: int = _INT.unpack(self.take(what, _INT.size))[0]
        return number

    def value(self, what: str, prior: bytes | None = None) -> bytes | None:
        size = self.number(what)
        if size == SAME_AS_PRIOR and what == "old value":
            return prior
        if size < _NULL:
            raise NegativeLengthError(what, length=size)
        return None if size == _NULL else self.take(what, size)


def _sized(value: bytes | None) -> tuple[bytes, ...]:
    return (_NULL_SIZE,) if value is None else (_INT.pack(len(value)), value)


def _text(what: str, data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as cause:
        raise FormatError(what, f"is not UTF-8: {cause}") from cause


def utf16_units(text: str) -> int:
    """Return the length of a text in Java."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
