"""The key of a session: the record's key, when the session ends, and when it starts. The end comes first.

    session_key := key:u8[..] end_ms:i64_be start_ms:i64_be

Both ends belong to the session. Source: SessionKeySchema of Kafka Streams.
"""

from __future__ import annotations

import struct
from typing import Final

from statestore.errors import FormatError
from statestore.errors.data import TruncatedError
from statestore.format.keys.window_key import check_time

SESSION_SUFFIX_SIZE: Final = 16

_SUFFIX: Final = struct.Struct(">qq")


def encode_session_key(key: bytes, start_ms: int, end_ms: int) -> bytes:
    """Return the key of a session. Raises ValueError unless 0 <= `start_ms` <= `end_ms` <= 2^63 - 1."""
    check_time("start_ms", start_ms)
    check_time("end_ms", end_ms)
    if start_ms > end_ms:
        raise ValueError(f"a session must not end before it starts: start_ms {start_ms}, end_ms {end_ms}")
    return key + _SUFFIX.pack(end_ms, start_ms)


def split_session_key(data: bytes) -> tuple[bytes, int, int]:
    """Return key, start and end in ms. Raises TruncatedError, and FormatError if they are no session's."""
    size = len(data) - SESSION_SUFFIX_SIZE
    if size < 0:
        raise TruncatedError("session key", wanted=SESSION_SUFFIX_SIZE, got=len(data))
    end_ms, start_ms = _SUFFIX.unpack_from(data, size)
    if not 0 <= start_ms <= end_ms:
        raise FormatError("session key", f"it starts at {start_ms} and ends at {end_ms}")
    return data[:size], start_ms, end_ms
