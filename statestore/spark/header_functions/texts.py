"""Values of headers that are texts of numbers, times and so on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from statestore.spark.header_functions.lookups import (
    ON_ERROR,
    checked_key,
    column_of,
    last_value,
    no_such_value,
)
from statestore.spark.shards.schema import check_choice

_DECIMAL_NUMBER: Final = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\z"  # $ would let a line end follow
_NOT_ZERO: Final = r"^[+-]?[0.]*[1-9]"
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_ISO_TIMESTAMP: Final = r"^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z\z"
_WHOLE_NUMBER: Final = r"^[+-]?[0-9]+(\.0*)?\z"
_MIDNIGHT: Final = "00:00:00.000Z"


def header_string(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as text: string. Bytes must be UTF-8.

    Like all `header_*` functions, null if there is no such header or its value is null. `on_error` is what to do about
    wrong values: "raise" ends the query with an error that names the header, "null" makes them null.
    """
    return _read(headers, key, "UTF-8 text", lambda text: F.when(F.is_valid_utf8(text), text), on_error)


def header_int(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as a number of 32 bits: int.

    The text must be a whole number in that range: 7, but also 007, +7 or 7.0. Wrong are 7.5, and numbers with blanks or
    an exponent. `on_error` as in `header_string`.
    """
    return _read(headers, key, "INT32", lambda text: _whole_number(text, "int"), on_error)


def header_long(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as a number of 64 bits: bigint. Otherwise as `header_int`."""
    return _read(headers, key, "INT64", lambda text: _whole_number(text, "bigint"), on_error)


def header_double(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as the double nearest to it: double.

    The text must be a decimal number with or without fraction and exponent, NaN, Infinity or -Infinity. Numbers too
    large for a double are wrong, and those so small that they would become 0. `on_error` as in `header_string`.
    """
    return _read(headers, key, "FLOAT64", _double, on_error)


def header_boolean(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key: boolean. It must be true or false, or the number 1 or 0.

    `on_error` as in `header_string`.
    """
    return _read(headers, key, "BOOLEAN", _boolean, on_error)


def header_date(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as a day: date.

    The text must be a midnight that `header_timestamp` takes, most often 2017-05-21. `on_error` as in `header_string`.
    """
    return _read(headers, key, "date", _date, on_error)


def header_timestamp(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as a point in time: timestamp.

    The text must be like 2017-05-21T16:31:05.387Z or, for midnight, 2017-05-21, of the years 1 to 9999, in UTC,
    whatever zone the session or the machine is in. Wrong is 16:31:05.387Z: so Kafka prints times before 1970-01-02,
    without their day. `on_error` as in `header_string`.
    """
    return _read(headers, key, "timestamp", _timestamp, on_error)


def _read(headers: Column | str, key: str, expected: str, convert: Callable[[Column], Column], on_error: str) -> Column:
    """Return what `convert` makes of the last header's text; it must return null for a wrong text."""
    check_choice("on_error", on_error, ON_ERROR)
    text = last_value(column_of(headers), checked_key(key)).cast("string")  # Spark does not check the bytes
    value = convert(text)
    if on_error == "null":
        return value
    problem = no_such_value(f"header {key!r}", expected, text)
    return F.when(text.isNull() | value.isNotNull(), value).otherwise(F.raise_error(problem))


def _whole_number(text: Column, spark_type: str) -> Column:
    value = text.try_cast(spark_type)
    is_other_text = text.rlike(_WHOLE_NUMBER)
    # Nearly all texts are as Spark prints the number, which is quicker to check.
    return F.coalesce(
        F.when(value.cast("string") == text, value),
        F.when(is_other_text, text.try_cast("decimal(38,18)").try_cast(spark_type)),
    )


def _double(text: Column) -> Column:
    value = text.try_cast("double")
    is_lost = value.isin(float("inf"), float("-inf")) | ((value == 0) & text.rlike(_NOT_ZERO))
    return F.when(text.isin(*_NOT_FINITE) | (text.rlike(_DECIMAL_NUMBER) & ~is_lost), value)


def _boolean(text: Column) -> Column:
    number = _whole_number(text, "int")
    as_number = F.when(number.isin(0, 1), number == 1)
    return F.when(text == "true", F.lit(True)).when(text == "false", F.lit(False)).otherwise(as_number)


def _date(text: Column) -> Column:
    whole = _whole_timestamp(text)
    day = F.substring(whole, 1, len("2017-05-21"))
    return F.when(whole.rlike(_ISO_TIMESTAMP) & whole.endswith(f"T{_MIDNIGHT}"), day.try_cast("date"))


def _timestamp(text: Column) -> Column:
    whole = _whole_timestamp(text)
    return F.when(whole.rlike(_ISO_TIMESTAMP), whole.try_cast("timestamp"))


def _whole_timestamp(text: Column) -> Column:
    return F.when(F.length(text) == len("2017-05-21"), F.concat(text, F.lit(f"T{_MIDNIGHT}"))).otherwise(text)
