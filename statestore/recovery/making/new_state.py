"""A new state in a location of its own: filled delta by delta, and a state only once all of it is there.

The one maker of states outside a query, whatever they are made of:

    NewState.claim       by one process, first; or `resume`, for a request that was interrupted
    filling, check       of each shard, wherever: a NewState travels
    keep                 of a shard that is checked, if the same request is to go on behind it
    complete             by one process, last

Whoever fails before that leaves a location that no query starts on, and that the next claim clears.

    unfinished.json      {"format": 1, "from": str, "state_id": str, "shards": int, "request": str}; there while it is
                         being filled
    shards/NNNN/...      deltas and initial pointers
    statestore.json      written last: a location without it is not a state

So what a tool leaves that was killed is no state to any query, and the next tool clears it away. `from` says in words
what the state is made of. `request`, which may be missing, says that the tool can go on with it, asked for the same:
then no other one may take the location, and a shard that has an initial pointer is filled and checked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, TypeAlias

from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors import TargetNotEmptyError
from statestore.errors.state import DurableFileCorruptedError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.commit.pointer import CommitPointer, initial_name, initial_pointer, write_initial_pointer
from statestore.recovery.location.durable_json import (
    MAX_DOCUMENT_BYTES,
    MAX_NOTE_BYTES,
    from_durable_json,
    to_durable_json,
    write_document,
)
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import SHARDS_DIRECTORY, delta_directory, path_part
from statestore.recovery.making.logical_writes import LogicalWrite, Tally, open_shard, store_writes
from statestore.recovery.making.state_filling import DEFAULT_MEMORY_BYTES, FilledShard, ShardFilling
from statestore.recovery.metadata.agreement import AGREEMENT_DIRECTORY, TURNS_DIRECTORY, turn
from statestore.recovery.metadata.state_metadata import METADATA_NAME, UNFINISHED_NAME, StateMetadata, read_metadata

_LOG = logging.getLogger(__name__)
_MARKER_FORMAT: Final = 1
_NO_STATE: Final = frozenset({"lost+found", TURNS_DIRECTORY, AGREEMENT_DIRECTORY})
"""The first is in the root of a disk, and often not to be read."""

CHECKING: Final = "checking"
OnEntries: TypeAlias = Callable[[str, int], None]
"""Is told in which phase of the making how many entries more were done: CHECKING, or what the source calls its own."""
EntryProof: TypeAlias = Callable[[StoreSpec, int, list[LogicalWrite]], None]
"""Raises unless some entries of a store belong to the shard in which they are."""


class _Unfinished(NamedTuple):
    made_from: str
    state_id: str
    shards: int
    request: str | None
    is_complete: bool = False
    """Whether it is a state by now, of which only the mark was left."""


@dataclass(frozen=True)
class NewState:
    """A state that is being made, in a location claimed for it. Travels to the processes that fill its shards.

    `work_dir`, of which None is the machine's, has room for a shard; a process holds about `memory_bytes`.
    """

    location: DurableLocation
    metadata: StateMetadata
    work_dir: str | None = None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    kept: frozenset[int] = frozenset()
    """The shards that an earlier run of the same request has filled and checked."""
    is_complete: bool = False
    """Whether an earlier run has made it a state, and left nothing to be done but to say so."""
    expiry_headers: Mapping[str, str] = field(default_factory=dict)
    """The header by which entries of a store expire, by store: what says when is made of it, in a store beside.

    The metadata has that store.
    """

    @classmethod
    def claim(
        cls,
        location: DurableLocation,
        metadata: StateMetadata,
        made_from: str,
        *,
        request: str | None = None,
        work_dir: str | None = None,
        memory_bytes: int = DEFAULT_MEMORY_BYTES,
    ) -> NewState:
        """Take an empty location, or one that was left half filled, which is cleared. `made_from` is for people.

        `resume` alone goes on with a `request`. Raises TargetNotEmptyError, LocationBusyError,
        LocationNotWritableError.
        """
        state = {"state_id": metadata.state_id, "shards": metadata.shards}
        mark: dict[str, Any] = {"format": _MARKER_FORMAT, "from": made_from, **state}
        # Before anything is written: it may be somebody's directory of other things.
        _refuse_occupied(location, _read_mark(location))
        with turn(location, f"what makes a state of {made_from}"):
            earlier = _read_mark(location)
            _refuse_occupied(location, earlier)
            # First of all: who was there before may be about to end, and must not once anything of it is removed.
            location.write(UNFINISHED_NAME, to_durable_json(mark).encode())
            if earlier is not None:
                _LOG.info("%s: removing what was written of a state that was not finished", location)
                # All of which there are files, whoever has written them.
                names = (directory.rpartition("/")[2] for directory in location.directories(SHARDS_DIRECTORY))
                for shard in sorted(int(name) for name in names if name.isascii() and name.isdigit()):
                    _clear_shard(location, shard)
            if request is not None:
                # Last: what was there before is nothing that the request has kept.
                location.write(UNFINISHED_NAME, to_durable_json({**mark, "request": request}).encode())
            # A query that starts looks for the mark after it has left a file there: one of both sees the other.
            starting = location.names(AGREEMENT_DIRECTORY)
            if starting:
                location.delete(UNFINISHED_NAME)
                raise TargetNotEmptyError(
                    str(location), found=f"what a query has begun that starts there ({starting[0]!r})"
                )
        return cls(location, metadata, work_dir, memory_bytes)

    @classmethod
    def resume(
        cls, location: DurableLocation, metadata: StateMetadata, request: str, *, work_dir: str | None = None
    ) -> NewState | None:
        """Go on with what was claimed for the same request and is no state yet; None if nothing was.

        It keeps its identity. Shards that were not kept are cleared; one that lacks nothing but its end is ended.
        Raises TargetNotEmptyError if it became another state, DurableFileCorruptedError if a kept shard can't be read.
        """
        if _unfinished_request(location, request) is None:
            return None
        with turn(location, "what goes on with making a state"):
            begun = _unfinished_request(location, request)
            if begun is None:
                return None
            kept = {
                shard
                for shard in range(begun.shards)
                if location.read(initial_name(shard), MAX_DOCUMENT_BYTES) is not None
            }
            if begun.is_complete:
                location.delete(UNFINISHED_NAME)
            else:
                for shard in range(begun.shards):
                    if shard not in kept:
                        _clear_shard(location, shard)
        for shard in sorted(kept):
            initial_pointer(location, begun.state_id, shard)
        metadata = replace(metadata, state_id=begun.state_id)
        return cls(location, metadata, work_dir, kept=frozenset(kept), is_complete=begun.is_complete)

    def filling(self) -> ShardFilling:
        """Return what takes the entries of shards: each shard must be filled by one."""
        return ShardFilling(self.location, self.metadata, self.memory_bytes, self.expiry_headers)

    def check(self, filled: FilledShard, on_entries: OnEntries | None = None, proof: EntryProof | None = None) -> None:
        """Read a shard as a query would; raise StateCheckError unless it holds what was put, and what `proof` does."""
        with open_shard(self.location, self.metadata, filled.start, self.work_dir) as batch:
            for spec in self.metadata.stores:
                found = Tally()
                for writes in store_writes(batch, spec):
                    if proof is not None:
                        proof(spec, filled.shard, writes)
                    found.add(writes)
                    if on_entries is not None:
                        on_entries(CHECKING, len(writes))
                filled.tallies.get(spec.name, Tally()).require(found, spec.name, filled.shard)

    def read_back(self, filling: ShardFilling, on_entries: OnEntries | None = None) -> list[FilledShard]:
        """Return what was written of each shard that got something, in order, once it was checked."""
        filled = filling.shards()
        for shard in filled:
            self.check(shard, on_entries)
        return filled

    def entries(self, filled: Sequence[FilledShard]) -> dict[str, int]:
        """Return how many entries each store has in all; of versioned stores, versions and tombstones."""
        stores = (spec.name for spec in self.metadata.stores)
        return {
            store: sum(shard.tallies[store].entries for shard in filled if store in shard.tallies) for store in stores
        }

    def keep(self, filled: FilledShard) -> None:
        """Have a shard count that was checked: the same request need not do it again."""
        write_initial_pointer(self.location, filled.start)

    def complete(self, filled: Sequence[FilledShard] | None) -> None:
        """Make the location a state whose shards hold what was filled, the others nothing; None: each was kept.

        Raises ValueError if a shard is there twice, TargetNotEmptyError if the location is another state's by now.
        """
        state_id = self.metadata.state_id
        starts = {} if filled is None else {shard.shard: shard.start for shard in filled}
        if filled is not None and len(starts) < len(filled):
            raise ValueError("a shard was filled twice; each shard must be filled by one ShardFilling")
        with turn(self.location, f"what ends the making of state {state_id}"):
            claimed = _read_mark(self.location)
            if claimed is None or claimed.state_id != state_id or _is_state(self.location):
                raise TargetNotEmptyError(
                    str(self.location), found="what another command has begun, or finished, there meanwhile"
                )
            for shard in range(0 if filled is None else self.metadata.shards):
                write_initial_pointer(self.location, starts.get(shard, CommitPointer(state_id, shard)))
            write_document(self.location, METADATA_NAME, self.metadata.to_json().encode())
            self.location.delete(UNFINISHED_NAME)


def refuse_occupied(location: DurableLocation, request: str | None = None) -> None:
    """Raise TargetNotEmptyError if neither `claim` nor, for the same request, `resume` takes a location."""
    if request is None or _unfinished_request(location, request) is None:
        _refuse_occupied(location, _read_mark(location))


def _unfinished_request(location: DurableLocation, request: str) -> _Unfinished | None:
    """Return what was begun for the same request. Raises TargetNotEmptyError if it has become another state."""
    earlier = _read_mark(location)
    if earlier is None or earlier.request != request:
        return None
    metadata = read_metadata(location)
    if metadata is None:
        return earlier
    if metadata.state_id != earlier.state_id:
        raise TargetNotEmptyError(str(location), found=f"another state than was begun there ({METADATA_NAME})")
    return earlier._replace(is_complete=True)


def _refuse_occupied(location: DurableLocation, earlier: _Unfinished | None) -> None:
    """Raise TargetNotEmptyError if a location is not empty, and not half filled by who may be cleared away."""
    if _is_state(location):
        raise TargetNotEmptyError(str(location), found=f"a state ({METADATA_NAME})")
    if earlier is None:
        stranger = _first_file(location, "")
        if stranger is not None:
            raise TargetNotEmptyError(str(location), found=repr(stranger))
    elif earlier.request is not None:
        raise TargetNotEmptyError(
            str(location), found=f"what another command has begun to make of {earlier.made_from}, as it was then"
        )


def _is_state(location: DurableLocation) -> bool:
    return location.read(METADATA_NAME, MAX_DOCUMENT_BYTES) is not None


def _first_file(location: DurableLocation, directory: str) -> str | None:
    """Return the name of a file in or below a directory; None if there are only leftovers of writers."""
    files = (entry.name for entry in location.entries(directory) if not entry.is_partial)
    below = (_first_file(location, name) for name in location.directories(directory) if name not in _NO_STATE)
    return next(files, None) or next(filter(None, below), None)


def _clear_shard(location: DurableLocation, shard: int) -> None:
    location.delete_all([initial_name(shard), *location.names(delta_directory(shard))])


def _read_mark(location: DurableLocation) -> _Unfinished | None:
    data = location.read(UNFINISHED_NAME, MAX_NOTE_BYTES)
    if data is None:
        return None
    try:
        fields = from_durable_json(data)
        request = fields.get("request")
        return _Unfinished(
            str(fields.get("from", "something else")),
            path_part(fields["state_id"]),
            whole_number(fields["shards"], 1),
            None if request is None else str(request),
        )
    except MALFORMED as cause:
        raise DurableFileCorruptedError(
            location.path(UNFINISHED_NAME), cause=f"does not say what was begun ({cause!r})"
        ) from cause
