"""Reads all files of a state location, and reports those that can't be used."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from statestore.errors import RecoveryError, StateStoreError
from statestore.errors.state import DurableFileCorruptedError, DurableFileMissingError
from statestore.recovery.commit.manifest import Manifest, read_manifest
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, check_content
from statestore.recovery.heads.head import newest_head
from statestore.recovery.location.durable_json import MAX_DOCUMENT_BYTES, file_digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import (
    MANIFEST_NAME,
    delta_directory,
    parse_delta_name,
    parse_snapshot_name,
    snapshot_directory,
)
from statestore.recovery.metadata.state_metadata import StateMetadata
from upgrade_tools.location.deltas import verified_delta
from upgrade_tools.location.files import ShardFiles, files_of_shard
from upgrade_tools.states.location import LocationState


def location_problems(state: LocationState, on_files: Callable[[int], None]) -> tuple[list[str], list[str]]:
    """Read the files of a state, and return what is wrong, and what there is, both in words.

    `on_files` is told of files as they are read. If it is known what is committed, the files that it needs are also
    checked against their recorded size and checksum. Raises LocationError, StatePointersError.
    """
    location, metadata = state.location, state.metadata
    stores = ", ".join(f"{spec.name} ({spec.describe()})" for spec in metadata.stores)
    notes = [f"state {metadata.state_id}, {metadata.shards} shards, stores: {stores}"]
    problems: list[str] = []
    for shard in range(metadata.shards):
        files = files_of_shard(location, shard)
        problems.extend(_problems_of_shard(location, metadata, files, state.options.work_dir))
        on_files(files.deltas + len(files.snapshots))
        notes.append(files.describe())
    try:
        notes.extend(_head(state))
    except RecoveryError as damaged:
        problems.append(str(damaged))
    for shard in range(metadata.shards) if state.knows_pointers else ():
        found = list(_needed_by(location, state.pointers[shard], state.options.work_dir, on_files))
        if found and state.go_on():  # a query that runs collects what it needed before
            found = list(_needed_by(location, state.pointers[shard], state.options.work_dir, on_files))
        problems.extend(found)
    return list(dict.fromkeys(problems)), notes


def _head(state: LocationState) -> Iterator[str]:
    """Yield what the head says, compared with pointers that were given. Raises RecoveryError."""
    head = newest_head(state.location, state.metadata.state_id)
    if head is None:
        return
    compared = "" if state.head is not None or not state.knows_pointers else ", as the pointers that were given"
    if compared and list(head.pointers) != state.pointers:
        compared = ", other than the pointers that were given: the query went on meanwhile, or publishes no heads now"
    yield f"head: {head.describe()}{compared}"


def _problems_of_shard(
    location: DurableLocation, metadata: StateMetadata, files: ShardFiles, work_dir: str | None
) -> Iterator[str]:
    yield from _deltas(location, metadata, files.shard, work_dir)
    yield from _snapshots(location, metadata, files.shard)
    # With snapshots, older deltas are removed as garbage.
    first = min(files.versions, default=1) if files.snapshots else 1
    missing = sorted(set(range(first, max(files.versions, default=0))) - set(files.versions))
    yield from (f"shard {files.shard}: no delta makes version {version}" for version in missing)


def _deltas(location: DurableLocation, metadata: StateMetadata, shard: int, work_dir: str | None) -> Iterator[str]:
    for entry in location.entries(delta_directory(shard)):
        if parse_delta_name(entry.name) is None:
            continue
        try:
            with verified_delta(location, entry.name, entry.size_bytes, work_dir) as delta:
                if delta is None:  # garbage collection has removed it meanwhile
                    continue
                info = delta.info
            if (info.state_id, info.shard) != (metadata.state_id, shard):
                yield f"{location.path(entry.name)}: it belongs to shard {info.shard} of state {info.state_id}"
        except StateStoreError as error:
            yield str(error)


def _snapshots(location: DurableLocation, metadata: StateMetadata, shard: int) -> Iterator[str]:
    for directory in location.directories(snapshot_directory(shard)):
        if parse_snapshot_name(directory) is None:
            continue
        where = location.path(f"{directory}/{MANIFEST_NAME}")
        try:
            data = location.read(f"{directory}/{MANIFEST_NAME}", MAX_DOCUMENT_BYTES)
            if data is None:  # unfinished, or its files are kept for later snapshots
                continue
            manifest = Manifest.from_json(data, where)
            if (manifest.state_id, manifest.shard) != (metadata.state_id, shard):
                yield f"{where}: it belongs to shard {manifest.shard} of state {manifest.state_id}"
        except StateStoreError as error:
            yield str(error)


def _needed_by(
    location: DurableLocation, pointer: CommitPointer, work_dir: str | None, on_files: Callable[[int], None]
) -> Iterator[str]:
    """Yield what is wrong with the files that can restore one pointer, from either of its last two snapshots."""
    files = list(pointer.deltas)
    for snapshot in pointer.snapshots[-2:]:
        try:
            files.extend(file.durable for file in read_manifest(location, pointer, snapshot).files)
        except StateStoreError as error:
            yield str(error)
    for file in dict.fromkeys(files):
        try:
            _check(location, file, f"shard {pointer.shard} at version {pointer.version}", work_dir)
        except (DurableFileMissingError, DurableFileCorruptedError) as error:
            yield str(error)
        on_files(1)


def _check(location: DurableLocation, file: DurableFile, needed_by: str, work_dir: str | None) -> None:
    where = location.path(file.name)
    with tempfile.TemporaryDirectory(prefix="statestore-verify-", dir=work_dir) as directory:
        fetched = Path(directory, "file")
        if not location.fetch(file.name, fetched, file.size_bytes):
            raise DurableFileMissingError(where, needed_by=needed_by)
        check_content(where, file, fetched.stat().st_size, file_digest(fetched))
