"""Fault harness: runs a query while disks, processes and files fail by a plan, and checks that nothing was lost."""

from statestore.testing.faults.environment import FaultEnvironment
from statestore.testing.faults.fault import Effect, Fault, FileKind, Point
from statestore.testing.faults.local_state import FaultyLocalDirectory
from statestore.testing.faults.location import FaultyLocation
from statestore.testing.faults.plan import FaultPlan
from statestore.testing.faults.runner import Contents, MakeQuery, PlanResult, QueryUnderFaults, run_plan

__all__ = [
    "Contents",
    "Effect",
    "Fault",
    "FaultEnvironment",
    "FaultPlan",
    "FaultyLocalDirectory",
    "FaultyLocation",
    "FileKind",
    "MakeQuery",
    "PlanResult",
    "Point",
    "QueryUnderFaults",
    "run_plan",
]
