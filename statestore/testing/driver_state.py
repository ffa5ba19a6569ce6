"""The state of a test driver: its stores, their changelogs and its progress, from opening to commit and restore.

STATE_DIR/APPLICATION_ID/0_0/                     a task directory of Kafka Streams: the persistent stores
STATE_DIR/APPLICATION_ID/global/                  the same, of the global stores
STATE_DIR/APPLICATION_ID/statestore.driver.json   clocks, input offsets and punctuations (`progress`)
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.header_index import indexed_in_memory
from statestore.bytestore.kafka_streams.store_database import refuse_other_kind
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.segments import NO_STREAM_TIME, Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades import refuse_skipped_step
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors.harness import IncompleteChangelogError
from statestore.format.values.stored_value import upgrade_between
from statestore.processor.context import TaskRecordContext
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.processor.topology import Topology
from statestore.recovery.commit.changelog import ChangelogObserver, ChangelogRecord, restored_changes
from statestore.recovery.commit.pointer_fields import RecordedPunctuations
from statestore.recovery.restore.restore import replay_versions
from statestore.stores.builder import StoreBuilder
from statestore.stores.metrics import StoreMetrics
from statestore.stores.typed_store import TypedStore
from statestore.testing.progress import Progress
from statestore.testing.topic_logs import StoreLog


def restore_store(log: StoreLog, spec: StoreSpec, store: ByteStore, offset: int, stream_time_ms: int) -> int:
    """Apply the changelog from `offset` on to `store`, drop expired segments, and return its stream time.

    `stream_time_ms` is its stream time before. Values of an older format are upgraded as they would be in place. Values
    of a newer format lose what the store's format has no room for, as when Kafka Streams restores.
    """
    pending, layout = WriteSet(store), layout_of(spec)
    for written_as, records in log.written_by_format(offset):
        readable = written_as is spec.format or upgrade_between(written_as, spec.format) is not None
        source_format = written_as if readable else spec.format
        if layout.keeps_versions:
            stream_time_ms = replay_versions(spec, pending, source_format, stream_time_ms, records)
            continue
        pending.write(restored_changes(spec, source_format, records))
        # Where duplicates are retained, a put of nothing is logged, and changes nothing.
        puts = (each for each in records if each.value is not None or not spec.retain_duplicates)
        stream_time_ms = max([stream_time_ms, *(layout.put_time_ms(each.key) for each in puts)])
    if spec.kind.is_segmented:
        Segments(pending, *spec.retention).advance(stream_time_ms)
    pending.apply_to(store)
    return stream_time_ms


_TASK, _GLOBAL = "0_0", "global"


class DriverState:
    """The stores of one driver, from one opening to the next. Writes are pending until `commit`."""

    def __init__(
        self,
        application_id: str,
        home: Path,
        changelogs: Mapping[str, Sequence[ChangelogRecord]],
        *,
        wall_clock_ms: int,
        is_kept: bool,
    ) -> None:
        self.progress = Progress.read(home / application_id)
        """How far the driver was at the last commit."""
        self.progress.wall_clock_ms = max(wall_clock_ms, self.progress.wall_clock_ms)
        self.context = TaskRecordContext()
        self.stores: dict[str, TypedStore] = {}
        self.logs: dict[str, StoreLog] = {}
        """The changelog of each store that has or had one."""
        self.logging: list[StoreLog] = []
        """The changelogs of the open stores."""
        self.emptied: set[str] = set()
        """The global stores that were empty when they were opened last."""
        self.application_id = application_id
        self._home = home / application_id
        self._is_kept = is_kept
        self._changelogs = dict(changelogs)
        self._topology = Topology()
        self._directories: list[TaskDirectory] = []
        self._on_disk: dict[str, TaskDirectory] = {}
        self._pending: dict[str, WriteSet] = {}
        self._restored: dict[str, int] = {}
        """How many records each store was restored from when it was opened last."""
        self._cached: list[TypedStore] = []
        self._segmented: list[tuple[str, TypedStore]] = []

    def open(self, topology: Topology, *, anew: bool = False) -> None:
        """Open all stores of the topology, and restore what is not on the disk; `anew` if nothing is.

        Raises StoreFormatError for a store of another kind or a newer format, and leaves that store unchanged.
        """
        self._topology = topology
        progress = self.progress
        self.context = TaskRecordContext(progress.stream_time_ms, progress.wall_clock_ms)
        self.emptied = set()
        self._restored = {}
        task = TaskDirectory(self._home / _TASK, self.application_id)
        of_global_stores = TaskDirectory(self._home / _GLOBAL, self.application_id)
        self._directories = [task, of_global_stores]
        try:
            for name, builder in topology.store_builders.items():
                directory = of_global_stores if name in topology.global_stores else task
                store = self._open_store(builder, directory, anew=anew)
                self._pending[name] = WriteSet(indexed_in_memory(builder.spec, store))
        except BaseException:
            self._close_directories()
            raise
        self.logging = [self.logs[name] for name in topology.store_builders if self._is_logged(name)]
        self.build_stores()
        for name, records in self._restored.items():
            metrics = self.stores[name].metrics
            if metrics is not None:
                metrics.record_restore(0, records)  # the driver's clock does not advance during a restore

    def build_stores(self) -> None:
        """Make the stores anew on what is committed."""
        self.stores = build_stores(self._topology, self.context, self._backing)
        builders = self._topology.store_builders
        self._cached = [store for name, store in self.stores.items() if builders[name].caching_enabled]
        self._segmented = [(name, store) for name, store in self.stores.items() if store.stream_time_ms is not None]

    def commit(
        self,
        punctuations: RecordedPunctuations | None,
        processor_metadata: Mapping[str, int],
        on_changelog: ChangelogObserver | None,
        *,
        is_micro_batch: bool = False,
    ) -> None:
        """Commit what was written since the last commit, also what caches hold back.

        `punctuations` says when each schedule is due next; None means as before. `processor_metadata` is what was set
        of it, the rest stays. `on_changelog` is called with each store that was written to, before that; what it raises
        leaves all of it uncommitted. A micro-batch logs of each key the last write alone.
        """
        for store in self._cached:
            store.flush()
        if is_micro_batch:
            for log in self.logging:
                log.leave_last_writes()
        if on_changelog is not None:
            for log in self.logging:
                log.show(on_changelog)
        for pending in self._pending.values():
            if pending.is_changed:
                pending.apply_to(pending.inner)
                pending.clear()
        for log in self.logging:
            log.commit()
        progress, context = self.progress, self.context
        progress.stream_time_ms = context.stream_time_ms
        progress.wall_clock_ms = context.system_time_ms
        if punctuations is not None:
            progress.punctuations = punctuations
        progress.processor_metadata.update(processor_metadata)
        for name, store in self._segmented:
            progress.stores[name] = store.stream_time_ms  # type: ignore[assignment]

    def discard(self) -> None:
        """Go back to the last commit; only the wall clock stays."""
        for pending in self._pending.values():
            pending.clear()
        for log in self.logs.values():
            log.discard()
        self.progress.wall_clock_ms = self.context.system_time_ms
        self.context = TaskRecordContext(self.progress.stream_time_ms, self.progress.wall_clock_ms)
        self.build_stores()

    def close(self) -> None:
        """Close all stores. Pending writes are lost."""
        position = {topic: {0: offset - 1} for topic, offset in self.progress.offsets.items()}
        for name, directory in self._on_disk.items():
            log = self.logs[name]
            known = self._is_logged(name) and log.end_offset > 0
            directory.commit(name, log.end_offset - 1 if known else None, position)
        for pending in self._pending.values():
            pending.close()
        self._close_directories()
        self.stores = {}
        if self._is_kept:
            self.progress.write(self._home)

    def check_changelogs(self, topology: Topology) -> None:
        """Raise IncompleteChangelogError if a store of the topology can't be restored from its topic as a whole.

        A store without a changelog may be lost. Raises StoreFormatError where plain values would get headers at once,
        which a restore refuses as an upgrade in place does.
        """
        for name, builder in topology.store_builders.items():
            log = self.logs.get(name)
            if log is None:
                continue
            if log.missing and builder.logging_enabled:
                raise IncompleteChangelogError(name, problem=log.missing)
            refuse_skipped_step(log.spec.format, builder.spec, log.topic, name)

    def delete_local(self) -> None:
        """Delete what is on the disk of all stores, which are closed."""
        for directory in (_TASK, _GLOBAL):
            shutil.rmtree(self._home / directory, ignore_errors=True)

    def _open_store(self, builder: StoreBuilder[Any], directory: TaskDirectory, *, anew: bool) -> ByteStore:
        """Open the bytes of a store, and restore what they lack from its changelog."""
        name, spec = builder.name, replace(builder.spec, indexed_headers=())
        store = directory.open_store(spec) if builder.persistent else MemoryByteStore(name)
        if builder.persistent:
            self._on_disk[name] = directory
        held = directory.changelog_offset(name) if builder.persistent else None
        is_empty = next(store.range(None, None), None) is None
        log = self.logs.get(name)
        if log is None:
            log = self.logs[name] = StoreLog(f"{self.application_id}-{name}-changelog", spec)
            self._begin(log, held, is_empty=is_empty)
        else:
            # A store that is restored whole may get an older format, as in Kafka Streams.
            recorded = replace(log.spec, format=spec.format) if anew else log.spec
            refuse_other_kind(recorded, spec, Path(log.topic), name)
            log.open_as(spec)
        if self._is_logged(name):
            if log.missing and is_empty and held is None:
                raise IncompleteChangelogError(name, problem=log.missing)
            self._restore(log, store, -1 if held is None else held)
        elif anew or not builder.persistent:
            self.progress.stores.pop(name, None)  # an empty store has no stream time
        if is_empty and name in self._topology.global_stores:
            self.emptied.add(name)
        return store

    def _begin(self, log: StoreLog, held: int | None, *, is_empty: bool) -> None:
        """Begin a store's changelog with the given records, or after what the disk held."""
        name = log.spec.name
        given = self._changelogs.pop(name, None)
        if given is not None:
            log.begin_with(given)
            if held is not None and held >= log.end_offset:
                raise IncompleteChangelogError(
                    name, problem=f"{len(given)} records were given, but the store on the disk holds {held + 1}"
                )
        elif held is not None or not is_empty:
            log.first_offset = 0 if held is None else held + 1
            log.missing = "it was on the disk before the driver was made"

    def _backing(self, name: str) -> StoreBacking:
        return StoreBacking(
            self._pending[name],
            self.logs[name] if self._is_logged(name) else None,
            self.progress.stores.get(name, NO_STREAM_TIME),
            StoreMetrics(
                clock_ns=lambda: self.context.system_time_ms * 1_000_000, clock_ms=lambda: self.context.system_time_ms
            ),
        )

    def _restore(self, log: StoreLog, store: ByteStore, held: int) -> None:
        if held + 1 >= log.end_offset:
            return
        times_ms, name = self.progress.stores, log.spec.name
        self._restored[name] = log.end_offset - held - 1
        time_ms = restore_store(log, log.spec, store, held + 1, times_ms.get(name, -1) if held >= 0 else -1)
        if log.spec.kind.is_segmented:
            times_ms[name] = max(time_ms, times_ms.get(name, -1))

    def _is_logged(self, name: str) -> bool:
        return self._topology.store_builders[name].logging_enabled and name not in self._topology.global_stores

    def _close_directories(self) -> None:
        with ExitStack() as each:
            for directory in self._directories:
                each.callback(directory.close)
            self._directories, self._on_disk, self._pending = [], {}, {}
