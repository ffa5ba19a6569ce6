"""Uncommitted writes over a byte store that is left as it is.

A shard's local database only ever holds committed versions, so a batch's writes stay here until the batch is done.
Reads see them over what is committed. Of several writes to a key the last one counts.
"""

from __future__ import annotations

import weakref
from collections.abc import Generator, Iterable, Iterator, Sequence
from enum import Enum
from heapq import merge
from operator import itemgetter
from typing import Final

from statestore.bytestore.engines.key_order import KeyOrder
from statestore.bytestore.protocol import ByteStore, Change, Pair
from statestore.errors import StoreClosedError


class Deleted(Enum):
    """Stands in a write set for the value of a key that was deleted."""

    DELETED = 0


DELETED: Final = Deleted.DELETED


class WriteSet:
    """A ByteStore whose writes stay in memory, over `committed`, which is never written to."""

    def __init__(self, committed: ByteStore) -> None:
        self.name = committed.name
        self.changes: dict[bytes, bytes | Deleted] = {}
        """The last write of each key."""
        self.inner = committed
        self._order = KeyOrder(self.changes)
        # Of what is committed, keys below this one count as deleted.
        self._floor = b""
        self._scans: weakref.WeakSet[Generator[Pair, None, None]] = weakref.WeakSet()
        self._closed = False

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called yet."""
        return not self._closed

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        if self._closed:
            raise StoreClosedError(self.name)
        value = self.changes.get(key)
        if value is None:
            return self.inner.get(key) if key >= self._floor else None
        return value if value is not DELETED else None

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none."""
        if self._closed:
            raise StoreClosedError(self.name)
        written = [*map(self.changes.get, keys)]
        missing = [key for key, value in zip(keys, written, strict=True) if value is None and key >= self._floor]
        committed = iter(self.inner.get_many(missing) if missing else ())
        return [
            (next(committed) if key >= self._floor else None) if value is None else None if value is DELETED else value
            for key, value in zip(keys, written, strict=True)
        ]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        if self._closed:
            raise StoreClosedError(self.name)
        changes = self.changes
        if key not in changes:
            self._order.add(key)
        changes[key] = DELETED if value is None else value

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key."""
        for key, value in changes:
            self.put(key, value)

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`."""
        if self._closed:
            raise StoreClosedError(self.name)
        for key in [key for key in self.changes if key < end]:
            del self.changes[key]
        self._forget_order()
        self._floor = max(self._floor, end)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        if self._closed:
            raise StoreClosedError(self.name)
        changes = self.changes
        pending = [(key, changes[key]) for key in self._order.between(start, end, reverse=reverse)]
        committed_start = max(start or b"", self._floor) if self._floor else start
        committed = self.inner.range(committed_start, end, reverse=reverse)
        if not pending:
            return committed
        scan = merge_pairs(pending, committed, reverse)
        self._scans.add(scan)
        return scan

    @property
    def is_changed(self) -> bool:
        """Whether any changes are pending."""
        return bool(self.changes) or bool(self._floor)

    def apply_to(self, store: ByteStore) -> None:
        """Make in `store` the changes that are pending here; they stay pending."""
        if self._floor:
            store.delete_below(self._floor)
        if len(self.changes) == 1:
            # What a batch of one record writes to a store, most often: a put costs half as much as a write.
            ((key, value),) = self.changes.items()
            store.put(key, None if value is DELETED else value)
            return
        store.write((key, None if value is DELETED else value) for key, value in self.changes.items())

    def clear(self) -> None:
        """Forget the changes that are pending: what is committed shows again."""
        self.changes.clear()
        self._floor = b""
        self._forget_order()

    def approximate_num_entries(self) -> int:
        """Return the committed estimate plus this batch's puts less its deletes, at least 0.

        A key that is overwritten counts twice until the batch is committed, as in RocksDB until it is compacted.
        """
        if self._closed:
            raise StoreClosedError(self.name)
        deletes = sum(value is DELETED for value in self.changes.values())
        return max(0, self.inner.approximate_num_entries() + len(self.changes) - 2 * deletes)

    def _forget_order(self) -> None:
        self._order.forget()

    def close(self) -> None:
        """Close the store and its iterators; the committed store is its owner's to close."""
        self._closed = True
        for scan in list(self._scans):
            scan.close()


def merge_pairs(
    pending: Iterable[tuple[bytes, bytes | Deleted]], committed: Iterator[Pair], reverse: bool
) -> Generator[Pair, None, None]:
    """Merge two sorted runs of pairs; on equal keys the pending write comes first, and it alone counts."""
    last: bytes | None = None
    for key, value in merge(pending, committed, key=itemgetter(0), reverse=reverse):
        if key == last:
            continue
        last = key
        if value is not DELETED:
            yield key, value
