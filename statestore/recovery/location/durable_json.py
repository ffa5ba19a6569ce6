"""JSON files of the durable location: how long they may be, and the checksum of most of them.

A bit that flips there must not pass for what was recorded:

    {..., "digest": the checksum of the other fields, as JSON in ASCII, sorted by name, without spaces}

Spaces and the order of fields are not part of it. Files of older releases have none, and are taken as they are.
Parsed JSON takes some twenty times its length, so every read has a bound.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.durable_location import DurableLocation

_DIGEST_SIZE_BYTES = 16
_CHUNK_BYTES = 4 << 20


def new_digest() -> blake2b:
    """Return BLAKE2b of 128 bits, whose hexdigest is the checksum that is recorded of durable files."""
    return blake2b(digest_size=_DIGEST_SIZE_BYTES)


def digest(data: bytes | pa.Buffer) -> str:
    """Return the checksum that is recorded of a durable file, as hex."""
    return blake2b(memoryview(data), digest_size=_DIGEST_SIZE_BYTES).hexdigest()


def file_digest(path: Path) -> str:
    """Return the checksum of a local file, as recorded of durable ones."""
    hashed = new_digest()
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            hashed.update(chunk)
    return hashed.hexdigest()


MAX_NOTE_BYTES: Final = 64 << 10
"""The longest file about one process: a fence, a turn, a mark of what is unfinished."""
MAX_DOCUMENT_BYTES: Final = 16 << 20
"""The longest file that grows with the state: metadata, initial pointer, manifest. 100,000 deltas or files fill it."""
_DIGEST: Final = "digest"


def to_durable_json(fields: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Return fields as JSON, with their checksum at the end; with `indent`, for people."""
    return json.dumps({**fields, _DIGEST: _digest_of(fields)}, indent=indent, ensure_ascii=indent is None)


def from_durable_json(data: bytes | pa.Buffer | None) -> dict[str, Any]:
    """Return the fields that `to_durable_json` was given. Raises one of MALFORMED if they are damaged or missing."""
    fields = dict(json.loads(b"" if data is None else bytes(data)))
    if _DIGEST in fields:
        recorded = fields.pop(_DIGEST)
        computed = _digest_of(fields)
        if recorded != computed:
            raise ValueError(f"its fields have the checksum {computed}, {recorded!r} was written")
    return fields


_MORE_SHARDS: Final = "Spread the state over more shards"


def write_document(location: DurableLocation, name: str, content: bytes, remedy: str = _MORE_SHARDS) -> None:
    """Write a JSON file that can be read back. Raises LocationNotWritableError, with `remedy` for one too long."""
    if len(content) > MAX_DOCUMENT_BYTES:
        raise LocationNotWritableError(
            str(location),
            cause=f"{name} would have {len(content)} bytes, of which no more than {MAX_DOCUMENT_BYTES} are read back",
            remedy=remedy,
        )
    location.write(name, content)


def _digest_of(fields: Mapping[str, Any]) -> str:
    return digest(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii"))
