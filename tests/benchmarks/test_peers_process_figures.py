"""Processor time and memory of a peer's processes, as its benchmark reads them from /proc."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.process_figures import JAVA, OTHER, PYTHON, SessionFigures, kind_of_process, pss_bytes
from tests.support.clusters.processes import ProcessSession, wait_until

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Two processes of the same session: a shell, and Python, which works until it has used a tenth of a second.
WORKS = "import time\nwhile time.process_time() < 0.1: pass\nprint('worked', flush=True)\ntime.sleep(600)"


@pytest.fixture
def session(tmp_path: Path) -> Iterator[ProcessSession]:
    command = ["sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", WORKS]
    session = ProcessSession(command, tmp_path / "log", dict(os.environ), stdin=subprocess.DEVNULL)
    try:
        yield session
    finally:
        session.kill()


def write_process(
    proc: Path, pid: int, *, session: int, program: str, cpu_s: float, start: int = 1, name: str = "name"
) -> None:
    """Write what the kernel says of a process, half of its time in each of user and system."""
    directory = proc / str(pid)
    directory.mkdir(parents=True, exist_ok=True)
    half = round(cpu_s * TICKS_PER_S / 2)
    fields = ["S", "1", "1", str(session), *["0"] * 7, str(half), str(half), *["0"] * 6, str(start)]
    (directory / "stat").write_text(f"{pid} ({name}) {' '.join(fields)}\n")
    (directory / "exe").unlink(missing_ok=True)
    (directory / "exe").symlink_to(f"/usr/bin/{program}")


def test_real_processes_are_told_apart(session: ProcessSession) -> None:
    wait_until(lambda: session.log.read_text() == "worked\n", "Python has not worked")
    figures = SessionFigures(session.session)
    assert figures.cpu_s()[PYTHON] >= 0.05
    assert figures.cpu_s()[JAVA] == 0
    assert figures.pss_bytes() > 1_000_000
    session.kill()
    assert figures.pss_bytes() == 0
    assert figures.cpu_s()[PYTHON] >= 0.05, "the time of those that have ended is gone"


def test_this_process() -> None:
    assert kind_of_process(os.getpid()) == PYTHON
    resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert 1_000_000 < pss_bytes(os.getpid()) < 2 * resident


def test_only_processes_of_the_session_count_each_by_its_program(tmp_path: Path) -> None:
    write_process(tmp_path, 10, session=10, program="python3.11", cpu_s=2)
    write_process(tmp_path, 11, session=10, program="java", cpu_s=4)
    write_process(tmp_path, 12, session=10, program="python3", cpu_s=6, name="a) name (of 7")
    write_process(tmp_path, 13, session=10, program="bash", cpu_s=8)
    write_process(tmp_path, 14, session=99, program="java", cpu_s=10)
    (tmp_path / "meminfo").write_text("")
    assert SessionFigures(10, tmp_path).cpu_s() == {PYTHON: 8, JAVA: 4, OTHER: 8}


def test_a_number_that_is_given_again_is_another_process(tmp_path: Path) -> None:
    figures = SessionFigures(10, tmp_path)
    write_process(tmp_path, 10, session=10, program="java", cpu_s=6, start=1)
    assert figures.cpu_s()[JAVA] == 6
    write_process(tmp_path, 10, session=10, program="java", cpu_s=2, start=2)
    assert figures.cpu_s()[JAVA] == 8


def test_a_process_that_becomes_another_program_is_that(tmp_path: Path) -> None:
    figures = SessionFigures(10, tmp_path)
    write_process(tmp_path, 10, session=10, program="python3", cpu_s=2)
    assert figures.cpu_s()[PYTHON] == 2
    write_process(tmp_path, 10, session=10, program="java", cpu_s=4)
    assert figures.cpu_s() == {PYTHON: 0, JAVA: 4, OTHER: 0}
    (tmp_path / "10" / "exe").unlink()  # as that of a process that has ended, and was not waited for
    assert figures.cpu_s() == {PYTHON: 0, JAVA: 4, OTHER: 0}
