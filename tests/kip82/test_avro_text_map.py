"""Avro maps of strings: examples of the specification's rules, round trips, and malformed bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError, NegativeLengthError, TruncatedError, VarintError
from statestore.kip82.avro_text_map import decode_text_map, encode_text_map
from statestore.kip82.text_headers import from_text_map

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
    encoded = encode_text_map(texts)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(TruncatedError):
        decode_text_map(encoded[:cut])


@given(st.binary(max_size=30))
def test_any_bytes_decode_or_raise_a_format_error(data: bytes) -> None:
    try:
        texts = decode_text_map(data)
    except FormatError:
        return
    assert decode_text_map(encode_text_map(texts)) == texts


@pytest.mark.parametrize(
    ("data", "error", "what"),
    [
        ("ff" * 10, VarintError, "map block count"),
        ("feffffffffffffffff01", TruncatedError, "map block"),
        ("ffffffffffffffffff0100", TruncatedError, "map block"),
        ("02010000", NegativeLengthError, "map key"),
        ("02000100", NegativeLengthError, "map value"),
        ("02feffffffffffffffff010000", TruncatedError, "map key"),
        ("0202ff0000", FormatError, "map key"),
        ("020002ff00", FormatError, "map value"),
        ("040000000000", FormatError, "map"),
        ("02000002000000", FormatError, "map"),
        ("0000", FormatError, "map"),
        ("0101000000", NegativeLengthError, "map block"),
        ("010e" + FOO + "0261" + "00", FormatError, "map block"),
        ("010a" + FOO + "0261" + "00", TruncatedError, "map value"),
    ],
)
def test_malformed_bytes(data: str, error: type[FormatError], what: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode_text_map(bytes.fromhex(data))
    assert type(caught.value) is error
    assert caught.value.what == what


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
