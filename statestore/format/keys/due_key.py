"""Keys of the stores that say when something is due: an entry expires, a window ends, or a timer fires.

    "t" time_ms:i64_be  key                          both, in order of time
    "k" key                        -> time_ms:i64_be  an expiry by key: there is one of each
    "k" key_size:u32_be  key  time_ms:i64_be          a timer by key: there may be many
    "t" end_ms:i64_be  start_ms:i64_be  key           a window, in order of time

All other values are empty. Times are never negative, so that their bytes are in their order.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from statestore.errors import FormatError
from statestore.format.keys.entry_key import key_at_front, sized
from statestore.format.keys.window_key import MAX_TIME_MS

EXPIRY_SUFFIX: Final = "-expiry"
"""What follows the name of a store in the name of the one that says when its entries expire."""
ENDS_SUFFIX: Final = "-ends"
"""Likewise of a store of windows, in that of the one that says when they end. Never rename."""
TIMER_KEYS: Final = "timers"  # what is recorded of the keys of a store of timers. Never rename.
WINDOW_END_KEYS: Final = "window ends"  # what is recorded of the keys of a store of when windows end. Never rename.

BY_TIME: Final = b"t"  # what all places in order of time begin with
_BEHIND_TIMES: Final = b"u"
_BY_KEY: Final = b"k"
_BEHIND_KEYS: Final = b"l"
_TIME: Final = struct.Struct(">q")
_TIME_END: Final = len(BY_TIME) + _TIME.size


def time_bytes(time_ms: int) -> bytes:
    """Return a time as it is stored."""
    return _TIME.pack(time_ms)


def time_of(data: bytes) -> int:
    """Return the time that is stored, in milliseconds since the epoch."""
    (time_ms,) = _TIME.unpack(data)
    return int(time_ms)


def due_key(time_ms: int, key: bytes) -> bytes:
    """Return the place, in order of time, which says that something of a key is due."""
    return BY_TIME + time_bytes(time_ms) + key


def key_behind_time(place: bytes) -> bytes:
    """Return the key that `due_key` was given."""
    return place[_TIME_END:]


def time_and_key(place: bytes) -> tuple[int, bytes]:
    """Return what `due_key` was given."""
    return time_of(place[len(BY_TIME) : _TIME_END]), key_behind_time(place)


def last_due_place() -> bytes:
    """Return a place behind all that is due at any time."""
    return _BEHIND_TIMES


def due_bounds(now_ms: int) -> tuple[bytes, bytes]:
    """Return the bounds, both inclusive, of the places of all that is due at `now_ms`; the last may be due later."""
    return BY_TIME, _BEHIND_TIMES if now_ms >= MAX_TIME_MS else due_key(max(now_ms, 0) + 1, b"")


def expiry_key(key: bytes) -> bytes:
    """Return the place that says when the entry of a key expires."""
    return _BY_KEY + key


def expiry_keys(keys: Iterable[bytes]) -> list[bytes]:
    """Return `expiry_key` of each key."""
    return [_BY_KEY + key for key in keys]


def expiry_bounds(start: bytes | None, end: bytes | None) -> tuple[bytes, bytes]:
    """Return the bounds of the places of expiries of keys from `start` to `end`, all inclusive; None is open."""
    return _BY_KEY + (start or b""), _BEHIND_KEYS if end is None else _BY_KEY + end


def expiring_key(place: bytes) -> bytes:
    """Return the key whose expiry stands there. Raises FormatError for a place of another kind."""
    if place.startswith(_BY_KEY):
        return place[len(_BY_KEY) :]
    return _key_behind_time("expiry", place)


def timer_place(key: bytes, time_ms: int) -> bytes:
    """Return the place of the timer of a key and time, among those of the key."""
    return _BY_KEY + sized(key) + time_bytes(time_ms)


def timer_time(place: bytes) -> int:
    """Return the time of the timer whose `timer_place` it is."""
    return time_of(place[-_TIME.size :])


def timer_key(place: bytes) -> bytes:
    """Return the key whose timer stands there. Raises FormatError for a place of another kind."""
    if place.startswith(_BY_KEY):
        return key_at_front(place[len(_BY_KEY) :])
    return _key_behind_time("timer", place)


def started_key(start_ms: int, key: bytes) -> bytes:
    """Return the key for `due_key` of a window of a key."""
    return time_bytes(start_ms) + key


def start_and_key(started: bytes) -> tuple[int, bytes]:
    """Return what `started_key` was given."""
    return time_of(started[: _TIME.size]), started[_TIME.size :]


def window_end_key(place: bytes) -> bytes:
    """Return the key of the window whose end stands there. Raises FormatError for a place of another kind."""
    started = _key_behind_time("window end", place)
    if len(started) < _TIME.size:
        raise FormatError("window end", "its place is one of another kind")
    return started[_TIME.size :]


def _key_behind_time(what: str, place: bytes) -> bytes:
    if place.startswith(BY_TIME) and len(place) >= _TIME_END:
        return place[_TIME_END:]
    raise FormatError(what, "its place is one of another kind")
