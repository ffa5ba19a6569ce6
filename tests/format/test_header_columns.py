"""The vectorised header codec is the scalar one, row for row, on sound and on corrupt bytes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError, VarintError
from statestore.format.records.header_bytes import decode_headers, encode_headers, parse_count
from statestore.format.records.header_columns import HEADERS_TYPE, decode_header_column, encode_header_column
from tests.support.row_errors import check_row_named

Pairs = list[tuple[str, bytes | None]]

KEYS = st.text(max_size=4) | st.sampled_from(["trace-id", "k" * 70])
VALUES = st.none() | st.binary(max_size=4) | st.sampled_from([b"v" * 64, b"v" * 9000])
ROWS = st.lists(st.none() | st.lists(st.tuples(KEYS, VALUES), max_size=4), max_size=8)


def header_column(rows: list[Pairs | None]) -> pa.ListArray:
    as_structs = [None if row is None else [{"key": key, "value": value} for key, value in row] for row in rows]
    return pa.array(as_structs, HEADERS_TYPE)


def pairs_of(column: pa.ListArray) -> list[Pairs | None]:
    rows = column.to_pylist()
    return [None if row is None else [(header["key"], header["value"]) for header in row] for row in rows]


def encode_rows(rows: list[Pairs | None]) -> list[bytes]:
    return [encode_headers(row or []) for row in rows]


@given(ROWS)
def test_encodes_as_the_scalar_codec(rows: list[Pairs | None]) -> None:
    encoded = encode_header_column(header_column(rows))
    encoded.validate(full=True)
    assert encoded.type == pa.binary()
    assert encoded.to_pylist() == encode_rows(rows)


@given(ROWS)
def test_decodes_as_the_scalar_codec(rows: list[Pairs | None]) -> None:
    encoded = [None if row is None else encode_headers(row) for row in rows]
    decoded = decode_header_column(pa.array(encoded, pa.binary()))
    decoded.validate(full=True)
    assert decoded.type == HEADERS_TYPE
    assert pairs_of(decoded) == rows


@given(ROWS, st.data())
def test_sliced_columns(rows: list[Pairs | None], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows)))
    stop = data.draw(st.integers(start, len(rows)))
    sliced = header_column(rows)[start:stop]
    encoded = encode_header_column(sliced)
    assert encoded.to_pylist() == encode_rows(rows[start:stop])
    decoded = decode_header_column(pa.array(encode_rows(rows), pa.binary())[start:stop])
    assert pairs_of(decoded) == [row or [] for row in rows[start:stop]]


@given(ROWS, ROWS)
def test_chunked_columns(first: list[Pairs | None], second: list[Pairs | None]) -> None:
    chunked = pa.chunked_array([header_column(first), header_column(second)])
    encoded = encode_header_column(chunked)
    assert encoded.to_pylist() == encode_rows(first + second)
    decoded = decode_header_column(pa.chunked_array([encoded, encoded]))
    assert pairs_of(decoded) == [row or [] for row in (first + second) * 2]


def decoded_or_error(data: bytes) -> Pairs | FormatError:
    try:
        return decode_headers(data)
    except FormatError as error:
        return error


def corrupted(encoded: bytes, changes: list[tuple[int, int]]) -> bytes:
    corrupt = bytearray(encoded)
    for position, byte in changes:
        if corrupt:
            corrupt[position % len(corrupt)] = byte
    return bytes(corrupt)


BYTE = st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0x81, 0xFE, 0xFF]) | st.integers(0, 255)
SMALL_PAIRS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=4)
CORRUPT = st.binary(max_size=12) | st.builds(
    corrupted, SMALL_PAIRS.map(encode_headers), st.lists(st.tuples(st.integers(0, 63), BYTE), max_size=3)
)


@given(st.lists(st.none() | CORRUPT, max_size=6))
@example([b"\x02\x02\x61\x04\x62", b"\x80"])
@example([bytes.fromhex("8080808080")])
@example([bytes.fromhex("028080808080"), b""])
@example([bytes.fromhex("0202618080808080"), b""])
@example([bytes.fromhex("02026180"), b"\x00\x00"])
@example([b"\x82\x01" + b"\x00\x01" * 64, b"\x82\x01" + b"\x00\x01" * 65, b"\x03"])
def test_corrupt_bytes_raise_or_decode_as_with_the_scalar_codec(rows: list[bytes | None]) -> None:
    column = pa.array(rows, pa.binary())
    outcomes = [None if row is None else decoded_or_error(row) for row in rows]
    errors = [(number, outcome) for number, outcome in enumerate(outcomes) if isinstance(outcome, FormatError)]
    if not errors:
        decoded = decode_header_column(column)
        decoded.validate(full=True)
        assert pairs_of(decoded) == outcomes
        return
    with pytest.raises(FormatError) as caught:
        decode_header_column(column)
    check_row_named(caught.value, *errors[0])


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ("02ffffffffff", VarintError),
        ("02026103", NegativeLengthError),
        ("80", TruncatedError),
        ("ffffffff1f", FormatError),
    ],
)
@pytest.mark.parametrize("bad_row", [0, 2, 4])
def test_the_first_bad_row_is_named(data: str, error: type[FormatError], bad_row: int) -> None:
    rows = [encode_headers([("a", b"b")] * count) for count in (1, 3, 2, 100, 0)]
    rows[bad_row] = bytes.fromhex(data)
    with pytest.raises(FormatError, match=f"^row {bad_row}: header") as caught:
        decode_header_column(pa.array([*rows, b"\x02"], pa.binary()))
    assert type(caught.value) is error


def test_a_bad_row_after_a_bad_long_row_is_not_the_one_named() -> None:
    long_and_bad = encode_headers([("a", b"b")] * 100)[:-1]
    with pytest.raises(TruncatedError, match=r"^row 1: header value"):
        decode_header_column(pa.array([b"", long_and_bad, b"\x02\x02\x61\x04\x62"], pa.binary()))
    with pytest.raises(TruncatedError, match=r"^row 0: header value"):
        decode_header_column(pa.array([b"\x02\x02\x61\x04\x62", long_and_bad], pa.binary()))


def test_announced_headers_that_cannot_be_there_cost_no_memory() -> None:
    with pytest.raises(TruncatedError, match=r"^row 0: headers"):
        decode_header_column(pa.array([bytes.fromhex("feffffff0f"), b""], pa.binary()))


def test_headers_of_every_size_class() -> None:
    rows: list[Pairs | None] = [
        [(str(number), None if number % 7 == 0 else b"x" * (number % 5)) for number in range(count)]
        for count in (0, 1, 63, 64, 65, 200, 0, 3, 9000, 1)
    ]
    rows += [[("v", b"v" * size)] for size in (63, 64, 8191, 8192, 70_001, 1 << 20)]
    encoded = encode_header_column(header_column(rows))
    assert encoded.to_pylist() == encode_rows(rows)
    assert pairs_of(decode_header_column(encoded)) == rows


def test_keys_that_are_not_utf8() -> None:
    keys = [b"\xff", b"good", b"\xed\xa0\x80", "ключ-é-🚀".encode(), b"\xff", b""]
    rows = [b"\x02" + bytes([2 * len(key)]) + key + b"\x00" for key in keys]
    decoded = decode_header_column(pa.array(rows, pa.binary()))
    decoded.validate(full=True)
    assert pairs_of(decoded) == [decode_headers(row) for row in rows]
    assert pairs_of(decoded)[2] == [("\ufffd", b"")]


def test_type_is_what_spark_hands_over_and_expects() -> None:
    assert HEADERS_TYPE.value_field.name == "element"
    assert [(field.name, field.type, field.nullable) for field in HEADERS_TYPE.value_type] == [
        ("key", pa.string(), True),
        ("value", pa.binary(), True),
    ]


@pytest.mark.parametrize("rows", [[], [None], [None, None], [[]], [[], None]])
def test_nothing_to_encode(rows: list[Any]) -> None:
    encoded = encode_header_column(header_column(rows))
    assert encoded.to_pylist() == [b""] * len(rows)
    assert pairs_of(decode_header_column(encoded)) == [[]] * len(rows)


def test_null_rows_over_entries_have_no_headers() -> None:
    entries = header_column([[("a", b"1"), ("b", b"2"), ("c", b"3")]]).flatten()
    column = pa.ListArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), entries, mask=pa.array([False, True, False]))
    assert encode_header_column(column).to_pylist() == encode_rows([[("a", b"1")], None, [("c", b"3")]])


def test_null_slots_over_bytes_are_null() -> None:
    validity = pa.py_buffer(np.packbits([True, False, True], bitorder="little"))
    values = pa.Array.from_buffers(
        pa.binary(), 3, [validity, pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(b"xyz")]
    )
    entries = pa.StructArray.from_arrays([pa.array(["a", "b", "c"]), values], fields=list(HEADERS_TYPE.value_type))
    column = pa.ListArray.from_arrays(pa.array([0, 3], pa.int32()), entries)
    assert encode_header_column(column).to_pylist() == encode_rows([[("a", b"x"), ("b", None), ("c", b"z")]])

    corrupt = pa.Array.from_buffers(
        pa.binary(), 3, [validity, pa.py_buffer(np.array([0, 0, 4, 4], np.int32)), pa.py_buffer(b"\xff\xff\xff\xff")]
    )
    assert pairs_of(decode_header_column(corrupt)) == [[], None, []]


@pytest.mark.parametrize("start", [0, 1, 2])
def test_null_key_names_the_row(start: int) -> None:
    rows = [[{"key": "a", "value": b""}], None, [], [{"key": "a", "value": None}, {"key": None, "value": b"x"}]]
    with pytest.raises(FormatError, match=f"^row {3 - start}: header key: is null"):
        encode_header_column(pa.array(rows, HEADERS_TYPE)[start:])


def test_null_header_names_the_row() -> None:
    with pytest.raises(FormatError, match=r"^row 1: header: is null"):
        encode_header_column(pa.array([[{"key": "a", "value": b""}], [None]], HEADERS_TYPE))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([b""], pa.binary()),
        pa.array([["a"]]),
        pa.array([[{"k": "a", "v": b""}]]),
        pa.array([[{"key": "a", "value": "text"}]]),
        pa.array([[{"value": b"", "key": "a"}]]),
        pa.array([[("a", b"")]], pa.map_(pa.string(), pa.binary())),
    ],
    ids=lambda column: str(column.type),
)
def test_other_types_are_refused(column: pa.Array) -> None:
    with pytest.raises(TypeError, match="headers must be a column of type list<element: struct<key: string"):
        encode_header_column(column)


def test_keys_that_may_not_be_null_are_welcome() -> None:
    entry = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
    column = pa.array([[{"key": "a", "value": b"b"}]], pa.list_(pa.field("item", entry, nullable=False)))
    assert encode_header_column(column).to_pylist() == [encode_headers([("a", b"b")])]


@pytest.mark.parametrize("column", [pa.array(["text"]), pa.array([b""], pa.large_binary()), pa.array([1])])
def test_only_binary_is_decoded(column: pa.Array) -> None:
    with pytest.raises(TypeError, match="encoded headers must be a binary column"):
        decode_header_column(column)


def test_more_than_a_column_holds_is_refused() -> None:
    size = 1_200_000_000  # of bytes that are never touched, and stand in for both key and value
    untouched = pa.py_buffer(np.zeros(size, np.uint8))
    offsets = pa.py_buffer(np.array([0, size], np.int32))
    key = pa.Array.from_buffers(pa.string(), 1, [None, offsets, untouched])
    value = pa.Array.from_buffers(pa.binary(), 1, [None, offsets, untouched])
    entries = pa.StructArray.from_arrays([key, value], fields=list(HEADERS_TYPE.value_type))
    with pytest.raises(ValueError, match=r"encoded headers take 2400000011 bytes.*fewer rows"):
        encode_header_column(pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), entries))


def test_columns_are_no_parses() -> None:
    before = parse_count()
    decode_header_column(encode_header_column(header_column([[("a", b"b")], [("a", None)] * 100])))
    assert parse_count() == before
