"""Headers with ids: the layout by hand, round trips, and malformed bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError, NegativeLengthError, TruncatedError, VarintError
from statestore.kip82.id_header_bytes import IdForm, decode_id_headers, encode_id_headers

Pairs = list[tuple[int, bytes | None]]

IDS = st.sampled_from([0, 1, 63, -64]) | st.integers(-(2**31), 2**31 - 1)
PAIRS = st.lists(st.tuples(IDS, st.none() | st.binary(max_size=4)), max_size=5)
FORMS = st.sampled_from(IdForm)


def test_bytes_are_those_of_the_layout() -> None:
    pairs: Pairs = [(1, b"x"), (300, None), (1, b"")]
    assert encode_id_headers(pairs, IdForm.VARINT).hex() == "06020278d804010200"
    assert encode_id_headers(pairs, IdForm.FIXED).hex() == "060000000102780000012c010000000100"
    assert encode_id_headers([], IdForm.FIXED) == b""
    assert decode_id_headers(b"", IdForm.FIXED) == []


@given(PAIRS, FORMS)
def test_round_trip(pairs: Pairs, form: IdForm) -> None:
    assert decode_id_headers(encode_id_headers(pairs, form), form) == pairs


@given(PAIRS, FORMS, st.data())
def test_cut_anywhere_it_is_truncated(pairs: Pairs, form: IdForm, data: st.DataObject) -> None:
    encoded = encode_id_headers([*pairs, (70, b"value")], form)
    cut = data.draw(st.integers(1, len(encoded) - 1))
    with pytest.raises(TruncatedError):
        decode_id_headers(encoded[:cut], form)


@given(st.binary(max_size=30), FORMS)
def test_any_bytes_decode_or_raise_a_format_error(data: bytes, form: IdForm) -> None:
    try:
        pairs = decode_id_headers(data, form)
    except FormatError:
        return
    assert decode_id_headers(encode_id_headers(pairs, form), form) == pairs


@pytest.mark.parametrize(
    ("data", "form", "error", "what"),
    [
        ("01", IdForm.VARINT, NegativeLengthError, "id headers"),
        ("feffffff0f0000", IdForm.VARINT, TruncatedError, "id headers"),
        ("0200000001", IdForm.FIXED, TruncatedError, "id headers"),
        ("02ffffffffff00", IdForm.VARINT, VarintError, "header id"),
        ("020203", IdForm.VARINT, NegativeLengthError, "id header value"),
        ("02020461", IdForm.VARINT, TruncatedError, "id header value"),
        ("02020000", IdForm.VARINT, FormatError, "id headers"),
        ("020000000180", IdForm.FIXED, TruncatedError, "id header value size"),
        ("0400000001080000000000", IdForm.FIXED, TruncatedError, "header id"),
    ],
)
def test_malformed_bytes(data: str, form: IdForm, error: type[FormatError], what: str) -> None:
    with pytest.raises(FormatError) as caught:
        decode_id_headers(bytes.fromhex(data), form)
    assert type(caught.value) is error
    assert caught.value.what == what


@pytest.mark.parametrize("form", IdForm)
@pytest.mark.parametrize("header_id", [2**31, -(2**31) - 1])
def test_an_id_has_32_bits(form: IdForm, header_id: int) -> None:
    with pytest.raises(ValueError, match="32-bit"):
        encode_id_headers([(header_id, b"")], form)
