"""Uploads snapshots beside the batches, in a thread.

A batch begins a snapshot of the version that it was opened at, which is committed, and goes on. A later batch finds the
result and names it in its commit pointer. The result stays until a pointer that Spark keeps names it.

A task at the end of a batch, and then the thread that it starts, holds `snapshot.lock` in the shard's local directory
(flock) while it works on the files of a PlannedSnapshot.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from pathlib import Path

from statestore.errors import FormatError, RecoveryError, StateStoreError
from statestore.errors.state import DurableFileCorruptedError, LocalStateCorruptedError
from statestore.recovery.commit.manifest import Manifest, SnapshotFile, read_manifest
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.local.local_directory import FileLock, LocalDirectory, RunningThread, make_shard_directory
from statestore.recovery.local.marker import note_damage
from statestore.recovery.location.durable_json import digest, file_digest, write_document
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import MANIFEST_NAME
from statestore.recovery.restore.restore import damaged_snapshots, note_damaged_snapshot
from statestore.recovery.snapshots.planned import TABLE, PlannedSnapshot, UploadPlan

_LOG = logging.getLogger(__name__)
_PARALLEL_UPLOADS = 4
_running: dict[Path, RunningThread] = {}
"""The uploads of this process, by shard directory."""


class SnapshotUpload:
    """The right to work on a shard's snapshot until the end of `held`, or of the thread that `start` starts."""

    def __init__(self, location: DurableLocation, local: LocalDirectory, shard_dir: Path, lock: FileLock) -> None:
        self.planned = PlannedSnapshot(shard_dir)
        self._location = location
        self._local = local
        self._lock: FileLock | None = lock

    @classmethod
    @contextmanager
    def held(
        cls, location: DurableLocation, local: LocalDirectory, shard_dir: Path, wait_s: float | None
    ) -> Iterator[SnapshotUpload | None]:
        """Hand out the upload, None if another one is at work, after waiting up to `wait_s` for this process's own."""
        thread = _running.get(shard_dir)
        if thread is not None:
            thread.join(wait_s)
            if not thread.is_alive():
                _running.pop(shard_dir, None)
        make_shard_directory(shard_dir)
        lock = FileLock(shard_dir / "snapshot.lock")
        if not lock.acquire():
            yield None
            return
        upload = cls(location, local, shard_dir, lock)
        try:
            yield upload
        finally:
            if upload._lock is not None:  # else a thread has it now
                lock.release()

    def start(self, pointer: CommitPointer, plan: UploadPlan | None, before: Callable[[], None]) -> None:
        """Call `before`, and upload `plan`, in a thread that holds the lock until it is done. Raises RuntimeError."""
        shard_dir, lock = self.planned.shard_dir, self._lock

        def run() -> None:
            try:
                before()
                if plan is not None:
                    self._upload(plan, pointer)
            except _ProcessEndsError:
                _LOG.info("shard %d: the upload of a snapshot goes on in another process", pointer.shard)
            except (StateStoreError, OSError) as failure:
                # No harm is done: the deltas are there. A later batch continues it.
                _LOG.warning("shard %d: no snapshot yet after version %d: %s", pointer.shard, pointer.version, failure)
                self._note_failure(failure)
            except Exception as failure:
                _LOG.exception("shard %d: giving up the snapshot after version %d", pointer.shard, pointer.version)
                self._note_failure(failure)
                self.planned.clear()
            finally:
                if lock is not None:
                    lock.release()

        thread = self._local.start_thread(f"statestore-snapshot-{pointer.shard}", run)
        self._lock = None
        _running[shard_dir] = thread

    def _note_failure(self, failure: Exception) -> None:
        # The failure was logged, and the disk may be what failed.
        with suppress(OSError):
            self.planned.note_failure(str(failure) or repr(failure))

    def _upload(self, plan: UploadPlan, pointer: CommitPointer) -> None:
        planned = self.planned
        try:
            planned.check_complete(plan)
        except FormatError:
            planned.clear()
            raise
        reused = self._find_files_to_reuse(plan, pointer)
        self._check_tables(plan, [name for name in plan.files if name.endswith(TABLE) and name not in reused])

        def upload(name: str) -> SnapshotFile:
            durable = reused.get(name)
            if durable is None:
                path = planned.checkpoint / name
                # Of the file as it is now: the saved checksums only serve to recognise tables.
                durable = DurableFile(f"{plan.directory}/{name}", path.stat().st_size, file_digest(path))
                self._location.write_file(durable.name, path)
                planned.note_upload(durable)
            return SnapshotFile(name, durable)

        with self._location.requests(_PARALLEL_UPLOADS, "statestore-upload") as pool:
            files = tuple(_in_parallel(pool, upload, plan.files))
        manifest = Manifest(plan.state_id, plan.shard, plan.version, plan.delta, plan.base, plan.entries, files)
        data = manifest.to_json()
        file = DurableFile(f"{plan.directory}/{MANIFEST_NAME}", len(data), digest(data))
        write_document(self._location, file.name, data)
        written = self._location.read(file.name, file.size_bytes)  # once: from now on pointers name it
        if written is None or digest(written) != file.digest:
            raise DurableFileCorruptedError(self._location.path(file.name), cause="is not what was just written")
        planned.finish(file)
        planned.save_digests({name: durable.digest for name, durable in files if name.endswith(TABLE)})
        size_mb = manifest.size_bytes / 1e6
        uploaded_mb = sum(durable.size_bytes for name, durable in files if name not in reused) / 1e6
        text = "shard %d: snapshot of version %d: %d files, %.1f MB, of which %.1f MB were uploaded"
        _LOG.info(text, plan.shard, plan.version, len(files), size_mb, uploaded_mb)

    def _find_files_to_reuse(self, plan: UploadPlan, pointer: CommitPointer) -> dict[str, DurableFile]:
        candidates = list(self.planned.uploads())
        base = next((snapshot for snapshot in pointer.snapshots if snapshot.manifest.name == plan.base), None)
        if base is not None and base.manifest.name not in damaged_snapshots(self.planned.shard_dir):
            try:
                candidates.extend(file.durable for file in read_manifest(self._location, pointer, base).files)
            except RecoveryError as damage:
                _LOG.warning("shard %d: sharing nothing with a snapshot: %s", plan.shard, damage)
                note_damaged_snapshot(self.planned.shard_dir, base.manifest.name)
        directories = {file.name.rpartition("/")[0] for file in candidates}
        there = {(e.name, e.size_bytes) for directory in directories for e in self._location.entries(directory)}
        # A file that was deleted or cut meanwhile is uploaded again.
        known = {(file.size_bytes, file.digest): file for file in candidates if (file.name, file.size_bytes) in there}
        # Only tables are shared: the other files are small.
        digests = self.planned.table_digests(plan)
        found = {name: known.get((plan.files[name], check)) for name, check in digests.items()}
        return {name: durable for name, durable in found.items() if durable is not None}

    def _check_tables(self, plan: UploadPlan, names: Sequence[str]) -> None:
        """Raise LocalStateCorruptedError, and have the copy rebuilt, if a table can't be read."""
        checkpoint, shard_dir = self.planned.checkpoint, self.planned.shard_dir
        damaged = self._local.unreadable_tables([checkpoint / name for name in names], checkpoint.with_name("checked"))
        if damaged:
            note_damage(shard_dir / plan.copy)
            self.planned.clear()
            cause = f"tables that can't be read: {', '.join(damaged)}"
            raise LocalStateCorruptedError(f"shard {plan.shard}", path=str(shard_dir / plan.copy), cause=cause)


class _ProcessEndsError(Exception):
    """Python is about to end, and waits for its threads."""


def _in_parallel(pool: Executor, upload: Callable[[str], SnapshotFile], names: Iterable[str]) -> Iterator[SnapshotFile]:
    """Yield what `upload` returns for each name, in order; it begins no more uploads than the pool has threads."""
    uploads: deque[Future[SnapshotFile]] = deque()
    for name in names:
        if len(uploads) == _PARALLEL_UPLOADS:
            yield uploads.popleft().result()
        try:
            uploads.append(pool.submit(upload, name))
        except RuntimeError as ending:
            raise _ProcessEndsError from ending
    for future in uploads:
        yield future.result()
