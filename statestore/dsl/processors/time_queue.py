"""Keys in order of the time when they are due, in a store of plain bytes that is never read as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from itertools import islice
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import Flags, is_valid
from statestore.format.key_groups import are_last
from statestore.format.keys.due_key import due_bounds, due_key, last_due_place, time_and_key
from statestore.format.keys.window_key import MAX_TIME_MS
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.stores.codec import HeldColumns

_READ_AT_ONCE: Final = 512
_HELD_AT_MOST: Final = 16_384
DUE_AT_ONCE: Final = 65_536
"""The most due keys that are handed out together."""


class TimeQueue:
    """Keys of a shard, by time. The earliest time is committed with the batch, as processor metadata.

    So most records read nothing, and no scan starts among the tombstones that RocksDB keeps of keys taken out. Keys are
    read some hundred at once, as records may take them one by one.
    """

    def __init__(self, context: ProcessorContext, store: str) -> None:
        self._context, self._name = context, store
        self._store = context.state_store(store)
        recorded = context.processor_metadata(store)
        self.is_unknown = recorded is None
        """Whether the content is unknown: the queue is new, or its state came from elsewhere."""
        self.first_ms = self._recorded_ms = MAX_TIME_MS if recorded is None else recorded
        """No key is due earlier; in an empty queue, the end of time."""
        self._read_to = b""
        """Up to where the store has been read into the heap."""
        self._heap: list[bytes] = []
        self._known: set[bytes] = set()
        """The entries of the heap that have not been removed."""

    def put(self, time_ms: int, key: bytes) -> None:
        """Add a key at a time, unless it is there already."""
        place = due_key(time_ms, key)
        self._store.put(place, b"")
        self.first_ms = min(self.first_ms, time_ms)
        if place <= self._read_to and place not in self._known:
            self._known.add(place)
            heappush(self._heap, place)
            if len(self._heap) > _HELD_AT_MOST:
                self._read_anew()

    def remove(self, time_ms: int, key: bytes) -> None:
        """Take a key out at a time, if it is there."""
        place = due_key(time_ms, key)
        self._store.put(place, None)
        self._known.discard(place)

    def take(self, is_wanted: Callable[[int], bool]) -> Iterator[tuple[int, bytes]]:
        """Take times and keys out as long as their time is wanted, in order of time and then of key.

        `is_wanted` is called before each, with its time.
        """
        while is_wanted(self.first_ms):
            place = self._first()
            if place is None:
                self.first_ms = MAX_TIME_MS
                return
            self.first_ms, key = time_and_key(place)
            if not is_wanted(self.first_ms):
                return
            heappop(self._heap)
            self._known.remove(place)
            self._store.put(place, None)
            yield self.first_ms, key

    def put_many(self, places: pa.BinaryArray, are_there: Flags, records: RecordColumns) -> None:
        """Add or remove entries at these places, in order, each for the record in the same row."""
        self._read_anew()
        values = pa.array([b""], pa.binary()).take(pa.array(np.zeros(len(places), np.int64), mask=~are_there))
        self._store.put_many(RecordColumns.adopt(places, values, records.timestamp_ms, records.headers, None))
        first = pc.min(places.filter(pa.array(are_there & are_last(places)))).as_py()
        if first is not None:
            self.first_ms = min(self.first_ms, time_and_key(first)[0])

    def has_many(self, places: pa.BinaryArray) -> Flags:
        """Return which of the places have an entry."""
        held: HeldColumns = self._store.get_many(places)
        return is_valid(held.value)

    def due(self, now_ms: int) -> Iterator[list[bytes]]:
        """Yield the places of all that is due by a time, in order, as lists; as of the call.

        The caller must take all of them, and remove each.
        """
        if self.first_ms > now_ms:
            return
        behind = due_bounds(now_ms)[1]
        found: list[bytes] = []
        first_ms = MAX_TIME_MS
        with self._store.range(due_key(self.first_ms, b""), last_due_place()) as entries:
            for place, _ in entries:
                if place >= behind:
                    first_ms, _ = time_and_key(place)
                    break
                found.append(place)
                if len(found) == DUE_AT_ONCE:
                    yield found
                    found = []
        if found:
            yield found
        self.first_ms = first_ms

    def record(self) -> None:
        """Have the earliest time committed with the batch."""
        if self.is_unknown or self.first_ms != self._recorded_ms:
            self._context.set_processor_metadata(self._name, self.first_ms)
            self._recorded_ms, self.is_unknown = self.first_ms, False

    def _read_anew(self) -> None:
        self._heap, self._known, self._read_to = [], set(), b""

    def _first(self) -> bytes | None:
        """Return the first place, which is then on top of the heap; None if there is none."""
        while True:
            while self._heap:
                if self._heap[0] in self._known:
                    return self._heap[0]
                heappop(self._heap)
            if self._read_to >= last_due_place():
                return None
            self._read_on()

    def _read_on(self) -> None:
        start = max(due_key(self.first_ms, b""), self._read_to + b"\0")  # the first place behind what was read
        with self._store.range(start, last_due_place()) as entries:
            self._heap = [place for place, _ in islice(entries, _READ_AT_ONCE)]
        self._known.update(self._heap)
        self._read_to = self._heap[-1] if len(self._heap) == _READ_AT_ONCE else last_due_place()
