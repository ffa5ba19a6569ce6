"""One shard in one batch: from a committed version, through uncommitted writes, to the next pointer.

Spark decides whether the returned pointer counts. Until it does, the delta it names is a file that nothing refers to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from statestore.bytestore.engines.rocksdb_options import local_disk_errors
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.upgrades import sum_of, upgradable
from statestore.bytestore.write_sets.spilling import SpillingWriteSet, SpillSpace
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors.state import (
    CommitPointerError,
    LocalStateLockedError,
    LocationMismatchError,
    SpilledDeltaCorruptedError,
)
from statestore.recovery.commit.batch_delta import BatchDelta, FinishedDelta
from statestore.recovery.commit.changelog import BatchChangelog, ChangelogObserver, batch_changelog
from statestore.recovery.commit.delta import DeltaInfo
from statestore.recovery.commit.figures import (
    CommitFigures,
    DeltaFigures,
    RestoreFigures,
    SizeFigures,
    StoreFigures,
    UpgradeFigures,
)
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, initial_pointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.fences.run_fences import RunFences
from statestore.recovery.local.local_copy import LocalCopy, open_local_copy, open_memory_image, take_memory_image
from statestore.recovery.local.local_directory import LocalDirectory, make_shard_directory, try_lock
from statestore.recovery.location.durable_json import file_digest
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import new_delta_name
from statestore.recovery.restore.restore import CommittedStore, WrittenDelta
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.recovery.snapshots.step import SnapshotStep, snapshot_is_due

_LOG = logging.getLogger(__name__)
_MAX_ATTEMPTS_AT_ONCE: Final = 16


@dataclass(frozen=True)
class ShardedState:
    """Where a state lives and what stores it has: all that is needed to open one of its shards."""

    state_id: str
    location: DurableLocation
    stores: tuple[StoreSpec, ...]
    local: LocalDirectory
    in_memory: frozenset[str] = frozenset()
    """The names of the in-memory stores."""
    recovery: RecoveryOptions = field(default_factory=RecoveryOptions)
    run: str = "unnamed"
    """Which start of the query this is: see `fences`."""
    accept_older_checkpoint: bool = False
    initial_state: bool = False
    """Whether a shard that Spark's state does not know yet starts from its initial pointer."""

    def pointer(self, shard: int, recorded: str | None) -> CommitPointer:
        """Return the commit pointer that Spark's state has recorded for `shard`, or from which it starts, if None.

        Raises CommitPointerError, LocationMismatchError if it points at the state of another location, and
        DurableFileMissingError or DurableFileCorruptedError for a bad initial pointer.
        """
        if recorded is None:
            if self.initial_state:
                return initial_pointer(self.location, self.state_id, shard)
            return CommitPointer(self.state_id, shard)
        pointer = CommitPointer.from_json(recorded)
        if pointer.state_id != self.state_id:
            raise LocationMismatchError(str(self.location), recorded=pointer.state_id, found=self.state_id)
        if pointer.shard != shard:
            raise CommitPointerError(f"commit pointer of shard {shard}", f"is that of shard {pointer.shard}")
        return pointer

    @contextmanager
    def open(self, pointer: CommitPointer, space: SpillSpace | None = None) -> Iterator[ShardBatch]:
        """Hand out the shard at the version of `pointer`; `space` is this batch's own, and made here if it is None.

        Raises, of the location: DurableFileMissingError, DurableFileCorruptedError, SnapshotFormatError, LocationError.
        Of the local disk: LocalDirectoryError, LocalDiskFullError, LocalStateLockedError if others hold all copies, and
        LocalStateCorruptedError, which, also out of the batch, discards the copy. Of the stores: StoreFormatError.
        """
        in_memory = [spec for spec in self.stores if spec.name in self.in_memory]
        image = take_memory_image(pointer, in_memory) if in_memory else None
        with ExitStack() as opened:
            if space is None:
                space = opened.enter_context(self.spill_space(pointer.shard))
            copy = None
            if len(in_memory) < len(self.stores) or image is None or snapshot_is_due(pointer, self.recovery):
                listener = self.recovery.restore_listener
                copy = opened.enter_context(
                    open_local_copy(self.location, pointer, self.stores, self.local, space, listener)
                )
            committed = dict(copy.stores) if copy is not None else {}
            if in_memory:
                loaded = open_memory_image(self.location, pointer, in_memory, image, committed, space, self.local)
                committed.update(opened.enter_context(loaded))
            stores = {}
            for name, store in sorted(committed.items()):
                writes = SpillingWriteSet(store.bytes, space)
                changelog = batch_changelog(store.spec, space.pending, writes)
                stores[name] = BatchStore(store.spec, writes, changelog, store)
            info = DeltaInfo(self.state_id, pointer.shard, pointer.version + 1)
            changelogs = {name: store.changelog for name, store in stores.items()}
            delta = opened.enter_context(closing(BatchDelta(info, changelogs, pointer.store_times_ms, space)))
            for batch_store in stores.values():
                opened.callback(batch_store.bytes.close)
            yield ShardBatch(self, pointer, stores, delta, copy)

    @contextmanager
    def spill_space(self, shard: int) -> Iterator[SpillSpace]:
        """Hand out a directory for what a batch can't hold in memory. Raises as `open` does of the local disk."""
        shard_dir = self.local.shard(self.state_id, shard)
        with ExitStack() as locks:
            with local_disk_errors(f"shard {shard}", str(shard_dir)):
                # The first write to the local disk: here it shows if that can't be written to.
                make_shard_directory(shard_dir)
                paths = (shard_dir / f"spill-{number}" for number in range(_MAX_ATTEMPTS_AT_ONCE))
                path = next((path for path in paths if locks.enter_context(try_lock(path))), None)
            if path is None:
                raise LocalStateLockedError(f"shard {shard}", path=str(shard_dir))
            with self.local.spill_space(path) as space:
                yield space


@dataclass(frozen=True)
class BatchStore:
    """A store in a batch: its committed bytes under the batch's writes, and the changelog of those."""

    spec: StoreSpec
    bytes: WriteSet
    changelog: BatchChangelog
    committed: CommittedStore


class CommittedBatch(NamedTuple):
    """A batch that Spark may keep: the pointer that it is to record, and the batch's figures."""

    pointer: CommitPointer
    figures: CommitFigures


@dataclass(frozen=True)
class ShardBatch:
    """A shard's stores at a committed version, and the uncommitted writes of one batch over them."""

    state: ShardedState
    pointer: CommitPointer
    stores: Mapping[str, BatchStore]
    delta: BatchDelta
    copy: LocalCopy | None
    """The local copy, None if the stores are all in memory and need none."""

    def commit(self, end: BatchEnd | None = None, on_changelog: ChangelogObserver | None = None) -> CommittedBatch:
        """Make what was logged durable as one delta and return the pointer that commits it, if Spark keeps it.

        Without writes there is no delta and no new version. `on_changelog` is called with each store that was written
        to, before anything is durable; what it raises ends the batch. Raises what RunFences.hold does,
        LocationNotWritableError, SnapshotOverdueError, UnreadableCommitError, SpilledDeltaCorruptedError, and the
        error of a spill.
        """
        written, end = self.delta.finish(), end or BatchEnd()
        if written is None:
            figures = CommitFigures(self._restore_figures, sizes=self._sizes({}))
            return CommittedBatch(self.pointer.advance(None, end).read_back(), figures)
        if on_changelog is not None:
            self.delta.show(on_changelog)
        state = self.state
        stores = [spec.name for spec in state.stores]
        fences = RunFences(state.location, state.run, state.accept_older_checkpoint, state.recovery.retained, stores)
        epoch = fences.hold(self.pointer)
        committed = self.pointer.advance(self._upload(written, epoch), end)
        shard_dir = state.local.shard(state.state_id, self.pointer.shard)
        WrittenDelta(shard_dir).keep(state.location, written.content, self.delta.space)
        step = SnapshotStep(state.location, state.local, shard_dir, state.recovery, self.pointer, epoch)
        committed, snapshot = step.take(committed, self.copy)
        delta = DeltaFigures(1, written.size_bytes)
        spill, sizes = self.delta.spill_figures, self._sizes(written.stores)
        figures = CommitFigures(self._restore_figures, written.stores, sizes, delta, spill, snapshot)
        return CommittedBatch(committed.read_back(), figures)

    def finish_upgrades(self, budget_ms: float) -> UpgradeFigures:
        """Move entries of older formats in the local copy for about `budget_ms`; raises as every access to it."""
        deadline = time.monotonic() + budget_ms / 1000
        all_progress = []
        for name, store in self.stores.items():
            upgrading = upgradable(store.bytes)
            if upgrading is None:
                continue
            progress = upgrading.upgrade_progress()
            left_ms = (deadline - time.monotonic()) * 1000
            if left_ms > 0 and not progress.is_finished:
                progress = upgrading.finish_upgrade(left_ms)
                left = progress.entries_left
                _LOG.info("shard %d: upgrade of store %s: about %d left", self.pointer.shard, name, left)
            all_progress.append(progress)
        upgrade = sum_of(all_progress)
        return UpgradeFigures(upgrade.entries_moved, upgrade.entries_left)

    def _sizes(self, written: Mapping[str, StoreFigures]) -> dict[str, SizeFigures]:
        sizes = {}
        for name, store in self.stores.items():
            if entries := store.bytes.approximate_num_entries():
                _, _, *written_bytes = written.get(name, StoreFigures())
                size_bytes = store.bytes.approximate_size_bytes() + sum(written_bytes)
                header_share = written_bytes[-1] / (sum(written_bytes) or 1)
                sizes[name] = SizeFigures(entries, size_bytes, round(size_bytes * header_share))
        return sizes

    @property
    def _restore_figures(self) -> RestoreFigures:
        restoring = None if self.copy is None else self.copy.restoring
        return RestoreFigures() if restoring is None else restoring.figures

    def _upload(self, written: FinishedDelta, epoch: int) -> DurableFile:
        name = new_delta_name(self.pointer.shard, self.pointer.version + 1, epoch, self.state.run)
        if isinstance(written.content, Path):
            damaged = SpilledDeltaCorruptedError(f"shard {self.pointer.shard}", path=str(written.content))
            try:
                found = file_digest(written.content)
            except OSError as cause:
                raise damaged from cause
            if found != written.digest:  # the disk did not keep what was written to it
                raise damaged
            self.state.location.write_file(name, written.content)
        else:
            self.state.location.write(name, written.content)
        return DurableFile(name, written.size_bytes, written.digest)
