"""Processor time and memory of all processes of a session, from /proc (Linux only)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PYTHON: Final = "python"
JAVA: Final = "java"
OTHER: Final = "other"
_PROC: Final = Path("/proc")


@dataclass(frozen=True)
class ProcessTime:
    """What a process has used so far. Pid and start, in ticks since boot, are of one process alone."""

    pid: int
    parent: int
    session: int
    start: int
    cpu_s: float


class ProcessFigures:
    """Figures of some processes, those that have ended since they were last seen included."""

    def __init__(self, processes: Callable[[], Iterable[ProcessTime]], proc: Path = _PROC) -> None:
        self._processes = processes
        self._proc = proc
        self._seen: dict[tuple[int, int], tuple[str, float]] = {}
        self._last: list[int] = []
        """The processes that there were at the last look at their time."""

    def cpu_s(self) -> dict[str, float]:
        """Return the processor time so far, user and system, by kind of process.

        What a process uses between the last call and its end is lost: call it every second or two.
        """
        processes = list(self._processes())
        self._last = [process.pid for process in processes]
        for process in processes:
            identity = process.pid, process.start
            before, _ = self._seen.get(identity, (OTHER, 0.0))
            self._seen[identity] = kind_of_process(process.pid, self._proc) or before, process.cpu_s
        total_s = {PYTHON: 0.0, JAVA: 0.0, OTHER: 0.0}
        for kind, cpu_s in self._seen.values():
            total_s[kind] += cpu_s
        return total_s

    def pss_bytes(self) -> int:
        """Return the memory in use now by the processes of the last look at their time.

        Of a page that several processes share, each counts its part. To look through all processes of the machine
        takes as long as to read their memory, so that is done once for both.
        """
        return sum(pss_bytes(pid, self._proc) for pid in self._last)


class SessionFigures(ProcessFigures):
    """Figures of the processes of a session."""

    def __init__(self, session: int, proc: Path = _PROC) -> None:
        super().__init__(lambda: session_processes(session, proc), proc)


def session_processes(session: int, proc: Path = _PROC) -> Iterator[ProcessTime]:
    """Yield the processes of a session."""
    return (process for process in _processes(proc) if process.session == session)


def descendants(ancestor: int, proc: Path = _PROC) -> Iterator[ProcessTime]:
    """Yield the processes that a process has started, and those that these have."""
    all_processes = list(_processes(proc))
    below = {ancestor}
    while grown := {process.pid for process in all_processes if process.parent in below} - below:
        below |= grown
    return (process for process in all_processes if process.pid in below and process.pid != ancestor)


def _processes(proc: Path) -> Iterator[ProcessTime]:
    for directory in proc.iterdir():
        if directory.name.isdigit():
            with suppress(OSError):  # it has ended meanwhile
                # Behind the name, which may hold anything, field 3 comes first: the parent is field 4.
                fields = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()
                cpu_s = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
                numbers = int(directory.name), int(fields[1]), int(fields[3])
                yield ProcessTime(*numbers, int(fields[19]), cpu_s)


def kind_of_process(pid: int, proc: Path = _PROC) -> str | None:
    """Return the kind of a process by its program; None if it has ended."""
    try:
        program = (proc / str(pid) / "exe").readlink().name
    except OSError:
        return None
    return next((kind for kind in (PYTHON, JAVA) if program.startswith(kind)), OTHER)


def pss_bytes(pid: int, proc: Path = _PROC) -> int:
    """Return the proportional set size of a process; 0 if it has ended."""
    try:
        lines = (proc / str(pid) / "smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    # A process that is just ending has no memory left, and so no such line.
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)
