"""Headers with ids: the layout by hand, and round trips."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.kip82.id_header_bytes import IdForm, decode_id_headers, encode_id_headers
from tests.support.cuts import check_cut_is_noticed

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
    check_cut_is_noticed(
        partial(decode_id_headers, form=form), encode_id_headers([*pairs, (70, b"value")], form), data, least=1
    )


@pytest.mark.parametrize("form", IdForm)
@pytest.mark.parametrize("header_id", [2**31, -(2**31) - 1])
def test_an_id_has_32_bits(form: IdForm, header_id: int) -> None:
    with pytest.raises(ValueError, match="32-bit"):
        encode_id_headers([(header_id, b"")], form)
