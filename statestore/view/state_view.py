"""`StateView`: a committed state at one batch, read without Spark."""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from statestore.bytestore.engines.memory_budget import DEFAULT_TASK_BYTES, MIN_TASK_BYTES, MemoryBudget
from statestore.errors import LocationError, StoreError, StoreFormatError
from statestore.errors.new_state import StatePointersError
from statestore.errors.state import DurableFileMissingError, ViewBehindError
from statestore.format.serde import Serde, Serdes
from statestore.recovery.commit.pointer import CommitPointer, parse_pointers
from statestore.recovery.heads.head import Head, newest_head
from statestore.recovery.local.local_directory import LocalDirectory, temporary_copies
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.placement import KeyOf, record_keys
from statestore.recovery.making.rescale import committed_pointers, where_all_begin
from statestore.recovery.metadata.state_metadata import (
    METADATA_NAME,
    StateMetadata,
    read_metadata,
    stage_name,
    state_with,
)
from statestore.view.notebook import state_html
from statestore.view.open_shards import OpenShard, OpenShards
from statestore.view.routed_reads import RoutedReads, StoreReading
from statestore.view.sharded_store import Holding, ShardedStore
from statestore.view.store_types import QueryableStoreType

_COPIES: Final = "view-copies"
"""The directory of copies in `local_dir`: a query with the same `local_dir` has its own copies beside it."""

_not_closed: WeakSet[StateView] = WeakSet()


@atexit.register
def _close_all() -> None:
    """Close what nobody has closed, while modules still work, so that copies are marked as whole."""
    for view in list(_not_closed):
        view.close()


class StateView:
    """A committed state at one batch, to be read. Use it in a `with`, or close it. Not for several threads.

    `location` is the state location of a query, `stage` the number of the stage if it has several. Its
    newest head says what is committed, or `pointers` do, as `python -m statestore.spark pointers` prints them. Shards
    are opened when they are asked for, in copies below `local_dir`, which stay there; None is a temporary directory. Of
    more than `max_open_shards` the one that was used longest ago is closed, but none that is being scanned.

    A key is looked for in its shard, then in the others if the store's keys may not be those of records. That is known
    by `key_of`, which has, by store, a function from the store's key to the record's, in bytes, or by `trust_keys`,
    which says that they are the same. Raises LocationError, RecoveryError, StatePointersError, and ValueError for
    illegal arguments.
    """

    def __init__(
        self,
        location: str | os.PathLike[str] | DurableLocation,
        *,
        stage: int | None = None,
        pointers: str | Sequence[CommitPointer] | None = None,
        local_dir: str | os.PathLike[str] | None = None,
        max_open_shards: int = 16,
        key_of: Mapping[str, KeyOf] | None = None,
        trust_keys: bool = False,
    ) -> None:
        if type(max_open_shards) is not int or max_open_shards < 1:
            raise ValueError(f"max_open_shards must be a whole number of at least 1, not {max_open_shards!r}")
        found = location if isinstance(location, DurableLocation) else DurableLocation(os.fspath(location))
        self._location, self._metadata = _state_at(found, stage)
        self._key_of, self._trust_keys = dict(key_of or {}), trust_keys
        record_keys(self._metadata, self._key_of)  # it names stores
        self._is_given = pointers is not None
        if pointers is not None:
            head = None
            given = parse_pointers(pointers) if isinstance(pointers, str) else pointers
            committed = committed_pointers(self._location, self._metadata, given, complete=False)
        else:
            head, committed = self._committed()
        self._head: Head | None = head
        memory = MemoryBudget(max(DEFAULT_TASK_BYTES, MIN_TASK_BYTES * max_open_shards), max_open_shards)
        self._stores: WeakSet[RoutedReads] = WeakSet()
        with ExitStack() as opened:
            if local_dir is None:
                local_dir = opened.enter_context(temporary_copies())
            local = LocalDirectory(Path(local_dir, _COPIES), memory=memory)
            self._shards = OpenShards(
                self._location, self._metadata, committed, local, max_open_shards, self._explain_missing
            )
            opened.callback(self._shards.close)
            self._opened = opened.pop_all()
        _not_closed.add(self)

    @property
    def head(self) -> Head | None:
        """The head that says what is committed; None if `pointers` did, or a tool made the state and no query ran."""
        return self._head

    @property
    def batch(self) -> int | None:
        """The batch that the view is at; None without a head."""
        return None if self._head is None else self._head.batch

    @property
    def metadata(self) -> StateMetadata:
        """What is recorded of the state."""
        return self._metadata

    @property
    def location(self) -> DurableLocation:
        """Where the state is; of one with stages, where the stage is."""
        return self._location

    @property
    def pointers(self) -> Sequence[CommitPointer]:
        """The commit pointer of each shard."""
        return self._shards.pointers

    def store_names(self) -> list[str]:
        """Return the names of all stores, in order."""
        return sorted(spec.name for spec in self._metadata.stores)

    def store(
        self,
        name: str,
        store_type: QueryableStoreType | None = None,
        *,
        key_serde: Serde[Any] | None = None,
        value_serde: Serde[Any] | None = None,
        clock: str = "processing",
    ) -> Any:
        """Return a store over all shards, to be read; it goes on with the view.

        It has the methods to read that the query's own store has, and no others. It shows what `store_type` says; None
        is all that the store holds. A serde of None leaves bytes as they are. `clock` says by which clock entries with
        a time to live have expired, as in `with_ttl`. Raises StoreError if the state has no such store, and
        StoreFormatError if it can't be shown as `store_type`.
        """
        self._require_open()
        spec = next((spec for spec in self._metadata.stores if spec.name == name), None)
        if spec is None:
            raise StoreError(name, f"the state in {self._location} has no such store; it has {self.store_names()}")
        if store_type is not None and not store_type.accepts(spec):
            raise StoreFormatError(
                name,
                recorded=spec.describe(),
                asked=store_type.name,
                where=str(self._location),
                remedy="Ask for a type of its kind that shows no more than it holds, or for none",
            )
        shown = spec.format if store_type is None else store_type.shown
        reading = StoreReading(key_serde or Serdes.bytes(), value_serde or Serdes.bytes(), shown)
        key_of = record_keys(self._metadata, self._key_of).get(name)
        holding = Holding.of(self._metadata, spec, key_of, trust_keys=self._trust_keys)
        sharded = ShardedStore(self._shards, holding, clock)
        made = RoutedReads.of(sharded, reading)
        self._stores.add(made)
        return made

    def shard(self, number: int) -> OpenShard:
        """Return a shard at its version, with its stores in bytes, until the next shard is asked for.

        Raises ValueError if there is none of this number, and as every read.
        """
        self._require_open()
        if number not in range(self._metadata.shards):
            raise ValueError(f"shard must be 0 to {self._metadata.shards - 1}, not {number!r}")
        return self._shards.shard(number)

    def refresh(self) -> bool:
        """Go on to what is committed now; return whether that is something else.

        Iterators that were handed out before go on where only deltas were applied, and raise StoreClosedError where
        their shard had to be opened anew, those of `by_header` in any case. If it raises, the view is still at the
        batch before. Raises RecoveryError, LocationError.
        """
        self._require_open()
        if self._is_given:
            return False
        metadata = _metadata_at(self._location)
        if metadata.state_id != self._metadata.state_id:
            raise LocationError(
                str(self._location),
                f"holds state {metadata.state_id} now, and this view is of {self._metadata.state_id}, which was there "
                "before: open a new view",
            )
        head, pointers = self._committed()
        if head == self._head and metadata == self._metadata:
            return False
        self._shards.go_on(metadata, pointers)
        is_other, self._head, self._metadata = head != self._head, head, metadata
        for store in self._stores:
            store.go_on(metadata)
        return is_other

    def follow(self, poll_seconds: float = 1.0) -> Iterator[Head]:
        """Yield each head that is found from now on, with the view refreshed to it; of several at once the newest.

        Never ends by itself. Raises as `refresh`, and can be called again then.
        """
        while True:
            if self.refresh() and self._head is not None:
                yield self._head
            else:
                time.sleep(poll_seconds)

    def close(self) -> None:
        """Close all shards and stores; twice is harmless."""
        self._opened.close()
        _not_closed.discard(self)

    def _require_open(self) -> None:
        if not self._shards.is_open:
            raise ValueError(f"the view of {self._location} is closed: open a new one")

    def _committed(self) -> tuple[Head | None, list[CommitPointer]]:
        location, metadata = self._location, self._metadata
        head = newest_head(location, metadata.state_id)
        if head is not None:
            return head, committed_pointers(location, metadata, head.pointers, complete=False)
        began = where_all_begin(location, metadata)
        if began is not None:
            return None, began
        raise StatePointersError(
            str(location),
            problem=f"there is no head of state {metadata.state_id}, which says what is committed: the query publishes "
            "one after each batch, unless an older release runs it. Give the pointers that "
            "`python -m statestore.spark pointers CHECKPOINT` prints",
        )

    def _explain_missing(self, pointer: CommitPointer, missing: DurableFileMissingError) -> None:
        """Raise ViewBehindError if the query went on, and so may have removed what a shard needs."""
        newest = newest_head(self._location, self._metadata.state_id)
        if self._head is not None and newest is not None and newest != self._head:
            raise ViewBehindError(
                str(self._location),
                shard=pointer.shard,
                version=pointer.version,
                file=missing.where,
                batch=self._head.batch,
            ) from missing

    def _repr_html_(self) -> str:
        """Return what heads tell of the state, for notebooks."""
        return state_html(str(self._location), self._metadata, self._head)

    def __enter__(self) -> StateView:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _state_at(location: DurableLocation, stage: int | None) -> tuple[DurableLocation, StateMetadata]:
    """Return the state, or that of a stage. Raises LocationError if there is none, RecoveryError for several."""
    if stage is not None:
        below = location.below(stage_name(stage))
        return below, _metadata_at(below)
    found = state_with(location, None)
    return (location, _metadata_at(location)) if found is None else found


def _metadata_at(location: DurableLocation) -> StateMetadata:
    metadata = read_metadata(location)
    if metadata is None:
        raise LocationError(str(location), f"holds no state: there is no {METADATA_NAME}")
    return metadata
