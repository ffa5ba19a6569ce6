"""Files of a state location that somebody has made longer: as many bytes are read as were recorded, or none."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statestore.errors import LocationBusyError
from statestore.errors.state import DurableFileCorruptedError, LocationNotWritableError, StateUnfinishedError
from statestore.recovery.commit.delta import DeltaInfo
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import (
    CommitPointer,
    DurableFile,
    initial_name,
    initial_pointer,
    write_initial_pointer,
)
from statestore.recovery.fences.history import read_fences
from statestore.recovery.heads.head import Head, write_head
from statestore.recovery.location.durable_files import DurableFiles, RenamedFiles
from statestore.recovery.location.durable_json import MAX_DOCUMENT_BYTES, MAX_NOTE_BYTES, write_document
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import FenceName, fence_name
from statestore.recovery.making.new_state import refuse_occupied
from statestore.recovery.metadata import agreement
from statestore.recovery.metadata.agreement import agree
from statestore.recovery.metadata.state_metadata import METADATA_NAME, UNFINISHED_NAME, agree_on_metadata, read_metadata
from statestore.recovery.restore.restore import fetch_snapshot, open_delta
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.recovery.test_hostile_names import METADATA
from tests.support.recovery.shards import Shard, stored, wait_for_uploads
from tests.support.recovery.spilling import small_space

LONG_BYTES = 600 << 20


class CountedFile:
    """A file of a pyarrow filesystem that adds up what is read of it."""

    def __init__(self, file: Any, read: list[int]) -> None:
        self.file = file
        self.read = read
        self.size, self.seek = file.size, file.seek

    def read_buffer(self, size_bytes: int) -> Any:
        data = self.file.read_buffer(size_bytes)
        self.read.append(data.size)
        return data

    def __enter__(self) -> CountedFile:
        return self

    def __exit__(self, *error: object) -> None:
        self.file.close()


class CountingLocation(DurableLocation):
    """Knows how many bytes were read in it, at each read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read_bytes: list[int] = []

    def _files(self, filesystem: Any, root: str) -> DurableFiles:
        counted = self.read_bytes

        class Counting:
            def __getattr__(self, name: str) -> Any:
                return getattr(filesystem, name)

            def open_input_file(self, path: str) -> CountedFile:
                return CountedFile(filesystem.open_input_file(path), counted)

        return RenamedFiles(Counting(), self.retrying)


@pytest.fixture
def location(tmp_path: Path) -> CountingLocation:
    return CountingLocation(tmp_path / "state")


def lengthen(location: DurableLocation, name: str, size_bytes: int = LONG_BYTES) -> None:
    """Have a file be so long, with holes, whether it was there before or not."""
    path = Path(location.uri.removeprefix("file://"), name)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        os.truncate(file.fileno(), size_bytes)


NOTES: dict[str, tuple[str, Callable[[DurableLocation], object]]] = {
    "mark of what is unfinished": (UNFINISHED_NAME, refuse_occupied),
}
DOCUMENTS: dict[str, tuple[str, Callable[[DurableLocation], object]]] = {
    "metadata": (METADATA_NAME, read_metadata),
    "metadata at a start": (METADATA_NAME, lambda location: agree_on_metadata(location, METADATA)),
    "metadata where a state is made": (METADATA_NAME, refuse_occupied),
    "initial pointer": (initial_name(0), lambda location: initial_pointer(location, "state-1", 0)),
    "what another start has accepted": (
        f"starting/00000000-00000001-accepted-{'0' * 32}",
        lambda location: agree(location, 0, b"mine", lambda: False),
    ),
}


@pytest.mark.parametrize("kind", [*NOTES, *DOCUMENTS])
def test_none_of_a_file_that_is_too_long_for_its_kind_is_read(location: CountingLocation, kind: str) -> None:
    name, read = {**NOTES, **DOCUMENTS}[kind]
    lengthen(location, name)
    with pytest.raises(DurableFileCorruptedError, match=rf"{name}: has {LONG_BYTES} bytes, at most") as refused:
        read(location)
    bound = MAX_NOTE_BYTES if kind in NOTES else MAX_DOCUMENT_BYTES
    assert f"at most {bound} " in str(refused.value)
    assert sum(location.read_bytes) == 0


def test_a_mark_that_is_too_long_still_keeps_queries_away(location: CountingLocation) -> None:
    lengthen(location, UNFINISHED_NAME)
    with pytest.raises((StateUnfinishedError, DurableFileCorruptedError)):
        agree_on_metadata(location, METADATA)
    assert sum(location.read_bytes) == 0


def test_a_fence_that_is_too_long_still_fences(location: CountingLocation) -> None:
    name = fence_name(0, FenceName(7, "run"))
    lengthen(location, name)
    (fence,) = read_fences(location, [name])
    assert (fence.epoch, fence.run, fence.from_version) == (7, "run", None)
    assert sum(location.read_bytes) == 0


def test_a_turn_whose_file_is_too_long_is_somebody_elses(
    location: CountingLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "_TRIES", 1)
    lengthen(location, f"{agreement.TURNS_DIRECTORY}/other")
    with pytest.raises(LocationBusyError, match="its file does not name"), agreement.turn(location, "this"):
        pytest.fail("it was not alone")
    assert sum(location.read_bytes) == 0


@pytest.fixture(scope="module")
def committed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shard, CommitPointer]:
    """A shard with deltas and snapshots; the last delta is the large one."""
    home = tmp_path_factory.mktemp("committed")
    shard = Shard(home, RecoveryOptions(snapshot_every_deltas=2, snapshot_budget_ms=60_000))
    pointer = shard.start()
    for number in range(3):
        pointer = shard.batch(pointer, {b"%d" % number: stored(b"v")})
        wait_for_uploads()
    pointer = shard.batch(pointer, {b"large": stored(os.urandom(9 << 20))})
    assert pointer.snapshots
    assert pointer.deltas[-1].size_bytes > 8 << 20 > pointer.deltas[0].size_bytes
    return shard, pointer


@pytest.fixture
def lengthened(committed: tuple[Shard, CommitPointer]) -> Iterator[Callable[[DurableFile, int], CountingLocation]]:
    """Makes a durable file longer, hands out its location, and brings it back in the end."""
    home = committed[0].home / "state"
    changed: list[DurableFile] = []

    def change(file: DurableFile, by_bytes: int) -> CountingLocation:
        changed.append(file)
        location = CountingLocation(home)
        lengthen(location, file.name, file.size_bytes + by_bytes)
        return location

    yield change
    for file in changed:
        os.truncate(home / file.name, file.size_bytes)


@pytest.mark.parametrize("by_bytes", [1, LONG_BYTES])
@pytest.mark.parametrize("index", [0, -1], ids=["read at once", "through the disk"])
def test_no_more_of_a_delta_is_read_than_was_recorded(
    committed: tuple[Shard, CommitPointer],
    lengthened: Callable[[DurableFile, int], CountingLocation],
    tmp_path: Path,
    index: int,
    by_bytes: int,
) -> None:
    pointer = committed[1]
    file = pointer.deltas[index]
    location = lengthened(file, by_bytes)
    said = rf"has {file.size_bytes + by_bytes} bytes, at most {file.size_bytes}"
    with (
        small_space(tmp_path / "spill", 1 << 30) as space,
        pytest.raises(DurableFileCorruptedError, match=said),
        open_delta(location, file, DeltaInfo("state-1", 0, 1), space),
    ):
        pytest.fail("it was opened")
    assert sum(location.read_bytes) <= file.size_bytes + 1
    assert not list(tmp_path.rglob("fetched*")), "nothing is left on the disk"


def test_no_more_of_a_manifest_is_read_than_was_recorded(
    committed: tuple[Shard, CommitPointer], lengthened: Callable[[DurableFile, int], CountingLocation]
) -> None:
    pointer = committed[1]
    snapshot = pointer.snapshots[-1]
    location = lengthened(snapshot.manifest, 1)
    with pytest.raises(DurableFileCorruptedError, match=f"at most {snapshot.manifest.size_bytes}"):
        read_manifest(location, pointer, snapshot)
    assert sum(location.read_bytes) == 0
    # A pointer that a tool made is a file of the location too, and may say anything of the manifest.
    claimed = snapshot._replace(manifest=snapshot.manifest._replace(size_bytes=LONG_BYTES))
    location = lengthened(snapshot.manifest, LONG_BYTES - snapshot.manifest.size_bytes)
    with pytest.raises(DurableFileCorruptedError, match=f"at most {MAX_DOCUMENT_BYTES}"):
        read_manifest(location, pointer, claimed)
    assert sum(location.read_bytes) == 0


def test_no_more_of_a_snapshot_is_copied_than_was_recorded(
    committed: tuple[Shard, CommitPointer],
    lengthened: Callable[[DurableFile, int], CountingLocation],
    tmp_path: Path,
) -> None:
    shard, pointer = committed
    snapshot = pointer.snapshots[-1]
    files = read_manifest(shard.state.location, pointer, snapshot).files
    file = max((file.durable for file in files), key=lambda durable: durable.size_bytes)
    location = lengthened(file, LONG_BYTES)
    with pytest.raises(DurableFileCorruptedError, match=f"at most {file.size_bytes}"):
        fetch_snapshot(location, pointer, snapshot, tmp_path, None)
    assert sum(location.read_bytes) <= snapshot.manifest.size_bytes + sum(each.durable.size_bytes for each in files)


def test_nothing_is_written_that_could_not_be_read_back(location: CountingLocation) -> None:
    write_document(location, "most", b" " * MAX_DOCUMENT_BYTES)
    assert location.read("most", MAX_DOCUMENT_BYTES).size == MAX_DOCUMENT_BYTES
    with pytest.raises(LocationNotWritableError, match=r"more would have 16777217 bytes.*more shards"):
        write_document(location, "more", b" " * (MAX_DOCUMENT_BYTES + 1))
    deltas = tuple(DurableFile("shards/0000/deltas/" + "0" * 900, 1, "0" * 32) for _ in range(18_000))
    with pytest.raises(LocationNotWritableError, match=r"shards/0000/initial\.json would have"):
        write_initial_pointer(location, CommitPointer("state-1", 0, version=len(deltas), deltas=deltas))
    head = Head("state-1", "query", "run", 0, 0, (CommitPointer("state-1", 0, len(deltas), deltas),))
    with pytest.raises(LocationNotWritableError, match=r"heads/\S+ would have .*lower snapshot_every_deltas"):
        write_head(location, 1, head)
    assert location.names("") == ["most"]
