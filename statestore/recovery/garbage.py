"""Garbage: files of a shard that no retained version needs.

Judged from one commit pointer, which is known to be committed, and what the names of the files say. It is safe while
the query runs, and in whatever task:
- what is newer than the pointer may be a batch that is under way: kept;
- an upload newer than the pointer's newest snapshot may yet become one: kept. An older one never will;
- a file of a later run than the pointer's is not ours to judge: kept;
- a file that another run wrote beyond the version that its successor went on from may be committed in another copy of
  the checkpoint: kept until it is older than all that is retained.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from statestore.recovery.fence import Abandoned, read_fences
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.shard_files import (
    Written,
    delta_directory,
    parse_delta_name,
    parse_fence_name,
    parse_snapshot_name,
    snapshot_directory,
)
from statestore.recovery.snapshot import read_manifest

_LOG = logging.getLogger(__name__)
_KEPT_FENCES: Final = 16
"""A run whose fence is gone would take over anew, so the last ones stay."""


class GarbageFile(NamedTuple):
    """A file that can be removed, and why."""

    name: str
    size_bytes: int
    reason: str


@dataclass(frozen=True)
class _Judge:
    """Decides on the files of one shard by the names of their versions and writers."""

    pointer: CommitPointer
    epoch: int
    floor: int
    abandoned: Abandoned

    def delta(self, written: Written) -> str:
        """Return why a delta that the pointer does not list is garbage, "" if it may not be."""
        if written.epoch > self.epoch or written.version > self.pointer.version:
            return ""
        if written.version <= self.floor:
            return f"no retained version needs deltas up to version {self.floor}"
        if written.version > self.pointer.base_version and written not in self.abandoned:
            return f"left by an attempt at version {written.version} that was not committed"
        return ""

    def snapshot_file(self, written: Written) -> str:
        """Return why a file of a snapshot is garbage, if no retained snapshot has it."""
        newest = self.pointer.snapshots[-1].version if self.pointer.snapshots else 0
        if written.epoch > self.epoch or written.version > newest:
            return ""
        if written.version > self.floor and written in self.abandoned:
            return ""
        return "no retained snapshot has it"


def find_garbage(
    location: DurableLocation, pointer: CommitPointer, epoch: int, retained_versions: int
) -> list[GarbageFile]:
    """Return what of the shard can be removed, given a committed pointer, as the run of this epoch sees it.

    Needed is what restores one of the last `retained_versions` versions. Raises LocationError, and what reading a
    manifest raises: nothing is judged without all of them.
    """
    entries = location.entries(delta_directory(pointer.shard))
    fences = read_fences(location, (entry.name for entry in entries))
    judge = _Judge(pointer, epoch, pointer.needed_since(retained_versions), Abandoned(fences))
    listed = {delta.name for delta in pointer.deltas}
    garbage = []
    for entry in entries:
        # What a writer that was killed has left has the name of what it was to be in front.
        written = parse_delta_name(entry.name.rsplit(".", 2)[0] if entry.is_partial else entry.name)
        if written is not None and entry.name not in listed:
            garbage.append(GarbageFile(entry.name, entry.size_bytes, judge.delta(written)))
    old_fences = {fence.epoch for fence in fences[:-_KEPT_FENCES]}
    for entry in entries:
        fence = parse_fence_name(entry.name)
        if fence is not None and fence.epoch in old_fences:
            garbage.append(GarbageFile(entry.name, entry.size_bytes, "a fence long past"))
    garbage.extend(_snapshot_garbage(location, judge))
    return [file for file in garbage if file.reason]


def _snapshot_garbage(location: DurableLocation, judge: _Judge) -> Iterable[GarbageFile]:
    pointer = judge.pointer
    needed = {snapshot.manifest.name for snapshot in pointer.snapshots}
    for snapshot in pointer.snapshots:
        needed.update(file.durable.name for file in read_manifest(location, pointer, snapshot).files)
    for directory in location.directories(snapshot_directory(pointer.shard)):
        written = parse_snapshot_name(directory)
        if written is None:
            continue
        reason = judge.snapshot_file(written)
        if reason:
            for entry in location.entries(directory):
                if entry.name not in needed:
                    yield GarbageFile(entry.name, entry.size_bytes, reason)


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


def collect_garbage(location: DurableLocation, pointer: CommitPointer, epoch: int, retained_versions: int) -> int:
    """Remove what `find_garbage` finds, and return how many bytes that were. Raises LocationError."""
    garbage = find_garbage(location, pointer, epoch, retained_versions)
    remove_garbage(location, garbage)
    size_bytes = sum(file.size_bytes for file in garbage)
    if garbage:
        _LOG.info("shard %d: removed %d files of garbage, %.1f MB", pointer.shard, len(garbage), size_bytes / 1e6)
    return size_bytes
