"""Time segments: how stores that keep time forget it, a whole stretch at once.

    segmented_key := segment_id:i64_be key:u8[..]

A segment holds what happened in [segment_id * interval, (segment_id + 1) * interval). Its entries stand together, so
that a segment that is older than the retention goes by one range delete. Latest versions of a versioned store do not
expire: they have the id -1, which sorts after all others. Source: KeyValueSegments and LogicalKeyValueSegments
of Kafka Streams, which keeps windows and sessions in a database per segment: there the id is in a directory's name.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import Final

import numpy as np
import pyarrow as pa

from statestore.bytestore.protocol import ByteStore
from statestore.errors.data import TruncatedError
from statestore.format.binary_columns import Integers, join_rows, rows_of_numbers

SEGMENT_ID_SIZE: Final = 8
LATEST_SEGMENT: Final = -1
MAX_SEGMENT_ID: Final = 2**63 - 1
NO_STREAM_TIME: Final = -1

_ID: Final = struct.Struct(">q")
_LATEST_PREFIX: Final = _ID.pack(LATEST_SEGMENT)


segment_prefix: Final[Callable[[int], bytes]] = _ID.pack
"""Returns what the keys of a segment with this id begin with. Every access calls it, so no function is around it."""


def with_segments(segment_ids: Integers, keys: pa.BinaryArray) -> pa.BinaryArray:
    """Return each key behind the prefix of its segment, whose id is in the row beside it."""
    return join_rows([rows_of_numbers(segment_ids.astype(">i8")), keys], "keys with segments")


def segment_of(key: bytes) -> int:
    """Return the id of the segment that a segmented key belongs to. Raises TruncatedError if the key has none."""
    try:
        return int(_ID.unpack_from(key)[0])
    except struct.error:
        raise TruncatedError("segment id", wanted=SEGMENT_ID_SIZE, got=len(key)) from None


def is_latest_key(key: bytes) -> bool:
    """Return whether a key of a versioned store is that of a latest version."""
    return key.startswith(_LATEST_PREFIX)


class Segments:
    """The segments of a store, and its stream time, the latest that was put; -1 if unknown: then all are live."""

    def __init__(
        self, inner: ByteStore, retention_ms: int, interval_ms: int, stream_time_ms: int = NO_STREAM_TIME
    ) -> None:
        self.stream_time_ms = stream_time_ms
        self.latest_ms = MAX_SEGMENT_ID
        """No put takes the stream time beyond this. Set while records of a shard with a later stream time are put."""
        self.retention_ms = retention_ms
        self._interval_ms = interval_ms
        self._inner = inner
        self._ids: list[int] | None = None  # looked up when first needed, and kept up to date from then on
        self._last_used: int | None = None  # most puts are to one segment, or a few
        self.first_live = 0  # the id of the first segment that has not expired, at least 0
        self._find_first_live()

    def id_of(self, time_ms: int) -> int:
        """Return the id of the segment of a time."""
        return time_ms // self._interval_ms

    def ids_of(self, times_ms: Integers) -> Integers:
        """Return the id of the segment of each time."""
        return times_ms // self._interval_ms

    def first_live_at(self, stream_times_ms: Integers) -> Integers:
        """Return `first_live` as it is at each of these stream times."""
        return np.maximum((stream_times_ms - self.retention_ms) // self._interval_ms, 0)

    def stream_times(self, put_times_ms: Integers) -> Integers:
        """Return the stream time after each of some puts, at their times, one after the other."""
        return np.maximum(np.minimum(np.maximum.accumulate(put_times_ms), self.latest_ms), self.stream_time_ms)

    @property
    def first_visible_ms(self) -> int:
        """The first time that reads show; older entries stay until their whole segment expires."""
        return max(0, self.stream_time_ms - self.retention_ms + 1)

    def advance(self, time_ms: int) -> None:
        """Let the stream time go on to `time_ms`, if that is later, and delete the segments that expire by it."""
        if time_ms > self.latest_ms:
            time_ms = self.latest_ms
        if time_ms <= self.stream_time_ms:
            return
        self.stream_time_ms = time_ms
        if time_ms < self._next_expiry_ms:
            return
        self._find_first_live()
        first_live = self.first_live
        if self.ids(0, first_live - 1):
            self._inner.delete_below(segment_prefix(first_live))
            self._ids = self.ids(first_live)
            self._last_used = None

    def _find_first_live(self) -> None:
        self.first_live = max(0, self.id_of(self.stream_time_ms - self.retention_ms))
        self._next_expiry_ms = (self.first_live + 1) * self._interval_ms + self.retention_ms

    def is_live(self, segment_id: int) -> bool:
        """Return whether a segment has not expired."""
        return segment_id >= self.first_live

    def note_use(self, segment_id: int) -> None:
        """Note that there are entries in a segment, or will be once a cache is flushed; nothing if it has expired."""
        if segment_id == self._last_used or segment_id < self.first_live:
            return
        self._last_used = segment_id
        ids = self._all()
        place = bisect_left(ids, segment_id)
        if place == len(ids) or ids[place] != segment_id:
            ids.insert(place, segment_id)

    def ids(self, first: int = 0, last: int = MAX_SEGMENT_ID, *, reverse: bool = False) -> list[int]:
        """Return the ids of the segments from `first` to `last`, both inclusive, that have or had entries."""
        ids = self._all()
        found = ids[bisect_left(ids, first) : bisect_right(ids, last)]
        return found[::-1] if reverse else found

    def back_to(self, time_ms: int) -> list[int]:
        """Return the ids of the live segments that have or had entries, from the newest back to that of a time."""
        ids = self._ids or self._all()
        first = time_ms // self._interval_ms
        if first < self.first_live:
            first = self.first_live
        if ids and ids[-1] == first:  # the usual case: late records still fall into the newest segment
            return ids[-1:]
        return ids[bisect_left(ids, first) :][::-1]

    def _all(self) -> list[int]:
        if self._ids is None:
            ids: list[int] = []
            position = segment_prefix(0)
            # From each segment to the next one's first key.
            while (pair := next(self._inner.range(position, None), None)) is not None:
                segment_id = segment_of(pair[0])
                if segment_id < 0:
                    break
                ids.append(segment_id)
                if segment_id == MAX_SEGMENT_ID:
                    break
                position = segment_prefix(segment_id + 1)
            self._ids = ids
        return self._ids
