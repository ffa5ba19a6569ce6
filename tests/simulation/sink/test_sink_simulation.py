"""The simulation of the sink finds nothing."""

from __future__ import annotations

from collections import Counter

from tests.simulation.sink.plan import SinkPlan
from tests.simulation.sink.world import simulate


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
