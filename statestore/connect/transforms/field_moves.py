"""What HeaderFrom and HeaderTo share: pairs of fields and headers, and the side of the record that has the fields.

Source: Kafka Connect's `Requirements`, for what they need of keys and values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from statestore.connect.config import Property, non_empty_list, one_of
from statestore.connect.records import ConnectRecord
from statestore.connect.schema import Schema, Struct
from statestore.connect.transforms.transformation import Transformation, list_property
from statestore.errors import ConfigException, DataException

MOVE: Final = "move"
COPY: Final = "copy"

FIELD_NAMES: Final = list_property("fields", non_empty_list, "names of fields of the key or value")
HEADER_NAMES: Final = list_property("headers", non_empty_list, "names of headers, in the order of the fields")
OPERATION: Final = Property(
    "operation", rule=one_of(MOVE, COPY), doc="move, so that the source loses what it gives, or copy"
)


@dataclass(frozen=True)
class FieldMoves(Transformation):
    """Moves or copies between fields and headers.

    Raises ConfigException if there are not as many fields as headers, or none.
    """

    fields: tuple[str, ...]
    headers: tuple[str, ...]
    operation: str
    side: ClassVar[str]
    """What has the fields: "key" or "value"."""

    def __init_subclass__(cls, side: str | None = None, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if side is not None:
            cls.side = side

    def __post_init__(self) -> None:
        self._settle()
        if len(self.fields) != len(self.headers):
            raise ConfigException(
                "'fields' config must have the same number of elements as 'headers' config: "
                f"{len(self.fields)} fields, {len(self.headers)} headers",
                name="fields",
                value=list(self.fields),
            )

    @property
    def purpose(self) -> str:
        """What it does, for errors."""
        return f"header {self.operation}"

    def source_of(self, record: ConnectRecord) -> tuple[Schema | None, Any]:
        """Return schema and value of the side that has the fields."""
        return getattr(record, f"{self.side}_schema"), getattr(record, self.side)

    def with_side(self, record: ConnectRecord, schema: Schema | None, value: Any, headers: Any) -> ConnectRecord:
        """Return the record with another one of that side, and other headers."""
        return record.new_record(headers=headers, **{f"{self.side}_schema": schema, self.side: value})


def require_map(value: Any, purpose: str) -> Mapping[str, Any]:
    """Return a value that is a map. Raises DataException for another one, and for None."""
    if not isinstance(value, Mapping):
        raise DataException(
            f"Only Map objects supported in absence of schema for [{purpose}], found: {_class_of(value)}"
        )
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a value that is a struct. Raises DataException for another one, and for None."""
    if not isinstance(value, Struct):
        raise DataException(f"Only Struct objects supported for [{purpose}], found: {_class_of(value)}")
    return value


def _class_of(value: Any) -> str:
    return "null" if value is None else type(value).__name__
