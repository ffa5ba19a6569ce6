"""Aggregations: what is kept of a key's records, and what a record, or a column of records, changes of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import inf, isfinite, nan
from operator import add, sub
from typing import Any, ClassVar, Final, NamedTuple, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.errors import InputError, SerializationError
from statestore.format.binary_columns import Integers, is_valid
from statestore.format.json_serde import JSON_COLUMNS, json_column
from statestore.format.key_groups import KeyGroups
from statestore.format.serde import STANDARD_SERDES, Serde, Serdes, as_read
from statestore.headers.record_columns import RecordColumns

FailOnRow: TypeAlias = "Callable[[int, Exception], NoReturn]"
"""Raises the error of what a function raised at a record."""

_BYTES_AT_ONCE: Final = 64 << 20
"""So much functions make, and then end with the record that they are at."""

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


def itself(aggregate: Any) -> Any:
    """Return what is given."""
    return aggregate


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
    begun: Callable[[Any], Any] = itself
    """Makes of an initial aggregate what goes on as the old value."""

    def in_columns(self, values: Serde[Any], aggregates: Serde[Any]) -> ColumnAggregation | None:
        """Return what does it to columns, if it can with these serdes."""
        if self.columns is not None and self.columns.takes(values, aggregates):
            return self.columns
        standard = None if values.columns is None else _standard(aggregates)
        return None if standard is None else _ByFunctions(self, standard)

    def as_read(self, aggregates: Serde[Any] | None) -> Aggregation:
        """Return what makes the aggregates that their serde reads, if it could be done to columns."""
        standard = None if aggregates is None else _standard(aggregates)
        if standard is None or self.keeps(standard):
            return self
        return replace(self, aggregator=_AsRead(self.aggregator, standard), begun=partial(as_read, standard))

    def keeps(self, standard: Serde[Any]) -> bool:
        """Return whether its aggregates are what a serde reads of them, and are never changed."""
        return not self.is_users and standard == Serdes.json()


class Aggregated(NamedTuple):
    """What an aggregation makes of some rows."""

    new: pa.Array
    """The aggregate at each row; null for none."""
    begun: pa.Array | pa.Scalar | None
    """What the rows began with at which there was none, one for each or for all of them; None for nothing."""


class ColumnAggregation(ABC):
    """Computes the running aggregate at each row of a column: of what was held, and the key's rows up to this one."""

    counts: bool = False
    """Whether each row counts as 1 whatever its value."""
    chooses: bool = False
    """Whether each aggregate is one of the values."""
    sessions_at_once: ClassVar[int | None] = None
    """How many records are merged into sessions at once; None for all. Each change has an aggregate."""

    @abstractmethod
    def run(
        self,
        groups: KeyGroups,
        records: RecordColumns,
        rows: Integers,
        before: pa.Array,
        fail: FailOnRow,
        *,
        tells_begun: bool,
    ) -> Aggregated:
        """Return the aggregate at each row: `rows` has the record that it adds to its group.

        `before` has what is held of each group, null for none. Of large aggregates, only the first rows may be done, up
        to a record. Raises SerializationError for what the type can't hold, and calls `fail` if a function raises.
        """

    def merging(self, aggregation: Aggregation) -> Aggregation:
        """Return what does an aggregation where sessions merge, whose aggregates are cells."""
        return aggregation

    def cells(self, column: pa.Array) -> Sequence[Any]:
        """Return what stands for each aggregate of a column; None for null."""
        cells: list[Any] = column.to_pylist()
        return cells

    def column(self, cells: Sequence[Any], type_: pa.DataType) -> pa.Array:
        """Return the column of cells. Raises SerializationError for one that the type can't hold."""
        return aggregates_of(cells, type_)


@dataclass(frozen=True)
class _ByFunctions(ColumnAggregation):
    """Aggregates with functions, row by row. Each gets what a store would read: it may change that."""

    aggregation: Aggregation
    standard: Serde[Any]
    """The standard serde of columns of aggregates; that of the store may encrypt."""
    sessions_at_once: ClassVar[int | None] = 8192

    def run(
        self,
        groups: KeyGroups,
        records: RecordColumns,
        rows: Integers,
        before: pa.Array,
        fail: FailOnRow,
        *,
        tells_begun: bool,
    ) -> Aggregated:
        """Return the aggregate at each row."""
        initializer, aggregator = self.aggregation.initializer, self.aggregation.aggregator
        write, read = self.standard.serialize, self.standard.deserialize
        keeps = self.aggregation.keeps(self.standard)
        held = before.to_pylist() if keeps else self.cells(before)
        keys, key_of, values = records.by_key.keys.to_pylist(), records.by_key.codes.tolist(), records.value.to_pylist()
        begun: list[bytes | None] = []
        made: list[bytes | None] = []
        last = row = size_bytes = 0
        try:
            for code, row in zip(groups.codes.tolist(), rows.tolist(), strict=True):
                if size_bytes > _BYTES_AT_ONCE and row != last:
                    break
                there = held[code]
                if there is None:
                    there = initializer()
                    if tells_begun:
                        begun.append(None if there is None else write(there))
                elif not keeps:
                    there = read(there)
                aggregate = aggregator(keys[key_of[row]], values[row], there)
                cell = None if aggregate is None else write(aggregate)
                made.append(cell)
                held[code] = aggregate if keeps else cell
                size_bytes += len(cell or b"")
                last = row
        except Exception as cause:
            fail(row, cause)
        return Aggregated(self.column(made, before.type), self.column(begun, before.type) if tells_begun else None)

    def merging(self, aggregation: Aggregation) -> Aggregation:
        """Return what aggregates cells."""
        aggregator, merger = self.aggregation.aggregator, self.aggregation.merger
        write, read = self.standard.serialize, self.standard.deserialize
        assert merger is not None  # streams by session require one

        def add(key: Any, value: Any, there: Any) -> bytes | None:
            aggregate = aggregator(key, value, there)
            return None if aggregate is None else write(aggregate)

        return replace(self.aggregation, aggregator=add, merger=lambda key, one, cell: merger(key, one, read(cell)))

    def cells(self, column: pa.Array) -> list[bytes | None]:
        """Return what the standard serde writes of each aggregate."""
        columns = self.standard.columns
        assert columns is not None
        written = column.storage if isinstance(column, pa.ExtensionArray) else columns.serialize(column)
        cells: list[bytes | None] = written.to_pylist()
        return cells

    def column(self, cells: Sequence[Any], type_: pa.DataType) -> pa.Array:
        """Return the column of cells."""
        written = pa.array(cells, pa.binary())
        if isinstance(type_, pa.ExtensionType):
            return pa.ExtensionArray.from_storage(type_, written)
        assert self.standard.columns is not None
        made: pa.Array = self.standard.columns.deserialize(written)
        return made


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

    def run(
        self,
        groups: KeyGroups,
        records: RecordColumns,
        rows: Integers,
        before: pa.Array,
        fail: FailOnRow,
        *,
        tells_begun: bool,
    ) -> Aggregated:
        """Return the aggregate at each row."""
        is_one_each = np.array_equal(rows, np.arange(len(records)))
        values = records.value if is_one_each else records.value.take(pa.array(rows))
        return Aggregated(self._run(groups, values, before), pa.scalar(0, before.type) if self.counts else None)

    def _run(self, groups: KeyGroups, values: pa.Array, before: pa.Array) -> pa.Array:
        if self.combine is None:
            chosen = of_type(before.type, values)
            if self.keeps_first:
                first = np.where(is_valid(before), np.arange(len(groups)), len(groups) + groups.first_rows)
                chosen = pa.concat_arrays([before, chosen]).take(pa.array(first[groups.codes]))
            if before.type == JSON_COLUMNS.type:
                JSON_COLUMNS.serialize(chosen)  # a key's last one alone is stored
            return chosen
        start = _numbers(pc.fill_null(before, 0))
        numbers = np.ones(len(values), np.int64) if self.counts else _numbers(values).astype(start.dtype, copy=False)
        if numbers.dtype.kind == "i" and self.combine == "add" and _may_overflow(numbers, start, groups):
            numbers, start = numbers.astype(object), start.astype(object)
        found = groups.running(getattr(np, self.combine), numbers, start, is_valid(before))
        return aggregates_of(found, before.type)


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


@dataclass(frozen=True)
class _AsRead:
    aggregator: Callable[[Any, Any, Any], Any]
    serde: Serde[Any]

    def __call__(self, key: Any, value: Any, aggregate: Any) -> Any:
        return as_read(self.serde, self.aggregator(key, value, aggregate))


def _standard(serde: Serde[Any]) -> Serde[Any] | None:
    """Return the standard serde whose columns have the type that another one's have; None if none has."""
    type_ = None if serde.columns is None else serde.columns.type
    return next((each for each in STANDARD_SERDES.values() if each.columns and each.columns.type == type_), None)


def _numbers(column: pa.Array) -> Any:
    return column.to_numpy(zero_copy_only=False)


def _may_overflow(numbers: Any, start: Any, groups: KeyGroups) -> bool:
    """Return whether sums may not fit in 64 bits, judged by the largest number and the longest group."""
    largest, begun = (
        max(abs(int(column.min(initial=0))), abs(int(column.max(initial=0)))) for column in (numbers, start)
    )
    return begun + largest * int(groups.counts.max(initial=0)) >= 2**63
