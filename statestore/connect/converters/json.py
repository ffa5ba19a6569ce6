"""JSON headers, with their schemas in an envelope or without.

    header := {"schema": schema, "payload": value}      schemas.enable=true
            | value                                     schemas.enable=false, or schema.content

Bytes are written as Kafka's `JsonConverter` writes them, and read as it reads them. Strict mode refuses what Kafka
reads as 0, false or null because of a wrong type, or cuts to fit, and what would not be read back as it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from statestore.connect.config import ConfigDef, ConfigType, Property, one_of
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.json_schema import SchemaReader, schema_to_json
from statestore.connect.converters.json_text import read_json, write_json
from statestore.connect.converters.json_values import PayloadReader, PayloadWriter
from statestore.connect.header import header_in_errors
from statestore.connect.recently_used import RecentlyUsed
from statestore.connect.schema import Schema, SchemaAndValue
from statestore.errors import DataException
from statestore.errors.data import NullValueException

_SCHEMA: Final = "schema"
_PAYLOAD: Final = "payload"
_SCHEMAS_ENABLE: Final = "schemas.enable"
_CACHE_SIZE: Final = "schemas.cache.size"
_DECIMAL_FORMAT: Final = "decimal.format"
_REPLACE_NULL: Final = "replace.null.with.default"
_SCHEMA_CONTENT: Final = "schema.content"

_PROPERTIES: Final = (
    Property(_SCHEMAS_ENABLE, ConfigType.BOOLEAN, default=True, doc="Whether a schema stands beside each value."),
    Property(_CACHE_SIZE, ConfigType.INT, default=1000, doc="How many schemas are kept for the next values."),
    Property(
        _DECIMAL_FORMAT,
        default="BASE64",
        rule=one_of("BASE64", "NUMERIC", ignore_case=True),
        doc="Whether decimals are bytes, which keep their scale, or numbers.",
    ),
    Property(_REPLACE_NULL, ConfigType.BOOLEAN, default=True, doc="Whether a null is replaced by the default, if any."),
    Property(_SCHEMA_CONTENT, default=None, doc="The schema of all values, which then stand without one."),
)
_NEVER_NULL: Final = (_SCHEMAS_ENABLE, _CACHE_SIZE, _REPLACE_NULL)


class JsonConverter(HeaderConverter):
    """Headers as JSON: typed values with their schemas, or without; then numbers are INT64 and FLOAT64.

    Its properties are those of Kafka's: schemas.enable, schema.content, decimal.format, replace.null.with.default and
    schemas.cache.size.
    """

    _writer: PayloadWriter
    _reader: PayloadReader
    _schemas: SchemaReader
    _schema: Schema | None

    def config(self) -> ConfigDef:
        """Return the properties that it has."""
        return ConfigDef(*super().config().properties, *_PROPERTIES)

    def configure(self, properties: Mapping[str, Any]) -> None:
        """Read its properties. Raises ConfigException, and DataException if `schema.content` is not a schema."""
        super().configure(properties)
        for name in _NEVER_NULL:
            if self.settings[name] is None:
                raise NullValueException(f"the property {name} has no value")
        strict, replace_null = self.is_strict, self.settings[_REPLACE_NULL]
        is_numeric = self.settings[_DECIMAL_FORMAT].upper() == "NUMERIC"
        self._writer = PayloadWriter(strict=strict, replace_null=replace_null, decimals_are_numbers=is_numeric)
        self._reader = PayloadReader(strict=strict, replace_null=replace_null)
        self._schemas = SchemaReader(self._reader.read, strict=strict)
        self._written = RecentlyUsed(self.settings[_CACHE_SIZE])
        self._read = RecentlyUsed(self.settings[_CACHE_SIZE])
        content = self.settings[_SCHEMA_CONTENT]
        self._schema = self._schemas.read(read_json(content.encode(), strict=strict)) if content else None

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the JSON of a value; None for None without a schema. Raises DataException if it does not follow it."""
        assert self.settings  # which configures it, if nobody did
        if schema is None and value is None:
            return None
        with header_in_errors(key):
            payload = self._writer.write(schema, value)
            if not self.settings[_SCHEMAS_ENABLE]:
                return write_json(payload)
            return write_json({_SCHEMA: self._json_of(schema), _PAYLOAD: payload})

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue:
        """Return schema and value of JSON. Raises DataException if it is malformed, or no envelope where one is due."""
        assert self.settings  # which configures it, if nobody did
        if value is None:
            return SchemaAndValue(None, None)
        with header_in_errors(key):
            found = read_json(value, strict=self.is_strict)
            if not self.settings[_SCHEMAS_ENABLE]:
                return SchemaAndValue(None, self._reader.read(None, found))
            if self._schema is not None:
                return SchemaAndValue(self._schema, self._reader.read(self._schema, found))
            if not isinstance(found, dict) or found.keys() != {_SCHEMA, _PAYLOAD}:
                raise DataException(
                    'JsonConverter with schemas.enable requires "schema" and "payload" fields and may not contain '
                    "additional fields. If you are trying to deserialize plain JSON data, set schemas.enable=false in "
                    "your converter configuration."
                )
            schema = self._schema_of(found[_SCHEMA])
            return SchemaAndValue(schema, self._reader.read(schema, found[_PAYLOAD]))

    def _json_of(self, schema: Schema | None) -> Any:
        # By identity: to compare schemas, or to make their hashes, takes as long as to write them.
        kept = self._written.get(id(schema), lambda: (schema, schema_to_json(schema, self._writer.write)))
        return kept[1]

    def _schema_of(self, node: Any) -> Schema | None:
        found: Schema | None = self._read.get(write_json(node), lambda: self._schemas.read(node))
        return found
