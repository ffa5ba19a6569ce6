"""Takes what may be more than memory holds a step at a time: neither too many rows nor too many bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np

from statestore.format.binary_columns import Integers

T = TypeVar("T")

DEFAULT_ROWS: Final = 10_000
DEFAULT_BYTES: Final = 16 << 20
_TAKEN_AT_ONCE: Final = 64
"""Rows: looked at one by one they would take longer."""


def key_and_value_bytes(rows: Sequence[Any]) -> int:
    """Return the size of rows that begin with a key and a value or None: pairs, changes, records, logical writes."""
    return sum([len(row[0]) + (0 if row[1] is None else len(row[1])) for row in rows])


def steps(
    rows: Iterable[T],
    size_bytes: Callable[[list[T]], int] = key_and_value_bytes,
    *,
    max_rows: int = DEFAULT_ROWS,
    max_bytes: int = DEFAULT_BYTES,
) -> Iterator[list[T]]:
    """Yield all rows in order, `max_rows` at a time, or fewer if they are large; none is taken before it is asked for.

    A step ends with the 64 rows that bring it to `max_bytes`.
    """
    left = iter(rows)
    step: list[T] = []
    held_bytes = 0
    while taken := list(islice(left, min(_TAKEN_AT_ONCE, max_rows - len(step)))):
        step += taken
        held_bytes += size_bytes(taken)
        if len(step) >= max_rows or held_bytes >= max_bytes:
            yield step
            step, held_bytes = [], 0
    if step:
        yield step


def slices(sizes_bytes: Integers, max_bytes: int) -> Iterator[slice]:
    """Yield all rows of columns in order, as many together as fit into `max_bytes`; a larger row alone."""
    ends = np.cumsum(sizes_bytes)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + max_bytes, side="right")))
        yield slice(start, end)
        start = end
