"""Leaves out expired entries: a state location does not take them, as its stores record the latest time in them.

Kafka Streams forgets a store's stream time when it stops, and deletes expired entries only with the next write. So its
directories may still have some, and files of rows that were exported from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.kinds.kind_layout import LAYOUTS, layout_of
from statestore.bytestore.kinds.segments import NO_STREAM_TIME, SEGMENT_ID_SIZE, Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.format.keys.partitioner import partition_column
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes
from statestore.recovery.making.placement import KeyOf
from upgrade_tools.states.state import OpenStore

OnExpired = Callable[[int], object]
"""Is told how many writes were left out."""


class LiveWrites:
    """Takes the writes of a segmented store, and hands out those that are live at the time of `segments`.

    Versions of a key must follow each other, oldest first. Each is handed out after the next one has come, which says
    when it ended. It is live if part of it has not expired.
    """

    def __init__(self, spec: StoreSpec, segments: Segments) -> None:
        self._layout = layout_of(spec)
        self._segments = segments
        self._pending: LogicalWrite | None = None
        self._has_live = False
        """Whether an older version of the pending version's key was live."""
        self.expired = 0
        """How many were not handed out."""

    def of(self, writes: list[LogicalWrite]) -> list[LogicalWrite]:
        """Return the live ones of some writes. Raises FormatError for a malformed key of a window or session.

        In a versioned store, the last write becomes pending, and the one that was pending before is returned.
        """
        if self._layout.keeps_versions:
            return [write for write in map(self._followed_by, writes) if write is not None]
        time_of, is_live, id_of = self._layout.put_time_ms, self._segments.is_live, self._segments.id_of
        live = [write for write in writes if is_live(id_of(time_of(write.key)))]
        self.expired += len(writes) - len(live)
        return live

    def end(self) -> list[LogicalWrite]:
        """Return the write that is still pending, if it is live, as no more follow."""
        last = self._followed_by(None)
        return [] if last is None else [last]

    def _followed_by(self, write: LogicalWrite | None) -> LogicalWrite | None:
        """Make a write pending, and return the previous one; None if that has expired or there was none."""
        pending, self._pending = self._pending, write
        if pending is None:
            return None
        same_key = write is not None and write.key == pending.key
        live = self._is_live(pending, write.timestamp_ms if write is not None and same_key else None)
        self._has_live = same_key and (self._has_live or live)
        self.expired += not live
        return pending if live else None

    def _is_live(self, version: LogicalWrite, ended_ms: int | None) -> bool:
        # A tombstone without an earlier version is in the segment of its own time.
        stands_at_ms = version.timestamp_ms if version.stored is None and not self._has_live else ended_ms
        return stands_at_ms is None or self._segments.is_live(self._segments.id_of(stands_at_ms))


def live_writes(store: OpenStore, written: StoreSpec | None, on_expired: OnExpired) -> Iterator[list[LogicalWrite]]:
    """Yield the writes for the live entries of a store that becomes `written`, which has the retention.

    If no latest time is recorded, that of its entries counts. `written` may be None for a store without segments.
    Raises FormatError.
    """
    spec = store.spec
    if not spec.kind.is_segmented or store.stream_time_ms != NO_STREAM_TIME:
        yield from logical_writes(spec, store.bytes, store.stream_time_ms)
        return
    assert written is not None  # it is known how long entries are kept
    segments = Segments(store.bytes, *written.retention, _latest_ms(store))
    if not LAYOUTS[spec.kind].keeps_versions and _all_are_live(store, segments):
        yield from logical_writes(spec, store.bytes, NO_STREAM_TIME)
        return
    live = LiveWrites(spec, segments)
    for writes in logical_writes(spec, store.bytes, NO_STREAM_TIME):
        yield live.of(writes)
    yield live.end()
    on_expired(live.expired)


def _all_are_live(store: OpenStore, segments: Segments) -> bool:
    """Return whether even the oldest segment is live, so that no entry needs a check."""
    _, interval_ms = store.spec.retention
    oldest = Segments(store.bytes, *store.spec.retention).ids()[:1]
    return not oldest or segments.is_live(segments.id_of(oldest[0] * interval_ms))


def _latest_ms(store: OpenStore) -> int:
    """Return the latest time in a store, -1 if it has none."""
    spec, layout = store.spec, layout_of(store.spec)
    if layout.keeps_versions:
        writes = chain.from_iterable(logical_writes(spec, store.bytes, NO_STREAM_TIME))
        return max((write.timestamp_ms or 0 for write in writes), default=NO_STREAM_TIME)
    last = Segments(store.bytes, *spec.retention).ids()[-1:]
    if not last:
        return NO_STREAM_TIME
    return max(layout.put_time_ms(key[SEGMENT_ID_SIZE:]) for key, _ in store.bytes.range(segment_prefix(last[0]), None))


class LatestTimes:
    """The latest time in each segmented store of each shard; if `shards` is None, rows stay in their parts."""

    def __init__(self, shards: int | None, key_of: Mapping[str, KeyOf]) -> None:
        self._shards = shards
        self._key_of = key_of
        self._times_ms: dict[tuple[int, str], int] = {}

    def see(self, part: int, spec: StoreSpec, rows: pa.RecordBatch) -> None:
        """Note rows of a store, in the schema ROWS. Rows without a key or time are skipped."""
        column = LAYOUTS[spec.kind].put_time_column
        if column is None:
            return
        keys, times = rows.select(["key", column]).drop_null().columns
        if self._shards is None:
            self._count(part, spec.name, times)
            return
        if (key_of := self._key_of.get(spec.name)) is not None:
            keys = pa.array(map(key_of, keys.to_pylist()), pa.binary())
        places = partition_column(keys, self._shards)
        for shard in np.unique(places).tolist():
            self._count(shard, spec.name, times.filter(pa.array(places == shard)))

    def segments(self, shard: int, spec: StoreSpec) -> Segments:
        """Return the segments of a store that has seen its latest time."""
        latest_ms = self._times_ms.get((shard, spec.name), NO_STREAM_TIME)
        return Segments(MemoryByteStore(spec.name), *spec.retention, latest_ms)

    def _count(self, shard: int, store: str, times: pa.Int64Array) -> None:
        if len(times):
            place = shard, store
            self._times_ms[place] = max(self._times_ms.get(place, NO_STREAM_TIME), pc.max(times).as_py())


class Unexpired:
    """The live writes of several stores in several shards, by the latest time of each."""

    def __init__(self, latest: LatestTimes) -> None:
        self._latest = latest
        self._stores: dict[tuple[int, str], LiveWrites] = {}

    @property
    def expired(self) -> int:
        """How many writes were not handed out."""
        return sum(live.expired for live in self._stores.values())

    def of(self, shard: int, spec: StoreSpec, writes: list[LogicalWrite]) -> list[LogicalWrite]:
        """Return the live ones of some writes, as `LiveWrites.of` does."""
        if not spec.kind.is_segmented:
            return writes
        place = shard, spec.name
        if place not in self._stores:
            self._stores[place] = LiveWrites(spec, self._latest.segments(shard, spec))
        return self._stores[place].of(writes)

    def left(self) -> Iterator[tuple[int, str, list[LogicalWrite]]]:
        """Yield the live writes that are still pending, with shard and store, as no more follow."""
        for (shard, store), live in self._stores.items():
            last = live.end()
            if last:
                yield shard, store, last
