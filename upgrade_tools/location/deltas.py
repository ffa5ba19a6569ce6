"""Delta files, read one by one by their names."""

from __future__ import annotations

from statestore.errors import DurableFileMissingError
from statestore.recovery.commit.delta import Delta, decode_delta
from statestore.recovery.location.durable_location import DurableLocation


def read_delta(file: str) -> Delta:
    """Return the delta at path or URI `file`. Raises DurableFileMissingError, DurableFileCorruptedError."""
    directory, slash, name = file.rpartition("/")
    location = DurableLocation(directory or slash or ".")
    data = location.read(name)
    if data is None:
        raise DurableFileMissingError(location.path(name), needed_by="this command")
    return decode_delta(data, location.path(name))
