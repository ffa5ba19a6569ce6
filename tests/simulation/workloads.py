"""What the stages of a plan's query do."""

from __future__ import annotations

from tests.simulation.middleware import GUARDED_STORES, Guarded
from tests.simulation.plan import MIDDLEWARE, Plan
from tests.simulation.stages.workload import staged_workloads
from tests.simulation.workload import Workload


def workloads(plan: Plan) -> list[Workload]:
    """Return what each stage of a plan's query does."""
    if plan.later_shards:
        return [*staged_workloads(plan)]
    if plan.stores == MIDDLEWARE:
        return [Guarded(plan.seed, GUARDED_STORES)]
    return [Workload(plan.seed, plan.stores, plan.by_hash, plan.keys, plan.reads)]
