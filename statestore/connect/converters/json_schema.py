"""Schemas as JSON, as Kafka's converter writes them beside values and reads them again.

    schema := {"type": ..., "items" | "keys", "values" | "fields": ..., "optional": ..., "name", "version", "doc",
               "parameters", "default": ...}

A field of a struct is its schema with "field", its name, as the last member. Source: Kafka's `JsonSchema` and
`JsonConverter`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from statestore.connect.scalars import Int32, in_range
from statestore.connect.schema import Field, Schema, Type
from statestore.errors import DataException
from statestore.errors.data import SchemaBuilderException
from statestore.errors.readable import shape_of

Convert = Callable[[Schema, Any], Any]
"""Converts the default of a schema, which is passed without it."""

_DEEPEST: Final = 100
"""Levels of schemas within schemas: more than anybody has, and few enough for what recurses into schemas."""

_TYPE_NAMES: Final = {known: known.value for known in Type} | {Type.FLOAT32: "float", Type.FLOAT64: "double"}
_TYPES: Final = {name: known for known, name in _TYPE_NAMES.items()}


def schema_to_json(schema: Schema | None, convert: Convert, depth: int = 0) -> dict[str, Any] | None:
    """Return the JSON of a schema, None for None; `convert` makes that of its default.

    Raises DataException if it nests too deep, or holds its own default.
    """
    if schema is None:
        return None
    if depth == _DEEPEST:
        raise DataException(f"Schemas nest deeper than {_DEEPEST} levels")
    made: dict[str, Any] = {"type": _TYPE_NAMES[schema.type]}
    if schema.type is Type.ARRAY:
        made["items"] = schema_to_json(schema.value_schema, convert, depth + 1)
    elif schema.type is Type.MAP:
        made["keys"] = schema_to_json(schema.key_schema, convert, depth + 1)
        made["values"] = schema_to_json(schema.value_schema, convert, depth + 1)
    elif schema.type is Type.STRUCT:
        made["fields"] = [
            {**(schema_to_json(each.schema, convert, depth + 1) or {}), "field": each.name} for each in schema.fields
        ]
    made["optional"] = schema.optional
    facts = {"name": schema.name, "version": schema.version, "doc": schema.doc}
    made.update((name, fact) for name, fact in facts.items() if fact is not None)
    if schema.parameters:
        made["parameters"] = dict(schema.parameters)
    if schema.default is not None:
        made["default"] = convert(schema, schema.default)
    return made


class SchemaReader:
    """Reads schemas from JSON. `strict` refuses what Kafka passes over: facts that are not what they have to be."""

    def __init__(self, convert: Convert, *, strict: bool) -> None:
        self._convert = convert
        self._strict = strict

    def read(self, node: Any, depth: int = 0) -> Schema | None:
        """Return the schema of a JSON value, None for None. Raises DataException if it is not one."""
        if node is None:
            return None
        if depth == _DEEPEST:
            raise DataException(f"Schemas nest deeper than {_DEEPEST} levels")
        name = node.get("type") if isinstance(node, dict) else None
        if not isinstance(name, str):
            raise DataException("Schema must contain 'type' field")
        if name not in _TYPES:
            raise DataException(f"Unknown schema type: {shape_of(name)}")
        made = Schema(_TYPES[name], **self._facts(node), **self._parts(node, _TYPES[name], depth + 1))
        return self._with_default(made, node["default"]) if "default" in node else made

    def _parts(self, node: dict[str, Any], type: Type, depth: int) -> dict[str, Any]:
        if type is Type.ARRAY:
            if node.get("items") is None:
                raise DataException("Array schema did not specify the element type")
            return {"value_schema": self.read(node["items"], depth)}
        if type is Type.MAP:
            parts = {}
            for member, what, argument in (("keys", "key", "key_schema"), ("values", "value", "value_schema")):
                if member not in node:
                    raise DataException(f"Map schema did not specify the {what} type")
                parts[argument] = self.read(node[member], depth)
            for argument, schema in parts.items():
                if schema is None:
                    raise SchemaBuilderException(f"{argument} of a map cannot be null")
            return parts
        if type is not Type.STRUCT:
            return {}
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise DataException('Struct schema\'s "fields" argument is not an array.')
        return {"fields": [self._field(each, depth) for each in fields]}

    def _field(self, node: Any, depth: int) -> Field:
        name = node.get("field") if isinstance(node, dict) else None
        if not isinstance(name, str):
            raise DataException("Struct schema's field name not specified properly")
        schema = self.read(node, depth)
        if not name:
            raise SchemaBuilderException("fieldName cannot be null.")
        assert schema is not None
        return Field(name, schema)

    def _facts(self, node: dict[str, Any]) -> dict[str, Any]:
        facts: dict[str, Any] = {}
        for name, kind in (("optional", bool), ("name", str), ("version", int), ("doc", str), ("parameters", dict)):
            fact = node.get(name)
            if isinstance(fact, kind) and not (kind is int and isinstance(fact, bool)):
                facts[name] = fact
            elif fact is not None and self._strict:
                raise DataException(f"The {name} of a schema can't be {shape_of(fact)}")
        if any(not isinstance(each, str) for each in facts.get("parameters", {}).values()):
            raise DataException("Schema parameters must have string values.")
        if "version" in facts:
            if self._strict and not in_range(facts["version"], 32):
                raise DataException("The version of a schema does not fit into 32 bits")
            facts["version"] = int(Int32.wrapped(facts["version"]))
        return facts

    def _with_default(self, schema: Schema, node: Any) -> Schema:
        default = self._convert(schema, node)
        if default is None:
            if not schema.optional:
                raise SchemaBuilderException("Invalid default value: null for a schema that is not optional")
            return schema
        return replace(schema, default=default)
