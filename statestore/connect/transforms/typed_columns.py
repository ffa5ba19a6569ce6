"""A column of keys or values as typed values, and back.

    Arrow                            Connect
    bool, int8 .. int64              BOOLEAN, INT8 .. INT64; uint8 .. uint32 the next wider one
    float, double                    FLOAT32, FLOAT64
    string, binary                   STRING, BYTES
    decimal, date, time, timestamp   the logical types; below a millisecond times are cut
    list, map, struct                ARRAY, MAP, STRUCT

What may be null in Arrow is optional. A column of another type has values without a schema; a struct must not hold one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from statestore.connect import logical_types
from statestore.connect.scalars import Instant
from statestore.connect.schema import NUMBER_TYPES, LogicalName, Schema, Struct, Type, known_schema
from statestore.connect.typed_map import map_of_distinct
from statestore.errors import DataException
from statestore.format.binary_columns import row_objects

_PRIMITIVES: Final = {
    pa.bool_(): Type.BOOLEAN,
    pa.int8(): Type.INT8,
    pa.int16(): Type.INT16,
    pa.int32(): Type.INT32,
    pa.int64(): Type.INT64,
    pa.float32(): Type.FLOAT32,
    pa.float64(): Type.FLOAT64,
    pa.string(): Type.STRING,
    pa.binary(): Type.BYTES,
}
_TYPES: Final = {type_: arrow for arrow, type_ in _PRIMITIVES.items()}
_WIDER: Final = {
    pa.uint8(): Type.INT16,
    pa.uint16(): Type.INT32,
    pa.uint32(): Type.INT64,
    pa.large_string(): Type.STRING,
    pa.large_binary(): Type.BYTES,
}
_TIME: Final = pa.time32("ms")
_LOGICAL_TYPES: Final = {
    LogicalName.DATE: pa.date32(),
    LogicalName.TIME: _TIME,
    LogicalName.TIMESTAMP: pa.timestamp("ms", "UTC"),
}
_POINTS_IN_TIME: Final[dict[str | None, Callable[[Instant], Any]]] = {
    LogicalName.DATE: Instant.to_date,
    LogicalName.TIME: Instant.to_time,
    LogicalName.TIMESTAMP: Instant.to_datetime,
}
MOST_DIGITS: Final = 38


class TypedColumn:
    """The rows of a column as typed values."""

    def __init__(self, column: pa.Array) -> None:
        """Read a column. Raises DataException if it is of structs with a field that has no schema."""
        self._column = column
        self.schema = schema_of(column.type)
        if self.schema is None and pa.types.is_struct(column.type):
            raise DataException(f"A column of {column.type} has a field whose type has no schema")
        objects = row_objects(column)
        schema = self.schema
        self.values: list[Any] = objects if schema is None else [_typed(schema, each) for each in objects]

    def column_of(self, rows: Sequence[int], schemas: Sequence[Schema | None], values: Sequence[Any]) -> pa.Array:
        """Return the column with what was made of some of its rows: the same types and bytes where nothing was.

        Values of another schema are a column of its type. Raises DataException if there are several, or a value does
        not follow its schema.
        """
        kept = self._column if len(rows) == len(self._column) else self._column.take(pa.array(rows, pa.int64()))
        if all(value is self.values[row] for row, value in zip(rows, values, strict=True)):
            return kept
        if pa.types.is_struct(self._column.type) and all(
            value is None or isinstance(value, Struct) for value in values
        ):
            return self._structs(kept, rows, schemas, values)
        plain = [_plain(schema, value) for schema, value in zip(schemas, values, strict=True)]
        return _array(plain, self._type_of(schemas, values), "the column")

    def _type_of(self, schemas: Sequence[Schema | None], values: Sequence[Any]) -> pa.DataType:
        """Return the type that all values have that are not null; that of the column if they have its schema."""
        of_values = [schema for schema, value in zip(schemas, values, strict=True) if value is not None]
        found = [None if schema is None else schema.as_optional() for schema in of_values or schemas]
        other = next((schema for schema in found if schema != found[0]), found[0])
        if other != found[0]:
            raise DataException(f"The column can't be one of {found[0]} and {other}")
        own = None if self.schema is None else self.schema.as_optional()
        return self._column.type if found[0] is None or found[0] == own else type_of_schema(found[0])

    def _structs(
        self, kept: pa.StructArray, rows: Sequence[int], schemas: Sequence[Schema | None], values: Sequence[Any]
    ) -> pa.StructArray:
        found: dict[str, Schema] = {}
        for schema, value in zip(schemas, values, strict=True):
            for field in () if schema is None or value is None else schema.fields:
                other = found.setdefault(field.name, field.schema)
                if other is not field.schema and other.as_optional() != field.schema.as_optional():
                    raise DataException(f"Field {field.name!r} can't be one column: it is {other} and {field.schema}")
        own = {} if self.schema is None else {field.name: field.schema for field in self.schema.fields}
        names = [*(name for name in own if name in found), *(name for name in found if name not in own)]
        fields = []
        for name in names:
            before = [_field(self.values[row], name) for row in rows]
            after = [_field(value, name) for value in values]
            if name in own and all(one is other for one, other in zip(before, after, strict=True)):
                fields.append(pc.struct_field(kept, name))
                continue
            is_own = name in own and found[name].as_optional() == own[name].as_optional()
            type_ = self._column.type.field(name).type if is_own else type_of_schema(found[name])
            fields.append(_array([_plain(found[name], each) for each in after], type_, f"field {name!r}"))
        mask = pa.array([value is None for value in values], pa.bool_())
        types = [pa.field(name, field.type) for name, field in zip(names, fields, strict=True)]
        if not fields:
            return pa.array([None if value is None else {} for value in values], pa.struct([]))
        return pa.StructArray.from_arrays(fields, fields=types, mask=mask)


def schema_of(type_: pa.DataType, *, is_optional: bool = True) -> Schema | None:
    """Return the schema of an Arrow type, None if there is none."""
    primitive = _PRIMITIVES.get(type_) or _WIDER.get(type_)
    if primitive is not None:
        return Schema(primitive, optional=is_optional)
    found = _composite(type_)
    return None if found is None else replace(found, optional=is_optional)


def _composite(type_: pa.DataType) -> Schema | None:
    if pa.types.is_dictionary(type_):
        return schema_of(type_.value_type)
    if pa.types.is_decimal(type_):
        return Schema.decimal(type_.scale)
    if pa.types.is_date(type_):
        return Schema.DATE_SCHEMA
    if pa.types.is_time(type_):
        return Schema.TIME_SCHEMA
    if pa.types.is_timestamp(type_):
        return Schema.TIMESTAMP_SCHEMA
    if pa.types.is_map(type_):
        key, value = schema_of(type_.key_type, is_optional=False), _of_field(type_.item_field)
        return None if key is None or value is None else Schema.map(key, value)
    if pa.types.is_list(type_) or pa.types.is_large_list(type_):
        element = _of_field(type_.value_field)
        return None if element is None else Schema.array(element)
    if pa.types.is_struct(type_):
        fields = {field.name: _of_field(field) for field in type_}
        known = {name: schema for name, schema in fields.items() if schema is not None}
        return Schema.struct(known) if len(known) == type_.num_fields else None
    return None


def _of_field(field: pa.Field) -> Schema | None:
    return schema_of(field.type, is_optional=field.nullable)


def type_of_schema(schema: Schema, time_type: pa.DataType = _TIME) -> pa.DataType:
    """Return the Arrow type for values of a schema, with one for times of the day.

    Raises DataException if elements have no schema in common.
    """
    if schema.name == LogicalName.DECIMAL:
        return pa.decimal128(MOST_DIGITS, logical_types.scale_of_schema(schema))
    if schema.name == LogicalName.TIME:
        return time_type
    if schema.name in _LOGICAL_TYPES:
        return _LOGICAL_TYPES[schema.name]
    if schema.type is Type.ARRAY:
        return pa.list_(type_of_schema(_element(schema.value_schema, schema), time_type))
    if schema.type is Type.MAP:
        parts = (_element(each, schema) for each in (schema.key_schema, schema.value_schema))
        return pa.map_(*(type_of_schema(part, time_type) for part in parts))
    if schema.type is Type.STRUCT:
        return pa.struct([pa.field(field.name, type_of_schema(field.schema, time_type)) for field in schema.fields])
    return _TYPES[schema.type]


def _element(schema: Schema | None, outer: Schema) -> Schema:
    return known_schema(schema, f"what is in {outer}: a column needs one")


def _typed(schema: Schema, value: Any) -> Any:
    if value is None or schema.name == LogicalName.DECIMAL:
        return value
    if schema.name in _LOGICAL_TYPES:
        return Instant.of(value)
    if schema.type is Type.STRUCT:
        fields = {field.name: _typed(field.schema, value[field.name]) for field in schema.fields}
        return Struct(schema, {name: each for name, each in fields.items() if each is not None})
    if schema.type is Type.ARRAY:
        element = _element(schema.value_schema, schema)
        return [_typed(element, each) for each in value]
    if schema.type is Type.MAP:
        of_key, of_value = _element(schema.key_schema, schema), _element(schema.value_schema, schema)
        return map_of_distinct([(_typed(of_key, key), _typed(of_value, each)) for key, each in value])
    number = NUMBER_TYPES.get(schema.type)
    return value if number is None else number(value)


def _plain(schema: Schema | None, value: Any) -> Any:
    """Return what Arrow takes for a typed value."""
    if isinstance(value, Instant):
        as_python = _POINTS_IN_TIME.get(None if schema is None else schema.name, Instant.to_datetime)
        return as_python(value)
    if isinstance(value, Struct):
        return {field.name: _plain(field.schema, value.get(field.name)) for field in value.schema.fields}
    if isinstance(value, Mapping):
        of_key, of_value = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
        return [(_plain(of_key, key), _plain(of_value, each)) for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(None if schema is None else schema.value_schema, each) for each in value]
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _field(value: Any, name: str) -> Any:
    """Return the value of a struct's field, None if there is no struct, or no such field in it."""
    if not isinstance(value, Struct) or value.schema.field(name) is None:
        return None
    return value.get(name)


def _array(values: list[Any], type_: pa.DataType, what: str) -> pa.Array:
    try:
        return pa.array(values, type_)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as cause:
        # Arrow's message would quote the value.
        raise DataException(f"{what} can't hold what was made of it: {type(cause).__name__}") from None
