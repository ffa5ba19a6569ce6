"""What an operator is: all that it adds to a topology, as one value that is known before anything runs.

Ready-made operators are functions that return one; `Topology.add_operator` adds it.
"""

from __future__ import annotations

from dataclasses import dataclass

from statestore.processor.nodes import SinkNode, SourceNode
from statestore.processor.processor import ProcessorSupplier
from statestore.stores.part_store import PartStore


@dataclass(frozen=True)
class Operator:
    """A processor with its stores, and where it has them a source above and a sink below."""

    kind: str
    """What it is called in descriptions, as "per key"."""
    name: str
    """The name of its processor."""
    supplier: ProcessorSupplier
    stores: tuple[PartStore, ...] = ()
    source: SourceNode | None = None
    parents: tuple[str, ...] = ()
    """The nodes above its processor, beside its own source."""
    sink: SinkNode | None = None
    timer_clock: str | None = None
    """The clock that its timers follow, "processing" or "event"; None if it has no timers."""

    @property
    def ttl_clocks(self) -> tuple[str, ...]:
        """The clocks by which entries of its stores expire."""
        lives = (store.builder.time_to_live for store in self.stores)
        return tuple(sorted({life.clock for life in lives if life is not None}))

    def __str__(self) -> str:
        timers = () if self.timer_clock is None else (f"timers by {self.timer_clock} time",)
        return ", ".join([self.kind, *timers, *(f"entries expire by {clock} time" for clock in self.ttl_clocks)])
