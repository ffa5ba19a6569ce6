"""The rows of a column by key: what belongs together of a batch, without a Python object a row."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.format.binary_columns import Integers, as_one_array


class KeyGroups:
    """Rows that have the same key, in order. A null is a key like others."""

    def __init__(self, keys: pa.Array | pa.ChunkedArray) -> None:
        keys = as_one_array(keys, "keys")
        coded = keys if pa.types.is_dictionary(keys.type) else keys.dictionary_encode(null_encoding="encode")
        self.keys: pa.Array = coded.dictionary
        """Each key once, in the order of their first rows."""
        self.codes: Integers = coded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        """Of each row, the place of its key in `keys`."""

    def __len__(self) -> int:
        return len(self.keys)

    @cached_property
    def counts(self) -> Integers:
        """How many rows each key has."""
        return np.bincount(self.codes, minlength=len(self))

    @cached_property
    def last_rows(self) -> Integers:
        """The last row of each key."""
        rows = np.zeros(len(self), np.int64)
        rows[self.codes] = np.arange(len(self.codes))  # of several for one place, the last one stays
        return rows

    @cached_property
    def first_rows(self) -> Integers:
        """The first row of each key."""
        rows = np.zeros(len(self), np.int64)
        rows[self.codes[::-1]] = np.arange(len(self.codes) - 1, -1, -1)
        return rows

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
            raise TypeError(f"amounts must be whole numbers, got {getattr(amounts, 'type', numbers.dtype)}")
        order, starts = self._order
        sums = np.cumsum(numbers[order], dtype=np.int64)
        before = np.append(np.int64(0), sums)[starts]
        found = np.empty(len(order), np.int64)
        found[order] = sums - np.repeat(before, self.counts)
        return found

    @cached_property
    def _order(self) -> tuple[Integers, Integers]:
        """All rows by key, in their order within one; and where each key begins among them."""
        return np.argsort(self.codes, kind="stable"), np.cumsum(self.counts) - self.counts
