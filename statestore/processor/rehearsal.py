"""Tries a topology out before it runs: makes its task on empty stores in memory, and closes it."""

from __future__ import annotations

from functools import partial

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.errors import TopologyError
from statestore.interception.failures import FAIL_ALWAYS, FailureHandling
from statestore.processor.context import TaskRecordContext
from statestore.processor.processor import BatchProcessor, Processor
from statestore.processor.task import Task
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.processor.topology import Topology


def refuse_empty_classes(topology: Topology) -> None:
    """Raise TopologyError for a processor class that does not define `process` or `process_batch`."""
    for name, node in topology.processors.items():
        made = node.supplier.func if isinstance(node.supplier, partial) else node.supplier
        if not isinstance(made, type) or not issubclass(made, Processor):
            continue
        if issubclass(made, BatchProcessor):
            method, is_inherited = "process_batch(self, records)", made.process_batch is BatchProcessor.process_batch
        else:
            method, is_inherited = "process(self, record)", made.process is Processor.process
        if is_inherited:
            raise TopologyError(f"processor {name!r} can't process anything: {made.__name__} must define {method}")


def uses_wall_clock(topology: Topology, handling: FailureHandling = FAIL_ALWAYS) -> bool:
    """Return whether a processor or an interceptor schedules punctuation by the wall clock.

    Runs every `init` once, so that errors show here and not in a task. Raises what they raise.
    """
    context = TaskRecordContext()
    stores = build_stores(topology, context, lambda name: StoreBacking(MemoryByteStore(name)))
    task = Task(topology, 0, stores, context, handling=handling)
    try:
        return task.next_wall_clock_ms is not None
    finally:
        task.close()
