"""A new state in a location of its own: filled delta by delta, and a state only once all of it is there.

    unfinished.json      {"format": 1, "from": str, "state_id": str, "shards": int, "request": str}; there while it is
                         being filled
    shards/NNNN/...      deltas and initial pointers
    statestore.json      written last: a location without it is not a state

So what a tool leaves that was killed is no state to any query, and the next tool clears it away. `from` says in words
what the state is made of. `request`, which may be missing, says that the tool can go on with it, asked for the same:
then no other one may take the location, and a shard that has an initial pointer is filled and checked.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable
from operator import attrgetter
from typing import Any, Final, NamedTuple

from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.record_context import NoRecord
from statestore.errors import DurableFileCorruptedError, TargetNotEmptyError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.commit.changelog import BatchChangelog, EveryWrite, LastWrites
from statestore.recovery.commit.delta import DeltaInfo, encode_delta
from statestore.recovery.commit.initial_state import initial_name, initial_pointer, write_initial_pointer
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, digest
from statestore.recovery.location import DurableLocation
from statestore.recovery.location.recorded_names import path_part
from statestore.recovery.location.shard_files import EPOCH_OF_TOOLS, SHARDS_DIRECTORY, delta_directory, new_delta_name
from statestore.recovery.making.logical_writes import LogicalWrite
from statestore.recovery.metadata.agreement import AGREEMENT_DIRECTORY
from statestore.recovery.metadata.state_metadata import METADATA_NAME, UNFINISHED_NAME, StateMetadata, read_metadata
from statestore.recovery.metadata.turn import TURNS_DIRECTORY, turn

_LOG = logging.getLogger(__name__)
MARKER_NAME: Final = UNFINISHED_NAME
_MARKER_FORMAT: Final = 1
# What a write costs in memory beside its bytes.
_OVERHEAD_BYTES: Final = 200
DELTA_TARGET_BYTES: Final = 32 << 20
_NO_STATE: Final = frozenset({"lost+found", TURNS_DIRECTORY, AGREEMENT_DIRECTORY})
"""The first is in the root of a disk, and often not to be read."""


class UnfinishedState(NamedTuple):
    """What `unfinished.json` says."""

    made_from: str
    state_id: str
    shards: int
    request: str | None
    is_complete: bool = False
    """Whether it is a state by now, of which only the mark was left."""


def claim_target(location: DurableLocation, made_from: str, new: StateMetadata, request: str | None = None) -> None:
    """Take an empty location, or one that was left half filled, which is cleared. `made_from` is for whoever looks.

    With a `request` it is `resume_target` that goes on with it, and nobody else. Raises TargetNotEmptyError if there is
    anything else, LocationBusyError, and LocationNotWritableError.
    """
    marker: dict[str, Any] = {
        "format": _MARKER_FORMAT,
        "from": made_from,
        "state_id": new.state_id,
        "shards": new.shards,
    }
    if request is not None:
        marker["request"] = request
    # Before anything is written: it may be somebody's directory of other things.
    _refuse_taken(location, _left_behind(location))
    with turn(location, f"what makes a state of {made_from}"):
        left_behind = _left_behind(location)
        _refuse_taken(location, left_behind)
        # First of all: who was there before may be about to end, and must not once anything of it is removed.
        location.write(MARKER_NAME, json.dumps(marker).encode())
        if left_behind is not None:
            _LOG.info("%s: removing what was written of a state that was not finished", location)
            for shard in _shards_there(location):
                _clear_shard(location, shard)
        # A query that starts looks for the mark after it has left a file there: one of both sees the other.
        starting = location.names(AGREEMENT_DIRECTORY)
        if starting:
            location.delete(MARKER_NAME)
            raise TargetNotEmptyError(
                str(location), found=f"what a query has begun that starts there ({starting[0]!r})"
            )


def resume_target(location: DurableLocation, request: str) -> UnfinishedState | None:
    """Return what was claimed for the same request and not finished, None if nothing was.

    Shards that are not finished are cleared; of the others `finished_shards` has the pointers. One that lacks nothing
    but its end is ended: then the location is a state. Raises TargetNotEmptyError if it has become another state.
    """
    if _begun(location, request) is None:
        return None
    with turn(location, "what goes on with making a state"):
        left_behind = _begun(location, request)
        if left_behind is None:
            return None
        if left_behind.is_complete:
            location.delete(MARKER_NAME)
            return left_behind
        for shard in range(left_behind.shards):
            if location.read(initial_name(shard)) is None:
                _clear_shard(location, shard)
        return left_behind


def refuse_taken(location: DurableLocation, request: str) -> None:
    """Raise TargetNotEmptyError if neither `claim_target` nor, for the same request, `resume_target` takes a location.

    Nothing is changed.
    """
    if _begun(location, request) is None:
        _refuse_taken(location, _left_behind(location))


def _begun(location: DurableLocation, request: str) -> UnfinishedState | None:
    """Return what was begun for the same request. Raises TargetNotEmptyError if it has become another state."""
    left_behind = _left_behind(location)
    if left_behind is None or left_behind.request != request:
        return None
    metadata = read_metadata(location)
    if metadata is None:
        return left_behind
    if metadata.state_id != left_behind.state_id:
        raise TargetNotEmptyError(str(location), found=f"another state than was begun there ({METADATA_NAME})")
    return left_behind._replace(is_complete=True)


def _refuse_taken(location: DurableLocation, left_behind: UnfinishedState | None) -> None:
    """Raise TargetNotEmptyError if a location is not empty, and not half filled by who may be cleared away."""
    if location.read(METADATA_NAME) is not None:
        raise TargetNotEmptyError(str(location), found=f"a state ({METADATA_NAME})")
    if left_behind is None:
        stranger = _first_file(location, "")
        if stranger is not None:
            raise TargetNotEmptyError(str(location), found=repr(stranger))
    elif left_behind.request is not None:
        raise TargetNotEmptyError(
            str(location), found=f"what another command has begun to make of {left_behind.made_from}, as it was then"
        )


def _first_file(location: DurableLocation, directory: str) -> str | None:
    """Return the name of a file in a directory, or at any depth below it; None if there are only leftovers of writers.

    Whoever finds other people's files among those of a state can't tell them apart.
    """
    files = (entry.name for entry in location.entries(directory) if not entry.is_partial)
    below = (_first_file(location, name) for name in location.directories(directory) if name not in _NO_STATE)
    return next(files, None) or next(filter(None, below), None)


def finished_shards(location: DurableLocation, state_id: str, shards: int) -> dict[int, CommitPointer]:
    """Return from where those shards of an unfinished state start that are filled and checked, by shard."""
    found = (shard for shard in range(shards) if location.read(initial_name(shard)) is not None)
    return {shard: initial_pointer(location, state_id, shard) for shard in found}


def _shards_there(location: DurableLocation) -> list[int]:
    """Return the shards of which there are files, whoever has written them."""
    names = (directory.rpartition("/")[2] for directory in location.directories(SHARDS_DIRECTORY))
    return sorted(int(name) for name in names if name.isascii() and name.isdigit())


def _clear_shard(location: DurableLocation, shard: int) -> None:
    location.delete_all([initial_name(shard), *location.names(delta_directory(shard))])


def _left_behind(location: DurableLocation) -> UnfinishedState | None:
    data = location.read(MARKER_NAME)
    if data is None:
        return None
    try:
        fields = json.loads(data.to_pybytes())
        request = fields.get("request")
        return UnfinishedState(
            str(fields.get("from", "something else")),
            path_part(fields["state_id"]),
            whole_number(fields["shards"], 1),
            None if request is None else str(request),
        )
    except MALFORMED as cause:
        raise DurableFileCorruptedError(
            location.path(MARKER_NAME), problem=f"does not say what was begun ({cause!r})"
        ) from cause


def complete_target(location: DurableLocation, metadata: StateMetadata, pointers: Iterable[CommitPointer]) -> None:
    """Make the location a state, whose shards start from `pointers`.

    Raises TargetNotEmptyError if it was claimed for another one meanwhile, or is a state by now, LocationBusyError, and
    LocationNotWritableError.
    """
    with turn(location, f"what ends the making of state {metadata.state_id}"):
        claimed = _left_behind(location)
        if claimed is None or claimed.state_id != metadata.state_id or location.read(METADATA_NAME) is not None:
            raise TargetNotEmptyError(
                str(location), found="what another command has begun, or finished, there meanwhile"
            )
        for pointer in pointers:
            write_initial_pointer(location, pointer)
        location.write(METADATA_NAME, metadata.to_json().encode())
        location.delete(MARKER_NAME)


class TargetShards:
    """Takes the writes of all new shards, and puts them into deltas of some MB; their memory is bounded.

    `memory_bytes` is about how much of them is held at most. The deltas of a shard are applied in the order in which
    they were written; within one, the writes of versioned stores in order of time.
    """

    def __init__(self, location: DurableLocation, metadata: StateMetadata, memory_bytes: int) -> None:
        self.deltas: list[list[DurableFile]] = [[] for _ in range(metadata.shards)]
        """The deltas of each shard that were written."""
        self._location = location
        self._state_id = metadata.state_id
        self._specs = {spec.name: spec for spec in metadata.stores}
        self._memory_bytes = memory_bytes
        self._held: list[dict[str, list[LogicalWrite]]] = [{} for _ in range(metadata.shards)]
        self._held_bytes = [0] * metadata.shards
        self._all_held_bytes = 0

    def put(self, shard: int, store: str, writes: list[LogicalWrite], size_bytes: int) -> None:
        """Add writes to a store of a shard, after all that were added before."""
        self._held[shard].setdefault(store, []).extend(writes)
        added = size_bytes + _OVERHEAD_BYTES * len(writes)
        self._held_bytes[shard] += added
        self._all_held_bytes += added
        if self._held_bytes[shard] >= DELTA_TARGET_BYTES:
            self._flush(shard)
        while self._all_held_bytes > self._memory_bytes:
            self._flush(self._held_bytes.index(max(self._held_bytes)))

    def flush(self) -> None:
        """Write all that is held."""
        for shard, held in enumerate(self._held):
            if held:
                self._flush(shard)

    def _flush(self, shard: int) -> None:
        info = DeltaInfo(self._state_id, shard, len(self.deltas[shard]) + 1)
        changelogs = {store: _changelog(self._specs[store], writes) for store, writes in self._held[shard].items()}
        # Without stream times: what was kept so far is kept whatever the order in which it comes.
        data = encode_delta(info, changelogs, {})
        name = new_delta_name(shard, info.version, EPOCH_OF_TOOLS)
        self._location.write(name, data)
        self.deltas[shard].append(DurableFile(name, data.size, digest(data)))
        self._all_held_bytes -= self._held_bytes[shard]
        self._held[shard], self._held_bytes[shard] = {}, 0


def _changelog(spec: StoreSpec, writes: list[LogicalWrite]) -> BatchChangelog:
    context = NoRecord()
    changelog: BatchChangelog
    if LAYOUTS[spec.kind].keeps_versions:
        changelog = EveryWrite(spec)
        # A version that is older than those before it by more than the retention would be refused.
        writes = sorted(writes, key=attrgetter("timestamp_ms"))
    else:
        changelog = LastWrites(spec)
    for key, stored, timestamp_ms in writes:
        changelog.append(key, stored, context, timestamp_ms)
    return changelog
