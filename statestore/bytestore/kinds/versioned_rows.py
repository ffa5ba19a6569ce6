"""The versions of keys, as rows of bytes on any byte store. Source: RocksDBVersionedStore of Kafka Streams.

The latest version of a key is in a row of its own. When a newer one comes, it moves to the row of its key in the
segment of the time at which it ceased to be valid. All rows that one put changes are written at once. Readers without
segments get each `Interval` in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from statestore.bytestore.engines.scans import pairs_with_prefix
from statestore.bytestore.kinds.segments import LATEST_SEGMENT, SEGMENT_ID_SIZE, Segments, is_latest_key, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, Change, Pair
from statestore.errors import FormatError, StoreError
from statestore.errors.readable import key_digest
from statestore.format.values.versioned_row import (
    SegmentRow,
    Version,
    decode_latest_row,
    decode_segment_row,
    encode_latest_row,
    encode_segment_row,
    latest_start_ms,
    make_version,
)

NOT_PUT: Final = -(2**63)  # what `put` returns for a version older than the history that is kept: it was not stored
VALID_TO_UNDEFINED: Final = -1  # what `put` returns for a version that is now the latest

_LATEST_PREFIX: Final = segment_prefix(LATEST_SEGMENT)


class FoundVersion(NamedTuple):
    """A version, and when it ceased to be valid, in ms; None for the latest."""

    value: bytes
    valid_from_ms: int
    valid_to_ms: int | None


class VersionedRows:
    """Versioned keys on `inner`, which `segments` divides. History and grace period are the segments' retention."""

    def __init__(self, inner: ByteStore, segments: Segments) -> None:
        self._inner = inner
        self._segments = segments

    def put(self, key: bytes, value: bytes | None, timestamp_ms: int) -> int:
        """Add or replace a version, None for a tombstone; return its end, VALID_TO_UNDEFINED or NOT_PUT."""
        segments = self._segments
        if timestamp_ms < segments.stream_time_ms - segments.retention_ms:
            return NOT_PUT
        segments.advance(timestamp_ms)
        changes: list[Change] = []
        try:
            valid_to_ms = self._put(changes, key, make_version((timestamp_ms, value)))
        except FormatError as cause:
            raise self._damaged(key, cause) from cause
        if len(changes) == 1:
            # A put of one row costs half as much as a write of it.
            self._inner.put(*changes[0])
        elif changes:
            self._inner.write(changes)
        return valid_to_ms

    def get(self, key: bytes) -> FoundVersion | None:
        """Return the latest version of `key`, None if it has none or was deleted."""
        latest = self._decoded_latest(key)
        return None if latest is None else FoundVersion(latest[1], latest[0], None)

    def get_as_of(self, key: bytes, time_ms: int) -> FoundVersion | None:
        """Return the version of `key` that was valid at a time, None if there was none.

        None too if the time is beyond the history that is kept, unless the latest version was valid then already.
        """
        latest = self._decoded_latest(key)
        if latest is not None and latest[0] <= time_ms:
            return FoundVersion(latest[1], latest[0], None)
        if self._too_old(time_ms):
            return None
        try:
            for _, row in self._rows(key, time_ms):
                if row.next_timestamp_ms <= time_ms:
                    return None
                if row.min_timestamp_ms <= time_ms:
                    _, (valid_from_ms, value), valid_to_ms = row.find(time_ms)
                    return None if value is None else FoundVersion(value, valid_from_ms, valid_to_ms)
        except FormatError as cause:
            raise self._damaged(key, cause) from cause
        return None

    def between(self, key: bytes, from_ms: int, to_ms: int, *, reverse: bool = False) -> Iterator[FoundVersion]:
        """Yield the versions of `key` that were valid at some time from `from_ms` to `to_ms`, both inclusive.

        Oldest first, or newest first if `reverse`. Beyond the history that is kept there is only the latest version.
        """
        found = []
        latest = self._decoded_latest(key)
        if latest is not None and latest[0] <= to_ms:
            found.append(FoundVersion(latest[1], latest[0], None))
        if not self._too_old(to_ms):
            try:
                for _, row in self._rows(key, 0):
                    found += [
                        FoundVersion(value, valid_from_ms, valid_to_ms)
                        for (valid_from_ms, value), valid_to_ms in row.intervals()
                        if value is not None and valid_from_ms <= to_ms and valid_to_ms > from_ms
                    ]
            except FormatError as cause:
                raise self._damaged(key, cause) from cause
        return iter(found if reverse else found[::-1])

    def _too_old(self, time_ms: int) -> bool:
        return time_ms < self._segments.stream_time_ms - self._segments.retention_ms

    def _decoded_latest(self, key: bytes) -> tuple[int, bytes] | None:
        row = self._inner.get(_LATEST_PREFIX + key)
        if row is None:
            return None
        try:
            return decode_latest_row(row)
        except FormatError as cause:
            raise self._damaged(key, cause) from cause

    def _row(self, key: bytes, segment_id: int) -> SegmentRow | None:
        row = self._inner.get(segment_prefix(segment_id) + key)
        return None if row is None else SegmentRow(row)

    def _damaged(self, key: bytes, cause: FormatError) -> StoreError:
        return StoreError(
            self._inner.name,
            f"a row of the key of digest {key_digest(key)} is not one of a versioned store ({cause}): the local state "
            "is damaged. Delete it, and restore the store from its changelog",
        )

    def _rows(self, key: bytes, from_ms: int) -> Iterator[tuple[int, SegmentRow]]:
        """Yield the rows of `key` in the live segments from the time `from_ms` on, the newest first."""
        for segment_id in self._segments.back_to(from_ms):
            row = self._row(key, segment_id)
            if row is not None:
                yield segment_id, row

    def _put(self, changes: list[Change], key: bytes, version: Version) -> int:
        """Add to `changes` what a put changes; return what `put` returns."""
        time_ms, value = version
        get, segments = self._inner.get, self._segments
        latest_key = _LATEST_PREFIX + key
        latest_row = get(latest_key)
        valid_to_ms: int | None = None
        if latest_row is not None:
            valid_to_ms = latest_start_ms(latest_row)
            if time_ms >= valid_to_ms:
                if time_ms > valid_to_ms:
                    self._end_version(changes, key, make_version(decode_latest_row(latest_row)), time_ms)
                changes.append((latest_key, None if value is None else encode_latest_row(time_ms, value)))
                return VALID_TO_UNDEFINED
        for segment_id in segments.back_to(time_ms):
            place = segment_prefix(segment_id) + key
            encoded = get(place)
            if encoded is None:
                continue
            row = SegmentRow(encoded)
            if row.next_timestamp_ms <= time_ms:
                break
            if row.min_timestamp_ms <= time_ms:
                # The version that it ends may belong into an older segment by now.
                keeps_ended = segments.id_of(time_ms) == segment_id
                changed, valid_to_ms, ended = row.with_version(version, keeps_ended=keeps_ended)
                if ended is not None:
                    self._end_version(changes, key, ended, time_ms)
                changes.append((place, changed))
                return valid_to_ms
            valid_to_ms = row.min_timestamp_ms
        if valid_to_ms is None:
            return self._put_as_latest(changes, key, version)
        return self._put_beside_rows(changes, key, version, valid_to_ms)

    def _put_as_latest(self, changes: list[Change], key: bytes, version: Version) -> int:
        """Put a version that nothing follows. A tombstone gets no latest row: it only ends the row of its segment."""
        time_ms, value = version
        if value is not None:
            changes.append((_LATEST_PREFIX + key, encode_latest_row(time_ms, value)))
            return VALID_TO_UNDEFINED
        segment_id = self._segments.id_of(time_ms)
        if not self._segments.is_live(segment_id):
            return NOT_PUT
        row = self._row(key, segment_id)
        if row is None:
            self._set_row(changes, key, segment_id, encode_segment_row(time_ms, [version]))
        elif row.next_timestamp_ms != time_ms:
            self._set_row(changes, key, segment_id, row.with_latest(Version(row.next_timestamp_ms, None), time_ms))
        return VALID_TO_UNDEFINED

    def _put_beside_rows(self, changes: list[Change], key: bytes, version: Version, valid_to_ms: int) -> int:
        """Put a version that no row spans, before the version that begins at `valid_to_ms`."""
        segment_id = self._segments.id_of(valid_to_ms)
        if not self._segments.is_live(segment_id):
            return NOT_PUT
        row = self._row(key, segment_id)
        if row is None:
            changed = encode_segment_row(valid_to_ms, [version])
        elif row.next_timestamp_ms <= version.valid_from_ms:
            changed = row.with_latest(version, valid_to_ms)
        else:
            changed = row.with_earliest(version)
        self._set_row(changes, key, segment_id, changed)
        return valid_to_ms

    def _end_version(self, changes: list[Change], key: bytes, version: Version, valid_to_ms: int) -> None:
        """Move a version that ceases to be valid into the segment of that time, unless that has expired."""
        segment_id = self._segments.id_of(valid_to_ms)
        if not self._segments.is_live(segment_id):
            return
        row = self._row(key, segment_id)
        changed = encode_segment_row(valid_to_ms, [version]) if row is None else row.with_latest(version, valid_to_ms)
        self._set_row(changes, key, segment_id, changed)

    def _set_row(self, changes: list[Change], key: bytes, segment_id: int, row: bytes) -> None:
        changes.append((segment_prefix(segment_id) + key, row))
        self._segments.note_use(segment_id)


class Interval(NamedTuple):
    """A version or a tombstone; it has no `valid_to_ms` if it is the latest."""

    valid_from_ms: int
    valid_to_ms: int | None
    stored: bytes | None


_interval: Final[Callable[[tuple[int, int | None, bytes | None]], Interval]] = partial(tuple.__new__, Interval)
"""Makes one of a tuple of its fields, in a third of the time of a call of Interval."""


def row_intervals(key: bytes, row: bytes) -> list[Interval]:
    """Return the intervals in the row under a store's key, newest first. Raises FormatError if it is not one."""
    if is_latest_key(key):
        valid_from_ms, value = decode_latest_row(row)
        return [_interval((valid_from_ms, None, value))]
    found = decode_segment_row(row).intervals()
    return [_interval((version.valid_from_ms, valid_to_ms, version.value)) for version, valid_to_ms in found]


def intervals_by_key(spec: StoreSpec, store: ByteStore) -> Iterator[tuple[bytes, list[Interval]]]:
    """Yield each key, in order, with its versions and tombstones, oldest first. Raises FormatError."""
    ids = [*Segments(store, *spec.retention).ids(), LATEST_SEGMENT]
    return intervals_in(pairs_with_prefix(store, segment_prefix(segment_id)) for segment_id in ids)


def intervals_in(segments: Iterable[Iterable[Pair]]) -> Iterator[tuple[bytes, list[Interval]]]:
    """Yield each key with what these pairs of each segment, in the order of keys, hold of it, oldest first."""
    rows = merge(*map(_rows, segments), key=itemgetter(0))
    for key, rows_of_key in groupby(rows, key=itemgetter(0)):
        yield key, _in_order_of_time([interval for _, row in rows_of_key for interval in row])


def intervals_of_key(spec: StoreSpec, store: ByteStore, key: bytes) -> list[Interval]:
    """Return the versions and tombstones of one key, oldest first. Raises FormatError."""
    ids = [*Segments(store, *spec.retention).ids(), LATEST_SEGMENT]
    places = [segment_prefix(segment_id) + key for segment_id in ids]
    rows = [(place, row) for place in places if (row := store.get(place)) is not None]
    return _in_order_of_time([interval for place, row in rows for interval in row_intervals(place, row)])


def _in_order_of_time(intervals: list[Interval]) -> list[Interval]:
    # Stable, and the latest version comes last of those that begin at one time.
    return sorted(intervals, key=itemgetter(0))


def _rows(pairs: Iterable[Pair]) -> Iterator[tuple[bytes, list[Interval]]]:
    for key, row in pairs:
        yield key[SEGMENT_ID_SIZE:], row_intervals(key, row)
