"""A typed header. Source: KIP-145's `Header` and `ConnectHeader`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from statestore.connect.schema import Schema
from statestore.errors import NullValueException


@dataclass(frozen=True)
class ConnectHeader:
    """A key, and a value with its schema. None for the schema is an unknown one, None for the value is one too.

    Equal to another one if all three are. Raises NullValueException if the key is None.
    """

    key: str
    value: Any
    schema: Schema | None = None

    def __post_init__(self) -> None:
        if self.key is None:
            raise NullValueException("Null header keys are not permitted")

    def __hash__(self) -> int:
        return hash((self.key, self.schema))  # values may be lists and maps

    def with_value(self, schema: Schema | None, value: Any) -> ConnectHeader:
        """Return the header with another schema and value. Source: `Header.with`; Python keeps that word for itself."""
        return replace(self, schema=schema, value=value)

    def rename(self, key: str) -> ConnectHeader:
        """Return the header under another key. Raises NullValueException if that is None."""
        return replace(self, key=key)
