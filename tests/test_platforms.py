"""What statestore says where it can't run, and what it does where the operating system is not Linux."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from statestore.errors.new_state import DirectoryInUseError
from tests.support.tools.lock_holders import file_locked_elsewhere
from upgrade_tools.migration import locks


def last_line(program: str) -> str:
    """Return the last line that a process of Python says whose program fails."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    return done.stderr.splitlines()[-1]


@pytest.mark.parametrize("module", ["statestore", "upgrade_tools.states.state", "statestore.testing.jars"])
def test_windows_is_refused_in_a_sentence(module: str) -> None:
    # What is asked of this machine first is cached, and no more asked by the other one's name.
    as_windows = "import runpy, sys, sysconfig; sysconfig.get_config_vars(); sys.platform = 'win32'"
    found = last_line(f"{as_windows}; runpy.run_module({module!r}, run_name='__main__')")
    assert found.startswith("statestore.errors.run.OperatingSystemError: statestore runs on Linux")
    assert "not on Windows" in found
    assert "WSL 2" in found


def test_a_lock_of_macos_is_laid_out_as_apple_has_it() -> None:
    # off_t start, off_t length, pid_t process, short type, short whence: sys/fcntl.h of macOS.
    packed = locks._FLOCKS["darwin"](fcntl.F_WRLCK)
    assert len(packed) == 24
    assert struct.unpack_from("=hh", packed, 20) == (fcntl.F_WRLCK, os.SEEK_SET)
    assert not any(packed[:20])
    assert set(locks._FLOCKS["linux"](fcntl.F_WRLCK)) == set(packed)


def test_without_locks_of_open_files_a_directory_in_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "_SET_LOCK", None)
    task = tmp_path / "0_0"
    task.mkdir()
    (task / "LOCK").touch()
    with (
        file_locked_elsewhere(task / "LOCK") as said,
        pytest.raises(DirectoryInUseError),
        locks.exclude_applications([task], create=True),
    ):
        assert said == "held"
    with locks.exclude_applications([task], create=True):
        assert [path.name for path in task.parent.iterdir()] == ["0_0"]
