"""One contract for every ByteStore: RocksDB, and a batch's write set over it."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.header_index import IndexedByteStore
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import Segments, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.protocol import ByteStore, ByteStoreLayer, Change, Pair
from statestore.bytestore.upgrades import UpgradingByteStore
from statestore.bytestore.write_sets.spilling import SpilledWrites, SpillingWriteSet, SpillSpace
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors.state import StoreClosedError
from statestore.format.values.store_format import StoreFormat
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import Changelog
from statestore.stores.layers.expiring import ExpiringLayer, Expiry, TimeToLive
from statestore.stores.layers.indexed import IndexedLayer
from statestore.stores.layers.layer import CachingLayer, ChangeLoggingLayer, RetainingLayer, WrittenFor
from statestore.testing.faults import FaultPlan, FaultyLocalDirectory
from statestore.testing.faults.injector import Injector
from statestore.testing.faults.journal import FaultJournal
from tests.support.byte_store_model import pairs_between, write_to

FAMILY = "store:family"


def rocksdb(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    database = RocksDBDatabase(str(path), [FAMILY])
    return database.family(FAMILY, "store"), database.close


def memory(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    database = MemoryDatabase([FAMILY])
    return database.family(FAMILY, "store"), database.close


def write_set(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    committed, close = rocksdb(path)
    store = WriteSet(committed)

    def close_both() -> None:
        store.close()
        close()

    return store, close_both


def upgraded(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    """Make a store whose upgrade has nothing left to do; test_upgrading.py is about those that are half way."""
    database = RocksDBDatabase(str(path), [FAMILY, "store:older"])
    store = UpgradingByteStore(database, FAMILY, "store:older", lambda key, value: value, "store")
    return store, database.close


def indexed(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    """Make a store with an index of headers that no value has, as none is well-formed."""
    database = RocksDBDatabase(str(path), [FAMILY, "index"])
    store = database.family(FAMILY, "store")
    return IndexedByteStore(HEADED, store, store, database.family("index", "store")), database.close


def found_by_headers(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    """Make a layer over a batch's writes that was asked for a header, so that it notes each write."""
    committed, close = indexed(path)
    layer = IndexedLayer.over(WriteSet(committed))
    assert isinstance(layer, IndexedLayer)
    assert list(layer.keys_with_header("tenant", b"")) == []
    return layer, close


def faulty(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    """Make a store of a database under a fault plan, which has no faults."""
    injector = Injector(FaultPlan(1, (1,), ()), FaultJournal(path.with_name("journal")))
    database = FaultyLocalDirectory(path.parent, injector).open_database(path, [FAMILY])
    return database.family(FAMILY, "store"), database.close


def spilling(path: Path) -> tuple[SpillingWriteSet, SpillSpace, Callable[[], None]]:
    committed, close = rocksdb(path)
    space = SpillSpace(path.with_suffix(".spill"), MemoryBudget())
    store = SpillingWriteSet(committed, space)

    def close_all() -> None:
        store.close()
        space.__exit__(None, None, None)
        close()

    return store, space, close_all


def spilling_write_set(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    """Make a write set of which each write goes to disk at once."""
    store, space, close = spilling(path)
    space.pending.limit_bytes = 0
    return store, close


def spilled_writes(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    """Make what a write set stands on after it spilled for the first time."""
    store, space, close = spilling(path)
    return SpilledWrites(store.inner, space.store(store.name)), close


class NoChangelog(Changelog):
    """Takes down nothing."""

    def append(self, key: bytes, stored: bytes | None, context: object, timestamp_ms: int | None = None) -> None:
        assert isinstance(key, bytes)


def over_rocksdb(layer: Callable[[ByteStore], ByteStore]) -> Callable[[Path], tuple[ByteStore, Callable[[], None]]]:
    def make(path: Path) -> tuple[ByteStore, Callable[[], None]]:
        inner, close = rocksdb(path)
        return layer(inner), close

    return make


class InOneSegment(ByteStoreLayer):
    """Shows the keys of segment 7 of a store whose keys stand behind their segment's id."""

    def get(self, key: bytes) -> bytes | None:
        return self.inner.get(SEGMENT + key)

    def put(self, key: bytes, value: bytes | None) -> None:
        self.inner.put(SEGMENT + key, value)

    def write(self, changes: Iterable[Change]) -> None:
        self.inner.write([(SEGMENT + key, value) for key, value in changes])

    def delete_below(self, end: bytes) -> None:
        self.inner.delete_below(SEGMENT + end)

    def range(self, start: bytes | None, end: bytes | None, *, reverse: bool = False) -> Iterator[Pair]:
        last = segment_prefix(8) if end is None else SEGMENT + end
        pairs = self.inner.range(SEGMENT + (start or b""), last, reverse=reverse)
        return ((key[len(SEGMENT) :], value) for key, value in pairs)


def segment_directories(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    directory = TaskDirectory(path, "application")
    spec = StoreSpec("store", StoreKind.SESSION, StoreFormat.PLAIN, 1000, 10)
    return InOneSegment(directory.open_store(spec)), directory.close


def expiring(inner: ByteStore) -> ByteStore:
    """Make a layer over a store whose entries expire, but not while a test runs."""
    times = MemoryDatabase(["store-expiry"]).family("store-expiry")
    return ExpiringLayer(inner, TimeToLive(1, "processing"), Expiry(times, TaskRecordContext()))


SEGMENT = segment_prefix(7)
HEADED = StoreSpec("store", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS, indexed_headers=("tenant",))
SPEC = StoreSpec("store", StoreKind.KEY_VALUE, StoreFormat.PLAIN)
ENGINES = {
    "rocksdb": rocksdb,
    "memory": memory,
    "write-set": write_set,
    "spilling-write-set": spilling_write_set,
    "spilled-writes": spilled_writes,
    "upgraded": upgraded,
    "indexed": indexed,
    "found by headers": found_by_headers,
    "layer": over_rocksdb(ByteStoreLayer),
    "change-logging": over_rocksdb(lambda inner: ChangeLoggingLayer(inner, SPEC, NoChangelog(), TaskRecordContext())),
    "caching": over_rocksdb(lambda inner: CachingLayer(inner, WrittenFor(TaskRecordContext()))),
    "retaining": over_rocksdb(lambda inner: InOneSegment(RetainingLayer(inner, Segments(inner, 1000, 10)))),
    "segment-directories": segment_directories,
    "expiring": over_rocksdb(expiring),
    "faulty": faulty,
    "small cache": over_rocksdb(lambda inner: CachingLayer(inner, WrittenFor(TaskRecordContext()), max_bytes=3)),
}


@pytest.fixture(params=sorted(ENGINES))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ByteStore]:
    made, close = ENGINES[request.param](tmp_path / "db")
    yield made
    close()


def test_get_returns_what_put_set(store: ByteStore) -> None:
    store.put(b"k", b"v")
    assert store.get(b"k") == b"v"
    assert store.get(b"other") is None


def test_an_empty_value_is_not_none(store: ByteStore) -> None:
    store.put(b"k", b"")
    assert store.get(b"k") == b""
    assert list(store.range(None, None)) == [(b"k", b"")]


def test_an_empty_key_is_a_key(store: ByteStore) -> None:
    store.put(b"", b"v")
    assert store.get(b"") == b"v"
    assert list(store.range(b"", b"")) == [(b"", b"v")]


def test_put_of_none_deletes(store: ByteStore) -> None:
    store.write([(b"a", b"1"), (b"b", b"2")])
    store.put(b"a", None)
    store.put(b"absent", None)
    assert store.get(b"a") is None
    assert list(store.range(None, None)) == [(b"b", b"2")]


def test_write_applies_in_order(store: ByteStore) -> None:
    store.write([(b"a", b"1"), (b"a", None), (b"b", b"2"), (b"b", b"3")])
    assert list(store.range(None, None)) == [(b"b", b"3")]


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (None, None, [b"a", b"b", b"b\x00", b"c", b"\xff"]),
        (b"b", b"c", [b"b", b"b\x00", b"c"]),
        (b"b\x00", None, [b"b\x00", b"c", b"\xff"]),
        (None, b"b", [b"a", b"b"]),
        (b"aa", b"bb", [b"b", b"b\x00"]),
        (b"c", b"a", []),
        (b"d", b"e", []),
    ],
)
def test_range_is_ordered_and_inclusive(
    store: ByteStore, start: bytes | None, end: bytes | None, expected: list[bytes], reverse: bool
) -> None:
    store.write([(key, key) for key in (b"c", b"\xff", b"a", b"b\x00", b"b")])
    keys = [key for key, _ in store.range(start, end, reverse=reverse)]
    assert keys == (expected[::-1] if reverse else expected)


def test_range_sees_the_store_as_of_the_call(store: ByteStore) -> None:
    store.write([(b"a", b"1"), (b"b", b"2")])
    scan = store.range(None, None)
    store.write([(b"a", None), (b"b", b"changed"), (b"c", b"3")])
    assert list(scan) == [(b"a", b"1"), (b"b", b"2")]


def test_scans_of_many_pairs_see_the_store_as_of_the_call_wherever_they_are(store: ByteStore) -> None:
    random, model, scans = Random(7), {}, []  # type: ignore[var-annotated]
    for step in range(120):
        keys = random.sample(range(300), 8 if step else 150)
        changes = [(b"%03d" % key, None if random.random() < 0.3 else b"%d" % step) for key in keys]
        if step % 40 == 39:
            store.delete_below(b"%03d" % step)
            model = {key: value for key, value in model.items() if key >= b"%03d" % step}
        elif step % 2:
            store.put(*changes[0])
            write_to(model, changes[:1])
        else:
            store.write(changes)
            write_to(model, changes)
        bounds, reverse = sorted(b"%03d" % random.randrange(300) for _ in range(2)), step % 3 == 0
        scans.append((store.range(*bounds, reverse=reverse), pairs_between(model, *bounds, reverse)))
        for scan, expected in scans:
            for _ in range(random.randrange(60)):
                if expected:
                    assert next(scan) == expected.pop(0)
        if step % 5 == 4:
            scan, expected = scans.pop(random.randrange(len(scans)))
            assert list(scan) == expected


@pytest.mark.parametrize("engine", ["memory", "write-set", "caching"])
def test_who_reads_the_first_pair_pays_for_no_others(engine: str, tmp_path: Path) -> None:
    store, close = ENGINES[engine](tmp_path / "db")
    store.write([(b"%05d" % number, b"") for number in range(10_000)])
    began_s = time.process_time()
    for number in range(2_000):
        key = b"%05d" % (10_000 + number)
        assert next(store.range(b"0", b"9", reverse=True))[0] < key
        store.put(key, b"")
    assert time.process_time() - began_s < 1
    close()


@pytest.mark.parametrize("engine", ["memory", "write-set"])
def test_what_expires_costs_what_is_deleted_not_what_stays(engine: str, tmp_path: Path) -> None:
    store, close = ENGINES[engine](tmp_path / "db")
    store.write([(b"z%06d" % number, b"") for number in range(100_000)])
    began_s = time.process_time()
    for number in range(400):
        store.write([(b"%04d" % number, b""), (b"z%06d" % (20 * number), b"again")])
        store.delete_below(b"%04d" % number)
    assert time.process_time() - began_s < 0.5
    assert [key for key, _ in store.range(None, b"z")] == [b"0399"]
    close()


def test_delete_below_leaves_what_is_not_below(store: ByteStore) -> None:
    store.write([(key, key) for key in (b"", b"a", b"b", b"b\x00", b"c")])
    scan = store.range(None, None)
    store.delete_below(b"b")
    assert [key for key, _ in scan] == [b"", b"a", b"b", b"b\x00", b"c"]
    assert list(store.range(None, None)) == [(key, key) for key in (b"b", b"b\x00", b"c")]
    assert store.get(b"a") is None
    store.put(b"a", b"again")
    assert store.get(b"a") == b"again"
    assert [key for key, _ in store.range(None, b"b", reverse=True)] == [b"b", b"a"]


def test_approximate_num_entries_of_fresh_keys(store: ByteStore) -> None:
    assert store.approximate_num_entries() == 0
    store.write([(b"%d" % number, b"v") for number in range(10)])
    assert store.approximate_num_entries() == 10


def test_a_closed_store_refuses_everything(store: ByteStore) -> None:
    store.put(b"k", b"v")
    scan = store.range(None, None)
    next(scan)
    store.close()
    store.close()
    for use in (
        lambda: store.get(b"k"),
        lambda: store.get_many([b"k"]),
        lambda: store.put(b"k", b"v"),
        lambda: store.write([(b"k", b"v")]),
        lambda: store.range(None, None),
        lambda: store.range_many([(b"a", b"z")]),
        store.approximate_num_entries,
        store.approximate_size_bytes,
    ):
        with pytest.raises(StoreClosedError, match="store"):
            use()
    assert list(scan) == []


KEYS = st.binary(max_size=2)  # short, so that they collide


class ByteStoreModel(RuleBasedStateMachine):
    """A store against a dict."""

    engine = "rocksdb"
    times_checked = 0

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.model: dict[bytes, bytes] = {}
        self.store, self.close = ENGINES[self.engine](Path(self.directory.name, "db"))

    @rule(key=KEYS, value=st.one_of(st.none(), st.binary(max_size=3)))
    def put(self, key: bytes, value: bytes | None) -> None:
        self.store.put(key, value)
        write_to(self.model, [(key, value)])

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)

    @rule(keys=st.lists(KEYS, max_size=5))
    def get_many(self, keys: list[bytes]) -> None:
        assert self.store.get_many(keys) == [self.model.get(key) for key in keys]

    @rule(changes=st.lists(st.tuples(KEYS, st.one_of(st.none(), st.binary(max_size=3))), max_size=4))
    def write(self, changes: list[Change]) -> None:
        self.store.write(changes)
        write_to(self.model, changes)

    @rule(end=KEYS)
    def delete_below(self, end: bytes) -> None:
        self.store.delete_below(end)
        self.model = {key: value for key, value in self.model.items() if key >= end}

    @rule(start=st.one_of(st.none(), KEYS), end=st.one_of(st.none(), KEYS), reverse=st.booleans())
    def range(self, start: bytes | None, end: bytes | None, reverse: bool) -> None:
        assert list(self.store.range(start, end, reverse=reverse)) == pairs_between(self.model, start, end, reverse)

    @rule(ranges=st.lists(st.tuples(KEYS, KEYS), max_size=5))
    def range_many(self, ranges: list[tuple[bytes, bytes]]) -> None:
        assert self.store.range_many(ranges) == [pairs_between(self.model, *each, False) for each in ranges]

    @rule(keys=st.lists(KEYS, max_size=5))
    def ascending_range_many(self, keys: list[bytes]) -> None:
        ranges = [(key, key + b"\x80") for key in sorted(keys)]
        assert self.store.range_many(ranges) == [pairs_between(self.model, *each, False) for each in ranges]

    @invariant()
    def everything_is_there(self) -> None:
        assert dict(self.store.range(None, None)) == self.model
        type(self).times_checked += 1

    def teardown(self) -> None:
        self.close()
        self.directory.cleanup()


class WriteSetModel(ByteStoreModel):
    """A write set over RocksDB, with commits and reopening in between."""

    def __init__(self) -> None:
        super().__init__()
        self.close()
        self.open()

    def open(self) -> None:
        self.database = RocksDBDatabase(self.directory.name + "/db", [FAMILY])
        self.committed = self.database.family(FAMILY, "store")
        self.store = WriteSet(self.committed)
        self.close = self.database.close

    @rule()
    def commit_and_reopen(self) -> None:
        self.store.apply_to(self.committed)
        self.store.close()
        self.database.close()
        self.open()


@pytest.mark.parametrize("engine", sorted(set(ENGINES) - {"layer", "write-set"}))
def test_every_engine_is_a_map(engine: str) -> None:
    model = type("Model", (ByteStoreModel,), {"engine": engine})
    run_state_machine_as_test(model, settings=settings(max_examples=15, stateful_step_count=20))
    assert model.times_checked > 15, "the rules and the invariant assert; here, that they ran"


TestWriteSetModel = WriteSetModel.TestCase
TestWriteSetModel.settings = settings(max_examples=25, stateful_step_count=20)
