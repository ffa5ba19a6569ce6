"""Queries of several stages: nothing wrong, and what is wrong on purpose is noticed."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.simulation.decisions import Effect
from tests.simulation.heads import DriverHeads
from tests.simulation.plan import Step
from tests.simulation.spark import Recorded
from tests.simulation.stages.plan import StagedPlan
from tests.simulation.stages.program import STORES
from tests.simulation.world import simulate


def test_fixed_plans_find_nothing() -> None:
    struck: Counter[str] = Counter()
    programs: Counter[tuple[str, ...]] = Counter()
    rescaled = 0
    for seed in range(700, 720):
        result = simulate(StagedPlan.draw(seed))
        assert result.problem is None, f"make simulate OF=stages RUNS=1 SEED={seed}: {result.problem}"
        struck.update(made.effect.value for made in result.plan.decisions or ())
        programs[result.plan.stores] += result.commits
        rescaled += result.rescaled
    assert programs.keys() == {*STORES}
    assert min(programs.values()) > 10
    assert rescaled > 0
    assert struck.keys() >= {"pause", "kill", "power loss", "speculate", "driver dies", Effect.FETCH_FAILED.value}


def test_a_stage_that_is_behind_the_others_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = replace(StagedPlan.draw(1), story=(Step("run", 0, 6),), decisions=())
    assert simulate(plan).problem is None
    as_it_is = Recorded.pointer

    def behind(self: Recorded, shard: int, batch: int) -> str | None:
        is_last = any(outputs.put_out for outputs in self.outputs.values())
        return as_it_is(self, shard, max(1, batch - 1) if is_last and batch else batch)

    monkeypatch.setattr(Recorded, "pointer", behind)
    monkeypatch.setattr(DriverHeads, "committed", lambda *_: None)  # the first head would be noticed before
    problem = simulate(plan).problem
    assert problem is not None
    assert problem.startswith("stages apart: ")
