"""Value, timestamp and headers: the layout of the header-aware stores. Of columns: `stored_columns`.

    value_timestamp_headers := headers_size:varint headers:u8[headers_size] timestamp_ms:i64_be value:u8[..]

The headers are those of `header_bytes`, and nothing here looks into them: they pass from record to store and back as
they came. No headers are the single byte 00. The value is the rest and may be empty. A null value has no bytes at all:
it is None, a delete, and its timestamp and headers are dropped.
Source: KIP-1271; ValueTimestampHeadersSerializer, HeadersBytesStore and Utils of Kafka Streams. Where Kafka's
Utils.raw* make something of malformed bytes, the functions here raise: docs/formats/value-timestamp-headers.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn, TypeAlias, cast

from statestore.errors.data import TruncatedError
from statestore.format.values.value_headers import split_value_headers
from statestore.format.values.value_timestamp import TIMESTAMP_SIZE, UNKNOWN_TIMESTAMP_MS, encode_timestamp
from statestore.format.varint import decode_varint, encode_varint

_NO_HEADERS: Final = encode_varint(0)
_NO_HEADERS_UNKNOWN_TIMESTAMP: Final = _NO_HEADERS + encode_timestamp(UNKNOWN_TIMESTAMP_MS)
_SIZES_KEPT: Final = 1 << 13
_timestamp_at: Final = struct.Struct(">q").unpack_from


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
    """What returns what stands before a value, of its headers and timestamp, by the size of the headers in bytes.

    It raises struct.error for what is no timestamp, or headers of another type: then `encode_value_timestamp_headers`
    knows. Those of small headers are kept.
    """

    def __missing__(self, size_bytes: int) -> PackBeforeValue:
        size = encode_varint(size_bytes)
        pack = cast(PackBeforeValue, partial(struct.Struct(f">{len(size)}s{size_bytes}sq").pack, size))
        if size_bytes < _SIZES_KEPT:
            self[size_bytes] = pack
        return pack


pack_before_value: Final = _PackBeforeValue()
"""For who does it for every record: `pack_before_value[len(header_bytes)](header_bytes, timestamp_ms) + value`."""


def split_value_timestamp_headers(data: bytes) -> tuple[bytes, int, bytes]:
    """Return header bytes, which are not parsed, timestamp in ms and value. Raises FormatError."""
    try:
        unpack, value_at = before_value[data[:2]]
        header_bytes, timestamp_ms = unpack(data)
    except struct.error:
        start, end = _checked_headers_span(data)
        return data[start:end], _timestamp_at(data, end)[0], data[end + TIMESTAMP_SIZE :]
    return header_bytes, timestamp_ms, data[value_at:]


UnpackBeforeValue: TypeAlias = Callable[[bytes], "tuple[bytes, int]"]


class _BeforeValue(dict[bytes, tuple[UnpackBeforeValue, int]]):
    """What returns headers and timestamp of stored bytes, and where their value begins, by their first two bytes.

    It raises struct.error if the headers' size takes more than two bytes, or is none, or the bytes end too early: then
    `split_value_timestamp_headers` knows. As many as there are sizes of two bytes, at most.
    """

    def __missing__(self, start: bytes) -> tuple[UnpackBeforeValue, int]:
        size_bytes = 1 if start[:1] <= b"\x7f" else 2
        if len(start) < 2 or start[0] & 1 or start[size_bytes - 1] > 0x7F:
            return _refuse_size, 0
        layout = struct.Struct(f">{size_bytes}x{decode_varint(start, 0, 'headers size')[0]}sq")
        found = self[start] = cast(UnpackBeforeValue, layout.unpack_from), layout.size
        return found


def _refuse_size(data: bytes) -> NoReturn:
    raise struct.error("the size of the headers is none, or takes more than two bytes")


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
    return None if plain is None else _NO_HEADERS_UNKNOWN_TIMESTAMP + plain


def _checked_headers_span(data: bytes) -> tuple[int, int]:
    header_bytes, behind = split_value_headers(data)
    if len(behind) < TIMESTAMP_SIZE:
        raise TruncatedError("timestamp", wanted=TIMESTAMP_SIZE, got=len(behind))
    end = len(data) - len(behind)
    return end - len(header_bytes), end
