"""One contract for every session store: plain and with headers, on all engines and under all layers.

Segments span 50 ms, by the end of the session, and 100 ms are kept: see `stacks`.
"""

from typing import Any

import pytest

from statestore import AggregationWithHeaders, Headers, Windowed
from statestore.format.keys.window_key import encode_session_key
from statestore.format.records.header_bytes import parse_count
from statestore.stores.iterator import StoreIterator
from tests.conformance import checks
from tests.conformance.stacks import HEADERS, RECORD_HEADERS, SEGMENT_MS, SESSION, Stack, segments_of, value_of

KIND = SESSION

MAX_MS = 2**63 - 1

# Keys of which one begins another, so that their sessions interleave; sessions that end in two segments.
KEYS = [b"", b"k", b"k\x00", b"k\x00\x00\x00\x00\x00\x00\x00\x1e", b"l", b"\xff", b"\xff\xff"]
SPANS = [(0, 10), (0, 30), (20, 30), (40, 60), (60, 60), (45, 99)]
CONTENT = [(key, 10 * KEYS.index(key) + SPANS.index(span), *span) for span in SPANS for key in KEYS]


def in_order(content: Any) -> list[tuple[bytes, int, int, int]]:
    """Return entries as a scan yields them: by segment, then by the bytes of key, end and start."""
    return sorted(content, key=lambda entry: (entry[3] // SEGMENT_MS, encode_session_key(entry[0], *entry[2:])))


def sessions(entries: Any) -> list[tuple[bytes, int, int, int]]:
    """Return key, aggregate, start and end of what an iterator yields."""
    return [(session.key, value_of(held), session.start_ms, session.end_ms) for session, held in entries]


def test_fetch_session_returns_what_was_put(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    for key, value, start, end in CONTENT:
        assert value_of(store.fetch_session(key, start, end)) == value
    assert store.fetch_session(b"k", 0, 11) is None
    assert store.fetch_session(b"k", 1, 10) is None
    assert store.fetch_session(b"absent", 0, 10) is None


def test_put_replaces_and_none_or_remove_removes(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0, 10), (b"a", 2, 0, 60), (b"b", 3, 0, 10), (b"c", 4, 50, 60))
    store.put(Windowed(b"a", 0, 10), stack.hold(10))
    store.put(Windowed(b"b", 0, 10), None)
    store.put(Windowed(b"absent", 0, 10), None)
    store.remove(Windowed(b"c", 50, 60))
    store.remove(Windowed(b"absent", 0, 10))
    assert sessions(store.find_sessions(None, None, 0, MAX_MS)) == [(b"a", 10, 0, 10), (b"a", 2, 0, 60)]
    assert store.fetch_session(b"c", 50, 60) is None


def test_a_session_comes_back_with_its_headers(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0, 10))
    kept = stack.hold(-7, headers=Headers([("", b""), ("ä", None), ("", b"\xff")]))
    store.put(Windowed(b"a", 0, 10), kept)
    assert store.fetch_session(b"a", 0, 10) == kept
    assert list(store.fetch(b"a")) == [(Windowed(b"a", 0, 10), kept)]


def test_an_aggregate_of_none_removes(with_headers: Stack) -> None:
    store = with_headers.open((b"a", 1, 0, 10), (b"b", 2, 0, 10))
    store.put(Windowed(b"a", 0, 10), AggregationWithHeaders.make_allow_nullable(None, HEADERS))
    assert sessions(store.fetch(None, None)) == [(b"b", 2, 0, 10)]


def test_fetch_of_a_key_yields_its_sessions_alone(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    for key in (*KEYS, b"absent"):
        wanted = in_order(entry for entry in CONTENT if entry[0] == key)
        assert sessions(store.fetch(key)) == wanted
        assert sessions(store.backward_fetch(key)) == wanted[::-1]


RANGES = checks.key_ranges(b"k\x00\x00\x00\x00\x00\x00\x00\x1e")
OVERLAPS = [(0, MAX_MS), (30, 20), (11, 19), (31, 39), (60, 0), (10, 0), (99, 45), (100, 200), (-5, 5), (61, 44)]


@pytest.mark.parametrize(("from_key", "to_key"), RANGES)
def test_fetch_of_a_range_of_keys(stack: Stack, from_key: bytes | None, to_key: bytes | None) -> None:
    store = stack.open(*CONTENT)
    keys = [key for key in KEYS if (from_key or b"") <= key and (to_key is None or key <= to_key)]
    wanted = in_order(entry for entry in CONTENT if entry[0] in keys)
    assert sessions(store.fetch(from_key, to_key)) == wanted
    assert sessions(store.backward_fetch(from_key, to_key)) == wanted[::-1]


def test_sessions_of_a_key_are_found_by_overlap(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    for earliest_end, latest_start in OVERLAPS:
        for key in (b"", b"k", b"k\x00", b"\xff", b"absent"):
            wanted = in_order(
                entry for entry in CONTENT if entry[0] == key and entry[3] >= earliest_end and entry[2] <= latest_start
            )
            assert sessions(store.find_sessions(key, earliest_end, latest_start)) == wanted
            assert sessions(store.backward_find_sessions(key, earliest_end, latest_start)) == wanted[::-1]


@pytest.mark.parametrize(("from_key", "to_key"), RANGES)
def test_sessions_of_a_range_of_keys_are_found_by_overlap(
    stack: Stack, from_key: bytes | None, to_key: bytes | None
) -> None:
    store = stack.open(*CONTENT)
    keys = [key for key in KEYS if (from_key or b"") <= key and (to_key is None or key <= to_key)]
    for earliest_end, latest_start in OVERLAPS:
        wanted = in_order(
            entry for entry in CONTENT if entry[0] in keys and entry[3] >= earliest_end and entry[2] <= latest_start
        )
        assert sessions(store.find_sessions(from_key, to_key, earliest_end, latest_start)) == wanted
        assert sessions(store.backward_find_sessions(from_key, to_key, earliest_end, latest_start)) == wanted[::-1]


@pytest.mark.parametrize(("first", "last"), [(0, MAX_MS), (10, 30), (31, 59), (60, 60), (60, 10), (100, 200), (-5, 10)])
def test_sessions_of_all_keys_are_found_by_their_end(stack: Stack, first: int, last: int) -> None:
    store = stack.open(*CONTENT)
    wanted = in_order(entry for entry in CONTENT if first <= entry[3] <= last)
    assert sessions(store.find_sessions(first, last)) == wanted


def test_a_shorter_key_that_sorts_behind_a_longer_one_is_in_the_range(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0, 49), (b"k\x00", 2, 0, 0))
    assert encode_session_key(b"k", 0, 49) > encode_session_key(b"k\x00", 0, 0)
    assert sessions(store.fetch(None, b"k\x00")) == [(b"k\x00", 2, 0, 0), (b"k", 1, 0, 49)]


def test_sessions_at_the_end_of_time_are_kept(stack: Stack) -> None:
    store = stack.open()
    store.put(Windowed(b"a", 0, MAX_MS), stack.hold(1))
    store.put(Windowed(b"a", MAX_MS, MAX_MS), stack.hold(2))
    assert value_of(store.fetch_session(b"a", MAX_MS, MAX_MS)) == 2
    assert sessions(store.fetch(b"a")) == [(b"a", 1, 0, MAX_MS), (b"a", 2, MAX_MS, MAX_MS)]
    assert sessions(store.find_sessions(MAX_MS, MAX_MS)) == sessions(store.fetch(None, None))


def test_stream_time_is_the_latest_end_that_was_put(stack: Stack) -> None:
    store = stack.open()
    assert store.stream_time_ms == -1
    store.put(Windowed(b"a", 0, 60), stack.hold(1))
    store.put(Windowed(b"a", 5, 10), stack.hold(1))
    assert store.stream_time_ms == 60
    store.remove(Windowed(b"a", 0, 70))
    assert store.stream_time_ms == 70


def test_sessions_that_end_before_the_retention_are_hidden(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0, 0), (b"a", 2, 0, 50), (b"a", 3, 0, 51))
    store.put(Windowed(b"a", 0, 150), stack.hold(4))
    assert [store.fetch_session(b"a", 0, end) for end in (0, 50)] == [None, None]
    expected = [(b"a", 3, 0, 51), (b"a", 4, 0, 150)]
    assert sessions(store.fetch(b"a")) == expected
    assert sessions(store.backward_fetch(None, None)) == expected[::-1]
    assert sessions(store.find_sessions(b"a", 0, MAX_MS)) == expected
    assert sessions(store.find_sessions(None, b"z", 0, MAX_MS)) == expected
    assert sessions(store.find_sessions(0, MAX_MS)) == expected


def test_expired_segments_are_gone_and_others_stay(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0, 0), (b"b", 2, 0, 49), (b"a", 3, 0, 50), (b"a", 4, 0, 120))
    assert segments_of(stack) == {0, 1, 2}
    store.put(Windowed(b"a", 0, 150), stack.hold(5))
    assert segments_of(stack) == {1, 2, 3}
    store.remove(Windowed(b"c", 0, 260))
    assert segments_of(stack) == {3}


def test_a_write_into_an_expired_segment_is_dropped(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0, 150))
    store.put(Windowed(b"late", 0, 49), stack.hold(2))
    store.put(Windowed(b"hidden", 0, 50), stack.hold(3))
    store.put(Windowed(b"seen", 0, 51), stack.hold(4))
    assert store.fetch_session(b"late", 0, 49) is None
    assert sessions(store.fetch(None, None)) == [(b"seen", 4, 0, 51), (b"a", 1, 0, 150)]
    assert segments_of(stack) == {1, 3}


def test_what_was_put_is_there_when_the_store_is_opened_again(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0, 10), (b"a", 2, 0, 60), (b"b", 3, 0, 60))
    store.remove(Windowed(b"a", 0, 60))
    store.put(Windowed(b"c", 0, 140), stack.hold(4))
    store = stack.reopen()
    assert sessions(store.fetch(None, None)) == [(b"b", 3, 0, 60), (b"c", 4, 0, 140)]
    assert store.stream_time_ms == 140


def iterators_of(stack: Stack) -> list[StoreIterator]:
    store = stack.store
    return [
        store.fetch(b"k"),
        store.backward_fetch(b"k"),
        store.fetch(None, b"l"),
        store.backward_fetch(b"k", None),
        store.find_sessions(b"k", 0, 99),
        store.backward_find_sessions(b"k", 0, 99),
        store.find_sessions(None, None, 0, 99),
        store.backward_find_sessions(b"k", b"l", 0, 99),
        store.find_sessions(0, 99),
    ]


def aggregates(iterator: Any) -> list[int]:
    return sorted(value_of(held) for _, held in iterator)


def test_iterators_see_the_store_as_of_the_call(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0, 10), (b"k", 2, 0, 60))
    iterators = iterators_of(stack)
    store.remove(Windowed(b"k", 0, 10))
    store.put(Windowed(b"k", 0, 60), stack.hold(20))
    store.put(Windowed(b"k", 0, 1000), stack.hold(30))
    assert [aggregates(iterator) for iterator in iterators] == [[1, 2]] * 9


def test_an_iterator_peeks_without_moving(stack: Stack) -> None:
    iterator = stack.open((b"k", 1, 0, 10), (b"k", 2, 0, 60)).fetch(b"k")
    assert iterator.peek_next_key() == Windowed(b"k", 0, 10)
    assert aggregates(iterator) == [1, 2]


def test_a_closed_iterator_refuses_to_go_on(stack: Stack) -> None:
    stack.open((b"k", 1, 0, 10), (b"k", 2, 0, 60))
    checks.closed_iterators_refuse(iterators_of(stack))


def test_closing_the_store_ends_its_iterators_with_an_error(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    checks.closing_ends_iterators(store, iterators_of(stack), iterators_of(stack))


def test_a_closed_store_refuses_everything(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0, 150))
    checks.closed_store_refuses(
        store,
        lambda: store.fetch_session(b"k", 0, 150),
        lambda: store.fetch_session(b"k", 0, 10),
        lambda: store.put(Windowed(b"k", 0, 150), stack.hold(1)),
        lambda: store.put(Windowed(b"k", 0, 10), stack.hold(1)),
        lambda: store.remove(Windowed(b"k", 0, 150)),
        lambda: store.fetch(b"k"),
        lambda: store.backward_fetch(None, None),
        lambda: store.find_sessions(0, 10),
        lambda: store.find_sessions(b"k", 0, 10),
        lambda: store.backward_find_sessions(b"k", b"l", 0, 10),
    )


def test_a_key_of_none_is_a_type_error(stack: Stack) -> None:
    store = stack.open()
    checks.null_keys_are_refused(
        lambda: store.fetch_session(None, 0, 10),
        lambda: store.fetch(None),
        lambda: store.backward_find_sessions(None, 0, 10),
        lambda: store.put(Windowed(None, 0, 10), stack.hold(1)),
        lambda: store.remove(Windowed(None, 0, 10)),
    )


def test_a_read_only_view_reads_the_same_and_cannot_write(stack: Stack) -> None:
    store = stack.open((b"a", 1, 0, 10))
    view = store.read_only()
    store.put(Windowed(b"b", 0, 150), stack.hold(2))
    assert view.stream_time_ms == 150
    assert value_of(view.fetch_session(b"b", 0, 150)) == 2
    assert sessions(view.fetch(None, None)) == [(b"b", 2, 0, 150)]
    assert not hasattr(view, "put")
    assert not hasattr(view, "remove")


def test_every_write_is_logged_without_its_segment_even_one_that_is_dropped(logged: Stack) -> None:
    store = logged.open()
    store.put(Windowed(b"a", 0, 150), logged.hold(1))
    store.remove(Windowed(b"b", 5, 150))
    store.put(Windowed(b"late", 0, 49), logged.hold(2))
    of_value, of_record = (HEADERS, RECORD_HEADERS) if logged.case.has_headers else (Headers(), Headers())
    time_ms = logged.context.timestamp_ms
    assert logged.records() == [
        (encode_session_key(b"a", 0, 150), (1).to_bytes(8, "big"), time_ms, of_value.to_bytes()),
        (encode_session_key(b"b", 5, 150), None, time_ms, of_record.to_bytes()),
        (encode_session_key(b"late", 0, 49), (2).to_bytes(8, "big"), time_ms, of_value.to_bytes()),
    ]
    assert segments_of(logged) == {3}


def test_reads_and_expiry_log_nothing(logged: Stack) -> None:
    store = logged.open(*CONTENT)
    before = len(logged.records())
    store.put(Windowed(b"a", 0, 1000), logged.hold(1))
    for key, _, start, end in CONTENT:
        store.fetch_session(key, start, end)
    list(store.fetch(None, None))
    assert [record.key for record in logged.records()[before:]] == [encode_session_key(b"a", 0, 1000)]


def test_reads_of_aggregates_parse_no_headers(with_headers: Stack) -> None:
    store = with_headers.open(*CONTENT)
    before = parse_count()
    for key, _, start, end in CONTENT:
        assert store.fetch_session(key, start, end) is not None
    for iterator in iterators_of(with_headers):
        assert aggregates(iterator)
    store.put(Windowed(b"passed on", 0, 99), store.fetch_session(b"k", 0, 10))
    assert parse_count() == before


def test_every_read_returns_the_headers(with_headers: Stack) -> None:
    store = with_headers.open()
    store.put(Windowed(b"k", 0, 10), with_headers.hold(1))
    for held in (store.fetch_session(b"k", 0, 10), *(next(iterator)[1] for iterator in iterators_of(with_headers))):
        assert [tuple(header) for header in held.headers] == [("trace", b"1"), ("trace", None)]


def test_legacy_sessions_read_as_sessions_without_headers(upgrading: Stack) -> None:
    store = upgrading.open((b"k", 1, 0, 10), (b"k", 2, 0, 60))
    legacy = (Windowed(b"k", 0, 10), AggregationWithHeaders(1, Headers()))
    assert next(store.fetch(b"k")) == legacy
    assert list(store.backward_fetch(None, None))[-1] == legacy
    assert store.fetch_session(b"k", 0, 10) == legacy[1]
    assert next(store.find_sessions(0, 99)) == legacy


def test_finish_upgrade_moves_what_is_left_and_changes_nothing(upgrading: Stack) -> None:
    store = upgrading.open(*CONTENT)
    before = list(store.fetch(None, None))
    while not store.finish_upgrade(budget_ms=0).is_finished:
        pass
    assert list(store.fetch(None, None)) == before
    assert list(upgrading.reopen().fetch(None, None)) == before
