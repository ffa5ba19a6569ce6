"""One shard in one batch: from a committed version, through uncommitted writes, to the next pointer.

Spark decides whether the returned pointer counts. Until it does, the delta it names is a file that nothing refers to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial

from statestore.bytestore.store_spec import StoreSpec
from statestore.bytestore.upgrading import upgradable
from statestore.bytestore.write_set import WriteSet
from statestore.errors import CommitPointerError, LocationMismatchError
from statestore.recovery.changelog import BatchChangelog, batch_changelog
from statestore.recovery.delta import DeltaInfo, encode_delta
from statestore.recovery.fence import RunFences
from statestore.recovery.local_copy import LocalCopy, open_local_copy
from statestore.recovery.local_directory import LocalDirectory
from statestore.recovery.location import DurableLocation
from statestore.recovery.memory_copy import open_memory_image, take_memory_image
from statestore.recovery.options import RecoveryOptions
from statestore.recovery.pointer import CommitPointer, DurableFile, digest
from statestore.recovery.punctuations import RecordedPunctuations
from statestore.recovery.restore import CommittedStore
from statestore.recovery.shard_files import new_delta_name
from statestore.recovery.snapshot_step import SnapshotStep, snapshot_is_due

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ShardedState:
    """Where a state lives and what stores it has: all that opening one of its shards takes."""

    state_id: str
    location: DurableLocation
    stores: tuple[StoreSpec, ...]
    local: LocalDirectory
    in_memory: frozenset[str] = frozenset()
    """The names of the stores that are served from memory."""
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)
    run: str = "unnamed"
    """Which start of the query this is: see `fence`."""
    accept_older_checkpoint: bool = False

    def pointer(self, shard: int, recorded: str | None) -> CommitPointer:
        """Return the commit pointer that Spark's state has recorded for `shard`; None is version 0.

        Raises CommitPointerError, and LocationMismatchError if it points at the state of another location.
        """
        if recorded is None:
            return CommitPointer(self.state_id, shard)
        pointer = CommitPointer.from_json(recorded)
        if pointer.state_id != self.state_id:
            raise LocationMismatchError(str(self.location), recorded=pointer.state_id, found=self.state_id)
        if pointer.shard != shard:
            raise CommitPointerError(f"commit pointer of shard {shard}", f"is that of shard {pointer.shard}")
        return pointer

    @contextmanager
    def open(self, pointer: CommitPointer) -> Iterator[ShardBatch]:
        """Hand out the shard at the version of `pointer`, ready to take a batch's writes."""
        in_memory = [spec for spec in self.stores if spec.name in self.in_memory]
        image = take_memory_image(pointer, in_memory) if in_memory else None
        with ExitStack() as opened:
            copy = None
            if len(in_memory) < len(self.stores) or image is None or snapshot_is_due(pointer, self.recovery):
                listener = self.recovery.restore_listener
                copy = opened.enter_context(open_local_copy(self.location, pointer, self.stores, self.local, listener))
            committed = dict(copy.stores) if copy is not None else {}
            if in_memory:
                committed.update(
                    opened.enter_context(open_memory_image(self.location, pointer, in_memory, image, committed))
                )
            stores = {
                name: BatchStore(store.spec, WriteSet(store.bytes), batch_changelog(store.spec), store)
                for name, store in sorted(committed.items())
            }
            try:
                yield ShardBatch(self, pointer, stores, copy)
            finally:
                for store in stores.values():
                    store.bytes.close()


@dataclass(frozen=True)
class BatchStore:
    """A store in a batch: its committed bytes under the batch's writes, and the changelog of those."""

    spec: StoreSpec
    bytes: WriteSet
    changelog: BatchChangelog
    committed: CommittedStore


@dataclass(frozen=True)
class ShardBatch:
    """A shard's stores at a committed version, and the uncommitted writes of one batch over them."""

    state: ShardedState
    pointer: CommitPointer
    stores: Mapping[str, BatchStore]
    copy: LocalCopy | None
    """The local copy, None if the stores are all in memory and need none."""
    stream_times_ms: dict[str, int] = field(default_factory=dict)
    """The stream time of each segmented store after the batch; who writes to the stores sets it."""

    def commit(
        self,
        *,
        skipped_records: int = 0,
        stream_time_ms: int = -1,
        punctuations: RecordedPunctuations | None = None,
    ) -> CommitPointer:
        """Make what was logged durable as one delta and return the pointer that commits it, if Spark keeps it.

        Without writes there is no delta and no new version. `punctuations` of None are those of before. Raises
        LocationNotWritableError, RunFencedError, AttemptOutdatedError, CheckpointBehindError.
        """
        advance = partial(
            self.pointer.advance,
            skipped_records=skipped_records,
            stream_time_ms=stream_time_ms,
            store_times_ms=self.stream_times_ms,
            punctuations=punctuations,
        )
        changelogs = {name: store.changelog for name, store in self.stores.items() if len(store.changelog)}
        if not changelogs:
            return advance(None)
        state = self.state
        epoch = RunFences(state.location, state.run, state.accept_older_checkpoint).hold(self.pointer)
        committed = advance(self._write_delta(changelogs, epoch))
        shard_dir = state.local.shard(state.state_id, self.pointer.shard)
        return SnapshotStep(state.location, shard_dir, state.recovery, self.pointer, epoch).take(committed, self.copy)

    def finish_upgrades(self, budget_ms: float) -> None:
        """Move entries of older formats in the local copy for about `budget_ms`; what is committed is not touched."""
        deadline = time.monotonic() + budget_ms / 1000
        for name, store in self.stores.items():
            upgrading = upgradable(store.bytes)
            if upgrading is None or upgrading.upgrade_progress().is_finished:
                continue
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms <= 0:
                return
            progress = upgrading.finish_upgrade(left_ms)
            _LOG.info("shard %d: upgrade of store %s: about %d left", self.pointer.shard, name, progress.entries_left)

    def _write_delta(self, changelogs: Mapping[str, BatchChangelog], epoch: int) -> DurableFile:
        info = DeltaInfo(self.pointer.state_id, self.pointer.shard, self.pointer.version + 1)
        data = encode_delta(info, changelogs, self.pointer.store_times_ms)
        name = new_delta_name(info.shard, info.version, epoch)
        self.state.location.write(name, data)
        return DurableFile(name, data.size, digest(data))
