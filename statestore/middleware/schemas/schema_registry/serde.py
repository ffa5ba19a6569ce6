"""Serdes in Avro: with the id of their schema in a registry, or under one schema that both sides have.

`avro_serde` writes with its own schema. It reads what any compatible schema has written, by Avro's rules of resolution;
a process asks the registry once for each schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from statestore.connect.converters.avro.avro_datum import AvroSchema, avro_schema, read_datum, write_datum
from statestore.errors import DataException, SerializationError
from statestore.errors.middleware import IncompatibleSchemaError
from statestore.format.serde import Serde, Serdes
from statestore.middleware.schemas.schema_registry.ids import IdPlace, IdWriter, read_id
from statestore.middleware.schemas.schema_registry.registry import SchemaRegistry

if TYPE_CHECKING:
    from statestore.headers.record_headers import Headers

Subject: TypeAlias = "str | Callable[[str | None, str | None], str] | None"


def avro_serde(
    registry: SchemaRegistry,
    schema: str | dict[str, Any] | list[Any] | None = None,
    *,
    for_key: bool = False,
    place: IdPlace = IdPlace.HEADER,
    subject: Subject = None,
) -> Serde[Any]:
    """Return the serde of keys (`for_key`) or values in Avro whose schemas a registry keeps. Records are dicts.

    schema    what is written with, and what all is read as; None only reads, and each as its own schema has it
    place     where the id is written; it is read wherever it stands
    subject   what the schema is deposited for: a name, or what returns one for topic and full name of the schema, each
              of which may be None. None: "<topic>-value", "<topic>-key", and in stores, which have no topic, the name

    Raises DataException if it is not a schema, ConfigException without fastavro, ValueError for a key by IdPlace.MD5.
    Its functions raise SerializationError (SchemaRejectedError) and DeserializationError (SchemaIdError,
    SchemaNotFoundError, IncompatibleSchemaError), and RegistryUnavailableError: the query fails.
    """
    values = None if schema is None else AvroValues(schema_text(schema))
    made = _RegistryAvro(registry, values, IdWriter(place, for_key), subject)
    return Serdes.of_topics("avro", made.write, made.read)


@dataclass(frozen=True)
class _RegistryAvro:
    registry: SchemaRegistry
    values: AvroValues | None
    ids: IdWriter
    subject: Subject

    def write(self, topic: str | None, headers: Headers | None, value: Any) -> bytes:
        if self.values is None:
            raise SerializationError("this serde only reads: give it the schema to write with")
        schema = self.values.parsed
        if schema.is_bytes and not isinstance(value, bytes):
            raise SerializationError(f"the schema says bytes, and the value is of type {type(value).__name__}")
        datum: bytes = value if schema.is_bytes else self.values.write(value)
        subject = subject_of(self.subject, topic, schema.name, for_key=self.ids.for_key)
        return self.ids.write(self.registry.deposit_if_new(subject, schema.text), headers, datum)

    def read(self, topic: str | None, headers: Headers | None, data: bytes) -> Any:
        schema_id, datum = read_id(headers, data, for_key=self.ids.for_key)
        return read_as(None if self.values is None else self.values.parsed, self.registry.get(schema_id), datum)


def subject_of(subject: Subject, topic: str | None, name: str | None, *, for_key: bool) -> str:
    """Return what a schema is deposited for. Raises SerializationError if it has neither topic nor name."""
    if isinstance(subject, str):
        return subject
    if subject is not None:
        return subject(topic, name)
    if topic is not None:
        return f"{topic}-{'key' if for_key else 'value'}"
    if name is None:
        raise SerializationError(
            "a store has no topic, and a union no name to deposit it for: give the serde a subject"
        )
    return name


def read_as(reader: AvroSchema | None, writer: AvroSchema, datum: bytes) -> Any:
    """Return the value of bytes, as another schema has it or as it is. Raises IncompatibleSchemaError.

    Bytes under the schema "bytes" stand as they are, without their length. Source: Confluent's serializers.
    """
    if writer.is_bytes:
        if reader is not None and not reader.is_bytes:
            raise IncompatibleSchemaError("bytes that stand as they are can be read as bytes only")
        return datum
    return read_value(writer, reader, datum)


def schema_text(schema: str | dict[str, Any] | list[Any]) -> str:
    """Return a schema in JSON, which may be given as Python has it. Raises DataException if it is not one of Avro."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    avro_schema(text)
    return text


def plain_avro_serde(schema: str | dict[str, Any] | list[Any]) -> Serde[Any]:
    """Return the serde of values in Avro's binary encoding and nothing else: what is read was written with the schema.

    Records are dicts. Raises DataException if it is not a schema, and ConfigException without fastavro.
    """
    made = AvroValues(schema_text(schema))
    return Serdes.of("avro", made.write, made.read)


@dataclass(frozen=True)
class AvroValues:
    """Values under a schema in JSON; picklable, as a text."""

    schema: str

    def write(self, value: Any) -> bytes:
        """Return a value in Avro. Raises SerializationError if it does not follow the schema."""
        try:
            return write_datum(self.parsed, value)
        except DataException as cause:
            raise SerializationError(f"{cause}") from cause

    def read(self, data: bytes) -> Any:
        """Return the value of bytes. Raises IncompatibleSchemaError if they do not follow the schema."""
        return read_value(self.parsed, None, data)

    @cached_property
    def parsed(self) -> AvroSchema:
        """The schema, parsed once."""
        return avro_schema(self.schema)

    def __reduce__(self) -> tuple[Any, ...]:
        return AvroValues, (self.schema,)


def read_value(writer: AvroSchema, reader: AvroSchema | None, data: bytes) -> Any:
    """Return the value of bytes, as another schema has it or as it is. Raises IncompatibleSchemaError."""
    try:
        return read_datum(writer, reader, data)
    except DataException as cause:
        raise IncompatibleSchemaError(f"{cause}") from cause
