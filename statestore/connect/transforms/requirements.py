"""What a transformation needs of the key or value that it works on. Source: Kafka Connect's `Requirements`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from statestore.connect.schema import Struct
from statestore.errors import DataException


def require_map(value: Any, purpose: str) -> Mapping[str, Any]:
    """Return a value that is a map. Raises DataException for another one, and for None."""
    if not isinstance(value, Mapping):
        raise DataException(
            f"Only Map objects supported in absence of schema for [{purpose}], found: {_class_of(value)}"
        )
    return value


def require_struct(value: Any, purpose: str) -> Struct:
    """Return a value that is a struct. Raises DataException for another one, and for None."""
    if not isinstance(value, Struct):
        raise DataException(f"Only Struct objects supported for [{purpose}], found: {_class_of(value)}")
    return value


def _class_of(value: Any) -> str:
    return "null" if value is None else type(value).__name__
