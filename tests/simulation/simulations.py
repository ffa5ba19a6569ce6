"""What is simulated: the state of queries, of one stage or several; or the sink that writes to Kafka."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from tests.simulation import world
from tests.simulation.plan import Plan
from tests.simulation.sink import world as sink_world
from tests.simulation.sink.plan import SinkPlan
from tests.simulation.stages.plan import StagedPlan
from tests.simulation.world import Result

AnyPlan: TypeAlias = "Plan | SinkPlan"
PLANS: Final[dict[str, Any]] = {"state": Plan, "stages": StagedPlan, "sink": SinkPlan}
"""By the names that the command has for them."""


def simulate(plan: AnyPlan, *, keep_trace: bool = False) -> Result:
    """Run a plan: with the decisions that it has, or with drawn ones."""
    if isinstance(plan, SinkPlan):
        return sink_world.simulate(plan, keep_trace=keep_trace)
    return world.simulate(plan, keep_trace=keep_trace)
