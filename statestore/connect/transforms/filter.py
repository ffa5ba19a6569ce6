"""Filter: the records that its predicate is true of are dropped. Source: Kafka's `Filter`."""

from __future__ import annotations

from dataclasses import dataclass

from statestore.connect.records import ConnectRecord
from statestore.connect.transforms.transformation import Transformation


@dataclass(frozen=True)
class Filter(Transformation):
    """Drops every record that it is applied to: in a chain its predicate says which."""

    def apply(self, record: ConnectRecord) -> None:
        """Return None."""
