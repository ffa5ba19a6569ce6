"""Local copies are one's own, and nobody else's: in the default directory, and below one that is given."""

import os
import signal
import stat
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from textwrap import dedent

import pytest

from statestore.errors import LocalDirectoryError
from statestore.recovery.local.local_directory import LocalDirectory, make_shard_directory, temporary_copies
from statestore.view import StateView
from tests.support.recovery.shards import Shard, stored
from tests.support.view.counts import COUNTS, put
from tests.support.view.written_state import WrittenState


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


def test_what_is_made_below_a_given_directory_is_for_the_user_only(shard: Shard, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o755)
    shard.state = replace(shard.state, local=LocalDirectory(given))
    pointer = shard.batch(shard.start(), {b"k": stored(b"1")})
    state, copies = given / "state-1", given / "state-1" / "shard-0000"
    assert (mode(state), mode(copies)) == (0o700, 0o700)
    # Those that an older release has made are closed; the user's own one never.
    state.chmod(0o755)
    copies.chmod(0o750)
    assert shard.content(pointer) == {b"k": stored(b"1")}
    assert (mode(given), mode(state), mode(copies)) == (0o755, 0o700, 0o700)


def test_below_a_given_directory_what_belongs_to_another_user_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = LocalDirectory(tmp_path).shard("s", 0)
    path.mkdir(parents=True)
    path.parent.chmod(0o750)
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    make_shard_directory(path)
    assert mode(path.parent) == 0o750


def test_a_state_on_another_disk_by_a_link_is_gone_on_with(shard: Shard, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "state-1").symlink_to(tmp_path / "elsewhere")
    shard.state = replace(shard.state, local=LocalDirectory(tmp_path / "given"))
    shard.batch(shard.start(), {b"k": stored(b"1")})
    assert mode(tmp_path / "elsewhere") == 0o755
    assert mode(tmp_path / "elsewhere" / "shard-0000") == 0o700


KILLED = """
    import os, signal, sys
    from pathlib import Path
    from statestore.view import StateView

    with StateView(sys.argv[1]) as view:
        view.shard(0)
        print("opened", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_dead_processes_left_goes_with_the_next_start(default: Path, tmp_path: Path) -> None:
    state = WrittenState(tmp_path, COUNTS)
    state.batch(put(a=1))
    place = default / "temporary"
    with temporary_copies() as alive:
        (alive / "here").touch()
        with temporary_copies() as other:
            assert (alive, other) == (place / "0", place / "1")
            killed = [sys.executable, "-c", dedent(KILLED), str(state.home / "state")]
            ended = subprocess.run(killed, capture_output=True, text=True, env={**os.environ, "TMPDIR": str(tmp_path)})
            assert (ended.stdout, ended.returncode) == ("opened\n", -signal.SIGKILL)
            assert any((place / "2").iterdir())
        assert not other.exists()
        with StateView(state.location):
            assert {path.name for path in place.iterdir() if path.is_dir()} == {"0", "1"}
        assert (alive / "here").exists()
    assert {path.suffix for path in place.iterdir()} == {".lock"}
    (tmp_path / "work").mkdir()
    with temporary_copies(tmp_path / "work") as given:
        assert given == tmp_path / "work" / default.name / "temporary" / "0"
