"""Tries a topology out before it runs: makes its task on empty stores in memory, and closes it."""

from __future__ import annotations

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.middleware.failures import FAIL_ALWAYS, FailureHandling
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.processor.topology import Topology


def uses_wall_clock(topology: Topology, handling: FailureHandling = FAIL_ALWAYS) -> bool:
    """Return whether a processor or an interceptor schedules punctuation by the wall clock.

    Every `init` runs once, so that what is wrong in one shows here and not in a task. Raises what they raise.
    """
    context = TaskRecordContext()
    stores = build_stores(topology, context, lambda name: StoreBacking(MemoryByteStore(name)))
    task = Task(topology, 0, stores, context, handling=handling)
    try:
        return task.next_wall_clock_ms is not None
    finally:
        task.close()
