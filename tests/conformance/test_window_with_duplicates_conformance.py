"""One contract for every window store that retains duplicates, on all engines.

Segments span 50 ms, windows 10 ms, and 100 ms are kept: see `stacks`.
"""

import pytest

from statestore.format.keys.window_key import split_window_key
from tests.conformance.stacks import PLAIN, WINDOW_WITH_DUPLICATES, Stack, segments_of, value_of, values_of
from tests.conformance.test_window_conformance import windowed

KIND = WINDOW_WITH_DUPLICATES


def test_duplicates_come_in_the_order_in_which_they_were_put(stack: Stack) -> None:
    store = stack.open((b"k", 3, 0), (b"k", 1, 0), (b"k", 2, 50), (b"k", 3, 0), (b"k\x00", 9, 0))
    assert values_of(store.fetch(b"k", 0, 99)) == [(0, 3), (0, 1), (0, 3), (50, 2)]
    assert values_of(store.backward_fetch(b"k", 0, 99)) == [(50, 2), (0, 3), (0, 1), (0, 3)]
    assert windowed(store.all()) == [(b"k\x00", 9, 0), (b"k", 3, 0), (b"k", 1, 0), (b"k", 3, 0), (b"k", 2, 50)]
    assert windowed(store.fetch(b"k", b"k", 0, 0)) == [(b"k", 3, 0), (b"k", 1, 0), (b"k", 3, 0)]


def test_of_duplicates_fetch_returns_the_last(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0), (b"k", 2, 0), (b"k\x00", 9, 0))
    assert value_of(store.fetch(b"k", 0)) == 2
    assert store.fetch(b"k", 1) is None


def test_none_changes_nothing_among_duplicates(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0))
    store.put(b"k", None, 0)
    store.put(b"k", stack.hold(2), 0)
    store.put(b"absent", None, 0)
    assert windowed(store.all()) == [(b"k", 1, 0), (b"k", 2, 0)]


def test_duplicates_go_on_where_they_were_when_the_store_is_opened_again(stack: Stack) -> None:
    stack.open((b"k", 1, 0), (b"k", 2, 0))
    store = stack.reopen()
    store.put(b"k", stack.hold(3), 0)
    store.put(b"other", stack.hold(4), 0)
    store.put(b"k", stack.hold(5), 0)
    assert values_of(store.fetch(b"k", 0, 99)) == [(0, 1), (0, 2), (0, 3), (0, 5)]


def test_duplicates_are_logged_under_keys_of_their_own(logged: Stack) -> None:
    store = logged.open((b"k", 1, 0), (b"k", 1, 0))
    store.put(b"k", None, 0)
    store.put(b"k", logged.hold(1), 0)
    records = logged.records()
    assert [split_window_key(record.key) for record in records] == [(b"k", 0, number) for number in (1, 2, 3, 4)]
    assert [record.value is None for record in records] == [False, False, True, False]


def test_duplicates_expire_with_their_segment(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0), (b"k", 2, 0), (b"k", 3, 60))
    store.put(b"k", stack.hold(4), 155)
    assert windowed(store.all()) == [(b"k", 3, 60), (b"k", 4, 155)]
    assert segments_of(stack) == {1, 3}


def test_a_store_with_duplicates_is_never_cached(caplog: pytest.LogCaptureFixture) -> None:
    builder = WINDOW_WITH_DUPLICATES.builder(PLAIN).with_caching_enabled()
    assert not builder.caching_enabled
    assert "not cached" in caplog.text
