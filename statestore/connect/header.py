"""A typed header. Source: KIP-145's `Header` and `ConnectHeader`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from statestore.connect.schema import Schema, Struct, same_value
from statestore.errors import ConnectException, DataException, NullValueException, StateStoreError


@dataclass(frozen=True)
class ConnectHeader:
    """A key, and a value with its schema. None for the schema is an unknown one; a struct brings its own.

    Equal to another one if all three are, values as `same_value` says. Raises NullValueException if the key is None.
    """

    key: str
    value: Any
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if self.key is None:
            raise NullValueException("Null header keys are not permitted")
        if self.schema is None and isinstance(self.value, Struct):
            object.__setattr__(self, "schema", self.value.schema)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConnectHeader):
            return NotImplemented
        return (self.key, self.schema) == (other.key, other.schema) and same_value(self.value, other.value)

    def __hash__(self) -> int:
        return hash((self.key, self.schema))  # values may be lists and maps

    def with_value(self, schema: Schema | None, value: Any) -> ConnectHeader:
        """Return the header with another schema and value. Source: `Header.with`; Python keeps that word for itself."""
        return replace(self, schema=schema, value=value)

    def rename(self, key: str) -> ConnectHeader:
        """Return the header under another key. Raises NullValueException if that is None."""
        return replace(self, key=key)


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
