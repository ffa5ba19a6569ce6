"""What of a file of rows has expired: a state location has no room for it, as its stores know the latest time in them.

Directories of Kafka Streams, of which files are made, may still have it: what expires goes with the next write only.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.kinds.kind_layout import LAYOUTS, layout_of
from statestore.bytestore.kinds.segments import NO_STREAM_TIME, Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.format.partitioner import partition_column
from statestore.recovery.making.logical_writes import LogicalWrite
from upgrade_tools.rows.live_entries import LiveVersions


class LatestTimes:
    """The latest time in each segmented store of each shard; with `shards` of None, rows stay in their parts."""

    def __init__(self, shards: int | None) -> None:
        self._shards = shards
        self._times_ms: dict[tuple[int, str], int] = {}

    def see(self, part: int, spec: StoreSpec, rows: pa.RecordBatch) -> None:
        """Take account of rows of a store, in the schema ROWS. Those that have no key or time don't count."""
        column = LAYOUTS[spec.kind].put_time_column
        if column is None:
            return
        keys, times = rows.select(["key", column]).drop_null().columns
        if self._shards is None:
            self._count(part, spec.name, times)
            return
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
    """Takes the writes of stores, and hands out those that have not expired by the latest times.

    Those of a versioned store's key must come one after the other, oldest first.
    """

    def __init__(self, latest: LatestTimes) -> None:
        self._latest = latest
        self._versions: dict[tuple[int, str], LiveVersions] = {}
        self.expired = 0
        """How many were not handed out."""

    def of(self, shard: int, spec: StoreSpec, writes: list[LogicalWrite]) -> list[LogicalWrite]:
        """Return those of some writes that are live. The last version comes later: what follows it says when it ended.

        Raises FormatError for the key of a window or session that is none.
        """
        if not spec.kind.is_segmented:
            return writes
        layout = layout_of(spec)
        segments = self._latest.segments(shard, spec)
        if layout.keeps_versions:
            versions = self._versions.setdefault((shard, spec.name), LiveVersions(segments))
            live = [write for write in map(versions.followed_by, writes) if write is not None]
            self.expired += versions.take_expired()
            return live
        live = [write for write in writes if segments.is_live(segments.id_of(layout.put_time_ms(write.key)))]
        self.expired += len(writes) - len(live)
        return live

    def left(self) -> Iterator[tuple[int, str, list[LogicalWrite]]]:
        """Yield the last version of each store of each shard, with shard and store: no more writes come."""
        for (shard, store), versions in self._versions.items():
            last = versions.followed_by(None)
            self.expired += versions.take_expired()
            yield shard, store, [] if last is None else [last]
