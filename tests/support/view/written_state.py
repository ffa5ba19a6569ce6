"""A state of some shards, written and committed as a query does it, but for Spark; and the query's own stores in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from statestore.format.keys.entry_key import VALUE_KEYS
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.heads.head import Head, write_head
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import ENTRY_KEYS, METADATA_NAME, StateMetadata, metadata_of_stores
from statestore.recovery.shard_batch import ShardBatch, ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.stores.builder import StoreBuilder
from statestore.stores.layers.expiring import Expiry, OneTime
from statestore.stores.typed_store import TypedStore

Stores = Mapping[str, TypedStore]
Write = Callable[[int, Stores], None]
Builder = StoreBuilder[Any]


class WrittenState:
    """A state location with shards that batches write to, and a head after each batch."""

    def __init__(
        self,
        home: Path,
        *builders: Builder,
        shards: int = 2,
        shard_by: str = "key",
        global_stores: Sequence[str] = (),
        recovery: RecoveryOptions | None = None,
        knows_keys: bool = True,
    ) -> None:
        self.home = home
        self.location = DurableLocation(home / "state")
        self.builders: list[Builder] = []
        for builder in builders:
            beside = builder.expiry_store
            self.builders += [builder] if beside is None else [beside, builder]
        made = metadata_of_stores((builder.spec for builder in self.builders), shards, shard_by)
        names = [each.name for each in builders]
        keys = dict.fromkeys(names, VALUE_KEYS) if knows_keys else {}
        topology: list[dict[str, Any]] = [{"name": "p", "parents": [], "stores": names, ENTRY_KEYS: keys}]
        if global_stores:
            fed = {"name": "fill", "parents": ["g"], "stores": [*global_stores]}
            topology = [{"name": "p"}, {"name": "g", "global": True}, fed]
        self.metadata = replace(made, topology=tuple(topology), initial_state=False)
        self.recovery = recovery or RecoveryOptions()
        self.pointers = [CommitPointer(self.metadata.state_id, shard) for shard in range(shards)]
        self.head: Head | None = None
        self.order = 1
        self.now_ms = 0
        self.record_metadata(self.metadata)

    def record_metadata(self, metadata: StateMetadata) -> None:
        self.metadata = metadata
        self.location.write(METADATA_NAME, metadata.to_json().encode())

    @property
    def state(self) -> ShardedState:
        local, metadata = LocalDirectory(self.home / "local"), self.metadata
        return ShardedState(
            metadata.state_id,
            self.location,
            metadata.stores,
            local,
            recovery=self.recovery,
            run=f"run{self.order}",
            accept_older_checkpoint=self.order > 1,
        )

    def batch(self, write: Write, shards: Sequence[int] | None = None) -> Head:
        """Have each shard written to and committed, and publish what is committed then."""
        asked = range(self.metadata.shards) if shards is None else shards
        for shard in asked:
            with self.state.open(self.pointers[shard]) as batch:
                stores = self._built(batch)
                write(shard, stores)
                times_ms = {}
                for name, store in stores.items():
                    store.flush()
                    if store.stream_time_ms is not None:
                        times_ms[name] = store.stream_time_ms
                end = BatchEnd(stream_time_ms=self.now_ms, store_times_ms=times_ms)
                self.pointers[shard] = batch.commit(end).pointer
        return self.publish()

    def restart(self, pointers: Sequence[CommitPointer]) -> None:
        """Begin another run, from a checkpoint that has these pointers."""
        self.order += 1
        self.pointers = list(pointers)

    def publish(self) -> Head:
        batch = 0 if self.head is None else self.head.batch + 1
        pointers = tuple(self.pointers)
        self.head = Head(self.metadata.state_id, "query", f"run{self.order}", batch, 0, pointers)
        write_head(self.location, self.order, self.head)
        return self.head

    @contextmanager
    def own_stores(self) -> Iterator[list[Stores]]:
        """Hand out the query's own stores of each shard, as they are committed."""
        with ExitStack() as opened:
            yield [self._built(opened.enter_context(self.state.open(pointer))) for pointer in self.pointers]

    def _built(self, batch: ShardBatch) -> dict[str, TypedStore]:
        stores: dict[str, TypedStore] = {}
        for builder in self.builders:
            inner, times_ms = batch.stores[builder.name], batch.pointer.store_times_ms
            beside = builder.expiry_store
            clocks = OneTime(self.now_ms, self.now_ms)
            stores[builder.name] = builder.build(
                inner.bytes,
                changelog=inner.changelog,
                context=TaskRecordContext(),
                stream_time_ms=times_ms.get(builder.name, -1),
                expiry=None if beside is None else Expiry(stores[beside.name].stack.top, clocks),
            )
        return stores
