"""Spill spaces for tests: small ones, and ones on a full disk."""

import subprocess
import sys
from pathlib import Path

import pytest

from statestore.bytestore.engines.memory_budget import MIN_TASK_BYTES, MemoryBudget
from statestore.bytestore.write_sets.spilling import SpillSpace

SMALL = MemoryBudget(MIN_TASK_BYTES)
_ON_SMALL_DISK = 'mount -t tmpfs -o size="$2" none "$1" || exit 77; shift 2; exec "$@"'
_NOT_PERMITTED = 77


def small_space(directory: Path, pending_bytes: int) -> SpillSpace:
    """Return a space that less may be held in memory with than any budget gives."""
    space = SpillSpace(directory, SMALL)
    space.pending.limit_bytes = pending_bytes
    return space


def run_on_small_disk(disk: Path, size_bytes: int, program: str, *arguments: str) -> str:
    """Run a Python program with a disk of that size mounted at `disk`, for it alone; return what it prints.

    Skips the test where the system lets nobody mount anything.
    """
    disk.mkdir()
    shell = ["unshare", "-Urm", "bash", "-c", _ON_SMALL_DISK, "bash", str(disk), str(size_bytes)]
    command = [*shell, sys.executable, "-c", program, str(disk), *arguments]
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, env=environment)
    if done.returncode == _NOT_PERMITTED or "unshare failed" in done.stderr:
        pytest.skip(f"mounting a small disk is not permitted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout
