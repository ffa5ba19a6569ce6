"""Functions of columns of headers that need no conversion, and the helpers of all such functions."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from statestore.spark.shards.schema import HEADERS, check_choice, once

ON_ERROR: Final = ("raise", "null")
"""What to do about a value that can't be read."""
_JSON: Final = {
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'",
    "ignoreNullFields": "false",
}
_JSON_TYPES: Final = r"^(timestamp|timestamp_ntz|decimal.*|array<.*|map<.*|struct<.*|variant)\z"
_JSON_AROUND: Final = r'^\["?|"?\]\z'
"""The JSON around the only value of an array."""


def header_last(headers: Column | str, key: str) -> Column:
    """Return the value of the last header of this key: binary. Null if there is none, or its value is null."""
    return last_value(column_of(headers), checked_key(key))


def headers_all(headers: Column | str, key: str) -> Column:
    """Return the values of all headers of this key in their order: array<binary>, empty if there are none."""
    name = checked_key(key)
    found = F.filter(column_of(headers), lambda header: header["key"] == name)
    return F.coalesce(found["value"], F.array().cast("array<binary>"))


def has_header(headers: Column | str, key: str) -> Column:
    """Return whether there is a header of this key, even with a null value: boolean, never null."""
    return F.coalesce(F.array_contains(column_of(headers)["key"], checked_key(key)), F.lit(False))


def header_names(headers: Column | str) -> Column:
    """Return each key once, in the order of their first headers: array<string>, empty if there are none."""
    return F.array_distinct(F.array_compact(present(headers)["key"]))


def headers_to_map(headers: Column | str, *, duplicates: str = "last") -> Column:
    """Return the headers as map<string,binary>, empty if there are none.

    `duplicates` says which value a repeated key has: that of its "last" header, as Kafka's `lastHeader`, or of its
    "first"; "error" ends the query with an error that names the key. Spark's own setting for duplicate keys of maps has
    no effect.
    """
    check_choice("duplicates", duplicates, ("last", "first", "error"))

    def mapped(held: Column) -> Column:
        if duplicates == "error":
            others = once(named(present(held)), _map_of_unique)
        else:
            others = F.map_from_entries(one_of_each(named(present(held)), last=duplicates == "last"))
        return F.when(is_unique(held), F.map_from_entries(held)).otherwise(others)

    return repeatedly(headers, mapped)


def _map_of_unique(held: Column) -> Column:
    def message(places: Column) -> Column:
        repeated = F.filter(places, lambda one, at: one["key"] == F.get(places, at + 1)["key"])
        return F.concat(F.lit("header '"), F.get(repeated, 0)["key"], F.lit("' occurs more than once"))

    problem = F.raise_error(once(places_by_key(held), message))
    return F.when(is_unique(held), F.map_from_entries(held)).otherwise(problem)


def with_header(headers: Column | str, key: str, value: Any) -> Column:
    """Return the headers with one more at the end. Older ones of the key stay: see `drop_headers`.

    Args:
        headers: the column. If it is null, the result has one header.
        key: of the new header.
        value: a Column or a Python value; a str is the text itself, not a column's name. Bytes stay as they are;
            anything else becomes text in UTF-8, as Kafka's SimpleHeaderConverter prints it: true, 42, 1.0E10. Dates and
            timestamps are always printed whole, in UTC, as 2017-05-21 and 2017-05-21T00:00:00.000Z (Kafka cuts off
            midnight, and the day before 1970-01-02; it reads both); microseconds are cut off; datetimes without a zone
            are in UTC. Arrays, maps and structs are JSON. Null makes a header with a null value.
    """
    added = F.struct(F.lit(checked_key(key)).alias("key"), printed(value).alias("value"))
    return F.concat(present(headers), F.array(added))


def drop_headers(headers: Column | str, *keys: str) -> Column:
    """Return the headers without those of any of these keys. Null stays null."""
    dropped = [checked_key(key) for key in keys]
    return F.filter(column_of(headers), lambda header: ~F.coalesce(header["key"].isin(dropped), F.lit(False)))


def rename_header(headers: Column | str, key: str, new_key: str) -> Column:
    """Return the headers with a key renamed wherever it occurs; the order stays. Null stays null."""
    old, new = checked_key(key), F.lit(checked_key(new_key)).alias("key")
    return F.transform(
        column_of(headers),
        lambda header: F.when(header["key"] == old, F.struct(new, header["value"].alias("value"))).otherwise(header),
    )


def retain_latest(headers: Column | str, key: str | None = None) -> Column:
    """Return the headers with only the last one of each key, or of `key` alone; the order stays. Null stays null."""
    if key is None:
        return repeatedly(headers, lambda held: F.when(is_unique(held), held).otherwise(one_of_each(held, last=True)))
    name = checked_key(key)

    def retained(held: Column) -> Column:
        return once(
            last_place(held, name),
            lambda last: F.filter(held, lambda header, place: ~header["key"].eqNullSafe(name) | (place == last)),
        )

    return repeatedly(headers, retained)


def printed(value: Any) -> Column:
    """Return a value as the bytes of a header. Only the branch for its type is left in Spark's plan."""
    if value is None:
        return F.lit(None).cast("binary")
    column = value if isinstance(value, Column) else F.lit(_in_utc(value))
    spark_type = F.typeof(column)
    plain = column.cast("string")  # of bytes it is the same bytes
    in_json = F.regexp_replace(F.to_json(F.array(column), _JSON), _JSON_AROUND, F.lit(""))
    text = F.when(spark_type.rlike(_JSON_TYPES), F.when(column.isNotNull(), in_json)).otherwise(plain)
    return text.cast("binary")


def _in_utc(value: Any) -> Any:
    """Return a datetime with a zone, since Spark would read one without in this machine's zone; else the value."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=timezone.utc)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


def column_of(headers: Column | str) -> Column:
    """Return the column that is given by name or as a Column."""
    return F.col(headers) if isinstance(headers, str) else headers


def present(headers: Column | str) -> Column:
    """Return the headers, for null an empty array."""
    return F.coalesce(column_of(headers), F.array().cast(HEADERS))


def checked_key(key: str) -> str:
    """Return the key of a header. Raises TypeError if it is not a str."""
    if not isinstance(key, str):
        raise TypeError(f"the key of a header must be a str, not {key!r}")
    return key


def no_such_value(what: str, expected: str, data: Column) -> Column:
    """Return the message about bytes that can't be read: it has their size, and nothing of their content."""
    size = F.octet_length(data).cast("string")
    return F.concat(F.lit(f"{what} is no {expected}: "), size, F.lit(" bytes"))


def repeatedly(headers: Column | str, use: Callable[[Column], Column]) -> Column:
    """Return what `use` makes of headers that it mentions several times. Columns other than names are computed once."""
    return use(F.col(headers)) if isinstance(headers, str) else once(headers, use)


def last_place(held: Column, key: str) -> Column:
    """Return the index from 0 of the last header of a key; out of range if there is none.

    A filter would take six times as long: Spark generates no code for lambdas.
    """
    return F.array_size(held) - F.array_position(F.reverse(held["key"]), key)


def last_value(held: Column, key: str) -> Column:
    """Return the value of the last header of a key, null if there is none."""
    return F.get(held, last_place(held, key))["value"]


def is_unique(held: Column) -> Column:
    """Return whether no key repeats or is null. True of nearly all headers, and Spark generates code for it."""
    return F.array_size(F.array_except(held["key"], F.array(F.lit(None).cast("string")))) == F.array_size(held)


def named(held: Column) -> Column:
    """Return the headers that have a key."""
    return F.filter(held, lambda header: header["key"].isNotNull())


def one_of_each(held: Column, *, last: bool) -> Column:
    """Return the first or last header of each key in their order, in time n log n."""

    def kept(places: Column) -> Column:
        def is_kept(one: Column, at: Column) -> Column:
            beside = F.get(places, at + 1 if last else at - 1)
            return one["key"].isNull() | ~one["key"].eqNullSafe(beside["key"])

        return F.filter(places, is_kept)

    def taken(held: Column) -> Column:
        return F.transform(F.sort_array(once(places_by_key(held), kept)["place"]), lambda place: F.get(held, place))

    return once(held, taken)


def places_by_key(held: Column) -> Column:
    """Return the keys with their places, sorted by both."""
    keyed = F.transform(held, lambda header, place: F.struct(header["key"].alias("key"), place.alias("place")))
    return F.sort_array(keyed)
