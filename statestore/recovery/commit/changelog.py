"""Changelog records: what a store's writes look like outside of it, and how they come back in.

    key             the store's key: of a window or session with its time, of a version the plain key
    value           the plain value, without timestamp or headers; null is a tombstone
    timestamp       of the value, if it has one; else of the record being processed; of a version its own
    headers         of the value, if it has some; of a tombstone those of the record being processed

Stores whose format has no room for headers log none. These are the records that Kafka Streams sends to its changelog
topics (ChangeLogging*BytesStore) and reads back (RecordConverters).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Final, NamedTuple, Protocol, TypeAlias, cast

from statestore.bytestore.kinds.kind_layout import LAYOUTS, layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, Change, RecordContext, RowChanges
from statestore.bytestore.write_sets.spilling import ENTRY_BYTES, PendingMemory
from statestore.bytestore.write_sets.write_set import DELETED_BYTES, Deleted, WriteSet, hold_last, last_writes
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import restore_stored, split_stored

_LOGGED_WRITE_BYTES: Final = DELETED_BYTES
"""What a HeldWrite that is not stored bytes takes beside its header bytes and the stored ones."""
_WITH_HEADERS: Final = frozenset(known for known in StoreFormat if known.has_headers)


class ChangelogRecord(NamedTuple):
    """One record of a changelog; a value of None is a tombstone. `header_bytes` is KIP-1271's encoding."""

    key: bytes
    value: bytes | None
    timestamp_ms: int
    header_bytes: bytes


HeldWrite: TypeAlias = "bytes | tuple[bytes, int, bytes] | Deleted"
"""A write as it is held: stored bytes that say all; stored bytes with the record's timestamp and headers; or a delete.

It is a tuple without a class, which the garbage collector need not traverse.
"""

ChangelogObserver: TypeAlias = "Callable[[str, Iterable[ChangelogRecord]], None]"
"""Is called with the name of a store and what a batch has written to it, which can be iterated until it returns."""


class WrittenRecords:
    """What was written to a store, for a ChangelogObserver: read again at each iteration."""

    def __init__(self, read: Callable[[], Iterator[ChangelogRecord]]) -> None:
        self._read = read

    def __iter__(self) -> Iterator[ChangelogRecord]:
        return self._read()


class Changelog(Protocol):
    """Takes down what is written to one store. Implementations inherit what all have in common."""

    def append(self, key: bytes, stored: bytes | None, context: RecordContext, timestamp_ms: int | None = None) -> None:
        """Note that `key` was set to `stored`; `timestamp_ms` is a version's own, None leaves it to value or record."""

    def read_from(self, store: ByteStore, context: RecordContext) -> WriteSet | None:
        """Return `store` if its writes are this changelog's, deletes for the record in `context`; None: append each."""
        return None

    def extend(self, changes: RowChanges) -> None:
        """Note the last write of each key, in order, each for the record in its row."""
        for (key, stored), record in zip(changes.last_logged.items(), changes.written_for(), strict=True):
            self.append(key, stored, record)

    def append_all(self, changes: Iterable[Change], context: RecordContext) -> None:
        """Note many writes in order, all for the record in `context`."""
        for key, stored in changes:
            self.append(key, stored, context)


def changelog_record(
    store_format: StoreFormat, key: bytes, stored: bytes | None, record_ms: int, header_bytes: bytes = b""
) -> ChangelogRecord:
    """Return the changelog record of a write to a store of this format, made for a record of these time and headers.

    `stored` of None is a delete. Raises FormatError for bytes of another format.
    """
    if stored is None:
        return ChangelogRecord(key, None, record_ms, header_bytes if store_format in _WITH_HEADERS else b"")
    value, timestamp_ms, own_headers = split_stored(store_format, stored)
    return ChangelogRecord(key, value, record_ms if timestamp_ms is None else timestamp_ms, own_headers or b"")


def record_sizes(records: Sequence[ChangelogRecord]) -> list[int]:
    """Return the size in bytes of each record's key, value and headers."""
    return [len(key) + len(value or b"") + len(header_bytes) for key, value, _, header_bytes in records]


def restored_changes(spec: StoreSpec, written_as: StoreFormat, records: Iterable[ChangelogRecord]) -> Iterable[Change]:
    """Yield what records change in a store without versions, now in the format of `spec`. Raises FormatError."""
    physical_key = layout_of(spec).physical_key
    for key, value, timestamp_ms, header_bytes in records:
        yield physical_key(key), restore_stored(written_as, spec.format, value, timestamp_ms, header_bytes)


class LastWrites(Changelog):
    """A changelog that keeps the last write of each key, in the order of the writes.

    In formats with timestamps, a stored value holds all that its record needs. So the write set `written` of such a
    store, if its keys are those of the changelog, can be its changelog: one dict for both, once `read_from` is called.
    """

    def __init__(self, spec: StoreSpec, pending: PendingMemory | None = None, written: WriteSet | None = None) -> None:
        self.spec = spec
        self.writes: dict[bytes, HeldWrite] = {}
        self._complete = spec.format.has_timestamp
        self._with_headers = spec.format.has_headers
        self._pending = pending or PendingMemory()
        self._written = written if self._complete and not spec.kind.is_segmented else None
        self._is_written = False

    def read_from(self, store: ByteStore, context: RecordContext) -> WriteSet | None:
        """Return `store` if its writes are this changelog's, deletes for the record in `context`; None: append each."""
        written = self._written
        if written is None or store is not written or (self.writes and not self._is_written):
            return None
        written.deleted_for = context
        self.writes = written.changes  # type: ignore[assignment]  # it has some kinds of HeldWrite only
        self._is_written = True
        return written

    def append(self, key: bytes, stored: bytes | None, context: RecordContext, timestamp_ms: int | None = None) -> None:
        """Note that `key` was set to `stored`, or deleted if that is None, for the record in `context`."""
        self.writes.pop(key, None)
        if stored is not None and self._complete:
            self.writes[key] = stored
        else:
            header_bytes = context.header_bytes if self._with_headers else b""
            self.writes[key] = (
                Deleted(context.timestamp_ms, header_bytes)
                if stored is None
                else (stored, context.timestamp_ms, header_bytes)
            )
            self._pending.written_bytes += len(header_bytes) + _LOGGED_WRITE_BYTES

    def append_all(self, changes: Iterable[Change], context: RecordContext) -> None:
        """Note many writes in order, all for the record in `context`."""
        timestamp_ms, header_bytes = context.timestamp_ms, context.header_bytes if self._with_headers else b""
        deleted, is_complete = Deleted(timestamp_ms, header_bytes), self._complete
        written: dict[bytes, HeldWrite] = last_writes(
            [
                (key, deleted if stored is None else stored if is_complete else (stored, timestamp_ms, header_bytes))
                for key, stored in changes
            ]
        )
        hold_last(self.writes, written)
        self._pending.written_bytes += (len(header_bytes) + _LOGGED_WRITE_BYTES) * len(written)

    def extend(self, changes: RowChanges) -> None:
        """Note the last write of each key, in order, each for the record in its row."""
        last, is_complete = changes.last_logged, self._complete
        if is_complete and None not in last.values():
            hold_last(self.writes, cast("Mapping[bytes, HeldWrite]", last))
            return
        times_ms = changes.of_last(changes.records.timestamp_ms)
        headers = changes.of_last(changes.records.headers) if self._with_headers else repeat(b"", len(last))
        written: dict[bytes, HeldWrite] = {}
        header_bytes = 0
        for (key, stored), time_ms, of_record in zip(last.items(), times_ms, headers, strict=True):
            header_bytes += len(of_record)
            if stored is None:
                written[key] = Deleted(time_ms, of_record)
            else:
                written[key] = stored if is_complete else (stored, time_ms, of_record)
        hold_last(self.writes, written)
        self._pending.written_bytes += header_bytes + _LOGGED_WRITE_BYTES * len(written)

    def __len__(self) -> int:
        return len(self.writes)

    def __iter__(self) -> Iterator[ChangelogRecord]:
        for key, write in self.writes.items():
            logged = (write, 0) if isinstance(write, bytes) else (None, *write) if isinstance(write, Deleted) else write
            yield changelog_record(self.spec.format, key, *logged)

    def records(self) -> list[ChangelogRecord]:
        """Return the changelog records that are held."""
        return list(self)

    def clear(self) -> None:
        """Forget all records, but for those of a write set, which clears them itself."""
        if not self._is_written:
            self.writes.clear()

    def held_bytes(self) -> int:
        """Return about how much memory the records take beside the write set."""
        if self._is_written:
            return 0
        headers = [len(write[-1]) for write in self.writes.values() if not isinstance(write, bytes)]
        return sum(headers) + _LOGGED_WRITE_BYTES * len(headers)


class EveryWrite(Changelog):
    """A changelog that keeps every write in order: versions depend on those that were put before."""

    def __init__(self, spec: StoreSpec, pending: PendingMemory | None = None) -> None:
        self.spec = spec
        # As they were written: to make records of them here would take five times as long.
        self._writes: list[tuple[bytes, tuple[bytes | None, int, bytes]]] = []
        self._pending = pending or PendingMemory()
        self._held_bytes = 0

    def append(self, key: bytes, stored: bytes | None, context: RecordContext, timestamp_ms: int | None = None) -> None:
        """Note that `key` was set to `stored`, or deleted if that is None, for the record in `context`."""
        time_ms = context.timestamp_ms if timestamp_ms is None else timestamp_ms
        header_bytes = context.header_bytes if stored is None else b""
        self._writes.append((key, (stored, time_ms, header_bytes)))
        size = len(key) + len(stored or header_bytes) + ENTRY_BYTES
        self._held_bytes += size
        self._pending.written_bytes += size

    def __len__(self) -> int:
        return len(self._writes)

    def __iter__(self) -> Iterator[ChangelogRecord]:
        for key, write in self._writes:
            yield changelog_record(self.spec.format, key, *write)

    def records(self) -> list[ChangelogRecord]:
        """Return the changelog records that are held, in the order of the writes."""
        return list(self)

    def clear(self) -> None:
        """Forget all records."""
        self._writes.clear()
        self._held_bytes = 0

    def held_bytes(self) -> int:
        """Return about how much memory the records take."""
        return self._held_bytes


BatchChangelog = LastWrites | EveryWrite


def batch_changelog(
    spec: StoreSpec, pending: PendingMemory | None = None, written: WriteSet | None = None
) -> BatchChangelog:
    """Return the changelog of a batch, counted in `pending`; `written` is the store's write set, which it may read."""
    if LAYOUTS[spec.kind].keeps_versions:
        return EveryWrite(spec, pending)
    return LastWrites(spec, pending, written)
