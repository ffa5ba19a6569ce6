"""The JSON forms of values, schemas and headers in vectors: decoded to ours, and ours encoded to them."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from statestore.connect.header import ConnectHeader
from statestore.connect.scalars import Float32, Float64, Instant, Int8, Int16, Int32, Int64, in_range
from statestore.connect.schema import Field, Schema, SchemaAndValue, Struct, Type
from statestore.connect.typed_map import TypedMap

Json = Any


class JavaBytes(bytes):
    """Bytes that are equal to themselves only, as Java's arrays are."""

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__  # type: ignore[assignment]


class BigInteger(int):
    """Java's, which no schema is for, however small it is."""


class Character:
    """Java's, which no schema is for."""

    def __init__(self, text: str) -> None:
        self.text = text


def decode_value(form: Json) -> Any:
    """Return the value of a form, None for None."""
    if form is None:
        return None
    ((tag, content),) = form.items()
    return _DECODERS[tag](content)


def _decode_struct(content: Json) -> Struct:
    schema = decode_schema(content["schema"])
    assert schema is not None
    made = Struct(schema)
    for name, value in content["fields"]:
        if value is not None:  # what a struct was not given; some that Kafka made lack what they must have
            made.put(name, decode_value(value))
    return made


_DECODERS: dict[str, Callable[[Any], Any]] = {
    "bool": bool,
    "int8": Int8,
    "int16": Int16,
    "int32": Int32,
    "int64": Int64,
    "float32": lambda text: Float32(float(text)),
    "float64": Float64,
    "decimal": Decimal,
    "bigint": BigInteger,
    "string": str,
    "char": Character,
    "bytes": lambda text: JavaBytes(bytes.fromhex(text)),
    "bytebuffer": lambda text: memoryview(bytes.fromhex(text)),
    "millis": Instant,
    "array": lambda elements: [decode_value(each) for each in elements],
    "map": lambda pairs: TypedMap((decode_value(key), decode_value(value)) for key, value in pairs),
    "struct": _decode_struct,
}


def encode_value(value: Any) -> Json:
    """Return the form of a value. Raises TypeError if there is none."""
    if value is None:
        return None
    if isinstance(value, Struct):
        fields = [[each.name, encode_value(value.get_without_default(each.name))] for each in value.schema.fields]
        return {"struct": {"schema": encode_schema(value.schema), "fields": fields}}
    if isinstance(value, Mapping):
        return {"map": [[encode_value(key), encode_value(each)] for key, each in value.items()]}
    if isinstance(value, list | tuple):
        return {"array": [encode_value(each) for each in value]}
    for kinds, encode in _ENCODERS:
        if isinstance(value, kinds):
            tag, content = encode(value)
            return {tag: content}
    raise TypeError(f"a value of {type(value)} has no form")


def _encode_plain_int(value: int) -> tuple[str, Json]:
    return ("int64", int(value)) if in_range(value, 64) else ("bigint", str(int(value)))


def _encode_float(tag: str, value: float) -> tuple[str, Json]:
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return tag, names.get(float.__repr__(value), float.__repr__(value))


_ENCODERS: list[tuple[Any, Callable[[Any], tuple[str, Json]]]] = [
    (bool, lambda value: ("bool", value)),
    (Int8, lambda value: ("int8", int(value))),
    (Int16, lambda value: ("int16", int(value))),
    (Int32, lambda value: ("int32", int(value))),
    (Int64, lambda value: ("int64", int(value))),
    (BigInteger, lambda value: ("bigint", str(int(value)))),
    (int, _encode_plain_int),
    (Float32, lambda value: _encode_float("float32", value)),
    (float, lambda value: _encode_float("float64", value)),
    (Decimal, lambda value: ("decimal", str(value))),
    (str, lambda value: ("string", value)),
    (Character, lambda value: ("char", value.text)),
    (bytes | bytearray, lambda value: ("bytes", value.hex())),
    (memoryview, lambda value: ("bytebuffer", value.hex())),
    (Instant, lambda value: ("millis", int(value.epoch_ms))),
]


def decode_schema(form: Json) -> Schema | None:
    """Return the schema of a form, None for None."""
    if form is None:
        return None
    return Schema(
        Type[form["type"]],
        optional=form.get("optional", False),
        name=form.get("name"),
        version=form.get("version"),
        doc=form.get("doc"),
        parameters=form.get("parameters", {}),
        default=_by_content(decode_value(form.get("default"))),
        key_schema=decode_schema(form.get("keySchema")),
        value_schema=decode_schema(form.get("valueSchema")),
        fields=[Field(name, _present(decode_schema(each))) for name, each in form.get("fields", [])],
    )


def _by_content(default: Any) -> Any:
    """Return a default that is compared as Java's schemas compare theirs: bytes by what they are."""
    return bytes(default) if isinstance(default, JavaBytes) else default


def _present(schema: Schema | None) -> Schema:
    assert schema is not None
    return schema


def encode_schema(schema: Schema | None) -> Json:
    """Return the form of a schema: what is false or none is absent."""
    if schema is None:
        return None
    facts = {
        "optional": schema.optional or None,
        "name": schema.name,
        "version": schema.version,
        "doc": schema.doc,
        "parameters": dict(schema.parameters) or None,
        "default": encode_value(schema.default),
    }
    form: dict[str, Json] = {"type": str(schema.type)} | {key: fact for key, fact in facts.items() if fact is not None}
    if schema.type is Type.MAP:
        form["keySchema"] = encode_schema(schema.key_schema)
    if schema.type in (Type.ARRAY, Type.MAP):
        form["valueSchema"] = encode_schema(schema.value_schema)
    if schema.type is Type.STRUCT:
        form["fields"] = [[each.name, encode_schema(each.schema)] for each in schema.fields]
    return form


def encode_schema_and_value(found: SchemaAndValue | None) -> Json:
    """Return the form of what a parser or a converter returned: Java's null itself has one of its own."""
    if found is None:
        return {"null": True}
    return {"schema": encode_schema(found.schema), "value": encode_value(found.value)}


def encode_headers(headers: Iterable[ConnectHeader]) -> Json:
    """Return the form of headers, in their order."""
    return [
        {"key": each.key, "schema": encode_schema(each.schema), "value": encode_value(each.value)} for each in headers
    ]


def decode_bytes(text: str | None) -> bytes | None:
    """Return the bytes of hexadecimal digits, None for None."""
    return None if text is None else JavaBytes(bytes.fromhex(text))


def encode_bytes(content: bytes | None) -> str | None:
    """Return hexadecimal digits, None for None."""
    return None if content is None else bytes(content).hex()


def bytes_of_kafka(vector: Json, ours: str | None) -> str | None:
    """Return the bytes to read back: Kafka's, where its text of a float is not ours, which then may read as another."""
    theirs: str | None = vector["result"].get("bytes")
    may_differ = vector.get("jdkDependent") and ours is not None and theirs is not None
    is_same = may_differ and same_form({"bytes": theirs}, {"bytes": ours}, texts_of_floats_vary=True)
    return theirs if is_same else ours


def same_form(expected: Json, found: Json, *, texts_of_floats_vary: bool = False) -> bool:
    """Return whether two forms say the same: floats are compared by value, for there is more than one text of each.

    Where these texts vary, so are floats within strings and bytes.
    """
    same = partial(same_form, texts_of_floats_vary=texts_of_floats_vary)
    if isinstance(expected, dict) and isinstance(found, dict):
        if expected.keys() != found.keys():
            return False
        for tag, width in (("float32", ">f"), ("float64", ">d")):
            if expected.keys() == {tag}:
                return _bits(expected[tag], width) == _bits(found[tag], width)
        if texts_of_floats_vary and expected.keys() == {"decimal"}:
            return expected == found or float(expected["decimal"]) == float(found["decimal"])
        if texts_of_floats_vary and isinstance(expected.get("bytes"), str) and isinstance(found.get("bytes"), str):
            texts = [bytes.fromhex(each["bytes"]).decode("utf-8", "backslashreplace") for each in (expected, found)]
            return same(*texts) and all(same(expected[key], found[key]) for key in expected if key != "bytes")
        return all(same(expected[key], found[key]) for key in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(same, expected, found))
    if texts_of_floats_vary and isinstance(expected, str) and isinstance(found, str):
        return _same_text(expected, found)
    return type(expected) is type(found) and bool(expected == found)


def _bits(text: str, width: str) -> bytes:
    value = float(text)
    return b"nan" if value != value else struct.pack(width, value)


_FLOAT = re.compile(r"([0-9]+\.[0-9]+(?:E-?[0-9]+)?)")
_DIGITS_OF_SINGLE_PRECISION = 10
"""No float of single precision has more of them, as any Java writes it."""


def _same_text(expected: str, found: str) -> bool:
    ours, theirs = _FLOAT.split(found), _FLOAT.split(expected)
    return len(ours) == len(theirs) and all(
        one == other or (place % 2 == 1 and _same_float(one, other))
        for place, (one, other) in enumerate(zip(ours, theirs, strict=True))
    )


def _same_float(one: str, other: str) -> bool:
    if float(one) == float(other):
        return True
    is_single = max(len(text.partition("E")[0]) - 1 for text in (one, other)) <= _DIGITS_OF_SINGLE_PRECISION
    return is_single and Float32(float(one)) == Float32(float(other))
