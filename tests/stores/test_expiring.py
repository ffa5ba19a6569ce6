"""Stores with a time to live: what expired is never read, and goes in the end; all else is as without."""

from collections.abc import Callable
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from statestore import Headers, RecordColumns, Serdes, StoreBuilder, Stores
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.format.keys.due_key import due_key
from statestore.format.values.store_format import StoreFormat
from statestore.headers.expiry_header import EXPIRY_HEADER, expiry_value
from statestore.processor.context import TaskRecordContext
from statestore.stores.layers.expiring import Expiry, ExpiryTimes, TimeToLive
from tests.conformance.stacks import HEADERS, KEY_VALUE, SCRATCH, TIMESTAMP_MS, hold

KEYS = st.binary(max_size=2)  # short, so that they collide
BOUNDS = st.none() | KEYS
VALUES = st.integers(0, 9)
LATER_MS = st.none() | st.integers(-5, 3 * 10)
"""In how many milliseconds a put entry's header says that it expires; None is no such header."""
EXPIRE: dict[str, Callable[[StoreBuilder[Any]], StoreBuilder[Any]]] = {
    "by ttl": lambda builder: builder.with_ttl(TTL_MS),
    "by header": lambda builder: builder.with_expiry_header(),
    "by both": lambda builder: builder.with_expiry_header().with_ttl(TTL_MS),
}
FAMILIES = ["store", "store-expiry"]
TTL_MS = 10


def builders() -> list[StoreBuilder[Any]]:
    made = [KEY_VALUE.builder(known, persistent=False) for known in KEY_VALUE.builders]
    return [*made, *(builder.with_caching_enabled() for builder in made)]


def built(builder: StoreBuilder[Any], inner: ByteStore, times: ByteStore, clocks: TaskRecordContext) -> tuple[Any, Any]:
    """Return the store and the one that says when its entries expire."""
    assert builder.expiry_store is not None
    expiry_store = builder.expiry_store.build(times)
    expiry = Expiry(expiry_store.stack.top, clocks)
    return builder.build(inner, context=clocks, expiry=expiry), expiry_store


class ExpiringMachine(RuleBasedStateMachine):
    """A store of any format, with and without a cache, against a dict of values and times."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory(dir=SCRATCH)
        self.clocks = TaskRecordContext()
        self.model: dict[bytes, tuple[Any, float]] = {}
        self.database: Any = None

    @initialize(builder=st.sampled_from(builders()), on_disk=st.booleans(), expire=st.sampled_from(sorted(EXPIRE)))
    def open(self, builder: StoreBuilder[Any], on_disk: bool, expire: str) -> None:
        self.builder = EXPIRE[expire](builder)
        self.expire = expire
        self.on_disk = on_disk
        self.database = None if on_disk else MemoryDatabase(FAMILIES)
        self.build()

    def build(self) -> None:
        if self.on_disk:
            self.database = RocksDBDatabase(self.directory.name + "/db", FAMILIES)
        family = self.database.family
        committed = [family(name, name) if self.on_disk else family(name) for name in FAMILIES]
        self.bytes, self.expiry_bytes = (WriteSet(store) for store in committed)
        self.committed = committed
        self.store, self.times = built(self.builder, self.bytes, self.expiry_bytes, self.clocks)

    def held(self, value: int | None, later_ms: int | None = None) -> Any:
        """Return what is to be put, with the header in the value if it has any there, else in the current record."""
        other = Headers([(EXPIRY_HEADER, expiry_value(0))])
        headers = Headers(HEADERS)
        if later_ms is not None:
            headers.add(EXPIRY_HEADER, expiry_value(max(0, self.clocks.system_time_ms + later_ms)))
        self.clocks.headers = other if self.builder.format.has_headers else headers
        return hold(self.builder.format, value, headers=headers)

    def living(self) -> dict[bytes, Any]:
        return {
            key: held for key, (held, expiry_ms) in sorted(self.model.items()) if expiry_ms > self.clocks.system_time_ms
        }

    def put_in_model(self, key: bytes, value: int | None, later_ms: int | None) -> None:
        if value is None:
            self.model.pop(key, None)
            return
        now_ms = self.clocks.system_time_ms
        by_ttl_ms = inf if self.expire == "by header" else now_ms + TTL_MS
        by_header_ms = inf if self.expire == "by ttl" or later_ms is None else max(0, now_ms + later_ms)
        self.model[key] = (self.held(value, later_ms), min(by_ttl_ms, by_header_ms))

    @rule(key=KEYS, value=st.none() | VALUES, later_ms=LATER_MS)
    def put(self, key: bytes, value: int | None, later_ms: int | None) -> None:
        self.store.put(key, self.held(value, later_ms))
        self.put_in_model(key, value, later_ms)

    @rule(entries=st.lists(st.tuples(KEYS, st.none() | VALUES), max_size=4), later_ms=LATER_MS)
    def put_all(self, entries: list[tuple[bytes, int | None]], later_ms: int | None) -> None:
        self.store.put_all([(key, self.held(value, later_ms)) for key, value in entries])
        for key, value in entries:
            self.put_in_model(key, value, later_ms)

    @rule(entries=st.lists(st.tuples(KEYS, st.none() | VALUES, LATER_MS), max_size=4))
    def put_many(self, entries: list[tuple[bytes, int | None, int | None]]) -> None:
        headers = []
        for _, value, later_ms in entries:
            held = self.held(value, later_ms)
            in_value = self.builder.format.has_headers and held is not None
            headers.append((held if in_value else self.clocks).headers.to_bytes())
        times_ms = pa.repeat(TIMESTAMP_MS, len(entries))
        keys, values, _ = zip(*entries, strict=True) if entries else ((), (), ())
        columns = pa.array(keys, pa.binary()), pa.array(values, pa.int64()), times_ms, pa.array(headers, pa.binary())
        self.store.put_many(RecordColumns(*columns))
        for key, value, later_ms in entries:
            self.put_in_model(key, value, later_ms)

    @rule(key=KEYS, value=VALUES, later_ms=LATER_MS)
    def put_if_absent(self, key: bytes, value: int, later_ms: int | None) -> None:
        present = self.living().get(key)
        assert self.store.put_if_absent(key, self.held(value, later_ms)) == present
        if present is None:
            self.put_in_model(key, value, later_ms)

    @rule(key=KEYS)
    def delete(self, key: bytes) -> None:
        assert self.store.delete(key) == self.living().get(key)
        self.model.pop(key, None)

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.store.read_only().get(key) == self.living().get(key)

    @rule(start=BOUNDS, end=BOUNDS)
    def range(self, start: bytes | None, end: bytes | None) -> None:
        wanted = [
            (key, held)
            for key, held in self.living().items()
            if (start is None or start <= key) and (end is None or key <= end)
        ]
        assert list(self.store.range(start, end)) == wanted
        assert list(self.store.reverse_range(start, end)) == wanted[::-1]
        plain = self.builder.format is StoreFormat.PLAIN
        assert list(self.store.range_values(start, end)) == [held if plain else held.value for _, held in wanted]

    @rule(prefix=KEYS)
    def prefix_scan(self, prefix: bytes) -> None:
        wanted = [pair for pair in self.living().items() if pair[0].startswith(prefix)]
        assert list(self.store.prefix_scan(prefix)) == wanted

    @rule(elapsed_ms=st.integers(1, 2 * TTL_MS))
    def wait(self, elapsed_ms: int) -> None:
        self.clocks.system_time_ms += elapsed_ms

    @rule()
    def delete_expired(self) -> None:
        expired = self.model.keys() - self.living().keys()
        assert self.store.delete_expired() == len(expired)
        for key in expired:
            del self.model[key]
        self.store.flush()
        assert [key for key, _ in self.bytes.range(None, None)] == sorted(self.model)

    @rule()
    def reopen(self) -> None:
        for store, pending, committed in zip(
            (self.store, self.times), (self.bytes, self.expiry_bytes), self.committed, strict=True
        ):
            store.flush()
            pending.apply_to(committed)
        if self.on_disk:
            self.database.close()
        self.build()

    @invariant()
    def times_are_those_of_what_is_stored(self) -> None:
        if self.database is None:
            return
        wanted = sorted((key, expiry_ms) for key, (_, expiry_ms) in self.model.items() if expiry_ms < inf)
        times = ExpiryTimes(self.times.stack.top)
        assert list(times.between(None, None)) == wanted
        by_time = sorted((expiry_ms, key) for key, expiry_ms in wanted)
        assert list(times.due(2**62)) == [due_key(*timed) for timed in by_time]

    def teardown(self) -> None:
        if self.database is not None and self.on_disk:
            self.database.close()
        self.directory.cleanup()


TestExpiring = ExpiringMachine.TestCase
TestExpiring.settings = settings(max_examples=80, stateful_step_count=30)


@pytest.fixture
def expiring() -> Any:
    """A store with a time to live of 10 ms, and the clocks, which are to be set."""
    builder = Stores.key_value_store_builder(Stores.in_memory_key_value_store("store"), Serdes.string(), Serdes.int64())
    clocks = TaskRecordContext()
    entries, times = map(WriteSet, map(MemoryDatabase(FAMILIES).family, FAMILIES))
    store, _ = built(builder.with_ttl(TTL_MS), entries, times, clocks)
    return store, clocks


def test_an_entry_lives_until_the_moment_it_expires(expiring: Any) -> None:
    store, clocks = expiring
    store.put("a", 1)
    clocks.system_time_ms = TTL_MS - 1
    assert store.get("a") == 1
    clocks.system_time_ms = TTL_MS
    assert store.get("a") is None
    assert list(store.all()) == []


def test_no_rows_are_nothing(expiring: Any) -> None:
    store, _ = expiring
    types = pa.string(), pa.int64(), pa.int64(), pa.binary()
    store.put_many(RecordColumns(*(pa.array([], each) for each in types)))
    assert list(store.all()) == []


def test_an_iterator_shows_what_lived_at_its_call(expiring: Any) -> None:
    store, clocks = expiring
    store.put("a", 1)
    scan = store.all()
    clocks.system_time_ms = TTL_MS
    store.delete_expired()
    assert list(scan) == [("a", 1)]


def test_clean_up_is_bounded_and_keeps_up(expiring: Any) -> None:
    store, clocks = expiring
    store.put_all([(f"{number:05}", number) for number in range(5_000)])
    clocks.system_time_ms = TTL_MS
    assert store.delete_expired() == 5_000  # twice what was written since, that is up to 10,000
    store.put_all([(f"{number:05}", number) for number in range(5_000)])
    store.delete_expired()
    clocks.system_time_ms = 2 * TTL_MS
    assert [store.delete_expired() for _ in range(6)] == [1_000] * 5 + [0]


def test_b6_who_watches_sees_each_entry_that_is_deleted_as_it_is_stored(expiring: Any) -> None:
    store, clocks = expiring
    seen: list[tuple[bytes, bytes | None]] = []
    store.watch_expired(lambda key, value: seen.append((key, value)))
    store.watch_expired(lambda key, value: seen.append((key, store.stack.expiring.inner.get(key))))
    store.put_all([("a", 1), ("b", 2), ("c", 3)])
    store.delete("b")
    clocks.system_time_ms = TTL_MS - 1
    assert (store.delete_expired(), seen) == (0, [])
    store.put("c", 4)
    clocks.system_time_ms = TTL_MS
    assert store.delete_expired() == 1
    assert seen == [(b"a", Serdes.int64().serialize(1))] * 2
    assert store.delete_expired() == 0


def test_b6_who_watches_a_store_without_a_time_to_live_sees_nothing() -> None:
    store = KEY_VALUE.builder(StoreFormat.PLAIN, persistent=False).build(MemoryDatabase(FAMILIES).family("store"))
    store.watch_expired(lambda key, value: pytest.fail(f"{key!r}: {value!r}"))
    store.put(b"k", 1)
    assert store.delete_expired() == 0


def test_what_was_there_before_does_not_expire_until_it_is_put(expiring: Any) -> None:
    store, clocks = expiring
    store.stack.expiring.inner.put(b"old", Serdes.int64().serialize(1))
    clocks.system_time_ms = 2**62
    assert store.delete_expired() == 0
    assert list(store.all()) == [("old", 1)]
    store.put("old", 2)
    clocks.system_time_ms += TTL_MS
    assert store.get("old") is None


def test_a_time_to_live_without_end_does_not_overflow() -> None:
    builder = Stores.key_value_store_builder(Stores.in_memory_key_value_store("store"), Serdes.bytes(), Serdes.bytes())
    clocks = TaskRecordContext(system_time_ms=2**62)
    store, _ = built(builder.with_ttl(2**63 - 1), *map(MemoryDatabase(FAMILIES).family, FAMILIES), clocks)
    store.put(b"k", b"v")
    assert store.delete_expired() == 0
    assert store.get(b"k") == b"v"


def test_a_store_whose_entries_expire_is_not_built_without_what_says_when() -> None:
    builder = KEY_VALUE.builder(StoreFormat.PLAIN, persistent=False).with_ttl(TTL_MS)
    with pytest.raises(ValueError, match="'store' has a time to live: it can't be built without its expiry store"):
        builder.build(MemoryDatabase(FAMILIES).family("store"))


def test_only_a_store_with_a_time_to_live_deletes_what_expired() -> None:
    store = KEY_VALUE.builder(StoreFormat.PLAIN, persistent=False).build(MemoryDatabase(FAMILIES).family("store"))
    store.put(b"k", 1)
    assert store.delete_expired() == 0


def test_a_view_of_a_store_deletes_nothing(expiring: Any) -> None:
    store, _ = expiring
    with pytest.raises(AttributeError, match=r"it has no delete_expired\(\)"):
        store.read_only().delete_expired()


def test_events_expire_by_stream_time() -> None:
    builder = KEY_VALUE.builder(StoreFormat.PLAIN, persistent=False).with_ttl(TTL_MS, "event")
    clocks = TaskRecordContext(stream_time_ms=5, system_time_ms=2**62)
    store, _ = built(builder, *map(MemoryDatabase(FAMILIES).family, FAMILIES), clocks)
    store.put(b"k", 1)
    clocks.stream_time_ms += TTL_MS - 1
    assert store.get(b"k") == 1
    clocks.stream_time_ms += 1
    assert store.get(b"k") is None


def test_illegal_times_to_live() -> None:
    key_value = Stores.key_value_store_builder(Stores.persistent_key_value_store("s"), Serdes.string(), Serdes.string())
    for ttl in (0, -1, 1.5, 2**63):
        with pytest.raises(ValueError, match="ttl must be an integer of milliseconds, 1 or more"):
            key_value.with_ttl(ttl)
    with pytest.raises(ValueError, match="clock must be one of processing, event, not 'wall'"):
        key_value.with_ttl(5, "wall")
    windows = Stores.window_store_builder(Stores.persistent_window_store("w", 10, 10), Serdes.string(), Serdes.string())
    for expiring in (lambda: windows.with_ttl(5), windows.with_expiry_header):
        with pytest.raises(ValueError, match="'w': a window store has a retention, not a ttl"):
            expiring()
    with pytest.raises(ValueError, match="header must be the name of a header, got ''"):
        key_value.with_expiry_header("")
    with pytest.raises(ValueError, match="'s': its ttl and its expiry header must have the same clock, not 'event'"):
        key_value.with_ttl(5, "event").with_expiry_header()
    assert key_value.with_ttl(5, "event").with_ttl(5).time_to_live == TimeToLive(5, "processing")


def test_the_expiry_store_is_made_as_its_store_is(tmp_path: Path) -> None:
    key_value = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), Serdes.string(), Serdes.string())
    assert key_value.expiry_store is None
    expiry = key_value.with_logging_disabled().with_caching_enabled(7).with_ttl(5).expiry_store
    assert expiry is not None
    assert (expiry.name, expiry.persistent, expiry.logging_enabled) == ("s-expiry", False, False)
    assert (expiry.caching_enabled, expiry.cache_max_bytes) == (True, 7)
