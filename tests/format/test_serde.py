"""The standard serdes: Kafka's bytes, typed errors, pickling."""

from __future__ import annotations

import math
import pickle
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import DeserializationError, SerializationError
from statestore.errors.data import SerdeError
from statestore.format.serde import Serde, Serdes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
STANDARD = {
    "string": (Serdes.string(), st.text()),
    "bytes": (Serdes.bytes(), st.binary()),
    "json": (Serdes.json(), JSON),
    "int32": (Serdes.int32(), st.integers(-(2**31), 2**31 - 1)),
    "int64": (Serdes.int64(), st.integers(-(2**63), 2**63 - 1)),
    "double": (Serdes.double(), st.floats(allow_nan=False)),
    "boolean": (Serdes.boolean(), st.booleans()),
}


@pytest.mark.parametrize("name", STANDARD)
@given(data=st.data())
def test_round_trip(name: str, data: st.DataObject) -> None:
    serde, values = STANDARD[name]
    value = data.draw(values)
    encoded = serde.serialize(value)
    assert type(encoded) is bytes
    assert serde.deserialize(encoded) == value


@pytest.mark.parametrize(
    ("serde", "value", "encoded"),
    [
        (Serdes.string(), "ключ-é-🚀", "ключ-é-🚀".encode().hex()),
        (Serdes.string(), "", ""),
        (Serdes.bytes(), b"\x00\xff", "00ff"),
        (Serdes.int32(), -2, "fffffffe"),
        (Serdes.int64(), 2**53 + 1, "0020000000000001"),
        (Serdes.double(), -0.5, "bfe0000000000000"),
        (Serdes.double(), math.inf, "7ff0000000000000"),
        (Serdes.double(), math.nan, "7ff8000000000000"),
        (Serdes.boolean(), True, "01"),
        (Serdes.boolean(), False, "00"),
        (Serdes.json(), {"b": [1, 2.5, None], "a": "é"}, '{"b":[1,2.5,null],"a":"é"}'.encode().hex()),
    ],
)
def test_bytes_are_those_of_kafka(serde: Serde[Any], value: object, encoded: str) -> None:
    assert serde.serialize(value).hex() == encoded
    assert serde.deserialize(bytes.fromhex(encoded)) == value or value is math.nan


@pytest.mark.parametrize(
    ("serde", "value", "message"),
    [
        (Serdes.string(), b"text", r"^string: needs text that UTF-8 can hold; got 4 bytes$"),
        (Serdes.string(), "\ud800", "^string: needs text that UTF-8 can hold"),
        (Serdes.bytes(), "text", r"^bytes: needs bytes; got str of 4 characters$"),
        (Serdes.bytes(), bytearray(b"text"), r"^bytes: needs bytes; got bytearray of 4$"),
        (Serdes.int32(), 2**31, "^int32: needs a signed integer of 32 bits; got int of 32 bits"),
        (Serdes.int64(), 2**63, "^int64: needs a signed integer of 64 bits"),
        (Serdes.int64(), "5", r"^int64: needs a signed integer of 64 bits; got str of 1 characters$"),
        (Serdes.int64(), 5.0, r"^int64: .* got float$"),
        (Serdes.double(), "5", "^double: needs a float"),
        (Serdes.double(), 10**400, "^double: needs a float"),
        (Serdes.boolean(), 1, "^boolean: needs True or False; got int of 1 bits"),
        (Serdes.json(), math.nan, "^json: "),
        (Serdes.json(), [-math.inf], "^json: "),
        (Serdes.json(), {"a": b"bytes"}, "^json: .*bytes"),
        (Serdes.json(), "\ud800", "^json: "),
    ],
)
def test_wrong_values(serde: Serde[Any], value: object, message: str) -> None:
    with pytest.raises(SerializationError, match=message):
        serde.serialize(value)


@pytest.mark.parametrize(
    ("serde", "data", "message"),
    [
        (Serdes.string(), b"ab\xff", r"^string: not UTF-8 \(invalid start byte at byte 2\); got 3 bytes$"),
        (Serdes.int32(), b"12345", "^int32 needs 4 bytes, got 5$"),
        (Serdes.int64(), b"123", "^int64 needs 8 bytes, got 3$"),
        (Serdes.int64(), b"", "^int64 needs 8 bytes, got 0$"),
        (Serdes.double(), b"123456789", "^double needs 8 bytes, got 9$"),
        (Serdes.boolean(), b"", "^boolean needs 1 bytes, got 0$"),
        (Serdes.boolean(), b"\x02", "^boolean: needs 00 or 01"),
        (Serdes.json(), b"", "^json: "),
        (Serdes.json(), b"{", "^json: "),
        (Serdes.json(), b"1 2", "^json: "),
        (Serdes.json(), b"NaN", "^json: NaN is not JSON"),
        (Serdes.json(), b"[-Infinity]", "^json: -Infinity is not JSON"),
        (Serdes.json(), '"a"'.encode("utf-16"), "^json: "),
        (Serdes.json(), b"[" * 200_000, "^json: "),
    ],
)
def test_wrong_bytes(serde: Serde[Any], data: bytes, message: str) -> None:
    with pytest.raises(DeserializationError, match=message):
        serde.deserialize(data)


def test_cause_is_chained() -> None:
    with pytest.raises(SerializationError) as serialize:
        Serdes.int64().serialize(2**63)
    assert isinstance(serialize.value.__cause__, struct.error)
    with pytest.raises(DeserializationError) as deserialize:
        Serdes.string().deserialize(b"\xff")
    assert isinstance(deserialize.value.__cause__, UnicodeDecodeError)


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(DeserializationError) as caught:
        Serdes.json().deserialize(b"x" * 100_000)
    assert len(str(caught.value)) < 200


def reverse_text(text: str) -> bytes:
    return text[::-1].encode()


def text_of_reversed(data: bytes) -> str:
    return data.decode()[::-1]


def refuse(data: bytes) -> str:
    raise DeserializationError("my own words")


def test_custom_serde() -> None:
    serde = Serdes.of("reversed", reverse_text, text_of_reversed)
    assert serde.name == "reversed"
    assert serde.serialize("abc") == b"cba"
    assert serde.deserialize(b"cba") == "abc"


def test_errors_of_a_custom_serde_are_chained() -> None:
    serde: Serde[Any] = Serdes.of("reversed", reverse_text, text_of_reversed)
    with pytest.raises(SerializationError, match=r"^reversed: .*; got int of 3 bits$") as serialize:
        serde.serialize(5)
    assert isinstance(serialize.value.__cause__, TypeError)
    with pytest.raises(DeserializationError, match=r"^reversed: .*; got 1 bytes$") as deserialize:
        serde.deserialize(b"\xff")
    assert isinstance(deserialize.value.__cause__, UnicodeDecodeError)


def test_serde_errors_of_a_custom_serde_are_its_own() -> None:
    with pytest.raises(SerdeError, match=r"^my own words$"):
        Serdes.of("refusing", reverse_text, refuse).deserialize(b"")


@pytest.mark.parametrize("returned", [None, "text", bytearray(b"x")])
def test_custom_serialize_must_return_bytes(returned: Any) -> None:
    serde: Serde[Any] = Serdes.of("odd", lambda value: returned, bytes.decode)
    with pytest.raises(SerializationError, match=r"^odd: serialize must return bytes, returned "):
        serde.serialize("x")


def test_serdes_are_picklable() -> None:
    standard = [serde for serde, _ in STANDARD.values()]
    custom = Serdes.of("reversed", reverse_text, text_of_reversed)
    for serde in [*standard, custom]:
        assert pickle.loads(pickle.dumps(serde)) == serde
