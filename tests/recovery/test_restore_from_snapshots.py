"""Which snapshots a version is made from, and what is fetched of one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statestore.errors.state import DurableFileCorruptedError, DurableFileMissingError
from statestore.recovery.commit.manifest import Manifest, SnapshotFile
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.restore import (
    RestoreProgress,
    damaged_snapshots,
    fetch_snapshot,
    note_damaged_snapshot,
    ways_to_restore,
)

FILES = {"CURRENT": b"MANIFEST-000005\n", "MANIFEST-000005": b"m" * 500, "000004.sst": b"t" * 3_000}
DELTA = DurableFile("d", 1, "00")


def ref(version: int) -> SnapshotRef:
    return SnapshotRef(version, DurableFile(f"s{version}/manifest.json", 1, "00"), f"d{version}", version + 1)


def pointer_at(version: int, *snapshots: int) -> CommitPointer:
    deltas = version - (sorted(snapshots)[-2] if len(snapshots) > 1 else 0)
    pointer = CommitPointer("s", 0, version, deltas=(DELTA,) * deltas, snapshots=tuple(map(ref, snapshots)))
    assert pointer.version - len(pointer.deltas) == pointer.base_version
    return pointer


@pytest.mark.parametrize(
    ("snapshots", "damaged", "ways"),
    [
        ((), (), [None]),
        ((4,), (), [4, None]),
        ((4,), (4,), [4, None]),
        ((4, 7), (), [7, 4]),
        ((2, 4, 7), (), [7, 4]),
        ((4, 7), (7,), [4, 7]),
        ((4, 7), (4,), [7, 4]),
        ((4, 7), (4, 7), [7, 4]),
        ((2, 4, 7), (2,), [7, 4]),
    ],
)
def test_the_newest_snapshot_that_is_no_known_damage_comes_first(
    snapshots: tuple[int, ...], damaged: tuple[int, ...], ways: list[int | None]
) -> None:
    """Of the two that the deltas reach back to; nothing at all will do while they reach back to version 0."""
    found = ways_to_restore(pointer_at(9, *snapshots), {ref(version).manifest.name for version in damaged})
    assert [None if way is None else way.version for way in found] == ways


def test_damage_is_remembered_on_the_machine(tmp_path: Path) -> None:
    assert damaged_snapshots(tmp_path) == frozenset()
    for name in ("s4/manifest.json", "s7/manifest.json", "s4/manifest.json"):
        note_damaged_snapshot(tmp_path, name)
    assert damaged_snapshots(tmp_path) == {"s4/manifest.json", "s7/manifest.json"}
    (tmp_path / "damaged-snapshots").write_bytes(b"s9/manifest.json\n\xff\n")
    assert "s9/manifest.json" in damaged_snapshots(tmp_path), "what is damaged in it costs no restore"


@pytest.fixture
def location(tmp_path: Path) -> DurableLocation:
    return DurableLocation(tmp_path / "state")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "copy"
    path.mkdir()
    return path


@pytest.fixture
def snapshot(location: DurableLocation) -> SnapshotRef:
    """A snapshot of three files, one of which is that of an earlier one."""
    durable = []
    for name, content in FILES.items():
        stored_as = f"snapshots/{'earlier' if name.endswith('.sst') else 'this'}/{name}"
        location.write(stored_as, content)
        durable.append(SnapshotFile(name, DurableFile(stored_as, len(content), digest(content))))
    content = Manifest("s", 0, 4, "d4", None, {"totals": 2}, tuple(durable)).to_json()
    location.write("snapshots/this/manifest.json", content)
    return ref(4)._replace(manifest=DurableFile("snapshots/this/manifest.json", len(content), digest(content)))


def test_a_snapshot_becomes_the_directory_of_a_database(
    location: DurableLocation, snapshot: SnapshotRef, copy: Path
) -> None:
    progress = RestoreProgress(0, ["totals"], 0, 4)
    manifest = fetch_snapshot(location, pointer_at(4), snapshot, copy, progress)
    progress.end()
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == FILES
    assert (manifest.version, manifest.name) == (4, "snapshots/this/manifest.json")
    assert progress.figures.size_bytes == manifest.size_bytes == sum(map(len, FILES.values()))


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_gone_is_named_with_what_needs_it(
    location: DurableLocation, snapshot: SnapshotRef, copy: Path, tmp_path: Path, name: str
) -> None:
    gone = next(path for path in (tmp_path / "state").rglob(name))
    gone.unlink()
    with pytest.raises(DurableFileMissingError, match="the snapshot of shard 0 at version 4") as raised:
        fetch_snapshot(location, pointer_at(4), snapshot, copy, None)
    assert raised.value.where.endswith(str(gone))


@pytest.mark.parametrize("change", [b"x", b""], ids=["other content", "cut"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_was_changed_is_named(
    location: DurableLocation, snapshot: SnapshotRef, copy: Path, tmp_path: Path, name: str, change: bytes
) -> None:
    changed = next(path for path in (tmp_path / "state").rglob(name))
    changed.write_bytes(FILES[name][:-1] + change)
    with pytest.raises(DurableFileCorruptedError) as raised:
        fetch_snapshot(location, pointer_at(4), snapshot, copy, None)
    assert raised.value.where.endswith(str(changed))


def test_a_manifest_of_another_shard_is_refused_before_anything_is_fetched(
    location: DurableLocation, snapshot: SnapshotRef, copy: Path
) -> None:
    with pytest.raises(DurableFileCorruptedError, match="is the manifest of"):
        fetch_snapshot(location, replace(pointer_at(4), shard=1), snapshot, copy, None)
    assert list(copy.iterdir()) == []
