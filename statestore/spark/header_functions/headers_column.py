"""What functions of a column of headers are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F

from statestore.spark.shards.schema import HEADERS

ON_ERROR: Final = ("raise", "null")
"""What is done about a value that is not what it is read as."""


def column_of(headers: Column | str) -> Column:
    """Return a column that is given by name or as it is."""
    return F.col(headers) if isinstance(headers, str) else headers


def present(headers: Column | str) -> Column:
    """Return headers, none of them for null."""
    return F.coalesce(column_of(headers), F.array().cast(HEADERS))


def checked_key(key: str) -> str:
    """Return the key of a header. Raises TypeError if it is no text."""
    if not isinstance(key, str):
        raise TypeError(f"the key of a header must be a str, not {key!r}")
    return key


def no_such_value(what: str, expected: str, data: Column) -> Column:
    """Return what is said of bytes that are not what they are read as: their size, and nothing that is in them."""
    size = F.octet_length(data).cast("string")
    return F.concat(F.lit(f"{what} is no {expected}: "), size, F.lit(" bytes"))


def once(value: Column, use: Callable[[Column], Column]) -> Column:
    """Return what `use` makes of a value that is computed once, wherever it is used, also in lambdas."""
    return F.get(F.transform(F.array(value), use), F.lit(0))


def repeatedly(headers: Column | str, use: Callable[[Column], Column]) -> Column:
    """Return what `use` makes of headers that it mentions several times: a name costs nothing, any other column may."""
    return use(F.col(headers)) if isinstance(headers, str) else once(headers, use)


def last_place(held: Column, key: str) -> Column:
    """Return the index from 0 of the last header of a key, and an index that is out of range if there is none.

    Without a lambda, for which Spark generates no code: this takes a sixth of the time of a filter.
    """
    return F.array_size(held) - F.array_position(F.reverse(held["key"]), key)


def last_value(held: Column, key: str) -> Column:
    """Return the value of the last header of a key, null if there is none."""
    return F.get(held, last_place(held, key))["value"]


def is_unique(held: Column) -> Column:
    """Return whether no key repeats or is null: nearly all headers are so, and for this Spark generates code."""
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
    """Return the keys with their places, those of one key side by side."""
    keyed = F.transform(held, lambda header, place: F.struct(header["key"].alias("key"), place.alias("place")))
    return F.sort_array(keyed)
