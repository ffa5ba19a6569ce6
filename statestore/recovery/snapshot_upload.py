"""Makes snapshots, beside the batches: a checkpoint of the local copy, uploaded in the background.

In the shard's local directory (see `LocalDirectory`):

    snapshot.lock             held (flock) by whoever works on the rest: one task, then the thread that uploads
    digests.json              checksums of tables that were uploaded: tables never change
    damaged-snapshots         manifests of snapshots that could not be restored: nothing is shared with them
    snapshot/checkpoint/      the database, as hard links
    snapshot/plan.json        what it is, and where it goes
    snapshot/uploaded.jsonl   what is there already: an upload that was cut off goes on behind it
    snapshot/result.json      the manifest's file: the upload is complete

A batch begins a snapshot of the version that it was opened at, which is committed, and goes on. A later batch finds the
result and names it in its commit pointer. Until a pointer that Spark keeps does so, the result stays.
"""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from statestore.bytestore.rocksdb import unreadable_tables
from statestore.errors import FormatError, LocalStateCorruptedError, StateStoreError
from statestore.recovery.file_lock import FileLock
from statestore.recovery.json_fields import MALFORMED
from statestore.recovery.local_json import checked_json, parse_checked_json, read_checked_json, write_checked_json
from statestore.recovery.local_marker import note_damage
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer, DurableFile, digest, file_digest
from statestore.recovery.shard_files import MANIFEST_NAME, new_snapshot_name
from statestore.recovery.snapshot import Manifest, SnapshotFile, read_manifest

_LOG = logging.getLogger(__name__)
_PARALLEL_UPLOADS = 4
_DAMAGED = "damaged-snapshots"
_TABLE = ".sst"
_PLAN = "plan.json"
_RESULT = "result.json"
_UPLOADED = "uploaded.jsonl"
_running: dict[Path, threading.Thread] = {}
"""The uploads of this process, by shard directory."""


@dataclass(frozen=True)
class UploadPlan:
    """A checkpoint of one version that waits to be uploaded."""

    copy: str
    """The name of the local copy that it was made of."""
    state_id: str
    shard: int
    version: int
    delta: str
    base: str | None
    """The manifest of the snapshot that files are shared with."""
    directory: str
    """Where in the durable location new files go."""
    entries: Mapping[str, int]

    def fits(self, pointer: CommitPointer) -> bool:
        """Return whether a pointer can name the snapshot: newer than all it has, of its own history, base retained."""
        newest = pointer.snapshots[-1].version if pointer.snapshots else 0
        place = self.version - pointer.base_version
        return (
            (self.state_id, self.shard) == (pointer.state_id, pointer.shard)
            and self.version > newest
            and 0 <= place < len(pointer.chain)
            and pointer.chain[place] == self.delta
            and (self.base is None or self.base in [snapshot.manifest.name for snapshot in pointer.snapshots])
        )


class SnapshotUpload:
    """The snapshot that is under way in a shard's local directory, if any. Hold it for the end of a batch."""

    def __init__(self, location: DurableLocation, shard_dir: Path, lock: FileLock) -> None:
        self._location = location
        self._lock: FileLock | None = lock
        self._digests = shard_dir / "digests.json"
        self._home = shard_dir / "snapshot"
        self._checkpoint = self._home / "checkpoint"

    @staticmethod
    def is_under_way(shard_dir: Path) -> bool:
        """Return whether there is a snapshot that was begun."""
        return (shard_dir / "snapshot").exists()

    @classmethod
    @contextmanager
    def held(cls, location: DurableLocation, shard_dir: Path, wait_s: float) -> Iterator[SnapshotUpload | None]:
        """Hand out the shard's upload, None if it is at work; one of this process is waited for up to `wait_s`."""
        thread = _running.get(shard_dir)
        if thread is not None:
            thread.join(wait_s)
            if not thread.is_alive():
                del _running[shard_dir]
        shard_dir.mkdir(parents=True, exist_ok=True)
        lock = FileLock(shard_dir / "snapshot.lock")
        if not lock.acquire():
            yield None
            return
        upload = cls(location, shard_dir, lock)
        try:
            yield upload
        finally:
            if upload._lock is not None:  # else a thread has it now
                lock.release()

    def plan(self, pointer: CommitPointer) -> UploadPlan | None:
        """Return the checkpoint that is waiting, or uploaded, if `pointer` can name it; else clear it away."""
        try:
            plan = UploadPlan(**read_checked_json(self._home / _PLAN))
            if plan.fits(pointer):
                return plan
        except FileNotFoundError:
            pass
        except (FormatError, *MALFORMED) as damage:
            _LOG.warning("shard %d: dropping a snapshot that can't be told: %r", pointer.shard, damage)
        self.clear()
        return None

    def result(self) -> DurableFile | None:
        """Return the manifest of the snapshot that was planned, None if it is not uploaded yet."""
        try:
            return DurableFile(*read_checked_json(self._home / _RESULT))
        except FileNotFoundError:
            return None
        except (FormatError, *MALFORMED) as damage:
            _LOG.warning("uploading a snapshot again, of which the result can't be read: %r", damage)
            return None

    def clear(self) -> None:
        """Give up the snapshot that is under way; what was uploaded is garbage."""
        shutil.rmtree(self._home, ignore_errors=True)

    def begin(
        self,
        pointer: CommitPointer,
        epoch: int,
        copy: str,
        make_checkpoint: Callable[[str], None],
        entries: Mapping[str, int],
    ) -> UploadPlan:
        """Make a checkpoint of the local copy `copy`, which is at the version of `pointer`, and plan its upload."""
        self.clear()
        self._home.mkdir(parents=True)
        make_checkpoint(str(self._checkpoint))
        base = pointer.snapshots[-1].manifest.name if pointer.snapshots else None
        directory = new_snapshot_name(pointer.shard, pointer.version, epoch)
        plan = UploadPlan(
            copy, pointer.state_id, pointer.shard, pointer.version, pointer.head, base, directory, dict(entries)
        )
        write_checked_json(self._home / _PLAN, asdict(plan))
        return plan

    def start(self, plan: UploadPlan, pointer: CommitPointer, before: Callable[[], None]) -> None:
        """Upload what `plan` says, in a thread that holds the lock until it is done; first it calls `before`."""
        lock, self._lock = self._lock, None

        def run() -> None:
            try:
                before()
                self._upload(plan, pointer)
            except (StateStoreError, OSError) as failure:
                # No harm is done: the deltas are there. A later batch takes it up again.
                _LOG.warning("shard %d: no snapshot of version %d yet: %s", plan.shard, plan.version, failure)
            finally:
                if lock is not None:
                    lock.release()

        shard_dir = self._home.parent
        thread = threading.Thread(target=run, name=f"statestore-snapshot-{plan.shard}", daemon=True)
        _running[shard_dir] = thread
        thread.start()

    def _upload(self, plan: UploadPlan, pointer: CommitPointer) -> None:
        known = self._known_files(plan, pointer)
        digests = _Digests(self._digests)
        names = sorted(os.listdir(self._checkpoint))
        reused = {}
        for name in names:
            path = self._checkpoint / name
            # Only tables are worth sharing: what else there is is small, and better there twice.
            durable = known.get((path.stat().st_size, digests.of(path))) if name.endswith(_TABLE) else None
            if durable is not None:
                reused[name] = durable
        self._check_tables(plan, [name for name in names if name.endswith(_TABLE) and name not in reused])
        with open(self._home / _UPLOADED, "a", encoding="utf-8") as progress:

            def upload(name: str) -> SnapshotFile:
                durable = reused.get(name)
                if durable is None:
                    path = self._checkpoint / name
                    # Of the file as it is now: a checksum that was kept serves to recognise tables only.
                    durable = DurableFile(f"{plan.directory}/{name}", path.stat().st_size, file_digest(path))
                    self._location.write_file(durable.name, path)
                    progress.write(checked_json(durable) + "\n")
                    progress.flush()
                return SnapshotFile(name, durable)

            with ThreadPoolExecutor(_PARALLEL_UPLOADS, thread_name_prefix="statestore-upload") as pool:
                files = tuple(pool.map(upload, names))
        manifest = Manifest(plan.state_id, plan.shard, plan.version, plan.delta, plan.base, plan.entries, files)
        data = manifest.to_json()
        file = DurableFile(f"{plan.directory}/{MANIFEST_NAME}", len(data), digest(data))
        self._location.write(file.name, data)
        digests.save(files, self._checkpoint)
        write_checked_json(self._home / _RESULT, file)
        new_bytes = sum(f.durable.size_bytes for f in files if f.durable.name.startswith(plan.directory))
        _LOG.info(
            "shard %d: snapshot of version %d: %d files, %.1f MB, of which %.1f MB were uploaded",
            plan.shard,
            plan.version,
            len(files),
            manifest.size_bytes / 1e6,
            new_bytes / 1e6,
        )

    def _check_tables(self, plan: UploadPlan, names: Sequence[str]) -> None:
        """Raise LocalStateCorruptedError, and have the copy rebuilt, if one of these tables can't be read.

        A table that rotted on the local disk would be in every snapshot from now on, and the deltas would be gone.
        """
        damaged = unreadable_tables([self._checkpoint / name for name in names], self._home / "checked")
        if damaged:
            copy = self._home.parent / plan.copy
            note_damage(copy)
            self.clear()
            raise LocalStateCorruptedError(
                f"shard {plan.shard}", path=str(copy), cause=f"tables that can't be read: {', '.join(damaged)}"
            )

    def _known_files(self, plan: UploadPlan, pointer: CommitPointer) -> dict[tuple[int, str], DurableFile]:
        """Return the durable files that need no upload, by size and checksum."""
        candidates: list[DurableFile] = []
        base = next((snapshot for snapshot in pointer.snapshots if snapshot.manifest.name == plan.base), None)
        if base is not None and base.manifest.name not in damaged_snapshots(self._home.parent):
            candidates.extend(file.durable for file in read_manifest(self._location, pointer, base).files)
        with suppress(FileNotFoundError):
            for line in (self._home / _UPLOADED).read_text(encoding="utf-8").splitlines():
                # The last line of a process that was killed may be cut.
                with suppress(FormatError, *MALFORMED):
                    candidates.append(DurableFile(*parse_checked_json(line)))
        directories = {file.name.rpartition("/")[0] for file in candidates}
        there = {(e.name, e.size_bytes) for directory in directories for e in self._location.entries(directory)}
        # One that was deleted or cut meanwhile is uploaded again.
        return {(file.size_bytes, file.digest): file for file in candidates if (file.name, file.size_bytes) in there}


def note_damaged_snapshot(shard_dir: Path, manifest_name: str) -> None:
    """Remember that a snapshot could not be restored, so that the next one shares no files with it."""
    with open(shard_dir / _DAMAGED, "a", encoding="utf-8") as file:
        file.write(manifest_name + "\n")


def damaged_snapshots(shard_dir: Path) -> frozenset[str]:
    """Return the manifests of the snapshots that were found damaged on this machine."""
    try:
        return frozenset((shard_dir / _DAMAGED).read_text(encoding="utf-8").splitlines())
    except FileNotFoundError:
        return frozenset()


class _Digests:
    """Checksums of tables, which never change: of each only once, whatever names it has."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, str] = {}
        with suppress(FileNotFoundError, FormatError, *MALFORMED):
            self._known = dict(read_checked_json(path))

    def of(self, path: Path) -> str:
        identity = _identity(path)
        found = self._known.get(identity) if path.suffix == _TABLE else None
        return file_digest(path) if found is None else found

    def save(self, files: tuple[SnapshotFile, ...], checkpoint: Path) -> None:
        tables = (file for file in files if file.local_name.endswith(_TABLE))
        write_checked_json(
            self._path, {_identity(checkpoint / file.local_name): file.durable.digest for file in tables}
        )


def _identity(path: Path) -> str:
    status = path.stat()
    return f"{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"
