"""The shards of a view that are open, each in a local copy of the view's own.

A shard is opened when it is asked for first. Of more than `max_open` the one that was used longest ago is closed, but
none that is being scanned; its copy stays, and catches up when it is asked for again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any
from weakref import WeakKeyDictionary

from statestore.bytestore.kinds.segments import NO_STREAM_TIME
from statestore.errors import RecoveryError, StateStoreError
from statestore.errors.state import DurableFileMissingError
from statestore.recovery.commit.delta import Delta, DeltaInfo
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_copy import LocalCopy, open_local_copy
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.recovery.restore.restore import READ_AT_ONCE_BYTES, CommittedStore, open_delta
from statestore.recovery.shard_batch import ShardedState

_LOG = logging.getLogger(__name__)


class OpenShard:
    """A shard at one version, until it is closed or goes on to the next one."""

    def __init__(self, copy: LocalCopy, opened: ExitStack) -> None:
        self._copy = copy
        self._opened = opened
        self.built: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """What a store has built on its bytes at this version, by that store."""

    @property
    def pointer(self) -> CommitPointer:
        """The version that it is at."""
        return self._copy.pointer

    @property
    def stores(self) -> Mapping[str, CommittedStore]:
        """Its stores in bytes, with their specs, by name. They are to be read only."""
        return self._copy.stores

    @property
    def is_scanned(self) -> bool:
        """Whether a scan of it has not ended."""
        return self._copy.database.is_scanned

    def stream_time_ms(self, store: str) -> int:
        """Return the latest time that was put into a store; -1 if none was, or it keeps no time."""
        return self.pointer.store_times_ms.get(store, NO_STREAM_TIME)

    def note_damage(self) -> None:
        """Have its copy discarded when it is closed."""
        self._copy.is_whole = False

    @property
    def is_damaged(self) -> bool:
        """Whether its copy is to be discarded."""
        return not self._copy.is_whole

    def missing(self, location: DurableLocation, pointer: CommitPointer, held: ExitStack) -> list[Delta] | None:
        """Return the deltas that lead to `pointer`, open as long as `held` is; None if it is to be opened anew."""
        files = self._copy.missing_deltas(pointer)
        if self.is_damaged or files is None or sum(file.size_bytes for file in files) > READ_AT_ONCE_BYTES:
            return None
        first = pointer.version - len(files) + 1
        try:
            return [
                held.enter_context(
                    open_delta(
                        location, file, DeltaInfo(pointer.state_id, pointer.shard, version), self._copy.opening.space
                    )
                )
                for version, file in enumerate(files, first)
            ]
        except RecoveryError as problem:
            _LOG.info("shard %d: opening it anew: %s", pointer.shard, problem)
            return None

    def go_on(self, pointer: CommitPointer, deltas: Sequence[Delta]) -> None:
        """Apply these deltas, which `missing` returned. Raises what LocalCopy.go_on does."""
        self.built.clear()
        self._copy.go_on(pointer, deltas)

    def close(self) -> None:
        """Close its copy, which stays on the disk."""
        self._opened.close()


class OpenShards:
    """Opens shards of a state at the versions of `pointers`. Not for several threads."""

    def __init__(
        self,
        location: DurableLocation,
        metadata: StateMetadata,
        pointers: Sequence[CommitPointer],
        local: LocalDirectory,
        max_open: int,
        on_missing: Callable[[CommitPointer, DurableFileMissingError], None],
    ) -> None:
        self._on_missing = on_missing
        self.pointers = pointers
        self.is_open = True
        self._location = location
        self._state = ShardedState(metadata.state_id, location, metadata.stores, local)
        self._max_open = max_open
        self._open: OrderedDict[int, OpenShard] = OrderedDict()

    def shard(self, number: int) -> OpenShard:
        """Return a shard, opened at its version if it is not open. Raises as ShardedState.open does."""
        found, pointer = self._open.get(number), self.pointers[number]
        if found is not None and found.pointer is pointer and not found.is_damaged:
            self._open.move_to_end(number)
            return found
        if found is not None:
            self._close(number)
        for least_used in [each for each, shard in self._open.items() if not shard.is_scanned]:
            if len(self._open) < self._max_open:
                break
            self._close(least_used)
        self._open[number] = opened = self._opened(pointer)
        return opened

    def go_on(self, metadata: StateMetadata, pointers: Sequence[CommitPointer]) -> None:
        """Bring what is open to the versions of `pointers`, by deltas alone; close what can't be, to be opened anew.

        All deltas are read before the first one is applied: if the location can't be read, nothing has changed. Raises
        LocationError.
        """
        with ExitStack() as held:
            is_same = metadata.stores == self._state.stores
            read = {
                number: shard.missing(self._location, pointers[number], held) if is_same else None
                for number, shard in self._open.items()
            }
            for number, deltas in read.items():
                try:
                    if deltas is not None:
                        self._open[number].go_on(pointers[number], deltas)
                        continue
                except StateStoreError as problem:
                    _LOG.warning("shard %d: opening it anew: %s", number, problem)
                self._close(number)
        # Last: after an interruption, shards that went on are opened anew at the versions before.
        self.pointers = pointers
        self._state = ShardedState(metadata.state_id, self._location, metadata.stores, self._state.local)

    def close(self) -> None:
        """Close all shards; their copies stay. Twice is harmless."""
        self.is_open = False
        with ExitStack() as closing:  # all, also if one of them fails
            while self._open:
                closing.callback(self._open.popitem()[1].close)

    def _close(self, number: int) -> None:
        self._open.pop(number).close()

    def _opened(self, pointer: CommitPointer) -> OpenShard:
        with ExitStack() as opening:
            state = self._state
            space = opening.enter_context(state.spill_space(pointer.shard))
            try:
                copy = opening.enter_context(open_local_copy(self._location, pointer, state.stores, state.local, space))
            except DurableFileMissingError as missing:
                self._on_missing(pointer, missing)
                raise
            return OpenShard(copy, opening.pop_all())
