"""The durable location on a mount that can do less than a disk: what it must be able to do, and what it need not."""

import errno
import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import agree_on_metadata, metadata_of_stores
from tests.support.recovery.fuse_mount import mounted
from tests.support.recovery.shards import TOTALS, keeps_and_restores


def test_a_mount_need_not_append_write_in_between_or_lock(tmp_path: Path) -> None:
    with mounted(tmp_path) as (_, mount):
        for refused in (append, write_in_between, lock):
            with pytest.raises(OSError, match="not supported") as refusal:
                refused(mount / "tried")
            assert refusal.value.errno == errno.EOPNOTSUPP
            (mount / "tried").unlink()
        keeps_and_restores(DurableLocation(mount / "state"), tmp_path)


def append(path: Path) -> None:
    path.write_bytes(b"data")
    with path.open("ab") as file:
        file.write(b"more")


def write_in_between(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        file.write(b"data")
        os.pwrite(file.fileno(), b"x", 1)


def lock(path: Path) -> None:
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


def agree(location: DurableLocation) -> None:
    agree_on_metadata(location, metadata_of_stores([TOTALS], 1, "key"))


@pytest.mark.parametrize("start", [agree, DurableLocation.check_writable])
def test_a_mount_without_rename_is_refused_when_a_query_starts(
    tmp_path: Path, start: Callable[[DurableLocation], None]
) -> None:
    with mounted(tmp_path, "no-rename") as (directory, mount):
        with pytest.raises(LocationNotWritableError, match=r"not supported.*can't rename.*give the URI of the object"):
            start(DurableLocation(mount / "state"))
        assert not [path for path in directory.rglob("*") if path.is_file()], "nothing is left of it"
