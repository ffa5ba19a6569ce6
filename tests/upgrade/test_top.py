"""The command `top`: a query's heads, in a terminal and in a pipe."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from statestore.recovery.commit.figures import SizeFigures
from statestore.recovery.heads.figures import HeadFigures, LastCall, RecentBatch
from tests.support.serve.live import Live, counted, counting
from tests.support.tools.runs import Tools
from upgrade_tools.cli.exit_codes import ExitCode

_PATIENCE_S = 30.0


@pytest.fixture
def live(tmp_path: Path) -> Live:
    return counting(tmp_path)


def told(live: Live) -> HeadFigures:
    """Figures of two batches: 250 records in half a second, and none."""
    recent = (
        RecentBatch(1, 60_000, 500, 250, 4_321, {"process": 300, "commit": 120, "open": 7, "pack": 9}),
        RecentBatch(live.batch, 120_000, 0, 0, 0, {}),
    )
    sizes = {"counts": SizeFigures(100, 3_000, 750), "per-minute": SizeFigures()}
    return HeadFigures(recent, {0: LastCall(1, 20, sizes), 1: LastCall(1, 90, {"counts": SizeFigures(20, 1_000, 250)})})


def test_a_pipe_gets_what_the_heads_tell_once(live: Live, tools: Tools) -> None:
    live.publish([0, 1], told(live))
    ended = tools("top", live.home / live.name)
    assert (ended.code, ended.err) == (ExitCode.OK, "")
    rows = [" ".join(line.split()) for line in ended.lines if line]
    assert re.fullmatch(r"\S+: batch 2 of query query, [\d,]+ s ago", rows[0])
    assert rows[1:] == [
        "batch time records records/s ms written where the time went, ms",
        "2 00:02:00 0 0 0 bytes",
        "1 00:01:00 250 500 500 4.3 kB process 300, commit 120, pack 9",
        "store entries, about bytes, about of headers",
        "counts 120 4.0 kB 25%",
        "per-minute 0 0 bytes",
        "slowest shards ms in batch version deltas of bytes snapshot of",
        *(row_of(live, shard, ms) for shard, ms in ((1, 90), (0, 20))),
    ]


def row_of(live: Live, shard: int, ms: int) -> str:
    pointer = live.pointer(shard)
    written = sum(file.size_bytes for file in pointer.deltas)
    size = f"{written} bytes" if written < 1_000 else f"{written / 1_000:.1f} kB"
    return f"{shard} {ms} 1 {pointer.version} {len(pointer.deltas)} {size} none"


@pytest.mark.parametrize(
    ("place", "code", "words"),
    [("nowhere", ExitCode.UNKNOWN_LAYOUT, "statestore.json"), ("", ExitCode.USAGE, "there is no head yet")],
)
def test_what_has_no_head_ends_the_command(live: Live, tools: Tools, place: str, code: ExitCode, words: str) -> None:
    shutil.rmtree(live.home / live.name / "heads")
    ended = tools("top", live.home / (place or live.name))
    assert (ended.code, ended.out) == (code, "")
    assert words in " ".join(ended.err.split())


class Terminal:
    """The command in a terminal of its own."""

    def __init__(self, place: Path) -> None:
        master, slave = pty.openpty()
        command = [sys.executable, "-m", "upgrade_tools", "top", str(place), "--poll-seconds", "0.05"]
        environment = {**os.environ, "COLUMNS": "150", "LINES": "40", "TERM": "xterm"}
        self.process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environment)
        os.close(slave)
        self._master = master

    def wait_for(self, words: str) -> None:
        """Read until these words are shown."""
        shown, deadline = "", time.monotonic() + _PATIENCE_S
        while words not in shown:
            assert time.monotonic() < deadline, shown[-3_000:]
            if select.select([self._master], [], [], 0.2)[0]:
                shown += os.read(self._master, 65_536).decode(errors="replace")

    def interrupt(self) -> int:
        """End it as Ctrl-C does; return its exit code."""
        self.process.send_signal(signal.SIGINT)
        with suppress(OSError):  # the other end is closed
            while os.read(self._master, 65_536):
                pass
        os.close(self._master)
        return self.process.wait()


def test_a_terminal_follows_the_heads_and_outlives_a_location_that_is_gone(live: Live) -> None:
    place = live.home / live.name
    terminal = Terminal(place)
    try:
        terminal.wait_for("batch 2 of query")
        live.commit({"fresh": counted("1", 9)})
        terminal.wait_for("batch 3 of query")
        place.rename(live.home / "away")
        terminal.wait_for("no statestore.json")
        (live.home / "away").rename(place)
        live.commit({"fresh": counted("2", 10)})
        terminal.wait_for("batch 4 of query")
        assert terminal.interrupt() == ExitCode.OK
    finally:
        terminal.process.kill()
        terminal.process.wait()
