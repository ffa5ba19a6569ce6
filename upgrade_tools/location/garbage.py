"""Lists, and on request removes, the files that no retained version of a state needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from statestore.errors.state import LocationMismatchError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.fences.history import Fence, Histories, Line, read_fences
from statestore.recovery.fences.run_fences import head_of
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import Written, delta_directory, parse_delta_name
from statestore.recovery.snapshots.garbage import (
    Garbage,
    GarbageFile,
    announce_collection,
    find_garbage,
    remove_garbage,
)
from upgrade_tools.errors import PointersOutdatedError
from upgrade_tools.states.location import metadata_at


def collect_location(
    uri: str,
    pointers: list[CommitPointer],
    *,
    retained_versions: int,
    remove: bool,
    on_file: Callable[[GarbageFile], None] | None = None,
) -> list[GarbageFile]:
    """Return the files of the state at path or URI `uri` that can be removed, and why; remove them with `remove`.

    `pointers` are those of the last committed batch; shards without one are left alone. May be called while the query
    runs. More than `retained_versions` are kept if the query has recorded that it retains more. `on_file` is told of
    each file before it is removed. Raises PointersOutdatedError, before anything of that shard or later ones is
    removed; and LocationError, which may leave some of a shard's garbage.
    """
    location = DurableLocation(uri)
    metadata = metadata_at(location)
    found: list[GarbageFile] = []
    for pointer in pointers:
        if pointer.state_id != metadata.state_id:
            raise LocationMismatchError(str(location), recorded=pointer.state_id, found=metadata.state_id)
        collection = _Collection(location, pointer, retained_versions)
        garbage = collection.find()
        if on_file is not None:
            for file in garbage.files:
                on_file(file)
        if remove and garbage.files:
            collection.remove(garbage)
        found.extend(garbage.files)
    return found


@dataclass(frozen=True)
class _Collection:
    """The garbage of one shard, as the run sees it that wrote the pointer."""

    location: DurableLocation
    pointer: CommitPointer
    retained_versions: int

    def find(self) -> Garbage:
        """Return what can be removed. Raises PointersOutdatedError."""
        retained = self._retained(self._names())
        return find_garbage(self.location, self.pointer, head_of(self.pointer).epoch, retained)

    def remove(self, garbage: Garbage) -> None:
        """Remove what was found. Raises PointersOutdatedError, and removes nothing, if a run has entered meanwhile."""
        self._retained(self._names())
        with announce_collection(self.location, self.pointer.shard, garbage) as names:
            self._retained(names)
            remove_garbage(self.location, garbage.files)

    def _names(self) -> list[str]:
        return self.location.names(delta_directory(self.pointer.shard))

    def _retained(self, names: list[str]) -> int:
        """Return how many versions are retained. Raises PointersOutdatedError."""
        head = head_of(self.pointer)
        fences = read_fences(self.location, names)
        found = [written for name in names if (written := parse_delta_name(name)) is not None]
        line = Histories(fences, (*names, *self.pointer.chain)).current
        problem = _problem_of_later_runs(head, fences, line) or _problem_of_later_commits(head, found, line)
        if problem is not None:
            raise PointersOutdatedError(
                str(self.location), shard=self.pointer.shard, version=self.pointer.version, cause=problem
            )
        recorded = [fence.retained_versions or 0 for fence in fences if fence.epoch >= head.epoch]
        return max([self.retained_versions, *recorded])


def _problem_of_later_runs(head: Written, fences: list[Fence], line: Line) -> str | None:
    """Return in words which later run did not continue from `head`, or may not have; None if all did."""
    later = [fence for fence in fences if fence.epoch > head.epoch]
    if not line.holds(head):
        since = next((fence for fence in reversed(line.fences) if fence.epoch > head.epoch), later[-1])
        return f"{since.describe()} did not continue from it"
    if any(head.epoch in (fence.epoch, fence.head_epoch) for fence in line.fences):
        return None
    for fence in later:
        if fence.from_version is None or fence.from_version < head.version:
            return f"{fence.describe()} did not continue from it"
    # Old fences are removed as garbage, and with them where their runs continued from.
    if later and len({fence.epoch for fence in later}) < later[-1].epoch - head.epoch:
        return f"run number {head.epoch} wrote it, and the fences of some later runs are gone"
    return None


def _problem_of_later_commits(head: Written, found: list[Written], line: Line) -> str | None:
    """Return in words what later runs have committed since; None if there is nothing.

    Later commits of the same run do not count: the query may be running, and garbage is only what none of its own
    pointers, even old ones, needs to be restored.
    """
    later = (written for written in found if written.epoch > head.epoch and line.holds(written))
    ahead = [written for written in later if written.version > head.version + 1]
    return f"a later run has committed version {max(ahead).version - 1}" if ahead else None
