"""The header that says when a record expires: its forms, what is malformed, and the same of columns."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Headers
from statestore.errors import FormatError
from statestore.format.records.header_bytes import parse_count
from statestore.headers.expiry_header import (
    EXPIRY_HEADER,
    NO_EXPIRY_MS,
    expiry_column,
    expiry_in_headers,
    expiry_time,
    expiry_value,
)

TIMES_MS = st.integers(0, 2**63 - 1)
TEXTS = st.text("0123456789", max_size=21).map(str.encode)
VALUES = st.none() | TIMES_MS.map(expiry_value) | TEXTS | st.binary(max_size=9) | st.just(b"\xff" * 8)
KEYS = st.sampled_from([EXPIRY_HEADER, "not-" + EXPIRY_HEADER, "other"])
HEADERS = st.lists(st.tuples(KEYS, VALUES), max_size=3)


@given(TIMES_MS)
def test_b16_a_time_is_written_as_an_int64_and_read_also_as_text(time_ms: int) -> None:
    assert expiry_time(str(time_ms).encode()) == time_ms
    value = expiry_value(time_ms)
    assert len(value) == 8
    assert expiry_time(value) == (int(value) if value.isdigit() else time_ms)


@pytest.mark.parametrize("value", [b"", b"1.5", b"-1", b" 1", b"1" * 20, str(2**63).encode(), b"\xff" * 8, b"\0" * 7])
def test_b16_what_is_no_time_is_malformed(value: bytes) -> None:
    with pytest.raises(FormatError, match=rf"expiry header: its {len(value)} bytes are not a time: write 8 bytes"):
        expiry_time(value)


def test_b16_eight_digits_are_text() -> None:
    assert expiry_time(b"12345678") == 12_345_678


def test_b16_a_time_that_no_header_can_hold_is_refused() -> None:
    for time_ms in (-1, 2**63):
        with pytest.raises(ValueError, match="time_ms must be an integer from 0"):
            expiry_value(time_ms)


def test_b16_the_last_header_counts_and_null_is_never() -> None:
    twice = Headers([(EXPIRY_HEADER, b"5"), (EXPIRY_HEADER, b"7")])
    assert expiry_in_headers(twice.to_bytes()) == 7
    assert expiry_in_headers(twice.add(EXPIRY_HEADER, None).to_bytes()) is None
    assert expiry_in_headers(Headers([("until", b"5")]).to_bytes(), "until") == 5


def test_b16_headers_without_its_name_are_not_parsed() -> None:
    headers = Headers([("other", b"1")]).to_bytes()
    before = parse_count()
    assert expiry_in_headers(headers) is None
    assert expiry_in_headers(b"") is None
    assert parse_count() == before


@given(st.lists(HEADERS, max_size=6))
def test_b16_a_column_has_what_each_row_has(rows: list[list[tuple[str, bytes | None]]]) -> None:
    headers = [Headers(pairs).to_bytes() for pairs in rows]
    wanted, wrong = [], []
    for row, header_bytes in enumerate(headers):
        try:
            time_ms = expiry_in_headers(header_bytes)
        except FormatError:
            wrong.append(row)
            time_ms = None
        wanted.append(NO_EXPIRY_MS if time_ms is None else time_ms)
    column = pa.array([b"sliced off", *headers], pa.binary()).slice(1)
    times_ms, malformed = expiry_column(column)
    assert times_ms.tolist() == wanted
    assert malformed.tolist() == wrong
    assert times_ms.dtype == np.int64


def test_b16_malformed_headers_are_an_error_in_both_forms() -> None:
    malformed = b"\x02" + bytes([2 * len(EXPIRY_HEADER)]) + EXPIRY_HEADER.encode()
    with pytest.raises(FormatError):
        expiry_in_headers(malformed)
    with pytest.raises(FormatError):
        expiry_column(pa.array([malformed], pa.binary()))
