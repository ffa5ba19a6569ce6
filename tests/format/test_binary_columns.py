"""What the vectorised codecs stand on: varints of whole columns are the scalar ones."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.binary_columns import interleave, positions_and_bytes, read_varints, row_objects, varint_array
from statestore.format.varint import INT32_MAX, INT32_MIN, decode_varint, encode_varint

INT32 = st.integers(INT32_MIN, INT32_MAX) | st.integers(-200, 20_000)


@given(st.lists(INT32, max_size=8))
@example([0, -1, 63])
@example([size for power in range(31) for size in (2**power - 1, 2**power, -(2**power), -(2**power) - 1)])
def test_varint_array_is_the_scalar_encoding(values: list[int]) -> None:
    encoded = varint_array(np.array(values, np.int64))
    encoded.validate(full=True)
    assert encoded.to_pylist() == [encode_varint(value) for value in values]


GROUPS = st.sampled_from([0x80, 0xFF, 0x00, 0x0F, 0x10, 0x7F])


@given(st.lists(st.lists(GROUPS, max_size=7).map(bytes), min_size=1, max_size=6))
@example([bytes.fromhex("80"), bytes.fromhex("00")])
@example([b"", b"\x02"])
@example([bytes.fromhex(varint) for varint in ("8080808080", "8080808010", "ffffffff0f", "fffffffe0f00")])
def test_varints_are_read_as_by_the_scalar_decoder(rows: list[bytes]) -> None:
    """Each row is a varint or not, and what follows it in the block belongs to another row."""
    positions, data = positions_and_bytes(pa.array(rows, pa.binary()))
    values, after, sound = read_varints(data, positions[:-1], positions[1:])
    for number, row in enumerate(rows):
        try:
            value, end = decode_varint(row, 0, "n")
        except FormatError:
            assert not sound[number]
            continue
        assert sound[number]
        assert (values[number], after[number] - positions[number]) == (value, end)


def test_interleave_takes_rows_of_all_columns_in_turn() -> None:
    columns = [pa.array(rows, pa.binary()) for rows in ([b"x", b"a", b"bc"], [b"x", None, b""], [b"x", b"", b"d"])]
    positions, data = interleave([column[1:] for column in columns], "bytes")
    assert positions.tolist() == [0, 1, 1, 1, 3, 3, 4]
    assert data[:4].tobytes() == b"abcd"


@pytest.mark.parametrize(
    "column", [pa.array([], pa.binary()), pa.array([b"", None], pa.binary()), pa.nulls(2, pa.binary())]
)
def test_columns_without_bytes(column: pa.BinaryArray) -> None:
    positions, data = positions_and_bytes(column)
    assert positions.tolist() == [0] * (len(column) + 1)
    assert len(data) >= 1


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b"a", None, b""], pa.binary()),
        pa.array([1, None], pa.int32()),
        pa.array(["in", None, "out", "in"]).dictionary_encode(),
        pa.array(["in", "in", None, "out", "in"]).dictionary_encode().slice(2, 2),
        pa.DictionaryArray.from_arrays(pa.array([1, 0, None], pa.int32()), pa.array(["a", None])),
        pa.array([], pa.dictionary(pa.int32(), pa.string())),
    ],
    ids=["bytes", "numbers", "topics", "sliced", "null in the dictionary", "none"],
)
def test_the_objects_of_rows_are_those_of_arrow(column: pa.Array) -> None:
    assert row_objects(column) == column.to_pylist()
