"""Aggregate: what `agg` makes of a column, and of which types it can be, as Arrow's: rows have their values in JSON."""

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
    number_of,
    ranking,
)
from statestore.errors import SerializationError

ColumnOrFunction: TypeAlias = "str | Callable[[Any], Any]"
"""The name of a column of values that are dicts, or a function of a value."""

_Type: TypeAlias = "pa.DataType | None"
"""Of a column; None is not known."""

_LONG: Final = 63
"""Bits of a whole number of 64 bits, beside its sign."""
_EXACT_DIGITS: Final = 15
"""How many digits a decimal can have to be exact in JSON, where numbers with a fraction are doubles."""


@dataclass(frozen=True)
class Aggregate:
    """An aggregate of a column, one of those of `agg`; its functions make them.

    A column is a key of the values, which are dicts, or a function of a value. As in SQL, records where the column is
    null, or missing, are left out; where all are, the aggregate is null, counts are 0 and lists are empty.

    A sum of whole numbers has 64 bits, of decimals 15 digits, and must fit; any other is a double. NaN is neither least
    nor greatest, and makes sums and means NaN.
    """

    column: ColumnOrFunction | None
    rule: AggregateRule

    @staticmethod
    def count(column: ColumnOrFunction | None = None) -> Aggregate:
        """Return how many records there were; with a column, how many of them had it."""
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

        They are compared by what `by` makes of them; of equal ones, the earlier stands first. Raises ValueError for a
        limit below 1.
        """
        ranking(limit)  # which refuses a limit at once, not only for a column of some type
        kind = _IN_ORDER if by is None else FROM_JSON
        return Aggregate(column, AggregateRule("top", kind, _listed, partial(_ranking, limit, by)))


@dataclass(frozen=True)
class ColumnKind:
    """Types that are taken alike."""

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
    """What makes the result of what is kept; None if it is the same."""


def _is_whole(type_: pa.DataType) -> bool:
    """Return whether numbers of a type are whole."""
    return bool(pa.types.is_integer(type_))


def _is_floating(type_: pa.DataType) -> bool:
    """Return whether a type is of floating-point numbers, NaN among them."""
    return bool(pa.types.is_floating(type_))


def _is_decimal(type_: pa.DataType) -> bool:
    """Return whether a type is of decimals that are exact in JSON."""
    return bool(pa.types.is_decimal(type_)) and type_.precision <= _EXACT_DIGITS


def _is_number(type_: pa.DataType) -> bool:
    return _is_whole(type_) or _is_floating(type_) or _is_decimal(type_)


def _is_text(type_: pa.DataType) -> bool:
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


def _has_order(type_: pa.DataType) -> bool:
    # The texts that JSON has of times are in the order of times.
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
_NUMBERS: Final = ColumnKind(f"numbers, {_DECIMALS} among them", _is_number)
_IN_ORDER: Final = ColumnKind(f"numbers, {_DECIMALS} among them, text, booleans, dates and timestamps", _has_order)
FROM_JSON: Final = ColumnKind(f"what JSON gives back, of decimals those of up to {_EXACT_DIGITS} digits", _comes_back)
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
        return _merging_alike(_DecimalSum(type_.scale))
    return _merging_alike(_Sum())


def _of_numbers(aggregation: Aggregation, type_: _Type) -> Aggregation:
    """Return what also takes the texts that JSON has for floating-point numbers."""
    return _merging_alike(_OfNumbers(aggregation)) if type_ is not None and _is_floating(type_) else aggregation


def _ranking(limit: int, by: Callable[[Any], Any] | None, type_: _Type) -> Aggregation:
    return ranking(limit, _ByNumber(by or _rank) if type_ is not None and _is_floating(type_) else by)


def _rank(number: Any) -> Any:
    return number if number == number else -inf


def _mean(sum_and_count: list[Any]) -> Any:
    return in_json(mean_of(sum_and_count))


def _merging_alike(step: Callable[[Any, Any, Any], Any]) -> Aggregation:
    """Return an aggregation that begins with nothing, and takes an aggregate as it takes a value."""
    return Aggregation(_nothing, step, needs_value=True, merger=_Merged(step))


def _nothing() -> None:
    return None


@dataclass(frozen=True)
class _Merged:
    step: Callable[[Any, Any, Any], Any]

    def __call__(self, key: Any, one: Any, other: Any) -> Any:
        return self.step(key, other, one)


@dataclass(frozen=True)
class _OfNumbers:
    of: Aggregation

    def __call__(self, key: Any, value: Any, held: Any) -> Any:
        return in_json(self.of.aggregator(key, number_of(value), None if held is None else number_of(held)))


@dataclass(frozen=True)
class _Sum:
    def __call__(self, key: Any, value: Any, held: Any) -> Any:
        total = number_of(value) + (0 if held is None else number_of(held))
        if isinstance(total, int) and not -(1 << _LONG) <= total < 1 << _LONG:
            raise SerializationError("a sum of whole numbers does not fit in 64 bits")
        return in_json(total)


@dataclass(frozen=True)
class _DecimalSum:
    scale: int

    def __call__(self, key: Any, value: Any, held: Any) -> Any:
        total = sum((Decimal(repr(number_of(each))) for each in (held, value) if each is not None), Decimal())
        if abs(total) >= Decimal(10) ** (_EXACT_DIGITS - self.scale):
            raise SerializationError(f"a sum of decimals does not fit in decimal({_EXACT_DIGITS},{self.scale})")
        return float(total)


@dataclass(frozen=True)
class _ByNumber:
    by: Callable[[Any], Any]

    def __call__(self, value: Any) -> Any:
        return self.by(number_of(value))


_COUNT: Final = AggregateRule("count", _ANY, lambda type_: pa.int64(), lambda type_: counting())
_SUM: Final = AggregateRule("sum", _NUMBERS, _summed, _summing)
_MIN: Final = AggregateRule("min", _IN_ORDER, _same, lambda type_: _of_numbers(least(None), type_))
_MAX: Final = AggregateRule("max", _IN_ORDER, _same, lambda type_: _of_numbers(greatest(None), type_))
_MEAN: Final = AggregateRule("mean", _NUMBERS, lambda type_: pa.float64(), lambda type_: averaging(), _mean)
_FIRST: Final = AggregateRule("first", FROM_JSON, _same, lambda type_: earliest(None))
_LAST: Final = AggregateRule("last", FROM_JSON, _same, lambda type_: latest(None))
