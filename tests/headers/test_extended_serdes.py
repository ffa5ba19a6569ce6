"""Serdes that see topic and headers, plain serdes that work as before, and one function for sources and sinks."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from statestore import Headers
from statestore.errors import DeserializationError, HeadersFrozenError, SerializationError
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.format.serde import HeaderSerde, Serde, Serdes
from statestore.headers.extended_serdes import ExtendedDeserializer, ExtendedSerializer, serde_of


class Encoded:
    """Writes text in an encoding that it notes in a header, as a serializer of Kafka's interface."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def serialize(self, topic: str | None, headers: Headers, data: str) -> bytes:
        headers.add("encoding", self.encoding.encode()).add("topic", None if topic is None else topic.encode())
        return data.encode(self.encoding)

    def deserialize(self, topic: str | None, headers: Headers, data: bytes) -> str:
        encoding = headers.last_header("encoding")
        text = data.decode(self.encoding if encoding is None or encoding.value is None else encoding.value.decode())
        return f"{topic}: {text}"


LATIN = serde_of("latin", Encoded("latin-1"), Encoded("utf-8"))


def add_length(value: str, headers: Any) -> bytes:
    headers.add("length", str(len(value)).encode())
    return value.encode()


def read_length(data: bytes, headers: Any) -> str:
    return f"{data.decode()}/{headers.last_header('length').value.decode()}"


LENGTH = Serdes.of_headers("length", add_length, read_length)


def test_a_serde_reads_and_writes_headers_under_kafkas_interfaces() -> None:
    headers = Headers([("a", b"1")])
    data = ExtendedSerializer(LATIN).serialize("orders", headers, "é")
    assert data == b"\xe9"
    assert list(headers) == [("a", b"1"), ("encoding", b"latin-1"), ("topic", b"orders")]
    assert ExtendedDeserializer(LATIN).deserialize("orders", headers, data) == "orders: é"


def test_a_plain_serde_works_as_before_and_leaves_headers_alone() -> None:
    headers = Headers.from_bytes(encode_headers([("a", b"1")]))
    before = parse_count()
    assert ExtendedSerializer(Serdes.int64()).serialize("orders", headers, 5) == Serdes.int64().serialize(5)
    assert ExtendedDeserializer(Serdes.int64()).deserialize("orders", headers, b"\0" * 7 + b"\5") == 5
    assert parse_count() == before
    assert list(headers) == [("a", b"1")]
    with pytest.raises(SerializationError, match=r"^int64: "):
        ExtendedSerializer(Serdes.int64()).serialize("orders", headers, 2**63)


@pytest.mark.parametrize("serde", [LATIN, LENGTH, Serdes.string()], ids=lambda serde: serde.name)
def test_none_stays_none_and_no_serde_is_called(serde: Serde[str]) -> None:
    headers = Headers()
    assert ExtendedSerializer(serde).serialize("orders", headers, None) is None
    assert ExtendedDeserializer(serde).deserialize("orders", headers, None) is None
    assert not headers


def test_where_there_is_no_topic_there_is_none() -> None:
    headers = Headers()
    in_store = LATIN.on_topic(None)
    assert in_store.deserialize(in_store.serialize("é", headers), headers) == "None: é"
    assert headers.headers("topic") == [("topic", None)]


def test_where_there_are_no_headers_they_are_empty() -> None:
    assert LATIN.serialize("é") == b"\xe9"
    assert LATIN.deserialize("é".encode()) == "None: é"


def test_a_serde_without_topics_is_the_same_on_each() -> None:
    assert LENGTH.on_topic("orders") is LENGTH.with_headers
    assert isinstance(Serdes.string().on_topic("orders"), HeaderSerde)
    assert LATIN.on_topic("orders") != LATIN.on_topic("others")


def test_what_they_raise_is_chained() -> None:
    with pytest.raises(SerializationError, match=r"^latin: ") as serialize:
        ExtendedSerializer(LATIN).serialize("orders", Headers(), "\u20ac")
    assert isinstance(serialize.value.__cause__, UnicodeEncodeError)
    with pytest.raises(DeserializationError, match=r"^latin: ") as deserialize:
        ExtendedDeserializer(LATIN).deserialize("orders", Headers(), b"\xff")
    assert isinstance(deserialize.value.__cause__, UnicodeDecodeError)
    with pytest.raises(SerializationError) as frozen:
        ExtendedSerializer(LATIN).serialize("orders", Headers().freeze(), "a")
    assert isinstance(frozen.value.__cause__, HeadersFrozenError)


def test_a_serializer_must_return_bytes() -> None:
    serde: Serde[Any] = Serdes.of_topics("odd", lambda topic, headers, value: value, lambda topic, headers, data: data)
    with pytest.raises(SerializationError, match=r"^odd: serialize must return bytes"):
        serde.on_topic("orders").serialize("text", Headers())


def test_they_are_picklable() -> None:
    for serde in (LATIN, LENGTH, Serdes.string()):
        copied = pickle.loads(pickle.dumps(serde)).on_topic("orders")
        headers = Headers()
        assert copied.serialize("abc", headers) == b"abc"
        assert serde.on_topic("orders").serialize("abc", Headers()) == b"abc"
