"""Schemas as Avro has them: made of typed ones, and typed ones made of them.

    "int"      INT8, INT16, INT32; Date with logicalType "date", Time with "time-millis"
    "long"     INT64; Timestamp with "timestamp-millis"
    "float"    FLOAT32             "double"   FLOAT64             "boolean"  BOOLEAN
    "string"   STRING              "bytes"    BYTES; Decimal with "decimal"
    "array"    ARRAY               "record"   STRUCT
    "map"      MAP, if its keys are STRING and never None; else an array of records of key and value
    ["null", ...]  optional

The other way "enum" is STRING and "fixed" BYTES, too. Source: the Avro 1.12 specification.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from statestore.connect.schema import DATE_NAME, DECIMAL_NAME, TIME_NAME, TIMESTAMP_NAME, Schema, Type
from statestore.connect.schemas import (
    DATE_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    array_schema,
    decimal_schema,
    map_schema,
    struct_schema,
)
from statestore.errors import DataException

_DEEPEST: Final = 100
_MOST_DECIMAL_DIGITS: Final = 38
"""The precision that is claimed for decimals; Avro wants one, and Connect's have none."""

_PRIMITIVES: Final = {
    Type.INT8: "int",
    Type.INT16: "int",
    Type.INT32: "int",
    Type.INT64: "long",
    Type.FLOAT32: "float",
    Type.FLOAT64: "double",
    Type.BOOLEAN: "boolean",
    Type.STRING: "string",
    Type.BYTES: "bytes",
}
_CONNECT_TYPES: Final = {
    "int": Type.INT32,
    "long": Type.INT64,
    "float": Type.FLOAT32,
    "double": Type.FLOAT64,
    "boolean": Type.BOOLEAN,
    "string": Type.STRING,
    "bytes": Type.BYTES,
    "enum": Type.STRING,
    "fixed": Type.BYTES,
}
_LOGICAL: Final = {
    DATE_NAME: ("int", "date"),
    TIME_NAME: ("int", "time-millis"),
    TIMESTAMP_NAME: ("long", "timestamp-millis"),
}
_LOGICAL_SCHEMAS: Final = {
    ("int", "date"): DATE_SCHEMA,
    ("int", "time-millis"): TIME_SCHEMA,
    ("long", "timestamp-millis"): TIMESTAMP_SCHEMA,
}
_LEGAL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


def holds_pairs(schema: Schema) -> bool:
    """Return whether a map's keys are not those of Avro, so that it is an array of keys and values."""
    keys = schema.key_schema
    return schema.type is Type.MAP and (keys is None or keys.type is not Type.STRING or keys.optional)


def logical_name_of(schema: Schema) -> str | None:
    """Return the name of a logical type if a schema is one, under that name and of its type."""
    base = "bytes" if schema.name == DECIMAL_NAME else _LOGICAL.get(str(schema.name), ("", ""))[0]
    return schema.name if base and _CONNECT_TYPES[base] is schema.type else None


def schema_to_avro(schema: Schema) -> Any:
    """Return the Avro schema of a typed one, as JSON. Raises DataException if an element has none, or for its depth."""
    return _AvroWriter().write(schema, 0)


class _AvroWriter:
    """Makes one Avro schema; in it every record has a name of its own."""

    def __init__(self) -> None:
        self._names: set[str] = set()

    def write(self, schema: Schema | None, depth: int) -> Any:
        if schema is None:
            raise DataException("Avro has no schema for elements of which none is known")
        if depth == _DEEPEST:
            raise DataException(f"Schemas nest deeper than {_DEEPEST} levels")
        made = self._required(schema, depth + 1)
        return ["null", made] if schema.optional else made

    def _required(self, schema: Schema, depth: int) -> Any:
        logical_name = logical_name_of(schema)
        if logical_name == DECIMAL_NAME:
            scale = _scale(schema)
            # Avro has no zeros before the point, and no more digits behind it than there are at all.
            logical = {"logicalType": "decimal", "precision": max(_MOST_DECIMAL_DIGITS, scale), "scale": scale}
            return {"type": "bytes", **(logical if scale >= 0 else {})}
        if logical_name is not None:
            base, logical_type = _LOGICAL[logical_name]
            return {"type": base, "logicalType": logical_type}
        if schema.type is Type.ARRAY:
            return {"type": "array", "items": self.write(schema.value_schema, depth)}
        if holds_pairs(schema):
            parts = [("key", schema.key_schema), ("value", schema.value_schema)]
            return {"type": "array", "items": self._record(None, "MapEntry", parts, depth)}
        if schema.type is Type.MAP:
            return {"type": "map", "values": self.write(schema.value_schema, depth)}
        if schema.type is Type.STRUCT:
            return self._record(schema.name, "Struct", [(each.name, each.schema) for each in schema.fields], depth)
        return _PRIMITIVES[schema.type]

    def _record(self, name: str | None, kind: str, parts: list[tuple[str, Schema | None]], depth: int) -> Any:
        full_name = name if name and _LEGAL_NAME.fullmatch(name) else f"statestore.{kind}{len(self._names)}"
        while full_name in self._names:
            full_name += "_"
        self._names.add(full_name)
        used = {part for part, _ in parts}
        fields = []
        for place, (part, schema) in enumerate(parts):
            legal = part if _LEGAL_NAME.fullmatch(part) and "." not in part else f"field{place}"
            while legal != part and legal in used:
                legal += "_"
            fields.append({"name": legal, "type": self.write(schema, depth)})
        return {"type": "record", "name": full_name, "fields": fields}


def _scale(schema: Schema) -> int:
    try:
        return int(schema.parameters["scale"])
    except (KeyError, ValueError) as cause:
        raise DataException("Invalid Decimal schema: it has no scale") from cause


@dataclass(frozen=True)
class AvroType:
    """How a value is written. `null_branch` is the place of null in a union of two; None if it is none."""

    kind: str
    schema: Schema | None
    null_branch: int | None = None
    parts: tuple[AvroType, ...] = ()
    """Of an array or a map its elements, of a record its fields."""
    symbols: tuple[str, ...] = ()
    size_bytes: int = 0

    def with_schema(self, schema: Schema) -> AvroType:
        """Return the type with the typed schema that it was made of, which says more."""
        if self.kind == "record":
            fields = zip(self.parts, schema.fields, strict=True)
            parts = tuple(part.with_schema(each.schema) for part, each in fields)
        elif holds_pairs(schema) and schema.key_schema is not None and schema.value_schema is not None:
            (entry,) = self.parts
            key, value = entry.parts
            pair = (key.with_schema(schema.key_schema), value.with_schema(schema.value_schema))
            parts = (replace(entry, parts=pair),)
        elif schema.value_schema is not None:
            parts = (self.parts[0].with_schema(schema.value_schema),)
        else:
            parts = ()
        return replace(self, schema=schema, parts=parts)


def avro_type_of(node: Any) -> AvroType:
    """Return the type that an Avro schema, as JSON, is. Raises DataException if it is none, or has no typed schema."""
    return _AvroReader().read(node, 0, "")


class _AvroReader:
    """Reads one Avro schema; `named` are the types that it has named so far, None while they are read."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType | None] = {}

    def read(self, node: Any, depth: int, namespace: str) -> AvroType:
        if depth == _DEEPEST:
            raise DataException(f"Schemas nest deeper than {_DEEPEST} levels")
        if isinstance(node, list):
            return self._union(node, depth, namespace)
        if isinstance(node, str):
            return self._primitive(node, namespace)
        kind = node.get("type") if isinstance(node, dict) else None
        if isinstance(kind, dict | list):
            return self.read(kind, depth + 1, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._named_type(node, kind, depth, namespace)
        if kind == "array":
            element = self.read(node.get("items"), depth + 1, namespace)
            return AvroType("array", array_schema(element.schema), parts=(element,))
        if kind == "map":
            element = self.read(node.get("values"), depth + 1, namespace)
            return AvroType("map", map_schema(Schema(Type.STRING), element.schema), parts=(element,))
        if not isinstance(kind, str):
            raise DataException("An Avro schema must have a type")
        found = self._primitive(kind, namespace)
        return replace(found, schema=_logical_schema(node, kind) or found.schema)

    def _primitive(self, name: str, namespace: str) -> AvroType:
        if name == "null":
            return AvroType("null", None)
        if name in _CONNECT_TYPES and name not in ("enum", "fixed"):
            return AvroType(name, Schema(_CONNECT_TYPES[name]))
        full_name = name if "." in name or not namespace else f"{namespace}.{name}"
        if full_name not in self._named:
            raise DataException(f"Unknown Avro type: {name[:80]}")
        found = self._named[full_name]
        if found is None:
            raise DataException(f"The Avro type {name[:80]} holds itself, which no typed schema can")
        return found

    def _union(self, branches: list[Any], depth: int, namespace: str) -> AvroType:
        found = [self.read(each, depth + 1, namespace) for each in branches]
        places = [place for place, each in enumerate(found) if each.kind == "null"]
        others = [each for each in found if each.kind != "null"]
        if len(found) != 2 or len(places) != 1 or others[0].null_branch is not None or others[0].schema is None:
            raise DataException("A union other than of null and one type has no typed schema")
        return replace(others[0], schema=others[0].schema.as_optional(), null_branch=places[0])

    def _named_type(self, node: Mapping[str, Any], kind: str, depth: int, namespace: str) -> AvroType:
        name = node.get("name")
        if not isinstance(name, str) or not _LEGAL_NAME.fullmatch(name):
            raise DataException(f"An Avro {kind} must have a name of letters, digits and underscores")
        space = name.rpartition(".")[0] if "." in name else node.get("namespace", namespace)
        full_name = name if "." in name or not space else f"{space}.{name}"
        if full_name in self._named:
            raise DataException(f"The Avro type {full_name[:80]} is there twice")
        self._named[full_name] = None
        if kind in ("enum", "fixed"):
            made = _enum_or_fixed(node, kind)
        else:
            made = self._record(node, full_name, depth, str(space))
        self._named[full_name] = made
        return made

    def _record(self, node: Mapping[str, Any], full_name: str, depth: int, namespace: str) -> AvroType:
        fields = node.get("fields")
        if not isinstance(fields, list) or not all(isinstance(each, dict) for each in fields):
            raise DataException("The fields of an Avro record must be an array of objects")
        parts = []
        schemas = []
        for each in fields:
            part = self.read(each.get("type"), depth + 1, namespace)
            if part.schema is None or not isinstance(each.get("name"), str):
                raise DataException("A field of an Avro record must have a name, and a type other than null")
            parts.append(part)
            schemas.append((each["name"], part.schema))
        doc = node.get("doc")
        schema = struct_schema(schemas, name=full_name, doc=doc if isinstance(doc, str) else None)
        return AvroType("record", schema, parts=tuple(parts))


def _enum_or_fixed(node: Mapping[str, Any], kind: str) -> AvroType:
    if kind == "enum":
        symbols = node.get("symbols")
        if not isinstance(symbols, list) or not all(isinstance(each, str) for each in symbols):
            raise DataException("The symbols of an Avro enum must be an array of texts")
        return AvroType("enum", Schema(Type.STRING), symbols=tuple(symbols))
    size = node.get("size")
    if not isinstance(size, int) or isinstance(size, bool) or size < 0:
        raise DataException("The size of an Avro fixed must be a count of bytes")
    return AvroType("fixed", _logical_schema(node, "fixed") or Schema(Type.BYTES), size_bytes=size)


def _logical_schema(node: Mapping[str, Any], kind: str) -> Schema | None:
    logical = node.get("logicalType")
    scale = node.get("scale", 0)
    if logical == "decimal" and kind in ("bytes", "fixed") and isinstance(scale, int):
        return decimal_schema(scale)
    return _LOGICAL_SCHEMAS.get((kind, logical)) if isinstance(logical, str) else None
