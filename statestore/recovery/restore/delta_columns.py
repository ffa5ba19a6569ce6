"""What a store of a shard holds, as columns straight out of its deltas: for readers, which need no database then.

Most shards that are read list all deltas since the first: before the second snapshot, and if a tool made the state. The
last record of each key in their columns is the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.chunks import DEFAULT_BYTES, DEFAULT_ROWS
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.kinds.kind_layout import LAYOUTS, KindLayout, layout_of
from statestore.bytestore.kinds.segments import Segments
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors import FormatError
from statestore.errors.state import DurableFileCorruptedError
from statestore.format.key_groups import are_last
from statestore.recovery.commit.delta import Delta, DeltaInfo
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.restore.restore import READ_AT_ONCE_BYTES, joined_batches, open_delta

MAX_HELD_BYTES: Final = 128 << 20
"""Of keys, the rest is read some MB at a time; for more keys a database is made on disk."""
_BYTES_A_KEY: Final = 24
"""What it takes to find the last record of each key, beside the keys."""
_COLUMNS: Final = ("key", "value", "timestamp", "header_bytes")


@contextmanager
def columns_of_deltas(
    location: DurableLocation,
    pointer: CommitPointer,
    spec: StoreSpec,
    space: SpillSpace,
    max_held_bytes: int = MAX_HELD_BYTES,
) -> Iterator[Iterator[dict[str, pa.Array]] | None]:
    """Hand out the entries of a store at the version of `pointer`, some MB at a time, in the order of last writes.

    As the columns key, start_ms, end_ms, value, timestamp_ms and headers, which are header bytes; what the store does
    not have is null. None if it takes a database: for stores that keep versions or were upgraded, deltas that begin at
    a snapshot, or more than `max_held_bytes` of keys. Raises DurableFileMissingError, DurableFileCorruptedError.
    """
    with ExitStack() as opened:
        # A delta that is fetched into memory stays there until the end.
        fetched_bytes = sum(file.size_bytes for file in pointer.deltas if file.size_bytes <= READ_AT_ONCE_BYTES)
        if LAYOUTS[spec.kind].keeps_versions or pointer.base_version > 0 or fetched_bytes > max_held_bytes:
            yield None
            return
        deltas = []
        for version, file in enumerate(pointer.deltas, 1):
            expected = DeltaInfo(pointer.state_id, pointer.shard, version)
            deltas.append(opened.enter_context(open_delta(location, file, expected, space)))
        records = _Records.of(deltas, spec, max_held_bytes)
        yield None if records is None else _entries(location, pointer, spec, records)


@dataclass(frozen=True)
class _Records:
    keys: pa.BinaryArray
    deltas: Sequence[Delta]
    store: str

    @classmethod
    def of(cls, deltas: Sequence[Delta], spec: StoreSpec, max_held_bytes: int) -> _Records | None:
        """Read the keys. None for too many, or records of another format."""
        key_bytes = 0
        keys = [pa.array([], pa.binary())]
        for delta in deltas:
            for each in delta.keys(spec.name):
                key_bytes += each.nbytes + _BYTES_A_KEY * len(each)
                if delta.logged_store(spec.name).format is not spec.format or key_bytes > max_held_bytes:
                    return None
                keys.append(each)
        return cls(pa.concat_arrays(keys), deltas, spec.name)

    def batches(self) -> Iterator[pa.RecordBatch]:
        for delta in self.deltas:
            yield from (batch.select(_COLUMNS) for name, batch in delta.batches() if name == self.store)


def _last_of_each(records: _Records) -> Iterator[pa.RecordBatch]:
    """Yield the last record of each key unless it is a tombstone, some MB together."""
    is_last = are_last(records.keys)
    first = 0
    waiting: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in records.batches():
        kept = pc.and_(pa.array(is_last[first : first + batch.num_rows]), batch.column("value").is_valid())
        first += batch.num_rows
        waiting.append(batch if kept.false_count == 0 else batch.filter(kept))
        rows, size_bytes = rows + waiting[-1].num_rows, size_bytes + waiting[-1].nbytes
        if rows >= DEFAULT_ROWS or size_bytes >= DEFAULT_BYTES:
            yield joined_batches(waiting)
            waiting, rows, size_bytes = [], 0, 0
    if rows:
        yield joined_batches(waiting)


def _entries(
    location: DurableLocation, pointer: CommitPointer, spec: StoreSpec, records: _Records
) -> Iterator[dict[str, pa.Array]]:
    layout = layout_of(spec)
    for batch in _last_of_each(records):
        try:
            plain, starts_ms, ends_ms = layout.record_columns(batch.column("key"), batch.column("timestamp"))
        except FormatError as cause:
            raise DurableFileCorruptedError(
                location.path(pointer.deltas[-1].name),
                cause=f"or a delta before it, has a record that can't be one of store {spec.name!r}: {cause}",
            ) from cause
        count = batch.num_rows
        columns = {
            "key": plain,
            "start_ms": starts_ms,
            "end_ms": ends_ms,
            "value": batch.column("value"),
            "timestamp_ms": batch.column("timestamp") if spec.format.has_timestamp else pa.nulls(count, pa.int64()),
            "headers": batch.column("header_bytes") if spec.format.has_headers else pa.nulls(count, pa.binary()),
        }
        is_live = _is_live(layout, pointer, columns)
        yield columns if is_live is None else {name: column.filter(is_live) for name, column in columns.items()}


def _is_live(layout: KindLayout, pointer: CommitPointer, columns: dict[str, pa.Array]) -> pa.BooleanArray | None:
    if layout.segment_time_column is None:
        return None
    retention_ms, interval_ms = layout.spec.retention
    stream_time_ms = pointer.store_times_ms.get(layout.spec.name, -1)
    first_live = Segments(MemoryByteStore(layout.spec.name), retention_ms, interval_ms, stream_time_ms).first_live
    return pa.array(columns[layout.segment_time_column].to_numpy() // interval_ms >= first_live)
