"""The default header converter: values as text, and text as what it looks like.

Source: Kafka Connect's `SimpleHeaderConverter`.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from statestore.connect.converters.base import HeaderConverter
from statestore.connect.header import header_in_errors
from statestore.connect.schema import Schema, SchemaAndValue
from statestore.connect.schemas import BYTES_SCHEMA
from statestore.connect.values.compat import COMPAT
from statestore.connect.values.strict import STRICT
from statestore.connect.values.utf8 import decode_leniently, encode_leniently
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
            return COMPAT.parse_string(decode_leniently(value))
        except (DataException, UnicodeDecodeError) as cause:
            what = f"header {key!r}" if key else "a key or value"
            _LOG.warning("%s of topic %r can't be read, its bytes are used as they are: %s", what, topic, cause)
            return SchemaAndValue(BYTES_SCHEMA, value)

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None:
        """Return the text of a value, None for None. Raises DataException if it has none."""
        if value is None:
            return None
        with header_in_errors(key):
            text = (STRICT if self.is_strict else COMPAT).convert_to_string(schema, value)
            assert text is not None, "only None has no text"
            return _encoded(text) if self.is_strict else encode_leniently(text)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as cause:
        raise DataException("a text with half of a surrogate pair has no UTF-8") from cause
