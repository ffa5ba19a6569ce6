"""Vectors of Kafka Connect's `Values`, on the mode that is compatible with it."""

from __future__ import annotations

import re
from typing import Any

from statestore.connect.values.compat import COMPAT
from tests.support.connect.forms import Json, decode_schema, decode_value, encode_schema, encode_schema_and_value
from tests.support.connect.forms import encode_value as encode
from tests.support.connect.running import guarded


def run(vector: Json) -> Json:
    """Return what came of a vector."""
    operation = vector["op"]
    if operation == "parseString":
        return _parsed(vector["input"])
    value = decode_value(vector["value"])
    if operation == "inferSchema":
        return {"schema": encode_schema(COMPAT.infer_schema(value))}
    arguments: list[Any] = [decode_schema(vector["schema"]), value]
    if operation == "convertToDecimal":
        arguments.append(vector["scale"])
    return {"value": encode(getattr(COMPAT, _snake(operation))(*arguments))}


def _parsed(text: str | None) -> Json:
    found = COMPAT.parse_string(text)
    result = encode_schema_and_value(found)
    if found is not None and found.value is not None:
        result["reprint"] = guarded(lambda: {"value": encode(COMPAT.convert_to_string(found.schema, found.value))})
    return result


def _snake(name: str) -> str:
    return re.sub("([A-Z])", lambda letter: f"_{letter[0].lower()}", name)
