"""Avro under a schema that both sides have: a serde that asks nobody, and knows of no headers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from statestore.connect.converters.avro.avro_datum import AvroSchema, avro_schema, read_datum, write_datum
from statestore.errors import DataException, SerializationError
from statestore.errors.middleware import IncompatibleSchemaError
from statestore.format.serde import Serde, Serdes


def schema_text(schema: str | dict[str, Any] | list[Any]) -> str:
    """Return a schema in JSON, which may be given as Python has it. Raises DataException if Avro has none like it."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    avro_schema(text)
    return text


def plain_avro_serde(schema: str | dict[str, Any] | list[Any]) -> Serde[Any]:
    """Return the serde of values in Avro's binary encoding and nothing else: what is read was written with the schema.

    Records are dicts. Raises DataException if it is no schema, and ConfigException for want of fastavro.
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
