"""Brings a shard to a version: fetches a snapshot as a database's directory, and applies deltas to its stores."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa

from statestore.bytestore.engines.rocksdb_options import local_disk_errors
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.kinds.versioned_rows import VersionedRows
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors import FormatError, LocalDirectoryError
from statestore.errors.state import DurableFileCorruptedError, DurableFileMissingError, LocalDiskFullError
from statestore.format.binary_columns import as_one_array
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import restore_stored
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.recovery.commit.delta import Delta, DeltaInfo, changelog_records
from statestore.recovery.commit.figures import RestoreFigures
from statestore.recovery.commit.manifest import Manifest, SnapshotFile, read_manifest
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef, check_content
from statestore.recovery.location.durable_json import digest, file_digest
from statestore.recovery.location.durable_location import DurableLocation

_LOG = logging.getLogger(__name__)
_LOG_EVERY_S = 5.0


class StateRestoreListener(Protocol):
    """Is told when a shard's stores are restored, on the executor that does it. Must be picklable.

    Called when a local copy is rebuilt or is more than one version behind, not for the one delta of the last batch.
    Positions are versions of the shard, where Kafka has offsets. What it raises fails the batch. Source: Kafka's
    StateRestoreListener.
    """

    def on_restore_start(self, shard: int, store: str, starting_version: int, ending_version: int) -> None:
        """Take note that `store` is at `starting_version` and is brought to `ending_version`."""

    def on_batch_restored(self, shard: int, store: str, batch_end_version: int, num_restored: int) -> None:
        """Take note of `num_restored` more entries: those of a snapshot, where it is an estimate, or of a delta."""

    def on_restore_end(self, shard: int, store: str, total_restored: int) -> None:
        """Take note that the store is restored."""


class RestoreProgress:
    """One restore of some stores of a shard. Bytes may be reported from several threads."""

    figures = RestoreFigures()
    """Zeros before its end."""

    def __init__(
        self,
        shard: int,
        stores: Iterable[str],
        starting_version: int,
        ending_version: int,
        listener: StateRestoreListener | None = None,
    ) -> None:
        self._shard = shard
        self._restored = dict.fromkeys(stores, 0)
        self._ending_version = ending_version
        self._listener = listener
        self._lock = threading.Lock()
        self._bytes = 0
        self._delta_bytes = 0
        self._started_s = self._logged_s = time.monotonic()
        if listener is not None:
            for store in self._restored:
                listener.on_restore_start(shard, store, starting_version, ending_version)

    def count_restored(self, store: str, version: int, entries: int) -> None:
        """Count entries that were restored into a store, which brought it to `version`."""
        self._restored[store] += entries
        if self._listener is not None:
            self._listener.on_batch_restored(self._shard, store, version, entries)
        if self._is_time_to_log():
            _LOG.info("shard %d: restored up to version %d of %d", self._shard, version, self._ending_version)

    def count_fetched(self, size_bytes: int, of_bytes: int) -> None:
        """Count bytes of a snapshot that has `of_bytes`."""
        with self._lock:
            self._bytes += size_bytes
            fetched_bytes, due = self._bytes, self._is_time_to_log()
        if due:
            rate = fetched_bytes / 1e6 / max(1e-9, time.monotonic() - self._started_s)
            done = 100 * fetched_bytes / max(1, of_bytes)
            text = "shard %d: fetched %.0f of %.0f MB of its snapshot (%.0f %%, %.0f MB/s)"
            _LOG.info(text, self._shard, fetched_bytes / 1e6, of_bytes / 1e6, done, rate)

    def count_read(self, size_bytes: int) -> None:
        """Count bytes of a delta."""
        self._delta_bytes += size_bytes

    def end(self) -> None:
        """Report that all is restored."""
        elapsed_s = time.monotonic() - self._started_s
        entries = sum(self._restored.values())
        text = "shard %d: restored version %d in %.2f s: %d entries, %.1f MB of snapshots"
        _LOG.info(text, self._shard, self._ending_version, elapsed_s, entries, self._bytes / 1e6)
        self.figures = RestoreFigures(1, entries, self._bytes + self._delta_bytes, elapsed_s * 1e3)
        if self._listener is not None:
            for store, total in self._restored.items():
                self._listener.on_restore_end(self._shard, store, total)

    def _is_time_to_log(self) -> bool:
        now_s = time.monotonic()
        if now_s - self._logged_s < _LOG_EVERY_S:
            return False
        self._logged_s = now_s
        return True


class WrittenDelta:
    """The last delta that this machine wrote for a shard, on its own disk: the next batch need not fetch it.

    It is used only if it is the file that a commit pointer names, by size and checksum. So any attempt may replace it,
    without a lock or sync, and it is never removed.
    """

    def __init__(self, shard_dir: Path) -> None:
        self._path = shard_dir / "written-delta.arrow"

    def keep(self, location: DurableLocation, content: pa.Buffer | Path, space: SpillSpace) -> None:
        """Keep a delta unless `location` is on this machine; a file is moved. A failure is only logged."""
        if location.is_local:
            return
        try:
            if isinstance(content, Path):
                path = content
            else:
                path = space.make_directory() / self._path.name
                path.write_bytes(content)
            os.replace(path, self._path)
        except (OSError, LocalDiskFullError, LocalDirectoryError) as cause:
            _LOG.warning("the next batch will fetch its delta: it can't be kept at %s: %s", self._path, cause)

    def read(self, file: DurableFile) -> pa.Buffer | None:
        """Return the content of the delta `file`, mapped; None if another one is kept here."""
        try:
            with pa.memory_map(str(self._path)) as mapped:
                content = mapped.read_buffer() if mapped.size() == file.size_bytes else None
        except OSError:
            return None
        return content if content is not None and digest(content) == file.digest else None


READ_AT_ONCE_BYTES: Final = 8 << 20
"""Larger deltas are copied to local disk and read from there."""


@dataclass
class CommittedStore:
    """A store of a copy: its spec and bytes, and what it took to restore them."""

    spec: StoreSpec
    bytes: ByteStore
    restored_records: int = 0
    restore_ns: int = 0


def restore(
    location: DurableLocation,
    pointer: CommitPointer,
    applied: int,
    stores: Mapping[str, CommittedStore],
    space: SpillSpace,
    progress: RestoreProgress | None = None,
    written: WrittenDelta | None = None,
) -> None:
    """Apply the deltas of the pointer after the first `applied` ones to `stores`, and expire what is too old.

    Records of other stores are left out. A delta too large for memory goes through `space`; the one in `written` is not
    fetched. Raises as `open_delta`.
    """
    missing = pointer.deltas[applied:]
    first_version = pointer.version - len(missing) + 1
    for version, file in enumerate(missing, first_version):
        with open_delta(location, file, DeltaInfo(pointer.state_id, pointer.shard, version), space, written) as delta:
            _apply(delta, stores, progress)
        if progress is not None:
            progress.count_read(file.size_bytes)
    if missing:
        _expire(pointer, stores)


def apply_deltas(pointer: CommitPointer, deltas: Iterable[Delta], stores: Mapping[str, CommittedStore]) -> None:
    """Do what `restore` does with deltas that are open: the last ones of the pointer."""
    for delta in deltas:
        _apply(delta, stores, None)
    _expire(pointer, stores)


def _expire(pointer: CommitPointer, stores: Mapping[str, CommittedStore]) -> None:
    for name, time_ms in pointer.store_times_ms.items():
        if name in stores:
            Segments(stores[name].bytes, *stores[name].spec.retention).advance(time_ms)


@contextmanager
def open_delta(
    location: DurableLocation,
    file: DurableFile,
    expected: DeltaInfo,
    space: SpillSpace,
    written: WrittenDelta | None = None,
) -> Iterator[Delta]:
    """Open a delta that a commit pointer names, and check size, checksum and info; fetched if not in `written`.

    Raises DurableFileMissingError, DurableFileCorruptedError.
    """
    where = location.path(file.name)
    with ExitStack() as opened:
        source = None if written is None else written.read(file)
        if source is None:
            source = opened.enter_context(delta_content(location, file.name, file.size_bytes, space.make_directory))
            if source is None:
                raise DurableFileMissingError(where, needed_by=f"shard {expected.shard} at version {expected.version}")
            check_content(where, file, source.size, digest(source))
        delta = Delta(source, where)
        if delta.info != expected:
            raise DurableFileCorruptedError(where, cause=f"is {delta.info}, wanted was {expected}")
        yield delta


@contextmanager
def delta_content(
    location: DurableLocation, name: str, size_bytes: int, make_directory: Callable[[], Path]
) -> Iterator[pa.Buffer | None]:
    """Hand out the content of a file, None if there is none; a large one is mapped in the directory that is made."""
    if size_bytes <= READ_AT_ONCE_BYTES:
        yield location.read(name, size_bytes)
        return
    path = make_directory() / "fetched.arrow"
    if not location.fetch(name, path, size_bytes):
        yield None
        return
    try:
        with pa.memory_map(str(path)) as mapped:
            yield mapped.read_buffer()
    finally:
        path.unlink()


def _apply(delta: Delta, stores: Mapping[str, CommittedStore], progress: RestoreProgress | None) -> None:
    times_ms = {name: delta.logged_store(name).stream_time_ms for name in stores}
    for name, batch in _in_parts(delta.batches()):
        store = stores.get(name)
        if store is None:
            continue
        started_ns = time.perf_counter_ns()
        try:
            if LAYOUTS[store.spec.kind].keeps_versions:
                written_as, records = delta.logged_store(name).format, changelog_records(batch)
                times_ms[name] = replay_versions(store.spec, store.bytes, written_as, times_ms[name], records)
            else:
                store.bytes.write(delta.changes(store.spec, batch))
        except FormatError as cause:
            raise DurableFileCorruptedError(
                delta.where, cause=f"has a record that can't be one of store {name!r}: {cause}"
            ) from cause
        store.restored_records += batch.num_rows
        if progress is not None:
            progress.count_restored(name, delta.info.version, batch.num_rows)
        store.restore_ns += time.perf_counter_ns() - started_ns


def _in_parts(batches: Iterable[tuple[str, pa.RecordBatch]]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Join consecutive batches of a store up to READ_AT_ONCE_BYTES: RocksDB takes large sorted writes faster."""
    for name, group in groupby(batches, itemgetter(0)):
        part: list[pa.RecordBatch] = []
        for _, batch in group:
            part.append(batch)
            if sum(each.nbytes for each in part) >= READ_AT_ONCE_BYTES:
                yield name, joined_batches(part)
                part = []
        if part:
            yield name, joined_batches(part)


def joined_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the records of several batches of a store as one batch, without the column `store`."""
    if len(batches) == 1:
        return batches[0]
    names = [name for name in batches[0].schema.names if name != "store"]
    columns = [as_one_array(pa.chunked_array([each.column(name) for each in batches]), name) for name in names]
    return pa.record_batch(columns, names=names)


def replay_versions(
    spec: StoreSpec, store: ByteStore, written_as: StoreFormat, stream_time_ms: int, records: Iterable[ChangelogRecord]
) -> int:
    """Put versions in the order in which they were logged; return the store's stream time after them."""
    pending = WriteSet(store)
    segments = Segments(pending, *spec.retention, stream_time_ms)
    rows = VersionedRows(pending, segments)
    for key, value, timestamp_ms, header_bytes in records:
        stored = restore_stored(written_as, spec.format, value, timestamp_ms, header_bytes)
        rows.put(key, stored, timestamp_ms)
    pending.apply_to(store)
    return segments.stream_time_ms


_PARALLEL_FETCHES = 8
_DAMAGED = "damaged-snapshots"


def ways_to_restore(pointer: CommitPointer, damaged: Collection[str]) -> list[SnapshotRef | None]:
    """Return the snapshots to restore the version from, best first, `damaged` ones last; None is without one."""
    ways = sorted(reversed(pointer.snapshots[-2:]), key=lambda made: made.manifest.name in damaged)
    return [*ways] if pointer.base_version > 0 else [*ways, None]


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
    """Remember that a snapshot could not be restored: it becomes the last resort, and the next one shares nothing."""
    with open(shard_dir / _DAMAGED, "a", encoding="utf-8") as file:
        file.write(manifest_name + "\n")


def damaged_snapshots(shard_dir: Path) -> frozenset[str]:
    """Return the names of the manifests of snapshots that this machine found damaged."""
    try:
        return frozenset((shard_dir / _DAMAGED).read_text(encoding="utf-8", errors="replace").splitlines())
    except FileNotFoundError:
        return frozenset()


def _sync(path: Path) -> None:
    """Force a file or directory to disk: the marker of the copy must not get there first."""
    with local_disk_errors("local copy", str(path)):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
