"""Avro headers: what is written is read as it was, other readers take it, and no bytes do harm."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from statestore.connect.converters.avro.avro_converter import AvroConverter
from statestore.connect.converters.avro.avro_schema import schema_to_avro
from statestore.connect.converters.registry import header_converter
from statestore.connect.scalars import Instant, Int32
from statestore.connect.schema import Schema, SchemaAndValue, Struct, validate_value
from statestore.errors import ConfigException, ConnectException, DataException
from statestore.format.varint import encode_varlong
from tests.support.connect.typed_values import typed_values

CARRIED = AvroConverter()


def configured(schema: Any) -> AvroConverter:
    converter = AvroConverter()
    converter.configure({"schema.content": json.dumps(schema)})
    return converter


@given(typed_values())
def test_what_is_written_is_read_as_it_was(given_value: SchemaAndValue) -> None:
    content = written(given_value)
    found = CARRIED.to_connect_header("t", "h", content)
    assert found == given_value
    assert CARRIED.from_connect_header("t", "h", found.schema, found.value) == content


@st.composite
def mutated(draw: st.DrawFn, contents: st.SearchStrategy[bytes]) -> bytes:
    """Bytes of which a few are others, or gone, or there twice."""
    content = draw(contents)
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.integers(start, min(len(content), start + 4)))
        content = content[:start] + draw(st.binary(max_size=4) | st.just(content[start:end] * 2)) + content[end:]
    return content


def written(given_value: SchemaAndValue) -> bytes:
    try:
        content = CARRIED.from_connect_header("t", "h", given_value.schema, given_value.value)
    except DataException as error:
        assume("surrogate" not in error.problem and "8 values" not in error.problem)
        raise
    assert content is not None
    return content


def problem_of(converter: AvroConverter, content: bytes) -> str | None:
    """Return what is wrong with how bytes are taken: a refusal names the header, and a value follows its schema."""
    try:
        found = converter.to_connect_header("t", "h", content)
    except ConnectException as error:
        return None if error.header == "h" else f"{error!r} names no header"
    try:
        if found.schema is not None:
            validate_value(found.schema, found.value)
    except DataException as error:
        return f"{found} does not follow its schema: {error}"
    return None if converter.to_connect_header("t", "h", content) == found else "it is read as another value again"


@given(mutated(typed_values().map(written)))
def test_any_change_of_what_was_written_is_read_or_refused(content: bytes) -> None:
    assert problem_of(CARRIED, content) is None


@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_are_read_or_refused(content: bytes, is_file: bool) -> None:
    shapes = {"type": "map", "values": ["null", {"type": "array", "items": "string"}]}
    for converter in (CARRIED, configured(shapes)):
        assert problem_of(converter, b"Obj\x01" * is_file + content) is None


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
    assert configured({"type": "int"}).from_connect_header("t", "h", Schema.INT32_SCHEMA, 1) == b"\x02"
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
        ("nothing", "UnknownType: nothing"),
        ({"type": "record", "name": "A", "fields": [{"name": "a", "type": ["null", "A"]}]}, "holds itself"),
        (["int", "string"], "union"),
        (["null"], "union"),
        (["null", "null"], "union"),
        (["null", ["null", "int"]], "union"),
        ({"type": "enum", "name": "E"}, "symbols"),
        ({"type": "enum", "name": "E", "symbols": "AB"}, "symbols"),
        ({"type": "fixed", "name": "F", "size": -1}, "size"),
        ({"type": "fixed", "name": "F", "size": 2**31}, "size"),
        ({"type": "record", "name": "R", "__fastavro_parsed": True, "__named_schemas": {}}, "fields"),
        ({"type": "record", "name": "R", "fields": [{}], "__fastavro_parsed": True, "__named_schemas": {}}, "missing"),
        ({"type": "array", "items": "null"}, "8 values"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 1, "scale": 2}, "precision"),
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
        (Schema.INT8_SCHEMA, 300),
        (Schema.INT8_SCHEMA, None),
        (Schema.STRING_SCHEMA, 5),
        (Schema.STRING_SCHEMA, "\ud800"),
        (Schema.DATE_SCHEMA, Instant(1)),
        (Schema.DATE_SCHEMA, 5),
        (Schema.decimal(2), Decimal("1.5")),
        (Schema.array(Schema.INT8_SCHEMA), [None]),
        (Schema.array(None), [1]),
        (Schema.map(Schema.STRING_SCHEMA, Schema.INT8_SCHEMA), {1: 1}),
        (Schema.struct({"x": Schema.INT8_SCHEMA}), Struct(Schema.struct({"x": Schema.INT32_SCHEMA}))),
        (None, object()),
    ],
)
def test_what_does_not_follow_its_schema_is_not_written(schema: Schema | None, value: Any) -> None:
    with pytest.raises(DataException, match=r"^header 'h': "):
        CARRIED.from_connect_header("t", "h", schema, value)


def test_a_value_without_a_schema_brings_its_own() -> None:
    content = CARRIED.from_connect_header("t", "h", None, ["a", "b"])
    assert CARRIED.to_connect_header("t", "h", content) == SchemaAndValue(
        Schema.array(Schema.STRING_SCHEMA), ["a", "b"]
    )
    assert CARRIED.from_connect_header("t", "h", None, None) is None
    assert CARRIED.to_connect_header("t", "h", None) == SchemaAndValue(None, None)
    optional = CARRIED.from_connect_header("t", "h", Schema.OPTIONAL_STRING_SCHEMA, None)
    assert CARRIED.to_connect_header("t", "h", optional) == SchemaAndValue(Schema.OPTIONAL_STRING_SCHEMA, None)


@pytest.mark.parametrize("name", ["a-b", "legal.Inner", "statestore.Struct0", None])
def test_names_that_avro_has_not_or_has_already_are_read_as_they_were(name: str | None) -> None:
    inner = Schema.struct({"ü": Schema.INT8_SCHEMA, "field0": Schema.INT8_SCHEMA}, name=name)
    outer = Schema.struct({"1": inner, "2": inner}, name="statestore.Struct1")
    value = Struct(outer, {name: Struct(inner, {"ü": 1, "field0": 2}) for name in ("1", "2")})
    content = CARRIED.from_connect_header("t", "h", outer, value)
    assert CARRIED.to_connect_header("t", "h", content) == SchemaAndValue(outer, value)


def test_structs_of_one_name_are_numbered() -> None:
    many = Schema.struct({f"f{place}": Schema.struct({}, name=("A", "A_1")[place % 2]) for place in range(5000)})
    made = [each["type"]["name"] for each in schema_to_avro(many)["fields"]]
    assert made[:6] == ["A", "A_1", "A_2", "A_1_1", "A_3", "A_1_2"]
    assert len(set(made)) == 5000


def file_of(avro: bytes, datum: bytes, **more: bytes) -> bytes:
    content = CARRIED.from_connect_header("t", "h", Schema.INT32_SCHEMA, 1)
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
    assert CARRIED.to_connect_header("t", "h", file_of(b'"int"', b"\x0a")) == SchemaAndValue(
        Schema.INT32_SCHEMA, Int32(5)
    )


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "object container"),
        (b"Obj\x01", "Avro"),
        (file_of(b'"int"', b"\x0a") + b"\x00", "behind the value"),
        (file_of(b'"int"', b"\x0a", avro_codec=b"deflate"), "compressed"),
        (
            file_of(b'"int"', b"\x0a", connect_schema=b'{"type":"string"}'),
            "its Avro schema and its Connect schema differ",
        ),
        (file_of(b'"int"', b""), "Avro"),
        (file_of(b'"int"', b"\x0a\x0a"), "behind the value"),
        (file_of(b'"boolean"', b"\x02"), "boolean"),
        (file_of(b'"string"', b"\x02\xff"), "utf-8"),
        (file_of(b'"bytes"', b"\x01"), "Avro"),
        (file_of(b'"int"', b"\xff" * 10), "Avro"),
        (file_of(b'"int"', encode_varlong(2**31)), "out of the range"),
        (file_of(b'["null","int"]', b"\x04"), "list index"),
        (
            file_of(b'{"type":"array","items":{"type":"fixed","name":"F","size":0}}', encode_varlong(2**60)),
            "8 values",
        ),
        (file_of(b'{"type":"enum","name":"E","symbols":["A"]}', b"\x01"), "place -1"),
        (file_of(b'"int"', b"\x0a")[:-1] + b"\x00", "one value"),
        (file_of(b'{"type":"bytes","logicalType":"decimal","scale":1%s}' % (b"0" * 30), b"\x02\x05"), "scale"),
        (file_of(b'"bytes"', encode_varlong(-1) + b"abc"), "fewer bytes"),
        (file_of(b'"bytes"', encode_varlong(2**40) + b"abc"), "fewer bytes"),
        (file_of(b'{"type":"int","logicalType":"date"}', encode_varlong(2**31)), "out of the range"),
        (file_of(b'{"type":"array","items":"int"}', encode_varlong(-(2**60)) + b"\x00"), "fewer bytes"),
        (file_of(b'{"type":"map","values":"int"}', b"\x04\x02a\x00\x02a\x00\x00"), "second time"),
        (file_of(b"[" * 2000, b""), "deeper"),
        (file_of(b'{"type":' * 500 + b'"int"' + b"}" * 500, b"\x00"), "deeper"),
    ],
)
def test_malformed_files_are_refused_in_words(content: bytes, words: str) -> None:
    with pytest.raises(DataException, match=f"^header 'h': .*{words}"):
        CARRIED.to_connect_header("t", "h", content)


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.sampled_from(["", "int", "null", "record", "Id", "x.y", "decimal"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "name", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@st.composite
def schemas_with_a_change(draw: st.DrawFn) -> Any:
    """PERSON, with a part of it another one, or gone, or with a fact more."""
    changed = json.loads(json.dumps(PERSON))
    inner = changed
    for _ in range(draw(st.integers(0, 4))):
        places = [
            each for each in (inner.values() if isinstance(inner, dict) else inner) if isinstance(each, list | dict)
        ]
        inner = draw(st.sampled_from(places)) if places else inner
    if not isinstance(inner, dict):
        inner.insert(draw(st.integers(0, len(inner))), draw(ANY_JSON | st.sampled_from(inner)))
        return changed
    facts = ["type", "name", "namespace", "fields", "items", "values", "symbols", "size", "logicalType", "scale"]
    inner[draw(st.sampled_from([*facts, "default", "__fastavro_parsed", "__named_schemas"]))] = draw(ANY_JSON)
    return changed


@given(schemas_with_a_change(), st.binary(max_size=30))
def test_any_schema_is_taken_or_refused(schema: Any, datum: bytes) -> None:
    assert problem_of(CARRIED, file_of(json.dumps(schema).encode(), datum)) is None


def records(count: int, **fields: str) -> list[Any]:
    """Types R0, R1 and so on, in which "R" is the one before."""
    made: list[Any] = [{"type": "record", "name": "R0", "fields": []}]
    for place in range(1, count):
        of = [{"name": name, "type": kind.replace("R", f"R{place - 1}")} for name, kind in fields.items()]
        made.append({"type": "record", "name": f"R{place}", "fields": of})
    return made


def test_types_that_are_named_again_count_again() -> None:
    def holding(types: list[Any]) -> Any:
        return {"type": "record", "name": "All", "fields": [{"name": f"f{n}", "type": t} for n, t in enumerate(types)]}

    for types, words in [(records(60, a="R", b="R"), "10000 types"), (records(101, a="R"), "100 levels")]:
        with pytest.raises(DataException, match=words):
            configured(holding(types))
    assert configured(holding(records(9, a="R", b="R")))


def test_elements_take_bytes_or_are_refused() -> None:
    empty = Schema.struct({})
    content = CARRIED.from_connect_header("t", "h", Schema.map(Schema.STRING_SCHEMA, empty), {"a": Struct(empty)})
    assert CARRIED.to_connect_header("t", "h", content).value == {"a": Struct(empty)}
    seven = Schema.struct({"x": Schema.INT8_SCHEMA, **{f"f{place}": empty for place in range(6)}})
    eight = Schema.struct({"x": Schema.INT8_SCHEMA, **{f"f{place}": empty for place in range(7)}})
    assert CARRIED.from_connect_header("t", "h", Schema.array(seven), [])
    for schema in (empty, eight, Schema.struct({"x": empty})):
        with pytest.raises(DataException, match="8 values"):
            CARRIED.from_connect_header("t", "h", Schema.array(schema), [])
        assert CARRIED.from_connect_header("t", "h", Schema.array(schema.as_optional()), []) or schema is eight


def test_deep_values_are_written_and_read() -> None:
    schema: Schema = Schema.INT8_SCHEMA
    value: Any = 1
    for level in range(99):
        if level % 2:
            schema = Schema.struct({"x": schema}, optional=True)
            value = Struct(schema, {"x": value})
        else:
            schema, value = Schema.array(schema, optional=True), [value]
    content = CARRIED.from_connect_header("t", "h", schema, value)
    assert CARRIED.to_connect_header("t", "h", content) == SchemaAndValue(schema, value)
    with pytest.raises(DataException, match="100 levels"):
        CARRIED.from_connect_header("t", "h", Schema.array(schema), [value])


def test_defaults_and_unknown_facts_are_passed_over() -> None:
    field = {"name": "a", "type": {"type": "double"}, "default": 1, "aliases": None}
    schema = configured({"type": "record", "name": "R", "fields": [field]}).to_connect_header("t", "h", bytes(8)).schema
    assert schema == Schema.struct({"a": Schema.FLOAT64_SCHEMA}, name="R")


def test_blocks_of_arrays_are_read_with_their_sizes() -> None:
    content = encode_varlong(-2) + encode_varlong(2) + b"\x02\x04" + encode_varlong(1) + b"\x06" + b"\x00"
    assert configured({"type": "array", "items": "int"}).to_connect_header("t", "h", content).value == [1, 2, 3]


def test_who_has_no_fastavro_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigException, match=r"pip install 'statestore\[avro\]'"):
        header_converter("Avro")


def test_nothing_else_needs_fastavro() -> None:
    code = "import sys; sys.modules['fastavro'] = None; from statestore.connect import *; header_converter('Json')"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_larger_than_any_use_is_refused() -> None:
    decimal = file_of(b'{"type":"bytes","logicalType":"decimal"}', encode_varlong(2**20) + bytes(2**20))
    for content, words in [(file_of(b'"int"' + b" " * 2**20, b"\x0a"), "larger"), (decimal, "1048576 bytes")]:
        with pytest.raises(DataException, match=words):
            CARRIED.to_connect_header("t", "h", content)


def test_it_is_found_by_name() -> None:
    assert isinstance(header_converter("Avro"), AvroConverter)


@given(typed_values())
def test_other_readers_take_what_is_written(given_value: SchemaAndValue) -> None:
    content = written(given_value)
    try:
        (record,) = fastavro.reader(io.BytesIO(content))
    except (OverflowError, ValueError):  # of Python's own dates, which begin in year 1 and end in 9999
        assume(False)
    if isinstance(record, int | str | bytes) and type(given_value.value) in (int, str, bytes):
        assert record == given_value.value
