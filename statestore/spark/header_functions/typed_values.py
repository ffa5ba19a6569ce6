"""Values of headers as a header converter reads them: in Python, over columns of Arrow, each value once a batch.

    Kafka Connect                        Spark
    INT8, INT16, INT32, INT64            tinyint, smallint, int, bigint
    FLOAT32, FLOAT64, BOOLEAN            float, double, boolean
    STRING, BYTES                        string, binary
    Decimal, Date, Timestamp             decimal(38, scale), date, timestamp
    Time                                 int, milliseconds since midnight: Spark has no type for it
    ARRAY, MAP, STRUCT                   array, map, struct

A struct may be read from a map: its fields are the entries with their names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, SparkSession
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_type

from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.registry import header_converter
from statestore.connect.converters.simple import SimpleHeaderConverter
from statestore.connect.header import header_in_errors
from statestore.connect.logical_types import scale_of_schema
from statestore.connect.scalars import Instant
from statestore.connect.schema import LOGICAL_TYPES, LogicalName, Schema, Struct, Type, known_schema
from statestore.connect.transforms.typed_columns import type_of_schema
from statestore.connect.values.compat import COMPAT
from statestore.connect.values.strict import STRICT
from statestore.connect.values.values import Values
from statestore.errors import DataException
from statestore.errors.readable import shape_of
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.spark.header_functions.lookups import ON_ERROR, checked_key, column_of, last_value
from statestore.spark.query_settings import session_header_converter
from statestore.spark.shards.schema import check_choice
from statestore.spark.spark_versions import arrow_type_of, arrow_udf

AnyConverter: TypeAlias = HeaderConverter | str | Mapping[str, Any] | None
TYPED_HEADERS: Final = "array<struct<key:string,type:string,text:string>>"
_TYPED: Final = pa.list_(pa.struct([("key", pa.string()), ("type", pa.string()), ("text", pa.string())]))
_PRIMITIVES: Final[dict[Type, T.DataType]] = {
    Type.INT8: T.ByteType(),
    Type.INT16: T.ShortType(),
    Type.INT32: T.IntegerType(),
    Type.INT64: T.LongType(),
    Type.FLOAT32: T.FloatType(),
    Type.FLOAT64: T.DoubleType(),
    Type.BOOLEAN: T.BooleanType(),
    Type.STRING: T.StringType(),
    Type.BYTES: T.BinaryType(),
}


def header_typed(
    headers: Column | str,
    key: str,
    data_type: str | T.DataType | Schema,
    *,
    converter: AnyConverter = None,
    topic: str = "",
    on_error: str = "raise",
) -> Column:
    """Return the value of the last header of this key as a value of any type. Null if there is none, or it is null.

    Python reads it, in batches of Arrow: where `header_int` and its like suffice, they are many times faster.

    Args:
        headers: the column.
        key: of the header.
        data_type: a type of Spark ("array<int>", "decimal(10,2)"), or a schema of Kafka Connect.
        converter: reads the bytes: a converter, its name ("Json"), or properties such as `header.converter` and
            `header.converter.schemas.enable`; None is that of the session (`spark.statestore.header.converter`), else
            Kafka's SimpleHeaderConverter. A strict converter refuses conversions with a loss; all are strict but those
            whose properties say `mode=compat`, which convert as Kafka does.
        topic: what to tell the converter.
        on_error: "raise" ends the query at a value that can't be read or converted, "null" makes it null.

    Raises ConfigException for an unknown converter, DataException for a type without a schema, and ValueError and
    TypeError for illegal arguments.
    """
    check_choice("on_error", on_error, ON_ERROR)
    schema, spark_type = _schema_and_type(data_type)
    reader = _Reader(checked_key(key), topic, schema, spark_type, _converter_of(converter), on_error)
    return _in_batches(reader.read, spark_type)(last_value(column_of(headers), key))


def typed_headers(headers: Column | str, *, converter: AnyConverter = None, topic: str = "") -> Column:
    """Return all headers with their types: array<struct<key:string,type:string,text:string>>.

    `type` is that of Kafka Connect (INT8, STRING, Timestamp), null if a value has none, and `text` the printed value,
    null for a null value. A header that can't be read ends the query. Arguments are those of `header_typed`.
    """
    viewer = _Viewer(topic, _converter_of(converter))
    return _in_batches(viewer.view, TYPED_HEADERS)(column_of(headers))


def _converter_of(converter: AnyConverter) -> HeaderConverter:
    of_session = session_header_converter(SparkSession.getActiveSession()) if converter is None else None
    return of_session or header_converter(converter)


def _in_batches(function: Callable[[pa.Array], pa.Array], returned: T.DataType | str) -> Callable[[Column], Column]:
    """Return a function of columns that calls `function` with a batch at a time."""

    def run(column: pa.Array) -> pa.Array:
        return function(column)

    make: Any = arrow_udf  # typed without the form that takes the kind of function from the hints of `run`
    made: Callable[[Column], Column] = make(run, returned)
    return made


@dataclass(frozen=True)
class _Reader:
    """Reads the values of one key. Travels to the executors."""

    key: str
    topic: str
    schema: Schema
    spark_type: T.DataType
    converter: HeaderConverter
    on_error: str

    def read(self, values: pa.Array) -> pa.Array:
        distinct = values.cast(pa.binary()).dictionary_encode()
        found = [self._convert(value) for value in distinct.dictionary.to_pylist()]
        arrow_type = arrow_type_of(self.spark_type)
        return pa.array(found, arrow_type).take(distinct.indices)

    def _convert(self, value: bytes) -> Any:
        try:
            with header_in_errors(self.key):
                read = self.converter.to_connect_header(self.topic, self.key, value)
                if read is None:
                    return None
                plain = _plain(self.schema, read.schema, read.value, _conversions_of(self.converter))
                return _fitting(plain, arrow_type_of(self.spark_type))
        except DataException:
            if self.on_error == "null":
                return None
            raise


@dataclass(frozen=True)
class _Viewer:
    """Tells types and texts of all headers. Travels to the executors."""

    topic: str
    converter: HeaderConverter

    def view(self, column: pa.Array) -> pa.Array:
        column = column.cast(HEADERS_TYPE)
        entries = column.flatten()
        keys, values = (entries.field(name).dictionary_encode() for name in ("key", "value"))
        names, texts = [*keys.dictionary.to_pylist(), None], [*values.dictionary.to_pylist(), None]
        of_key, of_value = (
            each.indices.fill_null(len(each.dictionary)).to_numpy(zero_copy_only=False).astype(np.int64)
            for each in (keys, values)
        )
        pairs, rows = np.unique(of_key * len(texts) + of_value, return_inverse=True)
        seen = [self._type_and_text(names[pair // len(texts)], texts[pair % len(texts)]) for pair in pairs.tolist()]
        taken = pa.array(seen, pa.struct([("type", pa.string()), ("text", pa.string())])).take(pa.array(rows))
        fields = [entries.field("key"), taken.field("type"), taken.field("text")]
        made = pa.StructArray.from_arrays(fields, fields=list(_TYPED.value_type), mask=entries.is_null())
        lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), made, type=_TYPED, mask=column.is_null())

    def _type_and_text(self, key: str | None, value: bytes | None) -> dict[str, str | None]:
        with header_in_errors(key or ""):
            read = self.converter.to_connect_header(self.topic, key or "", value)
            if read is None:
                return {"type": None, "text": None}
            text = _conversions_of(self.converter).values.convert_to_string(read.schema, read.value)
        return {"type": _type_name(read.schema), "text": text}


def _type_name(schema: Schema | None) -> str | None:
    if schema is None:
        return None
    is_logical = schema.name in LOGICAL_TYPES
    return str(schema.name).rpartition(".")[2] if is_logical else schema.type.name


def _schema_and_type(data_type: str | T.DataType | Schema) -> tuple[Schema, T.DataType]:
    if isinstance(data_type, Schema):
        return data_type, from_arrow_type(type_of_schema(data_type, time_type=pa.int32()))
    spark_type = T.DataType.fromDDL(data_type) if isinstance(data_type, str) else data_type
    return _schema(spark_type), spark_type


def _element(schema: Schema | None, outer: Schema) -> Schema:
    return known_schema(schema, f"what is in {outer}: a column needs one")


def _schema(spark_type: T.DataType) -> Schema:
    if isinstance(spark_type, T.DecimalType):
        return Schema.decimal(spark_type.scale, optional=True)
    if isinstance(spark_type, T.DateType | T.TimestampType):
        return (Schema.DATE_SCHEMA if isinstance(spark_type, T.DateType) else Schema.TIMESTAMP_SCHEMA).as_optional()
    if isinstance(spark_type, T.ArrayType):
        return Schema.array(_schema(spark_type.elementType), optional=True)
    if isinstance(spark_type, T.MapType):
        return Schema.map(_schema(spark_type.keyType), _schema(spark_type.valueType), optional=True)
    if isinstance(spark_type, T.StructType):
        return Schema.struct({field.name: _schema(field.dataType) for field in spark_type.fields}, optional=True)
    for type_, known in _PRIMITIVES.items():
        if known == spark_type:
            return Schema(type_, optional=True)
    raise DataException(f"headers can't be read as {spark_type.simpleString()}: Kafka Connect has no such type")


@dataclass(frozen=True)
class _Conversions:
    """Converts what a converter has read."""

    values: Values
    are_texts: bool
    """Whether to convert the printed value: 1.1 read as FLOAT32 is the double 1.1, not the one nearest to the float."""

    def scalar(self, schema: Schema, found: Schema | None, value: Any) -> Any:
        if self.are_texts and not isinstance(value, str | bytes):
            found, value = Schema.STRING_SCHEMA, self.values.convert_to_string(found, value)
        if schema.name == LogicalName.DECIMAL:
            return self.values.convert_to_decimal(found, value, scale_of_schema(schema))
        if schema.name in _INSTANTS:
            convert, as_plain = _INSTANTS[schema.name]
            return as_plain(convert(self.values, found, value))
        if schema.type is Type.BYTES:
            return bytes(STRICT.parse_as(Schema.BYTES_SCHEMA, value) if isinstance(value, str) else value)
        if isinstance(value, bytes):
            raise DataException(f"{shape_of(value)} can't be converted to {schema.type}: the converter returned bytes")
        return _CONVERSIONS[schema.type](self.values, found, value)


def _conversions_of(converter: HeaderConverter) -> _Conversions:
    return _Conversions(
        STRICT if converter.is_strict else COMPAT, converter.is_strict and isinstance(converter, SimpleHeaderConverter)
    )


def _plain(schema: Schema, found: Schema | None, value: Any, by: _Conversions) -> Any:
    """Return a value that was read with the schema `found` as Arrow takes one of `schema`."""
    if value is None:
        return None
    if schema.type is Type.ARRAY:
        of_element = None if found is None else found.value_schema
        return [
            _plain(_element(schema.value_schema, schema), of_element, each, by)
            for each in by.values.convert_to_list(found, value) or ()
        ]
    if schema.type is Type.MAP:
        of_key, of_value = (None, None) if found is None else (found.key_schema, found.value_schema)
        return [
            (
                _plain(_element(schema.key_schema, schema), of_key, key, by),
                _plain(_element(schema.value_schema, schema), of_value, each, by),
            )
            for key, each in (by.values.convert_to_map(found, value) or {}).items()
        ]
    if schema.type is Type.STRUCT:
        return _fields(schema, found, value, by)
    return by.scalar(schema, found, value)


def _fields(schema: Schema, found: Schema | None, value: Any, by: _Conversions) -> dict[str, Any]:
    """Return the fields of a struct, or a map's entries with their names."""
    if isinstance(value, str):
        value = by.values.convert_to_map(found, value)
    if isinstance(value, Struct):
        known = {name: (value.schema.field(name), each) for name, each in value.items()}
    elif isinstance(value, Mapping):
        known = {name: (None, each) for name, each in value.items()}
    else:
        raise DataException(f"{type(value).__name__} is neither a struct nor a map")
    made = {}
    for field in schema.fields:
        of_field, each = known.get(field.name, (None, None))
        made[field.name] = _plain(field.schema, None if of_field is None else of_field.schema, each, by)
    return made


def _fitting(plain: Any, arrow_type: pa.DataType) -> Any:
    """Return a value. Raises DataException if Arrow does not take it for the type."""
    try:
        pa.array([plain], arrow_type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as cause:
        # Arrow's message would show the value.
        raise DataException(f"{shape_of(plain)} does not fit {arrow_type}: {type(cause).__name__}") from None
    return plain


_Conversion = Callable[[Any, "Schema | None", Any], Any]
_CONVERSIONS: Final[dict[Type, _Conversion]] = {
    Type.INT8: lambda values, schema, value: values.convert_to_byte(schema, value),
    Type.INT16: lambda values, schema, value: values.convert_to_short(schema, value),
    Type.INT32: lambda values, schema, value: values.convert_to_integer(schema, value),
    Type.INT64: lambda values, schema, value: values.convert_to_long(schema, value),
    Type.FLOAT32: lambda values, schema, value: values.convert_to_float(schema, value),
    Type.FLOAT64: lambda values, schema, value: values.convert_to_double(schema, value),
    Type.BOOLEAN: lambda values, schema, value: values.convert_to_boolean(schema, value),
    Type.STRING: lambda values, schema, value: values.convert_to_string(schema, value),
}
_INSTANTS: Final[dict[str | None, tuple[_Conversion, Callable[[Instant], Any]]]] = {
    LogicalName.DATE: (lambda values, schema, value: values.convert_to_date(schema, value), Instant.to_date),
    LogicalName.TIME: (lambda values, schema, value: values.convert_to_time(schema, value), lambda time: time.epoch_ms),
    LogicalName.TIMESTAMP: (
        lambda values, schema, value: values.convert_to_timestamp(schema, value),
        Instant.to_datetime,
    ),
}
