"""Brings a snapshot back: its files, fetched in parallel and checked, as a database's directory."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from statestore.bytestore.engines.rocksdb_options import local_disk_errors
from statestore.errors.state import DurableFileMissingError
from statestore.recovery.commit.manifest import Manifest, SnapshotFile, read_manifest
from statestore.recovery.commit.pointer import CommitPointer, SnapshotRef, check_content
from statestore.recovery.location.durable_json import file_digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.progress import RestoreProgress

_PARALLEL_FETCHES = 8
_DAMAGED = "damaged-snapshots"


def ways_to_restore(pointer: CommitPointer, damaged: Collection[str]) -> list[SnapshotRef | None]:
    """Return what the version can be made from, best first, `damaged` ones last; None is nothing at all."""
    newest_first = list(reversed(pointer.snapshots[-2:]))
    trusted: list[SnapshotRef | None] = [made for made in newest_first if made.manifest.name not in damaged]
    trusted.extend(made for made in newest_first if made.manifest.name in damaged)
    return trusted if pointer.base_version > 0 else [*trusted, None]


def fetch_snapshot(
    location: DurableLocation,
    pointer: CommitPointer,
    snapshot: SnapshotRef,
    path: Path,
    progress: RestoreProgress | None,
) -> Manifest:
    """Make `path`, an empty directory, the database of a snapshot; return its manifest. Raises as `read_manifest`."""
    manifest = read_manifest(location, pointer, snapshot)
    needed_by = f"the snapshot of shard {manifest.shard} at version {manifest.version}"
    total_bytes = manifest.size_bytes

    def fetch(file: SnapshotFile) -> None:
        durable, target = file.durable, path / file.local_name
        if not location.fetch(durable.name, target, durable.size_bytes):
            raise DurableFileMissingError(location.path(durable.name), needed_by=needed_by)
        check_content(location.path(durable.name), durable, target.stat().st_size, file_digest(target))
        _sync(target)
        if progress is not None:
            progress.count_fetched(durable.size_bytes, total_bytes)

    with location.requests(_PARALLEL_FETCHES, "statestore-fetch") as pool:
        try:
            for fetched in [pool.submit(fetch, file) for file in manifest.files]:
                fetched.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    _sync(path)
    return manifest


def note_damaged_snapshot(shard_dir: Path, manifest_name: str) -> None:
    """Remember that a snapshot could not be restored: it is the last resort now, and the next one shares nothing."""
    with open(shard_dir / _DAMAGED, "a", encoding="utf-8") as file:
        file.write(manifest_name + "\n")


def damaged_snapshots(shard_dir: Path) -> frozenset[str]:
    """Return the manifests of the snapshots that were found damaged on this machine."""
    try:
        return frozenset((shard_dir / _DAMAGED).read_text(encoding="utf-8", errors="replace").splitlines())
    except FileNotFoundError:
        return frozenset()


def _sync(path: Path) -> None:
    """Have a file or directory on the disk: the marker that says what is here must not get there first."""
    with local_disk_errors("local copy", str(path)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
