"""Snapshots: a checkpoint of a shard's database at one version, as files in the durable location.

The manifest is UTF-8 JSON:

    {"format": 1, "state_id": str, "shard": int, "version": int,
     "delta": str,                           the delta that made the version
     "base": str | null,                     the manifest of the snapshot that shares files with this one
     "stores": {name: {"entries": int}},     about how many keys each store has
     "files": [[local_name, name, size_bytes, digest], ...]}

A file is in the database's directory under `local_name`, and in the durable location under `name`: in the snapshot's
own directory, or that of an earlier snapshot which had the same file. `digest` is BLAKE2b-128, as hex.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import pyarrow as pa

from statestore.errors.state import DurableFileCorruptedError, DurableFileMissingError, SnapshotFormatError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef, check_content, durable_file
from statestore.recovery.location.durable_json import MAX_DOCUMENT_BYTES, digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import path_part

MANIFEST_FORMAT: Final = 1
_DATABASE: Final = "CURRENT"


class SnapshotFile(NamedTuple):
    """A file of a snapshot: its name in the database's directory, and the durable file that it is."""

    local_name: str
    durable: DurableFile


@dataclass(frozen=True)
class Manifest:
    """What a snapshot consists of."""

    state_id: str
    shard: int
    version: int
    delta: str
    base: str | None
    entries: Mapping[str, int]
    """About how many keys each store has. A store that is not there was added later."""
    files: tuple[SnapshotFile, ...]
    name: str = ""
    """Where it was read from; not in the file."""

    @property
    def size_bytes(self) -> int:
        """The size of all files together."""
        return sum(file.durable.size_bytes for file in self.files)

    def to_json(self) -> bytes:
        """Return the content of the manifest file."""
        fields = {
            "format": MANIFEST_FORMAT,
            "state_id": self.state_id,
            "shard": self.shard,
            "version": self.version,
            "delta": self.delta,
            "base": self.base,
            "stores": {name: {"entries": entries} for name, entries in self.entries.items()},
            "files": [[file.local_name, *file.durable] for file in self.files],
        }
        return json.dumps(fields, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: pa.Buffer, where: str) -> Manifest:
        """Return what `to_json` gave. Raises DurableFileCorruptedError, SnapshotFormatError."""
        try:
            fields = json.loads(data.to_pybytes())
            if whole_number(fields["format"], 1) > MANIFEST_FORMAT:
                raise SnapshotFormatError(where, found=fields["format"], known=MANIFEST_FORMAT)
            files = tuple(SnapshotFile(path_part(name), durable_file(file)) for name, *file in fields["files"])
            if _DATABASE not in {file.local_name for file in files}:
                # Without it RocksDB takes the directory for a new database.
                raise ValueError(f"it has no file {_DATABASE}")
            base = fields["base"]
            return cls(
                path_part(fields["state_id"]),
                whole_number(fields["shard"], 0),
                whole_number(fields["version"], 1),
                str(fields["delta"]),
                None if base is None else str(base),
                {str(name): whole_number(store["entries"], 0) for name, store in fields["stores"].items()},
                files,
            )
        except MALFORMED as cause:
            raise DurableFileCorruptedError(where, cause=f"is not a snapshot's manifest ({cause!r})") from cause


def read_manifest(location: DurableLocation, pointer: CommitPointer, snapshot: SnapshotRef) -> Manifest:
    """Return a snapshot's manifest. Raises DurableFileMissingError, DurableFileCorruptedError, SnapshotFormatError."""
    file = snapshot.manifest
    where = location.path(file.name)
    data = location.read(file.name, min(file.size_bytes, MAX_DOCUMENT_BYTES))
    if data is None:
        raise DurableFileMissingError(where, needed_by=f"the snapshot of shard {pointer.shard} at {snapshot.version}")
    check_content(where, file, data.size, digest(data))
    manifest = Manifest.from_json(data, where)
    expected = (pointer.state_id, pointer.shard, snapshot.version, snapshot.delta)
    found = (manifest.state_id, manifest.shard, manifest.version, manifest.delta)
    if found != expected:
        raise DurableFileCorruptedError(where, cause=f"is the manifest of {found}, wanted was {expected}")
    return replace(manifest, name=file.name)
