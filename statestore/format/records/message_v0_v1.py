"""Messages v0 and v1: one record in Kafka's message formats from before headers.

    entry      := offset:i64_be size:i32_be message:u8[size]
    message    := crc:u32_be checked
    checked    := magic:i8 attributes:i8 [timestamp_ms:i64_be, if magic is 1]
                  key_size:i32_be key:u8[key_size] value_size:i32_be value:u8[value_size]

`crc` is the CRC-32 of `checked`. A size of -1 is a null. Bits 0 to 2 of the attributes name a compression (0: none;
others are refused, because their value is a set of entries), bit 3 says that the timestamp is the broker's (v1 only).
Source: Kafka's LegacyRecord; KIP-32 for v1.

As in Kafka, any negative size reads as null. Unlike Kafka, bytes behind the value are refused.
"""

from __future__ import annotations

import struct
import zlib
from typing import Final, NamedTuple

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.varint import take_bytes

NO_TIMESTAMP: Final = -1  # the timestamp of a message that has none, as all of v0

_ENTRY: Final = struct.Struct(">qi")
_CRC: Final = struct.Struct(">I")
_HEAD: Final = struct.Struct(">bb")
_TIMESTAMP: Final = struct.Struct(">q")
_SIZE: Final = struct.Struct(">i")
_COMPRESSION: Final = 0x07
_LOG_APPEND_TIME: Final = 0x08

SIZE_FIELD_BYTES: Final = _SIZE.size  # bytes of each length field, whatever the length
OVERHEAD_BYTES: Final = {
    0: _ENTRY.size + _CRC.size + _HEAD.size + 2 * _SIZE.size,
    1: _ENTRY.size + _CRC.size + _HEAD.size + _TIMESTAMP.size + 2 * _SIZE.size,
}
"""Bytes of an entry whose message has neither key nor value, by magic."""


class MessageV0V1(NamedTuple):
    """A message of format v0 or v1, and its offset. Key and value may be None."""

    magic: int
    """0 or 1."""
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int = NO_TIMESTAMP
    """Milliseconds since the epoch; NO_TIMESTAMP if there is none."""
    is_log_append_time: bool = False
    """Whether the broker gave the timestamp."""


def encode_message(message: MessageV0V1) -> bytes:
    """Return the message as an entry.

    Raises ValueError if the magic is neither 0 nor 1, a v0 message has a timestamp, a timestamp is negative and not
    NO_TIMESTAMP, or a number does not fit into its field; TypeError if key or value are neither bytes nor None.
    """
    if message.magic not in (0, 1):
        raise ValueError(f"the magic of a message without headers is 0 or 1, got {message.magic}")
    if message.timestamp_ms < NO_TIMESTAMP:
        raise ValueError(f"a timestamp must not be negative, got {message.timestamp_ms}")
    if message.magic == 0 and (message.timestamp_ms != NO_TIMESTAMP or message.is_log_append_time):
        raise ValueError(f"a message v0 has no timestamp, got {message.timestamp_ms}")
    try:
        checked = b"".join(
            (
                _HEAD.pack(message.magic, _LOG_APPEND_TIME if message.is_log_append_time else 0),
                _TIMESTAMP.pack(message.timestamp_ms) if message.magic else b"",
                *_sized(message.key),
                *_sized(message.value),
            )
        )
        return _ENTRY.pack(message.offset, _CRC.size + len(checked)) + _CRC.pack(zlib.crc32(checked)) + checked
    except struct.error as cause:
        raise ValueError(f"a message v{message.magic} can't hold its fields: {cause}") from cause


def _sized(data: bytes | None) -> tuple[bytes, bytes]:
    if data is None:
        return _SIZE.pack(-1), b""
    if not isinstance(data, bytes):
        raise TypeError(f"a message's key and value must be bytes or None, got {type(data).__name__}")
    return _SIZE.pack(len(data)), data


def decode_message(data: bytes, position: int = 0) -> tuple[MessageV0V1, int]:
    """Return the message of the entry at `position`, and where the entry ends. Raises FormatError for others."""
    (offset, size), start = _unpack(_ENTRY, data, position, "entry")
    if size < 0:
        raise NegativeLengthError("message", length=size)
    # Cut out, so that no length inside can lead into the next entry.
    body, end = take_bytes(data, start, size, "message")
    return _decode_body(offset, body), end


def _decode_body(offset: int, body: bytes) -> MessageV0V1:
    (crc,), position = _unpack(_CRC, body, 0, "message checksum")
    computed = zlib.crc32(body[position:])
    if crc != computed:
        raise FormatError("message", f"holds the checksum {crc:08x}, but its bytes have {computed:08x}")
    (magic, attributes), position = _unpack(_HEAD, body, position, "message head")
    if magic not in (0, 1):
        raise FormatError("message", f"magic {magic} is not 0 or 1")
    if attributes & _COMPRESSION:
        raise FormatError("message", f"compression {attributes & _COMPRESSION}: its value is a set of messages")
    timestamp_ms = NO_TIMESTAMP
    if magic:
        (timestamp_ms,), position = _unpack(_TIMESTAMP, body, position, "message timestamp")
    key, position = _read_nullable(body, position, "message key")
    value, position = _read_nullable(body, position, "message value")
    if position != len(body):
        raise FormatError("message", f"has {len(body) - position} bytes behind its value")
    # In v0 no bit but those of the compression means anything.
    is_log_append_time = bool(magic and attributes & _LOG_APPEND_TIME)
    return MessageV0V1(magic, offset, key, value, timestamp_ms, is_log_append_time)


def _unpack(layout: struct.Struct, data: bytes, position: int, what: str) -> tuple[tuple[int, ...], int]:
    end = position + layout.size
    if end > len(data):
        raise TruncatedError(what, wanted=layout.size, got=max(len(data) - position, 0))
    return layout.unpack_from(data, position), end


def _read_nullable(body: bytes, position: int, what: str) -> tuple[bytes | None, int]:
    (size,), position = _unpack(_SIZE, body, position, f"{what} size")
    return (None, position) if size < 0 else take_bytes(body, position, size, what)
