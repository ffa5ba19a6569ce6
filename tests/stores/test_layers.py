"""A layer that says nothing of rows is asked for each write, wherever it stands, by records and by columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from statestore import (
    Headers,
    ProcessorContext,
    Record,
    RecordColumns,
    Serdes,
    StoreBuilder,
    Stores,
    Topology,
    Windowed,
)
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.protocol import ByteStore, ByteStoreLayer, Change
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.headers.topic_columns import source_batch
from statestore.processor.context import TaskRecordContext
from statestore.processor.processor import BatchProcessor, Processor
from statestore.processor.task import Task
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.recovery.commit.changelog import batch_changelog
from statestore.stores import builder as stacking

STORE, HOUR_MS = "s", 3_600_000
KEYS = [b"a", b"b", b"a", b"c", b"b"]
VALUES = [b"1", b"2", None, b"4", b"5"]
HEADERS = Headers([("h", b"1")]).to_bytes()


class SeesPuts(ByteStoreLayer):
    """Counts writes, and lets none pass of a key that it refuses."""

    seen: list[Change]
    refused: frozenset[bytes] = frozenset()

    def put(self, key: bytes, value: bytes | None) -> None:
        self.seen.append((key, value))
        if not any(refused in key for refused in self.refused):
            self.inner.put(key, value)


class SeesWrites(ByteStoreLayer):
    """The same with the other of both."""

    seen: list[Change]
    refused: frozenset[bytes] = frozenset()

    def write(self, changes: Iterable[Change]) -> None:
        pairs = list(changes)
        self.seen += pairs
        self.inner.write([(key, value) for key, value in pairs if not any(refused in key for refused in self.refused)])


PASSED: list[Change] = []
"""What has gone through PutsMore, which each test empties."""


class PutsMore(stacking.RetainingLayer):
    """A layer that takes rows, made into one that does not."""

    def put(self, key: bytes, value: bytes | None) -> None:
        PASSED.append((key, value))
        super().put(key, value)


def key_value() -> StoreBuilder[Any]:
    return Stores.timestamped_key_value_store_with_headers_builder(
        Stores.in_memory_key_value_store(STORE), Serdes.bytes(), Serdes.bytes()
    )


def windows() -> StoreBuilder[Any]:
    supplier = Stores.persistent_timestamped_window_store_with_headers(STORE, HOUR_MS, 1_000)
    return Stores.timestamped_window_store_with_headers_builder(supplier, Serdes.bytes(), Serdes.bytes())


def sessions() -> StoreBuilder[Any]:
    supplier = Stores.persistent_session_store_with_headers(STORE, HOUR_MS)
    return Stores.session_store_with_headers_builder(supplier, Serdes.bytes(), Serdes.bytes())


BUILDERS: dict[str, Callable[[], StoreBuilder[Any]]] = {
    "key-value": key_value,
    "expiring": lambda: key_value().with_ttl(HOUR_MS, "event"),
    "not logged": lambda: key_value().with_logging_disabled(),
    "cached": lambda: key_value().with_caching_enabled(),
    "windows": windows,
    "cached windows": lambda: windows().with_caching_enabled(),
    "sessions": sessions,
}


PLACES = [(store, place) for store in BUILDERS for place in ("below", "between", "above")]
PLACES.remove(("not logged", "between"))  # the changelog's layer is what it would stand below
for cached in "cached", "cached windows":
    PLACES.remove((cached, "below"))  # where a layer sees writes only when they are flushed
    PLACES.remove((cached, "between"))


class Puts(Processor):
    """Puts what each record says."""

    def init(self, context: ProcessorContext) -> None:
        self.store = context.state_store(STORE)

    def process(self, record: Record[Any, Any]) -> None:
        times = (record.timestamp_ms,) if self.store.kind.is_segmented else ()
        if self.store.kind.value == "session":
            self.store.put_value(Windowed(record.key, *times, *times), record.value)
        else:
            self.store.put_value(record.key, record.value, *times)


class PutsColumns(Puts, BatchProcessor):
    def process_batch(self, records: RecordColumns) -> None:
        times = (records.timestamp_ms,) if self.store.kind.is_segmented else ()
        self.store.put_many(records, *(times * 2 if self.store.kind.value == "session" else times))


def run(builder: StoreBuilder[Any], place: str, layer: type[Any], processor: type[Processor]) -> dict[str, Any]:
    """What a layer sees that stands at a place of the store's stack, and what is left in the store and its log."""
    seen: list[Change] = []

    def put_in(inner: ByteStore) -> ByteStore:
        made = layer(inner)
        made.seen = seen
        return made

    topology = Topology()
    topology.add_source("in", "in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    topology.add_processor("puts", processor, ["in"])
    topology.add_state_store(builder, "puts")
    changelogs = {name: batch_changelog(each.spec) for name, each in topology.store_builders.items()}
    context = TaskRecordContext()

    def backing(name: str) -> StoreBacking:
        inner: ByteStore = WriteSet(MemoryByteStore(name))
        return StoreBacking(put_in(inner) if (place, name) == ("below", STORE) else inner, changelogs[name])

    with pytest.MonkeyPatch.context() as patches:
        if place == "between":
            logging = stacking.ChangeLoggingLayer
            patches.setattr(
                stacking,
                "ChangeLoggingLayer",
                lambda inner, spec, *rest: logging(put_in(inner) if spec.name == STORE else inner, spec, *rest),
            )
        stores = build_stores(topology, context, backing)
    if place == "above":
        parts = stores[STORE]._parts
        parts = replace(parts, stack=replace(parts.stack, top=put_in(parts.stack.top)))
        stores[STORE] = type(stores[STORE])(parts)
    task = Task(topology, 0, stores, context)
    rows = [("in", 0, row, 10 + row % 2, *pair, HEADERS) for row, pair in enumerate(zip(KEYS, VALUES, strict=True))]
    assert task.takes_batches is (processor is PutsColumns)
    task.process_batch(source_batch(rows))
    return {
        "seen": seen,
        "stored": {name: list(store.stack.top.range(None, None)) for name, store in stores.items()},
        "logged": {name: log.records() for name, log in changelogs.items()},
    }


@pytest.mark.parametrize("refused", [frozenset(), frozenset([b"b"])])
@pytest.mark.parametrize("layer", [SeesPuts, SeesWrites])
@pytest.mark.parametrize(("store", "place"), PLACES)
def test_a_layer_without_rows_sees_each_write_of_both_paths(
    store: str, place: str, layer: type[Any], refused: frozenset[bytes]
) -> None:
    layer = type(layer.__name__, (layer,), {"refused": refused})
    by_records, in_columns = (run(BUILDERS[store](), place, layer, each) for each in (Puts, PutsColumns))
    assert in_columns == by_records
    assert [value is None for _, value in by_records["seen"]] == [value is None for value in VALUES]
    assert all(key in written for key, (written, _) in zip(KEYS, by_records["seen"], strict=True))
    assert any(b"b" in key for key, _ in by_records["stored"][STORE]) is not bool(refused)


@pytest.mark.parametrize("store", ["windows", "sessions"])
def test_a_layer_that_changes_the_put_of_one_that_takes_rows_is_not_passed_by(store: str) -> None:
    found = []
    for processor in (Puts, PutsColumns):
        PASSED.clear()
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(stacking, "RetainingLayer", PutsMore)
            found.append((run(BUILDERS[store](), "nowhere", SeesPuts, processor), list(PASSED)))
    assert found[0] == found[1]
    assert len(PASSED) == len(KEYS)


def test_layers_that_say_what_they_do_to_rows_are_given_all_at_once() -> None:
    """Else the tests above would hold of stacks that go one by one in any case."""
    for make in BUILDERS.values():
        inner = WriteSet(MemoryByteStore(STORE))
        calls: list[int] = []
        inner.write_rows = lambda changes, calls=calls: calls.append(len(changes))  # type: ignore[method-assign]
        builder = make()
        expiry = None
        if builder.expiry_store is not None:
            times = builder.expiry_store.build(WriteSet(MemoryByteStore("times")))
            expiry = stacking.Expiry(times.stack.top, TaskRecordContext())
        built = builder.build(
            inner, changelog=batch_changelog(builder.spec), context=TaskRecordContext(), expiry=expiry
        )
        records = RecordColumns(pa.array(KEYS), pa.array(VALUES, pa.binary()), pa.array(range(5)))
        times = {"window": (records.timestamp_ms,), "session": (records.timestamp_ms,) * 2}
        built.put_many(records, *times.get(built.kind.value, ()))
        assert calls == [5]
