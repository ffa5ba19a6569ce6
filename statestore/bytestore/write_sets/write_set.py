"""Uncommitted writes over a byte store that is left as it is.

A shard's local database only ever holds committed versions. Of several writes to a key the last one counts.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.engines.scans import KeyOrder, ScannedStore
from statestore.bytestore.protocol import ByteStore, Change, NoRecord, Pair, Range, RecordContext, RowChanges
from statestore.errors.state import StoreClosedError


class Deleted(NamedTuple):
    """The value of a deleted key in a write set, with the timestamp and headers of the record that caused it."""

    timestamp_ms: int
    header_bytes: bytes


DELETED: Final = Deleted(NoRecord.timestamp_ms, NoRecord.header_bytes)  # what was deleted for no record
DELETED_BYTES: Final = 200
"""What a Deleted takes beside its header bytes: the tuple, its timestamp and a bytes object."""


class WriteSet(ScannedStore):
    """A ByteStore whose writes stay in memory, over `committed`, which is never written to, nor closed."""

    def __init__(self, committed: ByteStore) -> None:
        super().__init__(committed.name)
        self.changes: dict[bytes, bytes | Deleted] = {}  # the last write of each key, in their order
        self.deleted_for: RecordContext | None = None
        """The record that keys are deleted for from now on; None if it is not needed."""
        self.inner = committed
        self._order = KeyOrder(self.changes)
        self._floor = b""  # committed keys below it count as deleted
        self._committed_end: bytes | None = None
        """The last committed key, b"" if there is none; None until it is looked up."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of `key`, None if it has none."""
        if self._closed:
            raise StoreClosedError(self.name)
        value = self.changes.get(key)
        if value is None:
            return self.inner.get(key) if key >= self._floor else None
        return None if value.__class__ is Deleted else value  # type: ignore[return-value]

    def get_many(self, keys: Sequence[bytes]) -> list[bytes | None]:
        """Return the value of each key, None for those that have none."""
        if self._closed:
            raise StoreClosedError(self.name)
        floor = self._floor
        if not self.changes and not floor:
            return self.inner.get_many(keys)
        written = [*map(self.changes.get, keys)]
        missing = [key for key, value in zip(keys, written, strict=True) if value is None and key >= floor]
        committed = iter(self.inner.get_many(missing) if missing else ())
        # What `_stored` does, without a call for each.
        return [
            (next(committed) if key >= floor else None)
            if value is None
            else (None if value.__class__ is Deleted else value)  # type: ignore[misc]
            for key, value in zip(keys, written, strict=True)
        ]

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set the value of `key`; None deletes it."""
        if self._closed:
            raise StoreClosedError(self.name)
        if self._order.is_kept:
            self._order.expect(key)
        self.changes.pop(key, None)
        self.changes[key] = self._delete() if value is None else value

    def write(self, changes: Iterable[Change]) -> None:
        """Apply all changes in order, a value of None deleting its key."""
        for key, value in changes:
            self.put(key, value)

    takes_rows = True

    def write_rows(self, changes: RowChanges) -> None:
        """Set the last value of each key, null deleting it for the record in its row."""
        before = self.deleted_for
        if before is None or not changes.values.null_count:
            self.write(changes.last.items())
            return
        try:
            for (key, value), record in zip(changes.last.items(), changes.written_for(), strict=True):
                self.deleted_for = record
                self.put(key, value)
        finally:
            self.deleted_for = before

    def delete_below(self, end: bytes) -> None:
        """Delete every key below `end`."""
        self._require_open()
        for key in self._order.remove_below(end):
            del self.changes[key]
        self._floor = max(self._floor, end)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        """Yield pairs in key order (descending if `reverse`), both ends inclusive, None = open, as of the call."""
        self._require_open()
        pending = self._order.pairs(start, end, reverse=reverse)
        committed_start = max(start or b"", self._floor) if self._floor else start
        if committed_start is not None and committed_start > self._last_committed():
            # So are most scans of stores in order of time: only the batch has written about its time.
            puts = ((key, value) for key, value in pending if value.__class__ is not Deleted)
            return self._hand_out(puts) if pending else iter(())  # type: ignore[arg-type]
        committed = self.inner.range(committed_start, end, reverse=reverse)
        if not pending:
            return committed
        return self._hand_out(merge_pairs(pending, committed, reverse))

    def range_many(self, ranges: Sequence[Range]) -> list[list[Pair]]:
        """Return the pairs of each range, in key order."""
        self._require_open()
        floor, changes, between = self._floor, self.changes, self._order.between
        asked = [(max(start, floor), end) for start, end in ranges] if floor else ranges
        last = self._last_committed()
        places = [place for place, (start, _) in enumerate(asked) if start <= last]
        committed: list[list[Pair]] = [[] for _ in ranges]
        found = self.inner.range_many([asked[place] for place in places]) if places else ()
        for place, pairs in zip(places, found, strict=True):
            committed[place] = pairs
        if not changes:
            return committed
        written = [[(key, changes[key]) for key in between(start, end)] for start, end in ranges]
        return [
            list(merge_pairs(pending, iter(found), reverse=False)) if pending else found
            for pending, found in zip(written, committed, strict=True)
        ]

    def beside(self, name: str) -> WriteSet:
        """Return an empty write set over nothing, which takes no more memory than this one may."""
        return WriteSet(MemoryByteStore(name))

    def pending_puts(self) -> Iterator[Pair]:
        """Yield the keys that have a pending value, in no order."""
        return ((key, value) for key, value in self.changes.items() if isinstance(value, bytes))

    @property
    def is_changed(self) -> bool:
        """Whether any changes are pending."""
        return bool(self.changes) or bool(self._floor)

    def apply_to(self, store: ByteStore) -> None:
        """Make in `store` the changes that are pending here; they stay pending."""
        if self._floor:
            store.delete_below(self._floor)
        if len(self.changes) == 1:
            # A batch of one record mostly writes one key: a put costs half as much as a write.
            ((key, value),) = self.changes.items()
            store.put(key, _stored(value))
            return
        store.write((key, _stored(value)) for key, value in self.changes.items())

    def clear(self) -> None:
        """Forget the changes that are pending: what is committed shows again."""
        self._order.forget()
        self.changes.clear()
        self._floor = b""
        self._committed_end = None

    def approximate_num_entries(self) -> int:
        """Return the committed estimate plus puts less deletes, at least 0; what is overwritten counts twice."""
        self._require_open()
        deletes = list(map(type, self.changes.values())).count(Deleted)
        return max(0, self.inner.approximate_num_entries() + len(self.changes) - 2 * deletes)

    def approximate_size_bytes(self) -> int:
        """Return how much room the committed entries take, without what this batch writes."""
        self._require_open()
        return self.inner.approximate_size_bytes()

    def _last_committed(self) -> bytes:
        """Return the last key that is committed, b"" if there is none: nothing is written there before a `clear`."""
        if self._committed_end is None:
            self._committed_end = next(self.inner.range(None, None, reverse=True), (b"", b""))[0]
        return self._committed_end

    def _delete(self) -> Deleted:
        """Return what stands for a value that is deleted now."""
        record = self.deleted_for
        return DELETED if record is None else Deleted(record.timestamp_ms, record.header_bytes)


def merge_pairs(
    pending: Iterable[tuple[bytes, bytes | Deleted]], committed: Iterator[Pair], reverse: bool
) -> Generator[Pair, None, None]:
    """Merge two sorted runs of pairs; on equal keys the pending write alone counts."""
    pair = next(committed, None)
    for key, value in pending:
        while pair is not None and (pair[0] > key if reverse else pair[0] < key):
            yield pair
            pair = next(committed, None)
        if pair is not None and pair[0] == key:
            pair = next(committed, None)
        if value.__class__ is not Deleted:
            yield key, value  # type: ignore[misc]
    if pair is not None:
        yield pair
        yield from committed


def _stored(value: bytes | Deleted) -> bytes | None:
    return None if value.__class__ is Deleted else value  # type: ignore[return-value]


T = TypeVar("T")


def last_writes(writes: Collection[tuple[bytes, T]]) -> dict[bytes, T]:
    """Return the last write of each key, in their order."""
    held = dict(writes)
    if len(held) < len(writes):
        held = {}
        for key, write in writes:
            held.pop(key, None)
            held[key] = write
    return held


def hold_last(held: dict[bytes, T], writes: Mapping[bytes, T]) -> None:
    """Add writes of different keys to those that are held; they are the last ones then."""
    if held:
        for key in writes.keys() & held.keys():
            del held[key]
    held.update(writes)
