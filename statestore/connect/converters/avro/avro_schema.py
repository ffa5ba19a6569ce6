"""Schemas as Avro has them: made of typed ones, and typed ones made of them.

    "int"      INT8, INT16, INT32; Date with logicalType "date", Time with "time-millis"
    "long"     INT64; Timestamp with "timestamp-millis"
    "float"    FLOAT32             "double"   FLOAT64             "boolean"  BOOLEAN
    "string"   STRING              "bytes"    BYTES; Decimal with "decimal"
    "array"    ARRAY               "record"   STRUCT
    "map"      MAP, if its keys are STRING and never None; else an array of records of key and value
    ["null", ...]  optional

The other way "enum" is STRING and "fixed" BYTES, too. Source: the Avro 1.12 specification.

Schemas come with headers that anybody may have written: `avro_bounds` says what is too much.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Final

from statestore.connect.converters.avro.avro_bounds import DEEPEST, check_bounds, facts_of, schema_too_deep
from statestore.connect.logical_types import scale_of_schema
from statestore.connect.recursion import settle
from statestore.connect.schema import LogicalName, Schema, Type, logical_name_of
from statestore.errors import ConfigException, DataException

_SILENT: Final = ("SchemaResolutionError", "UnicodeDecodeError", "IndexError")
"""Exceptions whose text does not quote a value."""


def library() -> ModuleType:
    """Return fastavro. Raises ConfigException if it is not installed."""
    try:
        import fastavro
    except ModuleNotFoundError as missing:
        if missing.name != "fastavro":
            raise
        raise ConfigException("Avro needs fastavro: pip install 'statestore[avro]'") from missing
    return fastavro


@contextmanager
def library_errors(problem: str, *, of_schema: bool = False) -> Iterator[None]:
    """Raise DataException with the problem for whatever fastavro raises: malformed bytes meet its every exception.

    The text of fastavro is kept if it is about a schema (`of_schema`), or can't quote a value.
    """
    try:
        yield
    except MemoryError:
        raise
    except EOFError as cause:
        raise DataException(f"{problem}: there are fewer bytes than its schema asks for") from cause
    except Exception as cause:
        is_silent = of_schema or type(cause).__name__ in _SILENT
        raise DataException(f"{problem}: {type(cause).__name__}{f': {cause}' if is_silent else ''}"[:300]) from None


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
_CONNECT_TYPES: Final = {avro: known for known, avro in _PRIMITIVES.items()}  # of the three of "int" the last: INT32
_LOGICAL_SCHEMAS: Final = {
    ("int", "date"): Schema.DATE_SCHEMA,
    ("int", "time-millis"): Schema.TIME_SCHEMA,
    ("long", "timestamp-millis"): Schema.TIMESTAMP_SCHEMA,
}
_LOGICAL: Final = {schema.name: base_and_type for base_and_type, schema in _LOGICAL_SCHEMAS.items()}
_LEGAL_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*")


def holds_pairs(schema: Schema) -> bool:
    """Return whether a map's keys are not those of Avro, so that it is an array of keys and values."""
    keys = schema.key_schema
    return schema.type is Type.MAP and (keys is None or keys.type is not Type.STRING or keys.optional)


def schema_to_avro(schema: Schema) -> Any:
    """Return the Avro schema of a typed one, as JSON. Raises DataException if an element has none, or for its depth."""
    return _AvroWriter().write(schema, 0)


class _AvroWriter:
    """Makes one Avro schema; in it every record has a name of its own, and `names` how many others wanted it."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}

    def write(self, schema: Schema | None, depth: int) -> Any:
        if schema is None:
            raise DataException("Avro has no schema for elements of which none is known")
        if depth == DEEPEST:
            raise schema_too_deep()
        made = self._required(schema, depth + 1)
        return ["null", made] if schema.optional else made

    def _required(self, schema: Schema, depth: int) -> Any:
        logical_name = logical_name_of(schema)
        if logical_name == LogicalName.DECIMAL:
            scale = scale_of_schema(schema)
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
        legal_name = name if name and _LEGAL_NAME.fullmatch(name) else f"statestore.{kind}{len(self._names)}"
        full_name = legal_name
        while full_name in self._names:
            self._names[legal_name] += 1
            full_name = f"{legal_name}_{self._names[legal_name]}"
        self._names[full_name] = 0
        used = {part for part, _ in parts}
        fields = []
        for place, (part, schema) in enumerate(parts):
            legal = part if _LEGAL_NAME.fullmatch(part) and "." not in part else f"field{place}"
            while legal != part and legal in used:
                legal += "_"
            fields.append({"name": legal, "type": self.write(schema, depth)})
        return {"type": "record", "name": full_name, "fields": fields}


@dataclass(frozen=True)
class AvroType:
    """How a value is written. `null_branch` is the place of null in a union of two; None if it is not one.

    A map is an array of records of key and value, which are the same bytes.
    """

    kind: str
    schema: Schema | None
    null_branch: int | None = None
    parts: tuple[AvroType, ...] = ()
    """Of an array its elements, of a record its fields."""
    symbols: tuple[str, ...] = ()
    size_bytes: int = 0

    def with_schema(self, schema: Schema) -> AvroType:
        """Return the type with the typed schema that it was made of, which says more."""
        inner: list[Schema | None] = [each.schema for each in schema.fields]
        parts = self.parts
        if schema.type is Type.MAP:
            (entry,) = self.parts
            parts, inner = entry.parts, [schema.key_schema, schema.value_schema]
        elif schema.type is Type.ARRAY:
            inner = [schema.value_schema]
        made = tuple(part.with_schema(each) for part, each in zip(parts, inner, strict=True) if each is not None)
        if schema.type is Type.MAP:
            made = (replace(self.parts[0], parts=made),)
        return replace(self, schema=schema, parts=made)


def avro_type_of(node: Any) -> AvroType:
    """Return the type of an Avro schema, as JSON. Raises DataException if it is not one or has no typed schema."""
    facts = settle(facts_of(node))
    with library_errors("Malformed Avro schema", of_schema=True):
        parsed = library().parse_schema(facts)
    check_bounds(parsed)
    return _AvroReader().read(parsed)


class _AvroReader:
    """Reads one schema that fastavro parsed, in which all names are full ones.

    `named` are the types that it has named so far. Bounds were checked: no type holds itself.
    """

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def read(self, node: Any) -> AvroType:
        if isinstance(node, list):
            return self._union(node)
        if isinstance(node, str) and node in self._named:
            return self._named[node]
        kind = node if isinstance(node, str) else node["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._named_type(node, kind)
        if kind == "array":
            element = self.read(node["items"])
            return AvroType("array", Schema.array(element.schema), parts=(element,))
        if kind == "map":
            key, value = AvroType("string", Schema(Type.STRING)), self.read(node["values"])
            pair = AvroType("record", None, parts=(key, value))
            return AvroType("array", Schema.map(key.schema, value.schema), parts=(pair,))
        if kind == "null":
            return AvroType("null", None)
        logical = None if isinstance(node, str) else _logical_schema(node, kind)
        return AvroType(kind, logical or Schema(_CONNECT_TYPES[kind]))

    def _union(self, branches: list[Any]) -> AvroType:
        nulls = [each in ("null", {"type": "null"}) for each in branches]
        if sorted(nulls) == [False, True] and not isinstance(branches[nulls.index(False)], list):
            found = self.read(branches[nulls.index(False)])
            if found.schema is not None:
                return replace(found, schema=found.schema.as_optional(), null_branch=nulls.index(True))
        raise DataException("A union has a typed schema only if it is of null and one other type")

    def _named_type(self, node: Mapping[str, Any], kind: str) -> AvroType:
        name = node["name"]
        if not _LEGAL_NAME.fullmatch(name):
            raise DataException(f"An Avro {kind} must have a name of letters, digits and underscores")
        if kind == "enum":
            made = AvroType("enum", Schema(Type.STRING), symbols=tuple(node["symbols"]))
        elif kind == "fixed":
            made = AvroType("fixed", _logical_schema(node, "fixed") or Schema(Type.BYTES), size_bytes=node["size"])
        else:
            made = self._record(node)
        self._named[name] = made
        return made

    def _record(self, node: Mapping[str, Any]) -> AvroType:
        parts = []
        schemas = []
        for each in node["fields"]:
            part = self.read(each["type"])
            if part.schema is None or not isinstance(each["name"], str):
                raise DataException("A field of an Avro record must have a name, and a type other than null")
            parts.append(part)
            schemas.append((each["name"], part.schema))
        doc = node.get("doc")
        schema = Schema.struct(schemas, name=node["name"], doc=doc if isinstance(doc, str) else None)
        return AvroType("record", schema, parts=tuple(parts))


def _logical_schema(node: Mapping[str, Any], kind: str) -> Schema | None:
    logical = node.get("logicalType")
    scale = node.get("scale", 0)
    if logical == "decimal" and kind in ("bytes", "fixed") and isinstance(scale, int):
        return Schema.decimal(scale)
    return _LOGICAL_SCHEMAS.get((kind, logical)) if isinstance(logical, str) else None
