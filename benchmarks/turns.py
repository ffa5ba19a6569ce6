"""Runs that take turns, so that a slow minute of a shared machine strikes all of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

MIN_ROUND_S = 0.05
"""Of work that takes less than a scheduler's turn: a round of it is several runs."""
Clock = Callable[[], float]
"""Seconds since some start: `time.perf_counter`, or `time.process_time` for those of all threads of this process."""


def seconds(run: Callable[[], object], clock: Clock = time.perf_counter) -> float:
    """Return how long `run` takes."""
    started = clock()
    run()
    return clock() - started


def mean_us(run: Callable[[], object], operations: int, clock: Clock = time.perf_counter) -> float:
    """Return microseconds an operation of `operations` in a run, the mean of as many runs as fill a round."""
    runs, started = 0, clock()
    while (elapsed_s := clock() - started) < MIN_ROUND_S:
        run()
        runs += 1
    return elapsed_s / runs / operations * 1e6


def best(runs: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, float]:
    """Return the least figure of each run, over rounds in which each has its turn: other work only ever adds time."""
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            least[name] = min(least[name], run())
    return least
