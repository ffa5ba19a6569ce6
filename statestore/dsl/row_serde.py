"""The serde of values that are dicts, in JSON, and have columns of known types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from statestore.errors import TopologyError
from statestore.format.serde import Serde, Serdes


@dataclass(frozen=True)
class RowSerde(Serde[Any]):
    """The serde of JSON objects, and the types of their columns."""

    row_type: pa.StructType = field(kw_only=True)

    @property
    def types(self) -> dict[str, pa.DataType]:
        """Return the type of each column."""
        return {column.name: column.type for column in self.row_type}

    def require_columns(self, node: str, names: Iterable[str]) -> None:
        """Raise TopologyError for unknown columns; `node` is named in it."""
        if unknown := [name for name in names if name not in self.types]:
            raise TopologyError(
                f"{node!r}: values have no column {', '.join(map(repr, unknown))}; they have {', '.join(self.types)}"
            )


def row_serde(row_type: pa.StructType) -> RowSerde:
    """Return the serde of rows of a type."""
    json = Serdes.json()
    return RowSerde(json.name, json.serialize, json.deserialize, columns=json.columns, row_type=row_type)


def is_json(serde: Serde[Any] | None) -> bool:
    """Return whether values are JSON, with or without known columns."""
    return serde == Serdes.json() or isinstance(serde, RowSerde)


def common_serde(one: Serde[Any] | None, other: Serde[Any] | None) -> Serde[Any] | None:
    """Return the serde of the values of two merged streams; None if unknown. Rows of two types become plain JSON."""
    if one == other:
        return one
    return Serdes.json() if is_json(one) and is_json(other) else None
