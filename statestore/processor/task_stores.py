"""Builds the stores of a task, and flushes them at the end of a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from statestore.bytestore.kinds.segments import NO_STREAM_TIME
from statestore.bytestore.protocol import ByteStore
from statestore.processor.context import TaskRecordContext
from statestore.processor.topology import Topology
from statestore.recovery.commit.changelog import Changelog
from statestore.recovery.shard_batch import ShardBatch
from statestore.stores.layers.expiring import Expiry
from statestore.stores.metrics import StoreMetrics
from statestore.stores.typed_store import TypedStore


class StoreBacking(NamedTuple):
    """What a driver provides to build a store on: its bytes, and what goes with them."""

    inner: ByteStore
    changelog: Changelog | None = None
    stream_time_ms: int = NO_STREAM_TIME
    metrics: StoreMetrics | None = None


def build_stores(
    topology: Topology, context: TaskRecordContext, backing: Callable[[str], StoreBacking]
) -> dict[str, TypedStore]:
    """Return the topology's stores by name, each on what `backing` returns for it."""
    stores: dict[str, TypedStore] = {}
    # The topology has an expiry store before the store whose entries expire.
    for name, builder in topology.store_builders.items():
        inner, changelog, stream_time_ms, metrics = backing(name)
        expiry_store = topology.expiry_stores.get(name)
        stores[name] = builder.build(
            inner,
            changelog=changelog,
            context=context,
            stream_time_ms=stream_time_ms,
            metrics=metrics,
            expiry=None if expiry_store is None else Expiry(stores[expiry_store].stack.top, context),
        )
    return stores


def shard_stores(topology: Topology, batch: ShardBatch, context: TaskRecordContext) -> dict[str, TypedStore]:
    """Return the topology's stores by name, on the bytes of a batch that logs what is written to them."""
    times_ms = batch.pointer.store_times_ms

    def backing(name: str) -> StoreBacking:
        store = batch.stores[name]
        return StoreBacking(store.bytes, store.changelog, times_ms.get(name, NO_STREAM_TIME))

    stores = build_stores(topology, context, backing)
    for name, store in stores.items():
        if store.metrics is not None:
            committed = batch.stores[name].committed
            store.metrics.record_restore(committed.restore_ns, committed.restored_records)
    return stores


def flush_stores(stores: Mapping[str, TypedStore]) -> dict[str, int]:
    """Flush the stores, and return the stream time of each that keeps one."""
    for store in stores.values():
        store.flush()
    times_ms = {name: store.stream_time_ms for name, store in stores.items()}
    return {name: time_ms for name, time_ms in times_ms.items() if time_ms is not None}
