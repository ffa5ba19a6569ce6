"""Runs a query under many fault plans: `python -m statestore.testing.soak --query MODULE:FUNCTION --runs N --seed S`.

FUNCTION is a context manager that hands out a MakeQuery; what it needs, such as a Spark session, it starts once. Seeds
S, S + 1, ... are run. Each plan that fails is printed with its seed, and the exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import IO

from statestore.testing.faults.plan import FaultPlan
from statestore.testing.faults.runner import MakeQuery, PlanResult, run_plan

_PROGRESS_EVERY_S = 10.0


class Summary:
    """Counts what came of the plans of a soak."""

    def __init__(self, runs: int) -> None:
        self.runs = runs
        self.results: list[PlanResult] = []
        self._started_s = time.monotonic()

    def add(self, result: PlanResult) -> None:
        """Count one more result."""
        self.results.append(result)

    @property
    def failed(self) -> list[PlanResult]:
        """The results of the plans that found something."""
        return [result for result in self.results if result.problem is not None]

    def progress(self) -> str:
        """Return how far it is, how fast, and how long it will take."""
        done, took_s = len(self.results), time.monotonic() - self._started_s
        each_s = took_s / done if done else 0.0
        left_s = each_s * (self.runs - done)
        return (
            f"{done} of {self.runs} plans, {len(self.failed)} failed, {each_s:.1f} s a plan, "
            f"{left_s / 60:.0f} min {left_s % 60:02.0f} s left"
        )

    def text(self) -> str:
        """Return the summary, of several lines."""
        fired = [result for result in self.results if result.fired]
        distinct = len({result.plan.content for result in self.results})
        struck: Counter[str] = Counter()
        for result in self.results:
            for index in {firing.fault for firing in result.fired}:
                fault = result.plan.faults[index]
                struck[f"{fault.point.value}: {fault.effect.value}"] += 1
        took_s = time.monotonic() - self._started_s
        lines = [
            f"{len(self.results)} plans, {distinct} distinct, {len(fired)} with faults that struck; "
            f"{len(self.failed)} failed",
            f"{sum(result.restarts for result in self.results)} restarts after failures, "
            f"{sum(result.repairs for result in self.results)} of them with a file brought back from the backup",
            f"{took_s:.0f} s, {took_s / max(1, len(self.results)):.1f} s a plan",
            "faults that struck, by plans:",
            *(f"  {count:5d}  {name}" for name, count in sorted(struck.items())),
        ]
        if self.failed:
            lines.append(f"seeds that failed: {' '.join(str(result.plan.seed) for result in self.failed)}")
        return "\n".join(lines)


def soak(
    make_query: MakeQuery,
    *,
    runs: int,
    seed: int,
    directory: Path,
    again: str = "make soak RUNS=1 SEED={seed}",
    report: IO[str] | None = None,
    out: IO[str] = sys.stdout,
) -> Summary:
    """Run the plans of the seeds from `seed` on, and print what happens to `out`.

    `report` gets a line of JSON for each plan. The directory of a plan that failed is left as it is, below
    `directory`. `again` says how to run one seed again.
    """
    summary = Summary(runs)
    shown_s = time.monotonic()
    for number in range(seed, seed + runs):
        plan = FaultPlan.draw(number)
        home = directory / f"seed-{number}"
        shutil.rmtree(home, ignore_errors=True)
        home.mkdir(parents=True)
        result = run_plan(plan, make_query, home)
        summary.add(result)
        if report is not None:
            report.write(json.dumps(result.to_json()) + "\n")
            report.flush()
        if result.problem is None:
            shutil.rmtree(home, ignore_errors=True)
        else:
            print(_failure(result, home, again.format(seed=number)), file=out, flush=True)
        if time.monotonic() - shown_s >= _PROGRESS_EVERY_S or number == seed + runs - 1:
            shown_s = time.monotonic()
            print(summary.progress(), file=out, flush=True)
    return summary


def _failure(result: PlanResult, home: Path, again: str) -> str:
    struck = "\n".join(f"  {result.plan.faults[firing.fault].describe()}: {firing.at}" for firing in result.fired)
    return (
        f"FAILED: seed {result.plan.seed}\n"
        f"plan: {result.plan.describe()}\n"
        f"      {result.plan.to_json()}\n"
        f"struck:\n{struck or '  nothing'}\n"
        f"{result.problem}\n"
        f"left in {home}; again: {again}\n"
    )


def _load(name: str) -> AbstractContextManager[MakeQuery]:
    module, _, function = name.partition(":")
    made: AbstractContextManager[MakeQuery] = getattr(importlib.import_module(module), function)()
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the soak that the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m statestore.testing.soak", description=__doc__)
    parser.add_argument("--query", required=True, help="MODULE:FUNCTION, a context manager that hands out a MakeQuery")
    parser.add_argument("--runs", type=int, default=20, help="how many plans to run")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--directory", type=Path, help="where queries run; default is a temporary directory")
    parser.add_argument("--report", type=Path, help="a file that gets a line of JSON for each plan")
    parser.add_argument("--again", help="what to print as the command that runs {seed} again")
    asked = parser.parse_args(arguments)
    again = asked.again or f"python -m statestore.testing.soak --query {asked.query} --runs 1 --seed {{seed}}"
    directory = asked.directory or Path(tempfile.mkdtemp(prefix="statestore-soak-"))
    with ExitStack() as opened:
        report = None if asked.report is None else opened.enter_context(open(asked.report, "a", encoding="utf-8"))
        make_query = opened.enter_context(_load(asked.query))
        summary = soak(make_query, runs=asked.runs, seed=asked.seed, directory=directory, again=again, report=report)
    print(summary.text())
    return 1 if summary.failed else 0


if __name__ == "__main__":
    sys.exit(main())
