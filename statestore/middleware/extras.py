"""Libraries that are extras: imported by the one application that needs them, when it needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from statestore.errors.middleware import ExtraMissingError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Have an import inside of the `with` raise ExtraMissingError, which names the extra that brings what it lacks."""
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ExtraMissingError(module=(missing.name or name).partition(".")[0], extra=name) from missing
