"""One run of a peer, from its start to its last record, measured from outside, the same way for all."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.peers.failure import PeerError, tail
from benchmarks.peers.process_figures import JAVA, PYTHON, SessionFigures
from tests.support.clusters.processes import ProcessSession

ROOT: Final = Path(__file__).parents[2]
LOOKS_PER_S: Final = 10
"""How often it is asked how many records are done."""
_LOOK_S, _SAY_S = 2.0, 5.0
_SETTLE_S, _STALL_S = 1.0, 300.0
_NOT_HANDED_ON: Final = ("SPARK_SUBMIT_OPTS", "PYSPARK_SUBMIT_ARGS", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS")
"""Options of other people's virtual machines, such as those that `make test` sets for short-lived ones."""


@dataclass(frozen=True)
class RunFigures:
    """What a run took. Processor time is in microseconds a record, in the steady part, as is the rate."""

    records_per_s: float
    python_us: float
    java_us: float
    broker_us: float
    peak_pss_mb: float
    first_output_s: float
    total_s: float
    looking_cores: float
    """What this process took of a core to look at the peer; what the broker took to answer is not in it."""


class _Sample(NamedTuple):
    at_s: float
    records: int
    peer: dict[str, float]
    broker: dict[str, float]
    own_s: float
    """Processor time of this process."""


class _Watch:
    """What is seen of a run: the first output, where the steady part begins, and the last output so far."""

    def __init__(self, peer: SessionFigures, broker: SessionFigures, records: int, steady_from: float) -> None:
        self._peer = peer
        self._broker = broker
        self._records = records
        self._steady_from = steady_from
        self._started_s = time.monotonic()
        self._looked_s = 0.0
        self._changed_s = 0.0
        self._peak_pss_bytes = 0
        self._first_output_s = 0.0
        self._steady: _Sample | None = None
        self._last: _Sample | None = None
        self.output_records = 0

    @property
    def stalled_s(self) -> float:
        """How long nothing has come out."""
        return self._now_s() - self._changed_s

    @property
    def is_done(self) -> bool:
        """Whether all is out. An offset may be that of a transaction's end, so it must be quiet for a while."""
        return self.output_records >= self._records and self.stalled_s > _SETTLE_S

    @property
    def progress(self) -> str:
        """How far it is, for who watches; its rate is one since the first output."""
        if not self.output_records:
            return f"no output after {self._now_s():.0f} s"
        rate = self.output_records / max(self._now_s() - self._first_output_s, 1 / LOOKS_PER_S)
        return f"{self.output_records:,} records, {rate:,.0f} records/s"

    def look(self, output_records: int) -> None:
        """Take how much has come out by now."""
        now_s = self._now_s()
        if output_records != self.output_records:
            self._first_output_s = self._first_output_s or now_s
            self._changed_s, self.output_records = now_s, output_records
            if self._steady is None and output_records >= self._steady_from * self._records:
                self._steady = self._sample(now_s)
            if output_records >= self._records:
                self._last = self._sample(now_s)
        if now_s - self._looked_s > _LOOK_S:
            self._looked_s = now_s
            self._peer.cpu_s()  # so that the time of those that end is not lost
            self._peak_pss_bytes = max(self._peak_pss_bytes, self._peer.pss_bytes())

    def figures(self) -> RunFigures:
        """Return the figures of a run that is done. Raises PeerError if there is no steady part."""
        if self._steady is None or self._last is None or self._steady.records >= self._records:
            raise PeerError("all came out at once: more records are needed to measure it", output="")
        # The end of a transaction counts as a record here; in a quarter of a million there are about a hundred.
        records, seconds = self._records - self._steady.records, self._last.at_s - self._steady.at_s

        def us(before: dict[str, float], after: dict[str, float], kind: str) -> float:
            return (after[kind] - before[kind]) / records * 1e6

        return RunFigures(
            records_per_s=records / seconds,
            python_us=us(self._steady.peer, self._last.peer, PYTHON),
            java_us=us(self._steady.peer, self._last.peer, JAVA),
            broker_us=us(self._steady.broker, self._last.broker, JAVA),
            peak_pss_mb=self._peak_pss_bytes / 1e6,
            first_output_s=self._first_output_s,
            total_s=self._last.at_s,
            looking_cores=(self._last.own_s - self._steady.own_s) / seconds,
        )

    def _sample(self, now_s: float) -> _Sample:
        return _Sample(now_s, self.output_records, self._peer.cpu_s(), self._broker.cpu_s(), time.process_time())

    def _now_s(self) -> float:
        return time.monotonic() - self._started_s


def run_peer(
    command: Sequence[str],
    records: int,
    *,
    steady_from: float,
    output_records: Callable[[], int],
    broker_session: int,
    scratch: Path,
    log: Path,
    say: Callable[[str], None],
) -> RunFigures:
    """Start a peer, wait until all records are out, end it and all its processes; return what it took.

    Figures are of the records from the part `steady_from` on. `output_records` says how many are done, as what has
    come out, `say` is told every few seconds how it goes.

    Raises PeerError if it ends before, or nothing comes out for minutes, with the end of its log.
    """
    session = ProcessSession(command, log, _environment(scratch), cwd=ROOT, stdin=subprocess.DEVNULL)
    try:
        watch = _Watch(SessionFigures(session.session), SessionFigures(broker_session), records, steady_from)
        said_s = time.monotonic()
        while not watch.is_done:
            ran = session.runs  # before the look: what it wrote last is to be seen
            watch.look(output_records())
            if not ran and watch.output_records < records:
                raise PeerError(f"ended after {watch.output_records:,} records", output=_tail_of(log))
            if watch.stalled_s > _STALL_S:
                raise PeerError(
                    f"wrote nothing for {_STALL_S:.0f} s, after {watch.output_records:,} records", output=_tail_of(log)
                )
            if time.monotonic() - said_s > _SAY_S:
                said_s = time.monotonic()
                say(watch.progress)
            time.sleep(1 / LOOKS_PER_S)
        return watch.figures()
    finally:
        session.kill()


def _environment(scratch: Path) -> dict[str, str]:
    """Return the environment of a peer: what it leaves behind when it is killed goes with its scratch directory."""
    kept = {name: value for name, value in os.environ.items() if name not in _NOT_HANDED_ON}
    temporary = scratch / "tmp"
    temporary.mkdir()
    return {
        **kept,
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_DIRS": str(temporary),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "TMPDIR": str(temporary),
        "JDK_JAVA_OPTIONS": f"-Djava.io.tmpdir={temporary}",
    }


def _tail_of(log: Path) -> str:
    return tail(log.read_text(errors="replace"))
