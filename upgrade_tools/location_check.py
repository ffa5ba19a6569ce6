"""Reads all files of a state location, and says which of them can't be used."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from statestore.errors import DurableFileCorruptedError, DurableFileMissingError, StateStoreError
from statestore.recovery.delta import decode_delta
from statestore.recovery.location import DurableLocation
from statestore.recovery.metadata import METADATA_NAME, StateMetadata, read_metadata
from statestore.recovery.pointer import CommitPointer, DurableFile, check_content, file_digest
from statestore.recovery.shard_files import (
    MANIFEST_NAME,
    delta_directory,
    parse_delta_name,
    parse_snapshot_name,
    snapshot_directory,
)
from statestore.recovery.snapshot import Manifest, read_manifest

_SAY_EVERY_FILES = 1_000


def verify_location(uri: str, pointers: list[CommitPointer] | None = None) -> bool:
    """Read the files of the state at path or URI `uri`, print what was found, and return whether all are whole.

    Without `pointers`, the commit pointers of the last committed batch, only those files are looked at that are there:
    what is committed stands in Spark's checkpoint. With them, all that they need is checked against size and checksum.
    Raises StateStoreError if there is no state.
    """
    location = DurableLocation(uri)
    metadata = read_metadata(location)
    if metadata is None:
        raise DurableFileMissingError(location.path(METADATA_NAME), needed_by="a state location")
    stores = ", ".join(f"{spec.name} ({spec.describe()})" for spec in metadata.stores)
    print(f"{location}: state {metadata.state_id}, {metadata.shards} shards, stores: {stores}")
    damaged = []
    for shard in range(metadata.shards):
        damaged.extend(_Shard(location, metadata, shard).problems())
    for pointer in pointers or ():
        damaged.extend(_needed_by(location, pointer))
    for problem in dict.fromkeys(damaged):
        print(f"  DAMAGED {problem}")
    print(f"{len(dict.fromkeys(damaged))} damaged" if damaged else "all files can be read")
    return not damaged


class _Shard:
    """Reads what there is of one shard."""

    def __init__(self, location: DurableLocation, metadata: StateMetadata, shard: int) -> None:
        self._location = location
        self._metadata = metadata
        self._shard = shard

    def problems(self) -> list[str]:
        deltas = [name for name in self._location.names(delta_directory(self._shard)) if parse_delta_name(name)]
        directories = self._location.directories(snapshot_directory(self._shard))
        snapshots = [directory for directory in directories if parse_snapshot_name(directory)]
        problems = [*self._deltas(deltas), *self._snapshots(snapshots)]
        versions = {written.version for name in deltas if (written := parse_delta_name(name)) is not None}
        # With snapshots, older deltas are removed as garbage.
        first = min(versions, default=1) if snapshots else 1
        missing = sorted(set(range(first, max(versions, default=0))) - versions)
        problems.extend(f"shard {self._shard}: no delta makes version {version}" for version in missing)
        span = f"versions {min(versions)} to {max(versions)}" if versions else "no versions"
        print(f"  shard {self._shard}: {len(deltas)} deltas, {span}, {len(snapshots)} snapshots")
        return problems

    def _deltas(self, names: Iterable[str]) -> Iterator[str]:
        for number, name in enumerate(names, start=1):
            where = self._location.path(name)
            try:
                data = self._location.read(name)
                if data is None:  # garbage collection was faster
                    continue
                info = decode_delta(data, where).info
                if (info.state_id, info.shard) != (self._metadata.state_id, self._shard):
                    yield f"{where}: it belongs to shard {info.shard} of state {info.state_id}"
            except StateStoreError as error:
                yield str(error)
            if number % _SAY_EVERY_FILES == 0:
                print(f"  shard {self._shard}: {number} deltas read", file=sys.stderr)

    def _snapshots(self, directories: Iterable[str]) -> Iterator[str]:
        for directory in directories:
            where = self._location.path(f"{directory}/{MANIFEST_NAME}")
            try:
                data = self._location.read(f"{directory}/{MANIFEST_NAME}")
                if data is None:  # under way, given up, or files that later snapshots still share
                    continue
                manifest = Manifest.from_json(data, where)
                if (manifest.state_id, manifest.shard) != (self._metadata.state_id, self._shard):
                    yield f"{where}: it belongs to shard {manifest.shard} of state {manifest.state_id}"
            except StateStoreError as error:
                yield str(error)


def _needed_by(location: DurableLocation, pointer: CommitPointer) -> Iterator[str]:
    """Yield what is wrong with the files that restore one pointer, in either way."""
    files = list(pointer.deltas)
    for snapshot in pointer.snapshots[-2:]:
        try:
            files.extend(file.durable for file in read_manifest(location, pointer, snapshot).files)
        except StateStoreError as error:
            yield str(error)
    for file in dict.fromkeys(files):
        try:
            _check(location, file, f"shard {pointer.shard} at version {pointer.version}")
        except (DurableFileMissingError, DurableFileCorruptedError) as error:
            yield str(error)


def _check(location: DurableLocation, file: DurableFile, needed_by: str) -> None:
    where = location.path(file.name)
    with tempfile.TemporaryDirectory(prefix="statestore-verify-") as directory:
        fetched = Path(directory, "file")
        if not location.fetch(file.name, fetched):
            raise DurableFileMissingError(where, needed_by=needed_by)
        check_content(where, file, fetched.stat().st_size, file_digest(fetched))
