"""A step of a chain: a transformation, and the predicate that says which records it is for."""

from __future__ import annotations

from dataclasses import dataclass

from statestore.connect.records import ConnectRecord
from statestore.connect.transforms.transformation import Predicate, Transformation


@dataclass(frozen=True)
class Step:
    """A transformation in a chain.

    Args:
        alias: what the chain's properties call it.
        transformation: what is done.
        predicate: whether it is done to a record; None is always.
        negate: whether it is done to the records that the predicate is not true of.
    """

    alias: str
    transformation: Transformation
    predicate: Predicate | None = None
    negate: bool = False

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        """Return what the transformation makes of a record, or the record if it is not for it."""
        if self.predicate is not None and self.predicate.test(record) is self.negate:
            return record
        return self.transformation.apply(record)

    def describe(self) -> str:
        """Return what it does, such as "a: Filter() unless HasHeaderKey(name=x)"."""
        said = f"{self.alias}: {self.transformation.describe()}"
        if self.predicate is None:
            return said
        return f"{said} {'unless' if self.negate else 'if'} {self.predicate.describe()}"
