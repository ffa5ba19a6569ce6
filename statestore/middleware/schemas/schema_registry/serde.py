"""Serdes with the id of their schema in a registry, and of Avro under one schema that both sides have.

A serde writes with its own schema. It reads what any compatible schema of its kind has written, by the kind's rules: of
Avro those of resolution, of Protobuf the numbers of fields, and of JSON it checks what it reads. A process asks the
registry once for each schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from statestore.connect.converters.avro.avro_datum import AvroSchema, avro_schema, read_datum, write_datum
from statestore.errors import DataException, SerializationError
from statestore.errors.middleware import IncompatibleSchemaError, SchemaRejectedError
from statestore.format.serde import Serde, Serdes
from statestore.middleware.schemas.schema_registry.ids import IdPlace, IdWriter, RegisteredSchema, read_id
from statestore.middleware.schemas.schema_registry.kinds import KINDS, parse_schema, schema_of
from statestore.middleware.schemas.schema_registry.parsed_schema import ParsedSchema
from statestore.middleware.schemas.schema_registry.registry import SchemaRegistry

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from statestore.headers.record_headers import Headers

Subject: TypeAlias = "str | Callable[[str | None, str | None], str] | None"
AvroText: TypeAlias = "str | dict[str, Any] | list[Any]"
AnySchema: TypeAlias = "AvroText | type[Message] | RegisteredSchema"


def registry_serde(
    registry: SchemaRegistry,
    *schemas: AnySchema,
    for_key: bool = False,
    place: IdPlace = IdPlace.HEADER,
    subject: Subject = None,
) -> Serde[Any]:
    """Return the serde of keys (`for_key`) or values whose schemas a registry keeps, of Avro, JSON Schema and Protobuf.

    schemas   at most one of each kind: of Avro; a class of messages of Protobuf; RegisteredSchema(text, kind="JSON").
              A message is written as Protobuf, all else under the first of the others. A value is read as the schema
              of its kind has it, and refused if there is none. Without any all is read, as its own schema has it
    place     where the id is written; it is read wherever it stands
    subject   what the schema is deposited for: a name, or what returns one for topic and full name of the schema, each
              of which may be None. None: what the registry says

    Raises DataException if one is not a schema, ValueError for two of a kind, and for a key by IdPlace.MD5, and
    ConfigException or ExtraMissingError without the library of a kind. Its functions raise SerializationError
    (SchemaRejectedError) and DeserializationError (SchemaIdError, SchemaNotFoundError, IncompatibleSchemaError), and
    RegistryUnavailableError: the query fails.
    """
    parsed = tuple(map(schema_of, schemas))
    kinds = [schema.registered.kind for schema in parsed]
    if len(set(kinds)) < len(kinds):
        raise ValueError(f"a serde takes one schema of each kind, got {', '.join(kinds)}")
    return _serde("registry", registry, parsed, kinds or KINDS, IdWriter(place, for_key), subject)


def avro_serde(
    registry: SchemaRegistry,
    schema: AvroText | RegisteredSchema | None = None,
    *,
    for_key: bool = False,
    place: IdPlace = IdPlace.HEADER,
    subject: Subject = None,
) -> Serde[Any]:
    """Return the serde of Avro alone, as `registry_serde` makes it of the schema. Records are dicts.

    Without a schema it only reads, and each value as its own schema has it.
    """
    parsed = () if schema is None else (schema_of(schema),)
    return _serde("avro", registry, parsed, ("AVRO",), IdWriter(place, for_key), subject)


def _serde(name: str, *arguments: Any) -> Serde[Any]:
    made = _RegistrySerde(*arguments)
    return Serdes.of_topics(name, made.write, made.read)


@dataclass(frozen=True)
class _RegistrySerde:
    registry: SchemaRegistry
    schemas: tuple[ParsedSchema, ...]
    kinds: Collection[str]
    ids: IdWriter
    subject: Subject

    def write(self, topic: str | None, headers: Headers | None, value: Any) -> bytes:
        schema = self._schema_of(value)
        name = getattr(getattr(value, "DESCRIPTOR", None), "full_name", None) if schema is None else schema.name
        subject = subject_of(self.registry, self.subject, topic, name, for_key=self.ids.for_key)
        ids = self.registry.deposit_if_new(subject, None if schema is None else schema.registered)
        if ids.latest is not None:
            schema = _latest(subject, ids.latest, None if schema is None else schema.registered.kind, name)
        assert schema is not None, "a registry deposits no schema that is not there"
        return self.ids.write(ids, headers, schema.behind_id, schema.write(value))

    def read(self, topic: str | None, headers: Headers | None, data: bytes) -> Any:
        placed = read_id(headers, data, for_key=self.ids.for_key)
        found = self.registry.get(placed.schema_id)
        kind = found.registered.kind
        if kind not in self.kinds:
            raise IncompatibleSchemaError(f"a value of {kind} can't be read as one of {' or '.join(self.kinds)}")
        writer, datum = found.of_record(placed)
        return writer.read(self.readers.get(kind), datum)

    @cached_property
    def readers(self) -> dict[str, ParsedSchema]:
        return {schema.registered.kind: schema for schema in self.schemas}

    def _schema_of(self, value: Any) -> ParsedSchema | None:
        if len(self.schemas) < 2:
            return self.schemas[0] if self.schemas else None
        is_message = hasattr(value, "DESCRIPTOR")
        fits = (each for each in self.schemas if (each.registered.kind == "PROTOBUF") is is_message)
        return next(fits, self.schemas[0])


def _latest(subject: str, latest: RegisteredSchema, kind: str | None, name: str | None) -> ParsedSchema:
    if kind not in (None, latest.kind):
        raise SchemaRejectedError(subject, problem=f"its latest version is of {latest.kind}, and the schema of {kind}")
    try:
        parsed = parse_schema(latest)
        return parsed.kind.of_type(parsed, name)
    except DataException as cause:
        raise SchemaRejectedError(subject, problem=f"its latest version can't be written with: {cause}") from cause


def subject_of(
    registry: SchemaRegistry, subject: Subject, topic: str | None, name: str | None, *, for_key: bool
) -> str:
    """Return what a schema is deposited for. Raises SerializationError if it has neither topic nor name."""
    if isinstance(subject, str):
        return subject
    if subject is not None:
        return subject(topic, name)
    if (found := registry.subject_of(topic, name, for_key=for_key)) is None:
        raise SerializationError(
            "a schema without a name, such as a union, has nothing to be deposited for: give the serde a subject"
        )
    return found


def plain_avro_serde(schema: AvroText) -> Serde[Any]:
    """Return the serde of values in Avro's binary encoding and nothing else: what is read was written with the schema.

    Records are dicts. Raises DataException if it is not a schema, and ConfigException without fastavro.
    """
    made = _AvroValues(schema if isinstance(schema, str) else json.dumps(schema))
    avro_schema(made.schema)
    return Serdes.of("avro", made.write, made.read)


@dataclass(frozen=True)
class _AvroValues:
    """Values under a schema in JSON; picklable, as a text."""

    schema: str

    def write(self, value: Any) -> bytes:
        try:
            return write_datum(self.parsed, value)
        except DataException as cause:
            raise SerializationError(f"{cause}") from cause

    def read(self, data: bytes) -> Any:
        try:
            return read_datum(self.parsed, None, data)
        except DataException as cause:
            raise IncompatibleSchemaError(f"{cause}") from cause

    @cached_property
    def parsed(self) -> AvroSchema:
        return avro_schema(self.schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return _AvroValues, (self.schema,)
