"""Spark's filters, as conditions on Arrow columns of a store's entries.

A condition selects exactly the rows that Spark's filter selects, null included. Conditions also say which keys, times
and shards need not be read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.kinds.entry_scan import ALL_TIMES, EntryBounds
from statestore.format.records.header_columns import decode_header_column
from statestore.format.records.header_lists import rows_with_header
from statestore.spark.datasource.read_as import AS_BYTES, ReadAs
from statestore.spark.spark_versions import filters

_INTEGERS: Final = ("shard", "start_ms", "end_ms", "timestamp_ms")
_BYTES: Final = ("key",)
_COMPARISONS: Final[dict[type[filters.Filter], Callable[..., Any]]] = {
    filters.EqualTo: pc.equal,
    filters.LessThan: pc.less,
    filters.LessThanOrEqual: pc.less_equal,
    filters.GreaterThan: pc.greater,
    filters.GreaterThanOrEqual: pc.greater_equal,
}


@dataclass(frozen=True)
class Condition:
    """One filter on one column."""

    column: str
    filter: type[filters.Filter]
    value: Any = None
    """What the column is compared with; a list for In."""
    negated: bool = False

    def mask(self, column: pa.Array) -> pa.BooleanArray:
        """Return for each row whether the condition holds; null where SQL says null."""
        found = self._mask(column)
        return pc.invert(found) if self.negated else found

    def _mask(self, column: pa.Array) -> pa.BooleanArray:
        if self.filter is filters.IsNull:
            return pc.is_null(column)
        if self.filter is filters.IsNotNull:
            return pc.is_valid(column)
        if self.filter is filters.EqualNullSafe:
            if self.value is None:
                return pc.is_null(column)
            return pc.fill_null(pc.equal(column, pa.scalar(self.value, column.type)), False)
        if self.filter is filters.In:
            listed = [value for value in self.value if value is not None]
            found = pc.is_in(column, value_set=pa.array(listed, column.type))
            # A null may equal any of them, and a value that is not found may equal a null among them.
            known = found if len(listed) < len(self.value) else pa.repeat(True, len(column))
            return pc.if_else(pc.and_(pc.is_valid(column), known), found, pa.scalar(None, pa.bool_()))
        return _COMPARISONS[self.filter](column, pa.scalar(self.value, column.type))


def condition_of(asked: filters.Filter, read_as: ReadAs = AS_BYTES) -> Condition | None:
    """Return a filter as a condition; None if that is not possible. Keys are compared as bytes."""
    if isinstance(asked, filters.Not):
        inner = condition_of(asked.child, read_as)
        return None if inner is None else replace(inner, negated=not inner.negated)
    kind = type(asked)
    attribute: tuple[str, ...] = getattr(asked, "attribute", ())
    if len(attribute) != 1 or attribute[0] not in (*_INTEGERS, *_BYTES):
        return None
    column = attribute[0]
    if kind in (filters.IsNull, filters.IsNotNull):
        return Condition(column, kind)
    if kind not in (filters.In, filters.EqualNullSafe, *_COMPARISONS):
        return None
    value = getattr(asked, "value", None)
    values = list(value or ()) if kind is filters.In else [value]
    if column in _BYTES:
        known: list[Any] | None = read_as.key_bytes(kind, values)
    else:
        known = values if all(each is None or type(each) is int for each in values) else None
    if known is None:
        return None
    return Condition(column, kind, known if kind is filters.In else known[0])


@dataclass(frozen=True)
class RowFilter:
    """The rows for which all conditions hold, and which have a header."""

    conditions: tuple[Condition, ...] = ()
    header: tuple[str, bytes] | None = None
    """Key and value; None asks for none."""

    def kept(self, columns: Mapping[str, pa.Array]) -> pa.BooleanArray | None:
        """Return which rows the conditions on these columns keep; None if none is on them. Headers are bytes.

        Raises FormatError for bytes that are no headers.
        """
        masks = [each.mask(columns[each.column]) for each in self.conditions if each.column in columns]
        if self.header is not None and "headers" in columns:
            masks.append(pa.array(rows_with_header(decode_header_column(columns["headers"]), *self.header)))
        return pc.fill_null(reduce(pc.and_kleene, masks), False) if masks else None

    def shards(self, numbers: Iterable[int]) -> list[int]:
        """Return the shards that pass."""
        column = pa.array(numbers, pa.int32())
        kept = self.kept({"shard": column})
        found: list[int] = (column if kept is None else column.filter(kept)).to_pylist()
        return found

    def keys(self) -> list[bytes] | None:
        """Return, in order, the only keys that can pass; None if the conditions don't list them."""
        listed = [
            set(each.value) if each.filter is filters.In else {each.value}
            for each in self._positive("key", filters.EqualTo, filters.In)
        ]
        if not listed:
            return None
        keys = pa.array(sorted(key for key in set.intersection(*listed) if key is not None), pa.binary())
        kept = self.kept({"key": keys})
        found: list[bytes] = (keys if kept is None else keys.filter(kept)).to_pylist()
        return found

    def key_bounds(self) -> tuple[bytes | None, bytes | None]:
        """Return bounds, both inclusive, of all keys that can pass; None is open."""
        lows = [each.value for each in self._positive("key", filters.GreaterThan, filters.GreaterThanOrEqual)]
        highs = [each.value for each in self._positive("key", filters.LessThan, filters.LessThanOrEqual)]
        return max(lows, default=None), min(highs, default=None)

    def time_bounds(self, column: str) -> tuple[int, int]:
        """Return bounds, both inclusive, of all times in a column that can pass."""
        low, high = ALL_TIMES
        for each in self._positive(column, *_COMPARISONS, filters.In):
            values: Sequence[int] = (
                [v for v in each.value if v is not None] if each.filter is filters.In else [each.value]
            )
            if each.filter not in (filters.LessThan, filters.LessThanOrEqual):
                low = max(low, min(values, default=low))
            if each.filter not in (filters.GreaterThan, filters.GreaterThanOrEqual):
                high = min(high, max(values, default=high))
        return low, high

    def bounds(self) -> EntryBounds:
        """Return bounds that all entries that pass lie within; not all that lie within them pass."""
        first_key, last_key = self.key_bounds()
        is_compared = bool(self._positive("end_ms", *_COMPARISONS, filters.In))
        needs_end = is_compared or Condition("end_ms", filters.IsNotNull) in self.conditions
        return EntryBounds(
            self.keys(),
            b"",
            first_key,
            last_key,
            self.time_bounds("start_ms"),
            self.time_bounds("end_ms"),
            needs_end,
        )

    def _positive(self, column: str, *kinds: type[filters.Filter]) -> list[Condition]:
        """Return the conditions of these kinds that have a value and are not negated."""
        return [
            each
            for each in self.conditions
            if each.column == column and each.filter in kinds and not each.negated and each.value is not None
        ]


EVERY_ROW: Final = RowFilter()
