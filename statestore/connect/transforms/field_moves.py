"""HeaderFrom and HeaderTo: fields of the key or value become headers, and headers become fields.

HeaderFrom does what Kafka's class does. KIP-145 describes HeaderTo too, but Kafka never shipped it, so what the KIP
leaves open is said here, and in options of ours.

Source: KIP-145, and Kafka's `HeaderFrom`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, Final

from statestore.connect.config import ConfigDef, ConfigType, Property, non_empty_list, one_of
from statestore.connect.header import ConnectHeader, header_in_errors
from statestore.connect.headers import ConnectHeaders
from statestore.connect.records import ConnectRecord
from statestore.connect.schema import Field, Schema, Struct, Type
from statestore.connect.transforms.sides import KEPT_SCHEMAS, NULLS, Sided, struct_schema, with_entries
from statestore.connect.typed_map import map_of_distinct
from statestore.connect.values.strict import STRICT
from statestore.errors import ConfigException, DataException
from statestore.errors.data import NullValueException

_MOVE: Final = "move"
_COPY: Final = "copy"

_FIELD_NAMES: Final = Property(
    "fields", ConfigType.LIST, rule=non_empty_list, doc="names of fields of the key or value"
)
_HEADER_NAMES: Final = Property(
    "headers", ConfigType.LIST, rule=non_empty_list, doc="names of headers, in the order of the fields"
)
_OPERATION: Final = Property(
    "operation", rule=one_of(_MOVE, _COPY), doc="move, so that the source loses what it gives, or copy"
)
_LAST: Final = "last"
_LIST: Final = "list"
_ERROR: Final = "error"
_SKIP: Final = "skip"
_NULL: Final = "null"


@dataclass(frozen=True)
class FieldMoves(Sided):
    """Moves or copies between fields and headers.

    Raises ConfigException if there are not as many fields as headers, or none.
    """

    fields: tuple[str, ...]
    headers: tuple[str, ...]
    operation: str

    def __post_init__(self) -> None:
        self._settle()
        if len(self.fields) != len(self.headers):
            raise ConfigException(
                "'fields' config must have the same number of elements as 'headers' config: "
                f"{len(self.fields)} fields, {len(self.headers)} headers",
                name="fields",
                value=list(self.fields),
            )
        super().__post_init__()

    @property
    def purpose(self) -> str:  # type: ignore[override]
        """What it is for, as Kafka's errors say it."""
        return f"header {self.operation}"


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
        _FIELD_NAMES,
        _HEADER_NAMES,
        _OPERATION,
        NULLS,
    )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with more headers and, if they are moved, without the fields."""
        schema, value = self.source_of(record)
        headers = record.headers.duplicate()
        if schema is None:
            return self.with_side(record, None, self._from_map(value, headers), headers=headers)
        updated = self._from_struct(schema, value, headers)
        made = updated.schema if self.operation == _MOVE else schema
        return self.with_side(record, made, updated, headers=headers)

    def _from_map(self, value: Any, headers: ConnectHeaders) -> Mapping[Any, Any]:
        given = self.require_map(value)
        for field, header in zip(self.fields, self.headers, strict=True):
            headers.add(header, given.get(field), None)
        moved = self.fields if self.operation == _MOVE else ()
        return map_of_distinct([(name, each) for name, each in given.items() if name not in moved])

    def _from_struct(self, schema: Schema, value: Any, headers: ConnectHeaders) -> Struct:
        given = self.require_struct(value)
        updated = self._without_fields(schema, given) if self.operation == _MOVE else given
        for name, header in zip(self.fields, self.headers, strict=True):
            with header_in_errors(header):
                own = given.schema.field(name)
                field = schema.field(name)
                if field is None:
                    raise NullValueException(f"There is no field {name!r} to {self.operation} in the {self.side}")
                headers.add(header, None if own is None else self.field_value(given, name), field.schema)
        return updated

    def new_schema(self, schema: Schema) -> Schema:
        """Return a schema without the fields."""
        return struct_schema(schema, [field for field in schema.fields if field.name not in self.fields])

    def _without_fields(self, schema: Schema, given: Struct) -> Struct:
        if schema.type is not Type.STRUCT:
            raise DataException("Cannot list fields on non-struct type")
        moved = self.schema_from(schema)
        return Struct(moved, {field.name: self.field_value(given, field.name) for field in moved.fields})


@dataclass(frozen=True)
class HeaderFromKey(HeaderFrom, side="key"):
    """HeaderFrom for fields of the key."""


@dataclass(frozen=True)
class HeaderFromValue(HeaderFrom, side="value"):
    """HeaderFrom for fields of the value."""


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

    duplicates: str = _LAST
    missing: str = _SKIP
    config: ClassVar[ConfigDef] = ConfigDef(
        _HEADER_NAMES,
        _FIELD_NAMES,
        _OPERATION,
        Property("duplicates", default=_LAST, rule=one_of(_LAST, _LIST, _ERROR), doc="of several headers of one name"),
        Property("missing", default=_SKIP, rule=one_of(_SKIP, _NULL, _ERROR), doc="without a header of the name"),
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
        if self.operation == _MOVE:
            for name in dict.fromkeys(self.headers):
                headers.remove(name)
        if schema is None:
            return self.with_side(record, None, self._to_map(value, found), headers=headers)
        updated = self._to_struct(value, found)
        return self.with_side(record, updated.schema, updated, headers=headers)

    def _found(
        self, field: str, name: str, headers: ConnectHeaders, *, typed: bool
    ) -> Mapping[str, ConnectHeader | None]:
        """Return what to put into a field, None for a null; nothing if the field is to stay."""
        every = headers.all_with_name(name)
        if not every and self.missing == _ERROR:
            raise DataException(f"There is no such header to {self.operation} to field {field!r} of the {self.side}")
        if not every:
            return {field: None} if self.missing == _NULL else {}
        if len(every) > 1 and self.duplicates == _ERROR:
            raise DataException(f"{len(every)} headers of one name can't all be field {field!r} of the {self.side}")
        if self.duplicates == _LIST:
            values = [header.value for header in every]
            schema = Schema.array(_common_schema(every)) if typed else None
            return {field: ConnectHeader(name, values, schema)}
        last = every[-1]
        return {field: last.with_value(_schema_of(last), last.value) if typed else last}

    def _to_map(self, value: Any, found: Mapping[str, ConnectHeader | None]) -> Mapping[Any, Any]:
        given = self.require_map(value)
        put = {field: None if header is None else header.value for field, header in found.items()}
        return with_entries(given, put)

    def _to_struct(self, value: Any, found: Mapping[str, ConnectHeader | None]) -> Struct:
        given = self.require_struct(value)
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
            return header.schema.as_optional() if self.missing == _NULL else header.schema
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


@lru_cache(maxsize=KEPT_SCHEMAS)
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
