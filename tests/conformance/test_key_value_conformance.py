"""One contract for every key-value store: plain, timestamped, with headers, on all engines and under all layers."""

from typing import Any

import pytest

from statestore import Headers, Serdes, ValueAndTimestamp, ValueTimestampHeaders
from statestore.bytestore.engines.scans import KeyOrder
from statestore.errors import SerializationError, StoreError
from statestore.format.records.header_bytes import parse_count
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.stores.iterator import StoreIterator
from tests.conformance import checks
from tests.conformance.stacks import (
    HEADERS,
    KEY_VALUE,
    PLAIN,
    RECORD_HEADERS,
    TIMESTAMP_MS,
    TIMESTAMPED_WITH_HEADERS,
    Stack,
    cases,
    hold,
    keys_of,
    stack_of,
    value_of,
    values_of,
)

KIND = KEY_VALUE

KEYS = [b"", b"a", b"k", b"k\x00", b"k\x00\x00", b"k\x01", b"l", b"\xff", b"\xff\xff"]
CONTENT = [(key, number) for number, key in enumerate(KEYS)]


def test_get_returns_what_was_put_and_none_of_other_keys(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    assert [value_of(store.get(key)) for key in KEYS] == list(range(len(KEYS)))
    assert store.get(b"absent") is None
    assert store.get(b"k\x00\x00\x00") is None


def test_put_replaces_and_none_deletes(stack: Stack) -> None:
    store = stack.open((b"a", 1), (b"b", 2), (b"c", 3), (b"d", 4))
    store.put(b"a", stack.hold(10))
    store.put(b"b", None)
    store.put(b"absent", None)
    store.put(b"d", stack.hold(40))
    assert [value_of(store.get(key)) for key in (b"a", b"b", b"c", b"d", b"absent")] == [10, None, 3, 40, None]
    assert values_of(store.all()) == [(b"a", 10), (b"c", 3), (b"d", 40)]


def test_a_holder_of_none_deletes(with_headers: Stack) -> None:
    store = with_headers.open((b"a", 1), (b"b", 2))
    store.put(b"a", ValueTimestampHeaders.make_allow_nullable(None, 5, HEADERS))
    assert values_of(store.all()) == [(b"b", 2)]


def test_an_entry_comes_back_with_its_timestamp_and_headers(stack: Stack) -> None:
    store = stack.open((b"a", 1))
    kept = stack.hold(-7, 2**63 - 1, Headers([("", b""), ("ä", None), ("", b"\xff")]))
    store.put(b"a", kept)
    store.put(b"none", stack.hold(8, 0, Headers()))
    assert store.get(b"a") == kept
    assert dict(store.all()) == {b"a": kept, b"none": stack.hold(8, 0, Headers())}


def test_put_if_absent_sets_what_is_absent_only(stack: Stack) -> None:
    store = stack.open((b"a", 1), (b"b", 2))
    assert value_of(store.put_if_absent(b"a", stack.hold(10))) == 1
    assert value_of(store.put_if_absent(b"b", stack.hold(20))) == 2
    assert store.put_if_absent(b"c", stack.hold(30)) is None
    assert store.put_if_absent(b"d", None) is None
    assert values_of(store.all()) == [(b"a", 1), (b"b", 2), (b"c", 30)]


def test_put_all_is_in_order(stack: Stack) -> None:
    store = stack.open((b"a", 1), (b"b", 2))
    store.put_all([(b"a", stack.hold(3)), (b"c", stack.hold(4)), (b"a", stack.hold(5)), (b"b", None)])
    assert values_of(store.all()) == [(b"a", 5), (b"c", 4)]


def test_put_all_of_something_that_cannot_be_stored_changes_nothing(stack: Stack) -> None:
    store = stack.open((b"a", 1))
    with pytest.raises(SerializationError):
        store.put_all([(b"b", stack.hold(2)), (b"c", stack.hold("not an integer"))])  # type: ignore[arg-type]
    assert values_of(store.all()) == [(b"a", 1)]


def test_delete_returns_what_was_there(stack: Stack) -> None:
    store = stack.open((b"a", 1), (b"b", 2))
    assert value_of(store.delete(b"a")) == 1
    assert value_of(store.delete(b"b")) == 2
    assert store.delete(b"b") is None
    assert values_of(store.all()) == []


RANGES = [
    (None, None, KEYS),
    (b"k", b"l", [b"k", b"k\x00", b"k\x00\x00", b"k\x01", b"l"]),
    (b"k\x00", b"k\x00", [b"k\x00"]),
    (b"", b"", [b""]),
    (None, b"k", [b"", b"a", b"k"]),
    (b"\xff", None, [b"\xff", b"\xff\xff"]),
    (b"b", b"j", []),
    (b"l", b"k", []),
]


@pytest.mark.parametrize(("start", "end", "expected"), RANGES)
def test_range_is_inclusive_and_in_the_order_of_bytes(
    stack: Stack, start: bytes | None, end: bytes | None, expected: list[bytes]
) -> None:
    store = stack.open(*CONTENT[::-1])
    assert values_of(store.range(start, end)) == [(key, KEYS.index(key)) for key in expected]
    assert values_of(store.reverse_range(start, end)) == [(key, KEYS.index(key)) for key in expected[::-1]]


@pytest.mark.parametrize(("start", "end", "expected"), RANGES)
def test_range_values_yields_the_values_alone(
    stack: Stack, start: bytes | None, end: bytes | None, expected: list[bytes]
) -> None:
    store = stack.open(*CONTENT)
    with store.range_values(start, end) as values:
        assert list(values) == [KEYS.index(key) for key in expected]


def test_all_goes_both_ways(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    assert values_of(store.all()) == CONTENT
    assert values_of(store.reverse_all()) == CONTENT[::-1]


def test_prefix_scan_yields_the_keys_that_begin_with_it(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    assert keys_of(store.prefix_scan(b"k")) == [b"k", b"k\x00", b"k\x00\x00", b"k\x01"]
    assert keys_of(store.prefix_scan(b"\xff")) == [b"\xff", b"\xff\xff"]
    assert keys_of(store.prefix_scan(b"")) == KEYS
    assert keys_of(store.prefix_scan(b"none")) == []
    assert keys_of(store.prefix_scan("k\x00", Serdes.string())) == [b"k\x00", b"k\x00\x00"]
    more = [b"k\xfe", b"k\xff", b"k\xff\x00", b"k\xff\xff"]
    stack.store.put_all([(key, stack.hold(1)) for key in more])
    assert keys_of(store.prefix_scan(b"k\xff")) == more[1:]
    assert keys_of(store.prefix_scan(b"\xff\xff")) == [b"\xff\xff"]
    assert keys_of(store.prefix_scan(b"\xff\xff\xff")) == []


def test_a_prefix_scan_looks_at_no_written_key_behind_its_prefix(fresh: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
    store = fresh.open(*((b"%s%02d" % (prefix, number), 1) for prefix in (b"k", b"l") for number in range(20)))
    looked_at: list[bytes] = []
    between = KeyOrder.between

    def noted(*arguments: Any, **options: Any) -> list[bytes]:
        found = between(*arguments, **options)
        looked_at.extend(found)
        return found

    monkeypatch.setattr(KeyOrder, "between", noted)
    assert len(keys_of(store.prefix_scan(b"k0"))) == 10
    # Those that are asked for, and once more in the store that says when they expire.
    assert len(looked_at) <= 2 * 10


def test_approximate_num_entries_counts_keys(fresh: Stack) -> None:
    store = fresh.open(*CONTENT)
    assert store.approximate_num_entries() == len(CONTENT)


def test_iterators_see_the_store_as_of_the_call(stack: Stack) -> None:
    store = stack.open((b"a", 1), (b"b", 2))
    iterators = [store.all(), store.range(None, b"z"), store.prefix_scan(b""), store.reverse_all()]
    alone = store.range_values(None, None)
    store.put_all([(b"a", None), (b"b", stack.hold(20)), (b"c", stack.hold(30))])
    assert [sorted(values_of(iterator)) for iterator in iterators] == [[(b"a", 1), (b"b", 2)]] * 4
    assert list(alone) == [1, 2]


def test_what_an_iterator_yields_may_be_deleted_meanwhile(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    assert [value_of(store.delete(key)) for key, _ in store.all()] == list(range(len(KEYS)))
    assert values_of(store.all()) == []


def test_an_iterator_peeks_without_moving(stack: Stack) -> None:
    iterator = stack.open((b"a", 1), (b"b", 2)).all()
    assert iterator.peek_next_key() == b"a"
    assert value_of(iterator.peek_next()[1]) == 1
    assert values_of(iterator) == [(b"a", 1), (b"b", 2)]
    with pytest.raises(StopIteration):
        iterator.peek_next()


def test_a_closed_iterator_refuses_to_go_on(stack: Stack) -> None:
    with stack.open(*CONTENT).all() as iterator:
        assert keys_of([next(iterator)]) == [b""]
        assert iterator.peek_next_key() == b"a"
    assert not iterator.is_open
    for use in (lambda: next(iterator), lambda: list(iterator), iterator.peek_next):
        with pytest.raises(StoreError, match="closed"):
            use()
    iterator.close()


def iterators_of(stack: Stack) -> list[StoreIterator]:
    store = stack.store
    return [
        store.all(),
        store.reverse_all(),
        store.range(b"", None),
        store.reverse_range(None, b"z"),
        store.prefix_scan(b""),
        store.range_values(None, None),
    ]


def test_closing_the_store_ends_its_iterators_with_an_error(stack: Stack) -> None:
    store = stack.open(*CONTENT)
    checks.closing_ends_iterators(store, iterators_of(stack), iterators_of(stack))


def test_a_closed_store_refuses_everything(stack: Stack) -> None:
    store = stack.open((b"a", 1))
    assert store.is_open
    checks.closed_store_refuses(
        store,
        lambda: store.get(b"a"),
        lambda: store.put(b"a", stack.hold(1)),
        lambda: store.put(b"a", None),
        lambda: store.put_if_absent(b"a", stack.hold(1)),
        lambda: store.put_all([(b"a", stack.hold(1))]),
        lambda: store.delete(b"a"),
        store.all,
        store.reverse_all,
        lambda: store.range(None, None),
        lambda: store.reverse_range(None, None),
        lambda: store.prefix_scan(b""),
        lambda: store.range_values(None, None),
        store.approximate_num_entries,
    )


def test_a_key_of_none_is_a_type_error(stack: Stack) -> None:
    store = stack.open((b"a", 1))
    checks.null_keys_are_refused(
        lambda: store.get(None),
        lambda: store.put(None, stack.hold(1)),
        lambda: store.put_if_absent(None, stack.hold(1)),
        lambda: store.put_all([(b"b", stack.hold(1)), (None, stack.hold(1))]),
        lambda: store.delete(None),
    )
    assert values_of(store.all()) == [(b"a", 1)]


def test_a_read_only_view_reads_the_same_and_cannot_write(stack: Stack) -> None:
    store = stack.open((b"a", 1))
    view = store.read_only()
    store.put(b"b", stack.hold(2))
    assert [value_of(view.get(key)) for key in (b"a", b"b")] == [1, 2]
    assert values_of(view.all()) == [(b"a", 1), (b"b", 2)]
    assert not [method for method in ("put", "put_if_absent", "put_all", "delete") if hasattr(view, method)]


def test_what_was_put_is_there_when_the_store_is_opened_again(stack: Stack) -> None:
    store = stack.open((b"a", 1), (b"b", 2), (b"c", 3))
    store.put(b"b", None)
    store.put(b"d", stack.hold(4))
    assert values_of(stack.reopen().all()) == [(b"a", 1), (b"c", 3), (b"d", 4)]


def test_a_key_value_store_keeps_no_time(stack: Stack) -> None:
    assert stack.open((b"a", 1)).stream_time_ms is None


def test_every_write_is_logged_in_order(logged: Stack) -> None:
    store = logged.open()
    store.put(b"a", logged.hold(1))
    store.put_all([(b"b", logged.hold(2)), (b"c", logged.hold(3))])
    store.put_if_absent(b"d", logged.hold(4))
    store.put_if_absent(b"a", logged.hold(5))
    store.delete(b"e")
    store.put(b"f", None)
    records = logged.records()
    assert [record.key for record in records] == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert [record.value and int.from_bytes(record.value, "big") for record in records] == [1, 2, 3, 4, None, None]


def test_a_logged_record_carries_the_values_time_and_headers_or_else_the_records(logged: Stack) -> None:
    store = logged.open()
    store.put(b"a", logged.hold(1))
    store.delete(b"gone")
    timestamp_ms = TIMESTAMP_MS if logged.case.has_timestamps else logged.context.timestamp_ms
    of_value, of_record = (HEADERS, RECORD_HEADERS) if logged.case.has_headers else (Headers(), Headers())
    assert logged.records() == [
        ChangelogRecord(b"a", (1).to_bytes(8, "big"), timestamp_ms, of_value.to_bytes()),
        ChangelogRecord(b"gone", None, logged.context.timestamp_ms, of_record.to_bytes()),
    ]


def test_a_read_logs_nothing_not_even_one_that_moves_an_entry(logged: Stack) -> None:
    store = logged.open(*CONTENT)
    before = logged.records()[:]
    for key in KEYS:
        store.get(key)
    list(store.all())
    list(store.prefix_scan(b"k"))
    assert logged.records() == before


def test_reads_of_values_parse_no_headers(with_headers: Stack) -> None:
    store = with_headers.open(*CONTENT)
    before = parse_count()
    for key in KEYS:
        assert store.get(key) is not None
    for iterator in (store.all(), store.reverse_range(None, None), store.prefix_scan(b"")):
        assert sum(value for _, value in values_of(iterator)) == sum(range(len(KEYS)))
    assert store.put_if_absent(b"a", with_headers.hold(1)) is not None
    assert sum(store.range_values(None, None)) == sum(range(len(KEYS)))
    store.put(b"passed on", store.delete(b"k"))
    assert parse_count() == before


@pytest.mark.parametrize("read", ["get", "put_if_absent", "delete", "range", "prefix_scan"])
def test_every_read_returns_the_headers(with_headers: Stack, read: str) -> None:
    store = with_headers.open()
    store.put(b"a", with_headers.hold(1))
    held = {
        "get": lambda: store.get(b"a"),
        "put_if_absent": lambda: store.put_if_absent(b"a", with_headers.hold(2)),
        "delete": lambda: store.delete(b"a"),
        "range": lambda: next(store.range(b"a", b"a"))[1],
        "prefix_scan": lambda: next(store.prefix_scan(b"a"))[1],
    }[read]()
    assert [tuple(header) for header in held.headers] == [("trace", b"1"), ("trace", None)]


def test_legacy_entries_read_as_what_their_format_could_hold(upgrading: Stack) -> None:
    store = upgrading.open((b"a", 1), (b"b", 2), (b"c", 3), (b"d", 4))
    timestamp_ms = -1 if upgrading.case.older is PLAIN else TIMESTAMP_MS
    legacy = hold(upgrading.case.format, 1, timestamp_ms, Headers())
    assert isinstance(legacy, ValueAndTimestamp | ValueTimestampHeaders)
    assert next(store.all())[1] == legacy
    assert next(store.reverse_range(None, b"a"))[1] == legacy
    assert store.get(b"a") == legacy
    assert store.delete(b"a") == legacy
    last = upgrading.hold(4) if upgrading.case.half else hold(upgrading.case.format, 4, timestamp_ms, Headers())
    assert store.put_if_absent(b"d", upgrading.hold(40)) == last


def test_finish_upgrade_moves_what_is_left_and_changes_nothing(upgrading: Stack) -> None:
    store = upgrading.open(*CONTENT)
    store.put(b"new", upgrading.hold(99))
    before = list(store.all())
    assert not store.upgrade_progress().is_finished
    while not store.finish_upgrade(budget_ms=0).is_finished:
        pass
    assert list(store.all()) == before
    assert list(upgrading.reopen().all()) == before
    assert upgrading.store.upgrade_progress().is_finished


def test_caching_passes_on_the_last_write_of_each_key_for_the_record_it_was_made_for() -> None:
    (case,) = cases(KEY_VALUE, lambda case: str(case) == "timestamped with headers, rocksdb, cached, fresh")
    with stack_of(case) as stack:
        store = stack.open()
        store.put(b"a", stack.hold(1))
        store.put(b"b", stack.hold(2))
        stack.context.timestamp_ms = 8
        store.delete(b"c")
        stack.context.timestamp_ms = 9
        store.put(b"a", stack.hold(3))
        assert (stack.committed.get(b"a"), stack.changelog.records()) == (None, [])
        assert values_of(store.all()) == [(b"a", 3), (b"b", 2)]
        store.flush()
        stack.context.timestamp_ms = 10
        logged = [(record.key, record.timestamp_ms) for record in stack.changelog.records()]
        assert logged == [(b"b", TIMESTAMP_MS), (b"c", 8), (b"a", TIMESTAMP_MS)]
        assert stack.case.format is TIMESTAMPED_WITH_HEADERS
        assert stack.committed.get(b"a") is not None
