"""Timers of keys, kept in a key-value store of plain bytes, so that each fires once whatever is restarted when.

    "t" time_ms:i64_be  key                   -> nothing   the timers in order of time
    "k" key_size:u32_be  key  time_ms:i64_be  -> nothing   the same, by key

The only module that knows this layout.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from operator import index
from typing import Final

from statestore.bytestore.engines.prefix_scan import prefix_end
from statestore.errors import FormatError
from statestore.format.serde import Serdes
from statestore.operators.entry_key import key_at_front, sized
from statestore.stores.builder import StoreBuilder
from statestore.stores.key_value import KeyValueStore
from statestore.stores.stores import Stores

_BY_TIME: Final = b"t"
_BY_KEY: Final = b"k"
_TIME: Final = struct.Struct(">q")
_LATEST_MS: Final = 2**63 - 1

TIMER_KEYS: Final = "timers"
"""What is recorded of the keys of a store of timers. Never rename."""


def timer_store(name: str, *, persistent: bool = True) -> StoreBuilder[KeyValueStore[bytes, bytes]]:
    """Return the builder of a store of timers."""
    supplier = Stores.persistent_key_value_store(name) if persistent else Stores.in_memory_key_value_store(name)
    return Stores.key_value_store_builder(supplier, Serdes.bytes(), Serdes.bytes())


class Timers:
    """The timers of a shard. Times are milliseconds since the epoch; a key has at most one timer of each time."""

    def __init__(self, store: KeyValueStore[bytes, bytes]) -> None:
        self._store = store

    def register(self, key: bytes, time_ms: int) -> None:
        """Set a timer; one that is there stays. Raises ValueError for a negative time, or one beyond 2^63 - 1."""
        by_time, by_key = _places(key, _checked(time_ms))
        self._store.put(by_time, b"")
        self._store.put(by_key, b"")

    def delete(self, key: bytes, time_ms: int) -> bool:
        """Delete a timer, and return whether it was there."""
        by_time, by_key = _places(key, _checked(time_ms))
        if self._store.get(by_time) is None:
            return False
        self._store.put(by_time, None)
        self._store.put(by_key, None)
        return True

    def of_key(self, key: bytes) -> Iterator[int]:
        """Yield the times of a key's timers, earliest first, as of the call."""
        prefix = _BY_KEY + sized(key)
        entries = self._store.range(prefix + _TIME.pack(0), prefix + _TIME.pack(_LATEST_MS))
        return (_time_of(place[len(prefix) :]) for place, _ in entries)

    def due(self, now_ms: int) -> Iterator[tuple[int, bytes]]:
        """Yield time and key of the timers up to `now_ms`, in order of time, then of key, as of the call."""
        time_end = len(_BY_TIME) + _TIME.size
        end = prefix_end(_BY_TIME) if now_ms >= _LATEST_MS else _BY_TIME + _TIME.pack(max(now_ms, 0) + 1)
        with self._store.range(_BY_TIME, end) as entries:
            for place, _ in entries:
                time_ms = _time_of(place[len(_BY_TIME) : time_end])
                if time_ms > now_ms:
                    return
                yield time_ms, place[time_end:]


def timer_key(place: bytes) -> bytes:
    """Return the key whose timer stands there. Raises FormatError if none can stand there."""
    if place.startswith(_BY_TIME) and len(place) >= len(_BY_TIME) + _TIME.size:
        return place[len(_BY_TIME) + _TIME.size :]
    if place.startswith(_BY_KEY):
        return key_at_front(place[len(_BY_KEY) :])
    raise FormatError("timer", f"0x{place.hex()} is not where one stands")


def _places(key: bytes, time_ms: int) -> tuple[bytes, bytes]:
    time = _TIME.pack(time_ms)
    return _BY_TIME + time + key, _BY_KEY + sized(key) + time


def _checked(time_ms: int) -> int:
    time_ms = index(time_ms)  # numpy's integers too, but no floats
    if not 0 <= time_ms <= _LATEST_MS:
        raise ValueError(f"the time of a timer must be 0 or more milliseconds since the epoch, got {time_ms}")
    return time_ms


def _time_of(data: bytes) -> int:
    (time_ms,) = _TIME.unpack(data)
    return int(time_ms)
