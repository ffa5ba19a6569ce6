"""What the end of a batch does about snapshots: names the one that was finished, goes on with one, or begins one."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from statestore.errors import FormatError, LocationError, RecoveryError, StateStoreError
from statestore.recovery.figures import SnapshotFigures
from statestore.recovery.garbage import collect_garbage
from statestore.recovery.local_copy import LocalCopy
from statestore.recovery.local_directory import LocalDirectory
from statestore.recovery.location import DurableLocation
from statestore.recovery.options import RecoveryOptions
from statestore.recovery.planned_snapshot import PlannedSnapshot, UploadPlan
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.snapshot_upload import SnapshotUpload

_LOG = logging.getLogger(__name__)
_collected: dict[Path, int] = {}
"""By shard directory, the version up to which this process has collected what is not needed."""


def snapshot_is_due(pointer: CommitPointer, options: RecoveryOptions) -> bool:
    """Return whether so much was committed since the newest snapshot that it is time for another."""
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

        `copy` is at the version of the pointer that the batch was opened at. Nothing that goes wrong here fails the
        batch: it is in its delta by now, and needs no snapshot.
        """
        due = snapshot_is_due(self.pointer, self.options)
        if not due and not PlannedSnapshot(self.shard_dir).is_there and not self._has_garbage:
            return committed, SnapshotFigures()
        wait_s = self.options.snapshot_budget_ms / 1000
        try:
            with SnapshotUpload.held(self.location, self.local, self.shard_dir, wait_s) as upload:
                if upload is None:
                    return committed, SnapshotFigures()
                # First of all: what is begun now may fail at once.
                failed = upload.planned.take_failures()
                pointer, figures = self._go_on(upload, committed, copy if due else None)
                return pointer, figures._replace(failed=failed)
        except (StateStoreError, OSError, RuntimeError) as failure:  # RuntimeError: there is no thread to be had
            _LOG.warning("shard %d: no snapshot of version %d: %s", self.pointer.shard, self.pointer.version, failure)
            return committed, SnapshotFigures(failed=1)

    @property
    def _has_garbage(self) -> bool:
        """Whether files are no longer needed that were when this process last collected."""
        return self.pointer.needed_since(self.options.retained) > _collected.get(self.shard_dir, 0)

    def _go_on(
        self, upload: SnapshotUpload, committed: CommitPointer, copy: LocalCopy | None
    ) -> tuple[CommitPointer, SnapshotFigures]:
        """Do the next that is to be done; `copy` is None if no new snapshot is to be begun."""
        planned = upload.planned
        figures = SnapshotFigures()
        plan = self._plan(planned)
        manifest = planned.result() if plan is not None else None
        if plan is not None and manifest is not None:
            retained = self.options.retained
            committed = committed.with_snapshot(plan.version, manifest, plan.delta, retained_versions=retained)
            figures = planned.figures(manifest)
            plan = None
        elif plan is None and copy is not None:
            entries = {name: store.bytes.approximate_num_entries() for name, store in copy.stores.items()}
            plan = planned.begin(self.pointer, self.epoch, copy.path.name, copy.checkpoint, entries)
            figures = SnapshotFigures(begun=1)
        if plan is not None or self._has_garbage:
            upload.start(self.pointer, plan, self._collect_garbage)
        return committed, figures

    def _plan(self, planned: PlannedSnapshot) -> UploadPlan | None:
        """Return what is under way if the pointer can come to name it; else clear it away."""
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
            _collected[self.shard_dir] = self.pointer.needed_since(self.options.retained)
        except (LocationError, RecoveryError) as failure:
            # Nothing but space is lost, and the next batch tries again.
            _LOG.warning("shard %d: garbage is left where it is: %s", self.pointer.shard, failure)
