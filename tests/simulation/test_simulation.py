"""The simulation is what it says: the same for a seed, replayed from what was written down, shrunk, and it finds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pytest

from statestore.recovery.local.marker import LocalMarker
from tests.simulation.command import run_one
from tests.simulation.decisions import Decision, Effect
from tests.simulation.plan import Plan, Step
from tests.simulation.shrink import shrink
from tests.simulation.simulations import PLANS as DRAWN
from tests.simulation.simulations import simulate

PLANS = sorted((Path(__file__).parent / "plans").glob("*.json"))

QUIET = Plan(
    seed=3,
    shards=1,
    stores=("prices", "quotes", "sessions", "totals", "windows"),
    location="objects",
    machines=1,
    snapshot_every=2,
    retained=1,
    task_failures=2,
    overwrites=True,
    story=(Step("run", 0, 8), Step("copy", 0, amount=1), Step("run", 1, 3, accept=True)),
    decisions=(),
)


@contextmanager
def versions_put_again() -> Iterator[None]:
    """Have copies apply deltas again whatever these hold, as they once did: versions may be put twice."""
    counted = LocalMarker.count_applied

    def counted_again(marker: LocalMarker, chain: Sequence[str]) -> int | None:
        return counted(marker._replace(repeatable=True), chain)

    with patch.object(LocalMarker, "count_applied", counted_again):
        yield


@pytest.mark.parametrize("path", PLANS, ids=lambda path: path.stem)
def test_what_was_found_once_is_mended(path: Path) -> None:
    assert simulate(Plan.from_json(path.read_text())).problem is None


@pytest.mark.parametrize(("of", "seed"), [("state", 61), ("state", 90), ("sink", 3), ("sink", 40), ("stages", 706)])
def test_a_seed_makes_the_same_trace_each_time_and_so_does_what_was_written_down(of: str, seed: int) -> None:
    plans = DRAWN[of]
    first, second = (simulate(plans.draw(seed), keep_trace=True) for _ in range(2))
    assert first.trace == second.trace
    assert len(first.trace) > 100
    assert first.plan.decisions
    written = plans.from_json(first.plan.to_json())
    assert written == first.plan
    assert simulate(written, keep_trace=True).trace == first.trace


def traced(plan: Plan):
    return simulate(plan, keep_trace=True)


@pytest.mark.parametrize("location", ["objects", "hdfs", "disk"])
@pytest.mark.parametrize("engine", ["simulated", "rocksdb"])
def test_both_engines_hold_the_same_on_every_kind_of_location(engine: str, location: str) -> None:
    attempt = "driver1.b10.s0.a1"
    kills = (
        Decision("driver0.b4.s0.a1", "db.close", 1, Effect.KILL),
        Decision("driver0.b6.s0.a1", "db.closed", 1, Effect.KILL),
        Decision("m0.0.upload1", "location.write of snapshot file", 2, Effect.KILL),
        Decision(attempt, "db.write totals", 1, Effect.FLUSH),
        Decision(attempt, "db.flush totals", 1, Effect.KILL_AFTER),
    )
    result = traced(replace(QUIET, engine=engine, location=location, decisions=kills))
    assert result.problem is None
    assert result.commits >= 17
    assert [line.split()[1] for line in result.trace if "<<" in line]


def test_a_plan_that_fails_is_shrunk_to_what_it_takes() -> None:
    recorded = Plan.from_json((Path(__file__).parent / "plans/catch_up_was_killed_behind_a_flush.json").read_text())
    assert recorded.decisions is not None
    beside = (
        Decision("driver0.b1.s0.a1", "spark.read", 1, Effect.PAUSE, 5),
        Decision("operator", "operator", 1, Effect.PAUSE, 2),
    )
    big = replace(
        recorded,
        machines=2,
        story=(*recorded.story, Step("rest", amount=5)),
        decisions=(*recorded.decisions, *beside),
    )
    with versions_put_again():
        failed = simulate(recorded)
        assert failed.problem is not None
        assert failed.problem.startswith("wrong content")
        assert simulate(big).problem is not None
        small = shrink(big, failed.problem)
    assert (small.decisions, small.story, small.machines) == (recorded.decisions, recorded.story, 1)


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    ran = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(ran, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": os.getcwd()})


def test_fixed_plans_find_nothing(tmp_path: Path) -> None:
    report = tmp_path / "report.jsonl"
    ran = command("--runs", "150", "--seed", "300", "--report", str(report))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "150 plans, 0 failed" in ran.stdout
    came = [json.loads(line) for line in report.read_text().splitlines()]
    assert [line["seed"] for line in came] == list(range(300, 450))
    assert sum(line["commits"] for line in came) > 500
    struck = {effect for line in came for effect in line["effects"]}
    assert struck == {effect.value for effect in Effect if effect is not Effect.FETCH_FAILED}  # which takes two stages


def test_a_plan_that_fails_is_printed_with_its_trace_and_shrunk(capsys: pytest.CaptureFixture[str]) -> None:
    plan = Plan.from_json((Path(__file__).parent / "plans/catch_up_was_killed_behind_a_flush.json").read_text())
    assert run_one(plan, shrinks=True) == 0
    assert capsys.readouterr().out.rstrip().endswith("nothing lost, nothing wrong")
    with versions_put_again():
        assert run_one(plan, shrinks=True) == 1
    printed = capsys.readouterr().out
    assert "driver0.b4.s0.a1 db.flush quotes #1 quotes:default  << kill after" in printed
    shrunk = printed.split("shrunk, for --plan FILE:\n")[1].splitlines()[0]
    assert Plan.from_json(shrunk).decisions == plan.decisions
    assert "wrong content" in printed
