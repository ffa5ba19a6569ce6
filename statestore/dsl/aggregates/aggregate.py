"""Aggregate: what `agg` computes of a column, and the Arrow types that each takes. Rows hold their values in JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias

import pyarrow as pa

from statestore.dsl.aggregations import (
    Aggregation,
    averaging,
    collecting,
    counting,
    earliest,
    greatest,
    in_json,
    latest,
    least,
    mean_of,
    nothing,
    number_of,
    ranking,
)
from statestore.errors import SerializationError

ColumnOrFunction: TypeAlias = "str | Callable[[Any], Any]"
"""The name of a column of values that are dicts, or a function of a value."""

_Type: TypeAlias = "pa.DataType | None"
"""The type of a column; None if unknown."""

_EXACT_DIGITS: Final = 15
"""The most digits of a decimal that is exact in JSON, where numbers with a fraction are doubles."""


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of a column, for `agg`; its static methods make them.

    A column is a key of the values, which are dicts, or a function of a value. As in SQL, records whose column is null
    or missing are skipped; if all are, the aggregate is null, a count is 0 and a list is empty.

    Sums of whole numbers must fit in 64 bits, sums of decimals in 15 digits; other sums are doubles. NaN is ignored by
    min and max, and makes sums and means NaN.
    """

    column: ColumnOrFunction | None
    rule: AggregateRule

    @staticmethod
    def count(column: ColumnOrFunction | None = None) -> Aggregate:
        """Count the records; with a column, those that have it."""
        return Aggregate(column, _COUNT)

    @staticmethod
    def sum(column: ColumnOrFunction) -> Aggregate:
        """Return the sum of a column's numbers."""
        return Aggregate(column, _SUM)

    @staticmethod
    def min(column: ColumnOrFunction) -> Aggregate:
        """Return the least value of a column."""
        return Aggregate(column, _MIN)

    @staticmethod
    def max(column: ColumnOrFunction) -> Aggregate:
        """Return the greatest value of a column."""
        return Aggregate(column, _MAX)

    @staticmethod
    def mean(column: ColumnOrFunction) -> Aggregate:
        """Return the mean of a column's numbers, as a float."""
        return Aggregate(column, _MEAN)

    @staticmethod
    def first(column: ColumnOrFunction) -> Aggregate:
        """Return the value of a column that came first."""
        return Aggregate(column, _FIRST)

    @staticmethod
    def last(column: ColumnOrFunction) -> Aggregate:
        """Return the value of a column that came last."""
        return Aggregate(column, _LAST)

    @staticmethod
    def collect(column: ColumnOrFunction, limit: int) -> Aggregate:
        """Return a list of a column's first `limit` values. Raises ValueError for a limit below 1."""
        collected = collecting(limit)
        return Aggregate(column, AggregateRule("collect", FROM_JSON, _listed, lambda type_: collected))

    @staticmethod
    def top(column: ColumnOrFunction, limit: int, *, by: Callable[[Any], Any] | None = None) -> Aggregate:
        """Return a list of a column's `limit` greatest values, greatest first.

        They are compared by what `by` returns for them; of equal ones, the earlier comes first. Raises ValueError for a
        limit below 1.
        """
        ranking(limit)  # raises for an illegal limit now, not when the type is known
        kind = _IN_ORDER if by is None else FROM_JSON
        return Aggregate(column, AggregateRule("top", kind, _listed, partial(_ranking, limit, by)))


@dataclass(frozen=True)
class ColumnKind:
    """Types that an aggregate takes."""

    words: str
    has: Callable[[pa.DataType], bool]


@dataclass(frozen=True)
class AggregateRule:
    """What an aggregate does with a column of a type."""

    function: str
    takes: ColumnKind
    made: Callable[[_Type], _Type]
    """The type of the result."""
    aggregation: Callable[[_Type], Aggregation]
    finish: Callable[[Any], Any] | None = None
    """Makes the result of what is kept; None if it is the same."""


def _is_whole(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_))


def _is_floating(type_: pa.DataType) -> bool:
    return bool(pa.types.is_floating(type_))


def _is_decimal(type_: pa.DataType) -> bool:
    """Return whether the type is of decimals that are exact in JSON."""
    return bool(pa.types.is_decimal(type_)) and type_.precision <= _EXACT_DIGITS


def _is_number(type_: pa.DataType) -> bool:
    return _is_whole(type_) or _is_floating(type_) or _is_decimal(type_)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _has_order(type_: pa.DataType) -> bool:
    # In JSON, times are texts that sort like times.
    is_time = pa.types.is_date(type_) or pa.types.is_timestamp(type_)
    return _is_number(type_) or _is_text(type_) or is_time or bool(pa.types.is_boolean(type_))


def _comes_back(type_: pa.DataType) -> bool:
    if pa.types.is_map(type_):
        return _is_text(type_.key_type) and _comes_back(type_.item_type)
    if pa.types.is_list(type_):
        return _comes_back(type_.value_type)
    if pa.types.is_struct(type_):
        return all(_comes_back(column.type) for column in type_)
    return _has_order(type_) or bool(pa.types.is_binary(type_))


_DECIMALS: Final = f"decimals of up to {_EXACT_DIGITS} digits"
_NUMBERS: Final = ColumnKind(f"numbers (also {_DECIMALS})", _is_number)
_IN_ORDER: Final = ColumnKind(f"numbers (also {_DECIMALS}), text, booleans, dates and timestamps", _has_order)
FROM_JSON: Final = ColumnKind(f"types that JSON keeps (also {_DECIMALS})", _comes_back)
_ANY: Final = ColumnKind("anything", lambda type_: True)


def _same(type_: _Type) -> _Type:
    return type_


def _listed(type_: _Type) -> _Type:
    return None if type_ is None else pa.list_(type_)


def _summed(type_: _Type) -> _Type:
    if type_ is None:
        return None
    if _is_decimal(type_):
        return pa.decimal128(_EXACT_DIGITS, type_.scale)
    return pa.int64() if _is_whole(type_) else pa.float64()


def _summing(type_: _Type) -> Aggregation:
    if type_ is not None and _is_decimal(type_):
        return _merging_alike(partial(_sum_of_decimals, type_.scale))
    return _merging_alike(_sum)


def _of_numbers(aggregation: Aggregation, type_: _Type) -> Aggregation:
    """Return an aggregation that also takes JSON's texts for floating-point numbers, such as "NaN"."""
    if type_ is None or not _is_floating(type_):
        return aggregation
    return _merging_alike(partial(_aggregate_numbers, aggregation.aggregator))


def _ranking(limit: int, by: Callable[[Any], Any] | None, type_: _Type) -> Aggregation:
    return ranking(limit, partial(_by_number, by or _rank) if type_ is not None and _is_floating(type_) else by)


def _rank(number: Any) -> Any:
    return number if number == number else -inf


def _mean(sum_and_count: list[Any]) -> Any:
    return in_json(mean_of(sum_and_count))


def _merging_alike(step: Callable[[Any, Any, Any], Any]) -> Aggregation:
    """Return an aggregation that begins with None, and merges an aggregate as if it were a value."""
    return Aggregation(nothing, step, needs_value=True, merger=partial(_merge, step))


def _merge(step: Callable[[Any, Any, Any], Any], key: Any, one: Any, other: Any) -> Any:
    return step(key, other, one)


def _aggregate_numbers(step: Callable[[Any, Any, Any], Any], key: Any, value: Any, held: Any) -> Any:
    return in_json(step(key, number_of(value), None if held is None else number_of(held)))


def _sum(key: Any, value: Any, held: Any) -> Any:
    total = number_of(value) + (0 if held is None else number_of(held))
    if isinstance(total, int) and not -(2**63) <= total < 2**63:
        raise SerializationError("a sum of whole numbers does not fit in 64 bits")
    return in_json(total)


def _sum_of_decimals(scale: int, key: Any, value: Any, held: Any) -> Any:
    total = sum((Decimal(repr(number_of(each))) for each in (held, value) if each is not None), Decimal())
    if abs(total) >= Decimal(10) ** (_EXACT_DIGITS - scale):
        raise SerializationError(f"a sum of decimals does not fit in decimal({_EXACT_DIGITS},{scale})")
    return float(total)


def _by_number(by: Callable[[Any], Any], value: Any) -> Any:
    return by(number_of(value))


_COUNT: Final = AggregateRule("count", _ANY, lambda type_: pa.int64(), lambda type_: counting())
_SUM: Final = AggregateRule("sum", _NUMBERS, _summed, _summing)
_MIN: Final = AggregateRule("min", _IN_ORDER, _same, lambda type_: _of_numbers(least(None), type_))
_MAX: Final = AggregateRule("max", _IN_ORDER, _same, lambda type_: _of_numbers(greatest(None), type_))
_MEAN: Final = AggregateRule("mean", _NUMBERS, lambda type_: pa.float64(), lambda type_: averaging(), _mean)
_FIRST: Final = AggregateRule("first", FROM_JSON, _same, lambda type_: earliest(None))
_LAST: Final = AggregateRule("last", FROM_JSON, _same, lambda type_: latest(None))
