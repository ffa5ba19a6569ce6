"""Runs simulated plans: `python -m tests.simulation --runs N --seed S`, or `--plan FILE`.

Seeds S, S + 1, ... are run. Each plan that fails is printed with its seed, and the exit code is 1 if there was one.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tests.simulation.oracle import kind_of
from tests.simulation.shrink import shrink
from tests.simulation.simulations import PLANS, AnyPlan, simulate

_PROGRESS_EVERY_S = 10.0


class Outcome(NamedTuple):
    """What came of a seed, as a process of the pool sends it."""

    seed: int
    problem: str | None
    steps: int
    commits: int
    effects: dict[str, int]
    plan: str


def outcome(arguments: tuple[str, int, str]) -> Outcome:
    """Run the plan of a seed on an engine."""
    of, seed, engine = arguments
    result = simulate(PLANS[of].draw(seed, engine))
    assert result.plan.decisions is not None
    effects = Counter(made.effect.value for made in result.plan.decisions)
    return Outcome(
        seed,
        result.problem,
        result.steps,
        result.commits,
        dict(effects),
        result.plan.to_json() if result.problem else "",
    )


def outcomes(of: str, seeds: Iterable[int], engine: str, processes: int) -> Iterator[Outcome]:
    """Yield what comes of each seed, in order."""
    work = ((of, seed, engine) for seed in seeds)
    if processes == 1:
        yield from map(outcome, work)
        return
    with get_context("fork").Pool(processes, gc.freeze) as pool:
        yield from pool.imap(outcome, work, chunksize=4)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="how many plans to run")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--of", default="state", choices=PLANS, help="what is simulated")
    parser.add_argument("--plan", type=Path, help="a file with a plan as JSON, which is run instead")
    parser.add_argument("--engine", default=os.environ.get("ENGINE", "simulated"), choices=("simulated", "rocksdb"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="how many run at once")
    parser.add_argument("--report", type=Path, help="a file that gets a line of JSON for each plan")
    parser.add_argument(
        "--no-shrink", action="store_true", help="print a plan that failed as it is, when it runs alone"
    )
    parser.add_argument("--stop-at", type=int, default=10, help="after how many failures to stop")
    asked = parser.parse_args(arguments)
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of sets of names is part of a run.
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *(arguments or sys.argv[1:])],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    if asked.plan is not None:
        return run_one(PLANS[asked.of].from_json(asked.plan.read_text()), shrinks=False)
    if asked.runs == 1:
        return run_one(PLANS[asked.of].draw(asked.seed, asked.engine), shrinks=not asked.no_shrink)
    return _many(asked)


def run_one(plan: AnyPlan, *, shrinks: bool) -> int:
    """Run a plan, print its trace and what came of it, shrunk if it failed; return the exit code."""
    result = simulate(plan, keep_trace=True)
    print("\n".join(result.trace))
    print(result.plan.describe())
    print(result.problem or "nothing lost, nothing wrong")
    if result.problem is None:
        return 0
    if shrinks:
        small = shrink(result.plan, result.problem)
        again = simulate(small)
        print(f"\nshrunk, for --plan FILE:\n{small.to_json()}\n{small.describe()}\n{again.problem}")
    return 1


def _many(asked: Any) -> int:
    started_s = shown_s = time.monotonic()
    failed: list[Outcome] = []
    effects: Counter[str] = Counter()
    done = steps = commits = 0
    with ExitStack() as opened:
        report = None if asked.report is None else opened.enter_context(open(asked.report, "a", encoding="utf-8"))
        for came in outcomes(asked.of, range(asked.seed, asked.seed + asked.runs), asked.engine, asked.processes):
            done += 1
            steps += came.steps
            commits += came.commits
            effects.update(came.effects.keys())
            if report is not None:
                report.write(json.dumps({**came._asdict(), "plan": None}) + "\n")
            if came.problem is not None:
                failed.append(came)
                print(_failure(came, asked), flush=True)
            if time.monotonic() - shown_s >= _PROGRESS_EVERY_S:
                shown_s = time.monotonic()
                print(
                    f"{done} of {asked.runs} plans, {len(failed)} failed, "
                    f"{done / (shown_s - started_s) * 60:.0f} plans a minute",
                    flush=True,
                )
            if len(failed) >= asked.stop_at:
                break
    took_s = time.monotonic() - started_s
    print(f"{done} plans, {len(failed)} failed; {steps} operations, {commits} batches committed")
    print(f"{took_s:.0f} s, {done / took_s * 60:.0f} plans a minute")
    print("what was decided, by plans:")
    for name, count in sorted(effects.items()):
        print(f"  {count:6d}  {name}")
    if failed:
        print(f"seeds that failed: {' '.join(str(came.seed) for came in failed)}")
    return 1 if failed else 0


def _failure(came: Outcome, asked: Any) -> str:
    assert came.problem is not None
    plan = PLANS[asked.of].from_json(came.plan)
    return f"FAILED: seed {came.seed}: {kind_of(came.problem)}\n{plan.describe()}\n{came.problem}\n" + (
        f"again: make simulate RUNS=1 SEED={came.seed} OF={asked.of}\n"
    )
