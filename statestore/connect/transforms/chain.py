"""TransformChain: transformations one after the other, each for the records that its predicate is true of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from statestore.connect.converters.base import STRICT_MODE
from statestore.connect.records import ConnectRecord
from statestore.connect.transforms.connector_config import read_steps
from statestore.connect.transforms.transformation import Step, Transformation


@dataclass(frozen=True, repr=False)
class TransformChain:
    """Steps that are done in order. A value: it never changes, may be pickled, and is equal to one of equal steps.

    It is made of a connector's configuration by `from_properties`, or of transformations by `of`.
    """

    steps: tuple[Step, ...] = ()

    @classmethod
    def from_properties(cls, config: str | Mapping[str, Any], *, mode: str = STRICT_MODE) -> TransformChain:
        """Make a chain of a connector's configuration; what else is in it does nothing.

        Args:
            config: a mapping, the text of a file of Java's properties, or JSON. In a mapping, the property `type` may
                be a class or an object of one too; elsewhere it is a name of Kafka's or "module:Class".
            mode: the property `mode` of transformations that have one, and are not told. "compat" does what Kafka
                does, "strict" loses nothing where Kafka does.

        Raises ConfigException, with the full name of the property, if one is missing or wrong. Logs a warning for each
        property that nobody knows, and one for all that do nothing here.
        """
        return cls(read_steps(config, mode))

    @classmethod
    def of(cls, *steps: Step | Transformation) -> TransformChain:
        """Make a chain of steps, or of transformations for all records, whose aliases are their positions from 1."""
        return cls(
            tuple(
                each if isinstance(each, Step) else Step(str(position), each)
                for position, each in enumerate(steps, start=1)
            )
        )

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return what the steps make of a record, None if one of them drops it. The record itself stays as it is."""
        made: ConnectRecord | None = record
        for step in self.steps:
            if made is None:
                return None
            made = step.apply(made)
        return made

    def close(self) -> None:
        """Close all transformations and predicates."""
        for step in self.steps:
            step.transformation.close()
            if step.predicate is not None:
                step.predicate.close()

    def describe(self) -> str:
        """Return what the steps do, in order."""
        return " -> ".join(step.describe() for step in self.steps)

    def __repr__(self) -> str:
        return f"TransformChain({self.describe()})"
