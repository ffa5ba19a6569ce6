"""Aggregations: what is kept of a key's records, what a record changes of it, and how columns of records do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import InputError, SerializationError
from statestore.format.binary_columns import is_valid
from statestore.format.key_groups import KeyGroups
from statestore.format.serde import Serde, Serdes

_TEXTS: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def number_of(held: Any) -> Any:
    """Return a number that JSON held. Raises InputError for anything else."""
    if isinstance(held, str) and held in _TEXTS:
        return _TEXTS[held]
    if isinstance(held, bool) or not isinstance(held, (int, float)):
        raise InputError(f"a number is needed, not {type(held).__name__}")
    return held


def in_json(number: Any) -> Any:
    """Return a number as JSON can hold it."""
    if not isinstance(number, float) or isfinite(number):
        return number
    return next(text for text, same in _TEXTS.items() if repr(same) == repr(number))


_LARGEST: Final = 2**63 - 1


@dataclass(frozen=True)
class Aggregation:
    """An initial value and a function of key, value and what there is. Travels to the executors."""

    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    """Of key, value and what there is, which may be changed."""
    value_serde: Serde[Any] | None = None
    """How it is stored; None is not known."""
    columns: ColumnAggregation | None = None
    """What does the same to columns; None if there is no such thing."""
    needs_value: bool = False
    """Whether records without a value are left out, also of windows."""
    merger: Callable[[Any, Any, Any], Any] | None = None
    """Of key and the aggregates of two sessions that become one, the earlier one first; None is not known."""
    subtractor: Callable[[Any, Any, Any], Any] | None = None
    """Of key, a value that is gone and what there is, which may be changed; None is not known."""

    def in_columns(self, values: Serde[Any], aggregates: Serde[Any]) -> ColumnAggregation | None:
        """Return what does it to columns, if values of the one serde can be aggregated so to those of the other."""
        return self.columns if self.columns is not None and self.columns.takes(values, aggregates) else None


@dataclass(frozen=True)
class ColumnAggregation:
    """What an aggregation makes of each row of a column: what there was before, with the rows of its key up to it."""

    combine: str | None
    """The function of numpy that combines two values; None if one of both is taken as it is."""
    counts: bool = False
    """Whether each row counts as 1, whatever its value."""
    keeps_first: bool = False
    """Without `combine`: whether the first value stays, and not the last one."""

    def takes(self, values: Serde[Any], aggregates: Serde[Any]) -> bool:
        """Return whether values of the one serde can be aggregated in columns to those of the other."""
        if values.columns is None or aggregates.columns is None:
            return False
        type_ = aggregates.columns.type
        if self.counts:
            return bool(type_ == pa.int64())
        is_widened = self.combine == "add" and (values.columns.type, type_) == (pa.int32(), pa.int64())
        is_number = self.combine is None or type_ in (pa.int32(), pa.int64(), pa.float64())
        return is_widened or bool(type_ == values.columns.type and is_number)

    def run(self, groups: KeyGroups, values: pa.Array, before: pa.Array) -> pa.Array:
        """Return the aggregate at each row; `before` has that of each key, null where there is none.

        Raises SerializationError for a sum that does not fit in 64 bits.
        """
        if self.combine is None:
            if not self.keeps_first:
                return values
            return pc.coalesce(before, values.take(pa.array(groups.first_rows))).take(pa.array(groups.codes))
        start = _numbers(pc.fill_null(before, 0))
        numbers = np.ones(len(values), np.int64) if self.counts else _numbers(values).astype(start.dtype, copy=False)
        if numbers.dtype.kind == "i" and self.combine == "add" and _may_overflow(numbers, start, groups):
            numbers, start = numbers.astype(object), start.astype(object)
        found = groups.running(getattr(np, self.combine), numbers, start, is_valid(before))
        return aggregates_of(found, before.type)


def aggregates_of(found: Any, type_: pa.DataType) -> pa.Array:
    """Return a column of aggregates. Raises SerializationError for one that does not fit in its type."""
    try:
        return pa.array(found, type_)
    except (OverflowError, pa.ArrowInvalid) as cause:
        raise SerializationError(f"an aggregate does not fit in {type_}") from cause


_COUNTED: Final = ColumnAggregation("add", counts=True)
_ADDED: Final = ColumnAggregation("add")
_LEAST: Final = ColumnAggregation("fmin")
_GREATEST: Final = ColumnAggregation("fmax")
_EARLIEST: Final = ColumnAggregation(None, keeps_first=True)
_LATEST: Final = ColumnAggregation(None)


def counting() -> Aggregation:
    """Return how many records there were. Kafka's count()."""
    return Aggregation(_zero, _one_more, Serdes.int64(), _COUNTED, merger=_both, subtractor=_one_less)


def reducing(
    reducer: Callable[[Any, Any], Any],
    value_serde: Serde[Any] | None,
    subtractor: Callable[[Any, Any], Any] | None = None,
) -> Aggregation:
    """Return what a function makes of the value so far and the next one; another takes one out. Kafka's reduce()."""
    reduced = _Reduced(reducer)
    subtracted = None if subtractor is None else _Reduced(subtractor)
    return Aggregation(_nothing, reduced, value_serde, merger=reduced.merge, subtractor=subtracted)


def summing(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the sum of the values, which are numbers; that of int32 is stored as int64."""
    kept = Serdes.int64() if value_serde == Serdes.int32() else value_serde
    return replace(_ready_made(_sum, kept, _ADDED), subtractor=_Reduced(_difference))


def least(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the least of the values; NaN does not count."""
    return _ready_made(_least, value_serde, _LEAST)


def greatest(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the greatest of the values; NaN does not count."""
    return _ready_made(_greatest, value_serde, _GREATEST)


def earliest(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the value that came first."""
    return _ready_made(_first, value_serde, _EARLIEST)


def latest(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the value that came last."""
    return _ready_made(_last, value_serde, _LATEST)


def collecting(limit: int) -> Aggregation:
    """Return a list of the first `limit` values. Raises ValueError for a limit below 1."""
    _check_limit(limit)
    collected = _Collected(limit)
    return Aggregation(list, collected, Serdes.json(), needs_value=True, merger=collected.merge)


def averaging() -> Aggregation:
    """Return the sum of the values, and how many they are, in JSON."""
    return Aggregation(_nothing_yet, _added, Serdes.json(), needs_value=True, merger=_summed)


def mean_of(sum_and_count: list[Any]) -> float | None:
    """Return the mean that `averaging` has come to; None of no values."""
    total, count = sum_and_count
    return float(number_of(total) / count) if count else None


def ranking(limit: int, by: Callable[[Any], Any] | None = None) -> Aggregation:
    """Return the `limit` values that are greatest, greatest first; of equal ones the earlier.

    They are compared by what `by` makes of them. Raises ValueError for a limit below 1.
    """
    _check_limit(limit)
    ranked = _Ranked(limit, by or _itself)
    return Aggregation(list, ranked, Serdes.json(), needs_value=True, merger=ranked.merge)


def _ready_made(
    reducer: Callable[[Any, Any], Any], value_serde: Serde[Any] | None, columns: ColumnAggregation
) -> Aggregation:
    reduced = _Reduced(reducer)
    return Aggregation(_nothing, reduced, value_serde, columns, needs_value=True, merger=reduced.merge)


def _check_limit(limit: int) -> None:
    if type(limit) is not int or limit < 1:
        raise ValueError(f"limit must be a whole number, 1 or more, not {limit!r}")


def _itself(value: Any) -> Any:
    return value


def _zero() -> int:
    return 0


def _nothing_yet() -> list[Any]:
    return [0, 0]


def _added(key: Any, value: Any, sum_and_count: list[Any]) -> list[Any]:
    total, count = sum_and_count
    return [in_json(number_of(total) + number_of(value)), count + 1]


def _summed(key: Any, one: list[Any], other: list[Any]) -> list[Any]:
    (total, count), (more, further) = one, other
    return [in_json(number_of(total) + number_of(more)), count + further]


def _both(key: Any, one: int, other: int) -> int:
    return one + other


def _nothing() -> None:
    return None


def _one_more(key: Any, value: Any, count: int) -> int:
    return count + 1


def _one_less(key: Any, value: Any, count: int) -> int:
    return count - 1


def _sum(total: Any, value: Any) -> Any:
    return total + value


def _difference(total: Any, value: Any) -> Any:
    return total - value


def _least(found: Any, value: Any) -> Any:
    return value if value < found or found != found else found


def _greatest(found: Any, value: Any) -> Any:
    return value if value > found or found != found else found


def _first(found: Any, value: Any) -> Any:
    return found


def _last(found: Any, value: Any) -> Any:
    return value


@dataclass(frozen=True)
class _Reduced:
    reducer: Callable[[Any, Any], Any]

    def __call__(self, key: Any, value: Any, reduced: Any) -> Any:
        return value if reduced is None else self.reducer(reduced, value)

    def merge(self, key: Any, one: Any, other: Any) -> Any:
        """Return what becomes of two aggregates, the earlier one first."""
        return self(key, other, one)


@dataclass(frozen=True)
class _Collected:
    limit: int

    def __call__(self, key: Any, value: Any, values: list[Any]) -> list[Any]:
        if len(values) < self.limit:
            values.append(value)
        return values

    def merge(self, key: Any, one: list[Any], other: list[Any]) -> list[Any]:
        """Return what becomes of two lists, the earlier one first."""
        return (one + other)[: self.limit]


@dataclass(frozen=True)
class _Ranked:
    limit: int
    by: Callable[[Any], Any]

    def __call__(self, key: Any, value: Any, values: list[Any]) -> list[Any]:
        return self.merge(key, values, [value])

    def merge(self, key: Any, one: list[Any], other: list[Any]) -> list[Any]:
        """Return what becomes of two lists, the earlier one first."""
        # What was there stands before what is equal and new: sorting is stable.
        return sorted(one + other, key=self.by, reverse=True)[: self.limit]


def _numbers(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _may_overflow(numbers: Any, start: Any, groups: KeyGroups) -> bool:
    """Return whether sums may not fit in 64 bits, judged by the largest number and the longest group."""
    largest, begun = (
        max(abs(int(column.min(initial=0))), abs(int(column.max(initial=0)))) for column in (numbers, start)
    )
    return begun + largest * int(groups.counts.max(initial=0)) > _LARGEST
