"""What the end of a batch does about snapshots: names a finished one, goes on with one, or begins one."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from statestore.errors import FormatError, LocationError, RecoveryError, StateStoreError
from statestore.errors.readable import utc_text
from statestore.errors.state import SnapshotOverdueError
from statestore.recovery.commit.figures import SnapshotFigures, total
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_copy import LocalCopy
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import delta_directory
from statestore.recovery.snapshots.garbage import collect_garbage
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.recovery.snapshots.planned import PlannedSnapshot, UploadPlan
from statestore.recovery.snapshots.upload import SnapshotUpload

_LOG = logging.getLogger(__name__)
_collected_up_to: dict[Path, int] = {}
"""By shard directory, the version up to which this process has collected garbage."""


def snapshot_is_due(pointer: CommitPointer, options: RecoveryOptions) -> bool:
    """Return whether enough was committed since the newest snapshot for another one."""
    since = pointer.deltas_since_snapshot
    return (
        len(since) >= options.snapshot_every_deltas
        or sum(delta.size_bytes for delta in since) >= options.snapshot_every_bytes
    )


@dataclass(frozen=True)
class SnapshotStep:
    """The snapshots of one shard, at the end of a batch that was opened at the committed `pointer`."""

    location: DurableLocation
    local: LocalDirectory
    shard_dir: Path
    options: RecoveryOptions
    pointer: CommitPointer
    epoch: int

    def take(self, committed: CommitPointer, copy: LocalCopy | None) -> tuple[CommitPointer, SnapshotFigures]:
        """Return the batch's pointer, with a snapshot if one was finished; begin or go on with one where it is time.

        `copy` is at the pointer that the batch was opened at. A failure does not fail the batch, which is in its delta.
        Raises SnapshotOverdueError if more deltas are without a snapshot than the options allow.
        """
        committed, figures = self._step(committed, copy)
        limit = self.options.most_deltas
        if limit is not None and len(committed.deltas_since_snapshot) > limit:
            # A slow upload slows the batches down; it does not stop them.
            committed, finished = self._wait(committed)
            figures = total(SnapshotFigures, [figures, finished])
            if len(committed.deltas_since_snapshot) > limit:
                raise self._overdue(committed, limit)
        deltas = len(committed.deltas_since_snapshot)
        if self.options.is_overdue(deltas):
            figures = figures._replace(overdue=1)
            if deltas % self.options.snapshot_every_deltas == 0:
                _LOG.warning("%s", self._overdue_message(committed))
        return committed, figures

    def _step(self, committed: CommitPointer, copy: LocalCopy | None) -> tuple[CommitPointer, SnapshotFigures]:
        due = snapshot_is_due(self.pointer, self.options)
        if not due and not PlannedSnapshot(self.shard_dir).is_there and not self._has_garbage:
            return committed, SnapshotFigures()
        wait_s = self.options.snapshot_budget_ms / 1000
        try:
            with SnapshotUpload.held(self.location, self.local, self.shard_dir, wait_s) as upload:
                if upload is None:
                    return committed, SnapshotFigures()
                # Before anything is begun, which may fail at once.
                failed = upload.planned.take_failures()
                pointer, figures = self._go_on(upload, committed, copy if due else None)
                return pointer, figures._replace(failed=failed)
        except (StateStoreError, OSError, RuntimeError) as failure:  # RuntimeError: there is no thread to be had
            _LOG.warning("shard %d: no snapshot of version %d: %s", self.pointer.shard, self.pointer.version, failure)
            with suppress(OSError):  # the disk may be what failed
                PlannedSnapshot(self.shard_dir).note_problem(str(failure))
            return committed, SnapshotFigures(failed=1)

    def _wait(self, committed: CommitPointer) -> tuple[CommitPointer, SnapshotFigures]:
        """Return the pointer with the snapshot that is under way, once its upload has succeeded."""
        _LOG.warning("%s. Waiting for the one that is under way", self._overdue_message(committed))
        try:
            with SnapshotUpload.held(self.location, self.local, self.shard_dir, None) as upload:
                plan = None if upload is None else self._plan(upload.planned)
                if upload is not None and plan is not None:
                    return self._add_snapshot(upload.planned, plan, committed) or (committed, SnapshotFigures())
        except (StateStoreError, OSError) as failure:
            _LOG.warning("shard %d: no snapshot of version %d: %s", self.pointer.shard, self.pointer.version, failure)
        return committed, SnapshotFigures()

    def _overdue(self, committed: CommitPointer, limit: int) -> SnapshotOverdueError:
        without = committed.deltas_since_snapshot
        written = {entry.name: entry.modified_ms for entry in self.location.entries(delta_directory(committed.shard))}
        since_ms = written.get(without[0].name)
        version = committed.version - len(without) + 1
        at = "" if since_ms is None else f", written {utc_text(since_ms)}"
        return SnapshotOverdueError(
            str(self.location),
            shard=committed.shard,
            deltas=len(without),
            size_bytes=sum(delta.size_bytes for delta in without),
            limit=limit,
            since=f"version {version}{at}",
            last_failure=self._last_failure,
        )

    def _overdue_message(self, committed: CommitPointer) -> str:
        without = committed.deltas_since_snapshot
        size_mb = sum(delta.size_bytes for delta in without) / 1e6
        limit = self.options.most_deltas
        stops = "no limit is set" if limit is None else f"the query stops after {limit}"
        overdue = f"shard {committed.shard}: {len(without)} deltas of {size_mb:.1f} MB without a snapshot ({stops})"
        return f"{overdue}. The last failure: {self._last_failure}"

    @property
    def _last_failure(self) -> str:
        try:
            return PlannedSnapshot(self.shard_dir).last_failure() or "none is known on this machine"
        except OSError as cause:
            return f"it can't be read ({cause})"

    @property
    def _has_garbage(self) -> bool:
        """Whether there is more garbage than when this process last collected."""
        return self.pointer.needed_since(self.options.retained) > _collected_up_to.get(self.shard_dir, 0)

    def _go_on(
        self, upload: SnapshotUpload, committed: CommitPointer, copy: LocalCopy | None
    ) -> tuple[CommitPointer, SnapshotFigures]:
        planned = upload.planned
        figures = SnapshotFigures()
        plan = self._plan(planned)
        with_snapshot = None if plan is None else self._add_snapshot(planned, plan, committed)
        if with_snapshot is not None:
            committed, figures = with_snapshot
            plan = None
        elif plan is None and copy is not None:
            entries = {name: store.bytes.approximate_num_entries() for name, store in copy.stores.items()}
            plan = planned.begin(self.pointer, self.epoch, copy.path.name, copy.checkpoint, entries)
            figures = SnapshotFigures(begun=1)
        if plan is not None or self._has_garbage:
            upload.start(self.pointer, plan, self._collect_garbage)
        return committed, figures

    def _add_snapshot(
        self, planned: PlannedSnapshot, plan: UploadPlan, committed: CommitPointer
    ) -> tuple[CommitPointer, SnapshotFigures] | None:
        """Return the pointer with the snapshot of `plan`, None if that is not complete."""
        manifest = planned.result()
        if manifest is None:
            return None
        retained = self.options.retained
        pointer = committed.with_snapshot(plan.version, manifest, plan.delta, retained_versions=retained)
        return pointer, planned.figures(manifest)

    def _plan(self, planned: PlannedSnapshot) -> UploadPlan | None:
        """Return the plan under way if the pointer can name it later; else remove it."""
        try:
            plan = planned.plan()
            if plan is not None and plan.fits(self.pointer):
                planned.result()
                return plan
        except FormatError as damage:
            _LOG.warning("shard %d: giving up a snapshot: %s", self.pointer.shard, damage)
        planned.clear()
        return None

    def _collect_garbage(self) -> None:
        try:
            collect_garbage(self.location, self.pointer, self.epoch, self.options.retained)
            # What attempts that lost may still need is looked at again when no version needs the next snapshot.
            _collected_up_to[self.shard_dir] = self.pointer.needed_since(self.options.retained)
        except (LocationError, RecoveryError) as failure:
            # Only space is lost, and the next batch tries again.
            _LOG.warning("shard %d: garbage stays where it is: %s", self.pointer.shard, failure)
