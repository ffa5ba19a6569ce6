"""A processor that is made of a plan: `partial(Processor, plan)` is its supplier, which travels to the executors."""

from __future__ import annotations

from typing import Generic, TypeVar

from statestore.processor.context import ProcessorContext
from statestore.processor.processor import Processor

PlanT = TypeVar("PlanT")


class Planned(Processor, Generic[PlanT]):
    """Keeps its plan and, after `init`, its context."""

    def __init__(self, plan: PlanT) -> None:
        self._plan = plan

    def init(self, context: ProcessorContext) -> None:
        """Take the context."""
        self._context = context
