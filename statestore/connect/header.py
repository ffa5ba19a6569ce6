"""A typed header. Source: KIP-145's `Header` and `ConnectHeader`."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from statestore.connect.schema import (
    LOGICAL_TYPES,
    Schema,
    SchemaAndValue,
    Struct,
    is_of_type,
    logical_name_of,
    same_value,
)
from statestore.errors import ConnectException, DataException, StateStoreError
from statestore.errors.data import NullValueException
from statestore.errors.readable import shape_of


class _Converter(Protocol):
    """A HeaderConverter, as far as headers need it: converters know of headers, and headers of no converter."""

    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> SchemaAndValue | None: ...

    def from_connect_header(self, topic: str, key: str, schema: Schema | None, value: Any) -> bytes | None: ...


class ConnectHeader:
    """A key, and a value with its schema. None for the schema is an unknown one; a struct brings its own.

    It does not change. Equal to another one if all three are, values as `same_value` says. Raises NullValueException if
    the key is None. One that was read of a record (`of_bytes`) is converted when its value or schema is first asked
    for, which raises what the converter raises, with the header's key.
    """

    __slots__ = ("_converted", "_encoded", "_key")

    def __init__(self, key: str, value: Any, schema: Schema | None = None) -> None:
        self._key = _not_null(key)
        self._encoded: _Encoded | None = None
        if schema is None and isinstance(value, Struct):
            schema = value.schema
        self._converted: SchemaAndValue | None = SchemaAndValue(schema, value)

    @classmethod
    def of_bytes(cls, key: str, encoded: bytes | None, converter: _Converter, topic: str) -> ConnectHeader:
        """Return a header that is still bytes, as it stands in a record of a topic."""
        made = cls.__new__(cls)
        made._key, made._encoded, made._converted = _not_null(key), _Encoded(encoded, converter, topic, key), None
        return made

    @property
    def key(self) -> str:
        """The key."""
        return self._key

    @property
    def value(self) -> Any:
        """The value."""
        return self._schema_and_value().value

    @property
    def schema(self) -> Schema | None:
        """The schema of the value; None if it is unknown."""
        return self._schema_and_value().schema

    def with_value(self, schema: Schema | None, value: Any) -> ConnectHeader:
        """Return the header with another schema and value. Source: `Header.with`; Python keeps that word for itself."""
        return ConnectHeader(self._key, value, schema)

    def rename(self, key: str) -> ConnectHeader:
        """Return the header under another key, with the same bytes. Raises NullValueException if that is None."""
        made = copy.copy(self)
        made._key = _not_null(key)
        return made

    def bytes_of(self, converter: _Converter, topic: str) -> bytes | None:
        """Return the bytes that it came as, if this converter read it, else those that the converter makes of it."""
        if self._encoded is not None and self._encoded.converter is converter:
            return self._encoded.content
        with header_in_errors(self._key):
            return converter.from_connect_header(topic, self._key, self.schema, self.value)

    def _schema_and_value(self) -> SchemaAndValue:
        if self._converted is None:
            assert self._encoded is not None
            self._converted = self._encoded.converted()
        return self._converted

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConnectHeader):
            return NotImplemented
        return (self.key, self.schema) == (other.key, other.schema) and same_value(self.value, other.value)

    def __hash__(self) -> int:
        return hash((self.key, self.schema))  # values may be lists and maps

    def __repr__(self) -> str:
        return f"ConnectHeader(key={self.key!r}, value={self.value!r}, schema={self.schema!r})"


class _Encoded(NamedTuple):
    """The bytes of a header, and what reads them; `key` is what the converter is told, also of a renamed one."""

    content: bytes | None
    converter: _Converter
    topic: str
    key: str

    def converted(self) -> SchemaAndValue:
        with header_in_errors(self.key, is_unreadable=True):
            made = self.converter.to_connect_header(self.topic, self.key, self.content) or SchemaAndValue(None, None)
            check_type(self.key, made.schema, made.value)
        if made.schema is None and isinstance(made.value, Struct):
            return SchemaAndValue(made.value.schema, made.value)
        return made


def _not_null(key: str) -> str:
    if key is None:
        raise NullValueException("Null header keys are not permitted")
    return key


@contextmanager
def header_in_errors(key: str, *, is_unreadable: bool = False) -> Iterator[None]:
    """Give an error that is raised within, and names no header yet, the key of this one.

    `is_unreadable` says so of a DataException: a converter reads here.
    """
    try:
        yield
    except ConnectException as error:
        if is_unreadable and isinstance(error, DataException):
            error.is_unreadable = True
        if error.header is None:
            error.header = key
            error.__post_init__()
        raise


@contextmanager
def part_in_errors(part: str | None, *, is_unreadable: bool = False) -> Iterator[None]:
    """Say in an error that is raised within that it is of a record's "key" or "value", no header; None is neither.

    Whatever else is raised becomes a DataException: Kafka tolerates all that converters and transformations raise.
    """
    try:
        yield
    except ConnectException as error:
        if is_unreadable and isinstance(error, DataException):
            error.is_unreadable = True
        if part is not None:
            error.header, error.part = None, part
            error.__post_init__()
        raise
    except StateStoreError:
        raise
    except Exception as cause:
        problem = f"{type(cause).__name__}: {cause}"
        raise DataException(problem, part=part, is_unreadable=is_unreadable) from cause


def check_type(key: Any, schema: Schema | None, value: Any) -> None:
    """Raise DataException if a value is not of its schema's type, or None where that is not optional."""
    if schema is None:
        return
    if value is None:
        if not schema.optional:
            raise DataException(f"A null value requires an optional schema but was {schema}", header=key)
        return
    logical = LOGICAL_TYPES.get(logical_name_of(schema), ())
    if not (is_of_type(value, schema.type) or isinstance(value, logical)):
        raise DataException(f"The value, {shape_of(value)}, is not compatible with the schema {schema}", header=key)
