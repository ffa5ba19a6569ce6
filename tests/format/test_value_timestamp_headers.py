"""The layout with headers: scalar against vectorised, and never a look into the headers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.format.values.stored_columns import join_columns, split_columns
from statestore.format.values.value_timestamp_headers import (
    convert_from_plain_to_header_format,
    convert_to_header_format,
    encode_value_timestamp,
    encode_value_timestamp_headers,
    plain_value,
    split_value_timestamp_headers,
    timestamped_value,
)
from tests.support.row_errors import check_row_named


class Row(NamedTuple):
    value: bytes | None
    timestamp_ms: int
    header_bytes: bytes


TIMESTAMPS = st.integers(-(2**63), 2**63 - 1)
HEADER_BYTES = st.binary(max_size=4) | st.sampled_from([b"h" * size for size in (63, 64, 8191, 8192)])
SOUND = st.builds(Row, st.binary(max_size=12), TIMESTAMPS, HEADER_BYTES)
ROWS = st.lists(SOUND | st.builds(Row, st.none(), TIMESTAMPS, HEADER_BYTES), max_size=8)


def stored_bytes(row: Row) -> bytes:
    stored = encode_value_timestamp_headers(*row)
    assert stored is not None
    return stored


def columns_of(rows: list[Row]) -> tuple[pa.BinaryArray, pa.Int64Array, pa.BinaryArray]:
    return (
        pa.array([row.value for row in rows], pa.binary()),
        pa.array([row.timestamp_ms for row in rows], pa.int64()),
        pa.array([row.header_bytes for row in rows], pa.binary()),
    )


@given(SOUND)
@example(Row(b"v", 0, b"h" * (1 << 20)))
def test_round_trip(row: Row) -> None:
    stored = stored_bytes(row)
    assert split_value_timestamp_headers(stored) == (row.header_bytes, row.timestamp_ms, row.value)
    assert plain_value(stored) == row.value
    assert timestamped_value(stored) == encode_value_timestamp(row.value, row.timestamp_ms)


def test_null_value_drops_timestamp_and_headers() -> None:
    assert encode_value_timestamp_headers(None, 5, b"headers") is None
    assert convert_to_header_format(None) is None
    assert convert_from_plain_to_header_format(None) is None


@given(st.binary(max_size=12), TIMESTAMPS)
def test_conversions(value: bytes, timestamp_ms: int) -> None:
    upgraded = convert_to_header_format(encode_value_timestamp(value, timestamp_ms))
    assert upgraded == encode_value_timestamp_headers(value, timestamp_ms, b"")
    assert convert_from_plain_to_header_format(value) == encode_value_timestamp_headers(value, -1, b"")


@pytest.mark.parametrize("timestamp_ms", [2**63, -(2**63) - 1, None])
def test_timestamp_must_be_a_64_bit_integer(timestamp_ms: int) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        encode_value_timestamp_headers(b"", timestamp_ms, b"")


READERS = [split_value_timestamp_headers, plain_value, timestamped_value]


def test_longer_sizes_than_needed_are_read() -> None:
    for size in ("00", "8000", "808000", "8080808000"):
        data = bytes.fromhex(size + "00" * 7 + "05" + "aa")
        assert split_value_timestamp_headers(data) == (b"", 5, b"\xaa")


def test_values_pass_through_without_a_parse() -> None:
    before = parse_count()
    row = Row(b"value", 5, encode_headers([("a", b"b")]))
    stored = stored_bytes(row)
    split_value_timestamp_headers(stored)
    plain_value(stored)
    timestamped_value(stored)
    split_columns(join_columns(*columns_of([row])))
    assert parse_count() == before


def test_headers_are_not_looked_at() -> None:
    row = Row(b"value", 5, b"\xff\xff\xff no headers at all")
    assert split_value_timestamp_headers(stored_bytes(row)) == (row.header_bytes, 5, b"value")
    assert join_columns(*columns_of([row])).to_pylist() == [stored_bytes(row)]


@given(ROWS)
def test_join_columns_is_the_scalar_encoding(rows: list[Row]) -> None:
    stored = join_columns(*columns_of(rows))
    stored.validate(full=True)
    assert stored.type == pa.binary()
    assert stored.to_pylist() == [encode_value_timestamp_headers(*row) for row in rows]


@given(ROWS, st.data())
def test_split_columns_undoes_join_columns(rows: list[Row], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    values, timestamps, header_bytes = split_columns(join_columns(*columns_of(rows))[start:])
    for column in (values, timestamps, header_bytes):
        column.validate(full=True)
    kept = rows[start:]
    assert values.to_pylist() == [row.value for row in kept]
    assert timestamps.to_pylist() == [None if row.value is None else row.timestamp_ms for row in kept]
    assert header_bytes.to_pylist() == [None if row.value is None else row.header_bytes for row in kept]


@given(ROWS, ROWS, st.data())
def test_sliced_and_chunked_columns_are_joined(first: list[Row], second: list[Row], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(first)))
    chunked = [
        pa.chunked_array([one[start:], other]) for one, other in zip(columns_of(first), columns_of(second), strict=True)
    ]
    expected = [encode_value_timestamp_headers(*row) for row in first[start:] + second]
    assert join_columns(*chunked).to_pylist() == expected
    values, _, _ = split_columns(pa.chunked_array([join_columns(*chunked)] * 2))
    assert values.to_pylist() == [row.value for row in first[start:] + second] * 2


def split_or_error(data: bytes) -> tuple[bytes, int, bytes] | FormatError:
    try:
        return split_value_timestamp_headers(data)
    except FormatError as error:
        return error


SIZE = st.sampled_from([0, 1, 2, 8, 0x10, 0x7F, 0x80, 0x81, 0xFF]) | st.integers(0, 255)
CORRUPT = st.builds(lambda head, tail: bytes(head) + tail, st.lists(SIZE, max_size=6), st.binary(max_size=14))


@given(st.lists(st.none() | CORRUPT | SOUND.map(stored_bytes), max_size=6))
@example([None, b"\x80"])
@example([b""])
def test_corrupt_bytes_raise_or_split_as_with_the_scalar_function(rows: list[bytes | None]) -> None:
    column = pa.array(rows, pa.binary())
    outcomes = [(None, None, None) if row is None else split_or_error(row) for row in rows]
    errors = [(number, outcome) for number, outcome in enumerate(outcomes) if isinstance(outcome, FormatError)]
    if not errors:
        values, timestamps, header_bytes = (part.to_pylist() for part in split_columns(column))
        assert list(zip(header_bytes, timestamps, values, strict=True)) == outcomes
        return
    with pytest.raises(FormatError) as caught:
        split_columns(column)
    check_row_named(caught.value, *errors[0])


def test_null_slots_over_bytes_are_null() -> None:
    validity = pa.py_buffer(np.packbits([False, True, False], bitorder="little"))
    sound = stored_bytes(Row(b"value", 5, b"h"))
    offsets = np.array([0, 3, 3 + len(sound), 5 + len(sound)], np.int32)
    data = pa.py_buffer(b"\xff\xff\xff" + sound + b"\xff\xff")
    stored = pa.Array.from_buffers(pa.binary(), 3, [validity, pa.py_buffer(offsets), data])
    values, timestamps, header_bytes = split_columns(stored)
    assert values.to_pylist() == [None, b"value", None]
    assert timestamps.to_pylist() == [None, 5, None]
    assert header_bytes.to_pylist() == [None, b"h", None]
    assert split_columns(stored[:1])[1].to_pylist() == [None]


def test_value_without_timestamp_or_header_bytes_is_refused() -> None:
    values = pa.array([None, b"", b""], pa.binary())
    timestamps = pa.array([None, 1, 2], pa.int64())
    headers = pa.array([None, b"", b""], pa.binary())
    assert join_columns(values, timestamps, headers).null_count == 1
    with pytest.raises(FormatError, match=r"^row 2: timestamp: is null"):
        join_columns(values, pa.array([None, 1, None], pa.int64()), headers)
    with pytest.raises(FormatError, match=r"^row 1: header bytes: is null"):
        join_columns(values, timestamps, pa.array([None, None, b""], pa.binary()))


def test_wrong_columns_are_refused() -> None:
    values, timestamps, headers = columns_of([Row(b"", 0, b"")])
    with pytest.raises(ValueError, match="1 values, 0 timestamps"):
        join_columns(values, timestamps[:0], headers)
    with pytest.raises(TypeError, match="timestamps must be an int64 column, got int32"):
        join_columns(values, timestamps.cast(pa.int32()), headers)
    with pytest.raises(TypeError, match="values must be a binary column, got string"):
        join_columns(values.cast(pa.string()), timestamps, headers)
    with pytest.raises(TypeError, match="header bytes must be a binary column"):
        join_columns(values, timestamps, pa.array([[]], pa.list_(pa.binary())))
    with pytest.raises(TypeError, match="stored values must be a binary column"):
        split_columns(values.cast(pa.large_binary()))


def test_more_than_a_column_holds_is_refused() -> None:
    size = 1_200_000_000  # of bytes that are never touched, and stand in for both value and headers
    offsets = pa.py_buffer(np.array([0, size], np.int32))
    column = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, pa.py_buffer(np.zeros(size, np.uint8))])
    with pytest.raises(ValueError, match=r"take 2400000013 bytes.*fewer rows"):
        join_columns(column, pa.array([0], pa.int64()), column)
    with pytest.raises(ValueError, match=r"do not fit into one Arrow array.*fewer rows"):
        split_columns(pa.chunked_array([column, column]))
