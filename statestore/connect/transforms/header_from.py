"""HeaderFrom: fields of the key or value become headers. Source: KIP-145 and Kafka's `HeaderFrom`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final

from statestore.connect.config import ConfigDef, ConfigType, Property
from statestore.connect.header import header_in_errors
from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord
from statestore.connect.schema import Schema, Struct, Type
from statestore.connect.transforms.field_moves import (
    FIELD_NAMES,
    HEADER_NAMES,
    MOVE,
    OPERATION,
    FieldMoves,
    require_map,
    require_struct,
)
from statestore.connect.typed_map import map_of_distinct
from statestore.errors import DataException
from statestore.errors.data import NullValueException

_MOVED_SCHEMAS: Final = 64


@dataclass(frozen=True)
class HeaderFrom(FieldMoves):
    """Puts fields behind the headers that there are, each with its schema. What it does is what Kafka's does.

    With a schema a field must exist; without one, a field that is not there makes a header of None. If fields are
    moved out of a struct, fields of None that stay become their defaults too, and the struct's schema is not optional.

    Raises NullValueException if `replace_null_with_default` is None. Raises, when applied, DataException if the key or
    value is no struct (with a schema) or map (without), or a field that must not be None is; NullValueException if
    there is no such field.
    """

    replace_null_with_default: bool = True
    config: ClassVar[ConfigDef] = ConfigDef(
        FIELD_NAMES,
        HEADER_NAMES,
        OPERATION,
        Property(
            "replace.null.with.default",
            ConfigType.BOOLEAN,
            default=True,
            doc="whether a field of None gives its default, if it has one",
        ),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.replace_null_with_default is None:
            raise NullValueException("replace.null.with.default is set to null: say true or false, or leave it out")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with more headers and, if they are moved, without the fields."""
        schema, value = self.source_of(record)
        headers = record.headers.duplicate()
        if schema is None:
            return self.with_side(record, None, self._from_map(value, headers), headers)
        updated = self._from_struct(schema, value, headers)
        return self.with_side(record, updated.schema if self.operation == MOVE else schema, updated, headers)

    def _from_map(self, value: Any, headers: ConnectHeaders) -> Mapping[Any, Any]:
        given = require_map(value, self.purpose)
        for field, header in zip(self.fields, self.headers, strict=True):
            headers.add(header, given.get(field), None)
        moved = self.fields if self.operation == MOVE else ()
        return map_of_distinct([(name, each) for name, each in given.items() if name not in moved])

    def _from_struct(self, schema: Schema, value: Any, headers: ConnectHeaders) -> Struct:
        given = require_struct(value, self.purpose)
        updated = self._without_fields(schema, given) if self.operation == MOVE else given
        for name, header in zip(self.fields, self.headers, strict=True):
            with header_in_errors(header):
                own = given.schema.field(name)
                field = schema.field(name)
                if field is None:
                    raise NullValueException(f"There is no field {name!r} to {self.operation} in the {self.side}")
                headers.add(header, None if own is None else self._value(given, name), field.schema)
        return updated

    def _without_fields(self, schema: Schema, given: Struct) -> Struct:
        if schema.type is not Type.STRUCT:
            raise DataException("Cannot list fields on non-struct type")
        moved = _without(schema, self.fields)
        return Struct(moved, {field.name: self._value(given, field.name) for field in moved.fields})

    def _value(self, given: Struct, name: str) -> Any:
        return given.get(name) if self.replace_null_with_default else given.get_without_default(name)


@lru_cache(maxsize=_MOVED_SCHEMAS)
def _without(schema: Schema, names: tuple[str, ...]) -> Schema:
    kept = tuple(field for field in schema.fields if field.name not in names)
    return replace(schema, fields=kept, optional=False)


@dataclass(frozen=True)
class HeaderFromKey(HeaderFrom, side="key"):
    """HeaderFrom for fields of the key."""


@dataclass(frozen=True)
class HeaderFromValue(HeaderFrom, side="value"):
    """HeaderFrom for fields of the value."""
