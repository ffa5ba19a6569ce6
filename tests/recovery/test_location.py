"""The durable location on a local disk, on another filesystem with an atomic rename, and on one that is as HDFS is."""

import errno
import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pytest

from statestore.errors import LocalDirectoryError, LocationError
from statestore.errors.state import LocalDiskFullError, LocationNotWritableError
from statestore.recovery.location.durable_files import LocalDisk, is_partial, partial_name
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.retrying import Retrying
from tests.support.recovery import MAX_BYTES, content
from tests.support.recovery.hdfs_like import HdfsLikeLocation
from tests.support.recovery.power_loss import DiskThatLosesPower, PowerLost
from tests.support.recovery.renaming import Renaming

NAME = "shards/0001/deltas/x"


@pytest.fixture(params=[DurableLocation, Renaming, HdfsLikeLocation])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> DurableLocation:
    return request.param(tmp_path / "a state location")


def test_a_file_is_read_as_it_was_written(location: DurableLocation) -> None:
    location.write(NAME, b"content")
    assert content(pickle.loads(pickle.dumps(location)), NAME) == b"content"
    assert location.names("shards/0001/deltas") == [NAME]
    location.write(NAME, pa.py_buffer(b"other content"))
    assert content(location, NAME) == b"other content"
    assert location.names("shards/0001/deltas") == [NAME], "no partial file is left"
    assert content(location, "shards/0001/y") is None
    assert location.names("nowhere") == []
    below = pickle.loads(pickle.dumps(location.below("shards").below("0001")))
    assert content(below, "deltas/x") == b"other content"


def test_entries_and_directories(location: DurableLocation) -> None:
    location.write("a", b"1")
    location.write("deep/b", b"22")
    location.write("deep/er/c", b"333")
    assert [(entry.name, entry.size_bytes) for entry in location.entries("")] == [("a", 1)]
    assert [(entry.name, entry.size_bytes) for entry in location.entries("deep")] == [("deep/b", 2)]
    assert all((entry.modified_ms or 0) > 1_500_000_000_000 for entry in location.entries("deep"))
    assert location.directories("") == ["deep"]
    assert location.directories("deep") == ["deep/er"]
    assert location.directories("nowhere") == []


def test_a_directory_that_is_made_meanwhile_is_listed_or_not_there_yet(
    location: DurableLocation, tmp_path: Path
) -> None:
    """As the first tasks of a new location do, each of which looks who owns it and then writes that it does."""
    location.write("neighbour", b"")
    path = tmp_path / "a state location/owners"
    done = threading.Event()

    def make_and_remove() -> None:
        while not done.is_set():
            path.mkdir()
            path.rmdir()

    with ThreadPoolExecutor(1) as other:
        making = other.submit(make_and_remove)
        try:
            found = [location.entries("owners") for _ in range(30_000)]
        finally:
            done.set()
        making.result()
    assert not any(found)


def test_deleting_what_is_there_and_what_is_not(location: DurableLocation) -> None:
    location.write("a", b"1")
    location.write("b", b"2")
    location.delete_all(["a", "b", "none"])
    location.delete("no/where")
    assert location.names("") == []


def test_a_file_larger_than_a_chunk_there_and_back(location: DurableLocation, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(os.urandom(17 << 20))
    location.write_file("large", source)
    assert location.entries("")[0].size_bytes == 17 << 20
    assert location.fetch("large", target, MAX_BYTES)
    assert target.read_bytes() == source.read_bytes()
    assert not location.fetch("none", tmp_path / "none", MAX_BYTES)
    assert not (tmp_path / "none").exists()
    with pytest.raises(FileNotFoundError):
        location.write_file("x", tmp_path / "none")


def test_a_source_that_grows_while_it_is_read_is_not_taken(
    location: DurableLocation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"content, and more")
    monkeypatch.setattr("os.path.getsize", lambda _: 7)
    with pytest.raises(LocationNotWritableError, match="was changed while it was read"):
        location.write_file("x", source)
    assert location.names("") == []


@pytest.mark.parametrize("size_bytes", [1, 9 << 20])
def test_a_local_disk_that_a_copy_fails_on_is_not_taken_for_the_location(
    location: DurableLocation, tmp_path: Path, size_bytes: int
) -> None:
    location.write("x", b"c" * size_bytes)
    target = tmp_path / "target"
    # The kernel's own device that is always full.
    target.symlink_to("/dev/full")
    with pytest.raises(LocalDiskFullError, match=r"target \(.*No space left on device.*larger disk") as full:
        location.fetch("x", target, MAX_BYTES)
    assert full.value.path == str(target)
    assert not os.path.lexists(target)
    with pytest.raises(LocalDirectoryError, match=r"nowhere/x: can't be written .*Give a local_dir"):
        location.fetch("x", tmp_path / "nowhere" / "x", MAX_BYTES)


class EndsEarlyOnce(Renaming):
    """A filesystem on which the first file that is opened has lost its second half by the time it is read."""

    def open_filesystem(self) -> tuple[Any, str]:
        filesystem, root = super().open_filesystem()
        opened: list[str] = []

        class Shrinking:
            def open_input_file(self, path: str) -> Any:
                if opened:
                    Path(path).write_bytes(b"all of it")
                source = filesystem.open_input_file(path)
                if not opened:
                    os.truncate(path, len(b"all of it") // 2)
                opened.append(path)
                return source

        return Shrinking(), root


def test_a_file_that_ends_early_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Renaming(tmp_path).write("x", b"all of it")
    assert content(EndsEarlyOnce(tmp_path), "x") == b"all of it"
    assert "ended 4 bytes after byte 0, 9 were expected" in caplog.text


def test_a_copy_that_fails_leaves_no_file(tmp_path: Path) -> None:
    Renaming(tmp_path).write("x", b"all of it")
    location = EndsEarlyOnce(tmp_path, retrying=Retrying(total_s=0))
    with pytest.raises(LocationError, match=r"x can't be copied to .*target \(.*ended 4 bytes after byte 0"):
        location.fetch("x", tmp_path / "target", MAX_BYTES)
    assert not (tmp_path / "target").exists()


def test_checking_whether_it_can_be_written_leaves_nothing(location: DurableLocation) -> None:
    location.check_writable()
    assert location.names("") == []


def test_partial_files_are_known(location: DurableLocation) -> None:
    location.write(partial_name("x"), b"half")
    location.write("x", b"whole")
    assert [is_partial(name) for name in location.names("")] == [False, True]
    assert is_partial(partial_name("x"))
    assert not is_partial("x")


def test_a_location_made_of_words_has_its_own_path() -> None:
    location = DurableLocation("hdfs://namenode:8020/states/a?replication=3")
    assert location.path("x") == "hdfs://namenode:8020/states/a/x"
    assert str(location) == "hdfs://namenode:8020/states/a?replication=3"
    # Whether or not there is a client library on this machine.
    assert DurableLocation("s3://key:secret@bucket/a?region=eu-west-1").path("x") == "s3://bucket/a/x"


def test_what_was_written_is_there_after_a_loss_of_power(tmp_path: Path) -> None:
    disk = DiskThatLosesPower()
    location = DurableLocation(tmp_path / "new" / "state", disk=disk)
    location.write(NAME, b"content")
    location.write("shards/0001/deltas/y", b"more content")
    location.write("shards/0002/deltas/x", b"other content")
    disk.lose_power()
    after = DurableLocation(tmp_path / "new" / "state")
    assert content(after, NAME) == b"content"
    assert content(after, "shards/0001/deltas/y") == b"more content"
    assert content(after, "shards/0002/deltas/x") == b"other content"


def test_power_lost_at_any_moment_leaves_a_file_whole_or_not_there(tmp_path: Path) -> None:
    found = []
    for operations in range(100):
        root = tmp_path / str(operations)
        root.mkdir()
        disk = DiskThatLosesPower()
        location = DurableLocation(root / "state", disk=disk)
        location.write("statestore.json", b"old")
        disk.operations_left = operations
        try:
            location.write("statestore.json", b"newer")
            location.write(NAME, b"content")
        except PowerLost:
            disk.lose_power()
            after = DurableLocation(root / "state")
            found.append((content(after, "statestore.json"), content(after, NAME)))
            continue
        break
    assert set(found) <= {(b"old", None), (b"newer", None), (b"newer", b"content")}
    assert found[0] == (b"old", None)
    assert found[-1][0] == b"newer"
    assert 10 < len(found) < 30, "one of each operation of both writes"


def test_directories_that_another_process_made_are_synced_too(tmp_path: Path) -> None:
    disk = DiskThatLosesPower()
    # As if by another process that has not synced them yet.
    for path in ("state", "state/shards", "state/shards/0001", "state/shards/0001/deltas"):
        disk.make_directory(str(tmp_path / path))
    DurableLocation(tmp_path / "state", disk=disk).write(NAME, b"content")
    disk.lose_power()
    assert content(DurableLocation(tmp_path / "state"), NAME) == b"content"


def test_a_directory_that_is_removed_is_made_again(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path / "state")
    location.write(NAME, b"content")
    location.delete(NAME)
    (tmp_path / "state/shards/0001/deltas").rmdir()
    location.write(NAME, b"content")
    assert content(location, NAME) == b"content"


class FailingDisk(LocalDisk):
    """Fails the named operation with an error of the operating system; appending, after half of the data."""

    def __init__(self, operation: str, number: int) -> None:
        super().__init__()
        self._error = OSError(number, os.strerror(number))
        self._operation = operation

    def create(self, path: str) -> BinaryIO:
        if self._operation == "create":
            raise self._error
        return super().create(path)

    def append(self, file: BinaryIO, data: bytes | pa.Buffer) -> None:
        if self._operation == "append":
            super().append(file, memoryview(data)[: memoryview(data).nbytes // 2].tobytes())
            raise self._error
        super().append(file, data)

    def sync_file(self, file: BinaryIO) -> None:
        if self._operation == "sync_file":
            raise self._error
        super().sync_file(file)


@pytest.mark.parametrize(
    ("operation", "number", "remedy"),
    [
        ("append", errno.ENOSPC, "is full: make space"),
        ("sync_file", errno.EDQUOT, "is full: make space"),
        ("create", errno.EROFS, "is mounted read-only"),
        ("create", errno.EACCES, "is read-only or closed to user"),
        ("sync_file", errno.EIO, "Give a state_location"),
    ],
)
def test_a_local_disk_that_fails_leaves_nothing_and_says_what_to_do(
    tmp_path: Path, operation: str, number: int, remedy: str
) -> None:
    location = DurableLocation(tmp_path / "state", disk=FailingDisk(operation, number))
    (tmp_path / "source").write_bytes(b"content")
    for write in (lambda: location.write("x", b"content"), lambda: location.write_file("x", tmp_path / "source")):
        with pytest.raises(LocationNotWritableError, match=f"{os.strerror(number)}.*{remedy}"):
            write()
    assert list((tmp_path / "state").iterdir()) == []


def test_a_location_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(LocationNotWritableError, match="state"):
        DurableLocation(tmp_path / "file" / "state").write("x", b"")
    with pytest.raises(LocationError, match="nonsense://x"):
        DurableLocation("nonsense://x/y").check_writable()
