"""MaskField, Cast, Flatten, SetSchemaMetadata: other values in keys and values. Source: Kafka's classes."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from decimal import Decimal
from typing import Any, ClassVar, Final

from statestore.connect.config import (
    ConfigDef,
    ConfigType,
    Property,
    distinct_values,
    invalid,
    non_empty_string,
    non_null,
)
from statestore.connect.converters.base import COMPAT_MODE, MODE_PROPERTY, STRICT_MODE
from statestore.connect.logical_types import ORDINALS, scale_of
from statestore.connect.records import ConnectRecord
from statestore.connect.scalars import Float32, Float64, Instant
from statestore.connect.schema import (
    INTEGER_TYPES,
    LOGICAL_TYPES,
    NUMBER_TYPES,
    Field,
    Schema,
    Struct,
    Type,
    type_of,
)
from statestore.connect.transforms.header_steps import VALUES
from statestore.connect.transforms.sides import NULLS, Sided, map_of, of_both_sides, struct_schema, with_entries
from statestore.connect.values.compat import COMPAT, is_number, refusal
from statestore.connect.values.number_text import NOT_FINITE, decimal_of, float32_of, long_of
from statestore.errors import ConfigException, DataException
from statestore.errors.data import NumberFormatException

_CONVERSIONS: Final = {
    Type.INT8: "convert_to_byte",
    Type.INT16: "convert_to_short",
    Type.INT32: "convert_to_integer",
    Type.INT64: "convert_to_long",
    Type.FLOAT32: "convert_to_float",
    Type.FLOAT64: "convert_to_double",
    Type.BOOLEAN: "convert_to_boolean",
    Type.STRING: "convert_to_string",
}
"""The functions of `Values` for each type that there may be a cast to."""


@of_both_sides
@dataclass(frozen=True)
class MaskField(Sided):
    """Puts a zero, an empty text, array or map in the place of fields, or another value in that of numbers and texts.

    None stays None. Without a schema, fields that are not there become None.

    Args:
        fields: their names.
        replacement: a text, which is converted to the type of each field.
        mode: "strict" refuses a replacement that does not fit, and gives decimals a zero of their scale.

    Raises, when applied, DataException for a field of another type.
    """

    fields: tuple[str, ...]
    replacement: str | None = None
    mode: str = STRICT_MODE
    replace_null_with_default: bool = True
    purpose = "mask fields"
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("fields", ConfigType.LIST, rule=distinct_values, doc="names of fields"),
        Property("replacement", default=None, rule=non_empty_string, doc="what stands in their place"),
        MODE_PROPERTY,
        NULLS,
    )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with other values of the fields."""
        schema, value = self.source_of(record)
        if schema is None:
            given = self.require_map(value)
            masked = with_entries(given, {name: self._masked(given.get(name)) for name in self.fields})
            return self.with_side(record, None, masked)
        struct = self.require_struct(value)
        made = {each.name: self.field_value(struct, each.name) for each in struct.schema.fields}
        made |= {name: self._masked(made[name]) for name in self.fields if name in made}
        return self.with_side(record, schema, Struct(struct.schema, made))

    def _masked(self, value: Any) -> Any:
        if value is None:
            return None
        if self.replacement is not None:
            return self._replaced(value, self.replacement)
        if isinstance(value, Decimal) and self.mode == STRICT_MODE:
            return Decimal((0, (0,), -scale_of(value)))
        if isinstance(value, bool | int | float | Decimal):
            return type(value)(0)
        for kinds, empty in ((str, ""), (Instant, Instant(0)), (list | tuple, []), (Mapping, {})):
            if isinstance(value, kinds):
                return empty
        raise DataException(f"Cannot mask value of type: {type(value).__name__}")

    def _replaced(self, value: Any, text: str) -> Any:
        if isinstance(value, Decimal):
            try:
                number = decimal_of(text)
            except NumberFormatException as cause:
                raise refusal(text, "a number") from cause
            return VALUES[self.mode].convert_to_decimal(None, number, scale_of(value))
        type_ = type_of(value)
        if type_ is Type.STRING:
            return text
        if type_ not in NUMBER_TYPES:
            raise DataException(f"Cannot mask value of type {type(value).__name__} with custom replacement.")
        return getattr(VALUES[self.mode], _CONVERSIONS[type_])(None, text)


def _casts(name: str, value: list[str] | None) -> list[str]:
    for mapping in non_null(name, value):
        parts = mapping.rstrip(":").split(":")
        if len(parts) > 2:
            raise invalid(name, value, f"Invalid rename mapping: {mapping}")
        type_ = _TYPES.get(parts[-1].strip().upper())
        if type_ is None:
            raise invalid(name, value, f"Invalid type found in casting spec: {parts[-1].strip()}")
        if type_ not in _CONVERSIONS:
            supported = ", ".join(map(str, _CONVERSIONS))
            raise invalid(
                name, value, f"Cast transformation does not support casting to {type_}; supported types are {supported}"
            )
        if len(parts) == 1 and len(value or ()) > 1:
            raise invalid(name, value, "A type for the whole must be the only one")
    if not value:
        raise ConfigException("Must specify at least one field to cast.", name=name, value=value)
    return value


_TYPES: Final = {str(type_): type_ for type_ in Type}


@of_both_sides
@dataclass(frozen=True)
class Cast(Sided):
    """Converts fields, or the whole, to other types: numbers, booleans and texts to each other, bytes to a text.

    None stays None.

    Args:
        spec: "field:type" for each, or a type alone for the whole.
        mode: "strict" raises DataException where something would be lost; "compat" cuts it off as Kafka does.
    """

    spec: tuple[str, ...]
    mode: str = STRICT_MODE
    replace_null_with_default: bool = True
    types: Mapping[str | None, Type] = attribute(init=False, repr=False, compare=False)
    """The types by field; None is the whole."""
    purpose = "cast types"
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("spec", ConfigType.LIST, rule=_casts, doc="fields and types, such as a:int32, or a type"),
        MODE_PROPERTY,
        NULLS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        found: dict[str | None, Type] = {}
        for mapping in self.spec:
            *names, type_ = (part.strip() for part in mapping.rstrip(":").split(":"))
            found[names[0] if names else None] = _TYPES[type_.upper()]
        object.__setattr__(self, "types", found)

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the values of other types."""
        schema, value = self.source_of(record)
        if value is None:
            return record
        whole = self.types.get(None)
        made = None if schema is None else self.schema_from(schema)
        if whole is not None:
            return self.with_side(record, made, self._cast(schema, value, whole))
        if made is None:
            given = self.require_map(value)
            cast = {
                name: self._cast(None, given.get(name), type_) for name, type_ in self.types.items() if name is not None
            }
            return self.with_side(record, None, with_entries(given, cast))
        struct = self.require_struct(value)
        values = {each.name: self.field_value(struct, each.name) for each in struct.schema.fields}
        for each in struct.schema.fields:
            if each.name in self.types:
                values[each.name] = self._cast(each.schema, values[each.name], self.types[each.name])
        return self.with_side(record, made, Struct(made, values))

    def new_schema(self, schema: Schema) -> Schema:
        """Return the schema of other types."""
        whole = self.types.get(None)
        if whole is not None:
            default = self._cast(schema, schema.default, whole)
            made = replace(schema, type=whole, default=default, key_schema=None, value_schema=None, fields=())
            is_logical = schema.name in LOGICAL_TYPES and self.mode == STRICT_MODE
            return replace(made, name=None, version=None, parameters={}) if is_logical else made
        fields = [Field(each.name, self._field_schema(each)) for each in schema.fields]
        return replace(schema, fields=fields)

    def _field_schema(self, field: Field) -> Schema:
        type_ = self.types.get(field.name)
        if type_ is None:
            return field.schema
        default = self._cast(field.schema, field.schema.default, type_)
        return Schema(type_, optional=field.schema.optional, default=default)

    def _cast(self, schema: Schema | None, value: Any, target: Type) -> Any:
        if value is None:
            return None
        type_ = type_of(value) if schema is None else schema.type
        if type_ is None:
            raise DataException(
                f"Cast transformation was passed a value of type {type(value).__name__} which is not supported by "
                "Connect's data API"
            )
        if type_ in (Type.ARRAY, Type.MAP, Type.STRUCT):
            raise DataException(f"Cast transformation does not support casting from {type_}")
        if self.mode == COMPAT_MODE:
            return _as_java(schema, value, target)
        number = int(value) if isinstance(value, bool) and target is not Type.STRING else value
        return getattr(VALUES[self.mode], _CONVERSIONS[target])(schema, number)


def _as_java(schema: Schema | None, value: Any, target: Type) -> Any:
    """Return a value as Java casts it."""
    if target is Type.STRING:
        return COMPAT.convert_to_string(schema, value)
    if schema is not None and schema.name in ORDINALS:
        value = ORDINALS[schema.name][0](value)
    if isinstance(value, bool):
        value = int(value)
    elif isinstance(value, str):
        return value.upper() == "TRUE" if target is Type.BOOLEAN else _parsed(value, target)
    if not is_number(value):
        raise DataException(f"Unexpected type in Cast transformation: {type(value).__name__}")
    if target is Type.BOOLEAN:
        return long_of(value) != 0
    if target in INTEGER_TYPES:
        width = INTEGER_TYPES[target]
        whole = long_of(value)
        if isinstance(value, float) and target is not Type.INT64:
            whole = min(max(whole, -(1 << 31)), (1 << 31) - 1)
        return width.wrapped(whole)
    if target is Type.FLOAT64:
        return Float64(value)
    return Float32(value) if isinstance(value, float) else float32_of(Decimal(value))


_WHOLE: Final = re.compile(r"[+-]?\d{1,64}")
_FLOAT: Final = re.compile(r"([+-]?)(?:(NaN|Infinity)|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?)")
_CONTROLS_AND_SPACE: Final = "".join(map(chr, range(0x21)))


def _parsed(text: str, target: Type) -> Any:
    """Return the number of a text as Java's parsers read it. Raises DataException."""
    if target in INTEGER_TYPES:
        width = INTEGER_TYPES[target]
        if _WHOLE.fullmatch(text) is None:
            raise refusal(text, target)
        return width(int(text))
    found = _FLOAT.fullmatch(text.strip(_CONTROLS_AND_SPACE))
    if found is None:
        raise refusal(text, target)
    sign, word, digits = found.groups()
    if word:
        number = NOT_FINITE[word]
        return (Float32 if target is Type.FLOAT32 else Float64)(-number if sign == "-" else number)
    double = Float64(sign + digits)
    if target is Type.FLOAT64:
        return double
    # A decimal can't hold the exponent of each of those that are infinite or zero.
    return float32_of(Decimal(sign + digits)) if double and math.isfinite(double) else Float32(double)


@of_both_sides
@dataclass(frozen=True)
class Flatten(Sided):
    """Puts the fields of structs, or maps, within one another into one, with names joined. None stays None.

    Raises, when applied, DataException for a map in what has a schema, and for two fields of one name; in mode "compat"
    the last of these is kept if there is no schema.
    """

    delimiter: str = "."
    mode: str = STRICT_MODE
    purpose = "flattening"
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("delimiter", default=".", rule=non_null, doc="what names are joined with"), MODE_PROPERTY
    )

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record without fields in fields."""
        schema, value = self.source_of(record)
        if value is None:
            return record
        if schema is None:
            entries = list(self._leaves(self.require_map(value)))
            return self.with_side(record, None, map_of(entries) if self.mode == STRICT_MODE else dict(entries))
        struct = self.require_struct(value)
        made = self.schema_from(schema)
        return self.with_side(record, made, Struct(made, dict(self._leaves(struct))))

    def new_schema(self, schema: Schema) -> Schema:
        """Return a schema with all the fields that are no structs."""
        fields: list[Field] = []
        for name, (each, is_optional) in self._walk((schema, schema.optional), _inner_schemas):
            if each.type is Type.MAP:
                raise DataException(
                    f"Flatten transformation does not support MAP for record with schemas (for field {name})."
                )
            fields.append(Field(name, each.as_optional() if is_optional else each))
        return struct_schema(schema, fields)

    def _leaves(self, value: Mapping[Any, Any] | Struct) -> Iterator[tuple[str, Any]]:
        return self._walk(value, _inner_fields if isinstance(value, Struct) else _inner_entries)

    def _walk(self, whole: Any, inner: Callable[[Any], Iterator[tuple[str, Any]] | None]) -> Iterator[tuple[str, Any]]:
        """Yield what has nothing within, with its name: `inner` gives what something has, None if it can't."""
        open_ones = [("", inner(whole) or iter(()))]
        while open_ones:
            prefix, rest = open_ones[-1]
            for own, each in rest:
                name = f"{prefix}{self.delimiter}{own}" if prefix else own
                within = inner(each)
                if within is not None:
                    open_ones.append((name, within))
                    break
                yield name, each
            else:
                open_ones.pop()


def _inner_schemas(schema: tuple[Schema, bool]) -> Iterator[tuple[str, Any]] | None:
    outer, is_optional = schema
    if outer.type is not Type.STRUCT:
        return None
    return ((each.name, (each.schema, is_optional or each.schema.optional)) for each in outer.fields)


def _inner_fields(value: Any) -> Iterator[tuple[str, Any]] | None:
    if not isinstance(value, Struct):
        return None
    structs = {each.name for each in value.schema.fields if each.schema.type is Type.STRUCT}
    return ((name, each) for name, each in value.items() if each is not None or name not in structs)


def _inner_entries(value: Any) -> Iterator[tuple[str, Any]] | None:
    if isinstance(value, Mapping):
        return ((_name(key), each) for key, each in value.items())
    if value is not None and type_of(value) in (None, Type.STRUCT):
        raise DataException(
            f"Flatten transformation does not support {type(value).__name__} for record without schemas"
        )
    return None


def _name(key: Any) -> str:
    if not isinstance(key, str):
        raise DataException(f"Flatten transformation does not support maps with keys of {type(key).__name__}")
    return key


@of_both_sides
@dataclass(frozen=True)
class SetSchemaMetadata(Sided):
    """Gives the schema another name, version or both. Raises ConfigException if there is neither.

    Raises, when applied, DataException if there is a value without a schema, or the schema is no struct's.
    """

    schema_name: str | None = None
    schema_version: int | None = None
    replace_null_with_default: bool = True
    purpose = "updating schema metadata"
    config: ClassVar[ConfigDef] = ConfigDef(
        Property("schema.name", default=None, doc="the name"),
        Property("schema.version", ConfigType.INT, default=None, doc="the version"),
        NULLS,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.schema_name is None and self.schema_version is None:
            raise ConfigException("Neither schema name nor version configured")

    def apply(self, record: ConnectRecord) -> ConnectRecord:
        """Return the record with the schema."""
        schema, value = self.source_of(record)
        if schema is None and value is None:
            return record
        if schema is None:
            raise DataException(f"Schema required for [{self.purpose}]")
        made = self.schema_from(schema)
        if isinstance(value, Struct):
            value = Struct(made, {each.name: self.field_value(value, each.name) for each in made.fields})
        return self.with_side(record, made, value)

    def new_schema(self, schema: Schema) -> Schema:
        """Return the schema with what it is called."""
        if schema.type is not Type.STRUCT:
            raise DataException("Cannot list fields on non-struct type")
        name = schema.name if self.schema_name is None else self.schema_name
        version = schema.version if self.schema_version is None else self.schema_version
        return replace(schema, name=name, version=version)
