"""Value and timestamp: the layout of the timestamped stores, without headers.

    value_timestamp := timestamp_ms:i64_be value:u8[..]

The value is the rest and may be empty. A null value has no bytes at all: it is None, a delete.
Source: ValueAndTimestampSerializer and TimestampedBytesStore of Kafka Streams.
"""

from __future__ import annotations

import struct
from typing import Final

from statestore.errors.data import TruncatedError

TIMESTAMP_SIZE: Final = 8
UNKNOWN_TIMESTAMP_MS: Final = -1  # the timestamp of a value that was written without one

_TIMESTAMP: Final = struct.Struct(">q")
_UNKNOWN: Final = _TIMESTAMP.pack(UNKNOWN_TIMESTAMP_MS)


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
