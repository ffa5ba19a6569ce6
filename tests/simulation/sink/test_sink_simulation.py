"""The simulation of the sink is what it says: the same for a seed, replayed as it was written down, and it finds."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.simulation.sink.plan import SinkPlan
from tests.simulation.sink.world import simulate


@pytest.mark.parametrize("seed", [3, 40])
def test_a_seed_makes_the_same_trace_each_time_and_so_does_what_was_written_down(seed: int) -> None:
    first, second = (simulate(SinkPlan.draw(seed), keep_trace=True) for _ in range(2))
    assert first.trace == second.trace
    assert len(first.trace) > 100
    written = SinkPlan.from_json(first.plan.to_json())
    assert written == first.plan
    assert simulate(written, keep_trace=True).trace == first.trace


def test_fixed_plans_find_nothing() -> None:
    struck: Counter[str] = Counter()
    commits = 0
    for seed in range(500, 580):
        result = simulate(SinkPlan.draw(seed))
        assert result.problem is None, f"make simulate OF=sink RUNS=1 SEED={seed}: {result.problem}"
        struck.update(made.effect.value for made in result.plan.decisions or ())
        commits += result.commits
    assert commits > 400
    expected = {"pause", "kill", "kill after", "error", "lost response", "outage", "speculate", "driver dies"}
    assert struck.keys() == expected | {"flush", "impatient"}
