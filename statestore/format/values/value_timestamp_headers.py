"""The layouts of a store's values with timestamps, headers or both. Of columns: `stored_columns`.

    value_timestamp         := timestamp_ms:i64_be value:u8[..]
    value_headers           := headers_size:varint headers:u8[headers_size] value:u8[..]
    value_timestamp_headers := headers_size:varint headers:u8[headers_size] timestamp_ms:i64_be value:u8[..]

Timestamped stores hold the first, sessions and versions with headers the second, other header-aware stores the third.
The headers are those of `header_bytes`, and nothing here looks into them: they pass from record to store and back as
they came. No headers are the single byte 00. The value is the rest and may be empty. A null value has no bytes at all:
it is None, a delete, and its timestamp and headers are dropped.

Source: KIP-1271; of Kafka Streams ValueAndTimestampSerializer, AggregationWithHeadersSerializer, TimestampedBytesStore,
ValueTimestampHeadersSerializer, HeadersBytesStore and Utils. Where Kafka's Utils.raw* make something of malformed
bytes, the functions here raise: docs/formats/value-timestamp-headers.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn, TypeAlias, cast

from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.varint import decode_varint, encode_varint

TIMESTAMP_SIZE: Final = 8
UNKNOWN_TIMESTAMP_MS: Final = -1  # the timestamp of a value that was written without one

_TIMESTAMP: Final = struct.Struct(">q")
_UNKNOWN: Final = _TIMESTAMP.pack(UNKNOWN_TIMESTAMP_MS)
_NO_HEADERS: Final = encode_varint(0)
_NO_HEADERS_UNKNOWN: Final = _NO_HEADERS + _UNKNOWN
_SIZES_KEPT: Final = 1 << 13


def encode_timestamp(timestamp_ms: int) -> bytes:
    """Return a timestamp's eight bytes. Raises ValueError if it is not a signed 64-bit integer."""
    try:
        return _TIMESTAMP.pack(timestamp_ms)
    except struct.error as cause:
        raise ValueError(f"timestamp_ms must be a signed 64-bit integer, got {timestamp_ms!r}") from cause


def encode_value_timestamp(value: bytes | None, timestamp_ms: int) -> bytes | None:
    """Return the value behind its timestamp in ms; None for None. Raises ValueError beyond 64 bits."""
    return None if value is None else encode_timestamp(timestamp_ms) + value


def split_value_timestamp(data: bytes) -> tuple[int, bytes]:
    """Return the timestamp in ms and the value. Raises TruncatedError if `data` is too short for a timestamp."""
    try:
        (timestamp_ms,) = _TIMESTAMP.unpack_from(data)
    except struct.error:
        raise TruncatedError("timestamp", wanted=TIMESTAMP_SIZE, got=len(data)) from None
    return timestamp_ms, data[TIMESTAMP_SIZE:]


def convert_to_timestamped_format(plain: bytes | None) -> bytes | None:
    """Return a plain value in this layout, with the timestamp -1; None for None. Kafka's TimestampedBytesStore."""
    return None if plain is None else _UNKNOWN + plain


def encode_value_headers(value: bytes | None, header_bytes: bytes) -> bytes | None:
    """Return the value behind its headers; None for None. Raises ValueError for headers beyond 2^31 - 1 bytes."""
    return None if value is None else b"".join((encode_varint(len(header_bytes)), header_bytes, value))


def split_value_headers(data: bytes) -> tuple[bytes, bytes]:
    """Return header bytes, which are not parsed, and value. Raises FormatError."""
    size, start = decode_varint(data, 0, "headers size")
    if size < 0:
        raise NegativeLengthError("headers", length=size)
    end = start + size
    if end > len(data):
        raise TruncatedError("headers", wanted=size, got=len(data) - start)
    return data[start:end], data[end:]


def convert_plain_to_value_headers(plain: bytes | None) -> bytes | None:
    """Return a plain value in this layout, without headers; None for None. Kafka's HeadersBytesStore."""
    return None if plain is None else _NO_HEADERS + plain


def encode_value_timestamp_headers(value: bytes | None, timestamp_ms: int, header_bytes: bytes) -> bytes | None:
    """Return the value behind headers and timestamp in ms; None for None. Raises ValueError for what is too large."""
    if value is None:
        return None
    try:
        return pack_before_value[len(header_bytes)](header_bytes, timestamp_ms) + value
    except struct.error:
        return b"".join((encode_varint(len(header_bytes)), header_bytes, encode_timestamp(timestamp_ms), value))


PackBeforeValue: TypeAlias = Callable[[bytes, int], bytes]


class _PackBeforeValue(dict[int, PackBeforeValue]):
    """Functions that pack headers and timestamp into the bytes before a value, by the size of the headers in bytes.

    They raise struct.error for a wrong timestamp, and for headers that are not bytes: `encode_value_timestamp_headers`
    then says what is wrong. Those for small headers are kept.
    """

    def __missing__(self, size_bytes: int) -> PackBeforeValue:
        size = encode_varint(size_bytes)
        pack = cast(PackBeforeValue, partial(struct.Struct(f">{len(size)}s{size_bytes}sq").pack, size))
        if size_bytes < _SIZES_KEPT:
            self[size_bytes] = pack
        return pack


pack_before_value: Final = _PackBeforeValue()
"""For loops over many records: `pack_before_value[len(header_bytes)](header_bytes, timestamp_ms) + value`."""


def split_value_timestamp_headers(data: bytes) -> tuple[bytes, int, bytes]:
    """Return header bytes, which are not parsed, timestamp in ms and value. Raises FormatError."""
    try:
        unpack, value_at = before_value[data[:2]]
        header_bytes, timestamp_ms = unpack(data)
    except struct.error:
        start, end = _checked_headers_span(data)
        return data[start:end], _TIMESTAMP.unpack_from(data, end)[0], data[end + TIMESTAMP_SIZE :]
    return header_bytes, timestamp_ms, data[value_at:]


UnpackBeforeValue: TypeAlias = Callable[[bytes], "tuple[bytes, int]"]


class _BeforeValue(dict[bytes, tuple[UnpackBeforeValue, int]]):
    """Functions that unpack headers and timestamp, and where the value begins, by the first two of the stored bytes.

    They raise struct.error if the headers' size is negative or takes more than two bytes, and if the bytes end too
    early: `split_value_timestamp_headers` then finds out. There is at most one for each size of two bytes.
    """

    def __missing__(self, start: bytes) -> tuple[UnpackBeforeValue, int]:
        size_bytes = 1 if start[:1] <= b"\x7f" else 2
        if len(start) < 2 or start[0] & 1 or start[size_bytes - 1] > 0x7F:
            return _refuse_size, 0
        layout = struct.Struct(f">{size_bytes}x{decode_varint(start, 0, 'headers size')[0]}sq")
        found = self[start] = cast(UnpackBeforeValue, layout.unpack_from), layout.size
        return found


def _refuse_size(data: bytes) -> NoReturn:
    raise struct.error("the size of the headers is negative, or takes more than two bytes")


before_value: Final = _BeforeValue()  # for loops over many values: `unpack, value_at = before_value[stored[:2]]`


def plain_value(data: bytes) -> bytes:
    """Return the value alone; raises as `split_value_timestamp_headers` does. Kafka's Utils.rawPlainValue."""
    # Empty, cut short, or with more headers than two bytes can count: looked at the long way.
    return data[_value_positions[data[:2]] :] or split_value_timestamp_headers(data)[2]


class _ValuePositions(dict[bytes, int]):
    """Where a value begins, by the first two bytes of what is stored; far beyond its end if they don't say."""

    def __missing__(self, start: bytes) -> int:
        position = 1 << 62
        if len(start) == 2 and not start[0] & 1:
            if start[0] <= 0x7F:
                position = 1 + (start[0] >> 1) + TIMESTAMP_SIZE
            elif start[1] <= 0x7F:
                position = 2 + ((start[0] & 0x7F | start[1] << 7) >> 1) + TIMESTAMP_SIZE
        self[start] = position
        return position


_value_positions: Final = _ValuePositions()


def plain_values(pairs: Sequence[tuple[bytes, bytes]]) -> list[bytes]:
    """Do `plain_value` of the second of each pair, in a fourth of the time."""
    positions = _value_positions
    values = [stored[positions[stored[:2]] :] for _, stored in pairs]
    if b"" in values:
        # Empty, cut short, or with more headers than two bytes can count: looked at one by one.
        return [plain_value(stored) for _, stored in pairs]
    return values


def timestamped_value(data: bytes) -> bytes:
    """Return timestamp and value, a `value_timestamp`. Raises FormatError. Kafka's Utils.rawTimestampedValue."""
    value_at = _value_positions[data[:2]]
    start = value_at - TIMESTAMP_SIZE if value_at <= len(data) else _checked_headers_span(data)[1]
    return data[start:]


def convert_to_header_format(timestamped: bytes | None) -> bytes | None:
    """Return `value_timestamp`, not looked at, in this layout; None for None. Kafka's HeadersBytesStore."""
    return None if timestamped is None else _NO_HEADERS + timestamped


def convert_from_plain_to_header_format(plain: bytes | None) -> bytes | None:
    """Return a plain value in this layout, without headers and with the timestamp -1; None for None."""
    return None if plain is None else _NO_HEADERS_UNKNOWN + plain


def _checked_headers_span(data: bytes) -> tuple[int, int]:
    header_bytes, behind = split_value_headers(data)
    if len(behind) < TIMESTAMP_SIZE:
        raise TruncatedError("timestamp", wanted=TIMESTAMP_SIZE, got=len(behind))
    end = len(data) - len(behind)
    return end - len(header_bytes), end
