"""Steps on one side of records, the key or the value, and what they need of it.

A transformation `Name` with Kafka's `Name$Key` and `Name$Value` is one class, of which `of_both_sides` makes `Name.Key`
and `Name.Value`. Source: Kafka's `Requirements` and `SchemaUtil`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeVar

from statestore.connect.config import ConfigType, Property
from statestore.connect.records import ConnectRecord
from statestore.connect.schema import Field, Schema, Struct
from statestore.connect.transforms.transformation import Transformation
from statestore.connect.typed_map import TypedMap, map_of_distinct
from statestore.errors import DataException
from statestore.errors.data import NullValueException

KEPT_SCHEMAS: Final = 64
NULLS: Final = Property(
    "replace.null.with.default",
    ConfigType.BOOLEAN,
    default=True,
    doc="whether a field of None gives its default, if it has one",
)
"""The last property of each that reads fields of structs."""
_Sided = TypeVar("_Sided", bound="type[Sided]")


class Sided(Transformation):
    """A transformation of the key or of the value."""

    Key: ClassVar[type[Any]]
    Value: ClassVar[type[Any]]
    side: ClassVar[str]
    """What it works on: "key" or "value"."""
    purpose: ClassVar[str]
    """What it is for, as Kafka's errors say it."""
    replace_null_with_default: bool

    def __init_subclass__(cls, side: str | None = None, **arguments: Any) -> None:
        super().__init_subclass__(**arguments)
        if side is not None:
            cls.side = side

    def __post_init__(self) -> None:
        self._settle()
        if NULLS in self.config.properties and self.replace_null_with_default is None:
            raise NullValueException(f"{NULLS.name} is set to null: say true or false, or leave it out")

    def source_of(self, record: ConnectRecord) -> tuple[Schema | None, Any]:
        """Return schema and value of the side."""
        return getattr(record, f"{self.side}_schema"), getattr(record, self.side)

    def with_side(self, record: ConnectRecord, schema: Schema | None, value: Any, **others: Any) -> ConnectRecord:
        """Return the record with another one of that side."""
        return record.new_record(**{f"{self.side}_schema": schema, self.side: value}, **others)

    def require_map(self, value: Any) -> Mapping[Any, Any]:
        """Return a value that is a map. Raises DataException for another one, and for None."""
        return require_map(value, self.purpose)

    def require_struct(self, value: Any) -> Struct:
        """Return a value that is a struct. Raises DataException for another one, and for None."""
        return require_struct(value, self.purpose)

    def field_value(self, given: Struct, name: str) -> Any:
        """Return the value of a field, or its default."""
        return given.get(name) if self.replace_null_with_default else given.get_without_default(name)

    def schema_from(self, schema: Schema) -> Schema:
        """Return what `new_schema` makes of a schema; of those that came lately, the same one again."""
        return _schema_from(self, schema)

    def new_schema(self, schema: Schema) -> Schema:
        """Return the schema of what it makes."""
        raise NotImplementedError


@lru_cache(maxsize=KEPT_SCHEMAS)
def _schema_from(step: Sided, schema: Schema) -> Schema:
    return step.new_schema(schema)


def of_both_sides(kind: _Sided) -> _Sided:
    """Give a transformation its classes `Key` and `Value`."""
    for side in ("Key", "Value"):
        facts = {
            "__doc__": f"{kind.__name__} of the {side.lower()}.",
            "__module__": kind.__module__,
            "__qualname__": f"{kind.__qualname__}.{side}",
        }
        made = type(f"{kind.__name__}{side}", (kind,), facts, side=side.lower())
        setattr(kind, side, dataclass(frozen=True)(made))
    return kind


def require_map(value: Any, purpose: str) -> Mapping[Any, Any]:
    """Return a value that is a map. Raises DataException for another one, and for None."""
    if not isinstance(value, Mapping):
        raise DataException(
            f"Only Map objects supported in absence of schema for [{purpose}], found: {class_of(value)}"
        )
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a value that is a struct. Raises DataException for another one, and for None."""
    if not isinstance(value, Struct):
        raise DataException(f"Only Struct objects supported for [{purpose}], found: {class_of(value)}")
    return value


def class_of(value: Any) -> str:
    """Return what an error says that a value is."""
    return "null" if value is None else type(value).__name__


def struct_schema(schema: Schema, fields: list[Field]) -> Schema:
    """Return a schema of structs with other fields, required as Kafka's builders make it."""
    return replace(schema, fields=fields, optional=False)


def map_of(entries: list[tuple[Any, Any]]) -> Mapping[Any, Any]:
    """Return a map of entries. Raises DataException for a name that comes twice: Kafka would lose one of the two."""
    made = map_of_distinct(entries)
    if isinstance(made, TypedMap) and len(TypedMap(entries)) != len(entries):
        raise DataException("Two fields of a map would have one name")
    return made


def with_entries(given: Mapping[Any, Any], put: Mapping[str, Any]) -> Mapping[Any, Any]:
    """Return a map with other values of some names: in their places, or behind the others."""
    left = dict(put)
    kept = [(name, left.pop(name, each) if isinstance(name, str) else each) for name, each in given.items()]
    return map_of_distinct([*kept, *left.items()])
