"""Answers about the state as a whole, its stores, batches and files."""

from __future__ import annotations

import time
from typing import Any, Final

from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec, StoreType
from statestore.recovery.fences.run_fences import head_of
from statestore.recovery.snapshots.garbage import find_garbage
from upgrade_tools.location.files import files_of_shard
from upgrade_tools.rows.entry_encoding import EntryEncoding
from upgrade_tools.serve.content import Document
from upgrade_tools.serve.following import Follower, SeenBatch, ServedStage
from upgrade_tools.serve.sampling import SAMPLE_S, Samples
from upgrade_tools.states.location import LocationState

_FILES_S: Final = 3.0
_TOPOLOGY_FIELDS: Final = ("name", "type", "parents", "stores", "topics", "global")


def overview(follower: Follower, samples: Samples) -> Document:
    """Return the whole at a glance: the state's stages, and figures of all stores, read within bounded time."""
    deadline = time.monotonic() + SAMPLE_S
    stores = []
    for stage in follower.stages:
        for spec in stage.state.metadata.stores:
            figures = samples.sample(stage, spec, max(0.0, deadline - time.monotonic())).document(EntryEncoding())
            of_store = {name: field for name, field in figures.items() if name not in ("largest", "headers", "byShard")}
            sizes = [shard["sizeBytes"] for shard in figures["byShard"] if shard["sizeBytes"] is not None]
            stores.append({**store_facts(stage, spec), **of_store, "sizeBytes": sum(sizes)})
    return {
        "location": follower.path,
        "problem": follower.problem,
        "stages": [stage_facts(stage) for stage in follower.stages],
        "stores": stores,
        "topology": topology(follower),
        "batches": [batch_facts(batch) for batch in follower.batches],
    }


def stage_facts(stage: ServedStage) -> Document:
    """Return what is fixed of a stage, and what is committed of each shard."""
    metadata, head = stage.state.metadata, stage.head
    calls = {} if head is None else head.figures.calls
    return {
        "stage": stage.number,
        "stateId": metadata.state_id,
        "shards": metadata.shards,
        "shardBy": metadata.shard_by,
        "query": None if head is None else head.query,
        "run": None if head is None else head.run,
        "batch": None if head is None else head.batch,
        "time": None if head is None else head.time_ms,
        "pointers": [
            {
                "shard": pointer.shard,
                "version": pointer.version,
                "streamTime": pointer.stream_time_ms,
                "skippedRecords": pointer.skipped_records,
                "snapshots": [snapshot.version for snapshot in pointer.snapshots],
                "historyBytes": sum(file.size_bytes for file in pointer.deltas),
                "lastBytes": pointer.deltas[-1].size_bytes if pointer.deltas else 0,
                "lastMs": calls[pointer.shard].duration_ms if pointer.shard in calls else None,
            }
            for pointer in stage.state.pointers
        ],
        "recent": recent_batches(stage),
    }


def recent_batches(stage: ServedStage) -> list[Document]:
    """Return the latest batches as the query has measured them, oldest first."""
    recent = () if stage.head is None else stage.head.figures.recent
    return [
        {
            "stage": stage.number,
            "batch": batch.batch,
            "time": batch.time_ms,
            "duration": batch.duration_ms,
            "records": batch.records,
            "deltaBytes": batch.delta_bytes,
            "phases": [{"phase": phase.removesuffix("_ms"), "ms": ms} for phase, ms in batch.times.items()],
        }
        for batch in recent
    ]


def store_facts(stage: ServedStage, spec: StoreSpec) -> Document:
    """Return what is fixed of a store."""
    recorded = spec.to_json()
    return {
        "name": spec.name,
        "stage": stage.number,
        "kind": StoreType.of(spec).value,
        "description": spec.describe(),
        "hasHeaders": spec.format.has_headers,
        "hasTimes": spec.kind.is_segmented or spec.format.has_timestamp,
        "hasWindows": spec.kind.has_windows,
        "indexedHeaders": list(spec.indexed_headers),
        "keepsVersions": LAYOUTS[spec.kind].keeps_versions,
        "isGlobal": spec.name in stage.state.metadata.global_stores,
        "retention": recorded.get("retention_ms"),
        "windowSize": spec.window_size_ms,
    }


def topology(follower: Follower) -> list[Document]:
    """Return the nodes of all stages."""
    return [
        {"stage": stage.number, **{name: node[name] for name in _TOPOLOGY_FIELDS if name in node}}
        for stage in follower.stages
        for node in stage.state.metadata.topology
    ]


def batch_facts(batch: SeenBatch) -> Document:
    """Return a batch that was seen: which versions of which shards it has made."""
    versions = [{"shard": shard, "version": version} for shard, version in sorted(batch.changed.values())]
    return {
        "stage": batch.stage,
        "batch": batch.batch,
        "run": batch.run,
        "time": batch.time_ms,
        "changed": versions,
    }


def store_figures(follower: Follower, samples: Samples, store: str, encoding: EntryEncoding) -> Document:
    """Return a store's facts and figures. Raises StoreNotFoundError, RecoveryError, FormatError."""
    stage, spec = follower.stage_of(store)
    return {**store_facts(stage, spec), **samples.sample(stage, spec).document(encoding)}


def files(states: list[LocationState]) -> Document:
    """Return the files of the shards, as far as they were listed in time. May be called in any thread."""
    deadline = time.monotonic() + _FILES_S
    found: list[dict[str, Any]] = []
    shards = 0
    for number, state in enumerate(states):
        shards += len(state.parts)
        for pointer in state.pointers:
            if found and time.monotonic() > deadline:
                break
            listed = files_of_shard(state.location, pointer.shard, pointer)
            garbage = 0
            if listed.retained_versions is not None:
                epoch = head_of(pointer).epoch
                unneeded = find_garbage(state.location, pointer, epoch, listed.retained_versions).files
                garbage = sum(file.size_bytes for file in unneeded)
            found.append(
                {
                    "stage": number,
                    "shard": pointer.shard,
                    "deltas": listed.deltas,
                    "deltaBytes": listed.delta_bytes,
                    "oldestVersion": listed.oldest_version,
                    "version": pointer.version,
                    "snapshots": listed.snapshots,
                    "snapshotBytes": listed.snapshot_bytes,
                    "retainedVersions": listed.retained_versions,
                    "garbageBytes": garbage,
                }
            )
    return {"shards": found, "isWhole": len(found) == shards}
