"""Rows by key: what a loop over the rows finds."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.format.key_groups import KeyGroups, are_last

ROWS = st.lists(
    st.tuples(st.none() | st.sampled_from([b"", b"k", b"l", b"m"]), st.integers(-(2**40), 2**40)), max_size=15
)


@given(ROWS, st.booleans())
def test_it_is_what_a_loop_finds(rows: list[tuple[bytes | None, int]], chunked: bool) -> None:
    column = pa.array([key for key, _ in rows], pa.binary())
    groups = KeyGroups(pa.chunked_array([column.slice(0, 3), column.slice(3)]) if chunked else column)
    first: dict[bytes | None, int] = {}
    last: dict[bytes | None, int] = {}
    counts: Counter[bytes | None] = Counter()
    sums: Counter[bytes | None] = Counter()
    running = []
    for row, (key, amount) in enumerate(rows):
        first.setdefault(key, row)
        last[key] = row
        counts[key] += 1
        sums[key] += amount
        running.append((counts[key], sums[key]))
    keys = groups.keys.to_pylist()
    assert (keys, len(groups)) == (sorted(first, key=lambda key: (key is None, key)), len(first))
    assert [keys[place] for place in groups.by_first_row] == list(first)
    assert [keys[code] for code in groups.codes] == [key for key, _ in rows]
    assert groups.first_rows.tolist() == [first[key] for key in keys]
    assert groups.last_rows.tolist() == [last[key] for key in keys]
    assert np.flatnonzero(are_last(column)).tolist() == sorted(last.values())
    assert groups.counts.tolist() == [counts[key] for key in keys]
    amounts = np.array([amount for _, amount in rows], np.int64)
    assert list(zip(groups.running_count().tolist(), groups.running_sum(amounts).tolist(), strict=True)) == running


def test_keys_that_arrow_does_not_sort_are_in_the_order_of_rows() -> None:
    groups = KeyGroups(pa.array([2, 1, 2, 0], pa.float16()))
    assert (groups.keys.to_pylist(), groups.codes.tolist()) == ([2, 1, 0], [0, 1, 0, 2])
    rows = [None, {"k": "a", "n": 2}, {"k": "a", "n": 1}, {"k": "b", "n": 2}, {"k": None, "n": 2}, None]
    fields = pa.array([rows[-1], *rows, *rows[::-1]], pa.struct({"k": pa.string(), "n": pa.int64()})).slice(1)
    groups = KeyGroups(fields)
    assert (groups.keys.to_pylist(), groups.codes.tolist()) == (rows[:-1], [0, 1, 2, 3, 4, 0, 0, 4, 3, 2, 1, 0])
    assert np.flatnonzero(are_last(fields)).tolist() == [7, 8, 9, 10, 11]


def test_only_whole_numbers_are_summed() -> None:
    groups = KeyGroups(pa.array([b"k", b"k"]))
    assert groups.running_sum(pa.array([1, 2], pa.int8())).tolist() == [1, 3]
    for amounts, words in ([0.1, 0.2], "got double"), ([1, None], "none of them null, got int64"):
        with pytest.raises(TypeError, match=words):
            groups.running_sum(pa.array(amounts))
