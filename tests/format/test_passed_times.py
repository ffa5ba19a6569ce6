"""Times that have passed: one row and columns of them, whatever does not fit, and the golden bytes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.values.passed_times import (
    decode_passed_columns,
    decode_passed_times,
    encode_passed_columns,
    encode_passed_times,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "passed-times.json"
TIMES = st.lists(st.integers(0, 2**63 - 1), unique=True, max_size=4).map(sorted)


def test_golden_bytes() -> None:
    *before, last_ms = json.loads(GOLDEN.read_text())["passed_ms"]
    entry = json.loads(GOLDEN.read_text())["entry"]
    assert entry["timestamp_ms"] == last_ms
    assert encode_passed_times(sorted(before)).hex() == entry["value"]
    assert decode_passed_times(bytes.fromhex(entry["value"])) == sorted(before)


@given(st.lists(TIMES, max_size=5))
def test_columns_do_what_one_row_does(rows: list[list[int]]) -> None:
    column = encode_passed_columns(
        np.array([*map(len, rows)], np.int64), np.array([time_ms for times in rows for time_ms in times], np.int64)
    )
    assert column.to_pylist() == [encode_passed_times(times) for times in rows]
    assert [decode_passed_times(row) for row in column.to_pylist()] == rows
    codes, times_ms = decode_passed_columns(pa.concat_arrays([pa.nulls(1, pa.binary()), column]))
    assert list(zip(codes.tolist(), times_ms.tolist(), strict=True)) == [
        (number, time_ms) for number, times in enumerate(rows, 1) for time_ms in times
    ]


def test_what_is_no_whole_number_of_times_is_refused() -> None:
    with pytest.raises(FormatError, match="7 bytes are not a multiple of 8"):
        decode_passed_times(bytes(7))
    with pytest.raises(FormatError, match="row 2"):
        decode_passed_columns(pa.array([bytes(8), None, bytes(9)], pa.binary()))
