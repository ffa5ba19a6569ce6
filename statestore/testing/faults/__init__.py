"""Fault harness: runs a query while disks, processes and files fail by a plan, and checks that nothing was lost.

fault, plan     what strikes where and when, and plans of a seed
runner          a query under a plan, from start to result, and whether the plan explains a failure
environment     what the query runs in; damage: files at rest, and how they are brought back
injector        makes faults happen; journal: what all processes note of it
disk, local_state
                the faulty parts

Imports `recovery` and `bytestore`; `soak` imports it. Start at `runner`.
"""

from statestore.testing.faults.disk import FaultyLocation
from statestore.testing.faults.environment import FaultEnvironment
from statestore.testing.faults.fault import Effect, Fault, FileKind, Point
from statestore.testing.faults.injector import Injector
from statestore.testing.faults.journal import FaultJournal
from statestore.testing.faults.local_state import FaultyLocalDirectory
from statestore.testing.faults.plan import FaultPlan
from statestore.testing.faults.runner import run_plan

__all__ = [
    "Effect",
    "Fault",
    "FaultEnvironment",
    "FaultJournal",
    "FaultPlan",
    "FaultyLocalDirectory",
    "FaultyLocation",
    "FileKind",
    "Injector",
    "Point",
    "run_plan",
]
