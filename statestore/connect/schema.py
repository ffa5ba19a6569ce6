"""Schemas of typed values, structs, and whether a value follows a schema.

Source: Kafka Connect's `Schema`, `SchemaBuilder`, `Field`, `Struct` and `ConnectSchema.validateValue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute
from dataclasses import fields as dataclass_fields
from decimal import Decimal
from enum import Enum
from math import copysign
from typing import Any, ClassVar, Final

from statestore.connect.scalars import Float32, Float64, Instant, Int8, Int16, Int32, Int64, in_range
from statestore.errors import DataException
from statestore.errors.data import SchemaBuilderException


class Type(Enum):
    """What a value is."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"

    def __str__(self) -> str:
        return self.name


INTEGER_TYPES: Final[dict[Type, type[Int8 | Int16 | Int32 | Int64]]] = {
    Type.INT8: Int8,
    Type.INT16: Int16,
    Type.INT32: Int32,
    Type.INT64: Int64,
}
NUMBER_TYPES: Final[dict[Type, type]] = {**INTEGER_TYPES, Type.FLOAT32: Float32, Type.FLOAT64: Float64}
"""The Python class of the numbers of each type, from the smallest type to the largest."""


class LogicalName:
    """The names of the schemas of the four logical types."""

    DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
    DATE: Final = "org.apache.kafka.connect.data.Date"
    TIME: Final = "org.apache.kafka.connect.data.Time"
    TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"


LOGICAL_TYPES: Final[dict[str | None, type]] = {
    LogicalName.DECIMAL: Decimal,
    LogicalName.DATE: Instant,
    LogicalName.TIME: Instant,
    LogicalName.TIMESTAMP: Instant,
}
"""The Python class of a logical type's values, by the name of its schema, whatever the schema's type."""
_LOGICAL_BASES: Final[dict[str | None, Type]] = {
    LogicalName.DECIMAL: Type.BYTES,
    LogicalName.DATE: Type.INT32,
    LogicalName.TIME: Type.INT32,
    LogicalName.TIMESTAMP: Type.INT64,
}

SCALE: Final = "scale"
"""The parameter of a decimal's schema that says how many digits are behind the point."""


@dataclass(frozen=True)
class Field:
    """A field of a struct."""

    name: str
    schema: Schema


class _Constants:
    """Constant schemas. They have a class of their own, as a dataclass would take them for its fields."""

    INT8_SCHEMA: ClassVar[Schema]
    INT16_SCHEMA: ClassVar[Schema]
    INT32_SCHEMA: ClassVar[Schema]
    INT64_SCHEMA: ClassVar[Schema]
    FLOAT32_SCHEMA: ClassVar[Schema]
    FLOAT64_SCHEMA: ClassVar[Schema]
    BOOLEAN_SCHEMA: ClassVar[Schema]
    STRING_SCHEMA: ClassVar[Schema]
    BYTES_SCHEMA: ClassVar[Schema]
    OPTIONAL_INT8_SCHEMA: ClassVar[Schema]
    OPTIONAL_INT16_SCHEMA: ClassVar[Schema]
    OPTIONAL_INT32_SCHEMA: ClassVar[Schema]
    OPTIONAL_INT64_SCHEMA: ClassVar[Schema]
    OPTIONAL_FLOAT32_SCHEMA: ClassVar[Schema]
    OPTIONAL_FLOAT64_SCHEMA: ClassVar[Schema]
    OPTIONAL_BOOLEAN_SCHEMA: ClassVar[Schema]
    OPTIONAL_STRING_SCHEMA: ClassVar[Schema]
    OPTIONAL_BYTES_SCHEMA: ClassVar[Schema]
    DATE_SCHEMA: ClassVar[Schema]
    TIME_SCHEMA: ClassVar[Schema]
    TIMESTAMP_SCHEMA: ClassVar[Schema]


@dataclass(frozen=True)
class Schema(_Constants):
    """What values are like. Two schemas are equal if everything in them is, defaults by `same_value`.

    There are constants for each type, such as `Schema.INT8_SCHEMA` and `Schema.OPTIONAL_INT8_SCHEMA`. Values of
    DATE_SCHEMA are Instants of midnight, of TIME_SCHEMA those of 1970-01-01, of TIMESTAMP_SCHEMA any.

    Args:
        type: what the values are.
        optional: whether None is one of them.
        name: what a struct is called, or a logical type.
        version: of the schema; None if it has none.
        doc: a text for its readers.
        parameters: further facts, such as the scale of a decimal. Not to be changed.
        default: the value in place of None; None if there is no default.
        key_schema: of a map. None, as in `value_schema`, if keys have nothing in common.
        value_schema: of an array's elements or a map's values.
        fields: of a struct.

    Raises SchemaBuilderException if the default does not follow the schema, if a field has no name or that of
    another field, and if there are fields and the type is not STRUCT.
    """

    type: Type
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: Mapping[str, str] = attribute(default_factory=dict)
    default: Any = None
    key_schema: Schema | None = None
    value_schema: Schema | None = None
    fields: Sequence[Field] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", tuple(self.fields))
        object.__setattr__(self, "parameters", dict(self.parameters))
        if self.fields and self.type is not Type.STRUCT:
            raise SchemaBuilderException(f"Cannot create fields on type {self.type}")
        by_name: dict[str, Field] = {}
        for each in self.fields:
            if not each.name:
                raise SchemaBuilderException("fieldName cannot be null.")
            if each.name in by_name:
                raise SchemaBuilderException(f"Cannot create field because of field name duplication {each.name}")
            by_name[each.name] = each
        object.__setattr__(self, "_by_name", by_name)
        if self.default is not None:
            try:
                validate_value(self, self.default)
            except DataException as cause:
                raise SchemaBuilderException(f"Invalid default value: {cause.problem}") from cause

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Schema):
            return NotImplemented
        return self is other or (
            all(getattr(self, name) == getattr(other, name) for name in _COMPARED)
            and same_value(self.default, other.default)
        )

    def __hash__(self) -> int:
        return hash((self.type, self.optional, self.name, self.version, self.fields, self.key_schema))

    def __str__(self) -> str:
        return f"Schema{{{self.type}}}" if self.name is None else f"Schema{{{self.name}:{self.type}}}"

    @classmethod
    def array(cls, value_schema: Schema | None, **facts: Any) -> Schema:
        """Return the schema of arrays. `facts` are further arguments of Schema, here and below."""
        return cls(Type.ARRAY, value_schema=value_schema, **facts)

    @classmethod
    def map(cls, key_schema: Schema | None, value_schema: Schema | None, **facts: Any) -> Schema:
        """Return the schema of maps."""
        return cls(Type.MAP, key_schema=key_schema, value_schema=value_schema, **facts)

    @classmethod
    def struct(cls, fields: Mapping[str, Schema] | Iterable[tuple[str, Schema]], **facts: Any) -> Schema:
        """Return the schema of structs with these fields, in order. Raises SchemaBuilderException for a name twice."""
        pairs = fields.items() if isinstance(fields, Mapping) else fields
        return cls(Type.STRUCT, fields=tuple(Field(name, schema) for name, schema in pairs), **facts)

    @classmethod
    def decimal(cls, scale: int, **facts: Any) -> Schema:
        """Return the schema of decimals with so many digits behind the point; a negative scale is zeros before it."""
        fixed = cls(Type.BYTES, name=LogicalName.DECIMAL, version=1, parameters={SCALE: str(scale)})
        return replace(fixed, **facts)

    def field(self, name: str) -> Field | None:
        """Return the field of this name, None if there is none. Raises DataException if the type is not STRUCT."""
        if self.type is not Type.STRUCT:
            raise DataException("Cannot look up fields on non-struct type")
        found: Field | None = vars(self)["_by_name"].get(name)
        return found

    def as_optional(self) -> Schema:
        """Return the schema that allows None, too."""
        return self if self.optional else replace(self, optional=True)


for _type in (*NUMBER_TYPES, Type.BOOLEAN, Type.STRING, Type.BYTES):
    setattr(Schema, f"{_type}_SCHEMA", Schema(_type))
    setattr(Schema, f"OPTIONAL_{_type}_SCHEMA", Schema(_type, optional=True))
Schema.DATE_SCHEMA = Schema(Type.INT32, name=LogicalName.DATE, version=1)
Schema.TIME_SCHEMA = Schema(Type.INT32, name=LogicalName.TIME, version=1)
Schema.TIMESTAMP_SCHEMA = Schema(Type.INT64, name=LogicalName.TIMESTAMP, version=1)

_COMPARED: Final = [each.name for each in dataclass_fields(Schema) if each.name != "default"]


@dataclass(frozen=True)
class SchemaAndValue:
    """A value with its schema. None for the schema is an unknown one. Equal as `same_value` says."""

    schema: Schema | None
    value: Any

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SchemaAndValue):
            return NotImplemented
        return self.schema == other.schema and same_value(self.value, other.value)

    def __hash__(self) -> int:
        return hash(self.schema)  # values may be lists and maps


class Struct:
    """Values of a schema's fields. A field that was not given is None, and is read as its default."""

    __slots__ = ("_values", "schema")

    def __init__(self, schema: Schema, values: Mapping[str, Any] | None = None) -> None:
        """Make a struct of values by field. Raises DataException as `put` does."""
        if schema.type is not Type.STRUCT:
            raise DataException(f"Not a struct schema: {schema}")
        self.schema: Final = schema
        self._values: dict[str, Any] = {}
        for name, value in (values or {}).items():
            self.put(name, value)

    @classmethod
    def of_checked(cls, schema: Schema, values: Mapping[str, Any]) -> Struct:
        """Make a struct of values that are known to follow the schema, without a check."""
        made = cls(schema)
        made._values.update(values)
        return made

    def put(self, name: str, value: Any) -> Struct:
        """Set a field, and return the struct.

        Raises DataException if the schema has no such field, or the value does not follow that field's.
        """
        known = self._field(name)
        validate_value(known.schema, value, f'field: "{name}"')
        self._values[name] = value
        return self

    def get(self, name: str) -> Any:
        """Return the value of a field, its default for None. Raises DataException if there is no such field."""
        known = self._field(name)
        value = self._values.get(name)
        return known.schema.default if value is None else value

    def get_without_default(self, name: str) -> Any:
        """Return the value of a field as it was put. Raises DataException if there is no such field."""
        return self._values.get(self._field(name).name)

    def validate(self) -> None:
        """Raise DataException if a required field is None, or a value does not follow the schema of its field."""
        for each in self.schema.fields:
            value = self._values.get(each.name)
            if value is not None or each.schema.default is None:
                validate_value(each.schema, value, f'field: "{each.name}"')

    def items(self) -> Iterator[tuple[str, Any]]:
        """Yield fields in the order of the schema with their values, defaults in place of None."""
        for each in self.schema.fields:
            yield each.name, self.get(each.name)

    def _field(self, name: str) -> Field:
        found = self.schema.field(name)
        if found is None:
            raise DataException(f"{name} is not a valid field name")
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Struct):
            return NotImplemented
        if self.schema != other.schema:
            return False
        return all(
            _same_field(self._values.get(each.name), other._values.get(each.name)) for each in self.schema.fields
        )

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        values = ",".join(f"{name}={value!r}" for name, value in self._values.items() if value is not None)
        return f"Struct{{{values}}}"


def same_value(one: Any, other: Any) -> bool:
    """Return whether two values are equal as Java's `equals` defines it, which is stricter than Python's ==.

    NaN equals NaN. 0.0 differs from -0.0, the decimal 1.0 from 1.00, True from 1, and a number from one of another
    width. A plain number equals one that knows its width.
    """
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same_value, one, other))
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return len(one) == len(other) and all(key in other and same_value(one[key], other[key]) for key in one)
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        return one.as_tuple() == other.as_tuple()
    if not (type(one) is type(other) or _is_plain_form(one, other) or _is_plain_form(other, one)):
        return False
    if isinstance(one, float):
        return (one != one and other != other) or (one == other and copysign(1, one) == copysign(1, other))
    return bool(one == other)


def _is_plain_form(plain: Any, other: Any) -> bool:
    """Return whether one is a plain number, and the other one of the same kind that knows its width."""
    return type(plain) in (int, float) and isinstance(other, type(plain)) and not isinstance(other, bool)


def _same_field(one: Any, other: Any) -> bool:
    """Compare bytes by content even if the values themselves, as Java's byte[], would not."""
    return bytes.__eq__(one, other) is True if isinstance(one, bytes) else same_value(one, other)


def logical_name_of(schema: Schema) -> str | None:
    """Return the name of a schema's logical type; None if it has another name, or not the type that Kafka gives it."""
    return schema.name if _LOGICAL_BASES.get(schema.name) is schema.type else None


def is_of_type(value: Any, expected: Type) -> bool:
    """Return whether a value is one of a type. A plain int is of every integer type that holds it; a bool is not."""
    number = NUMBER_TYPES.get(expected)
    if number is not None:
        if type(value) is int and expected in INTEGER_TYPES:
            return in_range(value, INTEGER_TYPES[expected].bits)
        return isinstance(value, number) or (type(value) is float and expected not in INTEGER_TYPES)
    return isinstance(value, _OTHERS[expected])


_OTHERS: Final[dict[Type, tuple[type, ...]]] = {
    Type.BOOLEAN: (bool,),
    Type.STRING: (str,),
    Type.BYTES: (bytes, bytearray, memoryview),
    Type.ARRAY: (list, tuple),
    Type.MAP: (Mapping,),
    Type.STRUCT: (Struct,),
}


def type_of(value: Any) -> Type | None:
    """Return the type of a value without a schema: INT64 for a plain int, FLOAT64 for a plain float. None for no type.

    A Decimal and an Instant have none, as more than one schema may be theirs; nor has an int of more than 64 bits.
    """
    for known, number in NUMBER_TYPES.items():
        if isinstance(value, number):
            return known
    if type(value) is int:
        return Type.INT64 if in_range(value, 64) else None
    if type(value) is float:
        return Type.FLOAT64
    return next((known for known, classes in _OTHERS.items() if isinstance(value, classes)), None)


def validate_value(schema: Schema, value: Any, place: str = "value") -> None:
    """Raise DataException, which names the place, if a value or anything in it does not follow a schema."""
    if value is None:
        if not schema.optional:
            raise DataException(f"Invalid value: null used for required {place}, schema type: {schema.type}")
        return
    logical = LOGICAL_TYPES.get(schema.name)
    if not (is_of_type(value, schema.type) if logical is None else isinstance(value, logical)):
        name = "" if schema.name is None else f' "{schema.name}"'
        shown = type(value).__name__ if type(value) is not int else f"int {value}"
        raise DataException(f"Invalid object for schema{name} with type {schema.type}: {shown} for {place}")
    if logical is not None:
        return
    if schema.type is Type.STRUCT:
        if value.schema != schema:
            raise DataException("Struct schemas do not match.")
        value.validate()
    elif schema.type is Type.ARRAY:
        inner = f"element of array {place}"
        for element in value:
            validate_value(known_schema(schema.value_schema, inner), element, inner)
    elif schema.type is Type.MAP:
        of_key, of_value = f"key of map {place}", f"value of map {place}"
        for key, element in value.items():
            validate_value(known_schema(schema.key_schema, of_key), key, of_key)
            validate_value(known_schema(schema.value_schema, of_value), element, of_value)


def known_schema(schema: Schema | None, place: str) -> Schema:
    """Return a schema that may not be known. Raises DataException if it is not."""
    if schema is None:
        raise DataException(f"No schema defined for {place}")
    return schema
