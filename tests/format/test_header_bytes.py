"""The scalar header codec: round trips, where it is lenient, where it is not. Golden vectors: test_golden_codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.records.header_bytes import (
    decode_headers,
    encode_headers,
    header_count,
    parse_count,
    parse_headers,
)
from tests.support.cuts import check_cut_is_noticed

KEYS = st.text(max_size=8) | st.sampled_from(["a", "trace-id", "k" * 70])
VALUES = st.none() | st.binary(max_size=8) | st.sampled_from([b"v" * 63, b"v" * 64, b"v" * 9000])
PAIRS = st.lists(st.tuples(KEYS, VALUES), max_size=6)


@given(PAIRS)
def test_round_trip(pairs: list[tuple[str, bytes | None]]) -> None:
    encoded = encode_headers(pairs)
    assert decode_headers(encoded) == pairs
    assert header_count(encoded) == len(pairs)


@given(PAIRS, st.binary(min_size=1, max_size=4))
def test_bytes_after_the_last_header_are_ignored(pairs: list[tuple[str, bytes | None]], tail: bytes) -> None:
    assert decode_headers((encode_headers(pairs) or b"\x00") + tail) == pairs


@given(PAIRS, st.data())
def test_cut_anywhere_it_is_truncated(pairs: list[tuple[str, bytes | None]], data: st.DataObject) -> None:
    check_cut_is_noticed(decode_headers, encode_headers([*pairs, ("last", b"value")]), data, least=1)


def test_no_headers_are_no_bytes() -> None:
    assert encode_headers([]) == b""
    assert decode_headers(b"") == []
    assert header_count(b"") == 0


@pytest.mark.parametrize("data", ["00", "01", "00ffff", "05", "8000"])
def test_count_of_zero_or_less_is_no_headers(data: str) -> None:
    assert decode_headers(bytes.fromhex(data)) == []
    assert header_count(bytes.fromhex(data)) == 0


def test_longer_varints_than_needed_are_read() -> None:
    assert decode_headers(bytes.fromhex("820082006182800062")) == [("a", b"b")]
    assert decode_headers(bytes.fromhex("0280008100")) == [("", None)]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("ff", "\ufffd"),
        ("61c3", "a\ufffd"),
        ("c0af", "\ufffd\ufffd"),
        ("e08080", "\ufffd\ufffd\ufffd"),
        ("f09f92", "\ufffd"),
        ("f0808080", "\ufffd\ufffd\ufffd\ufffd"),
        ("eda080", "\ufffd"),  # an encoded surrogate: Python alone would make three of it
        ("eda0", "\ufffd"),
        ("eda041", "\ufffdA"),
        ("edb08061", "\ufffda"),
        ("eda080edb080", "\ufffd\ufffd"),
        ("ed9fbf", "\ud7ff"),
    ],
)
def test_malformed_utf8_is_replaced_as_java_does(key: str, text: str) -> None:
    """The expected texts are those of new String(bytes, UTF_8) in Java 17."""
    key_bytes = bytes.fromhex(key)
    assert decode_headers(bytes([2, 2 * len(key_bytes)]) + key_bytes + b"\x01") == [(text, None)]


def test_error_carries_sizes() -> None:
    with pytest.raises(TruncatedError) as truncated:
        decode_headers(bytes.fromhex("0202610a6262"))
    assert (truncated.value.wanted, truncated.value.got) == (5, 2)
    with pytest.raises(NegativeLengthError) as negative:
        decode_headers(bytes.fromhex("02026103"))
    assert negative.value.length == -2


@pytest.mark.parametrize("pairs", [[(None, b"")], [(b"key", b"")], [("key", "text")], [("key", 5)]])
def test_wrong_types_are_refused(pairs: list[tuple[str, bytes | None]]) -> None:
    with pytest.raises(TypeError):
        encode_headers(pairs)


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_headers([("\ud800", b"")])


def test_parse_count_counts_decode_headers_only() -> None:
    encoded = encode_headers([("a", b"b")])
    before = parse_count()
    header_count(encoded)
    parse_headers(encoded)
    assert parse_count() == before
    decode_headers(encoded)
    decode_headers(b"")
    assert parse_count() == before + 2
