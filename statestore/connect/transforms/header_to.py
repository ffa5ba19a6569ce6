"""HeaderTo: headers become fields of the key or value.

KIP-145 describes it, but Kafka never shipped it, so what the KIP leaves open is said here, and in options of ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final

from statestore.connect.config import ConfigDef, Property, one_of
from statestore.connect.header import ConnectHeader, header_in_errors
from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord
from statestore.connect.schema import Field, Schema, Struct
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
from statestore.connect.values.strict import STRICT
from statestore.errors import ConfigException, DataException

LAST: Final = "last"
LIST: Final = "list"
ERROR: Final = "error"
SKIP: Final = "skip"
NULL: Final = "null"

_UPDATED_SCHEMAS: Final = 64


@dataclass(frozen=True)
class HeaderTo(FieldMoves):
    """Puts the value of each header into a field: one that is there is replaced in its place, others come last.

    In a struct the field has the schema of the header; of a header without one, the schema that its value has by
    itself. A map without a schema takes the value alone. `move` removes all headers of the name, `copy` none.

    Args:
        duplicates: what to do with several headers of one name. "last" takes the last one; "list" makes an array of
            all values in order, of a single one too; "error" raises DataException.
        missing: what to do without such a header. "skip" leaves the field as it is, or absent; "null" makes it None,
            and then every field that it puts into a struct is optional (a field that nothing is known of is a string);
            "error" raises DataException.

    Raises ConfigException if a field is named twice. Raises, when applied, DataException if the key or value is no
    struct (with a schema) or map (without), or headers that are to be in one list have different schemas.
    """

    duplicates: str = LAST
    missing: str = SKIP
    config: ClassVar[ConfigDef] = ConfigDef(
        HEADER_NAMES,
        FIELD_NAMES,
        OPERATION,
        Property("duplicates", default=LAST, rule=one_of(LAST, LIST, ERROR), doc="of several headers of one name"),
        Property("missing", default=SKIP, rule=one_of(SKIP, NULL, ERROR), doc="without a header of the name"),
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        twice = next((name for name in self.fields if self.fields.count(name) > 1), None)
        if twice is not None:
            raise ConfigException(
                f"'fields' config has {twice!r} twice: one of two headers would be lost",
                name="fields",
                value=list(self.fields),
            )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the fields and, if they are moved, without the headers."""
        schema, value = self.source_of(record)
        found: dict[str, ConnectHeader | None] = {}
        for field, header in zip(self.fields, self.headers, strict=True):
            with header_in_errors(header):
                found.update(self._found(field, header, record.headers, typed=schema is not None))
        headers = record.headers.duplicate()
        if self.operation == MOVE:
            for name in dict.fromkeys(self.headers):
                headers.remove(name)
        if schema is None:
            return self.with_side(record, None, self._to_map(value, found), headers)
        updated = self._to_struct(value, found)
        return self.with_side(record, updated.schema, updated, headers)

    def _found(
        self, field: str, name: str, headers: ConnectHeaders, *, typed: bool
    ) -> Mapping[str, ConnectHeader | None]:
        """Return what to put into a field, None for a null; nothing if the field is to stay."""
        every = headers.all_with_name(name)
        if not every and self.missing == ERROR:
            raise DataException(f"There is no such header to {self.operation} to field {field!r} of the {self.side}")
        if not every:
            return {field: None} if self.missing == NULL else {}
        if len(every) > 1 and self.duplicates == ERROR:
            raise DataException(f"{len(every)} headers of one name can't all be field {field!r} of the {self.side}")
        if self.duplicates == LIST:
            values = [header.value for header in every]
            schema = Schema.array(_common_schema(every)) if typed else None
            return {field: ConnectHeader(name, values, schema)}
        last = every[-1]
        return {field: last.with_value(_schema_of(last), last.value) if typed else last}

    def _to_map(self, value: Any, found: Mapping[str, ConnectHeader | None]) -> Mapping[Any, Any]:
        given = require_map(value, self.purpose)
        put = {field: None if header is None else header.value for field, header in found.items()}
        kept = [(name, put.pop(name, each) if isinstance(name, str) else each) for name, each in given.items()]
        return map_of_distinct([*kept, *put.items()])

    def _to_struct(self, value: Any, found: Mapping[str, ConnectHeader | None]) -> Struct:
        given = require_struct(value, self.purpose)
        put = {field: self._field_schema(given.schema, field, header) for field, header in found.items()}
        updated = Struct(_with_fields(given.schema, tuple(put.items())) if put else given.schema)
        for field in given.schema.fields:
            kept = None if field.name in found else given.get_without_default(field.name)
            if kept is not None:
                updated.put(field.name, kept)
        for name, header in found.items():
            if header is not None:
                with header_in_errors(header.key):
                    updated.put(name, header.value)
        return updated

    def _field_schema(self, schema: Schema, name: str, header: ConnectHeader | None) -> Schema:
        if header is not None and header.schema is not None:
            return header.schema.as_optional() if self.missing == NULL else header.schema
        field = schema.field(name)
        return Schema.OPTIONAL_STRING_SCHEMA if field is None else replace(field.schema, optional=True, default=None)


def _schema_of(header: ConnectHeader) -> Schema:
    """Return the schema of a header, or that of its value; of None without a schema, that of optional strings."""
    if header.schema is not None:
        return header.schema
    if header.value is None:
        return Schema.OPTIONAL_STRING_SCHEMA
    inferred = STRICT.infer_schema(header.value)
    if inferred is None:
        raise DataException(f"A value without a schema, of {type(header.value).__name__}, can't be put into a struct")
    return inferred


def _common_schema(headers: tuple[ConnectHeader, ...]) -> Schema:
    """Return the schema that all have; optional if that of one is, or if one without a schema is None."""
    typed = [header for header in headers if not (header.schema is None and header.value is None)]
    schemas = [_schema_of(header) for header in typed] or [Schema.OPTIONAL_STRING_SCHEMA]
    is_optional = len(typed) < len(headers) or any(schema.optional for schema in schemas)
    if is_optional:
        schemas = [schema.as_optional() for schema in schemas]
    other = next((schema for schema in schemas if schema != schemas[0]), None)
    if other is not None:
        raise DataException(f"Headers of one name can't be one list: their schemas are {schemas[0]} and {other}")
    return schemas[0]


@lru_cache(maxsize=_UPDATED_SCHEMAS)
def _with_fields(schema: Schema, fields: tuple[tuple[str, Schema], ...]) -> Schema:
    added = dict(fields)
    kept = [Field(field.name, added.pop(field.name, field.schema)) for field in schema.fields]
    return replace(schema, fields=(*kept, *(Field(name, each) for name, each in added.items())))


@dataclass(frozen=True)
class HeaderToKey(HeaderTo, side="key"):
    """HeaderTo for fields of the key."""


@dataclass(frozen=True)
class HeaderToValue(HeaderTo, side="value"):
    """HeaderTo for fields of the value."""
