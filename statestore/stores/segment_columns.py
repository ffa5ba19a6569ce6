"""Windows and sessions in segments: many puts and reads at once, in columns, and the bounds of scans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.segments import MAX_SEGMENT_ID, SEGMENT_ID_SIZE, segment_prefix
from statestore.bytestore.protocol import Pair, RowChanges, takes_rows
from statestore.format.binary_columns import Integers, as_column, as_one_array, is_valid
from statestore.format.key_groups import KeyGroups
from statestore.headers.record_columns import RecordColumns
from statestore.stores.readable_store import SegmentedParts


def times_of(name: str, times: Any, rows: int) -> Integers:
    """Return a column of times in ms, one of 0 or more for each row, as numbers. Raises TypeError and ValueError."""
    column = as_column(times, name)
    if not pa.types.is_integer(column.type):
        raise TypeError(f"{name} must be a column of whole numbers, got {column.type}")
    if len(column) != rows or column.null_count:
        raise ValueError(f"{name} needs one time for each of {rows} rows, got {len(column) - column.null_count}")
    numbers: Integers = column.cast(pa.int64()).to_numpy()
    if rows and numbers.min() < 0:
        raise ValueError(f"{name} must be 0 to 2^63 - 1 (milliseconds since 1970), got {numbers.min()}")
    return numbers


def get_segmented(parts: SegmentedParts, keys: pa.BinaryArray, times_ms: Integers) -> pa.BinaryArray:
    """Return what is stored under logged keys of these times; null for nothing, and for what is no longer visible."""
    visible = times_ms >= parts.segments.first_visible_ms
    groups = KeyGroups(layout_of(parts.spec).physical_keys(keys.filter(pa.array(visible))))
    found = parts.stack.top.get_many(groups.keys.to_pylist())
    places = np.full(len(keys), -1, np.int64)
    places[visible] = groups.codes
    stored = as_one_array(pa.array(found, pa.binary()), "stored values")
    return stored.take(pa.array(places, mask=places < 0))


def scan_segmented(
    parts: SegmentedParts, keys: Sequence[bytes], bounds: Sequence[tuple[bytes, bytes]], first_ids: Integers
) -> tuple[Integers, pa.BinaryArray, pa.BinaryArray]:
    """Return the entries of each plain key: the place of the key, the logged key, and what is stored.

    `bounds` has first and last of what stands behind each key, `first_ids` the segment of its first time. Entries come
    in order of the keys' places, then segment by segment.
    """
    segments = parts.segments
    size = SEGMENT_ID_SIZE + layout_of(parts.spec).suffix_size
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64)
    places: list[int] = []
    found: list[Pair] = []
    for segment_id in segments.ids(max(int(first_ids.min(initial=MAX_SEGMENT_ID)), segments.first_live)):
        prefix = segment_prefix(segment_id)
        asked = order[first_ids[order] <= segment_id].tolist()
        plain = [prefix + keys[place] for place in asked]
        ranges = [(key + bounds[place][0], key + bounds[place][1]) for place, key in zip(asked, plain, strict=True)]
        for place, pairs in zip(asked, parts.stack.top.range_many(ranges), strict=True):
            # Between the first and the last time of a key, longer keys may stand, too.
            of_key = [pair for pair in pairs if len(pair[0]) == size + len(keys[place])]
            places += [place] * len(of_key)
            found += of_key
    rows = np.argsort(places, kind="stable")
    logged = pa.array([key[SEGMENT_ID_SIZE:] for key, _ in found], pa.binary())
    stored = pa.array([stored for _, stored in found], pa.binary())
    return np.array(places, np.int64)[rows], logged.take(pa.array(rows)), stored.take(pa.array(rows))


def put_segmented(
    parts: SegmentedParts, keys: pa.BinaryArray, times_ms: Integers, stored: pa.BinaryArray, records: RecordColumns
) -> bool:
    """Put `stored` under logged keys, null deletes; return False, with nothing put, if a layer has to see each."""
    store, segments = parts.stack.top, parts.segments
    if not len(keys) or not takes_rows(store):
        return False
    places = layout_of(parts.spec).physical_keys(keys)
    store.write_rows(RowChanges(places, stored, records, logged_keys=keys, times_ms=times_ms))
    segments.advance(int(times_ms.max()))
    for segment_id in np.unique(segments.ids_of(times_ms[is_valid(stored)])).tolist():
        segments.note_use(segment_id)
    return True


def upper_bound(key: bytes, suffix: bytes) -> bytes:
    """Return a bound of all keys up to `key`, each followed by at most `suffix`.

    A shorter key, followed by its time, can sort behind a longer one that it begins: `k` and its time behind `k 00`
    and its time. So each beginning of `key` is a candidate where `suffix` is greater than what follows there.
    """
    size, shortest = len(suffix), len(key)
    for length in reversed(range(len(key))):
        if key[length] <= suffix[0] and suffix > key[length : min(shortest, length + size + 1)] + suffix:
            shortest = length
    return key[:shortest] + suffix
