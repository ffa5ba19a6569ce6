"""Varints: Kafka's bounds and errors. The golden vectors are in test_golden_codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError, TruncatedError, VarintError
from statestore.format.varint import INT32_MAX, INT32_MIN, decode_varint, encode_varint

INT32 = st.integers(INT32_MIN, INT32_MAX)


@given(INT32, st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_inside_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varint(value)
    assert 1 <= len(encoded) <= 5
    assert decode_varint(before + encoded + after, len(before), "n") == (value, len(before) + len(encoded))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_sizes_grow_at_powers_of_128(size: int) -> None:
    largest = 2 ** (7 * size - 1) - 1
    assert [len(encode_varint(value)) for value in (largest, -largest - 1)] == [size, size]
    assert [len(encode_varint(value)) for value in (largest + 1, -largest - 2)] == [size + 1, size + 1]


def test_every_small_value() -> None:
    for value in range(-2000, 2000):
        assert decode_varint(encode_varint(value), 0, "n")[0] == value


@pytest.mark.parametrize("value", [INT32_MIN - 1, INT32_MAX + 1, 2**63])
def test_value_beyond_32_bits_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="32-bit"):
        encode_varint(value)


@pytest.mark.parametrize(
    ("data", "value"),
    [("8000", 0), ("8080808000", 0), ("fe00", 63), ("fe80808000", 63), ("81808000", -1)],
)
def test_longer_encodings_than_needed_are_read(data: str, value: int) -> None:
    encoded = bytes.fromhex(data)
    assert decode_varint(encoded, 0, "n") == (value, len(encoded))


@pytest.mark.parametrize("data", ["", "80", "ffffffff"])
def test_truncated(data: str) -> None:
    with pytest.raises(TruncatedError, match=r"^header count: ") as caught:
        decode_varint(bytes.fromhex(data), 0, "header count")
    assert (caught.value.what, caught.value.wanted, caught.value.got) == ("header count", 1, 0)


@pytest.mark.parametrize("data", ["ffffffffff", "ffffffffff00", "8080808080"])
def test_sixth_byte_is_refused(data: str) -> None:
    with pytest.raises(VarintError):
        decode_varint(bytes.fromhex(data), 0, "n")


@pytest.mark.parametrize("data", ["8080808010", "ffffffff1f", "808080807f"])
def test_bits_beyond_the_32nd_are_refused_where_kafka_drops_them(data: str) -> None:
    with pytest.raises(FormatError, match="32 bits"):
        decode_varint(bytes.fromhex(data), 0, "n")


def test_fifth_byte_with_the_highest_bits_is_read() -> None:
    assert decode_varint(bytes.fromhex("ffffffff0f"), 0, "n") == (INT32_MIN, 5)
    assert decode_varint(bytes.fromhex("feffffff0f"), 0, "n") == (INT32_MAX, 5)
