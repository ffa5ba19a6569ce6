"""Garbage: files of a shard that no retained version needs.

It is judged from one commit pointer, which is known to be committed, and from the names of files. That is safe while
the query runs, and in any task, because nothing is removed that is newer than the oldest version which a retained
pointer can be restored from:
- a file newer than the pointer may be of a batch that is under way;
- a file that the pointer does not name may be of an attempt that lost. Spark may still take that attempt's pointer, as
  its state stores write the files of a version over those of another attempt. That pointer may not name yet what the
  one that counts does, and the next attempt may go on from it and lose again. All deltas of such a line but the last
  are there by then, so it began no later than at a version with a single delta;
- a file may be committed in another copy of the checkpoint, which another run went on from;
- an upload that is newer than the pointer's newest snapshot may still become one.
What a later run than the pointer's has written is never judged, however old it is.

A run that goes back to an older version needs files that are garbage by then. So a collection is announced before it
looks for fences of later runs: see `run_fences` for why neither can miss the other.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from statestore.errors.state import DurableFileMissingError
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_files import DurableEntry, is_partial, whole_name
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import (
    Written,
    delta_directory,
    new_collection_name,
    parse_collection_name,
    parse_delta_name,
    parse_fence_name,
    parse_snapshot_name,
    snapshot_directory,
)

_LOG = logging.getLogger(__name__)
_MOST_BESIDE: Final = 16
_KEPT_FENCES: Final = 16
"""The last ones stay: a run whose fence is gone would take over again."""


class GarbageFile(NamedTuple):
    """A file that can be removed, and why."""

    name: str
    size_bytes: int
    reason: str


class Garbage(NamedTuple):
    """What can be removed of a shard."""

    up_to: Written
    """Nothing of a higher version or of a later run is garbage."""
    files: list[GarbageFile]


def find_garbage(location: DurableLocation, pointer: CommitPointer, epoch: int, retained_versions: int) -> Garbage:
    """Return what the run of this epoch can remove, given a committed pointer. Raises LocationError."""
    entries = location.entries(delta_directory(pointer.shard))
    floor = pointer.needed_since(retained_versions, _count_beside(entries, pointer.version - retained_versions))

    def is_past(written: Written | None) -> bool:
        return written is not None and written.epoch <= epoch and written.version <= floor

    garbage = []
    for entry in entries:
        if is_past(parse_delta_name(whole_name(entry.name))):
            garbage.append(GarbageFile(entry.name, entry.size_bytes, f"no retained version needs deltas up to {floor}"))
    # The pointer names older snapshots until the next one is made.
    retained = [snapshot for snapshot in pointer.snapshots if snapshot.version >= floor]
    needed = {snapshot.manifest.name for snapshot in retained}
    for snapshot in retained:
        try:
            manifest = read_manifest(location, pointer, snapshot)
        except DurableFileMissingError:
            if snapshot in pointer.snapshots[-2:]:
                raise
            # Collected since, with a later pointer. Newer manifests name the files that are shared with them.
            continue
        needed.update(file.durable.name for file in manifest.files)
    for directory in location.directories(snapshot_directory(pointer.shard)):
        if is_past(parse_snapshot_name(directory)):
            files = (entry for entry in location.entries(directory) if entry.name not in needed)
            garbage.extend(GarbageFile(file.name, file.size_bytes, "no retained snapshot has it") for file in files)
    fences = sorted((fence, entry) for entry in entries if (fence := parse_fence_name(entry.name)) is not None)
    cut = ((parse_fence_name(whole_name(entry.name)), entry) for entry in entries if is_partial(entry.name))
    past = [(fence, entry) for fence, entry in cut if fence is not None and fence.epoch < epoch]
    for _, entry in [*past, *fences[:-_KEPT_FENCES]]:
        garbage.append(GarbageFile(entry.name, entry.size_bytes, "a fence long past"))
    # These last: what is left of what they announce is garbage here too, and is removed before them.
    for entry in entries:
        if is_past(parse_collection_name(whole_name(entry.name))):
            garbage.append(GarbageFile(entry.name, entry.size_bytes, "announces a collection that was broken off"))
    return Garbage(Written(floor, epoch), garbage)


def _count_beside(entries: Iterable[DurableEntry], version: int) -> int:
    """Return for how many versions before `version` lost attempts may have built on each other.

    0 if it is _MOST_BESIDE or more: garbage must also go where every version has several attempts.
    """
    deltas = Counter(made.version for entry in entries if (made := parse_delta_name(entry.name)) is not None)
    alone = (count for count in range(_MOST_BESIDE) if deltas[version - 1 - count] <= 1)
    return next(alone, 0)


def remove_garbage(location: DurableLocation, garbage: Iterable[GarbageFile]) -> None:
    """Remove files that `find_garbage` found, and snapshot directories that are empty then. Raises LocationError."""
    directories = set()
    for file in garbage:
        location.delete(file.name)
        directory = file.name.rpartition("/")[0]
        if parse_snapshot_name(directory) is not None:
            directories.add(directory)
    for directory in directories:
        location.remove_directory(directory)


@contextmanager
def announce_collection(location: DurableLocation, shard: int, garbage: Garbage) -> Iterator[list[str]]:
    """Announce a removal, and hand out the names that are there then, which may forbid it."""
    announcement = new_collection_name(shard, *garbage.up_to)
    location.write(announcement, b"")
    try:
        yield location.names(delta_directory(shard))
    finally:
        location.delete(announcement)


def collect_garbage(location: DurableLocation, pointer: CommitPointer, epoch: int, retained_versions: int) -> int:
    """Remove what `find_garbage` finds, and return how many bytes; nothing if a later run has entered."""
    garbage = find_garbage(location, pointer, epoch, retained_versions)
    if not garbage.files:
        return 0
    with announce_collection(location, pointer.shard, garbage) as names:
        if any(fence.epoch > epoch for name in names if (fence := parse_fence_name(name)) is not None):
            _LOG.info("shard %d: leaving garbage to the run that has taken over", pointer.shard)
            return 0
        remove_garbage(location, garbage.files)
    size_bytes = sum(file.size_bytes for file in garbage.files)
    _LOG.info("shard %d: removed %d files of garbage, %.1f MB", pointer.shard, len(garbage.files), size_bytes / 1e6)
    return size_bytes
