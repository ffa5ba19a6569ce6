"""Records in columns: their headers do what Headers does, and nothing unsound gets in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Headers, RecordColumns
from statestore.errors import FormatError
from statestore.format.records.header_columns import HEADERS_TYPE

KEYS = st.sampled_from(["", "a", "b", "ä"])
PAIRS = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=4)), max_size=5)


def records(headers: Any, rows: int) -> RecordColumns:
    return RecordColumns(pa.array([b"k"] * rows, pa.binary()), pa.nulls(rows), np.zeros(rows, np.int64), headers)


@given(st.lists(PAIRS, max_size=6), KEYS, st.none() | st.binary(max_size=3), st.integers(0, 2))
def test_headers_are_read_added_and_removed_as_by_headers(
    rows: list[list[tuple[str, bytes | None]]], key: str, value: bytes | None, skipped: int
) -> None:
    expected = [Headers(pairs) for pairs in rows][skipped:]
    column = pa.array([headers.to_bytes() for headers in map(Headers, rows)], pa.binary())
    found = records(column, len(rows)).slice(skipped)
    last = [headers.last_header(key) for headers in expected]
    assert found.header(key).to_pylist() == [None if header is None else header.value for header in last]
    added = found.with_header(key, value).headers.to_pylist()
    assert added == [Headers(headers).add(key, value).to_bytes() for headers in expected]
    values = pa.array([b"%d" % row for row in range(len(expected))], pa.binary())
    added = found.with_header(key, values).headers.to_pylist()
    assert added == [Headers(headers).add(key, b"%d" % row).to_bytes() for row, headers in enumerate(expected)]
    removed = found.without_header(key).headers.to_pylist()
    assert removed == [Headers(headers).remove(key).to_bytes() for headers in expected]
    assert [[(each["key"], each["value"]) for each in row] for row in found.decoded_headers().to_pylist()] == [
        [(header.key, header.value) for header in headers] for headers in expected
    ]


def test_what_has_no_such_header_is_left_as_it_is() -> None:
    long_count = b"\x82\x00" + b"\x02a\x01"  # as no writer of today would write it
    column = pa.array([long_count])
    assert records(column, 1).without_header("b").headers.to_pylist() == [long_count]


def test_bytes_that_are_no_headers_name_their_row() -> None:
    found = records(pa.array([b"", b"\x02"]), 2)
    for use in (lambda: found.header("a"), lambda: found.with_header("a", b""), lambda: found.without_header("a")):
        with pytest.raises(FormatError, match="row 1: "):
            use()


def test_columns_of_a_user_may_be_of_other_kinds() -> None:
    spark = pa.array([[{"key": "a", "value": b"1"}], None], HEADERS_TYPE)
    found = RecordColumns(np.array([1, 2]), pa.chunked_array([["x"], [None]]), pa.array([5, 6]), spark)
    assert (found.key.type, found.value.to_pylist()) == (pa.int64(), ["x", None])
    assert found.headers.to_pylist() == [Headers([("a", b"1")]).to_bytes(), b""]
    assert (found.topic, found.partition, found.offset, found.origin) == (None, None, None, None)
    assert RecordColumns(pa.array([1]), pa.array([1]), pa.array([5])).headers.to_pylist() == [b""]


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        ({"timestamp_ms": pa.array([1, -1])}, ValueError, "must not be negative, got -1"),
        ({"timestamp_ms": pa.array([1, None])}, ValueError, "must not be null"),
        ({"timestamp_ms": pa.array([1.0, 2.0])}, TypeError, "column of int64, got double"),
        ({"headers": pa.array([b"", None])}, ValueError, "headers must not be null"),
        ({"headers": pa.array(["", ""])}, TypeError, "headers must be a binary column"),
        ({"key": [1, 2]}, TypeError, "column key of records must be an Arrow or numpy array, not list"),
        ({"value": pa.array([1])}, ValueError, "differ in length"),
        ({"topic": pa.array(["a", "b"])}, TypeError, "no column 'topic' that can be given"),
    ],
)
def test_what_is_unsound_is_refused(columns: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        records(None, 2).with_columns(**columns)
    if "topic" not in columns:
        sound = {"key": pa.array([1, 2]), "value": pa.array([1, 2]), "timestamp_ms": pa.array([1, 2])}
        with pytest.raises(error, match=words):
            RecordColumns(**{**sound, **columns})


def test_rows_are_taken_filtered_and_cut_with_all_their_columns() -> None:
    found = RecordColumns(pa.array([1, 2, 3]), pa.array(["a", "b", "c"]), pa.array([5, 6, 7]))
    assert found.take([2, 0, 2]).value.to_pylist() == ["c", "a", "c"]
    assert found.filter(np.array([True, False, True])).timestamp_ms.to_pylist() == [5, 7]
    assert found.filter(pa.array([True, None, False])).key.to_pylist() == [1]
    assert found.slice(1).key.to_pylist() == [2, 3]
    assert (len(found.slice(1, 1)), found.slice(1, 1).key.to_pylist()) == (1, [2])
    with pytest.raises(ValueError, match="3 records can't have columns of 1 rows"):
        found.with_columns(key=pa.array([1]), value=pa.array([1]), timestamp_ms=pa.array([1]), headers=pa.array([b""]))
    assert repr(found) == "RecordColumns(3 records, key int64, value string)"
