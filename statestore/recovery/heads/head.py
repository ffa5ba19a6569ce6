"""A head: the commit pointers of all shards after one batch, which Spark has committed.

    heads/ORDER-BATCH-RUN.json    {"format": 1, "state_id": str, "query": str, "run": str, "batch": int, "time_ms": int,
                                   "pointers": [str, ...], "changed": [int, ...], the fields of figures, "digest": str}
    heads/ORDER-BATCH-RUN.asked   the same: with it a run asks for its ORDER, before its first head

The name that comes last is the head: RUN is the ORDERth run that published here (8 digits), BATCH has 12. Files are
never replaced, so a run with a lower ORDER can't publish over a higher one. Readers look at `.json` only.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from statestore.errors import RecoveryError
from statestore.errors.readable import utc_text
from statestore.errors.state import CommitPointerError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.figures import HeadFigures
from statestore.recovery.location.durable_json import (
    MAX_DOCUMENT_BYTES,
    from_durable_json,
    to_durable_json,
    write_document,
)
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import path_part

HEADS_DIRECTORY: Final = "heads"
HEAD_FORMAT: Final = 1
MAX_ORDER: Final = 10**8 - 1
PUBLISHED: Final = "json"
ASKED: Final = "asked"
_NAME: Final = re.compile(rf"heads/(\d{{8}})-(\d{{12}})-([0-9A-Za-z-]{{1,64}})\.({PUBLISHED}|{ASKED})")
_DIGEST: Final = b'"digest": "'
_FEWER_DELTAS: Final = "It names all deltas since each shard's last snapshots: lower snapshot_every_deltas"
_LOOKS: Final = 4
"""How often the newest file may be gone when it is read: two more were published meanwhile."""


class HeadName(NamedTuple):
    """What the name of a head says, in the order that says which one counts."""

    order: int
    batch: int
    run: str
    suffix: str = PUBLISHED

    @property
    def file(self) -> str:
        """The name of the file in the state location."""
        return f"{HEADS_DIRECTORY}/{self.order:08d}-{self.batch:012d}-{path_part(self.run)}.{self.suffix}"


@dataclass(frozen=True)
class Head:
    """What was committed after a batch, in each shard."""

    state_id: str
    query: str
    """The id of the query, as in Spark's checkpoint."""
    run: str
    """The id that Spark gave to this start of the query."""
    batch: int
    time_ms: int
    """When it was published, for people: nothing depends on it."""
    pointers: tuple[CommitPointer, ...]
    """One for each shard, by number."""
    changed: tuple[int, ...] = ()
    """The shards of which this batch has written a delta, as far as the run knew what they had before."""
    figures: HeadFigures = field(default_factory=HeadFigures)

    def describe(self) -> str:
        """Return the head in words."""
        return f"batch {self.batch} of query {self.query}, committed by {utc_text(self.time_ms)}"

    def to_json(self) -> bytes:
        """Return the file's content."""
        fields = {
            "format": HEAD_FORMAT,
            "state_id": self.state_id,
            "query": self.query,
            "run": self.run,
            "batch": self.batch,
            "time_ms": self.time_ms,
            "pointers": [pointer.to_json() for pointer in self.pointers],
            "changed": self.changed,
            **self.figures.to_fields(),
        }
        return to_durable_json(fields).encode()

    @classmethod
    def from_json(cls, data: Any, where: str) -> Head:
        """Return what `to_json` gave. Raises RecoveryError."""
        try:
            if _DIGEST not in bytes(data):
                raise ValueError("it has no checksum")
            fields = from_durable_json(data)
            if fields["format"] != HEAD_FORMAT:
                raise ValueError(f"it has format {fields['format']!r}, this release knows {HEAD_FORMAT}")
            pointers = tuple(CommitPointer.from_json(str(text)) for text in fields["pointers"])
            head = cls(
                path_part(fields["state_id"]),
                path_part(fields["query"]),
                path_part(fields["run"]),
                whole_number(fields["batch"], 0),
                whole_number(fields["time_ms"], 0),
                pointers,
                tuple(whole_number(shard, 0) for shard in fields["changed"]),
                HeadFigures.from_fields(fields),
            )
            found = [(pointer.state_id, pointer.shard) for pointer in pointers]
            if found != [(head.state_id, shard) for shard in range(len(pointers))]:
                raise ValueError(f"its pointers are not those of the shards of state {head.state_id} in their order")
            if not {*head.changed} <= {*range(len(pointers))}:
                raise ValueError(f"it names changed shards {head.changed}, and has {len(pointers)} shards")
        except (*MALFORMED, CommitPointerError) as cause:
            remedy = "Name the query's checkpoint instead; the query publishes another head with its next batch"
            raise RecoveryError(where, f"is not a readable head ({cause}). {remedy}") from cause
        return head


def head_names(names: Iterable[str], suffixes: Container[str] = (PUBLISHED,)) -> list[HeadName]:
    """Return the heads among the names of files, the one that counts last."""
    found = [each for name in names if (each := _NAME.fullmatch(name)) is not None]
    return sorted(HeadName(int(each[1]), int(each[2]), each[3], each[4]) for each in found if each[4] in suffixes)


def read_head(location: DurableLocation, name: HeadName) -> Head | None:
    """Return a head, None if it is gone. Raises RecoveryError, LocationError."""
    data = location.read(name.file, MAX_DOCUMENT_BYTES)
    return None if data is None else Head.from_json(data, location.path(name.file))


def newest_head(location: DurableLocation, state_id: str) -> Head | None:
    """Return the head of a state, None if it has none. Raises RecoveryError, LocationError."""
    heads = newest_heads([(location, state_id)])
    return None if heads is None else heads[0]


def newest_heads(states: Sequence[tuple[DurableLocation, str]]) -> list[Head] | None:
    """Return the heads of the newest batch of which all stages have one; None if there is none.

    `states` has the location and the id of each stage's state. Raises RecoveryError, LocationError.
    """
    for _ in range(_LOOKS):
        names = [head_names(location.names(HEADS_DIRECTORY)) for location, _ in states]
        common = set.intersection(*({(name.batch, name.run) for name in each} for each in names))
        last = next((name for name in reversed(names[0]) if (name.batch, name.run) in common), None)
        if last is None:
            return None
        heads = []
        for (location, state_id), each in zip(states, names, strict=True):
            name = next(name for name in reversed(each) if (name.batch, name.run) == (last.batch, last.run))
            head = read_head(location, name)
            if head is not None and head.state_id != state_id:
                return None
            heads.append(head)
        found = [head for head in heads if head is not None]
        if len(found) == len(states):
            return found
    return None


def write_head(location: DurableLocation, order: int, head: Head, suffix: str = PUBLISHED) -> HeadName:
    """Publish a head, or ask for its order. Raises LocationNotWritableError."""
    name = HeadName(order, head.batch, head.run, suffix)
    write_document(location, name.file, head.to_json(), _FEWER_DELTAS)
    return name
