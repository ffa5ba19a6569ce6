"""Sharded states made with real stores of every kind, and what is in them, to rescale and compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from statestore import (
    AggregationWithHeaders,
    Processor,
    Stores,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from statestore.bytestore.kinds.entry_scan import StoredEntry, stored_entries
from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.format.keys.partitioner import partition_column
from statestore.headers.topic_columns import SourceFields, source_batch
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import flush_stores, shard_stores
from statestore.recovery.commit.pointer import CommitPointer, initial_pointer
from statestore.recovery.commit.pointer_fields import BatchEnd, RecordedPunctuations
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.placement import KeyOf, record_keys
from statestore.recovery.making.rescale import RescaleReport, committed_pointers, rescale
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata, read_metadata, routing_numbers
from statestore.recovery.shard_batch import ShardedState
from tests.support.golden.state import BUILDERS, HEADERS, STRING

KEYS = [f"key-{number}" for number in range(40)]
Contents = dict[str, set[StoredEntry]]


class Idle(Processor):
    """Has stores, and does nothing."""

    def process(self, record: Any) -> None:
        """Do nothing."""


def every_kind() -> Topology:
    """Return a topology with a store of each kind, one with a time to live, and a global store."""
    topology = Topology()
    topology.add_source("in", key_serde=STRING, value_serde=STRING)
    topology.add_processor("idle", Idle, ["in"])
    for builder in BUILDERS:
        topology.add_state_store(builder, "idle")
    expiring = Stores.key_value_store_builder(Stores.persistent_key_value_store("expiring"), STRING, STRING)
    topology.add_state_store(expiring.with_ttl(1_000, "event"), "idle")
    rates = Stores.key_value_store_builder(Stores.persistent_key_value_store("rates"), STRING, STRING)
    topology.add_global_store(rates, "rates-in", "rates", "keep", Idle, key_serde=STRING, value_serde=STRING)
    return topology


@dataclass
class States:
    """A state of some shards, driven as a query drives it: batches of a shard, each committed."""

    home: Path
    topology: Topology
    shards: int
    shard_by: str = "key"
    name: str = "old"
    pointers: dict[int, CommitPointer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.location = DurableLocation(self.home / self.name)
        asked = StateMetadata(
            f"state-{self.name}",
            self.shards,
            self.shard_by,
            routing_numbers(self.shards, self.shards),
            self.topology.store_specs(),
            self.topology.to_json(),
        )
        self.metadata = agree_on_metadata(self.location, asked)
        self.state = self._opened(self.metadata, self.location)

    def shard_of(self, key: str) -> int:
        """Return where the records of a key go."""
        return int(partition_column(pa.array([key.encode()], pa.binary()), self.shards)[0])

    def pointer(self, shard: int) -> CommitPointer:
        """Return what is committed of a shard."""
        return self.pointers.get(shard) or CommitPointer(self.metadata.state_id, shard)

    def run(
        self,
        shard: int,
        operations: Callable[[Mapping[str, Any]], None],
        *,
        time_ms: int = 7,
        skipped_records: int = 0,
        punctuations: RecordedPunctuations | None = None,
        processor_metadata: Mapping[str, int] | None = None,
    ) -> None:
        """Commit a batch of a shard in which `operations` was done with its stores."""
        context = TaskRecordContext(time_ms, time_ms)
        context.timestamp_ms = time_ms
        context.headers.add("why", b"record")
        with self.state.open(self.pointer(shard)) as batch:
            stores = shard_stores(self.topology, batch, context)
            operations(stores)
            times_ms = flush_stores(stores)
            end = BatchEnd(skipped_records, time_ms, times_ms, punctuations, processor_metadata or {})
            self.pointers[shard] = batch.commit(end).pointer

    def process(self, shard: int, records: Sequence[SourceFields]) -> Task:
        """Commit a batch of a shard in which the topology had these records; return the task that was run."""
        pointer = self.pointer(shard)
        context = TaskRecordContext(pointer.stream_time_ms, 0)
        with self.state.open(pointer) as batch:
            task = Task(
                self.topology,
                shard,
                shard_stores(self.topology, batch, context),
                context,
                punctuations=pointer.punctuations,
                processor_metadata=pointer.processor_metadata,
                earlier=pointer.earlier,
            )
            task.process_batch(source_batch(records)) if task.takes_batches else task.process(records)
            task.end_batch(0)
            self.pointers[shard] = batch.commit(task.leave()).pointer
        return task

    def put_everywhere(self, times_ms: Mapping[str, int]) -> None:
        """Put something about each key into every store that is not global, around its time."""
        for shard in range(self.shards):
            mine = {key: time_ms for key, time_ms in times_ms.items() if self.shard_of(key) == shard}

            def put(stores: Mapping[str, Any], mine: Mapping[str, int] = mine) -> None:
                for key, time_ms in mine.items():
                    fill(stores, key, time_ms)

            if mine:
                self.run(shard, put, time_ms=max(mine.values()))

    def put_globally(self, key: str, value: str) -> None:
        """Put something into the global store, of which each shard has all."""
        for shard in range(self.shards):
            self.run(shard, lambda stores: stores["rates"].put(key, value))

    def write_pointers(self, name: str = "pointers") -> Path:
        """Write what is committed into a file of `home`, as commands take it."""
        file = self.home / name
        file.write_text("".join(f"{pointer.to_json()}\n" for pointer in self.pointers.values()))
        return file

    def contents(self) -> list[Contents]:
        """Return what each shard holds."""
        return [entries_of(self.state, self.pointer(shard)) for shard in range(self.shards)]

    def shown(self) -> list[Contents]:
        """Return what each shard holds without the windows and sessions that its stores show no more."""
        shown = self.contents()
        for shard, contents in enumerate(shown):
            for spec in self.metadata.stores:
                if spec.kind in (StoreKind.WINDOW, StoreKind.SESSION):
                    hidden_ms = self.pointer(shard).store_times_ms.get(spec.name, -1) - spec.retention[0]
                    is_session = spec.kind is StoreKind.SESSION
                    contents[spec.name] = {
                        entry
                        for entry in contents[spec.name]
                        if ((entry.end_ms if is_session else entry.start_ms) or 0) > hidden_ms
                    }
        return shown

    def rescaled(
        self, shards: int, name: str = "new", *, key_of: Mapping[str, KeyOf] | None = None, **options: Any
    ) -> RescaleReport:
        """Rescale into another location."""
        pointers = committed_pointers(self.location, self.metadata, self.pointers.values(), complete=True)
        return rescale(
            self.location,
            DurableLocation(self.home / name),
            shards=shards,
            pointers=pointers,
            key_of=record_keys(self.metadata, key_of),
            **options,
        )

    def opened(self, name: str = "new") -> States:
        """Return the state that was made there, each shard where it begins."""
        location = DurableLocation(self.home / name)
        metadata = read_metadata(location)
        assert metadata is not None
        made = States(self.home, self.topology, metadata.shards, self.shard_by, name)
        made.pointers = {shard: initial_pointer(location, metadata.state_id, shard) for shard in range(metadata.shards)}
        return made

    def _opened(self, metadata: StateMetadata, location: DurableLocation) -> ShardedState:
        local = LocalDirectory(self.home / "local" / self.name)
        return ShardedState(metadata.state_id, location, metadata.stores, local, self.topology.in_memory_stores())


def fill(stores: Mapping[str, Any], key: str, time_ms: int) -> None:
    """Put something about a key into every store that is not global: headers, duplicates, deleted versions."""
    stores["plain"].put(key, f"{key}@{time_ms}")
    stores["timed"].put(key, ValueAndTimestamp("1", time_ms))
    stores["headed"].put(key, ValueTimestampHeaders("1", time_ms, HEADERS))
    stores["expiring"].put(key, "while it lasts")
    for value in ("first", "second"):
        stores["windows"].put(key, ValueTimestampHeaders(value, time_ms, HEADERS), time_ms)
    start_ms = max(0, time_ms - 10)
    stores["sessions"].put(Windowed(key, start_ms, time_ms), AggregationWithHeaders("s", HEADERS))
    for name in ("versions", "headed-versions"):
        stores[name].put(key, f"from {time_ms}", time_ms)
        stores[name].put(key, None, time_ms + 3)
        stores[name].put(key, "again", time_ms + 8)
    stores["headed-versions"].put(key, "with headers", time_ms + 9, HEADERS)


def entries_of(state: ShardedState, pointer: CommitPointer) -> Contents:
    """Return what a shard's stores hold."""
    with state.open(pointer) as batch:
        return {name: set(stored_entries(store.spec, store.bytes)) for name, store in batch.stores.items()}
