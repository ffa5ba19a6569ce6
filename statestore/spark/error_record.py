"""An error of ours as JSON, of which another process makes it again: its class, its sentence and its fields.

    {"error": "LocationInUseError", "message": ..., "fields": {"location": ..., "owner": ...}}

It is not pickled, so that who reads it runs nothing of who wrote it. It has the fields that are texts, numbers or lists
of texts; long ones are cut.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import statestore.errors
from statestore.errors import StateStoreError
from statestore.errors.root import error_with

_TEXT: Final = "message"


class Bounds(NamedTuple):
    """How long a record may get, in characters; `items` is of lists."""

    message: int
    field: int
    items: int
    whole: int


AS_A_VALUE: Final = Bounds(message=1 << 16, field=1 << 16, items=1000, whole=1 << 20)
"""Of a record that goes by itself, not within a text that people read."""


@dataclass(frozen=True)
class ErrorRecord:
    """The class of an error, its sentence and its fields."""

    error: str
    message: str
    fields: dict[str, Any]

    @property
    def kind(self) -> type[StateStoreError] | None:
        """The class of the error; None if it is not ours."""
        return kind_of(self.error)

    def to_error(self) -> StateStoreError:
        """Return the error; of a class that is not known here, one of the root class."""
        if self.kind is None:
            return StateStoreError(f"{self.error}: {self.message}")
        return error_with(self.kind, (self.message,), {**self.fields, _TEXT: self.message})

    def to_json(self, bounds: Bounds) -> str:
        """Return it as one line, without the fields for which there is no room."""
        said: dict[str, Any] = {"error": self.error, "message": self.message[: bounds.message], "fields": {}}
        for name, value in self.fields.items():
            said["fields"][name] = value
            if len(json.dumps(said)) > bounds.whole:
                del said["fields"][name]
        return json.dumps(said)


def kind_of(name: str) -> type[StateStoreError] | None:
    """Return our class of errors of that name; None if there is none."""
    found = getattr(statestore.errors, name, None)
    return found if isinstance(found, type) and issubclass(found, StateStoreError) else None


def record_of(error: StateStoreError, bounds: Bounds) -> ErrorRecord:
    """Return what is said of an error elsewhere."""
    fields = {name: _cut(value, bounds) for name, value in vars(error).items() if name != _TEXT}
    plain = {name: value for name, value in fields.items() if _is_plain(value)}
    return ErrorRecord(_public_name(type(error)), str(error), plain)


def _public_name(kind: type[StateStoreError]) -> str:
    """Return the name that users know a class by: its own, or that of its nearest base in `statestore.errors`."""
    return next(base.__name__ for base in kind.__mro__ if kind_of(base.__name__) is base)


def record_from(text: str) -> ErrorRecord | None:
    """Return what `to_json` gave; None for anything else, whatever it is."""
    try:
        said = json.loads(text)
        error, message, fields = said["error"], said["message"], said["fields"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not (isinstance(error, str) and isinstance(message, str) and isinstance(fields, dict)):
        return None
    return ErrorRecord(error, message, {name: value for name, value in fields.items() if _is_plain(value)})


def _cut(value: Any, bounds: Bounds) -> Any:
    if isinstance(value, list | tuple):
        return [_cut(item, bounds) for item in value[: bounds.items]]
    return value[: bounds.field] if isinstance(value, str) else value


def _is_plain(value: Any) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    return value is None or isinstance(value, str | int | float)
