"""Remembers how a DataFrame was first planned, across the processes that plan reads: by which filters and which head.

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

_FILTERS: Final = "planned-filters", 10_000
_POINTERS: Final = "planned-pointers", 200
"""The directories, and how many DataFrames are remembered. All pointers of a state may be some MiB."""
_SHOWN_FILTERS: Final = 500


def check_filters(dataframe: str, filters: str) -> None:
    """Raise DataFrameReusedError if a DataFrame was planned with other filters before. Raises LocalDirectoryError."""
    digest = sha256(filters.encode(errors="backslashreplace")).hexdigest()
    shown = filters if len(filters) <= _SHOWN_FILTERS else f"{filters[:_SHOWN_FILTERS]}..."
    first = _first_of(*_FILTERS, dataframe, {"digest": digest, "filters": shown})
    if first["digest"] != digest:
        raise DataFrameReusedError(before=first["filters"], now=shown)


def first_pointers(dataframe: str, pointers: str) -> str:
    """Return the pointers of the head by which a DataFrame was planned first. Raises LocalDirectoryError."""
    return _first_of(*_POINTERS, dataframe, {"pointers": pointers})["pointers"]


def _first_of(name: str, known: int, dataframe: str, planned: dict[str, str]) -> dict[str, str]:
    """Return how a DataFrame was planned first; `planned` if it is new, or forgotten after so many others."""
    directory = os.path.join(private_directory(), name)
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
    _forget_the_oldest(directory, known)
    return planned


def _forget_the_oldest(directory: str, known: int) -> None:
    paths = [os.path.join(directory, name) for name in os.listdir(directory)]
    if len(paths) > known:
        for path in sorted(paths, key=_written_ns)[:-known]:
            with suppress(FileNotFoundError):
                os.unlink(path)


def _written_ns(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:  # another process has just deleted it
        return 0
