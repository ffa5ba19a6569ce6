"""What each kind of store keeps where: by the column what it is one by one, and nothing for a kind not in the table."""

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.kinds.entry_scan import stored_entries
from statestore.bytestore.kinds.kind_layout import LAYOUTS, KindLayout, Put, layout_of
from statestore.bytestore.kinds.segments import LATEST_SEGMENT, NO_STREAM_TIME, Segments, segment_of, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.kinds.versioned_rows import VersionedRows, intervals_by_key, intervals_of_key
from statestore.errors import FormatError
from statestore.format.keys.window_key import MAX_TIME_MS, encode_session_key, encode_window_key
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.commit.changelog import ChangelogRecord, restored_changes
from statestore.recovery.making.logical_writes import LogicalWrite, logical_writes

KINDS = list(StoreKind)
TIMED = [StoreKind.WINDOW, StoreKind.SESSION]
IN_PAIRS = [StoreKind.KEY_VALUE, *TIMED]
"""Those of which an entry is a pair of bytes."""
SIZE_MS = 60
TIMES_MS = st.one_of(st.integers(0, 500), st.integers(MAX_TIME_MS - 100, MAX_TIME_MS))
SEGMENT_TIMES = st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1)), max_size=20)
"""Numbers of segments, and how far from their beginning."""
SPANS = st.lists(st.tuples(st.binary(max_size=4), TIMES_MS, TIMES_MS), min_size=1, max_size=20)
"""Keys, starts, and ends or what could be."""


def spec_of(kind: StoreKind, interval_ms: int = 100) -> StoreSpec:
    return StoreSpec("store", kind, StoreFormat.PLAIN, 1_000, interval_ms, SIZE_MS)


def in_order(spans: Iterable[tuple[bytes, int, int]]) -> Iterator[tuple[bytes, int, int]]:
    return ((key, min(times), max(times)) for key, *times in spans)


def puts_of(layout: KindLayout, spans: Iterable[tuple[bytes, int, int]]) -> list[Put]:
    joined = (layout.join(key, start_ms, end_ms, 7) for key, start_ms, end_ms in in_order(spans))
    return [(key, b"value", from_ms) for key, from_ms in joined]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(spans=SPANS)
def test_a_logged_key_comes_apart_into_what_it_was_made_of(
    kind: StoreKind, spans: list[tuple[bytes, int, int]]
) -> None:
    layout = layout_of(spec_of(kind))
    for (key, start_ms, end_ms), (logged, _, from_ms) in zip(in_order(spans), puts_of(layout, spans), strict=True):
        assert len(logged) == len(key) + layout.suffix_size
        expected = {
            StoreKind.KEY_VALUE: (key, None, None, None),
            StoreKind.WINDOW: (key, start_ms, min(start_ms + SIZE_MS, MAX_TIME_MS), 7),
            StoreKind.SESSION: (key, start_ms, end_ms, None),
            StoreKind.VERSIONED: (key, start_ms, None, None),
        }
        place = layout.split(logged, from_ms)
        assert tuple(place) == expected[kind]
        times_ms = {"start_ms": place.start_ms, "end_ms": place.end_ms, None: NO_STREAM_TIME}
        assert layout.put_time_ms(logged, from_ms) == times_ms[layout.put_time_column]


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=40)
@given(spans=SPANS)
def test_columns_hold_what_each_of_their_rows_does(kind: StoreKind, spans: list[tuple[bytes, int, int]]) -> None:
    layout = layout_of(spec_of(kind))
    puts = puts_of(layout, spans)
    logged = [key for key, _, _ in puts]
    places = [layout.split(key, from_ms) for key, _, from_ms in puts]
    assert layout.plain_keys(logged) == [place.key for place in places]
    assert layout.latest_put_ms(puts) == max(layout.put_time_ms(key, from_ms) for key, _, from_ms in puts)
    keys = pa.array([b"left out", *logged], pa.binary())[1:]
    timestamps_ms = pa.array([from_ms for _, _, from_ms in puts], pa.int64())
    columns = [column.to_pylist() for column in layout.record_columns(keys, timestamps_ms)]
    assert list(zip(*columns, strict=True)) == [place[:3] for place in places]


@pytest.mark.parametrize("kind", IN_PAIRS)
@settings(max_examples=40)
@given(spans=SPANS, interval_ms=st.integers(2, 1_000))
def test_pairs_of_bytes_hold_the_entries_that_were_put(
    kind: StoreKind, spans: list[tuple[bytes, int, int]], interval_ms: int
) -> None:
    layout = layout_of(spec_of(kind, interval_ms))
    puts = puts_of(layout, spans)
    physical = [layout.physical_key(key) for key, _, _ in puts]
    assert layout.physical_keys(pa.array([key for key, _, _ in puts], pa.binary())).to_pylist() == physical
    pairs = [(key, b"%d" % number) for number, key in enumerate(physical)]
    expected = [(*layout.split(key)[:3], b"%d" % number) for number, (key, _, _) in enumerate(puts)]
    assert list(layout.entries(pairs)) == expected
    columns = layout.entry_columns(pairs)
    assert [column.type for column in columns.values()] == [pa.binary(), pa.int64(), pa.int64(), pa.binary()]
    assert list(zip(*(column.to_pylist() for column in columns.values()), strict=True)) == expected


@given(
    st.integers(2, 1_000),
    st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 1)), max_size=20),
    st.binary(max_size=5),
)
def test_a_segment_begins_with_its_first_millisecond(
    interval_ms: int, times: list[tuple[int, int]], key: bytes
) -> None:
    times_ms = [max(0, number * interval_ms + off_ms) for number, off_ms in times]
    windows = [encode_window_key(key, time_ms, 7) for time_ms in times_ms]
    sessions = [encode_session_key(key, 0, time_ms) for time_ms in times_ms]
    for kind, keys in ((StoreKind.WINDOW, windows), (StoreKind.SESSION, sessions)):
        places = [segment_prefix(at // interval_ms) + stored for at, stored in zip(times_ms, keys, strict=True)]
        layout = layout_of(spec_of(kind, interval_ms))
        assert [layout.physical_key(stored) for stored in keys] == places
        assert layout.physical_keys(pa.array(keys, pa.binary())).to_pylist() == places


def versions() -> MemoryByteStore:
    """A store with a deleted key, one with versions in several segments, one whose only version lasts, one with a
    tombstone among the versions of a row, and one with a tombstone alone."""
    spec = spec_of(StoreKind.VERSIONED)
    store = MemoryByteStore("store")
    rows = VersionedRows(store, Segments(store, *spec.retention))
    for key, value, timestamp_ms in [
        (b"a", b"1", 10),
        (b"a", None, 20),
        (b"b", b"1", 30),
        (b"b", b"2", 120),
        (b"b", None, 150),
        (b"b", b"3", 350),
        (b"c", b"1", 40),
        (b"d", b"1", 10),
        (b"d", b"2", 90),
        (b"d", None, 50),
        (b"e", None, 40),
    ]:
        rows.put(key, value, timestamp_ms)
    return store


def test_rows_of_versions_hold_them_without_tombstones() -> None:
    layout, store = layout_of(spec_of(StoreKind.VERSIONED)), versions()
    pairs = list(store.range(None, None))
    found = list(layout.entries(pairs))
    expected = [(b"a", 10, 20, b"1"), (b"b", 30, 120, b"1"), (b"b", 120, 150, b"2"), (b"b", 350, None, b"3")]
    expected += [(b"c", 40, None, b"1"), (b"d", 10, 50, b"1"), (b"d", 90, None, b"2")]
    assert sorted(found, key=str) == sorted(expected, key=str)
    columns = layout.entry_columns(pairs)
    assert list(zip(*(column.to_pylist() for column in columns.values()), strict=True)) == found
    tombstone = [pair for pair in pairs if not list(layout.entries([pair]))]
    assert [key[8:] for key, _ in tombstone] == [b"e"]
    assert [len(column) for column in layout.entry_columns(tombstone).values()] == [0] * 4


def test_entries_stand_in_the_segment_that_their_time_says() -> None:
    stored = {kind: [] for kind in (*TIMED, StoreKind.VERSIONED)}
    for kind in TIMED:
        layout = layout_of(spec_of(kind))
        stored[kind] = [(layout.physical_key(layout.join(b"k", 90, 350)[0]), b"value")]
    stored[StoreKind.VERSIONED] = list(versions().range(None, None))
    for kind, pairs in stored.items():
        layout = layout_of(spec_of(kind))
        for pair in pairs:
            for _, start_ms, end_ms, _ in layout.entries([pair]):
                time_ms = {"start_ms": start_ms, "end_ms": end_ms}[layout.segment_time_column]
                expected = layout.unended_segment if time_ms is None else time_ms // 100
                assert segment_of(pair[0]) == expected
    assert {layout.segment_time_column for kind, layout in LAYOUTS.items() if kind not in stored} == {None}


def test_rows_must_have_the_times_that_an_entry_is_made_of() -> None:
    for kind in KINDS:
        layout = layout_of(spec_of(kind))
        times_ms = {"start_ms": 5, "end_ms": 6}
        needed = {column: times_ms[column] for column in layout.row_columns}
        logged, from_ms = layout.join(b"k", needed.get("start_ms"), needed.get("end_ms"))
        ends = {layout.put_time_column, layout.segment_time_column} - {None}
        assert ends <= needed.keys()
        assert layout.put_time_ms(logged, from_ms) == times_ms.get(layout.put_time_column, NO_STREAM_TIME)


def test_versions_of_one_key_are_those_that_it_has_among_all() -> None:
    spec, store = spec_of(StoreKind.VERSIONED), versions()
    by_key = dict(intervals_by_key(spec, store))
    assert by_key.keys() == {b"a", b"b", b"c", b"d", b"e"}
    assert {key: intervals_of_key(spec, store, key) for key in by_key} == by_key
    assert intervals_of_key(spec, store, b"") == []


def test_versions_have_no_places_of_their_own() -> None:
    layout = layout_of(spec_of(StoreKind.VERSIONED))
    with pytest.raises(TypeError, match="rows"):
        layout.physical_key(b"k")
    with pytest.raises(TypeError, match="rows"):
        layout.physical_keys(pa.array([b"k"], pa.binary()))


@pytest.mark.parametrize("kind", KINDS)
def test_the_pairs_of_a_key_are_found_among_longer_ones(kind: StoreKind) -> None:
    layout = layout_of(spec_of(kind))
    segment = {StoreKind.KEY_VALUE: b"", StoreKind.VERSIONED: segment_prefix(LATEST_SEGMENT)}.get(
        kind, segment_prefix(0)
    )
    store = MemoryByteStore("store")
    for plain in (b"", b"k", b"k\0", b"k" + bytes(12), b"k\xff", b"l"):
        for at_ms in (0, 40):
            store.put(segment + layout.join(plain, at_ms, at_ms)[0], b"value")
    found = [key for key, _ in layout.pairs_of_key(store, segment, b"k")]
    times_ms = (0, 40) if layout.has_timed_keys else (0,)
    assert found == [segment + layout.join(b"k", at_ms, at_ms)[0] for at_ms in times_ms]
    assert list(layout.pairs_of_key(store, segment, b"m")) == []


@pytest.mark.parametrize("kind", TIMED)
def test_what_is_no_logged_key_is_refused(kind: StoreKind) -> None:
    layout = layout_of(spec_of(kind))
    sound, _ = layout.join(b"k", 5, 5)
    negative = b"k" + b"\xff" * layout.suffix_size
    for unsound in (b"short", negative):
        keys = pa.array([sound, unsound], pa.binary())
        for refuse in (
            lambda unsound=unsound: layout.split(unsound),
            lambda unsound=unsound: layout.put_time_ms(unsound),
            lambda unsound=unsound: layout.physical_key(unsound),
            lambda unsound=unsound: layout.latest_put_ms([(sound, b"", None), (unsound, b"", None)]),
            lambda unsound=unsound: list(layout.entries([(segment_prefix(0) + unsound, b"")])),
        ):
            with pytest.raises(FormatError):
                refuse()
        for refuse_row in (layout.physical_keys, lambda keys: layout.record_columns(keys, None)):
            with pytest.raises(FormatError, match="row 1"):
                refuse_row(keys)
        with pytest.raises(FormatError, match="row 0"):
            layout.entry_columns([(segment_prefix(0) + unsound, b"")])
    with pytest.raises(FormatError):
        layout.plain_keys([sound, b"short"])
    assert layout.plain_keys([negative]) == [b"k"]
    assert layout.physical_keys(pa.array([], pa.binary())).to_pylist() == []


@pytest.mark.parametrize(
    ("kind", "start_ms", "end_ms", "problem"),
    [
        (StoreKind.WINDOW, None, None, "no start_ms"),
        (StoreKind.WINDOW, -1, None, "window_start_ms"),
        (StoreKind.SESSION, None, 5, "no start_ms"),
        (StoreKind.SESSION, 5, None, "no end_ms"),
        (StoreKind.SESSION, 5, 4, "end before"),
        (StoreKind.VERSIONED, None, 5, "no start_ms"),
        (StoreKind.VERSIONED, -1, 5, "valid from -1"),
    ],
)
def test_times_that_no_entry_has_make_no_key(
    kind: StoreKind, start_ms: int | None, end_ms: int | None, problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        layout_of(spec_of(kind)).join(b"k", start_ms, end_ms)


@pytest.mark.parametrize(
    ("kind", "sound", "unsound"),
    [
        (StoreKind.KEY_VALUE, [(None, None)], [(None, 1)]),
        (
            StoreKind.WINDOW,
            [(5, 5 + SIZE_MS), (5, None), (MAX_TIME_MS, MAX_TIME_MS)],
            [(5, 5), (MAX_TIME_MS, MAX_TIME_MS - 1)],
        ),
        (StoreKind.SESSION, [(5, 5), (5, 6)], [(5, 4), (5, None)]),
        (StoreKind.VERSIONED, [(5, 6), (5, None)], [(5, 5), (5, 4)]),
    ],
)
def test_ends_that_no_entry_has_are_told(
    kind: StoreKind, sound: list[tuple[int, int | None]], unsound: list[tuple[int, int | None]]
) -> None:
    starts_ms, ends_ms = (pa.array(column, pa.int64()) for column in zip(*sound, *unsound, strict=True))
    found = layout_of(spec_of(kind)).unsound_ends(starts_ms, ends_ms)
    assert [bool(row) for row in found.rows.to_pylist()] == [False] * len(sound) + [True] * len(unsound)


def test_windows_are_looked_for_in_the_segments_of_their_starts() -> None:
    starts_ms, ends_ms = (200, 900), (300, 800)
    found = {kind: layout_of(spec_of(kind)).segment_times(starts_ms, ends_ms) for kind in KINDS}
    assert found[StoreKind.WINDOW] == (300 - SIZE_MS, 800)
    assert layout_of(spec_of(StoreKind.WINDOW)).segment_times((290, 500), ends_ms) == (290, 500)
    assert found[StoreKind.SESSION] == found[StoreKind.VERSIONED] == ends_ms


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_is_not_in_the_table_is_taken_for_no_other(
    kind: StoreKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, store = spec_of(kind), MemoryByteStore("store")
    store.put(b"k" * 50, b"value")
    monkeypatch.delitem(LAYOUTS, kind)
    for read in (
        lambda: stored_entries(spec, store),
        lambda: logical_writes(spec, store, -1),
        lambda: restored_changes(spec, spec.format, [ChangelogRecord(b"k" * 50, b"value", 0, b"")]),
    ):
        with pytest.raises(KeyError):
            list(read())


def test_a_write_is_a_put() -> None:
    layout = layout_of(spec_of(StoreKind.VERSIONED))
    assert layout.latest_put_ms([LogicalWrite(b"k", b"v", 9), LogicalWrite(b"k", None, 5)]) == 9
