"""fastavro, which is an extra: only who has headers or values in Avro needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Final

from statestore.errors import ConfigException, DataException

_SILENT: Final = ("SchemaResolutionError", "UnicodeDecodeError", "IndexError")
"""What says nothing of a value."""


def library() -> ModuleType:
    """Return fastavro. Raises ConfigException if it is not installed."""
    try:
        import fastavro
    except ModuleNotFoundError as missing:
        if missing.name != "fastavro":
            raise
        raise ConfigException("Avro needs fastavro: pip install 'statestore[avro]'") from missing
    return fastavro


@contextmanager
def library_errors(problem: str, *, of_schema: bool = False) -> Iterator[None]:
    """Raise DataException with the problem for whatever fastavro raises: malformed bytes meet its every exception.

    Its words are said where they are `of_schema`, or can't quote a value.
    """
    try:
        yield
    except MemoryError:
        raise
    except EOFError as cause:
        raise DataException(f"{problem}: there are fewer bytes than its schema asks for") from cause
    except Exception as cause:
        is_silent = of_schema or type(cause).__name__ in _SILENT
        raise DataException(f"{problem}: {type(cause).__name__}{f': {cause}' if is_silent else ''}"[:300]) from None
