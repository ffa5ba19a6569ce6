"""Avro headers: what is written is read as it was, other readers take it, and no bytes do harm."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from statestore.connect.converters.avro import AvroConverter
from statestore.connect.converters.registry import header_converter
from statestore.connect.instant import Instant
from statestore.connect.numbers import Int32
from statestore.connect.schema import Schema, SchemaAndValue, Struct
from statestore.connect.schemas import (
    DATE_SCHEMA,
    INT8_SCHEMA,
    INT32_SCHEMA,
    OPTIONAL_STRING_SCHEMA,
    STRING_SCHEMA,
    array_schema,
    decimal_schema,
    map_schema,
    struct_schema,
)
from statestore.errors import ConnectException, DataException
from statestore.format.varint import encode_varlong
from tests.support.connect.typed_values import typed_values

CARRIED = AvroConverter()


def configured(schema: Any) -> AvroConverter:
    converter = AvroConverter()
    converter.configure({"schema.content": json.dumps(schema)})
    return converter


@given(typed_values())
def test_what_is_written_is_read_as_it_was(given_value: SchemaAndValue) -> None:
    try:
        content = CARRIED.from_connect_header("t", "h", given_value.schema, given_value.value)
    except DataException as error:
        assume("surrogate" not in error.problem)
        raise
    found = CARRIED.to_connect_header("t", "h", content)
    assert found == given_value
    assert CARRIED.from_connect_header("t", "h", found.schema, found.value) == content


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_read_or_refused(content: bytes, is_file: bool) -> None:
    shapes = {"type": "map", "values": ["null", {"type": "array", "items": "string"}]}
    for converter in (CARRIED, configured(shapes)):
        try:
            converter.to_connect_header("t", "h", b"Obj\x01" * is_file + content)
        except ConnectException as error:
            assert error.header == "h"  # noqa: PT017


PERSON = {
    "type": "record",
    "name": "Person",
    "namespace": "org.example",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "born", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "colour", "type": {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]}},
        {"name": "also", "type": ["Colour", "null"]},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 2}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
    ],
}


def test_a_configured_schema_is_written_without_it() -> None:
    converter = configured(PERSON)
    assert configured({"type": "int"}).from_connect_header("t", "h", INT32_SCHEMA, 1) == b"\x02"
    content = (
        b"\x06Ann" b"\x02\x04" b"\x02" b"\x02" b"\x01\x02" b"\x04\x00\x96" + b"\x02" b"\x02a\x03" b"\x00"
    )  # fmt: skip
    found = converter.to_connect_header("t", "h", content)
    assert found.schema is not None
    assert found.schema.name == "org.example.Person"
    assert dict(found.value.items()) == {
        "name": "Ann",
        "born": Instant(2 * 86_400_000),
        "colour": "BLUE",
        "also": None,
        "id": b"\x01\x02",
        "price": Decimal("1.50"),
        "counts": {"a": -2},
    }
    assert converter.from_connect_header("t", "h", found.schema, found.value) == content


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("nothing", "Unknown Avro type"),
        ({"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}, "holds itself"),
        (["int", "string"], "union"),
        (["null"], "union"),
        ({"type": "enum", "name": "E"}, "symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "size"),
        ({"type": "record", "name": "not legal", "fields": []}, "name"),
        ({"type": "record", "name": "R", "fields": {}}, "fields"),
        ({"type": "record", "name": "R", "fields": [{"name": "n", "type": "null"}]}, "null"),
        ({"type": 5}, "type"),
        (None, "type"),
    ],
)
def test_a_schema_without_a_typed_one_is_refused(schema: Any, words: str) -> None:
    with pytest.raises(DataException, match=words):
        configured(schema)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (INT8_SCHEMA, 300),
        (INT8_SCHEMA, None),
        (STRING_SCHEMA, 5),
        (STRING_SCHEMA, "\ud800"),
        (DATE_SCHEMA, Instant(1)),
        (DATE_SCHEMA, 5),
        (decimal_schema(2), Decimal("1.5")),
        (array_schema(INT8_SCHEMA), [None]),
        (array_schema(None), [1]),
        (map_schema(STRING_SCHEMA, INT8_SCHEMA), {1: 1}),
        (struct_schema({"x": INT8_SCHEMA}), Struct(struct_schema({"x": INT32_SCHEMA}))),
        (None, object()),
    ],
)
def test_what_does_not_follow_its_schema_is_not_written(schema: Schema | None, value: Any) -> None:
    with pytest.raises(DataException, match=r"^header 'h': "):
        CARRIED.from_connect_header("t", "h", schema, value)


def test_a_value_without_a_schema_brings_its_own() -> None:
    content = CARRIED.from_connect_header("t", "h", None, ["a", "b"])
    assert CARRIED.to_connect_header("t", "h", content) == SchemaAndValue(array_schema(STRING_SCHEMA), ["a", "b"])
    assert CARRIED.from_connect_header("t", "h", None, None) is None
    assert CARRIED.to_connect_header("t", "h", None) == SchemaAndValue(None, None)
    optional = CARRIED.from_connect_header("t", "h", OPTIONAL_STRING_SCHEMA, None)
    assert CARRIED.to_connect_header("t", "h", optional) == SchemaAndValue(OPTIONAL_STRING_SCHEMA, None)


@pytest.mark.parametrize("name", ["a-b", "legal.Inner", "statestore.Struct0", None])
def test_names_that_avro_has_not_or_has_already_are_read_as_they_were(name: str | None) -> None:
    inner = struct_schema({"ü": INT8_SCHEMA, "field0": INT8_SCHEMA}, name=name)
    outer = struct_schema({"1": inner, "2": inner}, name="statestore.Struct1")
    value = Struct(outer, {name: Struct(inner, {"ü": 1, "field0": 2}) for name in ("1", "2")})
    content = CARRIED.from_connect_header("t", "h", outer, value)
    assert CARRIED.to_connect_header("t", "h", content) == SchemaAndValue(outer, value)


def file_of(avro: bytes, datum: bytes, **more: bytes) -> bytes:
    content = CARRIED.from_connect_header("t", "h", INT32_SCHEMA, 1)
    assert content is not None
    sync = content[-16:]
    metadata = b"".join(
        encode_varlong(len(part)) + part
        for pair in [(b"avro.schema", avro), *((name.replace("_", ".").encode(), each) for name, each in more.items())]
        for part in pair
    )
    head = b"Obj\x01" + encode_varlong(1 + len(more)) + metadata + b"\x00" + sync
    return head + encode_varlong(1) + encode_varlong(len(datum)) + datum + sync


def test_files_of_others_are_read() -> None:
    assert CARRIED.to_connect_header("t", "h", file_of(b'"int"', b"\x0a")) == SchemaAndValue(INT32_SCHEMA, Int32(5))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "object container"),
        (b"Obj\x01", "Avro"),
        (file_of(b'"int"', b"\x0a") + b"\x00", "one value"),
        (file_of(b'"int"', b"\x0a", avro_codec=b"deflate"), "compressed"),
        (file_of(b'"int"', b"\x0a", connect_schema=b'{"type":"string"}'), "two schemas"),
        (file_of(b'"int"', b""), "Avro"),
        (file_of(b'"int"', b"\x0a\x0a"), "behind the value"),
        (file_of(b'"boolean"', b"\x02"), "boolean"),
        (file_of(b'"string"', b"\x02\xff"), "UTF-8"),
        (file_of(b'"bytes"', b"\x01"), "Avro"),
        (file_of(b'"int"', b"\xff" * 10), "Avro"),
        (file_of(b'"int"', encode_varlong(2**31)), "out of the range"),
        (file_of(b'["null","int"]', b"\x04"), "place 2"),
        (
            file_of(b'{"type":"array","items":{"type":"fixed","name":"F","size":0}}', encode_varlong(2**60)),
            "fewer bytes",
        ),
        (file_of(b'{"type":"array","items":"int"}', encode_varlong(-(2**60)) + b"\x00"), "fewer bytes"),
        (file_of(b'{"type":"map","values":"int"}', b"\x04\x02a\x00\x02a\x00\x00"), "second time"),
        (file_of(b"[" * 2000, b""), "deeper"),
        (file_of(b'{"type":' * 500 + b'"int"' + b"}" * 500, b"\x00"), "deeper"),
    ],
)
def test_malformed_files_are_refused_in_words(content: bytes, words: str) -> None:
    with pytest.raises(DataException, match=f"^header 'h': .*{words}"):
        CARRIED.to_connect_header("t", "h", content)


def test_it_is_found_by_name() -> None:
    assert isinstance(header_converter("Avro"), AvroConverter)


@given(typed_values())
def test_other_readers_take_what_is_written(given_value: SchemaAndValue) -> None:
    fastavro = pytest.importorskip("fastavro")
    try:
        content = CARRIED.from_connect_header("t", "h", given_value.schema, given_value.value)
    except DataException:
        assume(False)
    assert content is not None
    try:
        (record,) = fastavro.reader(io.BytesIO(content))
    except (OverflowError, ValueError):  # of Python's own dates, which begin in year 1 and end in 9999
        assume(False)
    if isinstance(record, int | str | bytes) and type(given_value.value) in (int, str, bytes):
        assert record == given_value.value
