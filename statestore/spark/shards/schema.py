"""The columns of rows: those of Kafka's source come in, those of Kafka's sink go out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from statestore.errors import InputSchemaError
from statestore.format.records.header_columns import HEADERS_TYPE

HEADERS = "array<struct<key:string,value:binary>>"
_REQUIRED = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "headers": HEADERS,
}
_IGNORED = {"timestampType": "int"}
INPUT_COLUMNS = tuple(_REQUIRED)
OUTPUT_SCHEMA = f"key binary, value binary, topic string, timestamp timestamp, headers {HEADERS}"
_SPARK_TYPES: Final = {
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    HEADERS_TYPE: HEADERS,
}


def check_choice(parameter: str, value: str, choices: Iterable[str]) -> None:
    """Raise ValueError if an argument is not one of its choices."""
    known = [*choices]
    if value not in known:
        raise ValueError(f"{parameter} must be one of {', '.join(known)}, not {value!r}")


def once(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return what `use` makes of a value that is computed once however often it is used, even in lambdas."""
    return f.get(f.transform(f.array(value), use), f.lit(0))


def spark_type(arrow: pa.DataType) -> str:
    """Return Spark's name of one of Arrow's types. Raises KeyError for one that no row of ours has."""
    return _SPARK_TYPES[arrow]


def spark_schema(fields: Iterable[pa.Field]) -> str:
    """Return Spark's schema of rows with these fields, as Spark writes it."""
    return ", ".join(f"{field.name} {spark_type(field.type)}" for field in fields)


def check_input_schema(schema: StructType) -> None:
    """Raise InputSchemaError unless `schema` is that of Spark's Kafka source with headers."""
    known = {**_REQUIRED, **_IGNORED}
    for field in schema.fields:
        if field.name not in known:
            raise InputSchemaError(
                field.name,
                f"is not a column of Spark's Kafka source ({', '.join(known)}). Drop it, or move it to key, value or "
                "headers before stateful()",
            )
    for name, wanted in _REQUIRED.items():
        if name not in schema.names:
            hint = (
                "Read from Kafka with .option('includeHeaders', 'true')"
                if name == "headers"
                else "to_records() adds it"
            )
            raise InputSchemaError(name, f"is missing; stateful() needs it as {wanted}. {hint}")
        check_column_type(schema[name], wanted)


def check_column_type(field: StructField, wanted: str) -> None:
    """Raise InputSchemaError unless a column has the type `wanted`, as Spark writes types."""
    found = field.dataType.simpleString()
    if found != wanted:
        remedy = f": {_remedy_of_headers(field.dataType)}" if wanted == HEADERS else "; cast it"
        raise InputSchemaError(field.name, f"is {found}, not {wanted}{remedy}")


def _remedy_of_headers(found: DataType) -> str:
    """Return what to do about a column of headers of another type."""
    if isinstance(found, MapType):
        return (
            "headers have an order and may repeat a key, which a map can't keep. Take the column as Spark's Kafka "
            "source gives it, or make headers of the map: transform(map_entries(headers), h -> named_struct('key', "
            "string(h.key), 'value', binary(h.value)))"
        )
    element = found.elementType if isinstance(found, ArrayType) else None
    names = element.names if isinstance(element, StructType) else []
    if names == ["key", "value"]:
        return f"cast it: cast(headers as {HEADERS})"
    if sorted(names) == ["key", "value"]:
        return "swap the fields: transform(headers, h -> named_struct('key', h.key, 'value', h.value))"
    if names == ["key"]:
        return (
            "each header needs a value, which may be null: transform(headers, h -> named_struct('key', h.key, 'value', "
            "cast(null as binary)))"
        )
    return "take the column as Spark's Kafka source gives it, or an empty array of that type if there are no headers"
