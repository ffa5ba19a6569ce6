"""Restores stores from the records of their changelogs, by the rules of Kafka Streams.

A record becomes an entry in the store's present format, whatever its format was when the record was written: timestamp
and headers are kept if the format has them (RecordConverters). The last record of a key
counts, a null value deletes, and what has expired by the log's own time is left out
(RocksDBStore.restoreBatch, AbstractRocksDBSegmentedBytesStore, RocksDBVersionedStore).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from statestore.bytestore.chunks import chunks
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.kind_layout import KindLayout, layout_of
from statestore.bytestore.kinds.segments import NO_STREAM_TIME, Segments, segment_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import ByteStore
from statestore.errors import FormatError
from statestore.recovery.commit.changelog import ChangelogRecord, record_sizes, restored_changes
from statestore.recovery.restore.restore import replay_versions
from upgrade_tools.changelogs.logs import LogRecord, OffsetCheck, PartitionLog
from upgrade_tools.errors import ChangelogDamagedError

_RECORDS_AT_ONCE = 5_000

OnRecords = Callable[[int], None]
"""Is told how many records were restored, every few thousand."""


@dataclass
class RestoredStore:
    """What came of restoring a store."""

    records: int = 0
    stream_time_ms: int = NO_STREAM_TIME
    """The latest time of a window, session or version in the log; -1 for key-value stores."""
    last_offset: int | None = None
    """Offset of the last record; None if there was none."""


def restore_task_directory(
    task: Path,
    application_id: str,
    sources: Mapping[StoreSpec, tuple[PartitionLog, Iterable[LogRecord]]],
    on_records: OnRecords | None = None,
    *,
    accept_deleted: bool = False,
) -> dict[str, RestoredStore]:
    """Make the stores of a task from the records of one partition of their changelogs.

    They are closed cleanly with the offsets of the last records, so Kafka Streams continues there. `accept_deleted`
    skips `refuse_live_deleted`. Returns the result for each store, by name. Raises ChangelogDamagedError.
    """
    (partition,) = {log.partition for log, _ in sources.values()}
    restored = {}
    with TaskDirectory(task, application_id, partition) as directory:
        for spec, (log, records) in sources.items():
            store = restore_store(spec, directory.open_store(spec), log, records, on_records)
            if not accept_deleted:
                refuse_live_deleted(spec, log, store)
            directory.commit(spec.name, store.last_offset, {})
            restored[spec.name] = store
    return restored


def restore_store(
    spec: StoreSpec,
    store: ByteStore,
    log: PartitionLog,
    records: Iterable[LogRecord],
    on_records: OnRecords | None = None,
) -> RestoredStore:
    """Restore an empty store from all records of a log. Raises ChangelogDamagedError."""
    restored, offsets, restorer = RestoredStore(), OffsetCheck(log), Restorer(spec, store)
    layout = layout_of(spec)
    for chunk in chunks(records, _log_sizes, max_rows=_RECORDS_AT_ONCE):
        for offset, record in chunk:
            offsets.see(offset)
            _check(layout, log, offset, record)
        restorer.apply([record for _, record in chunk])
        restored.records += len(chunk)
        restored.last_offset = offsets.last_offset
        if on_records is not None:
            on_records(len(chunk))
    offsets.finish()
    restored.stream_time_ms = restorer.stream_time_ms
    return restored


def refuse_live_deleted(spec: StoreSpec, log: PartitionLog, restored: RestoredStore) -> None:
    """Raise ChangelogDamagedError if the broker may have deleted records that are still live in the store.

    A window or session expires by the log's own time, but the broker deletes its record by the clock: if an application
    stood still, or its input is old, live ones are gone.
    """
    if log.deleted_before_ms is None:
        return
    retention_ms, _ = spec.retention
    if log.deleted_before_ms > restored.stream_time_ms - retention_ms + 1:
        reached = f"its records reach {restored.stream_time_ms} ms" if restored.records else "nothing is left"
        raise ChangelogDamagedError(
            log.place,
            f"the broker has deleted records up to offset {log.first_offset - 1} as older than retention.ms by "
            f"its clock, and {reached}, so some of them may not have expired in the store. "
            "Read a copy of the local state, which has them; or, to restore without them as Kafka Streams "
            "does, give --accept-deleted",
        )


def _log_sizes(records: list[LogRecord]) -> list[int]:
    return record_sizes([record for _, record in records])


class Restorer:
    """Restores changelog records into a store as Kafka Streams does; `stream_time_ms` of an empty one is -1."""

    def __init__(self, spec: StoreSpec, store: ByteStore, stream_time_ms: int = NO_STREAM_TIME) -> None:
        self._spec = spec
        self._layout = layout_of(spec)
        self._store = store
        self._segments = Segments(store, *spec.retention, stream_time_ms) if spec.kind.is_segmented else None
        self._versions_time_ms = stream_time_ms

    @property
    def stream_time_ms(self) -> int:
        """The latest time of all records so far; -1 for key-value stores."""
        return max(self._versions_time_ms, NO_STREAM_TIME if self._segments is None else self._segments.stream_time_ms)

    def apply(self, records: list[ChangelogRecord]) -> None:
        """Restore records that follow all earlier ones. Raises FormatError for a malformed key."""
        spec = self._spec
        if self._layout.keeps_versions:
            self._versions_time_ms = replay_versions(spec, self._store, spec.format, self._versions_time_ms, records)
            return
        changes = restored_changes(spec, spec.format, records)
        if self._segments is None:
            self._store.write(changes)
            return
        live = []
        self._segments.advance(max(self._layout.put_time_ms(record.key) for record in records))
        for key, stored in changes:
            segment_id = segment_of(key)
            if self._segments.is_live(segment_id):
                self._segments.note_use(segment_id)
                live.append((key, stored))
        self._store.write(live)


def _check(layout: KindLayout, log: PartitionLog, offset: int, record: ChangelogRecord) -> None:
    """Raise ChangelogDamagedError for a record that no store of this kind writes."""
    spec, problem = layout.spec, None
    try:
        sequence = layout.split(record.key, record.timestamp_ms).sequence
        if sequence and not spec.retain_duplicates:
            problem = f"its key has the sequence number {sequence}, which only stores that retain duplicates write"
        elif layout.keeps_versions and record.timestamp_ms < 0:
            problem = f"a version can't begin at {record.timestamp_ms} ms"
    except FormatError as cause:
        problem = f"its key 0x{record.key.hex()} is not that of a {spec.kind.value} ({cause})"
    if problem is not None:
        raise log.refused(offset, problem)
