"""What bounds leave unread is nothing that is within them, and it is as much as a store's segments and keys allow."""

from collections.abc import Iterable, Iterator
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.header_index import found_pairs
from statestore.bytestore.kinds.entry_scan import ALL_TIMES, EntryBounds, SegmentEnd
from statestore.bytestore.kinds.kind_layout import LAYOUTS, KindLayout, Times, layout_of
from statestore.bytestore.kinds.segments import SEGMENT_ID_SIZE, Segments, segment_of
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.kinds.versioned_rows import VersionedRows
from statestore.bytestore.protocol import Pair
from statestore.format.values.store_format import StoreFormat

INTERVAL_MS = 100
KEYS = st.binary(max_size=2)
TIMES_MS = st.integers(0, 600)
SPANS = st.lists(st.tuples(KEYS, TIMES_MS, TIMES_MS), max_size=12)
"""Keys with two times: start and end."""
BOUNDS = st.builds(
    EntryBounds,
    keys=st.none() | st.lists(KEYS, max_size=3, unique=True),
    prefix=st.just(b"") | KEYS,
    starts_ms=st.just(ALL_TIMES) | st.tuples(TIMES_MS, TIMES_MS),
    ends_ms=st.just(ALL_TIMES) | st.tuples(TIMES_MS, TIMES_MS),
    ended=st.booleans(),
)


def filled(kind: StoreKind, spans: Iterable[tuple[bytes, int, int]]) -> tuple[KindLayout, MemoryByteStore]:
    layout = layout_of(StoreSpec("store", kind, StoreFormat.PLAIN, 10_000, INTERVAL_MS, 60))
    store = MemoryByteStore("store")
    rows = VersionedRows(store, Segments(store, *layout.spec.retention))
    for key, *times in spans:
        start_ms, end_ms = min(times), max(times)
        if LAYOUTS[kind].keeps_versions:
            rows.put(key, b"value", start_ms)
            rows.put(key, None, end_ms)
            rows.put(key, b"value", end_ms + 50)
        else:
            store.put(layout.physical_key(layout.join(key, start_ms, end_ms)[0]), b"value")
    return layout, store


def bounded_pairs(
    layout: KindLayout, store: MemoryByteStore, bounds: EntryBounds, segment_end: SegmentEnd = SegmentEnd.INTERVAL
) -> Iterator[Pair]:
    return chain.from_iterable(found_pairs(layout, store, bounds, (), segment_end))


def is_within(bounds: EntryBounds, key: bytes, start_ms: int | None, end_ms: int | None) -> bool:
    def holds(times: Times, time_ms: int | None) -> bool:
        return times == ALL_TIMES or (time_ms is not None and times[0] <= time_ms <= times[1])

    return (
        (bounds.keys is None or key in bounds.keys)
        and key.startswith(bounds.prefix)
        and holds(bounds.starts_ms, start_ms)
        and holds(bounds.ends_ms, end_ms)
        and not (bounds.ended and end_ms is None)
    )


@pytest.mark.parametrize("segment_end", SegmentEnd)
@pytest.mark.parametrize("kind", StoreKind)
@given(spans=SPANS, bounds=BOUNDS)
def test_all_that_is_within_the_bounds_is_read(
    kind: StoreKind, segment_end: SegmentEnd, spans: list[tuple[bytes, int, int]], bounds: EntryBounds
) -> None:
    layout, store = filled(kind, spans)
    everything = list(layout.entries(bounded_pairs(layout, store, EntryBounds(), segment_end)))
    assert sorted(everything) == sorted(layout.entries(store.range(None, None)))
    found = list(layout.entries(bounded_pairs(layout, store, bounds, segment_end)))
    assert {entry for entry in everything if is_within(bounds, *entry[:3])} <= set(found) <= set(everything)
    if bounds.keys is not None:
        assert {entry[0] for entry in found} <= set(bounds.keys)
    else:
        # Of logged keys: the times behind a shorter key may begin as the rest of the prefix does.
        place = SEGMENT_ID_SIZE if kind.is_segmented else 0
        assert all(key.startswith(bounds.prefix, place) for key, _ in bounded_pairs(layout, store, bounds, segment_end))


@pytest.mark.parametrize("kind", [StoreKind.WINDOW, StoreKind.SESSION])
@pytest.mark.parametrize(
    ("times_ms", "segment_end", "read"),
    [
        ((205, 299), SegmentEnd.INTERVAL, [2]),
        ((205, 299), SegmentEnd.UNTIL_NEXT, [2]),
        ((205, 299), SegmentEnd.UNKNOWN, [0, 1, 2, 5]),
        # Only who knows how long a segment is knows that there is none for these times.
        ((350, 360), SegmentEnd.INTERVAL, []),
        ((350, 360), SegmentEnd.UNTIL_NEXT, [2]),
    ],
)
def test_segments_that_can_not_hold_it_are_not_read(
    kind: StoreKind, times_ms: Times, segment_end: SegmentEnd, read: list[int]
) -> None:
    spans = [(b"key", number * INTERVAL_MS + 10, number * INTERVAL_MS + 20) for number in (0, 1, 2, 5)]
    layout, store = filled(kind, spans)
    bounds = EntryBounds(starts_ms=times_ms) if kind is StoreKind.WINDOW else EntryBounds(ends_ms=times_ms)
    assert [segment_of(key) for key, _ in bounded_pairs(layout, store, bounds, segment_end)] == read


def test_keys_of_a_store_in_their_order_are_read_between_the_first_and_the_last() -> None:
    layout, store = filled(StoreKind.KEY_VALUE, [(bytes([byte]), 0, 0) for byte in range(9)])
    bounds = EntryBounds(first_key=b"\3", last_key=b"\5")
    assert [key for key, _ in bounded_pairs(layout, store, bounds)] == [b"\3", b"\4", b"\5"]


def test_versions_that_last_are_left_out_where_all_have_an_end() -> None:
    layout, store = filled(StoreKind.VERSIONED, [(b"key", 10, 20)])
    assert len(list(bounded_pairs(layout, store, EntryBounds()))) == 2
    (ended,) = layout.entries(bounded_pairs(layout, store, EntryBounds(ended=True)))
    assert ended == (b"key", 10, 20, b"value")
