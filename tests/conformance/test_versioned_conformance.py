"""One contract for every versioned store: plain and with headers, on all engines and under all layers.

Segments span 50 ms, and 100 ms of history are kept: see `stacks`.
"""

from typing import Any

import pytest

from statestore import Headers, ResultOrder, VersionedRecord, VersionedRecordWithHeaders
from statestore.bytestore.kinds.segments import LATEST_SEGMENT
from statestore.bytestore.kinds.versioned_rows import NOT_PUT
from statestore.errors import StoreError
from statestore.errors.state import StoreClosedError
from statestore.format.records.header_bytes import parse_count
from tests.conformance import checks
from tests.conformance.stacks import HEADERS, RECORD_HEADERS, VERSIONED, Stack, cases, segments_of, stack_of

KIND = VERSIONED

MAX_MS = 2**63 - 1
LATEST = -1
TOO_OLD = -(2**63)

# Three versions, a tombstone at 40, and one more, over two segments; and a key that begins like the first.
CONTENT = [(b"k", 1, 10), (b"k", 2, 20), (b"k\x00", 9, 15), (b"k", 3, 30), (b"k", None, 40), (b"k", 4, 60)]
VERSIONS = [(1, 10, 20), (2, 20, 30), (3, 30, 40), (4, 60, None)]


def version(found: Any) -> tuple[int, int, int | None] | None:
    """Return value, and from when and until when it was valid."""
    return None if found is None else (found.value, found.timestamp_ms, found.valid_to_ms)


def versions(found: Any) -> list[Any]:
    return [version(one) for one in found]


def test_get_returns_the_latest_version(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    assert version(store.get(b"k")) == (4, 60, None)
    assert version(store.get(b"k\x00")) == (9, 15, None)
    assert store.get(b"absent") is None


def test_get_of_a_deleted_key_is_none(stack: Stack) -> None:
    store = stack.open((b"k", 1, 10), (b"k", None, 20))
    assert store.get(b"k") is None
    assert store.get(b"k", 20) is None
    assert version(store.get(b"k", 19)) == (1, 10, 20)


@pytest.mark.parametrize(
    ("as_of", "expected"),
    [
        (0, None),
        (9, None),
        (10, (1, 10, 20)),
        (19, (1, 10, 20)),
        (20, (2, 20, 30)),
        (39, (3, 30, 40)),
        (40, None),
        (59, None),
        (60, (4, 60, None)),
        (MAX_MS, (4, 60, None)),
    ],
)
def test_get_as_of_returns_what_was_valid_then(stack: Stack, as_of: int, expected: Any) -> None:
    assert version(stack.open(*CONTENT).get(b"k", as_of)) == expected


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, MAX_MS, VERSIONS),
        (0, 9, []),
        (0, 10, VERSIONS[:1]),
        (19, 20, VERSIONS[:2]),
        (20, 29, VERSIONS[1:2]),
        (30, 60, VERSIONS[2:]),
        (40, 59, []),
        (61, 99, VERSIONS[3:]),
        (30, 20, []),
    ],
)
def test_get_between_yields_what_was_valid_at_some_time_both_ends_inclusive(
    stack: Stack, first: int, last: int, expected: list[Any]
) -> None:
    store = stack.open(*CONTENT)
    assert versions(store.get(b"k", first, last, ResultOrder.ASCENDING)) == expected
    assert versions(store.get(b"k", first, last, ResultOrder.DESCENDING)) == expected[::-1]
    assert sorted(versions(store.get(b"k", first, last)), key=lambda one: one[1]) == expected
    assert sorted(versions(store.get(b"k", first, last, ResultOrder.ANY)), key=lambda one: one[1]) == expected


def test_versions_that_come_out_of_order_are_put_in_between(stack: Stack) -> None:
    store = stack.open((b"k", 4, 60), (b"k", 1, 10), (b"k", None, 40), (b"k", 3, 30), (b"k", 2, 20))
    assert versions(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == VERSIONS


def test_put_returns_until_when_the_version_is_valid(stack: Stack) -> None:
    store = stack.open((b"k", 1, 10))
    assert store.put(b"k", 2, 30) == LATEST
    assert store.put(b"k", 3, 20) == 30
    assert store.put(b"k", 4, 5) == 10
    assert store.put(b"k", None, 25) == 30
    assert store.put(b"k", None, 40) == LATEST
    assert store.put(b"k", 5, 35) == 40
    assert store.put(b"absent", None, 50) == LATEST
    assert store.put(b"absent", 6, 45) == 50
    assert versions(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == [
        (4, 5, 10),
        (1, 10, 20),
        (3, 20, 25),
        (2, 30, 35),
        (5, 35, 40),
    ]


def test_a_version_of_the_same_time_replaces_the_other(stack: Stack) -> None:
    store = stack.open((b"k", 1, 10), (b"k", 2, 20), (b"k", 3, 30))
    assert store.put(b"k", 10, 10) == 20
    assert store.put(b"k", None, 20) == 30
    assert store.put(b"k", 30, 30) == LATEST
    assert versions(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == [(10, 10, 20), (30, 30, None)]
    assert store.put(b"k", None, 30) == LATEST
    assert store.get(b"k") is None
    assert versions(store.get(b"k", 0, 99)) == [(10, 10, 20)]


def test_tombstones_that_follow_one_another_are_remembered(stack: Stack) -> None:
    store = stack.open((b"k", 1, 10), (b"k", None, 20))
    assert store.put(b"k", None, 30) == LATEST
    assert store.put(b"k", None, 60) == LATEST
    assert store.put(b"k", 2, 25) == 30
    assert store.put(b"k", 3, 40) == 60
    assert versions(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == [(1, 10, 20), (2, 25, 30), (3, 40, 60)]


def test_delete_returns_the_version_that_was_valid_then(stack: Stack) -> None:
    store = stack.open((b"k", 1, 10), (b"k", 2, 20))
    assert store.delete(b"k", 5) is None
    assert version(store.delete(b"k", 15)) == (1, 10, 20)
    assert version(store.delete(b"k", 30)) == (2, 20, None)
    assert store.delete(b"k", 40) is None
    assert versions(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == [(1, 10, 15), (2, 20, 30)]


def test_a_version_older_than_the_history_is_not_stored(stack: Stack) -> None:
    store = stack.open((b"k", 1, 200))
    before = list(stack.bytes.range(None, None))
    assert TOO_OLD == NOT_PUT
    assert store.put(b"k", 2, 99) == TOO_OLD
    assert store.put(b"new", 3, 99) == TOO_OLD
    assert store.delete(b"k", 99) is None
    assert list(stack.bytes.range(None, None)) == before
    assert store.put(b"k", 4, 100) == 200


def test_beyond_the_history_only_the_latest_version_is_read(stack: Stack) -> None:
    store = stack.open((b"k", 1, 10), (b"k", 2, 20), (b"old", 3, 10))
    store.put(b"other", 9, 130)
    assert store.get(b"k", 29) == store.get(b"k")
    assert version(store.get(b"old", 10)) == (3, 10, None)
    assert store.get(b"k", 15) is None
    assert versions(store.get(b"k", 0, 15)) == []
    assert versions(store.get(b"k", 0, 29)) == [(2, 20, None)]
    assert versions(store.get(b"old", 0, 29)) == [(3, 10, None)]


def test_versions_within_the_history_are_read(stack: Stack) -> None:
    store = stack.open((b"k", 1, 10), (b"k", 2, 60))
    store.put(b"other", 9, 150)
    assert version(store.get(b"k", 50)) == (1, 10, 60)
    assert store.get(b"k", 49) is None
    assert versions(store.get(b"k", 0, 50)) == [(1, 10, 60)]


def test_expired_segments_are_gone_and_latest_versions_stay(stack: Stack) -> None:
    store = stack.open((b"k", 1, 10), (b"k", 2, 40), (b"k", 3, 60), (b"k", 4, 120))
    assert segments_of(stack) == {0, 1, 2, LATEST_SEGMENT}
    store.put(b"other", 9, 160)
    assert segments_of(stack) == {1, 2, LATEST_SEGMENT}
    store.put(b"another", 9, 1000)
    assert segments_of(stack) == {LATEST_SEGMENT}
    assert version(store.get(b"k")) == (4, 120, None)
    assert versions(store.get(b"k", 0, 1000)) == [(4, 120, None)]


def test_stream_time_is_the_latest_time_that_was_put(stack: Stack) -> None:
    store = stack.open()
    assert store.stream_time_ms == -1
    store.put(b"k", 1, 60)
    store.put(b"k", 2, 10)
    assert store.stream_time_ms == 60
    store.delete(b"k", 70)
    assert store.stream_time_ms == 70


def test_the_ends_of_time_are_times(stack: Stack) -> None:
    store = stack.open((b"k", 1, 0))
    assert version(store.get(b"k", 0)) == (1, 0, None)
    store.put(b"k", 2, MAX_MS)
    assert version(store.get(b"k", MAX_MS)) == (2, MAX_MS, None)
    assert version(store.get(b"k", MAX_MS - 1)) == (1, 0, MAX_MS)
    assert store.put(b"k", None, MAX_MS) == LATEST
    assert store.get(b"k") is None


def test_what_was_put_is_there_when_the_store_is_opened_again(stack: Stack) -> None:
    stack.open(*CONTENT)
    store = stack.reopen()
    assert versions(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == VERSIONS
    assert store.stream_time_ms == 60
    assert version(store.get(b"k\x00", 20)) == (9, 15, None)


def test_iterators_see_the_store_as_of_the_call(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    iterator = store.get(b"k", 0, 99, ResultOrder.ASCENDING)
    store.put(b"k", 20, 20)
    store.put(b"k", None, 60)
    store.put(b"k", 5, 1000)
    assert versions(iterator) == VERSIONS


def test_a_closed_iterator_refuses_to_go_on(stack: Stack) -> None:
    with stack.open(*CONTENT).get(b"k", 0, 99) as iterator:
        assert version(iterator.peek_next()) == (4, 60, None)
        assert version(next(iterator)) == (4, 60, None)
    assert not iterator.is_open
    with pytest.raises(StoreError, match="closed"):
        next(iterator)


def test_closing_the_store_ends_its_iterators_with_an_error(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    begun, untouched = store.get(b"k", 0, 99), store.get(b"k", 0, 99)
    next(begun)
    store.close()
    for iterator in (begun, untouched):
        with pytest.raises(StoreClosedError):
            next(iterator)


def test_a_closed_store_refuses_everything(stack: Stack) -> None:
    store = stack.open((b"k", 1, 200))
    checks.closed_store_refuses(
        store,
        lambda: store.get(b"k"),
        lambda: store.get(b"k", 200),
        lambda: store.get(b"k", 10),
        lambda: store.get(b"k", 0, 10),
        lambda: store.put(b"k", 1, 200),
        lambda: store.put(b"k", 1, 10),
        lambda: store.delete(b"k", 200),
        lambda: store.delete(b"k", 10),
    )


def test_a_key_of_none_is_a_type_error(stack: Stack) -> None:
    store = stack.open()
    checks.null_keys_are_refused(
        lambda: store.get(None),
        lambda: store.get(None, 0),
        lambda: store.get(None, 0, 99),
        lambda: store.put(None, 1, 0),
        lambda: store.delete(None, 0),
    )


def test_a_read_only_view_reads_the_same_and_cannot_write(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    view = store.read_only()
    store.put(b"k", 5, 70)
    assert view.stream_time_ms == 70
    assert version(view.get(b"k")) == (5, 70, None)
    assert version(view.get(b"k", 65)) == (4, 60, 70)
    assert len(versions(view.get(b"k", 0, 99))) == 5
    assert not hasattr(view, "put")
    assert not hasattr(view, "delete")


def test_every_put_is_logged_with_its_own_time_even_one_that_is_not_stored(logged: Stack) -> None:
    store = logged.open()
    headers = (HEADERS,) if logged.case.has_headers else ()
    of_value, of_record = (HEADERS, RECORD_HEADERS) if logged.case.has_headers else (Headers(), Headers())
    store.put(b"k", 1, 200, *headers)
    store.put(b"k", 2, 150, *headers)
    store.delete(b"k", 160)
    store.put(b"k", 3, 99, *headers)
    assert logged.records() == [
        (b"k", (1).to_bytes(8, "big"), 200, of_value.to_bytes()),
        (b"k", (2).to_bytes(8, "big"), 150, of_value.to_bytes()),
        (b"k", None, 160, of_record.to_bytes()),
        (b"k", (3).to_bytes(8, "big"), 99, of_value.to_bytes()),
    ]


def test_reads_log_nothing(logged: Stack) -> None:
    store = logged.open(*CONTENT)
    before = len(logged.records())
    store.get(b"k")
    store.get(b"k", 20)
    list(store.get(b"k", 0, 99))
    assert len(logged.records()) == before


def test_a_version_comes_back_with_its_headers_and_a_delete_keeps_none(with_headers: Stack) -> None:
    store = with_headers.open()
    other = Headers([("", b""), ("ä", None)])
    store.put(b"k", 1, 10, HEADERS)
    store.put(b"k", 2, 20, other)
    store.put(b"k", 3, 30)
    expected = [
        VersionedRecordWithHeaders(1, 10, 20, HEADERS),
        VersionedRecordWithHeaders(2, 20, 30, other),
        VersionedRecordWithHeaders(3, 30, None, Headers()),
    ]
    assert list(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == expected
    assert [store.get(b"k", time) for time in (10, 20, 30)] == expected
    assert store.get(b"k") == expected[2]
    assert store.delete(b"k", 25) == expected[1]
    assert list(store.read_only().get(b"k", 10, 10)) == expected[:1]


def test_reads_of_values_parse_no_headers(with_headers: Stack) -> None:
    store = with_headers.open(*CONTENT)
    before = parse_count()
    assert version(store.get(b"k")) == (4, 60, None)
    assert version(store.get(b"k", 20)) == (2, 20, 30)
    assert versions(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == VERSIONS
    store.put(b"passed on", 1, 60, store.get(b"k").headers)
    assert parse_count() == before


def test_a_plain_version_has_no_headers() -> None:
    (case,) = cases(VERSIONED, lambda case: str(case) == "plain, rocksdb, bare, fresh")
    with stack_of(case) as stack:
        store = stack.open((b"k", 1, 10), (b"k", 2, 20))
        assert store.get(b"k") == VersionedRecord(2, 20)
        assert store.get(b"k", 10) == VersionedRecord(1, 10, 20)


def test_legacy_versions_read_as_versions_without_headers(upgrading: Stack) -> None:
    store = upgrading.open((b"k", 1, 10), (b"k", 2, 20), (b"l", 3, 30), (b"l", 4, 40))
    expected = [VersionedRecordWithHeaders(1, 10, 20), VersionedRecordWithHeaders(2, 20)]
    assert list(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == expected
    assert store.get(b"k", 10) == expected[0]
    assert store.get(b"k") == expected[1]


def test_a_put_into_a_legacy_row_keeps_the_versions_in_it(upgrading: Stack) -> None:
    store = upgrading.open(*CONTENT)
    store.put(b"k", 25, 25, HEADERS)
    assert versions(store.get(b"k", 0, 99, ResultOrder.ASCENDING)) == [
        (1, 10, 20),
        (2, 20, 25),
        (25, 25, 30),
        (3, 30, 40),
        (4, 60, None),
    ]
    assert store.get(b"k", 25).headers == HEADERS
    assert store.get(b"k", 10).headers == Headers()


def test_finish_upgrade_moves_what_is_left_and_changes_nothing(upgrading: Stack) -> None:
    store = upgrading.open(*CONTENT)
    before = list(upgrading.bytes.range(None, None))
    while not store.finish_upgrade(budget_ms=0).is_finished:
        pass
    assert list(upgrading.bytes.range(None, None)) == before
    assert versions(upgrading.reopen().get(b"k", 0, 99, ResultOrder.ASCENDING)) == VERSIONS


def test_a_versioned_store_is_never_cached() -> None:
    with pytest.raises(ValueError, match="cached"):
        VERSIONED.builder(min(VERSIONED.builders)).with_caching_enabled()
