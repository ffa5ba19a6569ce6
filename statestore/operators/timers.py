"""Timers of keys, kept in a key-value store of plain bytes, so that each fires once whatever is restarted when.

Each stands there twice, in order of time and by key: see `format.due_key`.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import index

from statestore.format.keys.due_key import due_bounds, due_key, time_and_key, timer_place, timer_time
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.format.serde import Serdes
from statestore.stores.builder import StoreBuilder
from statestore.stores.key_value import KeyValueStore
from statestore.stores.stores import Stores


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
        entries = self._store.range(timer_place(key, 0), timer_place(key, MAX_TIME_MS))
        return (timer_time(place) for place, _ in entries)

    def due(self, now_ms: int) -> Iterator[tuple[int, bytes]]:
        """Yield time and key of the timers up to `now_ms`, in order of time, then of key, as of the call."""
        with self._store.range(*due_bounds(now_ms)) as entries:
            for place, _ in entries:
                time_ms, key = time_and_key(place)
                if time_ms > now_ms:
                    return
                yield time_ms, key


def _places(key: bytes, time_ms: int) -> tuple[bytes, bytes]:
    return due_key(time_ms, key), timer_place(key, time_ms)


def _checked(time_ms: int) -> int:
    time_ms = index(time_ms)  # numpy's integers too, but no floats
    if not 0 <= time_ms <= MAX_TIME_MS:
        raise ValueError(f"the time of a timer must be 0 or more milliseconds since the epoch, got {time_ms}")
    return time_ms
