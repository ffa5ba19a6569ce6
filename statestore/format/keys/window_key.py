"""The keys of windows and sessions: the record's key, and then when the window or session is.

    window_key  := key:u8[..] window_start_ms:i64_be sequence:i32_be
    session_key := key:u8[..] end_ms:i64_be start_ms:i64_be

The end of a window is not stored: it is the start plus the store's window size. The sequence number tells duplicates
apart; it is 0 unless the store retains them. Start and end both belong to a session. Keys have any length, so the
windows of `k` and of `k 00` interleave in byte order. Source: WindowKeySchema and SessionKeySchema of Kafka Streams.
"""

from __future__ import annotations

import struct
from typing import Final

from statestore.errors import FormatError
from statestore.errors.data import TruncatedError
from statestore.errors.readable import shape_of

WINDOW_SUFFIX_SIZE: Final = 12
SESSION_SUFFIX_SIZE: Final = 16
MAX_TIME_MS: Final = 2**63 - 1
MAX_SEQUENCE: Final = 2**31 - 1

_SUFFIX: Final = struct.Struct(">qi")
_SESSION_SUFFIX: Final = struct.Struct(">qq")


def encode_window_key(key: bytes, start_ms: int, sequence: int = 0) -> bytes:
    """Return the key of a window. Raises ValueError unless time and sequence are 0 to 2^63 - 1, and 2^31 - 1."""
    if start_ms.__class__ is not int or not 0 <= start_ms <= MAX_TIME_MS:
        check_time("window_start_ms", start_ms)
    if not 0 <= sequence <= MAX_SEQUENCE:
        raise ValueError(f"sequence must be 0 to 2^31 - 1, got {sequence!r}")
    return key + _SUFFIX.pack(start_ms, sequence)


def split_window_key(data: bytes) -> tuple[bytes, int, int]:
    """Return key, window start in ms and sequence number. Raises TruncatedError, and FormatError if one is negative."""
    size = len(data) - WINDOW_SUFFIX_SIZE
    if size < 0:
        raise TruncatedError("window key", wanted=WINDOW_SUFFIX_SIZE, got=len(data))
    start_ms, sequence = _SUFFIX.unpack_from(data, size)
    if start_ms < 0 or sequence < 0:
        raise FormatError("window key", f"negative window start {start_ms} or sequence number {sequence}")
    return data[:size], start_ms, sequence


def encode_session_key(key: bytes, start_ms: int, end_ms: int) -> bytes:
    """Return the key of a session. Raises ValueError unless 0 <= `start_ms` <= `end_ms` <= 2^63 - 1."""
    check_time("start_ms", start_ms)
    check_time("end_ms", end_ms)
    if start_ms > end_ms:
        raise ValueError(f"a session must not end before it starts: start_ms {start_ms}, end_ms {end_ms}")
    return key + _SESSION_SUFFIX.pack(end_ms, start_ms)


def split_session_key(data: bytes) -> tuple[bytes, int, int]:
    """Return key, start and end in ms. Raises TruncatedError, and FormatError if they are not a session's."""
    size = len(data) - SESSION_SUFFIX_SIZE
    if size < 0:
        raise TruncatedError("session key", wanted=SESSION_SUFFIX_SIZE, got=len(data))
    end_ms, start_ms = _SESSION_SUFFIX.unpack_from(data, size)
    if not 0 <= start_ms <= end_ms:
        raise FormatError("session key", f"it starts at {start_ms} and ends at {end_ms}")
    return data[:size], start_ms, end_ms


def check_time(parameter: str, time_ms: int) -> None:
    """Raise ValueError unless `time_ms` is an integer from 0 to 2^63 - 1; `parameter` names it."""
    if not isinstance(time_ms, int) or not 0 <= time_ms <= MAX_TIME_MS:
        got = time_ms if isinstance(time_ms, int) else shape_of(time_ms)  # it may be a key in the wrong place
        raise ValueError(f"{parameter} must be an integer from 0 to 2^63 - 1 (milliseconds since 1970), got {got}")
