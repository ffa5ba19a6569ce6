"""Uncommitted writes that go to disk when they are too many: a write set in memory, over one on disk, over a store.

    WriteSet (a dict) ── inner ──> SpilledWrites (RocksDB) ── inner ──> what is committed

Both hold uncommitted writes over what they stand on, so a spill is to apply the upper one to the lower one, and reads
go through the layers as they always do.
"""

from __future__ import annotations

from collections.abc import Collection, ItemsView, Iterable, Iterator
from itertools import islice
from typing import Any, Final, cast

from statestore.bytestore.chunks import chunks
from statestore.bytestore.engines.rocksdb import RocksDBByteStore
from statestore.bytestore.engines.scans import ScannedStore
from statestore.bytestore.protocol import ByteStore, Change, Pair
from statestore.bytestore.write_sets.spilling import ENTRY_BYTES, SpillSpace
from statestore.bytestore.write_sets.write_set import (
    DELETED,
    DELETED_BYTES,
    Deleted,
    WriteSet,
    hold_last,
    last_writes,
    merge_pairs,
)
from statestore.errors.state import StoreClosedError

_DELETE: Final = b""  # stands on disk for the value of a key that was deleted
_PUT: Final = b"\x01"  # what stands before a value on disk, so that an empty one is no delete
_WRITE_BYTES: Final = 1 << 20  # how much is written at once: RocksDB's write batch holds a copy of it
_WRITE_ROWS: Final = 4_096
"""How many changes that are in memory anyway are taken over at once: a dict of them is not."""


class SpillingWriteSet(WriteSet):
    """A WriteSet over `committed` that spills to `space` when the writes of the batch hold more than they may."""

    def __init__(self, committed: ByteStore, space: SpillSpace) -> None:
        super().__init__(committed)
        self._space = space
        self._pending = space.pending
        self._spilled: SpilledWrites | None = None
        space.reserve(self.name)
        space.pending.add(self)

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it. Raises LocalDiskFullError, and what a spill failed with, again."""
        # All of WriteSet.put with the count in it: every write of every batch goes through here.
        if self._closed:
            raise StoreClosedError(self.name)
        if self.changes.pop(key, None) is None and self._order.is_kept:
            self._order.add(key)
        pending = self._pending
        if value is None:
            self.changes[key] = deleted = self._delete()
            pending.written_bytes += len(key) + _held_bytes(deleted) + ENTRY_BYTES
        else:
            self.changes[key] = value
            pending.written_bytes += len(key) + len(value) + ENTRY_BYTES
        if pending.written_bytes > pending.limit_bytes:
            pending.relieve()

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key. Raises what `put` raises."""
        if self._closed:
            raise StoreClosedError(self.name)
        pending = self._pending
        written: dict[bytes, bytes | Deleted | None]
        for written in _parts(changes):
            self._order.add_all(key for key in written if key not in self.changes)
            size = sum(map(len, written)) + sum(map(len, filter(None, written.values()))) + ENTRY_BYTES * len(written)
            if None in written.values():
                deletes = [key for key, value in written.items() if value is None]
                deleted = self._delete()
                written.update(dict.fromkeys(deletes, deleted))
                size += len(deletes) * _held_bytes(deleted)
            hold_last(self.changes, cast("dict[bytes, bytes | Deleted]", written))  # None is gone
            pending.written_bytes += size
            if pending.written_bytes > pending.limit_bytes:
                pending.relieve()

    def held_bytes(self) -> int:
        """Return about how much memory the writes take that are held in it, with their changelog."""
        sizes = sum(len(key) + _held_bytes(value) for key, value in self.changes.items())
        return sizes + ENTRY_BYTES * len(self.changes)

    def spill(self) -> None:
        """Bring to disk what is in memory."""
        if not super().is_changed:
            return
        if self._spilled is None:
            self._spilled = SpilledWrites(self.inner, self._space.store(self.name))
            self.inner = self._spilled
        super().apply_to(self._spilled)
        super().clear()

    @property
    def is_changed(self) -> bool:
        """Whether any changes are pending."""
        return super().is_changed or (self._spilled is not None and self._spilled.is_changed)

    def apply_to(self, store: ByteStore) -> None:
        """Make in `store` the changes that are pending here; they stay pending."""
        if self._spilled is not None:
            self._spilled.apply_to(store)
        super().apply_to(store)

    def clear(self) -> None:
        """Forget the changes that are pending: what is committed shows again."""
        if self._spilled is not None:
            self._spilled.clear()
        super().clear()

    def close(self) -> None:
        """Close the store and its iterators; the committed store is its owner's to close."""
        super().close()
        if self._spilled is not None:
            self._spilled.close()


class SpilledWrites(ScannedStore):
    """A ByteStore whose writes stay in `disk`, which is empty at first, over `inner`, which is never written to."""

    def __init__(self, inner: ByteStore, disk: RocksDBByteStore) -> None:
        super().__init__(inner.name)
        self.inner = inner
        self._disk = disk
        self._deletes = 0
        # Of `inner`, keys below this one count as deleted.
        self._floor = b""

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called yet."""
        return self._disk.is_open

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        tagged = self._disk.get(key)
        if tagged is None:
            return self.inner.get(key) if key >= self._floor else None
        return tagged[1:] if tagged else None

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key; about a megabyte of them at once."""
        chunk: list[Change] = []
        size = 0
        for key, value in changes:
            tagged = _DELETE if value is None else _PUT + value
            chunk.append((key, tagged))
            size += len(key) + len(tagged)
            self._deletes += value is None
            if size > _WRITE_BYTES:
                self._disk.write(chunk)
                chunk, size = [], 0
        self._disk.write(chunk)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`."""
        self._disk.delete_below(end)
        self._floor = max(self._floor, end)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        written = _strip_tags(self._disk.range(start, end, reverse=reverse))
        inner_start = max(start or b"", self._floor) if self._floor else start
        return self._hand_out(merge_pairs(written, self.inner.range(inner_start, end, reverse=reverse), reverse))

    @property
    def is_changed(self) -> bool:
        """Whether any changes are pending."""
        return bool(self._floor) or next(self._disk.range(None, None), None) is not None

    def apply_to(self, store: ByteStore) -> None:
        """Make in `store` the changes that are pending here, a part after the other; they stay pending."""
        if self._floor:
            store.delete_below(self._floor)
        for key, value in _strip_tags(self._disk.range(None, None)):
            store.put(key, None if isinstance(value, Deleted) else value)

    def clear(self) -> None:
        """Forget the changes that are pending."""
        last = next(self._disk.range(None, None, reverse=True), None)
        if last is not None:
            self._disk.delete_below(last[0] + b"\0")
        self._floor = b""
        self._deletes = 0

    def approximate_num_entries(self) -> int:
        """Return the estimate of what it stands on plus the puts less the deletes, at least 0."""
        written = self._disk.approximate_num_entries()
        return max(0, self.inner.approximate_num_entries() + written - 2 * self._deletes)

    def approximate_size_bytes(self) -> int:
        """Return how much room what it stands on takes."""
        self._require_open()
        return self.inner.approximate_size_bytes()

    def close(self) -> None:
        """Close the store and its iterators; what it stands on is its owner's to close."""
        super().close()
        # Without the flush of a close, which may fail: nobody will read it again.
        self._disk.abandon()


def _parts(changes: Iterable[Change]) -> Iterator[dict[bytes, Any]]:
    """Yield the last change of each key, some at once: of what is not in memory yet, no more than it may take."""
    if not isinstance(changes, Collection):
        yield from map(last_writes, chunks(changes, max_bytes=_WRITE_BYTES))
        return
    left = iter(changes)
    are_distinct = isinstance(changes, ItemsView)
    while part := dict(islice(left, _WRITE_ROWS)) if are_distinct else last_writes(list(islice(left, _WRITE_ROWS))):
        yield part


def _held_bytes(value: bytes | Deleted) -> int:
    return DELETED_BYTES + len(value.header_bytes) if isinstance(value, Deleted) else len(value)


def _strip_tags(pairs: Iterator[Pair]) -> Iterator[tuple[bytes, bytes | Deleted]]:
    return ((key, tagged[1:] if tagged else DELETED) for key, tagged in pairs)
