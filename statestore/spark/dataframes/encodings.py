"""The standard serdes' bytes for columns, and back: expressions of Spark's engine, without Python.

    string   text, whole numbers, decimals, booleans, floating-point numbers, dates     string
    bytes    binary                                                                     binary
    int32    tinyint, smallint, int                                                     int
    int64    tinyint, smallint, int, bigint                                             bigint
    double   float, double, tinyint, smallint, int                                      double
    boolean  boolean                                                                    boolean
    json     everything                                     the type that is asked for, or the JSON's text

The second column can be written; the third is the type of what is read. Conversions with a loss are refused. Times in
JSON are in UTC, with microseconds, whatever zone the session is in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from statestore.format.serde import Serde, standard_serde
from statestore.spark.shards.schema import once

_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"
_JSON_TIMES: Final = {"timeZone": "UTC", "timestampFormat": f"{_TIME}XXX", "timestampNTZFormat": _TIME}
_WRITE_JSON: Final = {**_JSON_TIMES, "ignoreNullFields": "false"}
_MALFORMED: Final = "__malformed"
_SMALL: Final = (ByteType, ShortType, IntegerType)
_WRITABLE: Final[dict[str, tuple[type[DataType], ...]]] = {
    "string": (StringType, *_SMALL, LongType, DecimalType, BooleanType, FloatType, DoubleType, DateType),
    "bytes": (BinaryType,),
    "int32": _SMALL,
    "int64": (*_SMALL, LongType),
    "double": (FloatType, DoubleType, *_SMALL),
    "boolean": (BooleanType,),
    "json": (DataType,),
}
_DEFAULTS: Final[dict[type[DataType], str]] = {
    StringType: "string",
    BinaryType: "bytes",
    **dict.fromkeys(_SMALL, "int32"),
    LongType: "int64",
    FloatType: "double",
    DoubleType: "double",
    BooleanType: "boolean",
    **dict.fromkeys((StructType, ArrayType, MapType), "json"),
}
_BITS: Final = 52
"""Of a double's fraction. The exponent has 11 bits and counts from -1023; the sign has one."""
_FRACTION: Final = (1 << _BITS) - 1
_NOT_FINITE: Final = 0x7FF
_LEAST_EXPONENT: Final = -1022


def encoding_for(spark_type: DataType, encoding: str | Serde[Any] | None) -> str:
    """Return the encoding for a column of this type. Raises ValueError if there is none, or none without a loss."""
    words = spark_type.simpleString()
    if encoding is None:
        found = _DEFAULTS.get(type(spark_type))
        if found is None:
            raise ValueError(f"{words} has no encoding of its own: cast it, or say which encoding to use")
        return found
    name = standard_serde(encoding).name
    if not isinstance(spark_type, _WRITABLE[name]):
        raise ValueError(f"a column of type {words} can't be written as {name} without a loss: cast it")
    return name


def encode(column: Column, name: str) -> Column:
    """Return the bytes that a serde writes for each value, null for null; the column must have a type for it."""
    return _WRITERS[name](column)


def decode(data: Column, name: str, spark_type: DataType | None = None) -> Column:
    """Return what a serde reads in bytes, in JSON as `spark_type`: null for null, and for bytes that it can't read."""
    if name == "json" and spark_type is not None:
        return _from_json(_text(data), spark_type)
    return _READERS[name](data)


def is_malformed(data: Column, value: Column, name: str) -> Column:
    """Return whether bytes could not be read, of which `decode` has made `value`: boolean, never null."""
    unread = data.isNotNull() & value.isNull()
    # JSON has a null of its own.
    return unread & (F.trim(data.cast("string")) != "null") if name == "json" else unread


def _to_json(column: Column) -> Column:
    # Spark can't write a number or a text alone as JSON.
    written = F.to_json(F.array(column), _WRITE_JSON)
    return F.when(column.isNotNull(), F.substring(written, F.lit(2), F.length(written) - 2)).cast("binary")


def _from_json(text: Column, spark_type: DataType) -> Column:
    """Return JSON as a type; null if it can't be read as such."""
    options = {**_JSON_TIMES, "columnNameOfCorruptRecord": _MALFORMED, "mode": "PERMISSIVE"}
    # Spark tells malformed texts from null values only in a struct with a field for the former. And it ignores what
    # follows a value, unless the value is in an array.
    whole = StructType([StructField("values", ArrayType(spark_type)), StructField(_MALFORMED, StringType())])
    read = F.from_json(F.concat(F.lit('{"values":['), text, F.lit("]}")), whole, options)

    def the_one(found: Column) -> Column:
        is_sound = found[_MALFORMED].isNull() & (F.array_size(found["values"]) == 1)
        return F.when(is_sound, F.get(found["values"], F.lit(0)))

    return once(read, the_one)


def _whole_number(width: int, column: Column) -> Column:
    digits = F.lpad(F.hex(column.cast("bigint")), 16, "0")
    return F.unhex(digits if width == 8 else F.substring(digits, 9, 8))


def _read_whole_number(data: Column) -> Column:
    # To base -10: as a signed number of 64 bits.
    return F.when(F.octet_length(data) == 8, F.conv(F.hex(data), 16, -10).cast("bigint"))


def _read_int32(data: Column) -> Column:
    number = F.conv(F.hex(data), 16, 10).cast("bigint")
    return F.when(F.octet_length(data) == 4, F.shiftright(F.shiftleft(number, 32), 32).cast("int"))


def _write_boolean(column: Column) -> Column:
    return F.when(column, F.lit(b"\x01")).when(~column, F.lit(b"\x00"))


def _read_boolean(data: Column) -> Column:
    return F.when(data == F.lit(b"\x01"), F.lit(True)).when(data == F.lit(b"\x00"), F.lit(False))


def _text(data: Column) -> Column:
    text = data.cast("string")
    return F.when(F.is_valid_utf8(text), text)


def _power_of_two(exponent: Column) -> Column:
    # Java's pow is exact where both are whole numbers and the result is a double.
    return F.pow(F.lit(2.0), exponent)


def _write_double(column: Column) -> Column:
    def finite(value: Column) -> Column:
        magnitude = F.abs(value)
        about = F.coalesce(F.floor(F.log2(magnitude)), F.lit(_LEAST_EXPONENT)).cast("bigint")
        return once(about, lambda exponent: _double_bits(magnitude, exponent))

    def bits(value: Column) -> Column:
        infinite = F.lit(_NOT_FINITE << _BITS)
        is_negative = (value < 0) | ((value == 0) & value.cast("string").startswith("-"))
        of_magnitude = F.when(F.abs(value) == float("inf"), infinite).otherwise(finite(value))
        signed = F.when(is_negative, of_magnitude.bitwiseOR(F.lit(-(1 << 63)))).otherwise(of_magnitude)
        return F.when(F.isnan(value), F.lit((_NOT_FINITE << _BITS) | 1 << (_BITS - 1))).when(value.isNotNull(), signed)

    return _whole_number(8, once(column.cast("double"), bits))


def _double_bits(magnitude: Column, about: Column) -> Column:
    """Return the bits of a double that is not negative; a logarithm near a whole number may be off by one."""
    exponent = (
        F.when(magnitude < _power_of_two(about), about - 1)
        .when(magnitude >= _power_of_two(about + 1), about + 1)
        .otherwise(about)
    )

    def of_exponent(exponent: Column) -> Column:
        # Exact, as it divides and multiplies by powers of two. Bit 52 of the sum adds one to the exponent.
        significand = (magnitude / _power_of_two(exponent) * float(1 << _BITS)).cast("bigint")
        return F.shiftleft(exponent - _LEAST_EXPONENT, _BITS) + significand

    return once(F.greatest(exponent, F.lit(_LEAST_EXPONENT)), of_exponent)


def _read_double(data: Column) -> Column:
    def of_bits(bits: Column) -> Column:
        exponent = F.shiftrightunsigned(bits, _BITS).bitwiseAND(F.lit(_NOT_FINITE))
        fraction = bits.bitwiseAND(F.lit(_FRACTION))
        least = _power_of_two(F.lit(float(_LEAST_EXPONENT - _BITS)))
        magnitude = (
            F.when(exponent == _NOT_FINITE, F.when(fraction == 0, F.lit(float("inf"))).otherwise(F.lit(float("nan"))))
            .when(exponent == 0, fraction * least)
            .otherwise((fraction + (1 << _BITS)) * _power_of_two(exponent + (_LEAST_EXPONENT - _BITS - 1)))
        )
        return F.when(bits < 0, -magnitude).otherwise(magnitude)

    # Null stays null, though `once` calls `of_bits` for it.
    return once(_read_whole_number(data), lambda bits: F.when(bits.isNotNull(), of_bits(bits)))


_WRITERS: Final[dict[str, Callable[[Column], Column]]] = {
    "string": lambda column: column.cast("string").cast("binary"),
    "bytes": lambda column: column,
    "int32": lambda column: _whole_number(4, column),
    "int64": lambda column: _whole_number(8, column),
    "double": _write_double,
    "boolean": _write_boolean,
    "json": _to_json,
}
_READERS: Final[dict[str, Callable[[Column], Column]]] = {
    "string": _text,
    "bytes": lambda data: data,
    "int32": _read_int32,
    "int64": _read_whole_number,
    "double": _read_double,
    "boolean": _read_boolean,
    "json": _text,
}
