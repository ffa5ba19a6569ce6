"""Aggregations: what is kept of a key's records, and what a record, or a column of records, changes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite, nan
from operator import add, sub
from typing import Any, Final, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import InputError, SerializationError
from statestore.format.binary_columns import is_valid
from statestore.format.json_serde import JSON_COLUMNS, json_column, serialize_json
from statestore.format.key_groups import KeyGroups
from statestore.format.serde import Serde, Serdes

FailOnRow: TypeAlias = "Callable[[int, Exception], NoReturn]"
"""Raises the error of what a function raised at a row."""

_TEXTS: Final = {"NaN": nan, "Infinity": inf, "-Infinity": -inf}


def number_of(held: Any) -> Any:
    """Return a number that was in JSON. Raises InputError for anything else."""
    if isinstance(held, str) and held in _TEXTS:
        return _TEXTS[held]
    if isinstance(held, bool) or not isinstance(held, (int, float)):
        raise InputError(f"it needs a number, not {type(held).__name__}")
    return held


def in_json(number: Any) -> Any:
    """Return a number as JSON can hold it."""
    if not isinstance(number, float) or isfinite(number):
        return number
    return next(text for text, same in _TEXTS.items() if repr(same) == repr(number))


@dataclass(frozen=True)
class Aggregation:
    """An initial value, and functions that change it. Travels to the executors."""

    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]
    """A function of key, value and aggregate, which it may change."""
    value_serde: Serde[Any] | None = None
    """How the aggregate is stored; None if unknown."""
    columns: _OfColumns | None = None
    """What does the same to columns; None if nothing does."""
    needs_value: bool = False
    """Whether records without a value are dropped, also by windows."""
    merger: Callable[[Any, Any, Any], Any] | None = None
    """A function of key and the aggregates of two sessions that become one, the earlier first; None if unknown."""
    subtractor: Callable[[Any, Any, Any], Any] | None = None
    """A function of key, a value that is gone, and aggregate, which it may change; None if unknown."""
    is_users: bool = False
    """Whether the functions may return None, which deletes the aggregate, or change their arguments."""

    def in_columns(self, values: Serde[Any], aggregates: Serde[Any]) -> ColumnAggregation | None:
        """Return what does it to columns, if it can with these serdes."""
        if self.columns is not None and self.columns.takes(values, aggregates):
            return self.columns
        if self.is_users or values.columns is None or aggregates.columns is None:
            return None
        is_json = aggregates.columns.type == JSON_COLUMNS.type
        return _ByFunctions(self.initializer, self.aggregator) if is_json else None


class ColumnAggregation(ABC):
    """Computes the running aggregate at each row of a column: of what was held, and the key's rows up to this one."""

    counts: bool = False
    """Whether each row counts as 1 whatever its value."""
    chooses: bool = False
    """Whether each aggregate is one of the values."""

    @abstractmethod
    def run(self, groups: KeyGroups, values: pa.Array, before: pa.Array, fail: FailOnRow) -> pa.Array:
        """Return the aggregate at each row; `before` has the one held of each key, null for none.

        Raises SerializationError for one that its type can't hold, and calls `fail` if a function raises at a row.
        """

    @abstractmethod
    def begun(self, before: pa.Array) -> pa.Array:
        """Return what is held of each key with what an aggregate begins with where nothing is."""


@dataclass(frozen=True)
class _ByFunctions(ColumnAggregation):
    """Aggregates with functions, row by row, what is kept in JSON. They do not change their arguments."""

    initializer: Callable[[], Any]
    aggregator: Callable[[Any, Any, Any], Any]

    def run(self, groups: KeyGroups, values: pa.Array, before: pa.Array, fail: FailOnRow) -> pa.Array:
        """Return the aggregate at each row."""
        held, made = self.begun(before).to_pylist(), []
        try:
            for code, value in zip(groups.codes.tolist(), values.to_pylist(), strict=True):
                held[code] = aggregate = self.aggregator(None, value, held[code])
                made.append(serialize_json(aggregate))
        except Exception as cause:
            fail(len(made), cause)
        return pa.ExtensionArray.from_storage(before.type, pa.array(made, pa.binary()))

    def begun(self, before: pa.Array) -> pa.Array:
        """Return what is held of each key, or the initial aggregate, as JSON; one of None is none."""
        begins_with = self.initializer()
        if begins_with is None or not before.null_count:
            return before
        return pa.ExtensionArray.from_storage(before.type, pc.fill_null(before.storage, serialize_json(begins_with)))


@dataclass(frozen=True)
class _OfColumns(ColumnAggregation):
    """Aggregates with a function of numpy, or takes one of the values."""

    combine: str | None
    """The numpy function that combines two values; None to take one of them."""
    counts: bool = False
    keeps_first: bool = False
    """Without `combine`: whether to take the first value instead of the last."""

    @property
    def chooses(self) -> bool:  # type: ignore[override]
        """Whether each aggregate is one of the values."""
        return self.combine is None

    def takes(self, values: Serde[Any], aggregates: Serde[Any]) -> bool:
        """Return whether columns of these values can be aggregated to these aggregates."""
        if values.columns is None or aggregates.columns is None:
            return False
        type_ = aggregates.columns.type
        if self.counts:
            return bool(type_ == pa.int64())
        is_widened = self.combine == "add" and (values.columns.type, type_) == (pa.int32(), pa.int64())
        is_number = self.combine is None or type_ in (pa.int32(), pa.int64(), pa.float64())
        return is_widened or bool(type_ == values.columns.type and is_number)

    def run(self, groups: KeyGroups, values: pa.Array, before: pa.Array, fail: FailOnRow) -> pa.Array:
        """Return the aggregate at each row."""
        if self.combine is None:
            values = of_type(before.type, values)
            if not self.keeps_first:
                return values
            first = np.where(is_valid(before), np.arange(len(groups)), len(groups) + groups.first_rows)
            return pa.concat_arrays([before, values]).take(pa.array(first[groups.codes]))
        start = _numbers(pc.fill_null(before, 0))
        numbers = np.ones(len(values), np.int64) if self.counts else _numbers(values).astype(start.dtype, copy=False)
        if numbers.dtype.kind == "i" and self.combine == "add" and _may_overflow(numbers, start, groups):
            numbers, start = numbers.astype(object), start.astype(object)
        found = groups.running(getattr(np, self.combine), numbers, start, is_valid(before))
        return aggregates_of(found, before.type)

    def begun(self, before: pa.Array) -> pa.Array:
        """Return what is held of each key, or 0 of a count."""
        return pc.fill_null(before, 0) if self.counts else before


def of_type(type_: pa.DataType, values: pa.Array) -> pa.Array:
    """Return values as aggregates of a type; a single record that comes to columns may have another one."""
    return values if values.type == type_ else aggregates_of(values.to_pylist(), type_)


def aggregates_of(found: Any, type_: pa.DataType) -> pa.Array:
    """Return a column of aggregates. Raises SerializationError for one that its type can't hold."""
    if type_ == JSON_COLUMNS.type:
        return json_column(found)
    try:
        return pa.array(found, type_)
    except (OverflowError, pa.ArrowInvalid) as cause:
        raise SerializationError(f"an aggregate does not fit in {type_}") from cause


def counting() -> Aggregation:
    """Return how many records there were. Kafka's count()."""
    columns = _OfColumns("add", counts=True)
    return Aggregation(int, _one_more, Serdes.int64(), columns, merger=_both, subtractor=_one_less)


def reducing(
    reducer: Callable[[Any, Any], Any],
    value_serde: Serde[Any] | None,
    subtractor: Callable[[Any, Any], Any] | None = None,
) -> Aggregation:
    """Return what a function makes of the value so far and the next one; another subtracts. Kafka's reduce()."""
    reduced = _Reduced(reducer)
    subtracted = None if subtractor is None else _Reduced(subtractor)
    return Aggregation(nothing, reduced, value_serde, merger=reduced.merge, subtractor=subtracted, is_users=True)


def summing(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the sum of the values, which are numbers; that of int32 is stored as int64."""
    kept = Serdes.int64() if value_serde == Serdes.int32() else value_serde
    return replace(_ready_made(add, kept, _OfColumns("add")), subtractor=_Reduced(sub))


def least(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the least of the values; NaN does not count."""
    return _ready_made(_least, value_serde, _OfColumns("fmin"))


def greatest(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the greatest of the values; NaN does not count."""
    return _ready_made(_greatest, value_serde, _OfColumns("fmax"))


def earliest(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the value that came first."""
    return _ready_made(_first, value_serde, _OfColumns(None, keeps_first=True))


def latest(value_serde: Serde[Any] | None) -> Aggregation:
    """Return the value that came last."""
    return _ready_made(_last, value_serde, _OfColumns(None))


def collecting(limit: int) -> Aggregation:
    """Return a list of the first `limit` values. Raises ValueError for a limit below 1."""
    _check_limit(limit)
    collected = _Collected(limit)
    return Aggregation(list, collected, Serdes.json(), needs_value=True, merger=collected.merge)


def averaging() -> Aggregation:
    """Return the sum and the number of the values, in JSON."""
    return Aggregation(_nothing_yet, _added, Serdes.json(), needs_value=True, merger=_summed)


def mean_of(sum_and_count: list[Any]) -> float | None:
    """Return the mean of what `averaging` keeps; None if there are no values."""
    total, count = sum_and_count
    return float(number_of(total) / count) if count else None


def ranking(limit: int, by: Callable[[Any], Any] | None = None) -> Aggregation:
    """Return the `limit` greatest values, greatest first; of equal ones the earlier.

    They are compared by what `by` returns for them. Raises ValueError for a limit below 1.
    """
    _check_limit(limit)
    ranked = _Ranked(limit, by)
    return Aggregation(list, ranked, Serdes.json(), needs_value=True, merger=ranked.merge)


def _ready_made(reducer: Callable[[Any, Any], Any], value_serde: Serde[Any] | None, columns: _OfColumns) -> Aggregation:
    reduced = _Reduced(reducer)
    return Aggregation(nothing, reduced, value_serde, columns, needs_value=True, merger=reduced.merge)


def _check_limit(limit: int) -> None:
    if type(limit) is not int or limit < 1:
        raise ValueError(f"limit must be a whole number, 1 or more, not {limit!r}")


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


def nothing() -> None:
    """Return None: what an aggregate begins with whose first value is taken as it is."""
    return None


def _one_more(key: Any, value: Any, count: int) -> int:
    return count + 1


def _one_less(key: Any, value: Any, count: int) -> int:
    return count - 1


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
        return [*values, value] if len(values) < self.limit else values

    def merge(self, key: Any, one: list[Any], other: list[Any]) -> list[Any]:
        """Return what becomes of two lists, the earlier one first."""
        return (one + other)[: self.limit]


@dataclass(frozen=True)
class _Ranked:
    limit: int
    by: Callable[[Any], Any] | None

    def __call__(self, key: Any, value: Any, values: list[Any]) -> list[Any]:
        return self.merge(key, values, [value])

    def merge(self, key: Any, one: list[Any], other: list[Any]) -> list[Any]:
        """Return what becomes of two lists, the earlier one first."""
        # Sorting is stable: of equal values, the older come first.
        return sorted(one + other, key=self.by, reverse=True)[: self.limit]


def _numbers(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _may_overflow(numbers: Any, start: Any, groups: KeyGroups) -> bool:
    """Return whether sums may not fit in 64 bits, judged by the largest number and the longest group."""
    largest, begun = (
        max(abs(int(column.min(initial=0))), abs(int(column.max(initial=0)))) for column in (numbers, start)
    )
    return begun + largest * int(groups.counts.max(initial=0)) >= 2**63
