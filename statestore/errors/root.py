"""The root of the error tree."""

from __future__ import annotations

from typing import Any


class StateStoreError(Exception):
    """The root of every error that statestore raises on purpose. Pickles with all its fields."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(kind: type[StateStoreError], args: tuple[Any, ...], fields: dict[str, Any]) -> StateStoreError:
    """Make an error as it was: its message is already built, and its __init__ would build it again."""
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(fields)
    return error
