"""Varints: Kafka's bounds and errors. The golden vectors of the signed ones of 32 bits are in test_golden_codec."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.errors.data import TruncatedError, VarintError
from statestore.format.varint import (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    INT64_MIN,
    UINT32_MAX,
    decode_uvarint,
    decode_varint,
    decode_varlong,
    encode_uvarint,
    encode_varint,
    encode_varlong,
)

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


GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "messages-v0-v1.json").read_text())


@pytest.mark.parametrize("section", ["varlongs", "uvarints"])
def test_bytes_are_those_of_kafka(section: str) -> None:
    encode, decode = {
        "varlongs": (encode_varlong, decode_varlong),
        "uvarints": (encode_uvarint, decode_uvarint),
    }[section]
    assert len(GOLDEN[section]) >= 64
    for value, encoded in GOLDEN[section]:
        assert encode(value).hex() == encoded
        assert decode(bytes.fromhex(encoded), 0, "n") == (value, len(encoded) // 2)


@given(st.integers(INT64_MIN, INT64_MAX), st.binary(max_size=3), st.binary(max_size=3))
def test_varlong_round_trip_inside_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_varlong(value)
    assert 1 <= len(encoded) <= 10
    assert decode_varlong(before + encoded + after, len(before), "n") == (value, len(before) + len(encoded))


@given(INT32)
def test_a_varlong_of_32_bits_is_a_varint(value: int) -> None:
    assert encode_varlong(value) == encode_varint(value)


@given(st.integers(0, UINT32_MAX), st.binary(max_size=3), st.binary(max_size=3))
def test_uvarint_round_trip_inside_other_bytes(value: int, before: bytes, after: bytes) -> None:
    encoded = encode_uvarint(value)
    assert 1 <= len(encoded) <= 5
    assert decode_uvarint(before + encoded + after, len(before), "n") == (value, len(before) + len(encoded))


@pytest.mark.parametrize("value", [INT64_MIN - 1, INT64_MAX + 1])
def test_varlong_beyond_64_bits_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="64-bit"):
        encode_varlong(value)


@pytest.mark.parametrize("value", [-1, UINT32_MAX + 1])
def test_uvarint_beyond_32_bits_is_refused(value: int) -> None:
    with pytest.raises(ValueError, match="unsigned 32-bit"):
        encode_uvarint(value)


@pytest.mark.parametrize(
    ("decode", "max_bytes", "last"), [(decode_varlong, 10, "01"), (decode_uvarint, 5, "0f")], ids=["varlong", "uvarint"]
)
def test_relatives_have_bounds(decode: Callable[[bytes, int, str], tuple[int, int]], max_bytes: int, last: str) -> None:
    full = b"\xff" * (max_bytes - 1)
    assert decode(full + bytes.fromhex(last), 0, "n")[1] == max_bytes
    with pytest.raises(FormatError, match=r"^n: .* more than (32|64) bits"):
        decode(full + bytes([int(last, 16) + 1]), 0, "n")
    with pytest.raises(VarintError, match=f"longer than {max_bytes} bytes") as caught:
        decode(b"\xff" * (max_bytes + 1), 0, "n")
    assert caught.value.max_bytes == max_bytes
    for cut in range(max_bytes):
        with pytest.raises(TruncatedError):
            decode(full[:cut], 0, "n")
