"""Brings a snapshot back: its files, fetched in parallel and checked, as a database's directory."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from statestore.errors import DurableFileMissingError, RecoveryError
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer, check_content, file_digest
from statestore.recovery.restore_progress import RestoreProgress
from statestore.recovery.snapshot import Manifest, SnapshotFile, read_manifest

_LOG = logging.getLogger(__name__)
_PARALLEL_FETCHES = 8


def fetch_newest_snapshot(
    location: DurableLocation,
    pointer: CommitPointer,
    path: Path,
    progress: RestoreProgress,
    on_damaged: Callable[[str], None],
) -> Manifest | None:
    """Make `path`, an empty directory, the database of the newest whole snapshot of `pointer`; return its manifest.

    None, with `path` empty still, if the deltas alone make the version: there is no snapshot, or they begin at nothing
    and the only one is damaged. A damaged snapshot is logged, and its manifest's name handed to `on_damaged`. Raises
    DurableFileMissingError, DurableFileCorruptedError or SnapshotFormatError if no other way is left.
    """
    candidates = pointer.snapshots[-2:]
    for snapshot in reversed(candidates):
        try:
            manifest = read_manifest(location, pointer, snapshot)
            _fetch(location, manifest, path, progress)
        except RecoveryError as damage:
            on_damaged(snapshot.manifest.name)
            if snapshot is candidates[0] and pointer.base_version > 0:
                raise
            _LOG.warning("shard %d: going on without the snapshot of %d: %s", pointer.shard, snapshot.version, damage)
            for file in path.iterdir():
                file.unlink()
        else:
            return manifest
    return None


def _fetch(location: DurableLocation, manifest: Manifest, path: Path, progress: RestoreProgress) -> None:
    needed_by = f"the snapshot of shard {manifest.shard} at version {manifest.version}"
    total_bytes = manifest.size_bytes

    def fetch(file: SnapshotFile) -> None:
        durable, target = file.durable, path / file.local_name
        if not location.fetch(durable.name, target):
            raise DurableFileMissingError(location.path(durable.name), needed_by=needed_by)
        check_content(location.path(durable.name), durable, target.stat().st_size, file_digest(target))
        _sync(target)
        progress.fetched(durable.size_bytes, total_bytes)

    with ThreadPoolExecutor(_PARALLEL_FETCHES, thread_name_prefix="statestore-fetch") as pool:
        try:
            for fetched in [pool.submit(fetch, file) for file in manifest.files]:
                fetched.result()
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    _sync(path)


def _sync(path: Path) -> None:
    """Have a file or directory on the disk: the marker that says what is here must not get there first."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
