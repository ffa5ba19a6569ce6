"""Serdes of columns: each row becomes what the scalar serde makes of it, and is refused where that refuses it."""

from __future__ import annotations

import math
import pickle
import re
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Serde, Serdes
from statestore.errors import DeserializationError, SerializationError
from statestore.format.json_serde import json_column

VALUES: dict[str, tuple[Serde[Any], st.SearchStrategy[Any]]] = {
    "string": (Serdes.string(), st.text(max_size=8)),
    "bytes": (Serdes.bytes(), st.binary(max_size=12)),
    "int32": (Serdes.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (Serdes.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (Serdes.double(), st.floats(allow_nan=False)),
    "boolean": (Serdes.boolean(), st.booleans()),
    "json": (
        Serdes.json(),
        st.recursive(
            st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
            lambda inner: (
                st.lists(st.none() | inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
            ),
            max_leaves=5,
        ),
    ),
}
each_serde = pytest.mark.parametrize("name", sorted(VALUES))


@each_serde
@given(st.data())
def test_rows_are_written_and_read_as_values_are(name: str, data: st.DataObject) -> None:
    serde, values = VALUES[name]
    rows = data.draw(st.lists(st.none() | values, max_size=12))
    skipped = data.draw(st.integers(0, len(rows)))
    assert serde.columns is not None
    whole = json_column(rows) if name == "json" else pa.array(rows, serde.columns.type)
    column = serde.columns.serialize(whole.slice(skipped))
    assert column.type == pa.binary()
    written = [None if value is None else serde.serialize(value) for value in rows]
    assert column.to_pylist() == written[skipped:]
    read = serde.columns.deserialize(pa.array(written, pa.binary()).slice(skipped))
    assert (read.type, read.to_pylist()) == (serde.columns.type, rows[skipped:])


@each_serde
@given(st.data())
def test_a_column_is_refused_for_the_first_row_that_the_serde_refuses(name: str, data: st.DataObject) -> None:
    serde, values = VALUES[name]
    rows = data.draw(st.lists(st.none() | st.binary(max_size=9) | values.map(serde.serialize), max_size=8))
    column = pa.array(rows, pa.binary())
    assert serde.columns is not None
    for row, item in enumerate(rows):
        try:
            _ = None if item is None else serde.deserialize(item)
        except DeserializationError as refused:
            with pytest.raises(DeserializationError, match=f"^{re.escape(f'row {row}: {refused}')}$"):
                serde.columns.deserialize(column)
            return
    assert serde.columns.deserialize(column).to_pylist() == [
        None if item is None else serde.deserialize(item) for item in rows
    ]


def test_not_a_number_is_a_double() -> None:
    columns = Serdes.double().columns
    assert columns is not None
    assert math.isnan(columns.deserialize(columns.serialize(pa.array([math.nan])))[0].as_py())


@pytest.mark.parametrize(
    ("serde", "column"),
    [
        (Serdes.bytes(), pa.array(["text"])),
        (Serdes.string(), pa.array([b"bytes"])),
        (Serdes.int64(), pa.array([1.5])),
        (Serdes.double(), pa.array([1])),
        (Serdes.boolean(), pa.array([1])),
        (Serdes.int32(), pa.array([2**31])),
        (Serdes.int64(), pa.array([2**63], pa.uint64())),
    ],
)
def test_a_column_that_would_not_come_back_is_refused(serde: Serde[Any], column: pa.Array) -> None:
    assert serde.columns is not None
    with pytest.raises(SerializationError, match=serde.name):
        serde.columns.serialize(column)


@pytest.mark.parametrize(
    ("serde", "column"),
    [
        (Serdes.bytes(), pa.array([b"ab", None], pa.large_binary())),
        (Serdes.bytes(), pa.array([b"ab"], pa.binary(2))),
        (Serdes.bytes(), pa.array([b"a", b"a"]).dictionary_encode()),
        (Serdes.string(), pa.array(["a"], pa.large_string())),
        (Serdes.int64(), pa.array([1], pa.int8())),
        (Serdes.int32(), pa.chunked_array([[1], [2]])),
        (Serdes.string(), pa.nulls(2)),
        (Serdes.boolean(), pa.array([True, None])),
    ],
)
def test_a_related_type_will_do(serde: Serde[Any], column: pa.Array) -> None:
    assert serde.columns is not None
    expected = [None if value is None else serde.serialize(value) for value in column.to_pylist()]
    assert serde.columns.serialize(column).to_pylist() == expected


@each_serde
def test_they_travel(name: str) -> None:
    serde, _ = VALUES[name]
    copy = pickle.loads(pickle.dumps(serde))
    assert copy.columns.serialize(pa.nulls(1)).to_pylist() == [None]


def test_who_takes_headers_has_no_columns() -> None:
    assert Serdes.of_headers("h", lambda value, headers: b"", lambda data, headers: "").columns is None


def test_a_row_of_json_that_nests_too_deep_is_malformed_read_alone_or_with_others() -> None:
    deep = pa.ExtensionArray.from_storage(json_column([]).type, pa.array([b"[" * 100_000 + b"]" * 100_000]))
    for read in (deep.to_pylist, deep[0].as_py):
        with pytest.raises(DeserializationError, match="json: "):
            read()
