"""Which state to read: its metadata, one of its stores, and each shard's commit pointer."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import DataSourceOptionError, FormatError, RecoveryError
from statestore.format.keys.partitioner import partition_column
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import newest_head
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.placement import record_keys
from statestore.recovery.making.rescale import committed_pointers, where_all_begin, where_it_began
from statestore.recovery.metadata.state_metadata import ENTRY_KEYS, METADATA_NAME, StateMetadata, state_with
from statestore.spark.datasource.change_feed import ShardChanges, shard_changes
from statestore.spark.datasource.checkpoint_service import CheckpointReader
from statestore.spark.datasource.options import ReadOptions, pointers_of
from statestore.spark.datasource.planned_filters import first_pointers


def state_in(location: DurableLocation, store: str | None) -> tuple[DurableLocation, StateMetadata]:
    """Return the state in `location`, and of several stages the one that has a store. Raises RecoveryError."""
    found = state_with(location, store)
    if found is None:
        is_empty = not location.entries("") and not location.directories("")
        hint = ", nor anything else: is the path right, and mounted on this machine?" if is_empty else ""
        raise RecoveryError(location.path(METADATA_NAME), f"there is no state{hint or '; was the query started?'}")
    return found


def asked_store(metadata: StateMetadata, store: str | None) -> StoreSpec:
    """Return the store of that name; for None, the only one. Raises DataSourceOptionError."""
    known = {spec.name: spec for spec in metadata.stores}
    if store is None and len(known) == 1:
        return next(iter(known.values()))
    if store not in known:
        asked = "is missing" if store is None else f"names {store!r}"
        raise DataSourceOptionError("store", f"{asked}, and the state has the stores {sorted(known)}: name one of them")
    return known[store]


def asked_pointers(
    location: DurableLocation, metadata: StateMetadata, options: ReadOptions, driver: CheckpointReader, dataframe: str
) -> list[CommitPointer]:
    """Return each shard's commit pointer; by default, of the last batch when `dataframe` was first planned."""
    if options.pointers is not None:
        return committed_pointers(location, metadata, pointers_of(options.pointers), complete=options.all_pointers)
    if options.checkpoint is not None:
        batch_id = options.batch_id
        if batch_id is None:
            batch_id = driver.last_batch_id(options.checkpoint, dataframe)
        return pointers_of_checkpoint(location, metadata, driver.pointers(options.checkpoint, batch_id))
    known = pointers_without_checkpoint(location, metadata)
    if known is None:
        raise DataSourceOptionError(
            "checkpoint",
            "is missing, and there is no head: the query's Spark checkpoint says what is committed. Name it, or give "
            "what committed_options(spark, CHECKPOINT) returns as options",
        )
    first = first_pointers(dataframe, "\n".join(pointer.to_json() for pointer in known))
    return committed_pointers(location, metadata, pointers_of(first), complete=True)


def pointers_without_checkpoint(location: DurableLocation, metadata: StateMetadata) -> list[CommitPointer] | None:
    """Return each shard's pointer as the newest head says, or as a tool has made the state; None if neither does."""
    head = newest_head(location, metadata.state_id)
    if head is not None:
        return committed_pointers(location, metadata, head.pointers, complete=True)
    return where_all_begin(location, metadata)


def asked_changes(
    location: DurableLocation, metadata: StateMetadata, options: ReadOptions, driver: CheckpointReader, dataframe: str
) -> list[ShardChanges]:
    """Return the changes of each shard for a change feed."""
    start, end = options.change_start_batch_id, options.change_end_batch_id
    assert start is not None  # the options were checked, also those without a checkpoint
    if options.checkpoint is None:
        assert end is not None
        newer, older = (
            committed_pointers(location, metadata, pointers_of(text), complete=options.all_pointers) if text else []
            for text in (options.pointers, options.pointers_before)
        )
    else:
        if end is None:
            end = driver.last_batch_id(options.checkpoint, dataframe)
            if end < start:
                raise DataSourceOptionError("changeStartBatchId", f"is {start}, and the last batch is {end}")
        recorded = driver.pointers(options.checkpoint, end)
        before = driver.pointers(options.checkpoint, start - 1) if start else []
        newer = pointers_of_checkpoint(location, metadata, recorded)
        older = pointers_of_checkpoint(location, metadata, before) if start else []
    if start == 0:
        older = [where_it_began(location, metadata, shard) for shard in range(metadata.shards)]
    batch_ids = range(start, end + 1)
    return [shard_changes(location, *pair, batch_ids) for pair in zip(older, newer, strict=True)]


def pointers_of_checkpoint(
    location: DurableLocation, metadata: StateMetadata, recorded: Iterable[str]
) -> list[CommitPointer]:
    """Return each shard's pointer; `recorded` is the JSON of all that a checkpoint has after a batch."""
    return committed_pointers(location, metadata, map(CommitPointer.from_json, recorded), complete=True)


def shards_of_keys(
    metadata: StateMetadata, spec: StoreSpec, keys: Iterable[bytes], *, trust_keys: bool
) -> set[int] | None:
    """Return the only shards that can hold these keys; None if it is unknown how keys determine shards."""
    if metadata.shard_by != "key" or spec.name in metadata.global_stores:
        return None
    recorded = {store for node in metadata.topology for store in node.get(ENTRY_KEYS, {})}
    key_of = record_keys(metadata).get(spec.name) if spec.name in recorded else None
    if key_of is None and not trust_keys:
        return None
    record_keys_found = []
    for key in keys:
        try:
            record_keys_found.append(key if key_of is None else key_of(key))
        except FormatError:
            # The store can't have such a key.
            continue
    return set(partition_column(pa.array(record_keys_found, pa.binary()), metadata.shards).tolist())
