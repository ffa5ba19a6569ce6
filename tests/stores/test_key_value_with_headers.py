"""The timestamped key-value store with headers: Kafka's methods, over a batch's write set on RocksDB."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore import Headers, Serdes, Stores, TimestampedKeyValueStoreWithHeaders, ValueTimestampHeaders
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kinds.store_spec import column_family
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors import SerializationError, StoreError
from statestore.errors.state import StoreClosedError
from statestore.format.records.header_bytes import parse_count

BUILDER = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("totals"), Serdes.string(), Serdes.int64()
)
Store = TimestampedKeyValueStoreWithHeaders[str, int]


def entry(value: int, timestamp_ms: int = 1, *headers: tuple[str, bytes | None]) -> ValueTimestampHeaders[int]:
    return ValueTimestampHeaders(value, timestamp_ms, Headers(headers))


@pytest.fixture
def write_set(tmp_path: Path) -> Iterator[WriteSet]:
    database = RocksDBDatabase(str(tmp_path / "db"), [column_family(BUILDER.spec)])
    yield WriteSet(database.family(column_family(BUILDER.spec), "totals"))
    database.close()


@pytest.fixture
def store(write_set: WriteSet) -> Store:
    return BUILDER.build(write_set)


def test_get_returns_value_timestamp_and_headers_as_they_were_put(store: Store) -> None:
    assert store.get("k") is None
    kept = entry(-7, -1, ("a", b"1"), ("a", None), ("", b""), ("ä", b"\xff"))
    store.put("k", kept)
    assert store.get("k") == kept
    store.put("k", entry(8))
    assert store.get("k") == entry(8)


def test_put_of_none_or_of_a_null_value_deletes(store: Store) -> None:
    store.put("a", entry(1))
    store.put("b", entry(2))
    store.put("a", None)
    store.put("b", ValueTimestampHeaders.make_allow_nullable(None, 5))
    assert store.get("a") is None
    assert list(store.all()) == []


def test_put_if_absent(store: Store) -> None:
    assert store.put_if_absent("k", entry(1, 1, ("h", b"1"))) is None
    assert store.put_if_absent("k", entry(2)) == entry(1, 1, ("h", b"1"))
    assert store.get("k") == entry(1, 1, ("h", b"1"))
    assert store.put_if_absent("absent", None) is None
    assert store.get("absent") is None


def test_put_all_is_in_order_and_all_or_nothing(store: Store) -> None:
    store.put_all([("a", entry(1)), ("b", entry(2)), ("a", entry(3)), ("b", None)])
    assert list(store.all()) == [("a", entry(3))]
    with pytest.raises(SerializationError):
        store.put_all([("c", entry(1)), ("d", ValueTimestampHeaders("not an int", 1, Headers()))])  # type: ignore[list-item]
    assert store.get("c") is None


def test_delete_returns_what_was_there(store: Store) -> None:
    store.put("k", entry(1, 9, ("h", None)))
    assert store.delete("k") == entry(1, 9, ("h", None))
    assert store.delete("k") is None
    assert store.get("k") is None


def test_ranges_are_inclusive_and_go_both_ways(store: Store) -> None:
    for number, key in enumerate("cabd"):
        store.put(key, entry(number))
    assert [key for key, _ in store.range("b", "c")] == ["b", "c"]
    assert [key for key, _ in store.reverse_range("b", "c")] == ["c", "b"]
    assert [key for key, _ in store.range(None, "b")] == ["a", "b"]
    assert [key for key, _ in store.reverse_range("c", None)] == ["d", "c"]
    assert [key for key, _ in store.all()] == ["a", "b", "c", "d"]
    assert [key for key, _ in store.reverse_all()] == ["d", "c", "b", "a"]
    assert list(store.range("c", "a")) == []
    assert dict(store.all())["c"] == entry(0)


def test_prefix_scan_is_by_serialized_bytes(store: Store) -> None:
    for key in ("a", "ab", "ab\x00", "abc", "ac", "b", "ä"):
        store.put(key, entry(1))
    assert [key for key, _ in store.prefix_scan(b"ab")] == ["ab", "ab\x00", "abc"]
    assert [key for key, _ in store.prefix_scan(b"\xc3")] == ["ä"]
    assert [key for key, _ in store.prefix_scan(b"x")] == []
    assert len(list(store.prefix_scan(b""))) == 7


def test_approximate_num_entries(store: Store) -> None:
    for number in range(5):
        store.put(str(number), entry(number))
    assert store.approximate_num_entries() == 5


def test_a_null_key_is_a_type_error_that_names_the_store(store: Store) -> None:
    for use in (
        lambda: store.get(None),  # type: ignore[arg-type]
        lambda: store.put(None, entry(1)),  # type: ignore[arg-type]
        lambda: store.put_if_absent(None, entry(1)),  # type: ignore[arg-type]
        lambda: store.delete(None),  # type: ignore[arg-type]
        lambda: store.put_all([(None, entry(1))]),  # type: ignore[list-item]
    ):
        with pytest.raises(TypeError, match="totals"):
            use()


def test_a_closed_store_says_so(store: Store, write_set: WriteSet) -> None:
    write_set.close()
    with pytest.raises(StoreClosedError, match="totals"):
        store.get("k")
    with pytest.raises(StoreClosedError, match="totals"):
        store.all()


def test_bytes_that_the_serde_cannot_read_name_store_and_serde(store: Store, write_set: WriteSet) -> None:
    write_set.put(b"short", b"\x00" + b"\x00" * 8 + b"123")
    write_set.put(b"garbage", b"\x7e")
    for key in ("short", "garbage"):
        with pytest.raises(StoreError, match=r"totals.*int64"):
            store.get(key)


def test_value_only_reads_and_pass_through_parse_no_headers(store: Store) -> None:
    headers = Headers([("trace", b"1"), ("tenant", None)])
    arrived = Headers.from_bytes(headers.to_bytes())
    before = parse_count()
    store.put("k", ValueTimestampHeaders.make(1, 1, arrived))
    seen = store.get("k")
    assert seen is not None
    store.put("other", ValueTimestampHeaders.make(seen.value + 1, 2, seen.headers))
    assert sum(value.value for _, value in store.all()) == 3
    assert store.put_if_absent("k", seen) is not None
    assert store.delete("k") is not None
    assert parse_count() == before
    last = store.get("other")
    assert last is not None
    assert last.headers == headers
    assert [header.value for header in last.headers] == [b"1", None]
    assert parse_count() == before + 1


def test_changing_headers_of_a_result_does_not_change_the_store(store: Store) -> None:
    store.put("k", entry(1, 1, ("h", b"1")))
    seen = store.get("k")
    assert seen is not None
    seen.headers.add("h", b"2")
    assert store.get("k") == entry(1, 1, ("h", b"1"))


def test_value_timestamp_headers_is_made_as_in_kafka() -> None:
    assert ValueTimestampHeaders.make(None, 1, Headers()) is None
    made = ValueTimestampHeaders.make(1, 2, None)
    assert made == ValueTimestampHeaders(1, 2, Headers())
    nullable = ValueTimestampHeaders.make_allow_nullable(None, 3)
    assert (nullable.value, nullable.timestamp_ms, list(nullable.headers)) == (None, 3, [])
    assert ValueTimestampHeaders.get_value_or_null(None) is None
    assert ValueTimestampHeaders.get_value_or_null(made) == 1
    assert made != ValueTimestampHeaders(1, 2, Headers([("h", b"")]))
    assert made != ValueTimestampHeaders(1, 3, Headers())
    with pytest.raises(AttributeError):
        made.value = 5  # type: ignore[misc, union-attr]


def test_builders_refuse_nonsense() -> None:
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("totals")
    build = Stores.timestamped_key_value_store_with_headers_builder
    with pytest.raises(TypeError, match="supplier"):
        build("totals", Serdes.string(), Serdes.int64())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="value_serde"):
        build(supplier, Serdes.string(), int)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="illegal name"):
        Stores.persistent_timestamped_key_value_store_with_headers("")
