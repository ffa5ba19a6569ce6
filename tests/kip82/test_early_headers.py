"""EarlyHeaders: the methods of the draft, and bytes that stay as they came."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Headers
from statestore.errors import FormatError, LossyHeadersError
from statestore.errors.data import TruncatedError
from statestore.kip82.early_headers import EarlyHeaders, encode_early_headers

KEYS = st.sampled_from(["a", "b", "ключ", ""])
PAIRS = st.lists(st.tuples(KEYS, st.binary(max_size=4)), max_size=5)


@given(PAIRS, PAIRS)
def test_behaves_as_a_list_of_pairs(made_of: list[tuple[str, bytes]], added: list[tuple[str, bytes]]) -> None:
    headers = EarlyHeaders(encode_early_headers(made_of))
    for key, value in added:
        headers.add(key, value)
    pairs = made_of + added
    assert len(headers) == len(pairs)
    assert headers.keys() == list(dict.fromkeys(key for key, _ in pairs))
    for key in ("a", "b", "ключ", "", "not there"):
        assert headers.get(key) == [value for name, value in pairs if name == key]
    assert headers.as_bytes() == encode_early_headers(pairs)
    assert EarlyHeaders(headers.as_bytes()) == headers
    assert list(headers.to_headers()) == pairs
    assert EarlyHeaders.of(headers.to_headers()) == headers


@given(st.binary(max_size=24))
def test_bytes_stay_as_they_came(data: bytes) -> None:
    try:
        headers = EarlyHeaders(data)
    except FormatError:
        return
    assert headers.as_bytes() == data


def test_bytes_of_another_writer_stay_when_a_header_is_added() -> None:
    padded = bytes.fromhex("8300810061")[:-1] + b"a"  # longer varints than needed
    headers = EarlyHeaders(padded)
    headers.add("b", b"x")
    assert headers.as_bytes() == padded + encode_early_headers([("b", b"x")])
    assert headers.keys() == ["a", "b"]


def test_no_headers() -> None:
    assert EarlyHeaders().as_bytes() == b""
    assert EarlyHeaders().keys() == []
    assert EarlyHeaders() == EarlyHeaders(b"")
    assert EarlyHeaders() != []


def test_malformed_bytes_are_met_at_once() -> None:
    with pytest.raises(TruncatedError):
        EarlyHeaders(b"\x05\x01a")


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        (None, b"", TypeError),
        (b"a", b"", TypeError),
        ("a", None, TypeError),
        ("a", "text", TypeError),
        ("\ud800", b"", UnicodeEncodeError),
    ],
)
def test_a_refused_header_changes_nothing(key: Any, value: Any, error: type[Exception]) -> None:
    headers = EarlyHeaders(encode_early_headers([("a", b"1")]))
    with pytest.raises(error):
        headers.add(key, value)
    assert headers == EarlyHeaders(encode_early_headers([("a", b"1")]))
    assert headers.as_bytes() == encode_early_headers([("a", b"1")])


def test_a_null_value_does_not_fit() -> None:
    with pytest.raises(LossyHeadersError, match="header 'b' has a null value, which the early header format") as caught:
        EarlyHeaders.of(Headers([("a", b"1"), ("b", None)]))
    assert caught.value.key == "b"


def test_repr_is_an_expression() -> None:
    headers = EarlyHeaders(encode_early_headers([("a", b"1")]))
    assert eval(repr(headers)) == headers
