"""The local RocksDB copy of a shard: opened at a committed version, caught up or rebuilt where needed.

    LOCAL_DIR/STATE_ID/shard-NNNN/copy-N.lock      held (flock) by the one task that uses copy N
    LOCAL_DIR/STATE_ID/shard-NNNN/copy-N/          the RocksDB database

A copy only ever holds committed versions, and a marker in it says which. A task takes the first copy that nobody holds:
a retry need not wait for a zombie attempt, it uses another copy. Whatever is wrong with a copy, it is rebuilt, from the
newest snapshot that is whole and the deltas since: nothing in it is not also in the durable location.

In-memory stores are in the copy too. A process keeps an image of them from batch to batch and applies to it only what
was committed since; without one it loads them from the copy. A batch takes the image out while it uses it: another
attempt of the same shard in this process makes its own.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.engines.rocksdb import DEFAULT_FAMILY, RocksDBDatabase, list_families
from statestore.bytestore.engines.rocksdb_options import local_disk_errors
from statestore.bytestore.header_index import IndexedByteStore
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec, column_family, index_family, older_formats
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades import UpgradingByteStore, finish_older_upgrades, open_store
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors import FormatError, LocalDirectoryError, RecoveryError, StoreFormatError
from statestore.errors.state import LocalDiskFullError, LocalStateCorruptedError, LocalStateLockedError
from statestore.recovery.commit.delta import Delta
from statestore.recovery.commit.manifest import Manifest
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef
from statestore.recovery.local.local_directory import LocalDirectory, discard, make_shard_directory, try_lock
from statestore.recovery.local.marker import LocalMarker, files_digest, is_damaged, read_marker, write_marker
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.restore import (
    CommittedStore,
    RestoreProgress,
    StateRestoreListener,
    WrittenDelta,
    apply_deltas,
    damaged_snapshots,
    fetch_snapshot,
    note_damaged_snapshot,
    restore,
    ways_to_restore,
)

_LOG = logging.getLogger(__name__)
_MAX_COPIES = 16
_NO_FILES = ""  # the checksum of no directory


@dataclass
class LocalCopy:
    """An open copy of a shard, for one task. Its stores are at the version of the pointer once it is handed out."""

    opening: _Opening
    path: Path
    database: RocksDBDatabase
    stores: dict[str, CommittedStore]
    applied: int
    """How many of the pointer's deltas it held when it was opened."""
    restoring: RestoreProgress | None = None
    """The restore that is going on, if the copy was made anew or is far behind."""
    restored_from: Manifest | None = None
    """The snapshot that it was just made of, if any."""
    exact: bool = True
    """Whether it held nothing beyond its `applied` deltas when it was opened."""
    intent: LocalMarker | None = None
    """What its marker says until it is closed; None if nothing is applied to it and it is not upgraded."""
    is_whole: bool = False
    """Whether it is at the version of its pointer, and no damage was found in it: it can be kept."""

    @property
    def pointer(self) -> CommitPointer:
        """The version that its stores are at."""
        return self.opening.pointer

    @property
    def is_upgrading(self) -> bool:
        """Whether entries may move from family to family."""
        stores = (store.bytes for store in self.stores.values())
        return any(
            isinstance(store.inner if isinstance(store, IndexedByteStore) else store, UpgradingByteStore)
            for store in stores
        )

    @property
    def is_indexing(self) -> bool:
        """Whether an index of headers may grow, though no delta is applied."""
        stores = (store.bytes for store in self.stores.values())
        return any(isinstance(store, IndexedByteStore) and store.is_indexing for store in stores)

    def checkpoint(self, path: str) -> None:
        """Make `path`, which must not exist, a database with all that the copy holds. Raises LocalDiskFullError."""
        self.database.checkpoint(path)
        if self.intent is not None and self.intent.applying is not None:
            # All that was applied is on the disk now, so a kill before the copy is closed costs no rebuild.
            self.intent = self.intent._replace(
                delta=self.intent.applying, files=files_digest(self.path), repeatable=not self.is_upgrading
            )
            write_marker(self.path, self.intent, durably=False)

    def missing_deltas(self, pointer: CommitPointer) -> tuple[DurableFile, ...] | None:
        """Return the deltas that lead from its version to that of `pointer`; None if none do."""
        head, chain = self.pointer.head, pointer.chain
        return pointer.deltas[chain.index(head) :] if head in chain else None

    def go_on(self, pointer: CommitPointer, deltas: Sequence[Delta]) -> None:
        """Apply its `missing_deltas` while it is open: what was read before the call sees nothing of them.

        After a failure it is not whole, and must be closed: it is then discarded. Raises DurableFileCorruptedError, and
        as every access to it.
        """
        self.is_whole = False
        if deltas:
            self._announce(pointer.head)
            apply_deltas(pointer, deltas, self.stores)
        self.opening = replace(self.opening, pointer=pointer)
        self.is_whole = True

    def catch_up(self) -> None:
        """Bring it to the version of its pointer, once it was opened."""
        opening, pointer = self.opening, self.pointer
        if self.is_upgrading or self.is_indexing or self.applied < len(pointer.deltas):
            self._announce(pointer.head, after=pointer.chain[self.applied])
            written = WrittenDelta(self.path.parent)
            restore(opening.location, pointer, self.applied, self.stores, opening.space, self.restoring, written)
        if self.restoring is not None:
            self.restoring.end()
        self.is_whole = True

    def _announce(self, applying: str, after: str | None = None) -> None:
        """Say in the marker that deltas up to `applying` are being applied, before anything of them is.

        What was applied since it was opened may not be on the disk yet, so what is there for certain stays the same.
        """
        if self.intent is None:
            self.intent = LocalMarker(
                self.pointer.state_id,
                self.pointer.shard,
                self.pointer.head if after is None else after,
                files=files_digest(self.path) if self.exact else _NO_FILES,
                stores=tuple(self.opening.stores),
                repeatable=not self.is_upgrading
                and not any(LAYOUTS[spec.kind].keeps_versions for spec in self.opening.stores),
            )
        self.intent = self.intent._replace(applying=applying)
        write_marker(self.path, self.intent, durably=True)


@dataclass(frozen=True)
class _Opening:
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
    """Hand out a copy of the shard at exactly the version of `pointer`, for this task. Raises as ShardedState.open."""
    opening = _Opening(location, pointer, stores, local, space, listener)
    shard_dir = local.shard(pointer.state_id, pointer.shard)
    make_shard_directory(shard_dir)
    for number in range(_MAX_COPIES):
        path = shard_dir / f"copy-{number}"
        with try_lock(path) as has_lock:
            if not has_lock:
                continue
            try:
                copy = _open_on_chain(opening, path)
            except LocalStateLockedError:
                continue  # this process still has it open, though it was discarded
            try:
                copy.catch_up()
                yield copy
            except LocalStateCorruptedError:
                copy.is_whole = False
                if copy.restored_from is not None:
                    # The checksums did not show it. The next attempt restores in another way.
                    note_damaged_snapshot(shard_dir, copy.restored_from.name)
                raise
            finally:
                _close(copy)
                if not copy.is_whole:
                    discard(path)
            return
    raise LocalStateLockedError(f"shard {pointer.shard}", path=str(shard_dir))


def _open_on_chain(opening: _Opening, path: Path) -> LocalCopy:
    """Open the copy at `path` if it holds a version on the pointer's chain, else make one in its place."""
    pointer, stores = opening.pointer, opening.stores
    marker = _usable_marker(path, pointer, stores) if path.exists() else None
    applied = None if marker is None else marker.count_applied(pointer.chain)
    if marker is not None and applied is not None:
        try:
            database = opening.local.open_database(path, _families(stores))
            with _closed_on_failure(database):
                _drop_strangers(database, stores)
                exact = marker.applying is None
                opened = _open_stores(database, stores, exact=exact)
                copy = LocalCopy(opening, path, database, opened, applied, exact=exact)
                if applied + 1 < len(pointer.deltas):
                    copy.restoring = opening.restoring(pointer.base_version + applied)
                return copy
        except StoreFormatError as unfinished:
            # A store was given its next format before the upgrade to this one was finished.
            _LOG.info("shard %d: rebuilding the local copy: %s", pointer.shard, unfinished)
        except LocalStateCorruptedError as damage:
            _LOG.warning("shard %d: rebuilding the local copy: %s", pointer.shard, damage)
    # The one delta of a first batch is no restore.
    progress = opening.restoring(0) if pointer.version > 1 else None
    return _rebuild(opening, path, progress)


def _rebuild(opening: _Opening, path: Path, progress: RestoreProgress | None) -> LocalCopy:
    """Make a copy in `path` in the first of the ways to restore that works, without a marker yet."""
    pointer = opening.pointer
    ways = ways_to_restore(pointer, damaged_snapshots(path.parent))
    for snapshot in ways:
        with local_disk_errors("local copy", str(path)):
            discard(path)
            path.mkdir()
        try:
            return _copy_of(opening, path, snapshot, progress)
        except (RecoveryError, LocalStateCorruptedError) as damage:
            discard(path)
            if snapshot is None:
                raise
            note_damaged_snapshot(path.parent, snapshot.manifest.name)
            if snapshot is ways[-1]:
                raise
            _LOG.warning("shard %d: going on without the snapshot of %d: %s", pointer.shard, snapshot.version, damage)
        except BaseException:
            discard(path)
            raise
    raise AssertionError("there always is a way")


def _copy_of(
    opening: _Opening, path: Path, snapshot: SnapshotRef | None, progress: RestoreProgress | None
) -> LocalCopy:
    """Make a copy in the empty directory `path`, of a snapshot; empty if that is None."""
    pointer, stores = opening.pointer, opening.stores
    manifest = None
    if snapshot is not None:
        manifest = fetch_snapshot(opening.location, pointer, snapshot, path, progress)
    database = opening.local.open_database(path, _families(stores))
    with _closed_on_failure(database):
        _drop_strangers(database, stores)
        for spec in stores:
            # A store may have been given its next format before the upgrade to this one was finished. There is no
            # marker yet, so a crash in the middle costs no entry.
            finish_older_upgrades(database, spec, partial(column_family, spec), spec.name)
        database.flush()
        copy = LocalCopy(opening, path, database, _open_stores(database, stores), 0, progress)
        if manifest is not None:
            copy.restored_from = manifest
            copy.applied = manifest.version - pointer.base_version
            for name, store in copy.stores.items():
                entries = manifest.entries.get(name, 0)
                store.restored_records += entries
                if progress is not None:
                    progress.count_restored(name, manifest.version, entries)
        return copy


@contextmanager
def _closed_on_failure(database: RocksDBDatabase) -> Iterator[None]:
    try:
        yield
    except BaseException:
        with suppress(LocalStateCorruptedError):  # it is discarded anyway
            database.close()
        raise


def _holds_all(families: Sequence[str], stores: Sequence[StoreSpec]) -> bool:
    """Return whether a copy with these families holds all stores, in their format or one to upgrade from."""
    return all(
        any(column_family(spec, known) in families for known in (spec.format, *older_formats(spec.kind, spec.format)))
        for spec in stores
    )


def _families(stores: Sequence[StoreSpec]) -> list[str]:
    indexes = (index_family(spec) for spec in stores)
    return [*(column_family(spec) for spec in stores), *(family for family in indexes if family is not None)]


def _drop_strangers(database: RocksDBDatabase, stores: Sequence[StoreSpec]) -> None:
    """Drop the families of other stores and indexes: they miss what is committed from now on."""
    names = {spec.name for spec in stores}
    known = {DEFAULT_FAMILY, *_families(stores)}
    for family in database.families:
        if family not in known and family.partition(":")[0] not in names:
            database.drop_family(family)


def _usable_marker(path: Path, pointer: CommitPointer, stores: Sequence[StoreSpec]) -> LocalMarker | None:
    """Return what the copy at `path` holds, None if it can't be used. Takes the checksum of files out of its marker."""
    try:
        marker = read_marker(path)
        if marker is None or (marker.state_id, marker.shard) != (pointer.state_id, pointer.shard):
            return None
        if marker.files is not None:
            marker = marker.judge_files(files_digest(path))
        if is_damaged(path):
            raise FormatError("local copy", "it has a table that can't be read")
        families = list_families(str(path))
    except (FormatError, LocalStateCorruptedError) as damage:
        _LOG.warning("shard %d: rebuilding the local copy in %s: %s", pointer.shard, path, damage)
        return None
    applied = marker.count_applied(pointer.chain)
    if applied is None:
        return None
    # Before it is opened, which makes the families that are missing.
    if pointer.base_version + applied > 0 and not _holds_all(families, stores):
        _LOG.info("shard %d: rebuilding the local copy: it was made without some of the stores", pointer.shard)
        return None
    write_marker(path, marker._replace(files=None), durably=False)
    return marker


def _open_stores(
    database: RocksDBDatabase, stores: Sequence[StoreSpec], *, exact: bool = True
) -> dict[str, CommittedStore]:
    opened: dict[str, CommittedStore] = {}
    for spec in stores:
        store: ByteStore = open_store(database, spec, partial(column_family, spec), spec.name)
        if (index := index_family(spec)) is not None:
            entries = database.family(column_family(spec))
            store = IndexedByteStore(spec, store, entries, database.family(index, spec.name), exact=exact)
        opened[spec.name] = CommittedStore(spec, store)
    return opened


def _close(copy: LocalCopy) -> None:
    """Close a copy, and mark it if it is whole. Damage or a full disk costs the copy: what is committed is durable."""
    path, pointer = copy.path, copy.pointer
    try:
        # Each batch opens and closes the database: unless one waits, no compaction ever ends.
        copy.database.close(compacted=copy.is_whole)
        if copy.is_whole:
            stores, files = tuple(copy.opening.stores), files_digest(path)
            marker = LocalMarker(pointer.state_id, pointer.shard, pointer.head, files=files, stores=stores)
            write_marker(path, marker, durably=False)
    except (LocalStateCorruptedError, LocalDiskFullError, LocalDirectoryError, OSError) as damage:
        _LOG.warning("discarding the local copy: %s", damage)
        discard(path)


_IMAGE_BYTES: Final = 4_096
"""What an image takes beside its entries: with it, empty images don't pile up without end."""


class MemoryImage(NamedTuple):
    """The in-memory stores of a shard at the version that the delta `head` made."""

    stores: tuple[StoreSpec, ...]
    head: str
    database: MemoryDatabase


_images: OrderedDict[tuple[str, int], MemoryImage] = OrderedDict()


def take_memory_image(pointer: CommitPointer, stores: Sequence[StoreSpec]) -> MemoryImage | None:
    """Return this process's image of these stores if it can be brought to the version of `pointer`, else None."""
    image = _images.pop((pointer.state_id, pointer.shard), None)
    usable = image is not None and image.stores == tuple(stores) and image.head in pointer.chain
    return image if usable else None


@contextmanager
def open_memory_image(
    location: DurableLocation,
    pointer: CommitPointer,
    stores: Sequence[StoreSpec],
    image: MemoryImage | None,
    copied: Mapping[str, CommittedStore],
    space: SpillSpace,
    local: LocalDirectory,
) -> Iterator[dict[str, CommittedStore]]:
    """Hand out the in-memory stores of the shard at exactly the version of `pointer`, of `image` or else `copied`.

    Keeps the last used images that the memory budget of `local` has room for, and always the last one.
    """
    database = MemoryDatabase(_families(stores)) if image is None else image.database
    committed = {}
    for spec in stores:
        entries: ByteStore = database.family(column_family(spec), spec.name)
        if (index := index_family(spec)) is not None:
            entries = IndexedByteStore(spec, entries, entries, database.family(index, spec.name))
        committed[spec.name] = CommittedStore(spec, entries)
    if image is not None:
        written = WrittenDelta(local.shard(pointer.state_id, pointer.shard))
        restore(location, pointer, pointer.chain.index(image.head), committed, space, None, written)
    else:
        for name, store in committed.items():
            store.bytes.write(copied[name].bytes.range(None, None))
            store.restored_records, store.restore_ns = copied[name].restored_records, copied[name].restore_ns
    try:
        yield committed
    finally:
        # A batch that fails has written to its write sets only: the image still is that version.
        _images[pointer.state_id, pointer.shard] = MemoryImage(tuple(stores), pointer.head, database)
        kept = sum(image.database.held_bytes + _IMAGE_BYTES for image in _images.values())
        while kept > local.memory.kept_images_bytes and len(_images) > 1:
            _, evicted = _images.popitem(last=False)
            kept -= evicted.database.held_bytes + _IMAGE_BYTES
