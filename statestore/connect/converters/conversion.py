"""Between a record's headers, which are bytes, and typed ones.

Only what is looked at is converted, and what stays as it was keeps its very bytes on the way back.
Source: what Kafka Connect's workers do with `header.converter`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from statestore.connect.converters.base import HeaderConverter
from statestore.connect.header import ConnectHeader, header_in_errors
from statestore.connect.headers import ConnectHeaders, check_type
from statestore.connect.schema import Schema, SchemaAndValue
from statestore.errors import NullValueException
from statestore.headers import Header, Headers


def read_headers(headers: Headers, converter: HeaderConverter, *, topic: str) -> ConnectHeaders:
    """Return a record's headers with typed values. Each is converted when its value or schema is first asked for.

    That raises what the converter raises, DataException as a rule, with the header's key.
    """
    return ConnectHeaders(EncodedHeader(header.key, header.value, converter, topic) for header in headers)


def write_headers(headers: Iterable[ConnectHeader], converter: HeaderConverter, *, topic: str) -> Headers:
    """Return typed headers as a record's. Those that this converter read and nobody replaced keep their bytes.

    Raises what the converter raises, DataException as a rule, with the header's key.
    """
    return Headers(Header(header.key, _bytes_of(header, converter, topic)) for header in headers)


def _bytes_of(header: ConnectHeader, converter: HeaderConverter, topic: str) -> bytes | None:
    if isinstance(header, EncodedHeader) and header.converter is converter:
        return header.encoded
    with header_in_errors(header.key):
        return converter.from_connect_header(topic, header.key, header.schema, header.value)


class EncodedHeader(ConnectHeader):
    """A typed header that is still bytes: they are converted when its value or schema is first asked for."""

    encoded: bytes | None
    """What it came as. It is written as this again, unless by another converter."""
    converter: HeaderConverter

    def __init__(
        self,
        key: str,
        encoded: bytes | None,
        converter: HeaderConverter,
        topic: str,
        original_key: str | None = None,
    ) -> None:
        """Hold the bytes; `original_key` is what the converter is told, the key if None."""
        if key is None:
            raise NullValueException("Null header keys are not permitted")
        self._set(key=key, encoded=encoded, converter=converter)
        self._set(_topic=topic, _original_key=key if original_key is None else original_key, _converted=None)

    def _set(self, **attributes: Any) -> None:
        for name, attribute in attributes.items():
            object.__setattr__(self, name, attribute)

    @property
    def value(self) -> Any:
        """What the bytes stand for."""
        return self._schema_and_value().value

    @property
    def schema(self) -> Schema | None:
        """The schema of the value."""
        return self._schema_and_value().schema

    def _schema_and_value(self) -> ConnectHeader:
        found: ConnectHeader | None = vars(self)["_converted"]
        if found is None:
            key = vars(self)["_original_key"]
            with header_in_errors(key, is_unreadable=True):
                made = self.converter.to_connect_header(vars(self)["_topic"], key, self.encoded)
                made = SchemaAndValue(None, None) if made is None else made
                check_type(key, made.schema, made.value)
            found = ConnectHeader(self.key, made.value, made.schema)
            self._set(_converted=found)
        return found

    def with_value(self, schema: Schema | None, value: Any) -> ConnectHeader:
        """Return the header with another schema and value."""
        return ConnectHeader(self.key, value, schema)

    def rename(self, key: str) -> ConnectHeader:
        """Return the header under another key, with the same bytes. Raises NullValueException if that is None."""
        return EncodedHeader(key, self.encoded, self.converter, vars(self)["_topic"], vars(self)["_original_key"])
