"""A new state in a location of its own: filled delta by delta, and a state only once all of it is there.

The one maker of states outside a query, whatever they are made of:

    NewState.claim       by one process, first; or `resume`, for a request that was interrupted
    filling, check       for each shard, in any process: a NewState can be pickled
    keep                 for a checked shard, so that the same request can go on after it
    complete             by one process, last

Whatever fails before that leaves a location that no query starts on, and that the next claim clears.

    unfinished.json      {"format": 1, "from": str, "state_id": str, "shards": int, "request": str}; there while it is
                         being filled
    shards/NNNN/...      deltas and initial pointers
    statestore.json      written last: a location without it is not a state

`from` says in words what the state is made of. `request`, which may be missing, says that the tool can go on if it is
asked for the same: then no other one may take the location, and a shard with an initial pointer is filled and checked.
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
from statestore.recovery.location.durable_files import is_partial
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
"""The first is in the root of a disk, and often can't be read."""

CHECKING: Final = "checking"
OnEntries: TypeAlias = Callable[[str, int], None]
"""Gets the phase, CHECKING or one of the source's own, and how many more entries were done in it."""
EntryProof: TypeAlias = Callable[[StoreSpec, int, list[LogicalWrite]], None]
"""Raises unless these entries of a store belong to the shard in which they are."""


class _Unfinished(NamedTuple):
    made_from: str
    state_id: str
    shards: int
    request: str | None
    is_complete: bool = False
    """Whether it is a state by now, and only the mark was left."""


@dataclass(frozen=True)
class NewState:
    """A state that is being made, in a location claimed for it. Pickled for the processes that fill its shards.

    `work_dir` has room for a shard, None is the temporary directory; a process holds about `memory_bytes`.
    """

    location: DurableLocation
    metadata: StateMetadata
    work_dir: str | None = None
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    kept: frozenset[int] = frozenset()
    """The shards that an earlier run of the same request has filled and checked."""
    is_complete: bool = False
    """Whether an earlier run has made it a state, so that nothing is left to do."""
    expiry_headers: Mapping[str, str] = field(default_factory=dict)
    """The header by which entries of a store expire, by store: a store beside it, in the metadata, gets the times."""

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
        """Take an empty location, or clear one that was left half filled. `made_from` is for people.

        Only `resume` goes on with a `request`. Raises TargetNotEmptyError, LocationBusyError, LocationNotWritableError.
        """
        state = {"state_id": metadata.state_id, "shards": metadata.shards}
        mark: dict[str, Any] = {"format": _MARKER_FORMAT, "from": made_from, **state}
        # Before anything is written: the directory may hold other things.
        _refuse_occupied(location, _read_mark(location))
        with turn(location, f"what makes a state of {made_from}"):
            earlier = _read_mark(location)
            _refuse_occupied(location, earlier)
            # First of all: another maker may be about to complete, and must not once anything of its state is removed.
            location.write(UNFINISHED_NAME, to_durable_json(mark).encode())
            if earlier is not None:
                _LOG.info("%s: removing what was written of a state that was not finished", location)
                # All shards with files, whoever has written them.
                names = (directory.rpartition("/")[2] for directory in location.directories(SHARDS_DIRECTORY))
                for shard in sorted(int(name) for name in names if name.isascii() and name.isdigit()):
                    _clear_shard(location, shard)
            if request is not None:
                # Last: the request has kept nothing of what was there before.
                location.write(UNFINISHED_NAME, to_durable_json({**mark, "request": request}).encode())
            # A query that starts leaves a file there and then looks for the mark: one of the two sees the other.
            starting = location.names(AGREEMENT_DIRECTORY)
            if starting:
                location.delete(UNFINISHED_NAME)
                raise TargetNotEmptyError(str(location), found=f"a query that is starting there ({starting[0]!r})")
        return cls(location, metadata, work_dir, memory_bytes)

    @classmethod
    def resume(
        cls, location: DurableLocation, metadata: StateMetadata, request: str, *, work_dir: str | None = None
    ) -> NewState | None:
        """Go on with what was claimed for the same request; None if nothing was.

        It keeps its identity. Shards that were not kept are cleared; a state of which only the mark is left is
        completed. Raises TargetNotEmptyError if it became another state, DurableFileCorruptedError if a kept shard
        can't be read.
        """
        if _unfinished_request(location, request) is None:
            return None
        with turn(location, "what goes on with making a state"):
            begun = _unfinished_request(location, request)
            if begun is None:
                return None
            shards = range(begun.shards)
            kept = [shard for shard in shards if location.read(initial_name(shard), MAX_DOCUMENT_BYTES) is not None]
            if begun.is_complete:
                location.delete(UNFINISHED_NAME)
            else:
                for shard in sorted({*shards}.difference(kept)):
                    _clear_shard(location, shard)
        for shard in kept:
            initial_pointer(location, begun.state_id, shard)
        metadata = replace(metadata, state_id=begun.state_id)
        return cls(location, metadata, work_dir, kept=frozenset(kept), is_complete=begun.is_complete)

    def filling(self) -> ShardFilling:
        """Return a filling for some shards; no shard may be filled by two."""
        return ShardFilling(self.location, self.metadata, self.memory_bytes, self.expiry_headers)

    def check(self, filled: FilledShard, on_entries: OnEntries | None = None, proof: EntryProof | None = None) -> None:
        """Read a shard as a query would. Raises StateCheckError unless it holds what was put, and what `proof` does."""
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
        """Check each shard that got something, and return what was written of it, in order."""
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
        """Record that a shard is filled and checked: the same request need not do it again."""
        write_initial_pointer(self.location, filled.start)

    def complete(self, filled: Sequence[FilledShard] | None) -> None:
        """Make the location a state whose shards hold what was filled, the others nothing; None if each was kept.

        Raises ValueError if a shard is there twice, TargetNotEmptyError if the location is another state's by now.
        """
        state_id = self.metadata.state_id
        starts = {} if filled is None else {shard.shard: shard.start for shard in filled}
        if filled is not None and len(starts) < len(filled):
            raise ValueError("a shard was filled twice; each shard must be filled by one ShardFilling")
        with turn(self.location, f"what ends the making of state {state_id}"):
            claimed = _read_mark(self.location)
            if claimed is None or claimed.state_id != state_id or _is_state(self.location):
                found = "what another command has begun, or finished, there meanwhile"
                raise TargetNotEmptyError(str(self.location), found=found)
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
    """Raise TargetNotEmptyError if a location is not empty, unless it was left half filled without a request."""
    if _is_state(location):
        raise TargetNotEmptyError(str(location), found=f"a state ({METADATA_NAME})")
    if earlier is None:
        stranger = _first_file(location, "")
        if stranger is not None:
            raise TargetNotEmptyError(str(location), found=repr(stranger))
    elif earlier.request is not None:
        found = f"what another command has begun to make of {earlier.made_from}, as it was then"
        raise TargetNotEmptyError(str(location), found=found)


def _is_state(location: DurableLocation) -> bool:
    return location.read(METADATA_NAME, MAX_DOCUMENT_BYTES) is not None


def _first_file(location: DurableLocation, directory: str) -> str | None:
    """Return the name of a file in or below a directory; None if there are only leftovers of writers."""
    files = (entry.name for entry in location.entries(directory) if not is_partial(entry.name))
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
        where = location.path(UNFINISHED_NAME)
        raise DurableFileCorruptedError(where, cause=f"does not say what was begun ({cause!r})") from cause
