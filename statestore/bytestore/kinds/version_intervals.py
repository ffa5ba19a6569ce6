"""What the rows of a versioned store say of its keys: versions and tombstones, each with the time until it is valid."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from statestore.bytestore.engines.scans import pairs_with_prefix
from statestore.bytestore.kinds.segments import LATEST_SEGMENT, SEGMENT_ID_SIZE, Segments, is_latest_key, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.format.values.versioned_row import decode_latest_row, decode_segment_row


class Interval(NamedTuple):
    """A version or a tombstone, and until when it is valid; None for the latest version."""

    valid_from_ms: int
    valid_to_ms: int | None
    stored: bytes | None


_interval: Final[Callable[[tuple[int, int | None, bytes | None]], Interval]] = partial(tuple.__new__, Interval)
"""Makes one of a tuple of its fields, in a third of the time that a call of Interval takes."""


def row_intervals(key: bytes, row: bytes) -> list[Interval]:
    """Return what the row under a store's key says of a key, newest first. Raises FormatError if it is not one."""
    if is_latest_key(key):
        valid_from_ms, value = decode_latest_row(row)
        return [_interval((valid_from_ms, None, value))]
    found = decode_segment_row(row).intervals()
    return [_interval((version.valid_from_ms, valid_to_ms, version.value)) for version, valid_to_ms in found]


def intervals_by_key(spec: StoreSpec, store: ByteStore) -> Iterator[tuple[bytes, list[Interval]]]:
    """Yield each key of a versioned store, in order, with its versions and tombstones, oldest first.

    Raises FormatError for bytes that are no rows of versions.
    """
    ids = [*Segments(store, *spec.retention).ids(), LATEST_SEGMENT]
    # Each segment is in the order of its keys, so that all rows of a key come together.
    rows = merge(*(_rows_of_segment(store, segment_id) for segment_id in ids), key=itemgetter(0))
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


def _rows_of_segment(store: ByteStore, segment_id: int) -> Iterator[tuple[bytes, list[Interval]]]:
    for key, row in pairs_with_prefix(store, segment_prefix(segment_id)):
        yield key[SEGMENT_ID_SIZE:], row_intervals(key, row)
