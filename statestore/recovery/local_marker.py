"""`statestore.marker` in a local copy's directory: which committed version the copy holds.

    {"state_id": str, "shard": int, "delta": str, "applying": str | null}

`delta` names the last delta that is in the database for certain. While later ones are being applied, `applying` names
the last of them: then the database holds an unknown part of what comes after `delta`, up to `applying`. Applying a
delta twice changes nothing, so such a copy is good for every chain that both are on.

The intent is on the disk before the database is touched, the outcome is written after the database was flushed and
closed. Column families are flushed one after the other, so no marker within the database could say as much.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from statestore.errors import FormatError

_NAME = "statestore.marker"
_LIMIT_BYTES = 64 * 1024


@dataclass(frozen=True)
class LocalMarker:
    """What a local copy holds; a `delta` of "" is version 0, that is nothing."""

    state_id: str
    shard: int
    delta: str
    applying: str | None = None

    def applied(self, chain: Sequence[str]) -> int | None:
        """Return how many deltas of `chain`, which begins with the one before them, the copy is sure to hold.

        None if it holds anything that is not on it.
        """
        if self.delta not in chain or (self.applying is not None and self.applying not in chain):
            return None
        return chain.index(self.delta)


def read_marker(copy: Path) -> LocalMarker | None:
    """Return the marker in the directory `copy`, None if there is none. Raises FormatError if it is not one."""
    path = copy / _NAME
    try:
        with open(path, "rb") as file:
            data = file.read(_LIMIT_BYTES)  # what is longer is cut, and is not JSON then
    except FileNotFoundError:
        return None
    try:
        fields = json.loads(data)
        applying = fields["applying"]
        return LocalMarker(
            str(fields["state_id"]),
            int(fields["shard"]),
            str(fields["delta"]),
            None if applying is None else str(applying),
        )
    except (KeyError, ValueError, TypeError) as cause:
        raise FormatError("local marker", f"{path} is not one: {data[:200]!r}") from cause


def write_marker(copy: Path, marker: LocalMarker, *, durably: bool) -> None:
    """Replace the marker of a local copy; if `durably`, it is on the disk when this returns.

    Written in place: a torn write leaves no marker that can be read, and the copy is rebuilt.
    """
    with open(copy / _NAME, "wb") as file:
        file.write(json.dumps(asdict(marker)).encode())
        if durably:
            file.flush()
            os.fsync(file.fileno())
