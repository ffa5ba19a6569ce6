"""Vectors of header converters: what they write and read again, and what they read.

Those of seed 2 are ours: what the first set leaves out of JSON and encodings, run on the jars of Kafka 4.3.1 as well.
"""

from __future__ import annotations

import functools
from typing import Any

from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.json import JsonConverter
from statestore.connect.converters.simple import ByteArrayConverter, StringConverter
from tests.support.connect.forms import (
    Character,
    Json,
    decode_bytes,
    decode_schema,
    decode_value,
    encode_bytes,
    encode_schema_and_value,
)
from tests.support.connect.running import error_name, guarded

CONVERTERS: dict[str, type[HeaderConverter]] = {
    "string": StringConverter,
    "json": JsonConverter,
    "bytearray": ByteArrayConverter,
}


def run(vector: Json) -> Json:
    """Configure a converter as Kafka does it, and read or write one header."""
    config = {"converter.type": "header"} | {
        name: value for name, value in (vector.get("config") or {}).items() if (name, value) != ("converter.type", None)
    }
    with CONVERTERS[vector["converter"]]() as converter:
        try:
            converter.configure({**config, "mode": "compat"})
        except Exception as error:
            return {"error": error_name(error), "phase": "configure"}
        if vector["op"] == "toConnectHeader":
            return read(converter, decode_bytes(vector["bytes"]))
        value = decode_value(vector["value"])
        if isinstance(converter, StringConverter) and isinstance(value, Character):
            value = value.text
        written = converter.from_connect_header("t", "h", decode_schema(vector["schema"]), value)
        return {"bytes": encode_bytes(written), "readBack": guarded(lambda: read(converter, written))}


def read(converter: HeaderConverter, content: bytes | None) -> Json:
    found: Any = encode_schema_and_value(converter.to_connect_header("t", "h", content))
    return sorted_maps(found) if isinstance(converter, JsonConverter) else found


def sorted_maps(form: Json) -> Json:
    """Return a form with the entries of its maps sorted by key: those that Java's converter makes have no order."""
    if isinstance(form, list):
        return [sorted_maps(each) for each in form]
    if not isinstance(form, dict):
        return form
    if form.keys() == {"map"}:
        return {"map": sorted(sorted_maps(form["map"]), key=functools.cmp_to_key(compare_entries))}
    return {name: sorted_maps(each) for name, each in form.items()}


def compare_entries(one: Json, other: Json) -> int:
    first, second = (decode_value(entry[0]) for entry in (one, other))
    if isinstance(first, str) and isinstance(second, str):
        first, second = (text.encode("utf-16-be", "surrogatepass") for text in (first, second))
    return (first > second) - (first < second)
