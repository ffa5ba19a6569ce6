"""Values of headers as what their texts stand for."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from statestore.spark.header_functions.headers_column import ON_ERROR, check_choice, checked_key, column_of, last_value

_SHOWN_CHARACTERS_MAX: Final = 100
_DECIMAL_NUMBER: Final = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\z"  # $ would let a line end follow
_NOT_ZERO: Final = r"^[+-]?[0.]*[1-9]"
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_ISO_TIMESTAMP: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z\z"
_FIRST_DAY: Final = "1582-10-15"
"""Before it a date of Java's means another day than one of Spark's."""
_MIDNIGHT: Final = "00:00:00.000Z"


def header_string(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as text: string. Wrong are bytes that are no UTF-8.

    As all `header_*` functions, null if there is no such header or its value is null. `on_error` is what wrong values
    become: "raise" ends the query with an error that names the header, "null" makes them null.
    """
    return _read(headers, key, "UTF-8 text", lambda text: F.when(F.is_valid_utf8(text), text), on_error)


def header_int(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as a number of 32 bits: int.

    Right is what such a number is printed as: digits, and a minus before them, without spaces, plus or leading zeros.
    `on_error` as in `header_string`.
    """
    return _read(headers, key, "INT32", lambda text: _printed_alike(text, "int"), on_error)


def header_long(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as a number of 64 bits: bigint. Otherwise as `header_int`."""
    return _read(headers, key, "INT64", lambda text: _printed_alike(text, "bigint"), on_error)


def header_double(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as the double nearest to it: double.

    Right are decimal numbers with or without a fraction and an exponent, NaN, Infinity and -Infinity. Wrong are
    numbers that are no zero and too small for a double, or too large. `on_error` as in `header_string`.
    """
    return _read(headers, key, "FLOAT64", _double, on_error)


def header_boolean(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key: boolean. Right are true and false; else as `header_string`."""
    return _read(headers, key, "BOOLEAN", _boolean, on_error)


def header_date(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as a day: date.

    Right is 2017-05-21, of the years 1582 (October 15, as Java's calendar is another one before) to 9999, and
    00:00:00.000Z, as Kafka prints 1970-01-01. `on_error` as in `header_string`.
    """
    return _read(headers, key, "date", _date, on_error)


def header_timestamp(headers: Column | str, key: str, *, on_error: str = "raise") -> Column:
    """Return the value of the last header of this key as a point in time: timestamp.

    Right are the three forms that Kafka prints: 2017-05-21T16:31:05.387Z, 2017-05-21 for midnight and 16:31:05.387Z
    for 1970-01-01, all in UTC, whatever zone the session or the machine is in. Years as in `header_date`; `on_error`
    as in `header_string`.
    """
    return _read(headers, key, "timestamp", _timestamp, on_error)


def _read(headers: Column | str, key: str, expected: str, convert: Callable[[Column], Column], on_error: str) -> Column:
    """Return what `convert` makes of the text of the last header, which is null for what is wrong."""
    check_choice("on_error", on_error, ON_ERROR)
    text = last_value(column_of(headers), checked_key(key)).cast("string")  # Spark does not look at the bytes here
    value = convert(text)
    if on_error == "null":
        return value
    shown = F.make_valid_utf8(F.substring(text, 1, _SHOWN_CHARACTERS_MAX))
    problem = F.concat(F.lit(f"header {key!r}: '"), shown, F.lit(f"' is no {expected}"))
    return F.when(text.isNull() | value.isNotNull(), value).otherwise(F.raise_error(problem))


def _printed_alike(text: Column, spark_type: str) -> Column:
    """Return a text as a value of a type if that is printed as the same text."""
    value = text.try_cast(spark_type)
    return F.when(value.cast("string") == text, value)


def _double(text: Column) -> Column:
    value = text.try_cast("double")
    is_lost = value.isin(float("inf"), float("-inf")) | ((value == 0) & text.rlike(_NOT_ZERO))
    return F.when(text.isin(*_NOT_FINITE) | (text.rlike(_DECIMAL_NUMBER) & ~is_lost), value)


def _boolean(text: Column) -> Column:
    return F.when(text == "true", F.lit(True)).when(text == "false", F.lit(False))


def _date(text: Column) -> Column:
    day = F.when(text == _MIDNIGHT, F.lit(date(1970, 1, 1))).otherwise(_printed_alike(text, "date"))
    return F.when(day >= F.lit(_FIRST_DAY).cast("date"), day)


def _timestamp(text: Column) -> Column:
    length = F.length(text)
    whole = (
        F.when(length == len("2017-05-21"), F.concat(text, F.lit(f"T{_MIDNIGHT}")))
        .when(length == len(_MIDNIGHT), F.concat(F.lit("1970-01-01T"), text))
        .otherwise(text)
    )
    return F.when(whole.rlike(_ISO_TIMESTAMP) & (whole >= _FIRST_DAY), whole.try_cast("timestamp"))
