"""JSON files of the durable location: how long they may be, and the checksum of most of them.

A bit that flips there must not pass for what was recorded:

    {..., "digest": the checksum of the other fields, as JSON in ASCII, sorted by name, without spaces}

Spaces and the order of fields are not part of it. Files of older releases have none, and are taken as they are.
JSON takes some twenty times its length once it is parsed, so that nobody reads any of unknown length.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pyarrow as pa

from statestore.errors.state import LocationNotWritableError
from statestore.recovery.location.digests import digest
from statestore.recovery.location.durable_location import DurableLocation

MAX_NOTE_BYTES: Final = 64 << 10
"""Of what says a few things of one process: fences, turns, marks of what is unfinished."""
MAX_DOCUMENT_BYTES: Final = 16 << 20
"""Of what grows with the state: its metadata, initial pointers, manifests. 100,000 deltas or files are that long."""
_DIGEST: Final = "digest"


def to_durable_json(fields: Mapping[str, Any], *, indent: int | None = None) -> str:
    """Return fields as JSON, with their checksum at the end. With `indent` each has lines of its own, for people."""
    return json.dumps({**fields, _DIGEST: _digest_of(fields)}, indent=indent, ensure_ascii=indent is None)


def from_durable_json(data: bytes | pa.Buffer | None) -> dict[str, Any]:
    """Return the fields that `to_durable_json` was given. Raises one of MALFORMED if they are damaged, or not there."""
    fields = dict(json.loads(b"" if data is None else bytes(data)))
    if _DIGEST in fields:
        recorded = fields.pop(_DIGEST)
        computed = _digest_of(fields)
        if recorded != computed:
            raise ValueError(f"its fields have the checksum {computed}, {recorded!r} was written")
    return fields


def write_document(location: DurableLocation, name: str, content: bytes) -> None:
    """Write a JSON file that can be read back. Raises LocationNotWritableError for one that is too long for that."""
    if len(content) > MAX_DOCUMENT_BYTES:
        raise LocationNotWritableError(
            str(location),
            cause=f"{name} would have {len(content)} bytes, and no more than {MAX_DOCUMENT_BYTES} are read of it",
            remedy="Spread the state over more shards",
        )
    location.write(name, content)


def _digest_of(fields: Mapping[str, Any]) -> str:
    return digest(json.dumps(fields, sort_keys=True, separators=(",", ":")).encode("ascii"))
