"""Avro maps of strings: examples of the specification's rules, and round trips."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.kip82.text_headers import decode_text_map, encode_text_map, from_text_map
from tests.support.cuts import check_cut_is_noticed

MAPS = st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=5)
FOO = "06666f6f"  # a string is its length as a long, and its UTF-8: 'foo' is 06 66 6f 6f in the specification


def test_bytes_are_those_of_avro() -> None:
    assert encode_text_map({}) == b"\x00"
    assert encode_text_map({"foo": "", "é": "foo"}).hex() == "04" + FOO + "00" + "04c3a9" + FOO + "00"


@pytest.mark.parametrize(
    ("data", "texts"),
    [
        ("00", {}),
        ("02" + FOO + "0261" + "00", {"foo": "a"}),
        ("02" + FOO + "0261" + "02" + "0262" + "00" + "00", {"foo": "a", "b": ""}),
        ("01" + "0c" + FOO + "0261" + "00", {"foo": "a"}),
        ("01" + "0c" + FOO + "0261" + "02" + "0262" + "00" + "00", {"foo": "a", "b": ""}),
    ],
    ids=["empty", "one block", "two blocks", "a block with its size", "both kinds"],
)
def test_every_sequence_of_blocks_is_read(data: str, texts: dict[str, str]) -> None:
    assert decode_text_map(bytes.fromhex(data)) == texts


@given(MAPS)
def test_round_trip_in_order(texts: dict[str, str]) -> None:
    assert list(decode_text_map(encode_text_map(texts)).items()) == list(texts.items())


@given(MAPS, st.data())
def test_cut_anywhere_it_is_truncated(texts: dict[str, str], data: st.DataObject) -> None:
    check_cut_is_noticed(decode_text_map, encode_text_map(texts), data)


@pytest.mark.parametrize("write", [encode_text_map, from_text_map])
@pytest.mark.parametrize(
    ("texts", "error"),
    [
        ({"a": None}, TypeError),
        ({None: "a"}, TypeError),
        ({"a": b""}, TypeError),
        ({"a": "\ud800"}, UnicodeEncodeError),
    ],
)
def test_what_is_no_map_of_texts(texts: Any, error: type[Exception], write: Callable[[Any], object]) -> None:
    with pytest.raises(error):
        write(texts)
