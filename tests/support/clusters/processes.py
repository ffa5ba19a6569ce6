"""Processes that tests start, each with all that it starts itself, so that none of them outlives its test.

Each is a session of its own (setsid), which its children stay in: what is left of it is found there, and killed. Should
the test run itself be killed, the kernel ends it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final, TypeVar

S = TypeVar("S", bound="Started")

STOP_TIMEOUT_S: Final = 20
_POLL_INTERVAL_S: Final = 0.05
_END_TIMEOUT_S: Final = 300
"""Who is to be killed in a batch has to start Spark first, on a machine that may be busy."""
_LAUNCHER: Final = Path(__file__).with_name("end_with_parent.py")


class NotInTimeError(AssertionError):
    """What was waited for did not come about."""


class Started:
    """What has started when its context is entered, and has ended when it is left."""

    def __init__(self) -> None:
        self._resources = ExitStack()

    def __enter__(self: S) -> S:
        try:
            self._start()
        except BaseException:
            self._resources.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    def _start(self) -> None:
        raise NotImplementedError


class ProcessSession:
    """A process and all that it has started, as far as they stay in its session."""

    def __init__(self, command: Sequence[str], log: Path, environment: dict[str, str], **popen: Any) -> None:
        self.log = log
        self._gone = False
        launcher = [sys.executable, str(_LAUNCHER), str(os.getpid())]
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*launcher, *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                **popen,
            )

    @property
    def session(self) -> int:
        """The number of the session."""
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def tell(self, line: str) -> None:
        """Send a line to the standard input."""
        assert self._process.stdin is not None
        self._process.stdin.write(line.encode() + b"\n")
        self._process.stdin.flush()

    def finish(self) -> None:
        """Close the standard input, on which the process ends, and what is left after a while by force."""
        self._close_input()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_TIMEOUT_S)
        self.kill()

    def wait(self) -> None:
        """Wait until the process has ended, whoever ends it."""
        wait_until(lambda: not self.runs, "the process does not end", _END_TIMEOUT_S)

    def kill(self) -> None:
        """End every process of the session with SIGKILL and wait until they are gone."""
        if not self._gone:  # later the kernel may give its number to others
            wait_until(lambda: not self.signal(signal.SIGKILL), "there are processes that outlive SIGKILL")
            self._process.wait()
            self._gone = True
        self._close_input()

    def _close_input(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()

    def signal(self, number: signal.Signals, pids: Iterable[int] | None = None) -> list[int]:
        """Send a signal to all processes of the session or to `pids` of them; return which there were."""
        found = [pid for pid in self.pids() if pids is None or pid in pids]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, number)
        return found

    def pids(self) -> list[int]:
        """Return the processes of the session that are not just waiting to be collected."""
        return [pid for pid, session, state in all_processes() if session == self.session and state not in "ZX"]


def all_processes() -> list[tuple[int, int, str]]:
    """Return number, session and state of all processes of the machine."""
    found = []
    for directory in Path("/proc").iterdir():
        if directory.name.isdigit():
            with suppress(FileNotFoundError, ProcessLookupError):
                # The second field is the command in parentheses, and may hold any character.
                fields = (directory / "stat").read_text(errors="replace").rpartition(")")[2].split()
                found.append((int(directory.name), int(fields[3]), fields[0]))
    return found


def wait_until(condition: Callable[[], Any], problem: str, timeout_s: float = 60) -> None:
    """Return as soon as the condition holds. Raises NotInTimeError if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise NotInTimeError(f"{problem} (waited {timeout_s:.0f} s)")
        time.sleep(_POLL_INTERVAL_S)
