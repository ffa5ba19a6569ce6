"""Entries of a store, whatever its kind, for readers without serdes and topology: the data source and the tools.

Bounds only say what need not be read: the entries must still be checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, NamedTuple

import pyarrow as pa

from statestore.bytestore.engines.scans import pairs_with_prefix
from statestore.bytestore.kinds.kind_layout import KindLayout, Times, layout_of
from statestore.bytestore.kinds.segments import Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore, Pair
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_columns import split_stored_columns
from statestore.format.values.stored_value import split_stored

ALL_TIMES: Final[Times] = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class EntryBounds:
    """What is true of all entries that are asked for. Times are milliseconds since the epoch, both ends inclusive."""

    keys: Sequence[bytes] | None = None  # the only keys, in the order in which they are read; None is any
    prefix: bytes = b""  # what all keys begin with
    first_key: bytes | None = None
    """The first key, inclusive. Used where keys are in order: in stores without segments, and without `prefix`."""
    last_key: bytes | None = None
    starts_ms: Times = ALL_TIMES  # between which times windows and sessions start, or from when versions are valid
    ends_ms: Times = ALL_TIMES  # between which times windows and sessions end, or until when versions are valid
    ended: bool = False  # whether all have an end, unlike the latest version of a key


class SegmentEnd(Enum):
    """Where a segment of a store ends, which begins at its id times the segment interval."""

    INTERVAL = auto()  # after the store's segment interval
    UNTIL_NEXT = auto()  # where the next segment begins: if only the beginnings are known
    UNKNOWN = auto()  # neither the end nor the beginning is known: all segments are read


def segment_prefixes(
    layout: KindLayout, store: ByteStore, bounds: EntryBounds, segment_end: SegmentEnd = SegmentEnd.INTERVAL
) -> list[bytes]:
    """Return the key prefixes of segments that may hold entries within `bounds`, in order; b"" without segments."""
    if not layout.spec.kind.is_segmented:
        return [b""]
    return list(map(segment_prefix, _segment_ids(layout, store, bounds, segment_end)))


def pairs_in_segment(layout: KindLayout, store: ByteStore, segment: bytes, bounds: EntryBounds) -> Iterable[Pair]:
    """Return the pairs of a segment that may hold entries within `bounds`, in order, or as keys are listed."""
    if bounds.keys is not None:
        return (pair for key in bounds.keys for pair in layout.pairs_of_key(store, segment, key))
    if segment or bounds.prefix:
        return pairs_with_prefix(store, segment + bounds.prefix)
    return store.range(bounds.first_key, bounds.last_key)


def _segment_ids(layout: KindLayout, store: ByteStore, bounds: EntryBounds, segment_end: SegmentEnd) -> list[int]:
    first_ms, last_ms = layout.segment_times(bounds.starts_ms, bounds.ends_ms)
    _, interval_ms = layout.spec.retention
    segments = Segments(store, *layout.spec.retention)
    if segment_end is SegmentEnd.INTERVAL:
        ids = segments.ids(max(0, first_ms) // interval_ms, last_ms // interval_ms)
    else:
        ids = segments.ids()
    if segment_end is SegmentEnd.UNTIL_NEXT:
        ids = [
            segment_id
            for segment_id, next_id in zip(ids, [*ids, None][1:], strict=True)
            if segment_id * interval_ms <= last_ms and (next_id is None or first_ms < next_id * interval_ms)
        ]
    if layout.unended_segment is not None and not bounds.ended:
        ids.append(layout.unended_segment)
    return ids


KEY_FIELD: Final = pa.field("key", pa.binary())
VALUE_FIELD: Final = pa.field("value", pa.binary())
TIMESTAMP_FIELD: Final = pa.field("timestamp_ms", pa.int64())
HEADERS_FIELD: Final = pa.field("headers", HEADERS_TYPE)
START_FIELD: Final = pa.field("start_ms", pa.int64())
"""Of the window or session, or from when a version is valid; null for key-value stores."""
END_FIELD: Final = pa.field("end_ms", pa.int64())
"""Of the window, exclusive, or of the session, inclusive, or until when a version is valid; null if there is none."""
ENTRY_FIELDS: Final = (KEY_FIELD, VALUE_FIELD, TIMESTAMP_FIELD, HEADERS_FIELD, START_FIELD, END_FIELD)


def stored_columns(
    store_format: StoreFormat, stored: pa.BinaryArray
) -> tuple[pa.BinaryArray, pa.Int64Array, pa.BinaryArray]:
    """Return values, timestamps in ms and header bytes; null where there is none. Raises FormatError."""
    value, timestamps_ms, header_bytes = split_stored_columns(store_format, stored)
    none = pa.nulls(len(stored))
    return (
        value,
        none.cast(pa.int64()) if timestamps_ms is None else timestamps_ms,
        none.cast(pa.binary()) if header_bytes is None else header_bytes,
    )


class StoredEntry(NamedTuple):
    """An entry, also of a window or session, or a version; None for a time or part that it lacks, or no end yet."""

    key: bytes
    start_ms: int | None
    end_ms: int | None
    value: bytes
    timestamp_ms: int | None
    header_bytes: bytes | None


def stored_entries(spec: StoreSpec, store: ByteStore) -> Iterator[StoredEntry]:
    """Yield all entries of a store in the order of its bytes, without tombstones of versions. Raises FormatError."""
    for key, start_ms, end_ms, stored in layout_of(spec).entries(store.range(None, None)):
        yield StoredEntry(key, start_ms, end_ms, *split_stored(spec.format, stored))
