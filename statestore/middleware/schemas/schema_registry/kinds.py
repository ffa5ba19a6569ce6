"""The kinds of schemas, by the names that Confluent's registry has for them, and the first of them, Avro.

kind       schema                                   a value is
AVRO       Avro's, in JSON                          what fastavro has: records are dicts
JSON       JSON Schema                              what Python's json has
PROTOBUF   a FileDescriptorProto, in base64         a message
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from statestore.connect.converters.avro.avro_datum import LARGEST_SCHEMA_BYTES, avro_schema, read_datum, write_datum
from statestore.errors import DataException, SerializationError
from statestore.errors.middleware import IncompatibleSchemaError
from statestore.middleware.schemas.schema_registry.ids import RegisteredSchema
from statestore.middleware.schemas.schema_registry.json_kind import JSON, strings_of
from statestore.middleware.schemas.schema_registry.parsed_schema import ParsedSchema, SchemaKind
from statestore.middleware.schemas.schema_registry.protobuf_kind import PROTOBUF, schema_of_messages

_KEPT_SCHEMAS: Final = 256


def _parse_avro(registered: RegisteredSchema) -> ParsedSchema:
    parsed = avro_schema(registered.text, registered.references)
    return ParsedSchema(registered, AVRO, parsed.name, parsed)


def _write_avro(schema: ParsedSchema, value: Any) -> bytes:
    """Bytes under the schema "bytes" stand as they are, without their length. Source: Confluent's serializers."""
    if not schema.inner.is_bytes:
        return write_datum(schema.inner, value)
    if not isinstance(value, bytes):
        raise SerializationError(f"the schema says bytes, and the value is of type {type(value).__name__}")
    return value


def _read_avro(writer: ParsedSchema, reader: ParsedSchema | None, datum: bytes) -> Any:
    if not writer.inner.is_bytes:
        return read_datum(writer.inner, None if reader is None else reader.inner, datum)
    if reader is not None and not reader.inner.is_bytes:
        raise IncompatibleSchemaError("bytes that stand as they are can be read as bytes only")
    return datum


def _names_in_avro(text: str) -> set[str]:
    return {f".{each}" for each in strings_of(json.loads(text))}


AVRO: Final = SchemaKind(_parse_avro, _write_avro, _read_avro, _names_in_avro)
KINDS: Final[Mapping[str, SchemaKind]] = {"AVRO": AVRO, "JSON": JSON, "PROTOBUF": PROTOBUF}


@lru_cache(_KEPT_SCHEMAS)
def parse_schema(registered: RegisteredSchema) -> ParsedSchema:
    """Return a schema that values are written and read with.

    Raises DataException for what is not a schema, too large or too deep, and ConfigException or ExtraMissingError if a
    library is not installed.
    """
    kind = KINDS.get(registered.kind)
    if kind is None:
        raise DataException(f"a schema of type {registered.kind[:40]} is none of {', '.join(KINDS)}")
    if max(map(len, (registered.text, *(text for _, text in registered.references)))) > LARGEST_SCHEMA_BYTES:
        raise DataException(f"A schema is larger than {LARGEST_SCHEMA_BYTES} bytes")
    return kind.parse(registered)


def schema_of(given: Any) -> ParsedSchema:
    """Return the schema of what a user gives: one of Avro, a class of messages, or a RegisteredSchema of any kind."""
    if isinstance(given, type):
        return schema_of_messages(given)
    if isinstance(given, RegisteredSchema):
        return parse_schema(given)
    return parse_schema(RegisteredSchema(given if isinstance(given, str) else json.dumps(given)))


def parts_of(registered: RegisteredSchema) -> Iterator[tuple[str, RegisteredSchema]]:
    """Yield the schemas that one names, by their names, the innermost first, and each with those that it names."""
    for place, (name, text) in enumerate(registered.references):
        yield name, registered._replace(text=text, references=registered.references[:place])


def names_directly(registered: RegisteredSchema, name: str) -> bool:
    """Return whether a schema names another one itself."""
    return any(f"{end[:1]}{name}".endswith(end) for end in KINDS[registered.kind].names(registered.text))
