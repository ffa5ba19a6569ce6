"""fastavro, which is an extra: only who has headers or values in Avro needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from statestore.errors import ConfigException, DataException


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
def library_errors(problem: str) -> Iterator[None]:
    """Raise DataException with the problem for whatever fastavro raises: malformed bytes meet its every exception."""
    try:
        yield
    except MemoryError:
        raise
    except EOFError as cause:
        raise DataException(f"{problem}: there are fewer bytes than its schema asks for") from cause
    except Exception as cause:
        # Its words quote the value.
        raise DataException(f"{problem}: {type(cause).__name__}") from None
