"""What is recorded of a store: its name, kind and format.

Recorded in the state location when a query starts for the first time, and compared at every later start.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Any

from statestore.errors import FormatError
from statestore.format.store_format import StoreFormat

_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_NAME_LIMIT = 249


class StoreKind(Enum):
    """How keys are laid out. The values are persisted: never rename, never reuse."""

    KEY_VALUE = "key-value"


def checked_store_name(name: str) -> str:
    """Return `name` if it is a legal Kafka store name: ASCII letters, digits, `.`, `_`, `-`, at most 249 characters.

    Raises ValueError otherwise. Source: Kafka's Named.validate; names become topic, family and directory names.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in (".", "..") or len(name) > _NAME_LIMIT:
        raise ValueError(
            f"illegal name {name!r}: use 1 to {_NAME_LIMIT} ASCII letters, digits, '.', '_', '-', and not '.' or '..'"
        )
    return name


@dataclass(frozen=True)
class StoreSpec:
    """A store as it is recorded: two stores hold the same bytes exactly if their specs are equal."""

    name: str
    kind: StoreKind
    format: StoreFormat

    def __post_init__(self) -> None:
        checked_store_name(self.name)

    def describe(self) -> str:
        """Return kind and format in words, for errors and listings."""
        return f"{self.kind.value} store, {self.format.name.lower().replace('_', ' ')}"

    def to_json(self) -> dict[str, str]:
        """Return a JSON object; format and kind go by name."""
        return {"name": self.name, "kind": self.kind.value, "format": self.format.name}

    @classmethod
    def from_json(cls, recorded: dict[str, Any]) -> StoreSpec:
        """Return the spec that `to_json` gave. Raises FormatError if it is not one."""
        try:
            return cls(str(recorded["name"]), StoreKind(recorded["kind"]), StoreFormat[recorded["format"]])
        except (KeyError, ValueError, TypeError) as cause:
            raise FormatError("recorded store", f"{recorded!r} is not one ({cause!r})") from cause
