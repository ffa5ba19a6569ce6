"""A fixed set of fault plans on the real query, in a Spark session of its own, as `make soak` runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from statestore.testing.faults import Effect, FaultPlan, Point
from tests.support.documentation import ROOT

FIRST_SEED, PLANS = 4167, 4


@pytest.mark.slow
def test_the_fixed_set_of_plans_loses_nothing(tmp_path: Path) -> None:
    search = os.pathsep.join([str(ROOT), str(ROOT / "docs" / "examples")])
    command = [sys.executable, "-m", "statestore.testing.soak", "--query", "tests.support.soak.query:queries"]
    done = subprocess.run(
        [*command, "--runs", str(PLANS), "--seed", str(FIRST_SEED), "--directory", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-4_000:]}"
    assert f"{PLANS} plans, {PLANS} distinct" in done.stdout


def test_the_fixed_set_has_faults_of_every_sort() -> None:
    faults = [fault for seed in range(FIRST_SEED, FIRST_SEED + PLANS) for fault in FaultPlan.draw(seed).faults]
    families = {fault.point.value.partition(".")[0] for fault in faults}
    assert families == {point.value.partition(".")[0] for point in Point}
    assert {fault.effect for fault in faults} >= {
        Effect.ERROR_AFTER,
        Effect.KILL_BEFORE,
        Effect.KILL_AFTER,
        Effect.NO_SPACE,
        Effect.POWER_LOSS,
        Effect.ROT,
        Effect.CORRUPT,
        Effect.DAMAGE_LOCAL,
    }
