"""The files of each shard in a state location, by their names, and what is committed."""

from __future__ import annotations

from dataclasses import dataclass, field

from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.fences.history import read_fences
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import (
    MANIFEST_NAME,
    delta_directory,
    parse_delta_name,
    parse_snapshot_name,
    snapshot_directory,
)
from upgrade_tools.states.location import LocationState


@dataclass
class ShardFiles:
    """The files of one shard."""

    shard: int
    deltas: int = 0
    delta_bytes: int = 0
    versions: list[int] = field(default_factory=list)
    """Versions that the deltas make, each once, in order."""
    snapshots: list[int] = field(default_factory=list)
    """Versions of the snapshots that have a manifest, in order."""
    snapshot_bytes: int = 0
    """Size of all files of snapshots, including those without a manifest."""
    pointer: CommitPointer | None = None
    """What is committed; None if that is not known."""
    retained_versions: int | None = None
    """How many versions before the last one the query keeps; None if it has not recorded that."""

    @property
    def oldest_version(self) -> int:
        """The oldest version that the files can make, by their names: 1, or the first snapshot's; 0 without files."""
        if self.versions[:1] == [1] or not (self.versions or self.snapshots):
            return len(self.versions[:1])
        return min(self.snapshots or self.versions)

    def describe(self) -> str:
        """Return a summary in words."""
        span = f"versions {self.versions[0]} to {self.versions[-1]}" if self.versions else "no versions"
        return f"shard {self.shard}: {self.deltas} deltas, {span}, {len(self.snapshots)} snapshots"


def shard_files(state: LocationState) -> list[ShardFiles]:
    """Return the files of each shard of a state, in order. Raises LocationError, StatePointersError, RecoveryError."""
    pointers = state.pointers if state.knows_pointers else None
    return [
        files_of_shard(state.location, shard, None if pointers is None else pointers[shard]) for shard in state.parts
    ]


def files_of_shard(location: DurableLocation, shard: int, pointer: CommitPointer | None = None) -> ShardFiles:
    """Return the files of one shard, of which `pointer` is committed if that is known. Raises LocationError."""
    found = ShardFiles(shard, pointer=pointer)
    entries = location.entries(delta_directory(shard))
    versions = set()
    for entry in entries:
        written = parse_delta_name(entry.name)
        if written is not None:
            versions.add(written.version)
            found.deltas += 1
            found.delta_bytes += entry.size_bytes
    found.versions = sorted(versions)
    for directory in location.directories(snapshot_directory(shard)):
        made = parse_snapshot_name(directory)
        files = [] if made is None else location.entries(directory)
        found.snapshot_bytes += sum(file.size_bytes for file in files)
        if made is not None and any(file.name.endswith(f"/{MANIFEST_NAME}") for file in files):
            found.snapshots.append(made.version)
    found.snapshots.sort()
    recorded = [fence.retained_versions for fence in read_fences(location, [entry.name for entry in entries])]
    found.retained_versions = next((count for count in reversed(recorded) if count is not None), None)
    return found
