"""Functions of columns of headers, as Spark's Kafka source gives them, that stay inside Spark's engine.

They need no store and no stateful query: `df.select(header_int("headers", "attempt"))`. The column `headers` is an
array<struct<key:string,value:binary>>, given by name or as a Column. An array that is null has no headers. Kafka never
makes an element that is null or has a null key; such an element has no name: it stays where headers are returned, and
is left out of names and maps. A header's value may be null, which is not the same as there being no header.

Values are bytes. What they mean is up to who wrote them: here a value is read as the UTF-8 text that Kafka Connect's
SimpleHeaderConverter writes. Texts are read strictly, so that nothing is lost: " 7", "007" and "7.0" are no int.

Each function mentions the column once if it returns headers, so that calls inside of calls stay small; and none looks
at all headers for each header.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timezone
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from statestore.spark.schema import HEADERS

__all__ = [
    "drop_headers",
    "has_header",
    "header_boolean",
    "header_date",
    "header_double",
    "header_int",
    "header_last",
    "header_long",
    "header_names",
    "header_string",
    "header_timestamp",
    "headers_all",
    "headers_to_map",
    "rename_header",
    "retain_latest",
    "with_header",
]

_ON_ERROR: Final = ("raise", "null")
_DUPLICATES: Final = ("last", "first", "error")
_SHOWN_CHARACTERS_MAX: Final = 100
_DECIMAL_NUMBER: Final = r"^[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\z"  # $ would let a line end follow
_NOT_ZERO: Final = r"^[+-]?[0.]*[1-9]"
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_ISO_TIMESTAMP: Final = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{3}Z\z"
_FIRST_DAY: Final = "1582-10-15"
"""Before it a date of Java's means another day than one of Spark's."""
_MIDNIGHT: Final = "00:00:00.000Z"
_JSON: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
    "ignoreNullFields": "false",
}
_JSON_TYPES: Final = r"^(timestamp|timestamp_ntz|decimal.*|array<.*|map<.*|struct<.*|variant)\z"
_JSON_AROUND: Final = r'^\["?|"?\]\z'
"""What is around a value in a JSON array of it."""


def header_last(headers: Column | str, key: str) -> Column:
    """Return the value of the last header of this key: binary. Null if there is none, or its value is null."""
    return _last(_column(headers), _key(key))


def headers_all(headers: Column | str, key: str) -> Column:
    """Return the values of all headers of this key in their order: array<binary>, empty if there are none."""
    name = _key(key)
    found = F.filter(_column(headers), lambda header: header["key"] == name)
    return F.coalesce(found["value"], F.array().cast("array<binary>"))


def has_header(headers: Column | str, key: str) -> Column:
    """Return whether there is a header of this key, even with a null value: boolean, never null."""
    return F.coalesce(F.array_contains(_column(headers)["key"], _key(key)), F.lit(False))


def header_names(headers: Column | str) -> Column:
    """Return each key once, in the order of their first headers: array<string>, empty if there are none."""
    return F.array_distinct(F.array_compact(_present(headers)["key"]))


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


def with_header(headers: Column | str, key: str, value: Any) -> Column:
    """Return the headers with another one at the end. Older ones of the key stay: see `drop_headers`.

    Args:
        headers: the column. If it is null, the result has one header.
        key: of the new header.
        value: a Column or a Python value; a str is the text itself, no column's name. Bytes are put in as they are,
            anything else as text in UTF-8, as Kafka's SimpleHeaderConverter prints it: true, 42, 1.0E10. Dates and
            timestamps are always printed whole, in UTC, as 2017-05-21 and 2017-05-21T00:00:00.000Z (Kafka cuts off
            midnight, and the day before 1970-01-02; it reads both); microseconds are cut off; datetimes without a zone
            are in UTC. Arrays, maps and structs are JSON. Null makes a header with a null value.
    """
    added = F.struct(F.lit(_key(key)).alias("key"), _printed(value).alias("value"))
    return F.concat(_present(headers), F.array(added))


def drop_headers(headers: Column | str, *keys: str) -> Column:
    """Return the headers without those of any of these keys. Null stays null."""
    dropped = [_key(key) for key in keys]
    return F.filter(_column(headers), lambda header: ~F.coalesce(header["key"].isin(dropped), F.lit(False)))


def rename_header(headers: Column | str, key: str, new_key: str) -> Column:
    """Return the headers with all of one key under another one, in their places. Null stays null."""
    old, new = _key(key), F.lit(_key(new_key)).alias("key")
    return F.transform(
        _column(headers),
        lambda header: F.when(header["key"] == old, F.struct(new, header["value"].alias("value"))).otherwise(header),
    )


def retain_latest(headers: Column | str, key: str | None = None) -> Column:
    """Return the headers with only the last one of each key, or of one key, in their order. Null stays null."""
    if key is None:
        return _repeatedly(
            headers, lambda held: F.when(_is_unique(held), held).otherwise(_one_of_each(held, last=True))
        )
    name = _key(key)

    def retained(held: Column) -> Column:
        return _once(
            _last_place(held, name),
            lambda last: F.filter(held, lambda header, place: ~header["key"].eqNullSafe(name) | (place == last)),
        )

    return _repeatedly(headers, retained)


def headers_to_map(headers: Column | str, *, duplicates: str = "last") -> Column:
    """Return the headers as map<string,binary>, empty if there are none.

    `duplicates` says which value a key has that is there more than once: that of its "last" header, as Kafka's
    `lastHeader`, or of its "first"; "error" ends the query with an error that names the key. Spark's own setting for
    duplicate keys of maps makes no difference.
    """
    _check("duplicates", duplicates, _DUPLICATES)

    def mapped(held: Column) -> Column:
        if duplicates == "error":
            others = _once(_named(_present(held)), _map_of_unique)
        else:
            others = F.map_from_entries(_one_of_each(_named(_present(held)), last=duplicates == "last"))
        return F.when(_is_unique(held), F.map_from_entries(held)).otherwise(others)

    return _repeatedly(headers, mapped)


def _column(headers: Column | str) -> Column:
    return F.col(headers) if isinstance(headers, str) else headers


def _present(headers: Column | str) -> Column:
    return F.coalesce(_column(headers), F.array().cast(HEADERS))


def _key(key: str) -> str:
    if not isinstance(key, str):
        raise TypeError(f"the key of a header must be a str, not {key!r}")
    return key


def _check(parameter: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{parameter} must be one of {', '.join(choices)}, not {value!r}")


def _once(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return what `use` makes of a value that is computed once, wherever it is used, also in lambdas."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def _repeatedly(headers: Column | str, use: Callable[[Column], Column]) -> Column:
    """Return what `use` makes of headers that it mentions several times: a name costs nothing, any other column may."""
    return use(F.col(headers)) if isinstance(headers, str) else _once(headers, use)


def _last_place(held: Column, key: str) -> Column:
    """Return the index from 0 of the last header of a key, and an index that is out of range if there is none.

    Without a lambda, for which Spark generates no code: this takes a sixth of the time of a filter.
    """
    return F.array_size(held) - F.array_position(F.reverse(held["key"]), key)


def _last(held: Column, key: str) -> Column:
    return F.get(held, _last_place(held, key))["value"]


def _read(headers: Column | str, key: str, expected: str, convert: Callable[[Column], Column], on_error: str) -> Column:
    """Return what `convert` makes of the text of the last header, which is null for what is wrong."""
    _check("on_error", on_error, _ON_ERROR)
    text = _last(_column(headers), _key(key)).cast("string")  # Spark does not look at the bytes here
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


def _printed(value: Any) -> Column:
    """Return a value as bytes. How depends on its type, which Spark knows: only that branch is left in its plan."""
    if value is None:
        return F.lit(None).cast("binary")
    column = value if isinstance(value, Column) else F.lit(_in_utc(value))
    spark_type = F.typeof(column)
    plain = column.cast("string")  # of bytes it is the same bytes
    in_json = F.regexp_replace(F.to_json(F.array(column), _JSON), _JSON_AROUND, F.lit(""))
    text = F.when(spark_type.rlike(_JSON_TYPES), F.when(column.isNotNull(), in_json)).otherwise(plain)
    return text.cast("binary")


def _in_utc(value: Any) -> Any:
    """Return a datetime with its zone: Spark would take one without for one of this machine's zone."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def _one_of_each(held: Column, *, last: bool) -> Column:
    """Return the first or last header of each key in their order, in time n log n."""

    def kept(places: Column) -> Column:
        def is_kept(one: Column, at: Column) -> Column:
            beside = F.get(places, at + 1 if last else at - 1)
            return one["key"].isNull() | ~one["key"].eqNullSafe(beside["key"])

        return F.filter(places, is_kept)

    def taken(held: Column) -> Column:
        return F.transform(F.sort_array(_once(_by_key(held), kept)["place"]), lambda place: F.get(held, place))

    return _once(held, taken)


def _is_unique(held: Column) -> Column:
    """Return whether no key repeats or is null: nearly all headers are so, and for this Spark generates code."""
    return F.array_size(F.array_except(held["key"], F.array(F.lit(None).cast("string")))) == F.array_size(held)


def _named(held: Column) -> Column:
    return F.filter(held, lambda header: header["key"].isNotNull())


def _by_key(held: Column) -> Column:
    """Return the keys with their places, those of one key side by side."""
    keyed = F.transform(held, lambda header, place: F.struct(header["key"].alias("key"), place.alias("place")))
    return F.sort_array(keyed)


def _map_of_unique(held: Column) -> Column:
    def message(places: Column) -> Column:
        repeated = F.filter(places, lambda one, at: one["key"] == F.get(places, at + 1)["key"])
        return F.concat(F.lit("header '"), F.get(repeated, 0)["key"], F.lit("' is there more than once"))

    problem = F.raise_error(_once(_by_key(held), message))
    return F.when(_is_unique(held), F.map_from_entries(held)).otherwise(problem)
