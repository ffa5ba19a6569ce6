"""Stored values in columns, of every format: what the scalar functions make of each row, and refuse."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_columns import join_stored_columns, split_stored_columns
from statestore.format.values.stored_value import join_stored, split_stored

each_format = pytest.mark.parametrize("store_format", list(StoreFormat))
PARTS = st.tuples(st.none() | st.binary(max_size=6), st.integers(-(2**63), 2**63 - 1), st.binary(max_size=150))


@each_format
@given(st.lists(PARTS, max_size=8), st.integers(0, 3))
def test_rows_are_joined_and_split_as_values_are(
    store_format: StoreFormat, rows: list[tuple[bytes | None, int, bytes]], skipped: int
) -> None:
    values, times, headers = (
        pa.array([row[number] for row in rows], kind).slice(skipped)
        for number, kind in enumerate([pa.binary(), pa.int64(), pa.binary()])
    )
    rows = rows[skipped:]
    stored = [join_stored(store_format, *row) for row in rows]
    assert join_stored_columns(store_format, values, times, headers).to_pylist() == stored
    found = split_stored_columns(store_format, pa.array([b"", *stored], pa.binary()).slice(1))
    for column, part in zip(found, ["value", "timestamp_ms", "header_bytes"], strict=True):
        expected = [None if each is None else getattr(split_stored(store_format, each), part) for each in stored]
        assert (expected if column is None else column.to_pylist()) == expected
        assert (column is None) == (part != "value" and all(each is None for each in expected) and column is None)


@each_format
@given(st.lists(st.none() | st.binary(max_size=12), max_size=6))
def test_a_row_that_is_refused_is_named(store_format: StoreFormat, rows: list[bytes | None]) -> None:
    column = pa.array(rows, pa.binary())
    for row, stored in enumerate(rows):
        try:
            _ = None if stored is None else split_stored(store_format, stored)
        except FormatError as refused:
            with pytest.raises(type(refused), match=f"^{re.escape(f'row {row}: {refused}')}$"):
                split_stored_columns(store_format, column)
            return
    assert split_stored_columns(store_format, column).value.to_pylist() == [
        None if stored is None else split_stored(store_format, stored).value for stored in rows
    ]
