"""The local RocksDB copy of a shard: opened at a committed version, caught up or rebuilt where needed.

    LOCAL_DIR/STATE_ID/shard-NNNN/copy-N.lock      held (flock) by the one task that uses copy N
    LOCAL_DIR/STATE_ID/shard-NNNN/copy-N/          the RocksDB database

A copy only ever holds committed versions, and a marker in it says which. A task takes the first copy that nobody holds:
a retry need not wait for a zombie attempt, it uses another copy. Whatever is wrong with a copy, it is rebuilt: nothing
in it is not also in the durable location.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from statestore.bytestore.families import DEFAULT_FAMILY, older_formats
from statestore.bytestore.opening import open_store
from statestore.bytestore.rocksdb import RocksDBDatabase
from statestore.bytestore.shard_layout import column_family
from statestore.bytestore.store_spec import StoreSpec
from statestore.bytestore.upgrading import UpgradingByteStore
from statestore.errors import FormatError, LocalStateCorruptedError, LocalStateLockedError, StoreFormatError
from statestore.recovery.local_directory import LocalDirectory
from statestore.recovery.local_marker import LocalMarker, read_marker, write_marker
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.restore import CommittedStore, restore

_LOG = logging.getLogger(__name__)
_MAX_COPIES = 16


@contextmanager
def open_local_copy(
    location: DurableLocation, pointer: CommitPointer, stores: Sequence[StoreSpec], local: LocalDirectory
) -> Iterator[dict[str, CommittedStore]]:
    """Hand out the stores of a local copy of the shard at exactly the version of `pointer`, for this task alone.

    Raises DurableFileMissingError or DurableFileCorruptedError if the durable location can't give that version, and
    LocalStateLockedError if all copies are held.
    """
    shard_dir = local.shard(pointer.state_id, pointer.shard)
    shard_dir.mkdir(parents=True, exist_ok=True)
    for number in range(_MAX_COPIES):
        path = shard_dir / f"copy-{number}"
        with _exclusive(path.with_suffix(".lock")) as held:
            if not held:
                continue
            try:
                database, committed, applied = _open_on_chain(local, path, pointer, stores)
            except LocalStateLockedError:
                # Held by this very process: a copy that was discarded while it was still open.
                continue
            usable = changed = False
            try:
                changed = _catch_up(path, committed, applied, location, pointer)
                usable = True
                yield committed
            except LocalStateCorruptedError:
                usable = False
                raise
            finally:
                _close(database, path, pointer if usable and changed else None)
                if not usable:
                    _discard(path)
            return
    raise LocalStateLockedError(f"shard {pointer.shard}", path=str(shard_dir))


@contextmanager
def _exclusive(lock_path: Path) -> Iterator[bool]:
    """Hold the lock file for the duration if it is free; a process that dies gives it back."""
    with open(lock_path, "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def _open_on_chain(
    local: LocalDirectory, path: Path, pointer: CommitPointer, stores: Sequence[StoreSpec]
) -> tuple[RocksDBDatabase, dict[str, CommittedStore], int]:
    """Open the copy at `path` if it holds a version on the pointer's chain, else an empty one in its place.

    Also return its stores, and how many of the pointer's deltas it holds.
    """
    families = [column_family(spec) for spec in stores]
    applied = _applied_deltas(path, pointer) if path.exists() else None
    if applied is not None:
        opened: RocksDBDatabase | None = None
        try:
            opened = local.open_database(path, families)
            if not applied or _holds_all(opened.found, stores):
                return _without_strangers(opened, stores), _open_stores(opened, stores), applied
            _LOG.info("shard %d: rebuilding the local copy: it was made without some of the stores", pointer.shard)
        except StoreFormatError as unfinished:
            # A store was given its next format before the upgrade to this one was through.
            _LOG.info("shard %d: rebuilding the local copy: %s", pointer.shard, unfinished)
        except LocalStateCorruptedError as damage:
            _LOG.warning("shard %d: rebuilding the local copy: %s", pointer.shard, damage)
        if opened is not None:
            with suppress(LocalStateCorruptedError):  # it is discarded anyway
                opened.close()
    _discard(path)
    path.mkdir()
    database = local.open_database(path, families)
    try:
        return database, _open_stores(database, stores), 0
    except BaseException:
        database.close()
        _discard(path)
        raise


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
    """Return how many of the pointer's deltas the copy at `path` holds, None if it is of no use."""
    try:
        marker = read_marker(path)
    except FormatError as damage:
        _LOG.warning("shard %d: rebuilding the local copy: %s", pointer.shard, damage)
        return None
    if marker is None or (marker.state_id, marker.shard) != (pointer.state_id, pointer.shard):
        return None
    if marker.applying is not None and not marker.delta:
        return None  # cheaper to begin anew than to tell what is there
    return marker.applied([delta.name for delta in pointer.deltas])


def _open_stores(database: RocksDBDatabase, stores: Sequence[StoreSpec]) -> dict[str, CommittedStore]:
    return {
        spec.name: CommittedStore(spec, open_store(database, spec, partial(column_family, spec), spec.name))
        for spec in stores
    }


def _catch_up(
    path: Path, stores: dict[str, CommittedStore], applied: int, location: DurableLocation, pointer: CommitPointer
) -> bool:
    """Apply the deltas of the pointer that the copy does not hold yet; return whether it needs a new marker."""
    upgrading = any(isinstance(store.bytes, UpgradingByteStore) for store in stores.values())
    if applied == len(pointer.deltas) and not upgrading:
        return False
    # An upgrade moves entries from family to family, and a crash may keep only the half of a move that deletes: then
    # nothing in the copy is certain.
    certain = pointer.deltas[applied - 1].name if applied and not upgrading else ""
    intent = LocalMarker(pointer.state_id, pointer.shard, certain, applying=pointer.head)
    write_marker(path, intent, durably=True)
    restore(location, pointer, applied, stores)
    return True


def _close(database: RocksDBDatabase, path: Path, reached: CommitPointer | None) -> None:
    """Close a copy, and mark it as holding the version of `reached`, if that is given.

    Damage that only shows now costs the copy, not the batch: the batch is in its delta.
    """
    try:
        database.close()
        if reached is not None:
            write_marker(path, LocalMarker(reached.state_id, reached.shard, reached.head), durably=False)
    except LocalStateCorruptedError as damage:
        _LOG.warning("discarding the local copy: %s", damage)
        _discard(path)


def _discard(path: Path) -> None:
    # Moved away first: whoever still has it open keeps its files, and the name is free at once.
    doomed = path.with_name(f"{path.name}.discarded-{uuid.uuid4().hex}")
    with suppress(FileNotFoundError):
        os.rename(path, doomed)
        shutil.rmtree(doomed)
