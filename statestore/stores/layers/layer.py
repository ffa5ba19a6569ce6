"""Layers of a store that pass on what they do not change: three short ones, and what layers are asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Protocol, cast

import numpy as np

from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE, Segments, segment_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import (
    ByteStore,
    ByteStoreLayer,
    Change,
    RecordContext,
    RowChanges,
    RowStore,
    takes_rows,
)
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors.state import StoreClosedError
from statestore.format.binary_columns import is_valid
from statestore.recovery.commit.changelog import Changelog


class HoldsBack(Protocol):
    """A layer that passes writes on later."""

    def flush(self) -> None:
        """Pass on what was held back."""


class Drops(Protocol):
    """A layer that leaves out writes."""

    @property
    def dropped_records(self) -> int:
        """How many it has left out."""


class Expires(Protocol):
    """A layer whose entries end with time."""

    def get_many_at(self, keys: Sequence[bytes], stream_times_ms: Sequence[int] | None) -> list[bytes | None]:
        """Return what `get_many` does of each key at the stream time beside it; None is now for all."""

    def delete_expired(self) -> int:
        """Delete some of the entries whose time has come, and return how many."""

    def watch(self, watch: Callable[[bytes, bytes | None], None]) -> None:
        """Have `watch` called with each entry that `delete_expired` deletes, as it is stored, from now on."""


class RetainingLayer(ByteStoreLayer):
    """Passes on writes to live segments only."""

    def __init__(self, inner: ByteStore, segments: Segments, *, counts_deletes: bool = True) -> None:
        """Take the store below. Deletes don't count where duplicates are retained: they change nothing there."""
        super().__init__(inner)
        self._counts_deletes = counts_deletes
        self.dropped_records = 0  # how many writes came too late
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


class ChangeLoggingLayer(ByteStoreLayer):
    """Logs each write after it was made, deletes of absent keys too, unless `changelog` reads `inner` itself.

    Keys of windows and sessions are logged without the segment that they stand in.
    """

    def __init__(self, inner: ByteStore, spec: StoreSpec, changelog: Changelog, context: RecordContext) -> None:
        super().__init__(inner)
        self._changelog = changelog
        self._append = changelog.append
        self._context = context
        self._skipped_bytes = SEGMENT_ID_SIZE if spec.kind.is_segmented else 0
        self._written = changelog.read_from(inner, context)
        if self._written is not None:
            # Nothing is left to do here: a call less for each write.
            self.put = inner.put  # type: ignore[method-assign]
            self.write = inner.write  # type: ignore[method-assign]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key` and log it; None deletes it."""
        self.inner.put(key, value)
        self._append(key[self._skipped_bytes :], value, self._context)

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order and log them."""
        pairs = list(changes)
        self.inner.write(pairs)
        self._changelog.append_all(self._logged(pairs), self._context)

    def write_rows(self, changes: RowChanges) -> None:
        """Apply all rows, and log the last write of each key for its record."""
        super().write_rows(changes)
        if self._written is None:
            self._changelog.extend(changes)

    def _logged(self, changes: Collection[Change]) -> Collection[Change]:
        skipped = self._skipped_bytes
        return [(key[skipped:], value) for key, value in changes] if skipped else changes


DEFAULT_CACHE_MAX_BYTES = 10 * 1024 * 1024  # Kafka's default of statestore.cache.max.bytes


class WrittenFor:
    """The record that a write was made for: the one being processed, but while a cache flushes, the write's own.

    Of a delete it has the headers that the serde of its key has added to, if that takes some.
    """

    def __init__(self, processing: RecordContext) -> None:
        self._processing = processing
        self.flushed: tuple[int, bytes] | None = None
        self.deleted_with: bytes | None = None

    @property
    def timestamp_ms(self) -> int:
        """The record's timestamp, in milliseconds since the epoch."""
        return self._processing.timestamp_ms if self.flushed is None else self.flushed[0]

    @property
    def header_bytes(self) -> bytes:
        """The record's headers in KIP-1271's encoding; empty for none."""
        if self.flushed is not None:
            return self.flushed[1]
        return self._processing.header_bytes if self.deleted_with is None else self.deleted_with


class CachingLayer(WriteSet):
    """Holds writes to `inner` back until `flush`, or until they exceed `max_bytes`.

    They go on in the order in which their keys were last written, each with the timestamp and headers of the record
    that it was made for: it has to be the current one.
    """

    def __init__(self, inner: ByteStore, context: WrittenFor, max_bytes: int = DEFAULT_CACHE_MAX_BYTES) -> None:
        super().__init__(inner)
        self.takes_rows = takes_rows(inner)
        self._context = context
        self._max_bytes = max_bytes
        self._size_bytes = 0
        self._records: dict[bytes, tuple[int, bytes]] = {}

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        before = self.changes.get(key)
        if before is not None:
            self._size_bytes -= len(key) + len(before if isinstance(before, bytes) else b"")
        super().put(key, value)
        self._records[key] = (self._context.timestamp_ms, self._context.header_bytes)
        self._size_bytes += len(key) + len(value or b"")
        if self._size_bytes > self._max_bytes:
            self.flush()

    def write_rows(self, changes: RowChanges) -> None:
        """Pass on what is held back, and all rows: of a key, they pass on its last write alone."""
        self.flush()
        cast(RowStore, self.inner).write_rows(changes)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`, after what is held back was passed on: it is to be logged."""
        self.flush()
        self.inner.delete_below(end)

    def flush(self) -> None:
        """Pass on what was held back."""
        try:
            for key, value in self.changes.items():
                self._context.flushed = self._records[key]
                self.inner.put(key, value if isinstance(value, bytes) else None)
        finally:
            self._context.flushed = None
        self.clear()

    def clear(self) -> None:
        """Forget what is held back, without passing it on."""
        super().clear()
        self._records.clear()
        self._size_bytes = 0

    def _is_behind_committed(self, start: bytes) -> bool:
        # The store below holds writes in memory, too: looking for its last key would sort them all.
        return False

    def close(self) -> None:
        """Flush, and close the store below."""
        if self.is_open:
            self.flush()
        super().close()
        self.inner.close()
