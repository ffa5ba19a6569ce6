"""Vectors of ConnectHeaders: steps on lists of headers, each with what it returned and the list after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.connect.header import ConnectHeader
from statestore.connect.headers import ConnectHeaders, HeaderTransform
from statestore.connect.schema import Schema, SchemaAndValue
from statestore.connect.values.compat import COMPAT
from statestore.errors.data import NullValueException
from tests.support.connect.forms import Json, decode_schema, decode_value, encode_headers
from tests.support.connect.header_steps import HeaderSteps
from tests.support.connect.running import error_name

PYTHON_ERRORS: dict[tuple[str, type[Exception]], str] = {
    ("apply", RuntimeError): "ConcurrentModificationException",
    ("iteratorRemove", IndexError): "NoSuchElementException",
    ("allWithNameRemove", IndexError): "NoSuchElementException",
    ("allWithNameRemove", TypeError): "UnsupportedOperationException",
}
"""What a step ends with where Java has exceptions of its own, and Python errors of its own."""


def run(vector: Json) -> Json:
    """Run the steps of a vector."""
    steps = Steps(ConnectHeaders)
    result: Json = {"steps": steps.run_all(vector)}
    if len(steps.named) > 1:
        result["finally"] = {name: encode_headers(headers) for name, headers in steps.named.items()}
    return result


class Steps(HeaderSteps[ConnectHeaders]):
    def error_of(self, op: str, error: Exception) -> str:
        return PYTHON_ERRORS.get((op, type(error))) or error_name(error)

    def state_of(self, headers: ConnectHeaders) -> Json:
        return {"headers": encode_headers(headers)}

    def do(self, headers: ConnectHeaders, step: Json, of_java: Json) -> Json:
        op, key = step["op"], step.get("key")
        if op in OPS:
            assert OPS[op](headers, key, step, decode_value(step.get("value"))) is headers
            return {}
        if op in QUESTIONS:
            return {"returned": QUESTIONS[op](headers, key)}
        if op == "duplicate":
            self.named[step["as"]] = headers.duplicate()
            return {}
        if op == "equals":
            other = self.named[step["other"]]
            equal = headers == other
            assert (headers != other) is not equal
            return {"returned": equal, "sameHash": hash(headers) == hash(other) if equal else of_java.get("sameHash")}
        assert op in ("iteratorRemove", "allWithNameRemove"), op
        if op == "iteratorRemove":
            del headers[step["index"]]
        else:
            found: Any = headers.all_with_name(key)
            assert isinstance(found[0], ConnectHeader)
            del found[0]
        return {}


def schema_of(step: Json) -> Schema | None:
    return decode_schema(step.get("schema"))


def apply(headers: ConnectHeaders, key: Any, step: Json, _: Any) -> ConnectHeaders:
    function = transform(headers, step["transform"])
    return headers.apply(key, function) if "key" in step else headers.apply(function)


def transform(headers: ConnectHeaders, form: Json) -> HeaderTransform:
    return lambda header: TRANSFORMS[form["kind"]](header, headers, form)


def print_value(header: ConnectHeader, headers: ConnectHeaders, form: Json) -> ConnectHeader:
    return header.with_value(Schema.OPTIONAL_STRING_SCHEMA, COMPAT.convert_to_string(header.schema, header.value))


def parse_value(header: ConnectHeader, headers: ConnectHeaders, form: Json) -> ConnectHeader:
    parsed = COMPAT.parse_string(header.value)
    if parsed is None:
        raise NullValueException("nothing was parsed")  # Java's null, whose schema the transform asks for
    return header.with_value(parsed.schema, parsed.value)


TRANSFORMS: dict[str, Callable[[ConnectHeader, ConnectHeaders, Json], ConnectHeader | None]] = {
    "identity": lambda header, headers, form: header,
    "drop": lambda header, headers, form: None,
    "dropNulls": lambda header, headers, form: None if header.value is None else header,
    "rename": lambda header, headers, form: header.rename(form["to"]),
    "with": lambda header, headers, form: header.with_value(decode_schema(form["schema"]), decode_value(form["value"])),
    "print": print_value,
    "parse": parse_value,
    "appendCopy": lambda header, headers, form: headers.add(header) and header,
}

OPS: dict[str, Callable[[ConnectHeaders, Any, Json, Any], ConnectHeaders]] = {
    "add": lambda headers, key, step, value: headers.add(key, value, schema_of(step)),
    "addSchemaAndValue": lambda headers, key, step, value: headers.add(
        key, SchemaAndValue(schema_of(step), value) if "value" in step else None
    ),
    "addNullHeader": lambda headers, key, step, value: headers.add(None),  # type: ignore[call-overload]
    "addString": lambda headers, key, step, value: headers.add_string(key, value),
    "addBytes": lambda headers, key, step, value: headers.add_bytes(key, value),
    "addBoolean": lambda headers, key, step, value: headers.add_boolean(key, value),
    "addByte": lambda headers, key, step, value: headers.add_byte(key, value),
    "addShort": lambda headers, key, step, value: headers.add_short(key, value),
    "addInt": lambda headers, key, step, value: headers.add_int(key, value),
    "addLong": lambda headers, key, step, value: headers.add_long(key, value),
    "addFloat": lambda headers, key, step, value: headers.add_float(key, value),
    "addDouble": lambda headers, key, step, value: headers.add_double(key, value),
    "addList": lambda headers, key, step, value: headers.add_list(key, value, schema_of(step)),
    "addMap": lambda headers, key, step, value: headers.add_map(key, value, schema_of(step)),
    "addStruct": lambda headers, key, step, value: headers.add_struct(key, value),
    "addDecimal": lambda headers, key, step, value: headers.add_decimal(key, value),
    "addDate": lambda headers, key, step, value: headers.add_date(key, value),
    "addTime": lambda headers, key, step, value: headers.add_time(key, value),
    "addTimestamp": lambda headers, key, step, value: headers.add_timestamp(key, value),
    "remove": lambda headers, key, step, value: headers.remove(key),
    "clear": lambda headers, key, step, value: headers.clear(),
    "retainLatest": lambda headers, key, step, value: (
        headers.retain_latest(key) if "key" in step else headers.retain_latest()
    ),
    "apply": apply,
}

QUESTIONS: dict[str, Callable[[ConnectHeaders, Any], Any]] = {
    "size": lambda headers, key: len(headers),
    "isEmpty": lambda headers, key: not headers,
    "lastWithName": lambda headers, key: next(iter(encode_headers(filter(None, [headers.last_with_name(key)]))), None),
    "allWithName": lambda headers, key: encode_headers(headers.all_with_name(key)),
}
