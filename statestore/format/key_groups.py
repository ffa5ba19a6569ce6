"""The rows of a column, grouped by key without a Python object for each row."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import Flags, Integers, as_one_array, is_valid

Column: TypeAlias = npt.NDArray[Any]

_LONG_GROUP: Final = 64  # keys with more rows than this are combined one by one


class KeyGroups:
    """Rows grouped by key, in their order. A null is a key like others."""

    def __init__(self, keys: pa.Array | pa.ChunkedArray) -> None:
        self.keys: pa.Array
        """Each key once, sorted, a null last; types that Arrow can't sort (structs) in the order of first rows."""
        self.codes: Integers
        """For each row the place of its key in `keys`."""
        keys = as_one_array(keys, "keys")
        if isinstance(keys, pa.ExtensionArray):
            stored = KeyGroups(keys.storage)
            self.keys, self.codes = pa.ExtensionArray.from_storage(keys.type, stored.keys), stored.codes
            return
        if _ascend(keys):
            self.keys, self.codes = keys, np.arange(len(keys))
            return
        self.keys, self.codes = _coded(keys)
        try:
            order = pc.sort_indices(self.keys)
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):
            return
        # RocksDB reads and writes sorted keys in half the time.
        places = np.empty(len(order), np.int64)
        places[order.to_numpy()] = np.arange(len(order))
        self.keys, self.codes = self.keys.take(order), places[self.codes]

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def counts(self) -> Integers:
        """How many rows each key has."""
        return np.bincount(self.codes, minlength=len(self))

    @cached_property
    def last_rows(self) -> Integers:
        """The last row of each key."""
        return _last_rows(self.codes, len(self))

    @cached_property
    def first_rows(self) -> Integers:
        """The first row of each key."""
        rows = np.zeros(len(self), np.int64)
        rows[self.codes[::-1]] = np.arange(len(self.codes) - 1, -1, -1)
        return rows

    @property
    def by_first_row(self) -> Integers:
        """The places of the keys, in the order of their first rows."""
        return self.codes[np.sort(self.first_rows)]

    @cached_property
    def rows_before(self) -> Integers:
        """For each row the last one before it with the same key; -1 if there is none."""
        order, starts = self._order
        before = np.empty(len(order), np.int64)
        before[order[1:]] = order[:-1]
        before[order[starts]] = -1
        return before

    def running_count(self) -> Integers:
        """Return for each row how many rows its key has up to it, itself included."""
        order, starts = self._order
        numbers = np.empty(len(order), np.int64)
        numbers[order] = np.arange(len(order)) - np.repeat(starts, self.counts) + 1
        return numbers

    def running_sum(self, amounts: Any) -> Integers:
        """Return for each row the sum of its key's amounts up to it, itself included.

        `amounts` has a whole number for each row, in an Arrow column or a numpy array. Raises TypeError for anything
        else: a sum of floats depends on its order.
        """
        numbers = np.asarray(amounts)
        if not np.issubdtype(numbers.dtype, np.integer):
            found = getattr(amounts, "type", numbers.dtype)
            raise TypeError(f"amounts must be whole numbers, and none of them null, got {found}")
        order, starts = self._order
        sums = np.cumsum(numbers[order], dtype=np.int64)
        before = np.append(np.int64(0), sums)[starts]
        running = np.empty(len(order), np.int64)
        running[order] = sums - np.repeat(before, self.counts)
        return running

    def running(self, combine: np.ufunc, values: Column, before: Column, is_before: Flags) -> Column:
        """Return for each row its key's `before` and its values up to that row, combined in order.

        `values` has one for each row, `before` one for each key, which is used where `is_before`. Integers of numpy
        wrap around on overflow; Python's do not.
        """
        order, starts = self._order
        counts = self.counts
        made = values[order]
        begun = starts[is_before]
        made[begun] = combine(before[is_before], made[begun])
        is_long = counts > _LONG_GROUP
        for start, count in zip(starts[is_long].tolist(), counts[is_long].tolist(), strict=True):
            made[start : start + count] = combine.accumulate(made[start : start + count])
        # One row of all short groups at a time.
        starts, counts = starts[~is_long], counts[~is_long]
        for number in range(1, int(counts.max(initial=0))):
            starts, counts = starts[counts > number], counts[counts > number]
            made[starts + number] = combine(made[starts + number - 1], made[starts + number])
        found = np.empty_like(made)
        found[order] = made
        return found

    @cached_property
    def _order(self) -> tuple[Integers, Integers]:
        """All rows by key, in their order within one; and where each key begins among them."""
        # numpy sorts 16 bits by counting, five times as fast.
        codes = self.codes.astype(np.uint16) if len(self) <= 1 << 16 else self.codes
        return np.argsort(codes, kind="stable"), np.cumsum(self.counts) - self.counts


def are_last(keys: pa.Array | pa.ChunkedArray) -> Flags:
    """Return which rows are the last ones with their key. A null is a key like others."""
    distinct, codes = _coded(as_one_array(keys, "keys"))
    found: Flags = _last_rows(codes, len(distinct))[codes] == np.arange(len(codes))
    return found


def _last_rows(codes: Integers, size: int) -> Integers:
    rows = np.zeros(size, np.int64)
    rows[codes] = np.arange(len(codes))  # of several for one place, the last one stays
    return rows


def _coded(keys: pa.Array) -> tuple[pa.Array, Integers]:
    """Return each key once, in the order of first rows, and the place of each row's key there."""
    keys = keys.storage if isinstance(keys, pa.ExtensionArray) else keys
    if pa.types.is_struct(keys.type):
        codes = is_valid(keys).astype(np.int64)
        for column in keys.flatten():
            more = KeyGroups(column)
            codes = _coded(pa.array(codes * len(more) + more.codes))[1]
        return keys.take(pa.array(np.unique(codes, return_index=True)[1])), codes
    coded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode(null_encoding="encode")
    return coded.dictionary, coded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)


def _ascend(keys: pa.Array) -> bool:
    """Return whether each key is above the one before it, so that keys are sorted and distinct."""
    try:
        return not pa.types.is_dictionary(keys.type) and pc.less(keys[:-1], keys[1:]).true_count == len(keys) - 1
    except pa.ArrowNotImplementedError:
        return False
