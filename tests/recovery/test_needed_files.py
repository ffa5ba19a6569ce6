"""Whether all files that a version needs, by each way to restore it, are there and stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore.errors import VersionCollectedError
from statestore.recovery.commit.manifest import Manifest, SnapshotFile
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef
from statestore.recovery.fences.run_fences import check_needed_files
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import (
    MANIFEST_NAME,
    new_collection_name,
    new_delta_name,
    new_snapshot_name,
)

VERSION, EPOCH = 5, 2


def written(location: DurableLocation, name: str, content: bytes) -> DurableFile:
    location.write(name, content)
    return DurableFile(name, len(content), digest(content))


def snapshot_of(location: DurableLocation, version: int, delta: str, shared: DurableFile | None = None) -> SnapshotRef:
    """Write a snapshot, which has a file that an earlier one wrote as well."""
    directory = new_snapshot_name(0, version, EPOCH)
    current = SnapshotFile("CURRENT", written(location, f"{directory}/CURRENT", b"%d" % version))
    files = (current,) if shared is None else (current, SnapshotFile("1.sst", shared))
    manifest = Manifest("s", 0, version, delta, None, {}, files)
    return SnapshotRef(version, written(location, f"{directory}/{MANIFEST_NAME}", manifest.to_json()), delta, version)


@pytest.fixture
def location(tmp_path: Path) -> DurableLocation:
    return DurableLocation(tmp_path)


@pytest.fixture
def pointer(location: DurableLocation) -> CommitPointer:
    """A version with three snapshots, of which the first and the last share a file, and deltas since the second."""
    names = {version: new_delta_name(0, version, EPOCH) for version in range(1, VERSION + 1)}
    shared = written(location, f"{new_snapshot_name(0, 1, EPOCH)}/1.sst", b"table")
    snapshots = (
        snapshot_of(location, 1, names[1], shared),
        snapshot_of(location, 2, names[2]),
        snapshot_of(location, 3, names[3], shared),
    )
    deltas = tuple(written(location, names[version], b"delta %d" % version) for version in (3, 4, 5))
    return CommitPointer("s", 0, VERSION, deltas, snapshots=snapshots)


def refused(location: DurableLocation, pointer: CommitPointer, names: list[str]) -> VersionCollectedError:
    with pytest.raises(VersionCollectedError) as raised:
        check_needed_files(location, pointer, names)
    return raised.value


def test_a_version_that_has_all_its_files_is_not_refused(location: DurableLocation, pointer: CommitPointer) -> None:
    check_needed_files(location, pointer, [delta.name for delta in pointer.deltas])


def needed(pointer: CommitPointer, root: Path) -> list[str]:
    """The names of all files that the last two snapshots and the deltas consist of."""
    kept = [snapshot.manifest.name for snapshot in pointer.snapshots[-2:]]
    current = [name.replace(MANIFEST_NAME, "CURRENT") for name in kept]
    shared = [path.relative_to(root).as_posix() for path in root.rglob("1.sst")]
    return [*kept, *current, *shared, *(delta.name for delta in pointer.deltas)]


@pytest.mark.parametrize("number", range(8))
@pytest.mark.parametrize("damage", ["gone", "cut"])
def test_each_file_that_is_gone_or_cut_is_named(
    location: DurableLocation, pointer: CommitPointer, tmp_path: Path, number: int, damage: str
) -> None:
    names = needed(pointer, tmp_path)
    assert len(names) == 8
    file = tmp_path / names[number]
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    error = refused(location, pointer, [])
    assert (error.file, error.shard, error.version, error.announced) == (names[number], 0, VERSION, None)


def test_what_only_an_older_snapshot_has_is_not_needed(
    location: DurableLocation, pointer: CommitPointer, tmp_path: Path
) -> None:
    manifest = tmp_path / pointer.snapshots[0].manifest.name
    manifest.unlink()
    (manifest.parent / "CURRENT").unlink()
    check_needed_files(location, pointer, [])


@pytest.mark.parametrize(
    ("version", "epoch", "is_refused"),
    [(1, EPOCH, True), (4, EPOCH, True), (0, 9, False), (9, EPOCH - 1, False), (9, 9, True)],
)
def test_a_collection_that_was_announced_takes_what_it_reaches(
    location: DurableLocation, pointer: CommitPointer, version: int, epoch: int, is_refused: bool
) -> None:
    # The first snapshot's table, which is needed, is of version 1.
    announced = new_collection_name(0, version, epoch)
    if is_refused:
        assert refused(location, pointer, [announced]).announced == announced
    else:
        check_needed_files(location, pointer, [announced])
