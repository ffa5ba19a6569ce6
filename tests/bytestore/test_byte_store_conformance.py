"""One contract for every ByteStore: RocksDB, and a batch's write set over it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.rocksdb import RocksDBDatabase
from statestore.bytestore.write_set import WriteSet
from statestore.errors import StoreClosedError
from statestore.processor.context import TaskRecordContext

FAMILY = "store:family"


def rocksdb(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    database = RocksDBDatabase(str(path), [FAMILY])
    return database.family(FAMILY, "store"), database.close


def write_set(path: Path) -> tuple[ByteStore, Callable[[], None]]:
    committed, close = rocksdb(path)
    store = WriteSet(committed, TaskRecordContext())

    def close_both() -> None:
        store.close()
        close()

    return store, close_both


ENGINES = {"rocksdb": rocksdb, "write-set": write_set}


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
        lambda: store.put(b"k", b"v"),
        lambda: store.write([(b"k", b"v")]),
        lambda: store.range(None, None),
        store.approximate_num_entries,
    ):
        with pytest.raises(StoreClosedError, match="store"):
            use()
    assert list(scan) == []


KEYS = st.binary(max_size=2)  # short, so that they collide


class WriteSetModel(RuleBasedStateMachine):
    """A write set over RocksDB against a dict, with commits and reopening in between."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = TemporaryDirectory()
        self.model: dict[bytes, bytes] = {}
        self.open()

    def open(self) -> None:
        self.database = RocksDBDatabase(self.directory.name + "/db", [FAMILY])
        self.store = WriteSet(self.database.family(FAMILY, "store"), TaskRecordContext())

    @rule(key=KEYS, value=st.one_of(st.none(), st.binary(max_size=3)))
    def put(self, key: bytes, value: bytes | None) -> None:
        self.store.put(key, value)
        self.model.pop(key, None)
        if value is not None:
            self.model[key] = value

    @rule(key=KEYS)
    def get(self, key: bytes) -> None:
        assert self.store.get(key) == self.model.get(key)

    @rule(start=st.one_of(st.none(), KEYS), end=st.one_of(st.none(), KEYS), reverse=st.booleans())
    def range(self, start: bytes | None, end: bytes | None, reverse: bool) -> None:
        wanted = sorted(
            (pair for pair in self.model.items() if (start or b"") <= pair[0] and (end is None or pair[0] <= end)),
            reverse=reverse,
        )
        assert list(self.store.range(start, end, reverse=reverse)) == wanted

    @rule()
    def commit_and_reopen(self) -> None:
        changes = [(key, value if isinstance(value, bytes) else None) for key, value in self.store.changes.items()]
        self.store.close()
        self.database.write({FAMILY: changes})
        self.database.close()
        self.open()

    @invariant()
    def everything_is_there(self) -> None:
        assert dict(self.store.range(None, None)) == self.model

    def teardown(self) -> None:
        self.database.close()
        self.directory.cleanup()


TestWriteSetModel = WriteSetModel.TestCase
TestWriteSetModel.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)
