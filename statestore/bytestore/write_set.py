"""The uncommitted writes of one batch over a committed byte store.

A shard's local database only ever holds committed versions, so a batch's writes stay here until the batch is done;
then they become one delta. Reads see them over what is committed. Of several writes to a key the last one counts, as
with Kafka Streams' record cache.
"""

from __future__ import annotations

import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Generator, Iterable, Iterator
from heapq import merge
from operator import itemgetter
from typing import NamedTuple, Protocol

from statestore.bytestore.protocol import ByteStore, Change, Pair
from statestore.errors import StoreClosedError


class RecordContext(Protocol):
    """What a store needs to know of the record that is being processed."""

    @property
    def timestamp_ms(self) -> int:
        """The record's timestamp, in milliseconds since the epoch."""
        ...

    @property
    def header_bytes(self) -> bytes:
        """The record's headers in KIP-1271's encoding; empty for none."""
        ...


class Tombstone(NamedTuple):
    """A delete, with the timestamp and headers of the record that caused it: what its changelog record carries."""

    timestamp_ms: int
    header_bytes: bytes


class WriteSet:
    """A ByteStore whose writes stay in memory, over `committed`, which is never written to."""

    def __init__(self, committed: ByteStore, context: RecordContext) -> None:
        self.name = committed.name
        self.changes: dict[bytes, bytes | Tombstone] = {}
        """The last write of each key: its stored bytes, or the tombstone that deleted it."""
        self._committed = committed
        self._context = context
        # In key order, kept only once a range was asked for: most batches never ask.
        self._ordered_keys: list[bytes] | None = None
        self._scans: weakref.WeakSet[Generator[Pair, None, None]] = weakref.WeakSet()
        self._closed = False

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        if self._closed:
            raise StoreClosedError(self.name)
        value = self.changes.get(key)
        if value is None:
            return self._committed.get(key)
        return value if type(value) is bytes else None

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it, with the context of the record that is being processed."""
        if self._closed:
            raise StoreClosedError(self.name)
        if self._ordered_keys is not None and key not in self.changes:
            insort(self._ordered_keys, key)
        if value is None:
            self.changes[key] = Tombstone(self._context.timestamp_ms, self._context.header_bytes)
        else:
            self.changes[key] = value

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key."""
        for key, value in changes:
            self.put(key, value)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        if self._closed:
            raise StoreClosedError(self.name)
        if self._ordered_keys is None:
            self._ordered_keys = sorted(self.changes)
        keys = self._ordered_keys
        low = 0 if start is None else bisect_left(keys, start)
        high = len(keys) if end is None else bisect_right(keys, end)
        pending = [(key, self.changes[key]) for key in keys[low:high]]
        committed = self._committed.range(start, end, reverse=reverse)
        if not pending:
            return committed
        scan = _merged(pending[::-1] if reverse else pending, committed, reverse)
        self._scans.add(scan)
        return scan

    def approximate_num_entries(self) -> int:
        """Return the committed estimate plus this batch's puts less its deletes, at least 0.

        A key that is overwritten counts twice until the batch is committed, as in RocksDB until it is compacted.
        """
        if self._closed:
            raise StoreClosedError(self.name)
        deletes = sum(type(value) is Tombstone for value in self.changes.values())
        return max(0, self._committed.approximate_num_entries() + len(self.changes) - 2 * deletes)

    def close(self) -> None:
        """Close the store and its iterators; the committed store is its owner's to close."""
        self._closed = True
        for scan in list(self._scans):
            scan.close()


def _merged(
    pending: list[tuple[bytes, bytes | Tombstone]], committed: Iterator[Pair], reverse: bool
) -> Generator[Pair, None, None]:
    """Merge two sorted runs of pairs; on equal keys the pending write comes first, and it alone counts."""
    last: bytes | None = None
    for key, value in merge(pending, committed, key=itemgetter(0), reverse=reverse):
        if key == last:
            continue
        last = key
        if type(value) is bytes:
            yield key, value
