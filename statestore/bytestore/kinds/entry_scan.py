"""Reads of a store the pairs that may hold what is asked for, and as little else as its layout allows.

For readers that have no serdes and no topology: the data source and the tools. What the pairs hold is still to be
looked at, entry by entry or as columns: bounds only say what need not be read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from statestore.bytestore.engines.scans import pairs_with_prefix
from statestore.bytestore.kinds.kind_layout import KindLayout, Times
from statestore.bytestore.kinds.segments import Segments, segment_prefix
from statestore.bytestore.protocol import ByteStore, Pair

ALL_TIMES: Final[Times] = (-(2**63), 2**63 - 1)


@dataclass(frozen=True)
class EntryBounds:
    """What is true of all entries that are asked for. Times are milliseconds since the epoch, both ends inclusive."""

    keys: Sequence[bytes] | None = None  # the only keys, in the order in which they are read; None is any
    prefix: bytes = b""  # what all keys begin with
    first_key: bytes | None = None
    """The first key, inclusive. Used where keys stand in their order: in stores without segments, if no prefix is."""
    last_key: bytes | None = None
    starts_ms: Times = ALL_TIMES  # between which times windows and sessions start, or from when versions are valid
    ends_ms: Times = ALL_TIMES  # between which times windows and sessions end, or until when versions are valid
    ended: bool = False  # whether all have an end, which the latest version of a key has not


NO_BOUNDS: Final = EntryBounds()


class SegmentEnd(Enum):
    """Where a segment of a store ends, which begins at its id times the segment interval."""

    INTERVAL = auto()  # after the store's segment interval
    UNTIL_NEXT = auto()  # where the next segment begins: for who knows the beginnings alone
    UNKNOWN = auto()  # nobody knows, nor where it begins: all segments are read


def bounded_pairs(
    layout: KindLayout, store: ByteStore, bounds: EntryBounds, segment_end: SegmentEnd = SegmentEnd.INTERVAL
) -> Iterator[Pair]:
    """Yield the pairs that may hold entries within `bounds`, in the store's order; of a segment as keys are listed."""
    if not layout.spec.kind.is_segmented:
        yield from _pairs_of(layout, store, b"", bounds)
        return
    for segment_id in _segment_ids(layout, store, bounds, segment_end):
        yield from _pairs_of(layout, store, segment_prefix(segment_id), bounds)


def _pairs_of(layout: KindLayout, store: ByteStore, segment: bytes, bounds: EntryBounds) -> Iterable[Pair]:
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
