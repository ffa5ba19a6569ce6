"""Header converters by name, strictness of text and JSON, and how a record's headers become typed and back."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from statestore import Headers
from statestore.connect.config import ConfigDef, Property
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.json import JsonConverter
from statestore.connect.converters.registry import _CONVERTERS, header_converter
from statestore.connect.converters.simple import ByteArrayConverter, SimpleHeaderConverter, StringConverter
from statestore.connect.headers import ConnectHeaders
from statestore.connect.scalars import Instant, Int64
from statestore.connect.schema import Schema, SchemaAndValue, Struct, Type
from statestore.connect.typed_headers import read_headers, write_headers
from statestore.errors import ConfigException, ConnectException, DataException
from statestore.errors.data import SerializationException
from tests.support.documentation import ROOT


class Upper(HeaderConverter):
    """One of ours: text in capitals, behind a prefix."""

    closed = False
    reads = 0

    def config(self) -> ConfigDef:
        return ConfigDef(Property("prefix", default=""))

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue | None:
        self.reads += 1
        return (
            None
            if value is None
            else SchemaAndValue(Schema.STRING_SCHEMA, self.settings["prefix"] + value.decode().upper())
        )

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        return None if value is None else str(value).lower().encode()

    def close(self) -> None:
        self.closed = True


# ---- by name ----


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("org.apache.kafka.connect.storage.SimpleHeaderConverter", SimpleHeaderConverter),
        ("SimpleHeaderConverter", SimpleHeaderConverter),
        ("Simple", SimpleHeaderConverter),
        ("org.apache.kafka.connect.storage.StringConverter", StringConverter),
        ("StringConverter", StringConverter),
        ("String", StringConverter),
        ("org.apache.kafka.connect.json.JsonConverter", JsonConverter),
        ("JsonConverter", JsonConverter),
        (" Json ", JsonConverter),
        ("org.apache.kafka.connect.converters.ByteArrayConverter", ByteArrayConverter),
        ("ByteArrayConverter", ByteArrayConverter),
        ("ByteArray", ByteArrayConverter),
        (f"{__name__}:Upper", Upper),
        (Upper, Upper),
        (Upper(), Upper),
    ],
)
def test_a_converter_is_found_by_its_names(name: Any, expected: type[HeaderConverter]) -> None:
    assert type(header_converter({"header.converter": name})) is expected


def test_kafkas_default_is_ours() -> None:
    assert type(header_converter()) is SimpleHeaderConverter
    assert type(header_converter({"tasks.max": "1"})) is SimpleHeaderConverter
    assert type(header_converter("Json")) is JsonConverter


def test_each_query_has_a_converter_of_its_own() -> None:
    properties = {"header.converter": "Json"}
    assert header_converter(properties) is not header_converter(properties)
    mine = Upper()
    assert header_converter(mine) is mine


def test_only_what_is_below_its_name_configures_a_converter(caplog: pytest.LogCaptureFixture) -> None:
    properties = {
        "header.converter": "Json",
        "header.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "true",
        "name": "sink",
    }
    with caplog.at_level(logging.WARNING):
        converter = header_converter(properties)
    assert converter.from_connect_header("t", "h", Schema.INT32_SCHEMA, 5) == b"5"
    assert not caplog.messages


def test_a_property_that_nobody_knows_is_warned_of_by_its_full_name(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        header_converter({"header.converter": "Json", "header.converter.schema.enable": "false"})
    (message,) = caplog.messages
    assert "'header.converter.schema.enable'" in message
    assert "'header.converter.schemas.enable'" in message


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"header.converter": "Jsno"}, "Jsno could not be found"),
        ({"header.converter": "json:nothing"}, "json:nothing could not be found"),
        ({"header.converter": "no.such.module:Class"}, "could not be found"),
        ({"header.converter": "datetime:date"}, "HeaderConverter"),
        ({"header.converter": dict}, "HeaderConverter"),
        ({"header.converter": 5}, "HeaderConverter"),
        ({"header.converter": "Json", "header.converter.schemas.enable": "yes"}, "header.converter.schemas.enable"),
        ({"header.converter": "Json", "header.converter.mode": "lax"}, "header.converter.mode"),
        ({"header.converter": "String", "header.converter.converter.encoding": "no-such"}, "no-such"),
    ],
)
def test_a_wrong_property_is_named(properties: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigException, match=words):
        header_converter(properties)


def test_a_converter_is_strict_unless_told_otherwise() -> None:
    assert header_converter("Json").is_strict
    assert not header_converter("Json", mode="compat").is_strict
    assert header_converter({"header.converter": "Json", "header.converter.mode": "strict"}, mode="compat").is_strict
    assert JsonConverter().is_strict


def test_a_converter_of_ones_own_has_its_properties_and_is_closed() -> None:
    with header_converter({"header.converter": f"{__name__}:Upper", "header.converter.prefix": ">"}) as converter:
        assert converter.to_connect_header("t", "h", b"x") == SchemaAndValue(Schema.STRING_SCHEMA, ">X")
    assert isinstance(converter, Upper)
    assert converter.closed


# ---- a record's headers ----


def test_headers_that_nobody_asks_for_are_not_converted() -> None:
    converter = Upper()
    typed = read_headers(Headers([("a", b"x"), ("b", b"y"), ("a", b"z")]), converter, topic="t")
    typed.retain_latest().remove("b")
    assert (len(typed), converter.reads) == (1, 0)
    assert (typed[0].value, typed[0].schema, converter.reads) == ("Z", Schema.STRING_SCHEMA, 1)


def test_headers_that_nobody_changed_keep_their_bytes() -> None:
    converter = header_converter({"header.converter": "Json", "header.converter.schemas.enable": "false"})
    content = [("a", b' {"x" : 1e0}'), ("broken", b"{"), ("none", None), ("a", b"[1]")]
    typed = read_headers(Headers(content), converter, topic="t")
    assert typed[0].value == {"x": 1.0}
    typed.apply("broken", lambda header: header.rename("kept"))
    typed.add("new", {"y": 2}).apply("a", lambda header: header.with_value(None, 0) if header.value == [1] else header)
    written = write_headers(typed, converter, topic="t")
    assert list(written) == [
        ("a", b' {"x" : 1e0}'),
        ("kept", b"{"),
        ("none", None),
        ("a", b"0"),
        ("new", b'{"y":2}'),
    ]


def test_another_converter_writes_them_anew() -> None:
    typed = read_headers(Headers([("a", b"5")]), header_converter("Simple"), topic="t")
    assert list(write_headers(typed, JsonConverter(), topic="t")) == [
        ("a", b'{"schema":{"type":"int8","optional":false},"payload":5}')
    ]


def test_an_error_names_the_header_that_can_not_be_read_or_written() -> None:
    json_converter = JsonConverter()
    typed = read_headers(Headers([("good", None), ("trace-id", b"{")]), json_converter, topic="t")
    assert typed[0].value is None
    for attribute in ("value", "schema"):
        with pytest.raises(DataException, match=r"^header 'trace-id': "):
            getattr(typed[1], attribute)
    with pytest.raises(DataException, match=r"^header 'trace-id': "):
        write_headers(ConnectHeaders().add("trace-id", Decimal(1)), json_converter, topic="t")


def test_a_value_that_is_not_of_its_schema_is_refused_as_by_a_worker() -> None:
    """Kafka reads null where text was expected, which its headers then refuse."""
    converter = header_converter("Json", mode="compat")
    typed = read_headers(Headers([("h", b'{"schema":{"type":"string"},"payload":5}')]), converter, topic="t")
    with pytest.raises(DataException, match=r"^header 'h': A null value requires an optional schema"):
        typed[0].value  # noqa: B018


def test_a_header_that_was_read_is_as_one_that_was_made() -> None:
    typed = read_headers(Headers([("h", b"5")]), header_converter("Simple"), topic="t")
    made = ConnectHeaders().add_byte("h", 5)
    assert typed == made
    assert hash(typed) == hash(made)
    assert made == typed


# ---- text and bytes ----


@pytest.mark.parametrize(
    ("encoding", "value"),
    [("ISO-8859-1", "€"), ("UTF-8", "\ud800"), ("UTF-16", "\udc00"), ("ISO-8859-1", b"x"), ("UTF-8", Instant(1))],
)
def test_text_that_would_come_back_otherwise_is_refused(encoding: str, value: Any) -> None:
    converter = header_converter({"header.converter": "String", "header.converter.converter.encoding": encoding})
    with pytest.raises(DataException, match=r"^header 'h': "):
        converter.from_connect_header("t", "h", None, value)


@pytest.mark.parametrize(("encoding", "value"), [("UTF-8", b"\xff"), ("US-ASCII", b"\x80"), ("UTF-16BE", b"x")])
def test_bytes_that_are_no_text_are_refused(encoding: str, value: bytes) -> None:
    converter = header_converter({"header.converter": "String", "header.converter.converter.encoding": encoding})
    with pytest.raises(DataException, match=rf"^header 'h': .*{encoding}"):
        converter.to_connect_header("t", "h", value)


def test_an_unknown_encoding_is_an_error_of_configuration() -> None:
    with pytest.raises(SerializationException, match="Unsupported encoding rot13") as caught:
        header_converter({"header.converter": "String", "header.converter.converter.encoding": "rot13"})
    assert caught.value.name == "converter.encoding"


def test_bytes_stay_bytes() -> None:
    converter = header_converter("ByteArray")
    assert converter.from_connect_header("t", "h", None, bytearray(b"x")) == b"x"
    for schema, value in ((None, "x"), (Schema.STRING_SCHEMA, None), (Schema.STRING_SCHEMA, b"x")):
        with pytest.raises(DataException, match=r"^header 'h': .*ByteArrayConverter"):
            converter.from_connect_header("t", "h", schema, value)


# ---- JSON ----


def json_converter(*, mode: str = "strict", **properties: Any) -> JsonConverter:
    converter = JsonConverter()
    converter.configure({"mode": mode} | {name.replace("_", "."): value for name, value in properties.items()})
    return converter


def envelope(schema: Any, payload: str) -> bytes:
    return f'{{"schema":{json.dumps(schema)},"payload":{payload}}}'.encode()


@pytest.mark.parametrize(
    ("schema", "payload", "compat"),
    [
        ({"type": "int8"}, "300", 44),
        ({"type": "int32"}, '"5"', 0),
        ({"type": "int32"}, "1.5", 1),
        ({"type": "int32"}, "true", 0),
        ({"type": "int64"}, "1e30", 5076944270305263616),
        ({"type": "float"}, "0.123456789012", 0.12345679),
        ({"type": "float"}, "1e39", float("inf")),
        ({"type": "double"}, "1e400", float("inf")),
        ({"type": "double"}, '"x"', 0.0),
        ({"type": "double"}, "9007199254740993", 9007199254740992.0),
        ({"type": "boolean"}, "1", False),
        ({"type": "bytes"}, '"AR=="', b"\x01"),
        ({"type": "array", "items": {"type": "int8"}}, "5", []),
        ({"type": "array", "items": {"type": "int8"}}, '{"a":1}', [1]),
        ({"type": "map", "keys": {"type": "int64"}, "values": {"type": "int8"}}, "[[1,1],[1,2]]", {1: 2}),
        ({"type": "map", "keys": {"type": "string"}, "values": {"type": "int8"}}, '{"a":1,"a":2}', {"a": 2}),
        ({"type": "int8", "optional": "true"}, "5", 5),
        ({"type": "int8", "version": 3_000_000_000}, "5", 5),
        ({"type": "int64", "name": "org.apache.kafka.connect.data.Timestamp"}, "9223372036854775808", -(2**63)),
        (None, "12345678901234567890", -6101065172474983726),
        (None, "0.12345678901234567890", 0.12345678901234568),
    ],
)
def test_what_kafka_loses_or_makes_up_is_refused(schema: Any, payload: str, compat: Any) -> None:
    content = envelope(schema, payload)
    with pytest.raises(DataException, match=r"^header 'h': "):
        json_converter().to_connect_header("t", "h", content)
    found = json_converter(mode="compat").to_connect_header("t", "h", content).value
    found = found.epoch_ms if isinstance(found, Instant) else found
    assert found == (pytest.approx(compat, rel=1e-7) if isinstance(compat, float) else compat)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "nothing"),
        (b"007", "zero"),
        (b"5 6", "more behind"),
        (b'{"a":1,"a":2}', "a second time"),
        (b'"\xc0\x80"', "UTF-8"),
        (b"\x005", "no value begins"),
        (b"\xff", "UTF-8"),
        (b"nul", "word"),
        (b"[1", "comma"),
        (b'"\\q"', "escape"),
        (b"1" * 1001, "1000 digits"),
        (b"[" * 1001 + b"]" * 1001, "deeper than 1000"),
        (b"1e99999999999", "exponent"),
    ],
)
def test_malformed_json_is_refused_in_words(content: bytes, words: str) -> None:
    with pytest.raises(DataException, match=rf"^header 'h': .*{words}"):
        json_converter(schemas_enable=False).to_connect_header("t", "h", content)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (None, float("nan")),
        (None, {1: "x"}),
        (None, {None: "x"}),
        (Schema.map(Schema(Type.STRING, optional=True), Schema.INT8_SCHEMA), {None: 1, "null": 2}),
        (Schema.array(None), [1]),
        (Schema.decimal(2), Decimal("1.5")),
        (Schema.INT8_SCHEMA, 300),
        (Schema.INT8_SCHEMA, "x"),
        (Schema.INT8_SCHEMA, Int64(5)),
        (Schema.INT64_SCHEMA, None),
        (Schema.struct({"x": Schema.INT8_SCHEMA}), Struct(Schema.struct({"x": Schema.INT32_SCHEMA}), {"x": 1})),
        (None, object()),
    ],
)
def test_what_would_be_read_as_something_else_is_not_written(schema: Schema | None, value: Any) -> None:
    with pytest.raises(DataException, match=r"^header 'h': "):
        json_converter(decimal_format="numeric").from_connect_header("t", "h", schema, value)


def test_a_field_that_the_struct_has_not_is_refused() -> None:
    schema = {"type": "struct", "fields": [{"type": "int8", "field": "x"}]}
    assert json_converter().to_connect_header("t", "h", envelope(schema, '{"x":1}')).value.get("x") == 1
    for payload in ('{"x":1,"y":2}', "{}", '{"x":null}', "[]"):
        with pytest.raises(DataException, match=r"^header 'h': "):
            json_converter().to_connect_header("t", "h", envelope(schema, payload))


def test_a_number_that_says_the_same_is_read() -> None:
    converter = json_converter()
    decimal = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}
    assert str(converter.to_connect_header("t", "h", envelope(decimal, "1.5")).value) == "1.50"
    assert converter.to_connect_header("t", "h", envelope({"type": "int32"}, "1e3")).value == 1000
    assert str(converter.to_connect_header("t", "h", envelope({"type": "double"}, "-0.0")).value) == "-0.0"
    assert str(converter.to_connect_header("t", "h", envelope({"type": "float"}, '"-Infinity"')).value) == "-inf"
    for payload in ("1.505", "1e999999999", "1e-999999999"):
        with pytest.raises(DataException, match="scale 2"):
            converter.to_connect_header("t", "h", envelope(decimal, payload))


def test_schemas_are_kept_up_to_a_number() -> None:
    converter = json_converter(schemas_cache_size=2)
    schemas = [Schema.struct({f"f{number}": Schema.INT32_SCHEMA}) for number in range(3)]
    contents = [
        converter.from_connect_header("t", "h", each, Struct(each, {each.fields[0].name: 1})) for each in schemas
    ]
    first, second, third, again = (
        converter.to_connect_header("t", "h", contents[number]).schema for number in (0, 1, 2, 1)
    )
    assert [first, second, third] == schemas
    assert again is second
    assert converter.to_connect_header("t", "h", contents[0]).schema is not first


@pytest.mark.parametrize("size", [0, -1])
def test_nothing_need_be_kept(size: int) -> None:
    converter = json_converter(schemas_cache_size=size)
    content = converter.from_connect_header("t", "h", Schema.OPTIONAL_INT32_SCHEMA, None)
    assert converter.to_connect_header("t", "h", content) == SchemaAndValue(Schema.OPTIONAL_INT32_SCHEMA, None)


def test_a_schema_of_all_values_stands_in_the_configuration() -> None:
    converter = json_converter(schema_content='{"type":"int32","optional":true}')
    assert converter.to_connect_header("t", "h", b"5") == SchemaAndValue(Schema.OPTIONAL_INT32_SCHEMA, 5)
    with pytest.raises(DataException):
        json_converter(schema_content="{}")


NESTED: dict[str, tuple[Callable[[int], bytes], Mapping[str, Any]]] = {
    "arrays": (lambda depth: b"[" * depth + b"]" * depth, {"schemas_enable": False}),
    "objects": (lambda depth: b'{"a":' * depth + b"1" + b"}" * depth, {"schemas_enable": False}),
    "schemas": (
        lambda depth: envelope(0, "[]").replace(
            b"0", b'{"type":"array","items":' * depth + b'{"type":"int8"}' + b"}" * depth
        ),
        {},
    ),
}


@pytest.mark.parametrize("mode", ["strict", "compat"])
@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize("depth", [50, 99, 300, 999, 1001, 200_000])
def test_depth_is_bounded_without_a_stack(kind: str, depth: int, mode: str) -> None:
    make, properties = NESTED[kind]
    converter = json_converter(mode=mode, **properties)
    try:
        found = converter.to_connect_header("t", "h", make(depth))
    except ConnectException as error:
        assert "deeper" in str(error)  # noqa: PT017
        assert depth > (99 if kind == "schemas" else 1000)
    else:
        assert depth <= 1000
        if kind != "schemas":
            again = converter.from_connect_header("t", "h", None, found.value)
            assert again == make(depth)


@pytest.mark.parametrize(
    "content",
    [
        b"[" + b"1," * 300_000 + b"1]",
        b'"' + b"\\u00e9" * 150_000 + b'"',
        b'"' + b"\\" * 500_000 + b'"',
        b'"' + "é".encode() * 500_000 + b'"',
        b"{" + b",".join(b'"%d":[]' % number for number in range(80_000)) + b"}",
        b'"' + b"\xc3\xa9\xff" * 300_000 + b'"',
        b"1" * 1_000_000,
        b" " * 1_000_000,
        b"[" * 1_000_000,
    ],
    ids=["numbers", "escapes", "backslashes", "text", "names", "bad bytes", "digits", "blanks", "brackets"],
)
@pytest.mark.parametrize("mode", ["strict", "compat"])
def test_a_large_header_is_read_or_refused(content: bytes, mode: str) -> None:
    converter = json_converter(mode=mode, schemas_enable=False)
    try:
        converter.to_connect_header("t", "h", content)
    except DataException as error:
        assert len(str(error)) < 400  # noqa: PT017


def test_a_wide_struct_within_many_is_not_checked_once_for_each() -> None:
    depth, width = 40, 20_000
    schema: dict[str, Any] = {"type": "array", "items": {"type": "int8"}}
    for _ in range(depth):
        schema = {"type": "struct", "fields": [{**schema, "field": "x"}]}
    payload = '{"x":' * depth + json.dumps([1] * width) + "}" * depth
    found: Any = json_converter().to_connect_header("t", "h", envelope(schema, payload)).value
    for _ in range(depth):
        found = found.get("x")
    assert len(found) == width


def test_a_date_of_python_is_no_value() -> None:
    with pytest.raises(DataException, match="datetime"):
        json_converter().from_connect_header("t", "h", None, datetime(2017, 5, 21))


@pytest.mark.parametrize(
    ("behind", "encoding", "is_read"),
    [("\u2028", "utf-16-be", True), ("é", "utf-16-be", False), ("\u2028", "utf-8", False), ("$", "utf-8", True)],
)
def test_a_word_ends_where_jackson_ends_it(behind: str, encoding: str, is_read: bool) -> None:
    converter = json_converter(mode="compat", schemas_enable=False)
    content = f"false{behind}".encode(encoding)
    if is_read:
        assert converter.to_connect_header("t", "h", content).value is False
    else:
        with pytest.raises(DataException, match="word"):
            converter.to_connect_header("t", "h", content)


def test_the_page_has_every_converter() -> None:
    page = (ROOT / "docs/typed-headers.md").read_text(encoding="utf-8")
    assert [name for name in _CONVERTERS if f"| `{name.removeprefix('statestore.connect.')}` |" not in page] == []
