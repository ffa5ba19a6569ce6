"""Fault plans: which faults strike where and when in one run of a query. Plain data, which prints as JSON.

A fault strikes at a `Point`, an operation of the query on its durable location, its disk, its local databases, a record
or its sink. `occurrence` says at which of the times that the query gets there, counted from 1 over all processes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from statestore.testing.faults.drawing import draw_faults
from statestore.testing.faults.fault import Effect, Fault, FileKind, Point


@dataclass(frozen=True)
class FaultPlan:
    """The faults of one run of a query. `seed` is also that of the query's input.

    `runs` says how many micro-batches are added before each planned start of the query.
    """

    seed: int
    runs: tuple[int, ...]
    faults: tuple[Fault, ...]

    @classmethod
    def draw(cls, seed: int, *, batches: int = 4) -> FaultPlan:
        """Return the plan of a seed, for a query of so many micro-batches: always the same one."""
        return cls(seed, *draw_faults(seed, batches))

    @property
    def content(self) -> str:
        """What the plan does, without its seed: two plans are distinct if this is."""
        return json.dumps({"runs": self.runs, "faults": [asdict(fault) for fault in self.faults]})

    def to_json(self) -> str:
        """Return the plan as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FaultPlan:
        """Return what `to_json` gave. Raises ValueError, KeyError or TypeError if it is not a plan."""
        fields: dict[str, Any] = json.loads(text)
        faults = tuple(
            Fault(
                Point(fault["point"]),
                Effect(fault["effect"]),
                int(fault["occurrence"]),
                int(fault["times"]),
                FileKind(fault["kind"]),
                int(fault["amount"]),
            )
            for fault in fields["faults"]
        )
        return cls(int(fields["seed"]), tuple(int(batches) for batches in fields["runs"]), faults)

    def describe(self) -> str:
        """Return the plan in words."""
        return f"batches {'+'.join(map(str, self.runs))}: {'; '.join(fault.describe() for fault in self.faults)}"
