"""What several runs of a peer come to, and the file of results that others read."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypedDict

from benchmarks.peers.run import RunFigures


class Rates(TypedDict):
    """Records a second."""

    min: float
    median: float
    max: float


class ProcessorTime(TypedDict):
    """Microseconds a record in the steady part, in the median."""

    python: float
    java: float


class PeerFigures(TypedDict):
    """A peer's entry in the file of results; what is not a rate is the median of its runs."""

    peer: str
    records_per_s: Rates
    steady_cpu_us: ProcessorTime
    broker_cpu_us: float
    peak_pss_mb: float
    first_output_s: float
    looking_cores: float
    records: int
    rounds: int


def peer_figures(peer: str, records: int, runs: Sequence[RunFigures]) -> PeerFigures:
    """Return what runs of a peer come to; there is one at least."""
    rates = [run.records_per_s for run in runs]

    def median(figure: Callable[[RunFigures], float], digits: int) -> float:
        return round(statistics.median(map(figure, runs)), digits)

    return {
        "peer": peer,
        "records_per_s": {
            "min": round(min(rates), 1),
            "median": round(statistics.median(rates), 1),
            "max": round(max(rates), 1),
        },
        "steady_cpu_us": {
            "python": median(lambda run: run.python_us, 2),
            "java": median(lambda run: run.java_us, 2),
        },
        "broker_cpu_us": median(lambda run: run.broker_us, 2),
        "peak_pss_mb": median(lambda run: run.peak_pss_mb, 1),
        "first_output_s": median(lambda run: run.first_output_s, 2),
        "looking_cores": median(lambda run: run.looking_cores, 4),
        "records": records,
        "rounds": len(runs),
    }


def write_figures(path: Path, figures: Sequence[PeerFigures]) -> None:
    """Write the file of results."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(figures, indent=2) + "\n")
