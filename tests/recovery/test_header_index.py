"""`by_header` finds what a scan finds: in and between batches, whatever becomes of the local copy and its index."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.bytestore import header_index
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.bytestore.header_index import IndexedByteStore
from statestore.bytestore.kinds.entry_scan import StoredEntry
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.format.position import Position
from statestore.format.serde import Serdes
from statestore.format.values.stored_value import split_stored
from statestore.headers.record_headers import Headers
from statestore.processor.context import TaskRecordContext
from statestore.processor.task_stores import flush_stores, shard_stores
from statestore.processor.topology import Topology
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.restore import CommittedStore
from statestore.recovery.shard_batch import ShardBatch, ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.stores.builder import StoreBuilder
from statestore.stores.holders import AggregationWithHeaders, ValueAndTimestamp, ValueTimestampHeaders
from statestore.stores.iterator import Windowed
from statestore.stores.stores import Stores
from tests.conformance.stacks import SCRATCH
from tests.support.recovery import on_record
from tests.support.recovery.rescaling import Idle, States
from tests.support.recovery.shards import wait_for_uploads
from upgrade_tools.rows.selection import HeaderCondition, Selection, select_entries
from upgrade_tools.serve.entries import Question, pairs_after
from upgrade_tools.states.state import OpenStore

STRING = Serdes.string()
KEYS = ["", "a", "ab", "b", "ba", "c"]
LONG = b"v" * 64 + b"\xff"
VALUES = [b"", b"1", b"12", LONG[:-1], LONG]
NAMES = ["t", "tenant", "trace-id"]
SIZE_MS = 10

Found = list[tuple[Any, Any]]


def with_header(entries: Sequence[tuple[Any, Any]], name: str, value: bytes) -> Found:
    """Return the entries that a scan finds."""
    return [
        (key, held) for key, held in entries if any((each.key, each.value) == (name, value) for each in held.headers)
    ]


class Kind(NamedTuple):
    """A kind of store: its builder, what is put and deleted for a key at a time, and all that it shows."""

    builder: StoreBuilder[Any]
    put: Callable[[Any, str, int, Headers], object]
    delete: Callable[[Any, str, int], object]
    all: Callable[[Any], Found]


def held(headers: Headers) -> ValueTimestampHeaders[str]:
    return ValueTimestampHeaders("v", 5, headers)


def put_window(store: Any, key: str, time_ms: int, headers: Headers) -> None:
    store.put(key, held(headers), time_ms)


def session(key: str, time_ms: int) -> Windowed:
    return Windowed(key, max(0, time_ms - len(key)), time_ms)


KEY_VALUE = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("totals"), STRING, STRING
)
IN_MEMORY = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.in_memory_key_value_store("totals"), STRING, STRING
)


def key_value(builder: StoreBuilder[Any]) -> Kind:
    return Kind(
        builder,
        lambda store, key, _, headers: store.put(key, held(headers)),
        lambda store, key, _: store.delete(key),
        lambda store: list(store.all()),
    )


def window(retain_duplicates: bool) -> Kind:
    supplier = Stores.persistent_timestamped_window_store_with_headers("totals", 60, SIZE_MS, retain_duplicates, 20)
    return Kind(
        Stores.timestamped_window_store_with_headers_builder(supplier, STRING, STRING),
        put_window,
        lambda store, key, time_ms: store.put(key, None, time_ms),
        lambda store: list(store.all()),
    )


KINDS = {
    "key-value": key_value(KEY_VALUE),
    "cached": key_value(KEY_VALUE.with_caching_enabled(200)),
    "in memory": key_value(IN_MEMORY),
    "expiring": key_value(KEY_VALUE.with_ttl(40)),
    "expiring cached": key_value(KEY_VALUE.with_ttl(40).with_caching_enabled()),
    "windows": window(retain_duplicates=False),
    "windows with duplicates": window(retain_duplicates=True),
    "sessions": Kind(
        Stores.session_store_with_headers_builder(
            Stores.persistent_session_store_with_headers("totals", 60, 20), STRING, STRING
        ),
        lambda store, key, time_ms, headers: store.put(session(key, time_ms), AggregationWithHeaders("v", headers)),
        lambda store, key, time_ms: store.remove(session(key, time_ms)),
        lambda store: list(store.fetch(None, None)),
    ),
    "versions": Kind(
        Stores.versioned_key_value_store_with_headers_builder(
            Stores.persistent_versioned_key_value_store_with_headers("totals", 60, 20), STRING, STRING
        ),
        lambda store, key, time_ms, headers: store.put(key, "v", time_ms, headers),
        lambda store, key, time_ms: store.delete(key, time_ms),
        lambda store: [(key, found) for key in KEYS if (found := store.get(key)) is not None],
    ),
}


class Shard:
    """Shard 0 of a state whose one store may get other indexes."""

    def __init__(self, home: Path, kind: Kind, names: Sequence[str]) -> None:
        self.home = home
        self.kind = kind
        self.pointer: CommitPointer | None = None
        self.now_ms = 0
        self.index(names)

    def index(self, names: Sequence[str]) -> None:
        """Go on with an index of these headers."""
        self.names = names
        builder = self.kind.builder.with_header_index(*names) if names else self.kind.builder
        self.topology = Topology()
        self.topology.add_state_store(builder)
        local = LocalDirectory(self.home / "local", memory=MemoryBudget(16 << 20))
        location, specs = DurableLocation(self.home / "state"), self.topology.store_specs()
        recovery = RecoveryOptions(snapshot_every_deltas=2, stop_after_deltas=0)
        in_memory = self.topology.in_memory_stores()
        self.state = on_record(ShardedState("state", location, specs, local, in_memory, recovery))

    @contextmanager
    def batch(self) -> Iterator[tuple[Any, ShardBatch]]:
        """Hand out the store and the batch, and commit at the end."""
        with self.state.open(self.pointer or self.state.pointer(0, None)) as batch:
            stream_time_ms = batch.pointer.stream_time_ms
            stores = shard_stores(self.topology, batch, TaskRecordContext(stream_time_ms, self.now_ms))
            yield stores["totals"], batch
            self.pointer = batch.commit(BatchEnd(store_times_ms=flush_stores(stores))).pointer

    def check(self, store: Any) -> None:
        """Compare the index with a scan, for all headers."""
        entries = self.kind.all(store)
        for name in self.names:
            for value in VALUES:
                assert list(store.by_header(name, value)) == with_header(entries, name, value)

    def check_selections(self, committed: CommittedStore) -> None:
        """Compare what tools find of committed entries, also of older versions, with a scan without an index."""
        plain = MemoryByteStore("totals")
        plain.write(committed.bytes.range(None, None))
        layout = layout_of(committed.spec)
        for name in self.names:
            for value in VALUES:
                question = Question(Selection(headers=[HeaderCondition(name, value)], prefix=b"a"[: len(value) % 2]))
                found = []
                for store in (committed.bytes, plain):
                    opened = OpenStore(committed.spec, store, -1, None, Position())
                    pairs = pairs_after(layout, store, question, None)
                    entries = (
                        StoredEntry(*each[:3], *split_stored(committed.spec.format, each[3]))
                        for each in layout.entries(pairs)
                    )
                    paged = [entry for entry in entries if question.matches(committed.spec, entry)]
                    found.append((paged, list(select_entries(opened, question.selection))))
                assert found[0] == found[1]

    def crash_after(self, flushed: int) -> None:
        """Leave the copy as a kill does after all deltas were applied, and some families were flushed."""
        path = self.home / "local" / "state" / "shard-0000" / "copy-0"
        kept = self.home / "kept"
        with self.state.open(self.pointer or self.state.pointer(0, None)) as batch:
            assert batch.copy is not None
            store = batch.stores["totals"].committed.bytes
            if isinstance(store, IndexedByteStore) and store.is_indexing:
                store.index_slice()
            for number, family in enumerate(batch.copy.database.families):
                if flushed >> number & 1:
                    batch.copy.database.family(family).flush()
            shutil.copytree(path, kept)
        shutil.rmtree(path)
        kept.rename(path)


HEADERS = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from([*VALUES, None])), max_size=4).map(Headers)
TIMES = st.integers(0, 120)


@dataclass(frozen=True)
class Put:
    key: str
    time_ms: int
    headers: Headers

    def __call__(self, shard: Shard, store: Any) -> None:
        shard.kind.put(store, self.key, self.time_ms, self.headers)


@dataclass(frozen=True)
class Delete:
    key: str
    time_ms: int

    def __call__(self, shard: Shard, store: Any) -> None:
        shard.kind.delete(store, self.key, self.time_ms)


@dataclass(frozen=True)
class Look:
    def __call__(self, shard: Shard, store: Any) -> None:
        shard.check(store)


@dataclass(frozen=True)
class Spill:
    """Have what is written so far go to disk."""

    def __call__(self, shard: Shard, store: Any) -> None:
        below = store.stack.top
        while not hasattr(below, "spill"):
            below = below.inner
        below.spill()


@dataclass(frozen=True)
class Batch:
    writes: list[Callable[[Shard, Any], None]]
    slices: int
    fails: bool

    def __call__(self, shard: Shard) -> None:
        shard.now_ms += 15
        before = shard.pointer
        with shard.batch() as (store, batch):
            shard.check_selections(batch.stores["totals"].committed)
            store.delete_expired()
            for write in self.writes:
                write(shard, store)
            committed = batch.stores["totals"].committed.bytes
            for _ in range(self.slices):
                if isinstance(committed, IndexedByteStore) and committed.is_indexing:
                    committed.index_slice()
            shard.check(store)
        if self.fails:
            shard.pointer = before
        wait_for_uploads()


@dataclass(frozen=True)
class Index:
    names: list[str]

    def __call__(self, shard: Shard) -> None:
        shard.index(self.names)


@dataclass(frozen=True)
class Lose:
    def __call__(self, shard: Shard) -> None:
        shutil.rmtree(shard.home / "local", ignore_errors=True)


@dataclass(frozen=True)
class Crash:
    flushed: int

    def __call__(self, shard: Shard) -> None:
        if not shard.state.in_memory:
            shard.crash_after(self.flushed)


WRITES = st.lists(
    st.one_of(
        st.builds(Put, st.sampled_from(KEYS), TIMES, HEADERS),
        st.builds(Put, st.sampled_from(KEYS), TIMES, HEADERS),
        st.builds(Delete, st.sampled_from(KEYS), TIMES),
        st.just(Look()),
        st.just(Spill()),
    ),
    max_size=8,
)
STEPS = st.lists(
    st.one_of(
        st.builds(Batch, WRITES, st.integers(0, 3), st.booleans()),
        st.builds(Batch, WRITES, st.integers(0, 3), st.just(False)),
        st.builds(Index, st.lists(st.sampled_from(NAMES), unique=True)),
        st.just(Lose()),
        st.builds(Crash, st.integers(0, 31)),
    ),
    max_size=12,
)


@pytest.mark.parametrize("kind", KINDS)
def test_lookups_agree_with_scans_in_random_programs(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(header_index, "_INDEXED_AT_ONCE", 2)

    @settings(max_examples=25, deadline=None)
    @given(STEPS, st.lists(st.sampled_from(NAMES), unique=True), st.sampled_from([1, 32]))
    def run(steps: list[Callable[[Shard], None]], names: list[str], few: int) -> None:
        monkeypatch.setattr(header_index, "_FEW", few)
        with TemporaryDirectory(dir=SCRATCH) as home:
            shard = Shard(Path(home), KINDS[kind], names)
            for step in steps:
                step(shard)
            Batch([], 0, fails=False)(shard)

    run()


def test_a_store_gets_headers_and_their_index_at_once(tmp_path: Path) -> None:
    timed = Stores.timestamped_key_value_store_builder(
        Stores.persistent_timestamped_key_value_store("totals"), STRING, STRING
    )
    shard = Shard(tmp_path, KINDS["key-value"]._replace(builder=timed), [])
    with shard.batch() as (store, _):
        store.put_all((key, ValueAndTimestamp("old", 5)) for key in KEYS)
    with shard.batch():
        pass  # the copy has them in the older format now
    shard.kind = KINDS["key-value"]
    shard.index(["t"])
    for batch, moved in enumerate(("a", "b", "c")):
        with shard.batch() as (store, opened):
            assert store.upgrade_progress().is_finished is (batch == 2)
            store.put(moved, held(Headers([("t", b"1")])))
            assert [key for key, _ in store.by_header("t", "1")] == ["a", "b", "c"][: batch + 1]
            shard.check(store)
            if batch == 1:
                opened.finish_upgrades(60_000)


def test_a_rescaled_state_has_its_index(tmp_path: Path) -> None:
    topology = Topology().add_source("in", key_serde=STRING, value_serde=STRING).add_processor("idle", Idle, ["in"])
    topology.add_state_store(KEY_VALUE.with_header_index("t"), "idle")
    one = States(tmp_path, topology, 1)
    one.run(0, lambda stores: stores["totals"].put_all((key, held(Headers([("t", b"1")]))) for key in KEYS))
    one.rescaled(2, trust_keys=True)
    two = one.opened()
    found: list[str] = []
    for shard in range(2):
        two.run(shard, lambda stores: found.extend(key for key, _ in stores["totals"].by_header("t", "1")))
    assert sorted(found) == KEYS
