"""The layout of the early draft: by hand, and round trips."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.kip82.early_headers import decode_early_headers, encode_early_headers
from tests.support.cuts import check_cut_is_noticed

PAIRS = st.lists(st.tuples(st.text(max_size=4), st.binary(max_size=4) | st.just(b"v" * 300)), max_size=5)


def test_bytes_are_those_of_the_layout() -> None:
    long = b"v" * 200
    pairs = [("a", b"xy"), ("", b""), ("a", b""), ("é", long)]
    by_hand = "0401617879" + "0100" + "020161" + "cb0102c3a9" + long.hex()
    assert encode_early_headers(pairs).hex() == by_hand
    assert decode_early_headers(bytes.fromhex(by_hand)) == pairs
    assert encode_early_headers([]) == b""
    assert decode_early_headers(b"") == []


@given(PAIRS)
def test_round_trip(pairs: list[tuple[str, bytes]]) -> None:
    assert decode_early_headers(encode_early_headers(pairs)) == pairs


@given(PAIRS, st.data())
def test_cut_inside_a_header_it_is_truncated(pairs: list[tuple[str, bytes]], data: st.DataObject) -> None:
    before, last = encode_early_headers(pairs), encode_early_headers([("last", b"value")])
    check_cut_is_noticed(decode_early_headers, last, data, least=1, before=before)


@pytest.mark.parametrize("pair", [(None, b""), (b"a", b""), ("a", None), ("a", "text")])
def test_wrong_types_are_refused(pair: Any) -> None:
    with pytest.raises(TypeError):
        encode_early_headers([pair])


def test_lone_surrogate_is_refused() -> None:
    with pytest.raises(UnicodeEncodeError):
        encode_early_headers([("\ud800", b"")])
