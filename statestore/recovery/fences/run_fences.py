"""How a run enters a shard, and how it learns that it may not go on.

It enters before its first commit there: it checks whether it may go on from its pointer, leaves its fence, and checks
again with a listing made after the fence was there. From then on each commit makes one listing.

A run may go back: to a version behind what was committed, or on a line that was given up. It then needs files that a
garbage collection may have removed, or be about to. No location can compare and set. So a collector announces the
collection and then looks for fences of later runs; a run that enters leaves its fence and then looks for announcements
and for the files. Whichever comes second sees the other, and stops.
"""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import filterfalse

from statestore.errors import CheckpointBehindError, LocationError, RunFencedError, VersionCollectedError
from statestore.errors.state import (
    AttemptOutdatedError,
    DurableFileCorruptedError,
    DurableFileMissingError,
    LocationMismatchError,
)
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.fences.history import Behind, Fence, Histories, read_fences, write_fence
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import (
    MAX_EPOCH,
    FenceName,
    Written,
    delta_directory,
    fence_name,
    is_of_tool,
    parse_collection_name,
    parse_delta_name,
    parse_delta_writer,
    parse_fence_name,
    parse_snapshot_name,
    writer_of,
)
from statestore.recovery.metadata.state_metadata import METADATA_NAME, read_metadata, refuse_dropped

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunFences:
    """Leaves and checks the fences of one run, shard by shard. `run` is letters and digits, at most 64.

    `retained_versions` is recorded for the tools that remove garbage; None records nothing.
    """

    location: DurableLocation
    run: str
    accept_older_checkpoint: bool = False
    retained_versions: int | None = None
    stores: Collection[str] = ()
    """The names of the run's stores."""

    def hold(self, pointer: CommitPointer) -> int:
        """Return the run's epoch in the shard, before a commit on top of `pointer`; leave a fence if there is none.

        Raises RunFencedError, AttemptOutdatedError if another attempt's commit was built on, CheckpointBehindError,
        VersionCollectedError, LocationError if no epoch is left or no state is recorded there, LocationMismatchError,
        and TopologyChangedError.
        """
        head = head_of(pointer)
        known: dict[str, Fence] = {}
        epoch, names = self._enter(pointer, head, known)
        found = max((written for written in _deltas(names) if written.epoch == epoch), default=head)
        if found.version > pointer.version + 1:
            where, shard = str(self.location), pointer.shard
            raise AttemptOutdatedError(where, shard=shard, version=pointer.version, found=found.version)
        if head.epoch != epoch:
            # It has committed nothing itself yet, and others may have written before its fence was there.
            self._check_entry(pointer, head, names, known, epoch)
        return epoch

    def _enter(self, pointer: CommitPointer, head: Written, known: dict[str, Fence]) -> tuple[int, list[str]]:
        """Return the run's epoch, of which a fence is there, and the files that were there with it."""
        names, left = self.location.names(delta_directory(pointer.shard)), 0
        refusal: RunFencedError | None = None
        while True:
            # Another attempt of this run may have left a later one meanwhile.
            epoch = max([left, *(fence.epoch for fence in _fence_names(names) if fence.run == self.run)])
            newest = max(_fence_names(names), default=None)
            is_newest = newest is None or newest <= FenceName(epoch, self.run)
            has_gone_on = is_newest and self._has_gone_on(pointer, head, epoch)
            if epoch == 0 or _is_shared(names, epoch, self.run) or has_gone_on:
                left = self._leave_fence(pointer, head, names, known)
            elif is_newest:
                return epoch, names
            elif refusal is not None:
                raise refusal
            else:
                by = read_fences(self.location, names)[-1].describe()
                refusal = RunFencedError(str(self.location), shard=pointer.shard, run=self.run, by=by)
                # Two runs may have taken one epoch, and another attempt of this run a later one: so it looks once more
                # before it raises.
            names = self.location.names(delta_directory(pointer.shard))

    def _has_gone_on(self, pointer: CommitPointer, head: Written, epoch: int) -> bool:
        """Return whether an attempt of this run committed in an earlier epoch, which the run's fence does not say.

        Attempts of a batch may be in several epochs, if another run takes the first one of them, too.
        """
        if head.epoch >= epoch or parse_delta_writer(pointer.head) != writer_of(self.run):
            return False
        own = fence_name(pointer.shard, FenceName(epoch, self.run))
        return read_fences(self.location, [own])[0].head != pointer.head

    def _leave_fence(self, pointer: CommitPointer, head: Written, names: list[str], known: dict[str, Fence]) -> int:
        metadata = read_metadata(self.location)
        if metadata is None:
            # The driver has recorded it: this is another directory, on a machine that has not mounted the location.
            raise LocationError(
                str(self.location),
                f"has no {METADATA_NAME} on {socket.gethostname()}, though the query has recorded one. Nothing was "
                "committed. Mount it on the driver and every executor, or give a location that all of them reach",
            )
        if metadata.state_id != pointer.state_id:
            raise LocationMismatchError(str(self.location), recorded=pointer.state_id, found=metadata.state_id)
        refuse_dropped(self.location, metadata, self.stores)
        fences = _fence_names(names)
        if fences and fences[-1].epoch >= MAX_EPOCH:
            # A name with more digits is not recognised as a fence, and would fence nobody.
            raise LocationError(
                str(self.location),
                f"{fence_name(pointer.shard, fences[-1])} has the highest possible epoch, so no run can take over from "
                "it. Epochs are counted one by one, so statestore did not write it: find out who did, and remove it",
            )
        epoch = fences[-1].epoch + 1 if fences else 1
        went_back = self._check_entry(pointer, head, names, known, epoch)
        if went_back:
            text = "%s: shard %d goes back to version %d, as accept_older_checkpoint says; what others have is given up"
            _LOG.warning(text, self.location, pointer.shard, pointer.version)
        host, now_ms = socket.gethostname(), time.time_ns() // 1_000_000
        retained, head_name = self.retained_versions, pointer.head
        fence = Fence(epoch, self.run, pointer.version, host, now_ms, retained, head_name, went_back)
        write_fence(self.location, pointer.shard, fence)
        return epoch

    def _check_entry(
        self, pointer: CommitPointer, head: Written, names: list[str], known: dict[str, Fence], epoch: int
    ) -> bool:
        """Return whether the run of `epoch` goes back from what others have committed. Raises if it must not."""
        fences = read_fences(self.location, names, known)
        earlier = (fence for fence in fences if fence.epoch < epoch)
        histories = Histories(earlier, (*names, *pointer.chain))
        deltas = [written for written in _deltas(filterfalse(is_of_tool, names)) if written.epoch < epoch]
        judgement = histories.judge(head, deltas, _origin(pointer, head.epoch))
        if judgement is None:
            return False
        if not self.accept_older_checkpoint:
            shard, version = pointer.shard, pointer.version
            if isinstance(judgement, Behind):
                by, since, found = histories.fence(judgement.epoch), version, judgement.version
            else:
                by, since, found = judgement.by, judgement.since, None
            who, where = "another run" if by is None else by.describe(), str(self.location)
            raise CheckpointBehindError(where, shard=shard, version=version, since=since, by=who, found=found)
        check_needed_files(self.location, pointer, names)
        return True


def head_of(pointer: CommitPointer) -> Written:
    """Return the version of a pointer and the epoch that made it: 0 for version 0, or before there were fences."""
    made = parse_delta_name(pointer.head)
    return Written(pointer.version, 0 if made is None else made.epoch)


def _origin(pointer: CommitPointer, epoch: int) -> str | None:
    """Return the delta that the run of this epoch went on from; None if the pointer's chain begins later."""
    for name in reversed(pointer.chain):
        written = parse_delta_name(name)
        if written is None or written.epoch != epoch:
            return name
    return None


def _fence_names(names: list[str]) -> list[FenceName]:
    return sorted(fence for name in names if (fence := parse_fence_name(name)) is not None)


def _is_shared(names: list[str], epoch: int, run: str) -> bool:
    """Return whether another run took the same epoch and sorts before this one, which then takes a higher epoch."""
    fences = _fence_names(names)
    return len(fences) > 1 and fences[-1] == FenceName(epoch, run) and fences[-2].epoch == epoch


def _deltas(names: Iterable[str]) -> list[Written]:
    return [written for name in names if (written := parse_delta_name(name)) is not None]


def check_needed_files(location: DurableLocation, pointer: CommitPointer, names: Iterable[str]) -> None:
    """Raise VersionCollectedError unless all that the pointer needs is there and `names` announce no removal of it."""

    def refuse(file: str, announced: str | None = None) -> VersionCollectedError:
        shard, version = pointer.shard, pointer.version
        return VersionCollectedError(str(location), shard=shard, version=version, file=file, announced=announced)

    announced = [(name, up_to) for name in names if (up_to := parse_collection_name(name)) is not None]
    needed: list[DurableFile] = list(pointer.deltas)
    for snapshot in pointer.snapshots[-2:]:
        try:
            manifest = read_manifest(location, pointer, snapshot)
        except (DurableFileMissingError, DurableFileCorruptedError) as cause:
            raise refuse(snapshot.manifest.name) from cause
        needed.extend([snapshot.manifest, *(file.durable for file in manifest.files)])
    there: dict[str, int] = {}
    for directory in {file.name.rpartition("/")[0] for file in needed}:
        there.update((entry.name, entry.size_bytes) for entry in location.entries(directory))
    for file in needed:
        if there.get(file.name) != file.size_bytes:
            raise refuse(file.name)
        written = parse_delta_name(file.name) or parse_snapshot_name(file.name.rpartition("/")[0])
        for name, up_to in announced:
            if written is not None and written.version <= up_to.version and written.epoch <= up_to.epoch:
                raise refuse(file.name, name)
