"""Parts of what may exceed memory: neither too many rows nor too many bytes. The one owner of the bounds.

A row that is larger than the bound comes alone: it must fit in memory. Sizes are those of keys, values and headers; the
number of rows bounds what Python's objects take beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeVar

import numpy as np

from statestore.format.binary_columns import Integers

T = TypeVar("T")

DEFAULT_ROWS: Final = 10_000
DEFAULT_BYTES: Final = 4 << 20
"""Larger chunks are hardly faster, and processing often holds a chunk several times: stored, taken apart, as Arrow
columns, encoded."""
_MOST_TAKEN_AT_ONCE: Final = 64  # rows: one by one would be slower


def key_and_value_sizes(rows: Sequence[Any]) -> list[int]:
    """Return the sizes in bytes of rows that begin with a key and a value or None: pairs, changes, logical writes."""
    return [len(row[0]) + (0 if row[1] is None else len(row[1])) for row in rows]


def chunks(
    rows: Iterable[T],
    sizes_bytes: Callable[[list[T]], list[int]] = key_and_value_sizes,
    *,
    max_rows: int = DEFAULT_ROWS,
    max_bytes: int = DEFAULT_BYTES,
) -> Iterator[list[T]]:
    """Yield all rows in order, as many together as fit into both bounds; a larger row alone.

    Of `rows` it takes little more than it yields: about a fourth of a chunk's bytes.
    """
    left = iter(rows)
    chunk: list[T] = []
    held_bytes, at_once = 0, 1
    while taken := list(islice(left, min(at_once, max_rows - len(chunk)))):
        sizes = sizes_bytes(taken)
        taken_bytes = sum(sizes)
        if held_bytes + taken_bytes <= max_bytes:
            chunk += taken
            held_bytes += taken_bytes
        else:
            for row, size in zip(taken, sizes, strict=True):
                if chunk and held_bytes + size > max_bytes:
                    yield chunk
                    chunk, held_bytes = [], 0
                chunk.append(row)
                held_bytes += size
        if len(chunk) >= max_rows or held_bytes >= max_bytes:
            yield chunk
            chunk, held_bytes = [], 0
        at_once = min(2 * at_once, _MOST_TAKEN_AT_ONCE) if taken_bytes <= max_bytes // 8 else max(1, at_once // 2)
    if chunk:
        yield chunk


def slices(sizes_bytes: Integers, max_bytes: int = DEFAULT_BYTES) -> Iterator[slice]:
    """Yield all rows of columns in order, as many together as fit into `max_bytes`; a larger row alone."""
    ends = np.cumsum(sizes_bytes)
    start = 0
    while start < len(ends):
        before = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, before + max_bytes, side="right")))
        yield slice(start, end)
        start = end
