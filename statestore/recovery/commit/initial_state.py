"""Initial state: what a shard starts from when Spark's state has recorded nothing of it yet.

    shards/NNNN/initial.json   {"format": 1, "digest": str, "pointer": str}

`pointer` is a commit pointer, as Spark's state would hold it, and `digest` its checksum. A location that was not made
by a query but filled by a tool has one for each shard, and says so in its metadata; see ADR 7.
"""

from __future__ import annotations

import json
from typing import Final

from statestore.errors.state import CommitPointerError, DurableFileCorruptedError, DurableFileMissingError
from statestore.format.json_fields import MALFORMED
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.digests import digest
from statestore.recovery.location.durable_json import MAX_DOCUMENT_BYTES, write_document
from statestore.recovery.location.durable_location import DurableLocation

INITIAL_FORMAT: Final = 1


def initial_name(shard: int) -> str:
    """Return the name of the file that holds the initial pointer of a shard."""
    return f"shards/{shard:04d}/initial.json"


def write_initial_pointer(location: DurableLocation, pointer: CommitPointer) -> None:
    """Have the shard of `pointer` start from it. Raises UnreadableCommitError, LocationNotWritableError."""
    text = pointer.read_back().to_json()
    fields = {"format": INITIAL_FORMAT, "digest": digest(text.encode()), "pointer": text}
    write_document(location, initial_name(pointer.shard), json.dumps(fields).encode())


def initial_pointer(location: DurableLocation, state_id: str, shard: int) -> CommitPointer:
    """Return the pointer that a shard starts from. Raises DurableFileMissingError, DurableFileCorruptedError."""
    name = initial_name(shard)
    where = location.path(name)
    data = location.read(name, MAX_DOCUMENT_BYTES)
    if data is None:
        raise DurableFileMissingError(where, needed_by=f"shard {shard}, of which Spark has recorded nothing,")
    try:
        fields = json.loads(data.to_pybytes())
        if fields["format"] != INITIAL_FORMAT:
            raise ValueError(f"it has format {fields['format']!r}, this release knows {INITIAL_FORMAT}")
        text = str(fields["pointer"])
        if digest(text.encode()) != fields["digest"]:
            raise ValueError(f"its pointer has the checksum {digest(text.encode())}, {fields['digest']} was written")
        pointer = CommitPointer.from_json(text)
    except (*MALFORMED, CommitPointerError) as cause:
        raise DurableFileCorruptedError(where, cause=f"is not a readable initial pointer ({cause})") from cause
    if (pointer.state_id, pointer.shard) != (state_id, shard):
        raise DurableFileCorruptedError(
            where,
            cause=f"is that of shard {pointer.shard} of state {pointer.state_id}, wanted was that of shard {shard} "
            f"of state {state_id}",
        )
    return pointer
