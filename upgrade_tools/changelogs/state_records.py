"""The entries of a store as the records that its changelog needs, and the differences between log and store.

A record carries the timestamp and the headers of its value. Where a value has no timestamp, because the store keeps
none or it was not known when the value was upgraded, that of the record is

    window       when the window starts
    session      when the session ends
    key-value    EARLIEST_SENT_MS

and it also replaces a timestamp of 0 or less, which the client does not send. So old windows look old to the topic's
retention, and a key-value store that is restored with timestamps takes any later record for newer. A version from 0 on
begins at 1, unless the key has a version from 1 on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import chain, groupby, pairwise
from operator import itemgetter
from typing import Final, NamedTuple

from statestore.bytestore.kinds.kind_layout import KindLayout, layout_of
from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.recovery.commit.changelog import ChangelogRecord, changelog_record
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes

EARLIEST_SENT_MS: Final = 1
"""The earliest timestamp that the client sends as it is."""


class StoreRecords:
    """The records that restore what is in a store, in its order; of a versioned store key by key, oldest first.

    The store may be in several parts, each with keys of its own. What has expired by the store's own time is left out:
    it would not be restored. `stream_time_ms` is that time, -1 if it is not recorded. Can be iterated repeatedly.
    Iterating raises FormatError for bytes that are not of the store's kind and format.
    """

    def __init__(self, spec: StoreSpec, stores: Sequence[ByteStore], stream_time_ms: int) -> None:
        self.spec = spec
        self.layout = layout_of(spec)
        self.stream_time_ms = stream_time_ms
        self.first_visible_ms = 0
        """The first time of windows and sessions, and of the ends of versions, that reads show."""
        self._stores = stores
        if spec.kind.is_segmented:
            if stream_time_ms < 0:
                writes = chain.from_iterable(map(self._writes, stores))
                times_ms = (self.layout.put_time_ms(key, from_ms) for key, _, from_ms in writes)
                self.stream_time_ms = max(times_ms, default=-1)
            # Segments are dropped in memory; the stores themselves are not changed.
            self._stores = [WriteSet(store) for store in stores]
            for store in self._stores:
                segments = Segments(store, *spec.retention)
                segments.advance(self.stream_time_ms)
                self.first_visible_ms = segments.first_visible_ms

    def __iter__(self) -> Iterator[ChangelogRecord]:
        read = self._versions if self.layout.keeps_versions else self._entries
        if len(self._stores) == 1:
            return read(self._stores[0])
        return merge(*map(read, self._stores), key=partial(_place, self.layout))

    def shows(self, record: ChangelogRecord) -> bool:
        """Return whether reads show a window or session; hidden ones are deleted with their whole segment."""
        return self.layout.put_time_ms(record.key) >= self.first_visible_ms

    def _entries(self, store: ByteStore) -> Iterator[ChangelogRecord]:
        spec = self.spec
        for key, stored, _ in self._writes(store):
            record = changelog_record(spec.format, key, stored, -1)
            yield record if record.timestamp_ms > 0 else record._replace(timestamp_ms=_stand_in_ms(self.layout, key))

    def _versions(self, store: ByteStore) -> Iterator[ChangelogRecord]:
        records = (
            changelog_record(self.spec.format, key, stored, valid_from_ms or 0)
            for key, stored, valid_from_ms in self._writes(store)
        )
        # Those of a key are in order of time.
        for record, following in pairwise(chain(records, (None,))):
            assert record is not None  # that comes last
            stand_in = record._replace(timestamp_ms=EARLIEST_SENT_MS)
            yield record if record.timestamp_ms > 0 or _is_version(following, stand_in) else stand_in

    def _writes(self, store: ByteStore) -> Iterator[LogicalWrite]:
        for writes in logical_writes(self.spec, store, self.stream_time_ms):
            yield from writes


class RecordDifference(NamedTuple):
    """The different records of a key in the state and in the log: one, none, or its versions."""

    key: bytes
    in_state: list[ChangelogRecord]
    in_log: list[ChangelogRecord]


def differences(
    spec: StoreSpec, state: Iterable[ChangelogRecord], log: Iterable[ChangelogRecord]
) -> Iterator[RecordDifference]:
    """Yield the keys whose records are not the same; both are in the order of the store, and so is what comes out."""
    tagged = merge(_tagged(spec, log, 0), _tagged(spec, state, 1), key=itemgetter(0, 1))
    for _, entries in groupby(tagged, key=itemgetter(0)):
        found: tuple[list[ChangelogRecord], list[ChangelogRecord]] = ([], [])
        for _, where, record in entries:
            found[where].append(record)
        in_log, in_state = found
        if in_state != in_log:
            yield RecordDifference((in_state or in_log)[0].key, in_state, in_log)


def missing_records(spec: StoreSpec, found: Iterable[RecordDifference]) -> Iterator[ChangelogRecord]:
    """Yield what the log lacks: records of the state, and tombstones for what the state does not have.

    Versions can't be deleted, so those that are only in the log are left out.
    """
    layout = layout_of(spec)
    for key, in_state, _ in found:
        yield from in_state
        if not in_state and not layout.keeps_versions:
            yield ChangelogRecord(key, None, _stand_in_ms(layout, key), b"")


def _tagged(
    spec: StoreSpec, records: Iterable[ChangelogRecord], where: int
) -> Iterator[tuple[bytes, int, ChangelogRecord]]:
    layout = layout_of(spec)
    for record in records:
        yield _place(layout, record), where, record


def _place(layout: KindLayout, record: ChangelogRecord) -> bytes:
    """Return what records are in the order of, as in a store."""
    return record.key if layout.keeps_versions else layout.physical_key(record.key)


def _is_version(record: ChangelogRecord | None, of: ChangelogRecord) -> bool:
    """Return whether a record is a version of the same key and time."""
    return record is not None and (record.key, record.timestamp_ms) == (of.key, of.timestamp_ms)


def _stand_in_ms(layout: KindLayout, key: bytes) -> int:
    """Return the timestamp for a record whose value has none."""
    return max(layout.put_time_ms(key), EARLIEST_SENT_MS)
