"""The commit pointer: what Spark's own state holds of a shard, and the only thing that decides what is committed.

Stored as one JSON string (arrays in the state schema fail in applyInPandasWithState of pyspark 4.2):

    {"format": 3, "state_id": str, "shard": int, "version": int,
     "deltas": [[name, size_bytes, digest], ...],      oldest first; the last one made `version`
     "skipped_records": int, "stream_time_ms": int,
     "stores": {name: stream_time_ms, ...},            of the segmented stores; format 1 had none
     "punctuations": {node: [[clock, interval_ms, start_ms | null, next_ms | null], ...], ...}}
                                                       formats 1 and 2 had none

`digest` is BLAKE2b of 16 bytes, as hex. `name` is relative to the state location.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import NamedTuple

import pyarrow as pa

from statestore.errors import CommitPointerError
from statestore.recovery.json_fields import MALFORMED, whole_number
from statestore.recovery.punctuations import RecordedPunctuations, punctuations_from_json

POINTER_FORMAT = 3
_READABLE_FORMATS = (1, 2, 3)
_DIGEST_SIZE_BYTES = 16


def digest(data: bytes | pa.Buffer) -> str:
    """Return the checksum that is recorded of a durable file, as hex."""
    return blake2b(memoryview(data), digest_size=_DIGEST_SIZE_BYTES).hexdigest()


class DurableFile(NamedTuple):
    """A durable file as it was when it was written: name, size and checksum."""

    name: str
    size_bytes: int
    digest: str


@dataclass(frozen=True)
class CommitPointer:
    """The committed state of one shard: `version` is what the deltas, applied in order, make of nothing.

    `skipped_records` counts the records that no serde could read, since the first start; `stream_time_ms` is the
    highest timestamp seen, -1 before the first record. `store_times_ms` is the stream time of each segmented store,
    which decides what has expired: a store that is not there was not written to yet. `punctuations` says
    when each schedule of a processor is due next.
    """

    state_id: str
    shard: int
    version: int = 0
    deltas: tuple[DurableFile, ...] = ()
    skipped_records: int = 0
    stream_time_ms: int = -1
    store_times_ms: Mapping[str, int] = field(default_factory=dict)
    punctuations: RecordedPunctuations = field(default_factory=dict)

    @property
    def head(self) -> str:
        """The name of the delta that made this version; empty for version 0."""
        return self.deltas[-1].name if self.deltas else ""

    def advance(
        self,
        delta: DurableFile | None,
        *,
        skipped_records: int,
        stream_time_ms: int,
        store_times_ms: Mapping[str, int],
        punctuations: RecordedPunctuations | None = None,
    ) -> CommitPointer:
        """Return the pointer after one more batch; `delta` is None if the batch changed no state.

        `punctuations` of None are those of before.
        """
        counted = replace(
            self,
            skipped_records=self.skipped_records + skipped_records,
            stream_time_ms=stream_time_ms,
            store_times_ms={**self.store_times_ms, **store_times_ms},
            punctuations=self.punctuations if punctuations is None else punctuations,
        )
        if delta is None:
            return counted
        return replace(counted, version=self.version + 1, deltas=(*self.deltas, delta))

    def to_json(self) -> str:
        """Return the pointer as it is kept in Spark's state."""
        return json.dumps(
            {
                "format": POINTER_FORMAT,
                "state_id": self.state_id,
                "shard": self.shard,
                "version": self.version,
                "deltas": self.deltas,
                "skipped_records": self.skipped_records,
                "stream_time_ms": self.stream_time_ms,
                "stores": self.store_times_ms,
                "punctuations": self.punctuations,
            },
            separators=(",", ":"),
        )

    @classmethod
    def from_json(cls, text: str) -> CommitPointer:
        """Return the pointer that `to_json` gave. Raises CommitPointerError if it is not one."""
        where = "commit pointer in Spark's state"
        try:
            fields = json.loads(text)
            if fields["format"] not in _READABLE_FORMATS:
                raise CommitPointerError(
                    where,
                    f"has format {fields['format']!r}, this release knows {POINTER_FORMAT}: it was written by another "
                    "release of statestore, use that one",
                )
            deltas = tuple(
                DurableFile(str(name), whole_number(size, 0), str(check)) for name, size, check in fields["deltas"]
            )
            pointer = cls(
                str(fields["state_id"]),
                whole_number(fields["shard"], 0),
                whole_number(fields["version"], 0),
                deltas,
                whole_number(fields["skipped_records"], 0),
                whole_number(fields["stream_time_ms"], -1),
                {str(name): whole_number(time_ms, -1) for name, time_ms in fields.get("stores", {}).items()},
                punctuations_from_json(fields.get("punctuations", {})),
            )
        except MALFORMED as cause:
            raise CommitPointerError(where, f"{text[:200]!r} is not one of ours") from cause
        return pointer
