"""Headers that are bytes, and stay as they are. Source: Kafka's `ByteArrayConverter`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statestore.connect.converters.base import MODE, HeaderConverter
from statestore.connect.schema import Schema, SchemaAndValue, Type, is_of_type
from statestore.connect.schemas import OPTIONAL_BYTES_SCHEMA
from statestore.errors import DataException


class ByteArrayConverter(HeaderConverter):
    """Headers are bytes. Nothing else is converted; there is nothing to configure."""

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Read its mode; other properties are those of Kafka's, which looks at none."""
        super().configure({name: value for name, value in properties.items() if name == MODE})

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return bytes as they are. Raises DataException if they, or their schema, are anything else."""
        if schema is not None and schema.type is not Type.BYTES:
            raise DataException(f"Invalid schema type for ByteArrayConverter: {schema.type}", header=key)
        if value is None:
            return None
        if not is_of_type(value, Type.BYTES):
            problem = f"ByteArrayConverter is not compatible with objects of type {type(value).__name__}"
            raise DataException(problem, header=key)
        return bytes(value)

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue:
        """Return the bytes with the schema of optional ones."""
        return SchemaAndValue(OPTIONAL_BYTES_SCHEMA, value)
