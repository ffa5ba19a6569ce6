"""Schemas of JSON Schema and Protobuf that anybody may have registered: nothing is fetched, and all of it ends."""

from __future__ import annotations

import json
import sys
import threading
from base64 import b64encode
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from statestore.errors import DataException, SerializationError
from statestore.errors.middleware import IncompatibleSchemaError
from statestore.middleware.schemas.schema_registry import RegisteredSchema, json_kind, registry_serde
from tests.support import protobuf_messages as messages
from tests.support.avro_schemas import confluent, read, written


def serde_of(schema: Any, references: tuple[tuple[str, str], ...] = ()) -> Any:
    return registry_serde(confluent(), RegisteredSchema(json.dumps(schema), references, "JSON"), subject="s")


def refuses(schema: Any, value: Any, words: str = "does not follow its JSON Schema") -> None:
    with pytest.raises(SerializationError, match=words):
        written(serde_of(schema), value)


def nested(levels: int) -> Any:
    schema: Any = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize("keyword", ["$ref", "$dynamicRef"])
def test_nothing_is_fetched(keyword: str) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(404)

    asked: list[str] = []
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            for address in (f"http://127.0.0.1:{server.server_port}/schema", "file:///etc/hostname"):
                refuses({keyword: address}, 5, "can't be checked")
                refuses({"$id": address, "properties": {"a": {keyword: "other"}}}, {"a": 5}, "can't be checked")
        finally:
            server.shutdown()
            thread.join()
    assert asked == []


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"pattern": r"(?=a)b"}, "not one of RE2"),
        ({"pattern": r"(a)\1"}, "not one of RE2"),
        ({"patternProperties": {r"(?!a)": True}}, "not one of RE2"),
        ({"properties": {"a": {"pattern": "a" * 1001}}}, "more than 1000 characters"),
        ({"pattern": "(a{100}){100}"}, "not one of RE2"),
        ({"pattern": "(a{1000}){1000}"}, "takes too long"),
        ({"patternProperties": {"a": True}, "unevaluatedProperties": False}, "both unevaluatedProperties and"),
        ({"properties": {"a": {"$schema": "http://json-schema.org/draft-07/schema#"}}}, "names a dialect within"),
        ({"$schema": "http://example.org/none"}, "does not know its"),
        ({"$schema": {}}, "Malformed JSON Schema"),
        ({"type": "none"}, "Malformed JSON Schema"),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "maximum": "5"}, "Malformed JSON Schema"),
        (nested(300), "nest deeper than 200"),
        ({"enum": list(range(60_000))}, "over 50000 values"),
        ({"description": "x" * (1 << 20)}, "larger than 1048576"),
        ([], "Malformed JSON Schema"),
    ],
)
def test_schemas_that_could_do_anything_are_refused(schema: Any, words: str) -> None:
    with pytest.raises(DataException, match=words):
        serde_of(schema)
    with pytest.raises(DataException, match=words):
        serde_of(
            {"$ref": "other.json"}, (("other.json", json.dumps(schema)),)
        ) if "$schema" not in schema else serde_of(schema)
    registry = confluent()
    number = registry.connection.register_schema("s", Schema(json.dumps(schema), "JSON"))
    with pytest.raises(IncompatibleSchemaError, match=words):
        read(registry_serde(registry), b"\0" + number.to_bytes(4, "big") + b"1", None)


def test_text_that_takes_a_backtracking_engine_for_ever_is_checked_at_once() -> None:
    for schema in (
        {"pattern": "^(a+)+$"},
        {"items": {"$ref": "#/$defs/x"}, "$defs": {"x": {"pattern": "^(a|a)*$"}}},
        {"$schema": "http://json-schema.org/draft-07/schema#", "pattern": "(x+x+)+y"},
        {"patternProperties": {"^(a+)+$": False}, "additionalProperties": False},
        {"propertyNames": {"pattern": "^(a+)+$"}},
    ):
        text = "a" * 50_000 + "!"
        value: Any = [text] if "items" in schema else text if "pattern" in schema else {text: 1}
        refuses(schema, value)


def test_references_that_double_or_lead_nowhere_end() -> None:
    doubling = {"$defs": {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(40)}}
    doubling["$defs"]["d40"] = {}
    refuses(doubling | {"$ref": "#/$defs/d0"}, 5, "takes too long")
    refuses(doubling | {"unevaluatedProperties": False, "allOf": [{"$ref": "#/$defs/d0"}]}, {"a": 5}, "takes too long")
    refuses({"$ref": "#"}, 5, "can't be checked")
    refuses({"properties": {"a": {"$ref": "#/none"}}}, {"a": 5}, "can't be checked")
    others = (("a.json", '{"$ref": "b.json"}'), ("b.json", '{"$ref": "a.json"}'))
    with pytest.raises(SerializationError, match="can't be checked"):
        serde_of({"$ref": "a.json"}, others).serialize(5)


def test_a_value_as_deep_as_json_can_be_is_checked_or_refused() -> None:
    recursive = {"type": ["array", "integer"], "items": {"$ref": "#"}}
    serde = serde_of(recursive)
    data, headers = written(serde, [[[5]]])
    assert read(serde, data, headers) == [[[5]]]
    for levels in (900, 100_000):
        with pytest.raises(IncompatibleSchemaError):
            read(serde, b"[" * levels + b"]" * levels, headers)


def test_values_take_steps_that_grow_with_their_bytes() -> None:
    written(serde_of({"items": {"type": "integer", "minimum": 0}}), list(range(20_000)))
    refuses({"items": {"allOf": [{"type": "integer"}] * 1000}}, list(range(1000)), "takes too long")
    written(serde_of({"uniqueItems": True}), [{"a": n} for n in range(20_000)])
    written(serde_of({"items": {"enum": [f"c{n}" for n in range(200)]}}), ["c199"] * 1000)


def test_what_is_compared_and_matched_counts_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_kind, "_MOST_STEPS", 50_000)
    of_zeros = {"$defs": {"c": {"const": [[0] * 100]}}, "allOf": [{"$ref": "#/$defs/c"}] * 200}
    refuses({"items": {"enum": list(range(1000))}}, [999] * 200, "takes too long")
    refuses({"items": {"pattern": r"\pL{1,50}"}}, ["b"] * 100, "takes too long")
    refuses({"patternProperties": {f"^{n}$": {} for n in range(90)}}, {f"b{n}": 1 for n in range(90)}, "takes too long")
    refuses(of_zeros, [[0] * 100], "takes too long")
    with pytest.raises(DataException, match="takes too long"):
        serde_of({"allOf": [{"pattern": f"a{{1,900}}{n}"} for n in range(20)]})
    many = json.dumps({"enum": list(range(30_000))})
    with pytest.raises(DataException, match="over 50000 values"):
        serde_of({"$ref": "a.json"}, (("a.json", many), ("b.json", many)))


def test_no_integers_are_chosen_to_be_of_one_hash() -> None:
    written(serde_of(True), 5)  # what compares counts its steps
    assert len({hash(json_kind._hashable(n * sys.hash_info.modulus)) for n in range(100)}) > 50


@pytest.mark.parametrize(
    ("value", "is_unique"),
    [
        ([1, True], True),
        ([1, 1.0], False),
        ([0, False, None, "", [], {}], True),
        ([{"a": [1], "b": 2}, {"b": 2, "a": [1]}], False),
        ([[1], [True]], True),
        ([{"a": 1}, {"a": True}], True),
    ],
)
def test_items_are_compared_as_json_has_them(value: Any, is_unique: bool) -> None:
    if is_unique:
        written(serde_of({"uniqueItems": True}), value)
    else:
        refuses({"uniqueItems": True}, value)


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"pattern": "b+$"}, ["abb", 5], ["b\n", "a"]),
        ({"pattern": r"^\p{L}+$"}, ["é"], ["1"]),
        ({"patternProperties": {"^n": {"type": "integer"}}}, [{"n1": 1, "x": "y"}], [{"n1": "x"}]),
        (
            {"properties": {"a": True}, "patternProperties": {"^n": True}, "additionalProperties": False},
            [{"a": 1, "n": 2}, 5],
            [{"x": 1}],
        ),
        ({"additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "1"}]),
        ({"properties": {"a": True}, "unevaluatedProperties": False}, [{"a": 1}], [{"b": 1}]),
        # Before 2019-09 nothing else counts beside a reference.
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "properties": {"a": {"$ref": "#/definitions/x", "type": "string"}},
                "definitions": {"x": {"type": "integer"}},
            },
            [{"a": 1}],
            [{"a": "1"}],
        ),
        ({"$ref": "https://json-schema.org/draft/2020-12/schema"}, [{"type": "string"}], [{"type": "none"}]),
        (True, [1, None], []),
        (False, [], [1, None]),
    ],
)
def test_keywords_mean_what_they_mean(schema: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        written(serde_of(schema), value)
    for value in bad:
        refuses(schema, value)


def files_with(*changes: Any) -> list[FileDescriptorProto]:
    files = messages.order_files()
    for change in changes:
        change(files[1])
    return files


def add_types(file: FileDescriptorProto) -> None:
    for number in range(10_001):
        file.message_type.add(name=f"M{number}")


def nest_types(file: FileDescriptorProto) -> None:
    inner = file.message_type[0]
    for _ in range(200):
        inner = inner.nested_type.add(name="M")


def import_what_is_not_there(file: FileDescriptorProto) -> None:
    file.dependency.append("google/protobuf/none.proto")


def import_itself(file: FileDescriptorProto) -> None:
    file.dependency.append("the schema itself")


def name_what_is_not_there(file: FileDescriptorProto) -> None:
    file.message_type[0].field[0].type_name = ".shop.None"
    file.message_type[0].field[0].type = file.message_type[0].field[0].TYPE_MESSAGE


@pytest.mark.parametrize(
    "change", [add_types, nest_types, import_what_is_not_there, import_itself, name_what_is_not_there]
)
def test_descriptors_that_can_not_be_read_with_are_refused(change: Any) -> None:
    item, order = files_with(change)
    refuse_protobuf(order.SerializeToString(), item)


@pytest.mark.parametrize("data", [b"\xff", b"\x0a\xff", bytes(10), b"\x0a" * 999])
def test_bytes_that_are_no_descriptor_are_refused(data: bytes) -> None:
    refuse_protobuf(data)


def refuse_protobuf(data: bytes, item: FileDescriptorProto | None = None) -> None:
    registry = confluent()
    references = []
    if item is not None:
        text = b64encode(item.SerializeToString()).decode()
        registry.connection.register_schema(item.name, Schema(text, "PROTOBUF"))
        references = [SchemaReference(item.name, item.name, 1)]
    schema = Schema(b64encode(data).decode(), "PROTOBUF", references)
    number = registry.connection.register_schema("s", schema)
    for serde in (registry_serde(registry), registry_serde(registry, messages.ORDER)):
        with pytest.raises(IncompatibleSchemaError, match="Protobuf schema"):
            read(serde, b"\0" + number.to_bytes(4, "big") + b"\2\2", None)


def test_imports_in_a_circle_and_too_many_of_them_are_refused() -> None:
    one, other = messages.file_of("one.proto", "other.proto"), messages.file_of("other.proto", "one.proto")
    texts = [b64encode(file.SerializeToString()).decode() for file in (one, other)]
    with pytest.raises(DataException, match="Malformed Protobuf schema"):
        registry_serde(confluent(), RegisteredSchema(texts[0], (("other.proto", texts[1]),), "PROTOBUF"))
    with pytest.raises(DataException, match="Malformed Protobuf schema"):
        registry_serde(confluent(), RegisteredSchema(texts[0], (("other.proto", 'syntax = "proto3";'),), "PROTOBUF"))
    with pytest.raises(DataException, match="larger than 1048576"):
        registry_serde(confluent(), RegisteredSchema("A" * (1 << 21), (), "PROTOBUF"))


def test_messages_that_nest_too_deep_are_refused() -> None:
    file = messages.file_of("deep.proto")
    messages.add_field(file.message_type.add(name="Deep"), 1, "inner", ".shop.Deep")
    deep = messages.classes_of(file)["shop.Deep"]
    serde = registry_serde(confluent(), deep)
    _, headers = written(serde, deep(inner={}))
    data = b""
    for _ in range(300):
        size = len(data)
        data = b"\x0a" + (bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])) + data
    with pytest.raises(IncompatibleSchemaError, match=r"Malformed message shop\.Deep"):
        read(serde, data, headers)
