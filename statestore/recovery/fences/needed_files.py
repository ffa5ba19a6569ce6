"""The files that a version of a shard needs, by both ways to restore it, and whether they are all still there."""

from __future__ import annotations

from collections.abc import Iterable

from statestore.errors import DurableFileCorruptedError, DurableFileMissingError, VersionCollectedError
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import parse_collection_name, parse_delta_name, parse_snapshot_name


def check_needed_files(location: DurableLocation, pointer: CommitPointer, names: Iterable[str]) -> None:
    """Raise VersionCollectedError unless all that the pointer needs is in the location, and nobody removes it.

    `names` are those of the shard's deltas, fences and announcements of collections, as they were found in a listing.
    """

    def refuse(file: str, announced: str | None = None) -> VersionCollectedError:
        return VersionCollectedError(
            str(location), shard=pointer.shard, version=pointer.version, file=file, announced=announced
        )

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
