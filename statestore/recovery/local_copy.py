"""The local RocksDB copy of a shard: opened at a committed version, caught up or rebuilt where needed.

    LOCAL_DIR/STATE_ID/shard-NNNN/copy-N.lock      held (flock) by the one task that uses copy N
    LOCAL_DIR/STATE_ID/shard-NNNN/copy-N/          the RocksDB database

A copy only ever holds committed versions, and a marker in it says which. A task takes the first copy that nobody holds:
a retry need not wait for a zombie attempt, it uses another copy. Whatever is wrong with a copy, it is rebuilt, from the
newest snapshot that is whole and the deltas since: nothing in it is not also in the durable location.
"""

from __future__ import annotations

import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from statestore.bytestore.families import DEFAULT_FAMILY, older_formats
from statestore.bytestore.opening import finish_older_upgrades, open_store
from statestore.bytestore.rocksdb import RocksDBDatabase
from statestore.bytestore.shard_layout import column_family
from statestore.bytestore.spilling import SpillSpace
from statestore.bytestore.store_spec import StoreSpec
from statestore.bytestore.upgrading import UpgradingByteStore
from statestore.errors import FormatError, LocalStateCorruptedError, LocalStateLockedError
from statestore.recovery.file_lock import locked
from statestore.recovery.local_directory import LocalDirectory
from statestore.recovery.local_marker import LocalMarker, files_digest, is_damaged, read_marker, write_marker
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.restore import CommittedStore, restore
from statestore.recovery.restore_progress import RestoreProgress, StateRestoreListener
from statestore.recovery.snapshot_restore import fetch_newest_snapshot
from statestore.recovery.snapshot_upload import note_damaged_snapshot

_LOG = logging.getLogger(__name__)
_MAX_COPIES = 16


@dataclass
class LocalCopy:
    """An open copy of a shard, for one task; `stores` are at the version of its pointer once it is handed out."""

    path: Path
    database: RocksDBDatabase
    stores: dict[str, CommittedStore]
    applied: int
    """How many of the pointer's deltas it holds."""
    restoring: RestoreProgress | None = None
    """The restore that is going on, if the copy was made anew or is far behind."""


@dataclass(frozen=True)
class _Opening:
    """What it takes to open a copy of a shard."""

    location: DurableLocation
    pointer: CommitPointer
    stores: Sequence[StoreSpec]
    local: LocalDirectory
    space: SpillSpace
    listener: StateRestoreListener | None

    def restoring(self, starting_version: int) -> RestoreProgress:
        names = [spec.name for spec in self.stores]
        return RestoreProgress(self.pointer.shard, names, starting_version, self.pointer.version, self.listener)


@contextmanager
def open_local_copy(
    location: DurableLocation,
    pointer: CommitPointer,
    stores: Sequence[StoreSpec],
    local: LocalDirectory,
    space: SpillSpace,
    listener: StateRestoreListener | None = None,
) -> Iterator[LocalCopy]:
    """Hand out a local copy of the shard at exactly the version of `pointer`, for this task alone.

    Raises DurableFileMissingError, DurableFileCorruptedError or SnapshotFormatError if the durable location can't give
    that version, and LocalStateLockedError if all copies are held.
    """
    opening = _Opening(location, pointer, stores, local, space, listener)
    shard_dir = local.shard(pointer.state_id, pointer.shard)
    shard_dir.mkdir(parents=True, exist_ok=True)
    for number in range(_MAX_COPIES):
        path = shard_dir / f"copy-{number}"
        with locked(path) as held:
            if not held:
                continue
            try:
                copy = _open_on_chain(opening, path)
            except LocalStateLockedError:
                # Held by this very process: a copy that was discarded while it was still open.
                continue
            usable = False
            try:
                _catch_up(opening, copy)
                usable = True
                yield copy
            except LocalStateCorruptedError:
                usable = False
                raise
            finally:
                _close(copy.database, path, pointer if usable else None)
                if not usable:
                    _discard(path)
            return
    raise LocalStateLockedError(f"shard {pointer.shard}", path=str(shard_dir))


def _open_on_chain(opening: _Opening, path: Path) -> LocalCopy:
    """Open the copy at `path` if it holds a version on the pointer's chain, else one from a snapshot in its place."""
    pointer, stores = opening.pointer, opening.stores
    families = [column_family(spec) for spec in stores]
    applied = _applied_deltas(path, pointer) if path.exists() else None
    if applied is not None:
        opened: RocksDBDatabase | None = None
        try:
            opened = opening.local.open_database(path, families)
            if pointer.base_version + applied == 0 or _holds_all(opened.found, stores):
                copy = LocalCopy(path, _without_strangers(opened, stores), _open_stores(opened, stores), applied)
                if applied + 1 < len(pointer.deltas):
                    copy.restoring = opening.restoring(pointer.base_version + applied)
                return copy
            _LOG.info("shard %d: rebuilding the local copy: it was made without some of the stores", pointer.shard)
        except LocalStateCorruptedError as damage:
            _LOG.warning("shard %d: rebuilding the local copy: %s", pointer.shard, damage)
        if opened is not None:
            with suppress(LocalStateCorruptedError):  # it is discarded anyway
                opened.close()
    _discard(path)
    path.mkdir()
    try:
        return _rebuild(opening, path, families)
    except BaseException:
        _discard(path)
        raise


def _rebuild(opening: _Opening, path: Path, families: Sequence[str]) -> LocalCopy:
    """Make a copy in the empty directory `path`, of the newest snapshot or empty."""
    pointer, stores = opening.pointer, opening.stores
    # The one delta of a first batch is no restore.
    progress = opening.restoring(0) if pointer.version > 1 else None
    manifest = None
    if progress is not None:
        note_damaged = partial(note_damaged_snapshot, path.parent)
        manifest = fetch_newest_snapshot(opening.location, pointer, path, progress, note_damaged)
    applied = 0
    if manifest is not None:
        write_marker(path, LocalMarker(pointer.state_id, pointer.shard, manifest.delta), durably=True)
        applied = manifest.version - pointer.base_version
    database = opening.local.open_database(path, families)
    try:
        copy = LocalCopy(path, database, _open_stores(database, stores), applied, progress)
    except BaseException:
        database.close()
        raise
    if manifest is not None and progress is not None:
        for name, store in copy.stores.items():
            entries = manifest.entries.get(name, 0)
            store.restored_records += entries
            progress.restored(name, manifest.version, entries)
    return copy


def _holds_all(families: Sequence[str], stores: Sequence[StoreSpec]) -> bool:
    """Return whether a copy that has these families holds all stores, in their format or one to upgrade from."""
    return all(
        any(column_family(spec, known) in families for known in (spec.format, *older_formats(spec.kind, spec.format)))
        for spec in stores
    )


def _without_strangers(database: RocksDBDatabase, stores: Sequence[StoreSpec]) -> RocksDBDatabase:
    """Drop the families of stores that are no longer kept here: they miss what is committed from now on."""
    names = {spec.name for spec in stores}
    for family in database.families:
        if family != DEFAULT_FAMILY and family.partition(":")[0] not in names:
            database.drop_family(family)
    return database


def _applied_deltas(path: Path, pointer: CommitPointer) -> int | None:
    """Return how many of the pointer's deltas the copy at `path` holds, None if it is of no use.

    From now on its marker no longer says what files there are: the database is about to be opened.
    """
    try:
        marker = read_marker(path)
        if marker is None or (marker.state_id, marker.shard) != (pointer.state_id, pointer.shard):
            return None
        if marker.files is not None and marker.files != files_digest(path):
            raise FormatError("local copy", f"{path} does not hold the files that it was closed with")
        if is_damaged(path):
            raise FormatError("local copy", f"{path} has a table that can't be read")
    except FormatError as damage:
        _LOG.warning("shard %d: rebuilding the local copy: %s", pointer.shard, damage)
        return None
    if marker.applying is not None and not marker.delta:
        return None  # cheaper to begin anew than to tell what is there
    applied = marker.applied(pointer.chain)
    if applied is not None:
        write_marker(path, replace(marker, files=None), durably=False)
    return applied


def _open_stores(database: RocksDBDatabase, stores: Sequence[StoreSpec]) -> dict[str, CommittedStore]:
    opened = {}
    for spec in stores:
        family_name = partial(column_family, spec)
        # A store may be given its next format before the upgrade to this one is through.
        finish_older_upgrades(database, spec, family_name, spec.name)
        opened[spec.name] = CommittedStore(spec, open_store(database, spec, family_name, spec.name))
    return opened


def _catch_up(opening: _Opening, copy: LocalCopy) -> None:
    """Apply the deltas of the pointer that the copy does not hold yet."""
    pointer = opening.pointer
    upgrading = any(isinstance(store.bytes, UpgradingByteStore) for store in copy.stores.values())
    if upgrading or copy.applied < len(pointer.deltas):
        # An upgrade moves entries from family to family, and a crash may keep only the half of a move that deletes:
        # then nothing in the copy is certain.
        certain = "" if upgrading else pointer.chain[copy.applied]
        intent = LocalMarker(pointer.state_id, pointer.shard, certain, applying=pointer.head)
        write_marker(copy.path, intent, durably=True)
        restore(opening.location, pointer, copy.applied, copy.stores, opening.space, copy.restoring)
    if copy.restoring is not None:
        copy.restoring.end()


def _close(database: RocksDBDatabase, path: Path, reached: CommitPointer | None) -> None:
    """Close a copy, and mark it as holding the version of `reached`, if that is given.

    Damage that only shows now costs the copy, not the batch: the batch is in its delta.
    """
    try:
        database.close()
        if reached is not None:
            marker = LocalMarker(reached.state_id, reached.shard, reached.head, files=files_digest(path))
            write_marker(path, marker, durably=False)
    except LocalStateCorruptedError as damage:
        _LOG.warning("discarding the local copy: %s", damage)
        _discard(path)


def _discard(path: Path) -> None:
    # Moved away first: whoever still has it open keeps its files, and the name is free at once.
    with suppress(FileNotFoundError):
        os.rename(path, path.with_name(f"{path.name}.discarded-{uuid.uuid4().hex}"))
    for doomed in path.parent.glob(f"{path.name}.discarded-*"):
        # Also those of a process that was killed before it was through.
        shutil.rmtree(doomed, ignore_errors=True)
