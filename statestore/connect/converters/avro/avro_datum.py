"""Values in Avro's binary encoding under a schema of their own, as fastavro has them: records as dicts.

What one schema wrote, another one can read, by Avro's rules of schema resolution. Schemas may come from anywhere, so
they and the values of those that hold themselves are bounded as `avro_bounds` says. Beside what
`avro_values` says fastavro takes any byte but 0 for true here, negative places in an enum for those from its end, and
the last of equal keys.

Source: the Avro 1.12 specification, "Schema Resolution".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache
from io import BytesIO
from typing import Any, Final

from statestore.connect.converters.avro.avro_bounds import (
    RESOLUTION_FACTS,
    check_bounds,
    check_nesting,
    check_value_nesting,
    facts_of,
)
from statestore.connect.converters.avro.avro_schema import library, library_errors
from statestore.connect.recursion import settle
from statestore.errors import DataException

LARGEST_SCHEMA_BYTES: Final = 1 << 20
_KEPT_SCHEMAS: Final = 256
_MALFORMED_SCHEMA: Final = "Malformed Avro schema"


@dataclass(frozen=True, eq=False)
class AvroSchema:
    """A schema that can be written and read with."""

    text: str
    parsed: Any
    name: str | None
    """The full name of a record, an enum or a fixed; of the others that of their type, None for a union."""
    named: Mapping[str, Any]
    """The types that it names, as fastavro has parsed them."""
    has_containers_for_defaults: bool
    """Whether a default is a list or a dict, of which each value has to have one of its own."""
    holds_itself: bool

    @property
    def is_bytes(self) -> bool:
        """Whether its values are bytes, of no logical type."""
        return self.parsed in ("bytes", {"type": "bytes"})


@lru_cache(_KEPT_SCHEMAS)
def avro_schema(text: str, references: tuple[tuple[str, str], ...] = ()) -> AvroSchema:
    """Return the schema of a text in JSON.

    `references` are names and texts of other schemas that it names, each after those that it names itself. Raises
    DataException for what is not a schema, too large, or too deep, and ConfigException if fastavro is not installed.
    """
    named: dict[str, Any] = {}
    for _, other in references:
        _parsed(other, named)
    parsed, holds_itself = _parsed(text, named)
    name = parsed if isinstance(parsed, str) else None
    if isinstance(parsed, dict):
        name = parsed.get("name", parsed["type"])
    defaults = [field["default"] for field in _fields([parsed, *named.values()]) if "default" in field]
    has_containers = any(isinstance(default, list | dict) for default in defaults)
    return AvroSchema(text, parsed, name, named, has_containers, holds_itself)


def _parsed(text: str, named: dict[str, Any]) -> tuple[Any, bool]:
    if len(text) > LARGEST_SCHEMA_BYTES:
        raise DataException(f"A schema is larger than {LARGEST_SCHEMA_BYTES} bytes")
    with library_errors(_MALFORMED_SCHEMA, of_schema=True):
        node = json.loads(text)
    facts = settle(facts_of(node, RESOLUTION_FACTS))
    known = dict(named)
    with library_errors(_MALFORMED_SCHEMA, of_schema=True):
        parsed = library().parse_schema(facts, named_schemas=named)
    holds_itself = check_bounds(parsed, known, may_hold_itself=True)
    with library_errors(_MALFORMED_SCHEMA, of_schema=True):
        for field in _fields([parsed]):
            _settle_default(field)
    return parsed, holds_itself


def _fields(nodes: list[Any]) -> Iterator[Any]:
    """Yield the fields of all records in schemas."""
    while nodes:
        node = nodes.pop()
        if isinstance(node, list):
            nodes.extend(node)
        elif isinstance(node, dict):
            yield from node.get("fields", ())
            nodes.extend(field["type"] for field in node.get("fields", ()))
            nodes.extend(node[name] for name in ("items", "values") if name in node)


def _settle_default(field: Any) -> None:
    """Make bytes of a default that JSON can only have as text, a character for each."""
    kind = field["type"][0] if isinstance(field["type"], list) else field["type"]
    kind = kind["type"] if isinstance(kind, dict) else kind
    if kind in ("bytes", "fixed") and isinstance(field.get("default"), str):
        field["default"] = field["default"].encode("latin-1")


def write_datum(schema: AvroSchema, value: Any) -> bytes:
    """Return a value in Avro. Raises DataException if it does not follow the schema."""
    if schema.holds_itself:
        check_value_nesting(value)
    written = BytesIO()
    with library_errors("A value can't be written in Avro"):
        library().schemaless_writer(written, schema.parsed, value)
    return written.getvalue()


def read_datum(writer: AvroSchema, reader: AvroSchema | None, data: bytes) -> Any:
    """Return the value that bytes of one schema are, as another one has it; None for as it is.

    Raises DataException if the bytes are not all of one value, or the schemas don't go together.
    """
    if writer.holds_itself:
        check_nesting(writer.parsed, writer.named, data)
    source = BytesIO(data)
    resolved = None if reader is None or reader.text == writer.text else reader
    with library_errors("Malformed Avro"):
        value = library().schemaless_reader(source, writer.parsed, resolved and resolved.parsed)
    if source.tell() != len(data):
        raise DataException(f"Malformed Avro: there are {len(data) - source.tell()} bytes behind the value")
    return deepcopy(value) if resolved is not None and resolved.has_containers_for_defaults else value
