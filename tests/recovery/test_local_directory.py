"""The default directory for local copies: one's own, and nobody else's."""

import os
import stat
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from shards import Shard, stored
from statestore.errors import LocalDirectoryError
from statestore.recovery.local_directory import LocalDirectory


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return where the default directory is; it is not there."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"statestore-{os.getuid()}"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_default_directory_is_for_the_user_only(shard: Shard, default: Path) -> None:
    shard.state = replace(shard.state, local=LocalDirectory())
    pointer = shard.batch(shard.start(), {b"k": stored(b"1")})
    assert shard.content(pointer) == {b"k": stored(b"1")}
    assert (default / "state-1" / "shard-0000").is_dir()
    assert mode(default) == 0o700


def test_one_that_an_older_release_has_made_is_closed_to_others(default: Path) -> None:
    default.mkdir()
    default.chmod(0o755)
    assert LocalDirectory().shard("s", 0) == default / "s" / "shard-0000"
    assert mode(default) == 0o700


def test_one_of_another_user_is_refused(shard: Shard, default: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = os.getuid() + 1
    planted = default.with_name(f"statestore-{other}")
    planted.mkdir()
    monkeypatch.setattr(os, "getuid", lambda: other)
    shard.state = replace(shard.state, local=LocalDirectory())
    with pytest.raises(LocalDirectoryError, match=f"it belongs to the user {other - 1}, not to {other}") as refused:
        shard.batch(shard.start(), {b"k": stored(b"1")})
    assert refused.value.path == str(planted)
    assert list(planted.iterdir()) == []
    given = LocalDirectory(planted)
    assert given.shard("s", 0) == planted / "s" / "shard-0000", "who gives one knows whose it is"


def test_what_is_no_directory_is_refused(default: Path) -> None:
    (default.parent / "of somebody").mkdir()
    default.symlink_to(default.parent / "of somebody")
    with pytest.raises(LocalDirectoryError, match="it is not a directory"):
        LocalDirectory().shard("s", 0)
    default.unlink()
    default.write_bytes(b"")
    with pytest.raises(LocalDirectoryError, match="it is not a directory"):
        LocalDirectory().shard("s", 0)
    assert default.read_bytes() == b""
