"""Libraries that are extras: imported by the one application that needs them, when it needs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from statestore.errors.middleware import ExtraMissingError


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Have an import inside of the `with` say which extra brings what it lacks.

        with extra("compression"):
            import zstandard

    Raises ExtraMissingError if a module is not there, whichever of the extra's it is.
    """
    try:
        yield
    except ModuleNotFoundError as missing:
        raise ExtraMissingError(module=(missing.name or name).partition(".")[0], extra=name) from missing
