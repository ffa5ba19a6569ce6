"""Headers in columns of lists are found, added and removed as in lists of Python."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.format.records.header_lists import add_to_lists, remove_from_lists, rows_of_headers, rows_with_key

KEYS = st.sampled_from(["", "a", "b", "ä"])
Pairs = list[tuple[str, bytes | None]]
ROWS = st.lists(st.none() | st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4)), max_size=5), max_size=6)


def pairs_of(lists: pa.ListArray) -> list[Pairs | None]:
    assert lists.type == HEADERS_TYPE
    lists.validate(full=True)
    rows = lists.to_pylist()
    return [None if row is None else [(each["key"], each["value"]) for each in row] for row in rows]


@given(ROWS, KEYS, KEYS, st.none() | st.binary(max_size=3), st.data())
def test_headers_of_some_rows_are_found_added_and_removed(
    given_rows: list[Pairs | None], key: str, other: str, value: bytes | None, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(given_rows)))
    rows = given_rows[start:]
    lists = pa.array(given_rows, HEADERS_TYPE).slice(start)
    chosen = np.array(data.draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows))), np.bool_)

    assert rows_with_key(lists, key).tolist() == [key in dict(row or []) for row in rows]
    assert rows_of_headers(lists).tolist() == [at for at, row in enumerate(rows) for _ in row or []]
    removed = pairs_of(remove_from_lists(lists, [key, other], chosen))
    assert removed == [
        [pair for pair in row if pair[0] not in (key, other)] if row is not None and is_chosen else row
        for row, is_chosen in zip(rows, chosen, strict=True)
    ]
    added = pairs_of(add_to_lists(lists, key, value, chosen))
    assert added == [
        [*(row or []), (key, value)] if is_chosen else row for row, is_chosen in zip(rows, chosen, strict=True)
    ]
    values = pa.array([b"%d" % at for at in range(len(rows))], pa.binary())
    assert pairs_of(add_to_lists(lists, key, values)) == [
        [*(row or []), (key, b"%d" % at)] for at, row in enumerate(rows)
    ]


def test_a_column_where_nobody_has_the_key_is_returned_as_it_is() -> None:
    lists = pa.array([[("a", b"1")], None], HEADERS_TYPE)
    assert remove_from_lists(lists, ["b"]) is lists
    assert remove_from_lists(lists, ["a"], np.array([False, True])) is lists


def test_what_can_not_be_done_is_refused() -> None:
    lists = pa.array([[("a", b"1")], None], HEADERS_TYPE)
    with pytest.raises(ValueError, match="header 'k': 1 values for 2 records"):
        add_to_lists(lists, "k", pa.array([b"x"]))
    with pytest.raises(TypeError, match="values of header 'k' must be a binary column"):
        add_to_lists(lists, "k", pa.array(["x", "y"]))
    for column in (pa.array([[1]]), pa.array([b""])):
        with pytest.raises(TypeError, match="headers must be a column of type"):
            remove_from_lists(column, ["a"])
