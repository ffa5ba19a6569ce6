"""Headers by their keys."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from statestore.spark.header_functions.headers_column import (
    checked_key,
    column_of,
    is_unique,
    last_value,
    named,
    once,
    one_of_each,
    places_by_key,
    present,
    repeatedly,
)
from statestore.spark.shards.schema import check_choice

_DUPLICATES: Final = ("last", "first", "error")


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

    `duplicates` says which value a key has that is there more than once: that of its "last" header, as Kafka's
    `lastHeader`, or of its "first"; "error" ends the query with an error that names the key. Spark's own setting for
    duplicate keys of maps makes no difference.
    """
    check_choice("duplicates", duplicates, _DUPLICATES)

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
        return F.concat(F.lit("header '"), F.get(repeated, 0)["key"], F.lit("' is there more than once"))

    problem = F.raise_error(once(places_by_key(held), message))
    return F.when(is_unique(held), F.map_from_entries(held)).otherwise(problem)
