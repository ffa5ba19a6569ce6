"""The layer that drops writes to segments that have expired. The layers above still see them: they are logged."""

from __future__ import annotations

import numpy as np

from statestore.bytestore.kinds.segments import Segments, segment_of
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.row_changes import RowChanges
from statestore.errors.state import StoreClosedError
from statestore.format.binary_columns import is_valid
from statestore.stores.layers.layer import ByteStoreLayer


class RetainingLayer(ByteStoreLayer):
    """Passes on writes to live segments only."""

    def __init__(self, inner: ByteStore, segments: Segments, *, counts_deletes: bool = True) -> None:
        """Take what is below; in a store that retains duplicates deletes change nothing, so they don't count."""
        super().__init__(inner)
        self._counts_deletes = counts_deletes
        self.dropped_records = 0
        """How many writes came too late."""
        self._segments = segments

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key` unless its segment has expired; None deletes it."""
        if not self._segments.is_live(segment_of(key)):
            if not self.is_open:
                raise StoreClosedError(self.name)
            self.dropped_records += value is not None or self._counts_deletes
            return
        self.inner.put(key, value)

    def write_rows(self, changes: RowChanges) -> None:
        """Apply the rows whose segments are live when all are written; those are counted that came too late before."""
        times_ms, segments = changes.times_ms, self._segments
        assert times_ms is not None  # a store with segments keeps time
        ids, first_live = segments.ids_of(times_ms), segments.first_live_at(segments.stream_times(times_ms))
        stays = ids >= first_live[-1]
        super().write_rows(changes if stays.all() else changes.filter(stays))
        is_late = ids < first_live
        if not self._counts_deletes:
            is_late &= is_valid(changes.values)
        self.dropped_records += int(np.count_nonzero(is_late))
