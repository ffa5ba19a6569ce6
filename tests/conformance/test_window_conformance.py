"""One contract for every window store: plain, timestamped, with headers, with duplicates, on all engines and layers.

Segments span 50 ms, windows 10 ms, and 100 ms are kept: see `stacks`.
"""

from itertools import product
from typing import Any

import pytest

from statestore import Headers, Windowed
from statestore.format.keys.window_key import encode_window_key
from statestore.format.records.header_bytes import parse_count
from statestore.stores.iterator import StoreIterator
from tests.conformance import checks
from tests.conformance.stacks import (
    HEADERS,
    PLAIN,
    RECORD_HEADERS,
    SEGMENT_MS,
    TIMESTAMP_MS,
    WINDOW,
    WINDOW_MS,
    Stack,
    hold,
    segments_of,
    value_of,
    values_of,
)

KIND = WINDOW

MAX_MS = 2**63 - 1

# Keys of which one begins another, so that their windows interleave; times in three segments.
KEYS = [b"", b"k", b"k\x00", b"k\x00\x00\x00\x00\x00\x00\x00\x14", b"l", b"\xff", b"\xff\xff"]
TIMES = [0, 20, 49, 50, 99]
CONTENT = [(key, 10 * KEYS.index(key) + TIMES.index(time), time) for time in TIMES for key in KEYS]


def in_order(content: Any) -> list[tuple[bytes, int, int]]:
    """Return entries as a scan yields them: by segment, then by the bytes of key and time."""
    return sorted(content, key=lambda entry: (entry[2] // SEGMENT_MS, encode_window_key(entry[0], entry[2])))


def windowed(entries: Any) -> list[tuple[bytes, int, int]]:
    """Return key, value and start of what an iterator yields."""
    found = []
    for window, held in entries:
        assert window.end_ms == window.start_ms + WINDOW_MS
        found.append((window.key, value_of(held), window.start_ms))
    return found


def test_fetch_of_a_window_returns_what_was_put(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    assert [value_of(store.fetch(key, start)) for key, _, start in CONTENT] == [value for _, value, _ in CONTENT]
    assert store.fetch(b"k", 1) is None
    assert store.fetch(b"absent", 0) is None


def test_put_replaces_and_none_deletes(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0), (b"a", 2, 60), (b"b", 3, 0), (b"c", 4, 60))
    store.put(b"a", stack.hold(10), 0)
    store.put(b"b", None, 0)
    store.put(b"absent", None, 0)
    store.put(b"c", stack.hold(40), 60)
    assert windowed(store.all()) == [(b"a", 10, 0), (b"a", 2, 60), (b"c", 40, 60)]
    assert store.fetch(b"b", 0) is None


def test_a_window_comes_back_with_its_timestamp_and_headers(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0))
    kept = stack.hold(-7, 2**63 - 1, Headers([("", b""), ("ä", None), ("", b"\xff")]))
    store.put(b"a", kept, 0)
    assert store.fetch(b"a", 0) == kept
    assert list(store.fetch(b"a", 0, 0)) == [(0, kept)]
    assert [held for _, held in store.all()] == [kept]


TIME_RANGES = [(0, 99), (20, 50), (20, 20), (21, 48), (50, 20), (100, 200), (-5, 0), (0, MAX_MS)]


def test_fetch_of_a_key_is_inclusive_and_of_that_key_alone(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    for key, (first, last) in product((b"", b"k", b"k\x00", b"\xff", b"absent"), TIME_RANGES):
        wanted = [(start, value) for found, value, start in CONTENT if found == key and first <= start <= last]
        assert values_of(store.fetch(key, first, last)) == wanted
        assert values_of(store.backward_fetch(key, first, last)) == wanted[::-1]


@pytest.mark.parametrize(("from_key", "to_key"), checks.key_ranges(b"k\x00\x00\x00\x00\x00\x00\x00\x14"))
def test_fetch_of_a_range_of_keys(stack: Stack, from_key: bytes | None, to_key: bytes | None) -> None:
    store = stack.open(*CONTENT)
    keys = [key for key in KEYS if (from_key or b"") <= key and (to_key is None or key <= to_key)]
    for first, last in TIME_RANGES:
        wanted = in_order(entry for entry in CONTENT if entry[0] in keys and first <= entry[2] <= last)
        assert windowed(store.fetch(from_key, to_key, first, last)) == wanted
        assert windowed(store.backward_fetch(from_key, to_key, first, last)) == wanted[::-1]


def test_a_shorter_key_that_sorts_behind_a_longer_one_is_in_the_range(stack: Stack) -> None:
    store = stack.open((b"k", 1, 49), (b"k\x00", 2, 0))
    assert encode_window_key(b"k", 49) > encode_window_key(b"k\x00", 0)
    assert windowed(store.fetch(None, b"k\x00", 0, 99)) == [(b"k\x00", 2, 0), (b"k", 1, 49)]
    assert windowed(store.fetch(b"k", b"k\x00", 49, 49)) == [(b"k", 1, 49)]


def test_fetch_all_goes_by_time_alone(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    for first, last in TIME_RANGES:
        wanted = in_order(entry for entry in CONTENT if first <= entry[2] <= last)
        assert windowed(store.fetch_all(first, last)) == wanted
        assert windowed(store.backward_fetch_all(first, last)) == wanted[::-1]


def test_all_goes_both_ways(stack: Stack) -> None:
    store = stack.open(*CONTENT[::-1])
    assert windowed(store.all()) == in_order(CONTENT)
    assert windowed(store.backward_all()) == in_order(CONTENT)[::-1]


def test_a_window_ends_one_size_after_its_start_but_not_beyond_time(stack: Stack) -> None:
    store = stack.open((b"a", 1, 7))
    assert [window for window, _ in store.all()] == [Windowed(b"a", 7, 17)]
    for start in (MAX_MS - 10, MAX_MS - 9, MAX_MS):
        store.put(b"b", stack.hold(2), start)
    assert [window for window, _ in store.all()] == [
        Windowed(b"b", MAX_MS - 10, MAX_MS),
        Windowed(b"b", MAX_MS - 9, MAX_MS),
        Windowed(b"b", MAX_MS, MAX_MS),
    ]
    assert value_of(store.fetch(b"b", MAX_MS)) == 2


def test_stream_time_is_the_latest_start_that_was_put(stack: Stack) -> None:
    store = stack.open()
    assert store.stream_time_ms == -1
    store.put(b"a", stack.hold(1), 60)
    store.put(b"a", stack.hold(1), 10)
    assert store.stream_time_ms == 60
    store.put(b"a", None, 70)
    assert store.stream_time_ms == 70


def test_windows_older_than_the_retention_are_hidden(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0), (b"a", 2, 49), (b"a", 3, 50), (b"a", 4, 51))
    store.put(b"a", stack.hold(5), 150)
    assert [store.fetch(b"a", start) for start in (0, 49, 50)] == [None, None, None]
    expected = [(b"a", 4, 51), (b"a", 5, 150)]
    assert windowed(store.all()) == expected
    assert windowed(store.backward_all()) == expected[::-1]
    assert windowed(store.fetch_all(0, MAX_MS)) == expected
    assert windowed(store.fetch(None, None, 0, 150)) == expected
    assert values_of(store.fetch(b"a", 0, 150)) == [(51, 4), (150, 5)]
    assert values_of(store.backward_fetch(b"a", 0, 150)) == [(150, 5), (51, 4)]


def test_expired_segments_are_gone_and_others_stay(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0), (b"b", 2, 49), (b"a", 3, 50), (b"a", 4, 120))
    assert segments_of(stack) == {0, 1, 2}
    store.put(b"a", stack.hold(5), 150)
    assert segments_of(stack) == {1, 2, 3}
    store.put(b"c", None, 260)
    assert segments_of(stack) == {3}


def test_a_late_write_into_a_live_segment_is_stored_but_hidden(stack: Stack) -> None:
    store = stack.open((b"a", 1, 150))
    store.put(b"late", stack.hold(2), 50)
    store.put(b"late", stack.hold(3), 51)
    assert store.fetch(b"late", 50) is None
    assert windowed(store.all()) == [(b"late", 3, 51), (b"a", 1, 150)]
    assert segments_of(stack) == {1, 3}


def test_a_write_into_an_expired_segment_is_dropped(stack: Stack) -> None:
    store = stack.open((b"a", 1, 150))
    store.put(b"late", stack.hold(2), 49)
    assert store.fetch(b"late", 49) is None
    assert windowed(store.all()) == [(b"a", 1, 150)]
    assert segments_of(stack) == {3}
    assert store.stream_time_ms == 150


def test_what_was_put_is_there_when_the_store_is_opened_again(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0), (b"a", 2, 60), (b"b", 3, 60))
    store.put(b"a", None, 60)
    store.put(b"c", stack.hold(4), 140)
    store = stack.reopen()
    assert windowed(store.all()) == [(b"b", 3, 60), (b"c", 4, 140)]
    assert store.stream_time_ms == 140
    assert store.fetch(b"a", 0) is None


def iterators_of(stack: Stack) -> list[StoreIterator]:
    store = stack.store
    return [
        store.fetch(b"k", 0, 99),
        store.backward_fetch(b"k", 0, 99),
        store.fetch(None, b"l", 0, 99),
        store.backward_fetch(b"k", None, 0, 99),
        store.fetch_all(0, 99),
        store.backward_fetch_all(0, 99),
        store.all(),
        store.backward_all(),
    ]


def test_iterators_see_the_store_as_of_the_call(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0), (b"k", 2, 50))
    iterators = iterators_of(stack)
    store.put(b"k", None, 0)
    store.put(b"k", stack.hold(20), 50)
    store.put(b"k", stack.hold(30), 51)
    assert [sorted(value for _, value in values_of(iterator)) for iterator in iterators] == [[1, 2]] * 8


def test_iterators_outlive_the_segments_that_they_scan(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0), (b"k", 2, 50))
    iterators = iterators_of(stack)
    store.put(b"k", stack.hold(3), 1000)
    assert [sorted(value for _, value in values_of(iterator)) for iterator in iterators] == [[1, 2]] * 8


def test_an_iterator_peeks_without_moving(stack: Stack) -> None:
    iterator = stack.open((b"k", 1, 0), (b"k", 2, 50)).fetch(b"k", 0, 99)
    assert iterator.peek_next_key() == 0
    assert values_of(iterator) == [(0, 1), (50, 2)]


def test_a_closed_iterator_refuses_to_go_on(stack: Stack) -> None:
    stack.open((b"k", 1, 0), (b"k", 2, 50))
    checks.closed_iterators_refuse(iterators_of(stack))


def test_closing_the_store_ends_its_iterators_with_an_error(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    checks.closing_ends_iterators(store, iterators_of(stack), iterators_of(stack))


def test_a_closed_store_refuses_everything(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0))
    checks.closed_store_refuses(
        store,
        lambda: store.fetch(b"k", 0),
        lambda: store.put(b"k", stack.hold(1), 0),
        lambda: store.put(b"k", None, 0),
        lambda: iterators_of(stack),
        lambda: store.fetch(b"k", 0, 99),
        lambda: store.all(),
    )


def test_a_key_of_none_is_a_type_error(stack: Stack) -> None:
    store = stack.open()
    checks.null_keys_are_refused(
        lambda: store.fetch(None, 0),
        lambda: store.fetch(None, 0, 99),
        lambda: store.backward_fetch(None, 0, 99),
        lambda: store.put(None, stack.hold(1), 0),
    )


def test_a_read_only_view_reads_the_same_and_cannot_write(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0))
    view = store.read_only()
    store.put(b"b", stack.hold(2), 150)
    assert view.stream_time_ms == 150
    assert view.fetch(b"a", 0) is None
    assert windowed(view.all()) == [(b"b", 2, 150)]
    assert not hasattr(view, "put")


def test_every_write_is_logged_without_its_segment(logged: Stack) -> None:
    store = logged.open()
    store.put(b"a", logged.hold(1), 150)
    store.put(b"b", logged.hold(2), 160)
    store.put(b"c", None, 160)
    timestamp_ms = TIMESTAMP_MS if logged.case.has_timestamps else logged.context.timestamp_ms
    of_value, of_record = (HEADERS, RECORD_HEADERS) if logged.case.has_headers else (Headers(), Headers())
    assert logged.records() == [
        (encode_window_key(b"a", 150), (1).to_bytes(8, "big"), timestamp_ms, of_value.to_bytes()),
        (encode_window_key(b"b", 160), (2).to_bytes(8, "big"), timestamp_ms, of_value.to_bytes()),
        (encode_window_key(b"c", 160), None, logged.context.timestamp_ms, of_record.to_bytes()),
    ]


def test_a_dropped_write_is_still_logged(logged: Stack) -> None:
    store = logged.open((b"a", 1, 150))
    before = len(logged.records())
    store.put(b"late", logged.hold(2), 49)
    assert [record.key for record in logged.records()[before:]] == [encode_window_key(b"late", 49)]
    assert segments_of(logged) == {3}


def test_reads_and_expiry_log_nothing(logged: Stack) -> None:
    store = logged.open(*CONTENT)
    before = len(logged.records())
    store.put(b"a", logged.hold(1), 1000)
    for key, _, start in CONTENT:
        store.fetch(key, start)
    list(store.all())
    assert [record.key for record in logged.records()[before:]] == [encode_window_key(b"a", 1000)]


def test_reads_of_values_parse_no_headers(with_headers: Stack) -> None:
    store = with_headers.open(*CONTENT)
    before = parse_count()
    for key, _, start in CONTENT:
        assert store.fetch(key, start) is not None
    for iterator in iterators_of(with_headers):
        assert values_of(iterator)
    store.put(b"passed on", store.fetch(b"k", 0), 99)
    assert parse_count() == before


def test_every_read_returns_the_headers(with_headers: Stack) -> None:
    store = with_headers.open()
    store.put(b"k", with_headers.hold(1), 0)
    for held in (store.fetch(b"k", 0), *(next(iterator)[1] for iterator in iterators_of(with_headers))):
        assert [tuple(header) for header in held.headers] == [("trace", b"1"), ("trace", None)]


def test_legacy_windows_read_as_what_their_format_could_hold(upgrading: Stack) -> None:
    store = upgrading.open((b"k", 1, 0), (b"k", 2, 50))
    timestamp_ms = -1 if upgrading.case.older is PLAIN else TIMESTAMP_MS
    legacy = hold(upgrading.case.format, 1, timestamp_ms, Headers())
    assert list(store.fetch(b"k", 0, 0)) == [(0, legacy)]
    assert list(store.backward_all())[-1] == (Windowed(b"k", 0, 10), legacy)
    assert store.fetch(b"k", 0) == legacy
    assert next(store.fetch_all(0, 99)) == (Windowed(b"k", 0, 10), legacy)


def test_finish_upgrade_moves_what_is_left_and_changes_nothing(upgrading: Stack) -> None:
    store = upgrading.open(*CONTENT)
    before = list(store.all())
    while not store.finish_upgrade(budget_ms=0).is_finished:
        pass
    assert list(store.all()) == before
    assert list(upgrading.reopen().all()) == before


def test_an_upgrade_ends_with_the_expiry_of_the_last_legacy_segment(upgrading: Stack) -> None:
    store = upgrading.open((b"k", 1, 0), (b"k", 2, 50))
    store.put(b"k", upgrading.hold(3), 1000)
    store = upgrading.reopen()
    assert store.upgrade_progress().is_finished
    assert windowed(store.all()) == [(b"k", 3, 1000)]
