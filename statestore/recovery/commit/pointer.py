"""The commit pointer: what Spark's own state holds of a shard, and the only thing that decides what is committed.

Stored as one JSON string (arrays in the state schema fail in applyInPandasWithState of pyspark 4.2):

    {"format": 6, "state_id": str, "shard": int, "version": int,
     "snapshots": [[version, name, size_bytes, digest, delta, since], ...],     oldest first; not before format 4
     "deltas": [[name, size_bytes, digest], ...],      oldest first; the last one made `version`
     "skipped_records": int, "stream_time_ms": int,
     "stores": {name: stream_time_ms, ...},            of the segmented stores; format 1 had none
     "punctuations": {node: [[clock, interval_ms, start_ms | null, next_ms | null], ...], ...},
                                                       formats 1 and 2 had none
     "metadata": {name: whole number, ...},            of processors; not before format 5
     "earlier": [...]}                                 see `pointer_fields`; not before format 6

`digest` is BLAKE2b of 16 bytes, as hex. `name` is relative to the state location. Of a snapshot, name, size and digest
are those of its manifest, `delta` names the delta that made its version, and `since` is the version of the first
pointer that had it.

A location that a tool filled has an initial pointer for each shard, and its metadata says so, see ADR 7. A shard starts
from it while Spark's state has recorded nothing of the shard. `digest` is the pointer's checksum:

    shards/NNNN/initial.json   {"format": 1, "digest": str, "pointer": str}
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple

from statestore.errors.state import (
    CommitPointerError,
    DurableFileCorruptedError,
    DurableFileMissingError,
    UnreadableCommitError,
)
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.commit.pointer_fields import (
    SHARD_CLOCK,
    TIME_SUFFIX,
    BatchEnd,
    Clock,
    EarlierShards,
    RecordedPunctuations,
    SeenTimes,
    beyond,
    earlier_from_json,
    earlier_to_json,
    processor_metadata_from_json,
    punctuations_from_json,
)
from statestore.recovery.location.durable_json import MAX_DOCUMENT_BYTES, digest, write_document
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import path_part

POINTER_FORMAT = 6
_READABLE_FORMATS = (1, 2, 3, 4, 5, 6)


class DurableFile(NamedTuple):
    """A durable file as it was when it was written: name, size and checksum."""

    name: str
    size_bytes: int
    digest: str


def durable_file(recorded: list[object]) -> DurableFile:
    """Return the DurableFile that json.loads made a list of. Raises ValueError or TypeError if it is not one."""
    name, size_bytes, check = recorded
    return DurableFile(str(name), whole_number(size_bytes, 0), str(check))


def check_content(where: str, file: DurableFile, size_bytes: int, found: str) -> None:
    """Raise DurableFileCorruptedError unless a file, with the digest `found`, is the one that was recorded."""
    if size_bytes != file.size_bytes:
        raise DurableFileCorruptedError(where, cause=f"has {size_bytes} bytes, {file.size_bytes} were written")
    if found != file.digest:
        raise DurableFileCorruptedError(where, cause=f"has the checksum {found}, {file.digest} was written")


class SnapshotRef(NamedTuple):
    """A snapshot that a commit pointer names: its manifest, and where it stands among the versions."""

    version: int
    manifest: DurableFile
    delta: str
    """The name of the delta that made `version`."""
    since: int
    """The version of the first pointer that had the snapshot: older pointers do not need it."""


@dataclass(frozen=True)
class CommitPointer:
    """The committed state of one shard, and what it can be restored from.

    `deltas`, applied in order to the second newest of `snapshots`, make `version`; with fewer than two snapshots they
    begin at version 0, which is empty. So there are two ways to restore: from the newest snapshot, and without it.
    Older snapshots are listed for as long as a pointer that Spark retains may need them.

    `skipped_records` counts the records that no serde could read, since the first start; `stream_time_ms` is the
    highest timestamp seen, -1 before the first record. `store_times_ms` is the stream time of each segmented store
    that was written to: it decides what has expired. `punctuations` says when each schedule of a processor is due
    next, and `processor_metadata` has the numbers that processors keep. `earlier` is what the shards that this one was
    made of had seen beyond what it has seen itself.
    """

    state_id: str
    shard: int
    version: int = 0
    deltas: tuple[DurableFile, ...] = ()
    skipped_records: int = 0
    stream_time_ms: int = -1
    store_times_ms: Mapping[str, int] = field(default_factory=dict)
    punctuations: RecordedPunctuations = field(default_factory=dict)
    snapshots: tuple[SnapshotRef, ...] = ()
    """Oldest first."""
    processor_metadata: Mapping[str, int] = field(default_factory=dict)
    earlier: tuple[EarlierShards, ...] = ()

    @property
    def seen(self) -> SeenTimes:
        """The latest time that the shard, its stores and its processors have seen, of each that has seen one."""
        times_ms = {Clock("store", name): time_ms for name, time_ms in self.store_times_ms.items()}
        for name, number in self.processor_metadata.items():
            if name.endswith(TIME_SUFFIX):
                times_ms[Clock("processor", name)] = number
        times_ms[SHARD_CLOCK] = self.stream_time_ms
        return {clock: time_ms for clock, time_ms in times_ms.items() if time_ms >= 0}

    @property
    def base_version(self) -> int:
        """The version that `deltas` begin at."""
        return self.version - len(self.deltas)

    @property
    def chain(self) -> tuple[str, ...]:
        """The names of the deltas that made `base_version` and each version since; "" for version 0."""
        base = "" if self.base_version == 0 else self.snapshots[-2].delta
        return (base, *(delta.name for delta in self.deltas))

    @property
    def head(self) -> str:
        """The name of the delta that made this version; empty for version 0."""
        return self.chain[-1]

    @property
    def deltas_since_snapshot(self) -> tuple[DurableFile, ...]:
        """The deltas after the newest snapshot; all if there is none."""
        return self.deltas[self.snapshots[-1].version - self.base_version :] if self.snapshots else self.deltas

    def needed_since(self, retained_versions: int, beside: int = 0) -> int:
        """Return the version from which on files are needed by this pointer or one of the last `retained_versions`.

        That includes pointers of attempts that lost. Each has the snapshots of the pointer that it was opened at, which
        may be of a lost attempt too: up to `beside` versions before the oldest one.
        """
        known = [snapshot for snapshot in self.snapshots if snapshot.since < self.version - retained_versions - beside]
        return known[-2].version if len(known) > 1 else 0

    def advance(self, delta: DurableFile | None, end: BatchEnd) -> CommitPointer:
        """Return the pointer after one more batch; `delta` is None if the batch changed no state."""
        counted = replace(
            self,
            skipped_records=self.skipped_records + end.skipped_records,
            stream_time_ms=end.stream_time_ms,
            store_times_ms={**self.store_times_ms, **end.store_times_ms},
            punctuations=self.punctuations if end.punctuations is None else end.punctuations,
            processor_metadata={**self.processor_metadata, **end.processor_metadata},
        )
        if self.earlier:
            counted = replace(counted, earlier=beyond(self.earlier, counted.seen))
        if delta is None:
            return counted
        return replace(counted, version=self.version + 1, deltas=(*self.deltas, delta))

    def with_snapshot(
        self, version: int, manifest: DurableFile, delta: str, *, retained_versions: int
    ) -> CommitPointer:
        """Return the pointer with one more snapshot, newer than all it has, and without those that none needs."""
        snapshots = (*self.snapshots, SnapshotRef(version, manifest, delta, self.version))
        begin = snapshots[-2].version if len(snapshots) > 1 else 0
        added = replace(self, snapshots=snapshots, deltas=self.deltas[begin - self.base_version :])
        floor = added.needed_since(retained_versions)
        return replace(added, snapshots=tuple(snapshot for snapshot in snapshots if snapshot.version >= floor))

    def to_json(self) -> str:
        """Return the pointer as it is kept in Spark's state."""
        return json.dumps(self._record(), separators=(",", ":"))

    def read_back(self) -> CommitPointer:
        """Return the pointer as the next batch will read it. Raises UnreadableCommitError if that could not."""
        field_name: str | None = None
        try:
            found = self.from_json(self.to_json())
            if found == self:
                return found
            field_name = next(
                each.name for each in fields(self) if getattr(self, each.name) != getattr(found, each.name)
            )
            problem = f"{field_name}: {getattr(self, field_name)!r} reads back as {getattr(found, field_name)!r}"
        except CommitPointerError as cause:
            field_name, problem = cause.field, str(cause.__cause__)
        except MALFORMED as cause:
            problem = str(cause)
            for name, value in self._record().items():
                try:
                    json.dumps(value)
                except MALFORMED:
                    field_name, problem = name, f"{name}: {cause}"
        raise UnreadableCommitError(shard=self.shard, version=self.version, field=field_name, cause=problem)

    def _record(self) -> dict[str, Any]:
        return {
            "format": POINTER_FORMAT,
            "state_id": self.state_id,
            "shard": self.shard,
            "version": self.version,
            "snapshots": [[made.version, *made.manifest, made.delta, made.since] for made in self.snapshots],
            "deltas": self.deltas,
            "skipped_records": self.skipped_records,
            "stream_time_ms": self.stream_time_ms,
            "stores": self.store_times_ms,
            "punctuations": self.punctuations,
            "metadata": self.processor_metadata,
            "earlier": earlier_to_json(self.earlier),
        }

    @classmethod
    def from_json(cls, text: str) -> CommitPointer:
        """Return the pointer that `to_json` gave. Raises CommitPointerError if it is not one."""
        where = "commit pointer in Spark's state"
        try:
            found = json.loads(text)
            if found["format"] not in _READABLE_FORMATS:
                known = f"this release knows {POINTER_FORMAT}: another release of statestore wrote it, use that one"
                raise CommitPointerError(where, f"has format {found['format']!r}, {known}")
            pointer = cls(**{_ATTRIBUTES.get(name, name): _field(found, name) for name in _READ})
            _check(pointer)
        except MALFORMED as cause:
            field_name = cause.field if isinstance(cause, _FieldError) else None
            raise CommitPointerError(where, f"{text[:200]!r} is not one of ours ({cause})", field=field_name) from cause
        return pointer


class _FieldError(ValueError):
    def __init__(self, field: str, problem: object) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


def _field(found: Mapping[str, Any], name: str) -> Any:
    """Return a field of a pointer's JSON, checked. Raises ValueError, which names it."""
    if name in _SINCE and name not in found:
        return _SINCE[name]
    try:
        return _READ[name](found[name])
    except MALFORMED as cause:
        raise _FieldError(name, cause) from cause


def _check(pointer: CommitPointer) -> None:
    made = [snapshot.version for snapshot in pointer.snapshots]
    base = made[-2] if len(made) > 1 else 0
    if made != sorted(set(made)) or max(made, default=0) > pointer.version or pointer.base_version != base:
        raise ValueError(f"snapshots {made} and {len(pointer.deltas)} deltas don't make version {pointer.version}")
    for snapshot in pointer.snapshots:
        if not snapshot.version <= snapshot.since <= pointer.version:
            raise ValueError(f"version {snapshot.since} can't be the first with the snapshot of {snapshot.version}")
    if made and pointer.chain[made[-1] - base] != pointer.snapshots[-1].delta:
        raise ValueError(f"the snapshot of {made[-1]} is of another delta than {pointer.chain[made[-1] - base]}")


def _snapshot_from_json(fields: list[object]) -> SnapshotRef:
    version, name, size_bytes, check, delta, since = fields
    manifest = durable_file([name, size_bytes, check])
    return SnapshotRef(whole_number(version, 1), manifest, str(delta), whole_number(since, 1))


def parse_pointers(text: str) -> list[CommitPointer]:
    """Return the pointers that `python -m statestore.spark pointers` prints, one a line. Raises CommitPointerError."""
    return [CommitPointer.from_json(line) for line in text.splitlines() if line.strip()]


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "state_id": path_part,
    "shard": lambda shard: whole_number(shard, 0),
    "version": lambda version: whole_number(version, 0),
    "snapshots": lambda snapshots: tuple(_snapshot_from_json(snapshot) for snapshot in snapshots),
    "deltas": lambda deltas: tuple(durable_file(delta) for delta in deltas),
    "skipped_records": lambda count: whole_number(count, 0),
    "stream_time_ms": lambda time_ms: whole_number(time_ms, -1),
    "stores": lambda times_ms: {str(name): whole_number(time_ms, -1) for name, time_ms in times_ms.items()},
    "punctuations": punctuations_from_json,
    "metadata": processor_metadata_from_json,
    "earlier": earlier_from_json,
}
_ATTRIBUTES: Final = {"stores": "store_times_ms", "metadata": "processor_metadata"}
"""The fields that have another name in JSON."""
_SINCE: Final[Mapping[str, Any]] = {"stores": {}, "punctuations": {}, "snapshots": (), "metadata": {}, "earlier": ()}
"""The fields that older formats don't have, and what they are then."""


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
