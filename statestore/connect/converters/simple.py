"""The default header converter, values as text and text as what it looks like; and the one that leaves bytes alone.

Source: Kafka Connect's `SimpleHeaderConverter` and `ByteArrayConverter`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from statestore.connect.converters.base import MODE, HeaderConverter
from statestore.connect.converters.charsets import UTF8
from statestore.connect.header import header_in_errors
from statestore.connect.schema import Schema, SchemaAndValue, Type, is_of_type
from statestore.connect.values.compat import COMPAT
from statestore.connect.values.strict import STRICT
from statestore.errors import DataException

_LOG: Final = logging.getLogger(__name__)


class SimpleHeaderConverter(HeaderConverter):
    """Writes values as UTF-8 text without their schemas, and reads text as `parse_string` does.

    Strict, text that would not be written as the same bytes again is read as a string, and bytes that are no text as
    bytes. With `mode=compat` it reads and writes what Kafka does: it takes `1,2` for 1, and replaces malformed UTF-8.
    """

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue | None:
        """Return what the text of a header stands for; None is Java's null, for the text "null".

        Bytes that can't be read are returned as they are, with a warning in the log.
        """
        if value is None:
            return SchemaAndValue(None, None)
        try:
            if self.is_strict:
                return STRICT.parse_string(value.decode("utf-8"))
            return COMPAT.parse_string(UTF8.decode(value))
        except (DataException, UnicodeDecodeError) as cause:
            what = f"header {key!r}" if key else "a key or value"
            _LOG.warning("%s of topic %r can't be read, its bytes are used as they are: %s", what, topic, cause)
            return SchemaAndValue(Schema.BYTES_SCHEMA, value)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the text of a value, None for None. Raises DataException if it has none."""
        if value is None:
            return None
        with header_in_errors(key):
            text = (STRICT if self.is_strict else COMPAT).convert_to_string(schema, value)
            assert text is not None, "only None has no text"
            return _encoded(text) if self.is_strict else UTF8.encode(text)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as cause:
        raise DataException("a text with half of a surrogate pair has no UTF-8") from cause


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
        return SchemaAndValue(Schema.OPTIONAL_BYTES_SCHEMA, value)
