"""Processes that user code forks, and that live on: none of them keeps a lock, or gives back one that is in use."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from statestore.recovery.local.local_directory import FileLock
from tests.support.recovery.shards import Shard, stored

FORKS = 17
"""One more than a shard may have copies."""


@pytest.fixture
def fork() -> Iterator[Callable[[], int]]:
    """Fork a child that does nothing until the test is over; return its number."""
    children: list[int] = []

    def live_on() -> int:
        with warnings.catch_warnings():
            # That other threads may hold locks then is no matter to one that does nothing.
            warnings.simplefilter("ignore", DeprecationWarning)
            child = os.fork()
        if child == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            while True:
                signal.pause()
        children.append(child)
        return child

    yield live_on
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_shard_opens_again_while_forks_of_all_its_batches_live_on(shard: Shard, fork: Callable[[], int]) -> None:
    pointer = shard.start()
    for number in range(FORKS):
        with shard.open(pointer) as batch:
            batch.stores["totals"].put(b"k", stored(b"%d" % number))
            fork()
            pointer = batch.commit()
    assert shard.content(pointer) == {b"k": stored(b"%d" % (FORKS - 1))}
    assert [path.name for path in shard.copy.parent.iterdir() if path.is_dir()] == ["copy-0"], (
        "one copy served them all"
    )


HOLDER = """
import os, signal, sys
from pathlib import Path
from statestore.recovery.local.local_directory import FileLock

lock = FileLock(Path(sys.argv[1]))
assert lock.acquire()
if os.fork() == 0:
    print("held", flush=True)  # the fork says it: only then has it closed what it inherited
signal.pause()
"""


def test_a_killed_process_gives_its_lock_back_though_a_fork_of_it_lives_on(tmp_path: Path) -> None:
    path = tmp_path / "a.lock"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, path],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == "held\n"
        lock = FileLock(path)
        assert not lock.acquire()
        holder.kill()
        holder.wait()
        assert lock.acquire()
        lock.release()
    finally:
        os.killpg(holder.pid, signal.SIGKILL)
        holder.stdout.close()


def test_a_fork_that_unwinds_does_not_give_back_the_lock_of_its_parent(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "a.lock")
    assert lock.acquire()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        lock.release()
        os._exit(0)
    os.waitpid(child, 0)
    assert not FileLock(tmp_path / "a.lock").acquire()
    lock.release()
    again = FileLock(tmp_path / "a.lock")
    assert again.acquire()
    again.release()


def test_a_lock_is_given_back_though_a_fork_that_python_did_not_see_lives_on(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "a.lock")
    assert lock.acquire()
    child = ctypes.PyDLL(None).fork()
    if child == 0:
        while True:
            signal.pause()
    try:
        lock.release()
        again = FileLock(tmp_path / "a.lock")
        assert again.acquire()
        again.release()
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
