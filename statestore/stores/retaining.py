"""The layer that drops writes to segments that have expired. The layers above still see them: they are logged."""

from __future__ import annotations

from collections.abc import Iterable

from statestore.bytestore.kinds.segments import Segments, segment_of
from statestore.bytestore.protocol import ByteStore, Change
from statestore.errors import StoreClosedError
from statestore.stores.layer import ByteStoreLayer


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

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes to live segments in order."""
        for key, value in changes:
            self.put(key, value)
