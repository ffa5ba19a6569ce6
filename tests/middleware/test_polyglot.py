"""One serde for topics whose values have several formats, as their content types say."""

from __future__ import annotations

import pickle
from contextlib import suppress
from typing import Any

import msgpack
import pytest
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Headers, Serdes, Topology
from statestore.errors import DeserializationError, SerializationError
from statestore.errors.middleware import SchemaIdError, UnknownContentTypeError
from statestore.middleware import FailureHandling
from statestore.middleware.schemas import polyglot
from statestore.middleware.schemas.content_type import ContentType
from statestore.middleware.schemas.schema_registry import ConfluentRegistry, avro_serde
from statestore.testing import TopologyTestDriver

SCHEMA = {
    "type": "record",
    "name": "Point",
    "fields": [{"name": "x", "type": "int"}, {"name": "note", "type": "string"}],
}
REGISTRY = ConfluentRegistry("mock://polyglot")
FORMATS: dict[str, Any] = {
    **polyglot.Format.standard(),
    "application/avro": polyglot.Format.avro(SCHEMA),
    "application/vnd.confluent.avro": avro_serde(REGISTRY, SCHEMA),
    "application/protobuf": polyglot.Format.protobuf(StringValue),
    "Text/CSV": polyglot.Format.csv({"x": int, "y": float, "ok": bool, "note": str}),
}
ROW = {"x": -3, "y": 1e-7, "ok": True, "note": 'a, "b"\nc'}
VALUES: dict[str, Any] = {
    "application/json": {"x": [1, None, "é"]},
    "application/msgpack": {"x": [1, None, "é", b"\xff", 2**64 - 1, 1.5]},
    "application/octet-stream": b"\xff\0",
    "text/plain": "é",
    "application/avro": {"x": 1, "note": "n"},
    "application/vnd.confluent.avro": {"x": 1, "note": "n"},
    "application/protobuf": StringValue(value="é"),
    "text/csv": ROW,
}


def serde_writing(content_type: str, **options: Any) -> Any:
    return polyglot.polyglot_serde(FORMATS, writes=content_type, **options)


JSON = serde_writing("application/json")


def written(serde: Any, value: Any) -> tuple[bytes, Headers]:
    headers = Headers([("content-type", b"text/stale"), ("h", b"1")])
    return serde.on_topic("t").serialize(value, headers), headers


def read(data: bytes, content_type: bytes | None, serde: Any = JSON) -> Any:
    headers = Headers([("content-type", b"text/first"), ("content-type", content_type)])
    return serde.on_topic("t").deserialize(data, headers)


@pytest.mark.parametrize("content_type", VALUES)
def test_b10_each_format_is_written_with_its_type_and_read_by_it(content_type: str) -> None:
    value = VALUES[content_type]
    serde = pickle.loads(pickle.dumps(serde_writing(content_type)))
    data, headers = written(serde, value)
    assert headers.last_header("content-type") == ("content-type", content_type.encode())
    assert len(headers.headers("content-type")) == 1
    assert JSON.on_topic("t").deserialize(data, headers) == value
    # A store without headers has what the serde writes.
    if content_type != "application/vnd.confluent.avro":
        assert serde.deserialize(serde.serialize(value)) == value


@pytest.mark.parametrize("name", ["Application/JSON", 'application/json ; Charset="UTF-8";', "application/json;v=1"])
def test_content_types_are_read_as_http_has_them(name: str) -> None:
    assert read(b"[1]", name.encode()) == [1]


@pytest.mark.parametrize(
    ("charset", "codec"),
    [("US-ASCII", "ascii"), ("iso-8859-1", "latin-1"), ("UTF-16", "utf-16"), ("utf-16le", "utf-16-le")],
)
def test_text_is_read_and_written_in_its_charset(charset: str, codec: str) -> None:
    text = "e" if codec == "ascii" else "é"
    content_type = f"text/plain; charset={charset}"
    data, headers = written(serde_writing(content_type), text)
    assert data.decode(codec) == text
    assert JSON.on_topic("t").deserialize(data, headers) == text
    assert read(f'["{text}"]'.encode(codec), f"application/json;charset={charset}".encode()) == [text]


@pytest.mark.parametrize("content_type", [None, b"application/unknown", b"text/first", b"application/jso"])
def test_b10_an_unknown_type_is_refused_with_those_that_are_known(content_type: bytes | None) -> None:
    with pytest.raises(UnknownContentTypeError, match="application/json, application/msgpack") as refused:
        read(b"{}", content_type)
    assert refused.value.content_type == (None if content_type is None else content_type.decode())
    serde = serde_writing("application/json", default="text/plain")
    if content_type is None:
        assert read(b"{}", None, serde) == "{}"
        assert serde.on_topic("t").deserialize(b"{}", Headers()) == "{}"
    else:
        with pytest.raises(UnknownContentTypeError):
            read(b"{}", content_type, serde)


def nested(levels: int) -> bytes:
    return b"\x91" * levels + b"\xc0"


@pytest.mark.parametrize(
    ("content_type", "data"),
    [
        (b"", b"1"),
        (b"application", b"1"),
        (b"application/json; charset", b"1"),
        (b"application/json\xff", b"1"),
        (b"application/json;" + b" " * 300, b"1"),
        (b"application/json;charset=unicode_escape", b"1"),
        (b"application/json;charset=us-ascii", b'"\xc3\xa9"'),
        (b"application/json", b"{"),
        (b"application/json", b"\xff"),
        (b"application/json", b"[" * 100_000),
        (b"application/json", b""),
        (b"text/plain", b"\xff"),
        (b"text/plain;charset=utf-16", b"\xff"),
        (b"application/msgpack", b""),
        (b"application/msgpack", b"\xc1"),
        (b"application/msgpack", b"\xc0\xc0"),
        (b"application/msgpack", b"\xa1\xff"),
        (b"application/msgpack", b"\xdd\xff\xff\xff\xff\xc0"),
        (b"application/msgpack", b"\xdf\xff\xff\xff\xff\xc0"),
        (b"application/msgpack", b"\xd6\xff\0\0\0\1"),
        (b"application/msgpack", b"\xc7\x00\x05"),
        (b"application/msgpack", msgpack.packb({"a": msgpack.ExtType(1, b"abc")})),
        (b"application/msgpack", b"\x82\xa1a\x01\xa1a\x02"),
        (b"application/msgpack", b"\x81\x01\x02"),
        (b"application/msgpack", nested(100_000)),
        (b"application/avro", b"\x02"),
        (b"application/avro", b"\x02\x02n\0"),
        (b"application/avro", b"\x02\x80\x80\x80\x80\x10n"),
        (b"application/vnd.confluent.avro", b"\x02\x02n"),
        (b"application/protobuf", b"\x0a\x05a"),
        (b"application/protobuf", b"\x0a\x01\xff"),
        (b"text/csv", b""),
        (b"text/csv", b"1,2,true"),
        (b"text/csv", b"1,2,true,a,b"),
        (b"text/csv", b"1,2,true,a\r\n1,2,true,a"),
        (b"text/csv", b"1_0,2,true,a"),
        (b"text/csv", b"1,nan,true,a"),
        (b"text/csv", b"1,2,1,a"),
        (b"text/csv", b"1,2,true," + b"a" * 200_000),
        (b"text/csv", b'1,2,true,"a'),
        (b"text/csv", b"1,2,true,\xff"),
    ],
    ids=repr,
)
def test_b10_malformed_values_are_refused(content_type: bytes, data: bytes) -> None:
    with pytest.raises(DeserializationError):
        read(data, content_type)


@pytest.mark.parametrize(
    ("content_type", "value"),
    [
        ("application/json", float("nan")),
        ("application/msgpack", (1,)),
        ("application/msgpack", 2**64),
        ("text/plain", b"bytes"),
        ("text/plain;charset=iso-8859-1", "\u20ac"),
        ("application/avro", {"x": "text"}),
        ("application/protobuf", Struct()),
        ("text/csv", {"x": 1}),
        ("text/csv", {**ROW, "x": "1"}),
        ("text/csv", {**ROW, "x": True}),
        ("text/csv", {**ROW, "y": float("inf")}),
        ("text/csv", {**ROW, "note": "a" * 200_000}),
    ],
)
def test_values_that_a_format_does_not_have_are_refused(content_type: str, value: Any) -> None:
    with pytest.raises(SerializationError):
        written(serde_writing(content_type), value)


def test_values_are_bounded() -> None:
    serde = serde_writing("application/json", largest_bytes=4)
    assert read(*(written(serde, [1])[0], b"application/json"), serde) == [1]
    with pytest.raises(SerializationError, match="larger than 4"):
        written(serde, [100])
    with pytest.raises(DeserializationError, match="larger than 4"):
        read(b"[100]", b"application/json", serde)


def test_what_can_not_be_meant_is_refused_at_once() -> None:
    for options in ({"writes": "text/none"}, {"writes": "text"}, {"writes": "text/plain", "default": "text/none"}):
        with pytest.raises(ValueError, match=r"no format for|malformed"):
            polyglot.polyglot_serde(FORMATS, **options)
    for columns in ([], {"x": bytes}):
        with pytest.raises(ValueError, match="columns of CSV"):
            polyglot.Format.csv(columns)


VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text() | st.binary(), inner, max_size=4),
    max_leaves=10,
)


@settings(max_examples=100)
@given(VALUE)
def test_msgpack_comes_back(value: Any) -> None:
    data, headers = written(serde_writing("application/msgpack"), value)
    assert JSON.on_topic("t").deserialize(data, headers) == value


@settings(max_examples=100)
@given(st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.booleans(), st.text())
def test_csv_comes_back(x: int, y: float, ok: bool, note: str) -> None:
    row = {"x": x, "y": y, "ok": ok, "note": note}
    data, headers = written(serde_writing("text/csv"), row)
    assert JSON.on_topic("t").deserialize(data, headers) == row


@settings(max_examples=200)
@given(st.sampled_from(sorted(VALUES)), st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(content_type: str, data: bytes) -> None:
    def outcome() -> tuple[str, str]:
        """Return what is read, or why not; nothing else may be raised."""
        try:
            return "read", repr(read(data, content_type.encode()))
        except DeserializationError as refused:
            return "refused", str(refused)

    first = outcome()
    # What is read may well be empty: a message without fields shows as no text.
    assert first[0] == "read" or first[1], "a refusal says why"
    assert outcome() == first


@settings(max_examples=200)
@given(st.binary(max_size=300))
def test_any_content_type_is_read_or_refused(value: bytes) -> None:
    with suppress(DeserializationError):
        assert ContentType.parse(value).type == ContentType.parse(value).type.lower()


def test_b10_a_mixed_topic_is_read_and_what_is_unknown_goes_to_dead_letters() -> None:
    topology = Topology()
    topology.add_source("in", "mixed", key_serde=Serdes.string(), value_serde=JSON)
    topology.add_sink("out", "json", ["in"], key_serde=Serdes.string(), value_serde=JSON)
    with TopologyTestDriver(
        topology,
        failures=FailureHandling(deserialization="dead_letter", dead_letters="dead"),
    ) as driver:
        topic = driver.create_input_topic("mixed", key_serde=Serdes.string(), value_serde=Serdes.bytes())
        piped = {
            "application/json": b"[1]",
            "text/csv": b"1,2,true,a",
            "text/x-none": b"?",
            "application/msgpack": b"\x91\x02",
        }
        for content_type, data in piped.items():
            topic.pipe_input(content_type, data, headers=[("content-type", content_type.encode())])
        made = driver.create_output_topic("json", key_serde=Serdes.string(), value_serde=JSON).read_key_values_to_list()
        assert [value for _, value in made] == [[1], {"x": 1, "y": 2.0, "ok": True, "note": "a"}, [2]]
        dead = driver.create_output_topic("dead", key_serde=Serdes.string(), value_serde=Serdes.bytes()).read_record()
        assert (dead.key, dead.value) == ("text/x-none", b"?")
        said = {header.key: header.value or b"" for header in dead.headers}
        assert b"UnknownContentTypeError" in said["__connect.errors.exception.class.name"]


def test_a_registrys_serde_is_a_format_too() -> None:
    with pytest.raises(SchemaIdError):
        read(b"", b"application/vnd.confluent.avro")
