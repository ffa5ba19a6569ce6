"""Remembers the filters with which a DataFrame was first planned, across the processes that plan reads.

Spark keeps one read function for everything derived from one `load()`, and plans each use in a process of its own on
the driver's machine (with Spark Connect, the server's). The processes share a file for each DataFrame, in the user's
temporary directory there.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from hashlib import sha256
from typing import Final

from statestore.errors.new_state import DataFrameReusedError
from statestore.recovery.local.local_directory import private_directory
from statestore.recovery.location.shard_files import path_part

_DIRECTORY: Final = "planned-filters"
_KNOWN_DATAFRAMES: Final = 10_000
_SHOWN_FILTERS: Final = 500


def check_filters(dataframe: str, filters: str) -> None:
    """Raise DataFrameReusedError if a DataFrame was planned with other filters before. Raises LocalDirectoryError."""
    digest = sha256(filters.encode(errors="backslashreplace")).hexdigest()
    shown = filters if len(filters) <= _SHOWN_FILTERS else f"{filters[:_SHOWN_FILTERS]}..."
    first = _first_of(dataframe, {"digest": digest, "filters": shown})
    if first["digest"] != digest:
        raise DataFrameReusedError(before=first["filters"], now=shown)


def _first_of(dataframe: str, planned: dict[str, str]) -> dict[str, str]:
    """Return how a DataFrame was planned first; `planned` if it is new, or forgotten after ten thousand others."""
    directory = os.path.join(private_directory(), _DIRECTORY)
    os.makedirs(directory, exist_ok=True)
    path = os.path.join(directory, path_part(dataframe))
    partial = f"{path}.{os.getpid()}"
    with open(partial, "x", encoding="utf-8") as file:
        json.dump(planned, file)
    try:
        os.link(partial, path)  # the whole file, and only if nobody was first
    except FileExistsError:
        with open(path, encoding="utf-8") as file:
            first: dict[str, str] = json.load(file)
        return first
    finally:
        os.unlink(partial)
    _forget_the_oldest(directory)
    return planned


def _forget_the_oldest(directory: str) -> None:
    paths = [os.path.join(directory, name) for name in os.listdir(directory)]
    if len(paths) > _KNOWN_DATAFRAMES:
        for path in sorted(paths, key=_written_ns)[:-_KNOWN_DATAFRAMES]:
            with suppress(FileNotFoundError):
                os.unlink(path)


def _written_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:  # another process has just deleted it
        return 0
