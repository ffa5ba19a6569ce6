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
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from statestore.bytestore.rocksdb import RocksDBDatabase
from statestore.bytestore.shard_layout import column_family
from statestore.bytestore.store_spec import StoreSpec
from statestore.errors import (
    DurableFileCorruptedError,
    DurableFileMissingError,
    FormatError,
    LocalStateCorruptedError,
    LocalStateLockedError,
)
from statestore.recovery.delta import Delta, DeltaInfo, decode_delta
from statestore.recovery.local_marker import LocalMarker, read_marker, write_marker
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer, DurableFile, digest

_LOG = logging.getLogger(__name__)
_MAX_COPIES = 16
_PROGRESS_EVERY_DELTAS = 100


def default_local_dir() -> str:
    """Return where a machine keeps its local copies unless told otherwise: one directory per user."""
    return os.path.join(tempfile.gettempdir(), f"statestore-{os.getuid()}")


@contextmanager
def open_local_copy(
    location: DurableLocation, pointer: CommitPointer, stores: Sequence[StoreSpec], local_dir: str | None
) -> Iterator[RocksDBDatabase]:
    """Hand out a local copy of the shard that holds exactly the version of `pointer`, for this task alone.

    `local_dir` of None means `default_local_dir()` of the machine that this runs on.

    Raises DurableFileMissingError or DurableFileCorruptedError if the durable location can't give that version, and
    LocalStateLockedError if all copies are held.
    """
    shard_dir = Path(local_dir or default_local_dir(), pointer.state_id, f"shard-{pointer.shard:04d}")
    shard_dir.mkdir(parents=True, exist_ok=True)
    for number in range(_MAX_COPIES):
        path = shard_dir / f"copy-{number}"
        with _exclusive(path.with_suffix(".lock")) as held:
            if not held:
                continue
            try:
                database, applied = _open_on_chain(path, pointer, stores)
            except LocalStateLockedError:
                # Held by this very process: a copy that was discarded while it was still open.
                continue
            usable = False
            try:
                _catch_up(database, applied, location, pointer, stores)
                usable = True
                yield database
            except LocalStateCorruptedError:
                usable = False
                raise
            finally:
                _close(database, path, pointer if usable and applied < len(pointer.deltas) else None)
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


def _open_on_chain(path: Path, pointer: CommitPointer, stores: Sequence[StoreSpec]) -> tuple[RocksDBDatabase, int]:
    """Open the copy at `path` if it holds a version on the pointer's chain, else an empty one in its place.

    Also return how many of the pointer's deltas it holds.
    """
    families = [column_family(spec) for spec in stores]
    applied = _applied_deltas(path, pointer) if path.exists() else None
    if applied is not None:
        try:
            return RocksDBDatabase(str(path), families), applied
        except LocalStateCorruptedError as damage:
            _LOG.warning("shard %d: rebuilding the local copy: %s", pointer.shard, damage)
    _discard(path)
    path.mkdir()
    return RocksDBDatabase(str(path), families), 0


def _applied_deltas(path: Path, pointer: CommitPointer) -> int | None:
    """Return how many of the pointer's deltas the copy at `path` holds, None if it is of no use."""
    try:
        marker = read_marker(path)
    except FormatError as damage:
        _LOG.warning("shard %d: rebuilding the local copy: %s", pointer.shard, damage)
        return None
    if marker is None or (marker.state_id, marker.shard) != (pointer.state_id, pointer.shard):
        return None
    return marker.applied([delta.name for delta in pointer.deltas])


def _catch_up(
    database: RocksDBDatabase,
    applied: int,
    location: DurableLocation,
    pointer: CommitPointer,
    stores: Sequence[StoreSpec],
) -> None:
    """Apply the deltas of the pointer that the database does not hold yet, oldest first."""
    missing = pointer.deltas[applied:]
    if not missing:
        return
    before = pointer.deltas[applied - 1].name if applied else ""
    intent = LocalMarker(pointer.state_id, pointer.shard, before, applying=pointer.head)
    write_marker(Path(database.path), intent, durably=True)
    first_version = pointer.version - len(missing) + 1
    for done, file in enumerate(missing):
        version = first_version + done
        delta = read_delta(location, file, DeltaInfo(pointer.state_id, pointer.shard, version))
        _apply(database, delta, file, stores)
        if (done + 1) % _PROGRESS_EVERY_DELTAS == 0:
            _LOG.info("shard %d: restored %d of %d deltas", pointer.shard, done + 1, len(missing))


def read_delta(location: DurableLocation, file: DurableFile, expected: DeltaInfo) -> Delta:
    """Read a delta that a commit pointer names, checking size, checksum and what it says it is.

    Raises DurableFileMissingError, DurableFileCorruptedError.
    """
    where = location.path(file.name)
    data = location.read(file.name)
    if data is None:
        raise DurableFileMissingError(where, needed_by=f"shard {expected.shard} at version {expected.version}")
    if data.size != file.size_bytes:
        raise DurableFileCorruptedError(where, problem=f"has {data.size} bytes, {file.size_bytes} were written")
    found = digest(data)
    if found != file.digest:
        raise DurableFileCorruptedError(where, problem=f"has the checksum {found}, {file.digest} was written")
    delta = decode_delta(data, where)
    if delta.info != expected:
        raise DurableFileCorruptedError(where, problem=f"is {delta.info}, wanted was {expected}")
    return delta


def _apply(database: RocksDBDatabase, delta: Delta, file: DurableFile, stores: Sequence[StoreSpec]) -> None:
    families = {spec.name: column_family(spec) for spec in stores}
    changes = {}
    for store, store_changes in delta.changes():
        if store not in families:
            raise DurableFileCorruptedError(file.name, problem=f"has records of an unknown store {store!r}")
        changes[families[store]] = store_changes
    database.write(changes)


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
