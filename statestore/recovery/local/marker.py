"""`statestore.marker` in a local copy's directory: which committed version the copy holds.

    {"state_id": str, "shard": int, "delta": str, "applying": str | null, "files": str | null,
     "stores": [StoreSpec as JSON, ...], "repeatable": bool}

`delta` names the last delta that is in the database for certain. While later ones are being applied, `applying` names
the last of them.

`files` is a checksum of what the directory held when `delta` was the last delta in it: names and sizes of all files,
and the content of those that say which tables there are. Null says nothing of the files.

- Without `applying` the database was closed then, and other files are damage. RocksDB does not see it: it takes a
  list of tables that was cut for an unfinished one, and opens without the tables that are missing in it.
- With `applying`, the same files mean that nothing of what was to be applied reached the disk: the copy is at `delta`.
  Other files mean that it holds an unknown part of what comes after `delta`, up to `applying`. If that is `repeatable`,
  applying it again gives the same as applying it once, and the copy is good for every chain with both deltas on it. If
  not, the copy can't be used: versions that are put again may meet segments that have expired since, and of an entry
  that an upgrade moved, only the delete may be on the disk.

The intent is on the disk before the database is touched; the outcome is written after the database was flushed and
closed. Column families are flushed one after the other, so no marker within the database could tell.

`stores` says what is in it, for tools: a family's name does not tell a store's kind. Older releases wrote neither it
nor `repeatable`, which is false then.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from statestore.bytestore.engines.rocksdb_options import local_disk_errors
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import FormatError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.location.durable_json import new_digest
from statestore.recovery.location.shard_files import path_part

_NAME = "statestore.marker"
_LIMIT_BYTES = 64 * 1024
_DAMAGED = "statestore.damaged"
_NOT_COUNTED = ("LOCK", "LOG", _DAMAGED)
_LIST_OF_TABLES = ("MANIFEST", "CURRENT")


class LocalMarker(NamedTuple):
    """What a local copy holds; a `delta` of "" is version 0, that is nothing."""

    state_id: str
    shard: int
    delta: str
    applying: str | None = None
    files: str | None = None
    stores: tuple[StoreSpec, ...] = ()
    repeatable: bool = False

    def judge_files(self, files: str) -> LocalMarker:
        """Return what the marker means for a copy whose files are `files`. Raises FormatError if they are damaged."""
        if self.applying is not None and self.files == files:
            return self._replace(applying=None)
        if self.applying is None and self.files not in (None, files):
            raise FormatError("local copy", "it does not hold the files that it was closed with")
        return self

    def count_applied(self, chain: Sequence[str]) -> int | None:
        """Return how many deltas of `chain`, after its first name, the copy holds for certain.

        None if it holds anything that is not on the chain, or that can't be applied again.
        """
        if self.delta not in chain:
            return None
        if self.applying is not None and not (self.repeatable and self.applying in chain):
            return None
        return chain.index(self.delta)


def files_digest(copy: Path) -> str:
    """Return a checksum of what a database's directory holds; of tables it takes names and sizes.

    For an open database, take it before anything is applied: any list of tables that includes some of that differs,
    whatever compactions do meanwhile.
    """
    hashed = new_digest()
    for path in sorted(copy.iterdir()):
        if path.name == _NAME or path.name.startswith(_NOT_COUNTED):
            continue
        with suppress(FileNotFoundError):  # a compaction has just removed it
            hashed.update(f"{path.name}:{path.stat().st_size}\n".encode())
            if path.name.startswith(_LIST_OF_TABLES):
                hashed.update(path.read_bytes())
    return hashed.hexdigest()


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
            path_part(fields["state_id"]),
            whole_number(fields["shard"], 0),
            str(fields["delta"]),
            None if applying is None else str(applying),
            fields.get("files"),
            tuple(StoreSpec.from_json(spec) for spec in fields.get("stores", ())),
            fields.get("repeatable") is True,
        )
    except (*MALFORMED, FormatError) as cause:
        raise FormatError("local marker", f"{path} is not one: {data[:200]!r}") from cause


def write_marker(copy: Path, marker: LocalMarker, *, durably: bool) -> None:
    """Replace a copy's marker in place: a torn one costs a rebuild. Raises LocalDiskFullError, LocalDirectoryError."""
    with local_disk_errors("local copy", str(copy)), open(copy / _NAME, "wb") as file:
        fields = {**marker._asdict(), "stores": [spec.to_json() for spec in marker.stores]}
        file.write(json.dumps(fields).encode())
        if durably:
            file.flush()
            os.fsync(file.fileno())


def note_damage(copy: Path) -> None:
    """Have a copy rebuilt when it is opened next; it may be in use meanwhile."""
    (copy / _DAMAGED).touch()


def is_damaged(copy: Path) -> bool:
    """Return whether `note_damage` was called for a copy."""
    return (copy / _DAMAGED).exists()
