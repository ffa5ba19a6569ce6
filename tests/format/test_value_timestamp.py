"""The layout without headers. Golden vectors: test_golden_codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors.data import TruncatedError
from statestore.format.values.value_timestamp_headers import (
    convert_to_timestamped_format,
    encode_value_timestamp,
    split_value_timestamp,
)


@given(st.binary(max_size=20), st.integers(-(2**63), 2**63 - 1))
def test_round_trip(value: bytes, timestamp_ms: int) -> None:
    encoded = encode_value_timestamp(value, timestamp_ms)
    assert encoded is not None
    assert split_value_timestamp(encoded) == (timestamp_ms, value)


@given(st.binary(max_size=7))
def test_too_short_for_a_timestamp(data: bytes) -> None:
    with pytest.raises(TruncatedError) as caught:
        split_value_timestamp(data)
    assert (caught.value.what, caught.value.wanted, caught.value.got) == ("timestamp", 8, len(data))


def test_null_is_null_and_empty_is_not() -> None:
    assert encode_value_timestamp(None, 5) is None
    assert encode_value_timestamp(b"", 5) == bytes(7) + b"\x05"
    assert convert_to_timestamped_format(None) is None


@given(st.binary(max_size=20))
def test_plain_values_get_the_timestamp_minus_one(plain: bytes) -> None:
    converted = convert_to_timestamped_format(plain)
    assert converted == b"\xff" * 8 + plain
    assert split_value_timestamp(converted) == (-1, plain)


@pytest.mark.parametrize("timestamp_ms", [2**63, -(2**63) - 1, 1.5, None])
def test_timestamp_must_be_a_64_bit_integer(timestamp_ms: int) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        encode_value_timestamp(b"", timestamp_ms)
