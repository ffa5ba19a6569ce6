"""Builds the stores of a task on a shard's batch, and takes down what they say at its end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from statestore.bytestore.record_context import RecordContext
from statestore.processor.context import TaskRecordContext
from statestore.processor.topology import Topology
from statestore.recovery.shard_batch import ShardBatch
from statestore.stores.expiring import ExpiringLayer
from statestore.stores.key_value import KeyValueStore
from statestore.stores.typed_store import TypedStore

_LOG = logging.getLogger(__name__)


def build_stores(topology: Topology, batch: ShardBatch, context: RecordContext) -> dict[str, TypedStore]:
    """Return the topology's stores by name, on the bytes of a batch that logs what is written to them."""
    stores = {
        name: topology.store_builders[name].build(
            store.bytes,
            changelog=store.changelog,
            context=context,
            stream_time_ms=batch.pointer.store_times_ms.get(name, -1),
        )
        for name, store in batch.stores.items()
    }
    for name, store in stores.items():
        if store.metrics is not None:
            committed = batch.stores[name].committed
            store.metrics.restored(committed.restore_ns, committed.restored_records)
    return stores


def expire_entries(
    topology: Topology, stores: Mapping[str, TypedStore], context: TaskRecordContext
) -> list[ExpiringLayer]:
    """Have the entries of stores with a time to live expire; return what deletes those that have."""
    clocks: dict[str, Callable[[], int]] = {
        "processing": lambda: context.system_time_ms,
        "event": lambda: context.stream_time_ms,
    }
    layers = []
    for name, expiry_name in topology.expiry_stores.items():
        store, times, ttl = stores[name], stores[expiry_name], topology.store_builders[name].time_to_live
        assert isinstance(store, KeyValueStore)  # with_ttl made sure of it
        assert isinstance(times, KeyValueStore)
        assert ttl is not None
        layers.append(store.expire(times, ttl.ttl_ms, clocks[ttl.clock]))
    return layers


def settle_stores(stores: Mapping[str, TypedStore], batch: ShardBatch) -> None:
    """Flush what the stores hold back and tell the batch how far their time has come: then it can be committed."""
    for name, store in stores.items():
        store.flush()
        if store.metrics is not None:
            _LOG.info("shard %d: store %s: %s", batch.pointer.shard, name, store.metrics.values())
        stream_time_ms = store.stream_time_ms
        if stream_time_ms is not None:
            batch.stream_times_ms[name] = stream_time_ms
