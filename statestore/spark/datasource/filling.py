"""Fills shards of a new state from placed rows, in one task, and checks them by reading them back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.kinds.kind_layout import LAYOUTS, layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.errors.new_state import StateRowError
from statestore.errors.readable import key_digest
from statestore.format.keys.window_key import MAX_SEQUENCE
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_columns import join_columns
from statestore.format.values.stored_value import join_stored
from statestore.recovery.making.logical_writes import LogicalWrite, logical_write
from statestore.recovery.making.new_state import NewState
from statestore.recovery.making.state_filling import FilledShard
from statestore.spark.datasource.options import require_work_dir


class PlacedRow(NamedTuple):
    """An entry of a store, its value as it is stored."""

    key: bytes
    stored: bytes
    start_ms: int | None
    end_ms: int | None


def fill_shards(made: NewState, batches: Iterable[pa.RecordBatch]) -> list[FilledShard]:
    """Write rows of the schema PLACED; return what was written of each shard, after reading it back."""
    require_work_dir(made.work_dir)
    filling = made.filling()
    stores = {spec.name: spec for spec in made.metadata.stores}
    entries: dict[tuple[int, str], _Entries] = {}
    for batch in batches:
        for shard, store, rows in _groups(batch):
            of_store = entries.setdefault((shard, store), _entries_of(stores[store]))
            filling.put(shard, store, list(of_store.writes(rows)))
    for (shard, store), of_store in entries.items():
        filling.put(shard, store, list(of_store.last_writes()))
    for filled in filling.shards():
        for store, time_ms in filled.start.store_times_ms.items():
            entries[filled.shard, store].refuse_expired(time_ms)
    return made.read_back(filling)


def _groups(batch: pa.RecordBatch) -> Iterator[tuple[int, str, pa.RecordBatch]]:
    """Yield the rows of each shard and store, in their order."""
    places = pa.table({name: batch.column(name) for name in ("shard", "store")})
    for place in places.group_by(["shard", "store"]).aggregate([]).to_pylist():
        shard, store = place["shard"], place["store"]
        of_place = pc.and_(pc.equal(batch.column("shard"), shard), pc.equal(batch.column("store"), store))
        yield shard, store, batch.filter(of_place)


def _stored(store_format: StoreFormat, rows: pa.RecordBatch) -> list[bytes]:
    """Return the values of PLACED rows as they are stored."""
    values, timestamps_ms, header_bytes = (rows.column(name) for name in ("value", "timestamp_ms", "headers"))
    if store_format is StoreFormat.TIMESTAMPED_WITH_HEADERS:
        stored: list[bytes] = join_columns(values, timestamps_ms, header_bytes).to_pylist()
        return stored
    parts = (column.to_pylist() for column in (values, pc.fill_null(timestamps_ms, 0), header_bytes))
    joined = [join_stored(store_format, *each) for each in zip(*parts, strict=True)]
    return [each for each in joined if each is not None]  # no value is null: that was checked


def _placed_rows(store_format: StoreFormat, rows: pa.RecordBatch) -> list[PlacedRow]:
    places = (rows.column(name).to_pylist() for name in ("start_ms", "end_ms"))
    parts = zip(rows.column("key").to_pylist(), _stored(store_format, rows), *places, strict=True)
    return list(map(PlacedRow._make, parts))


def _entries_of(spec: StoreSpec) -> _Entries:
    return (_Versions if LAYOUTS[spec.kind].keeps_versions else _Entries)(spec)


class _Entries:
    """The entries of one store in one shard, independent of each other."""

    _sequence = 0
    """The number of the last duplicate, counted over all windows, as the store does."""

    def __init__(self, spec: StoreSpec) -> None:
        self._spec = spec
        self._layout = layout_of(spec)
        column = self._layout.segment_time_column
        self._segment_time = None if column is None else attrgetter(column)
        self._oldest_ms: int | None = None
        self._oldest_key = b""

    def writes(self, rows: pa.RecordBatch) -> Iterator[LogicalWrite]:
        """Yield the writes of checked rows."""
        if self._segment_time is None:
            # Without times the stored key is the logged one, and nothing expires: nothing to do row by row.
            keys, stored = rows.column("key").to_pylist(), _stored(self._spec.format, rows)
            return map(logical_write, zip(keys, stored, repeat(None)))
        return self._timed_writes(_placed_rows(self._spec.format, rows))

    def _timed_writes(self, rows: list[PlacedRow]) -> Iterator[LogicalWrite]:
        self._stand(rows)
        join, sequence, step = self._layout.join, self._sequence, int(self._spec.retain_duplicates)
        for row in rows:
            sequence = sequence + step & MAX_SEQUENCE
            key, valid_from_ms = join(row.key, row.start_ms, row.end_ms, sequence)
            yield logical_write((key, row.stored, valid_from_ms))
        self._sequence = sequence

    def last_writes(self) -> Iterator[LogicalWrite]:
        """Yield the writes after the last row."""
        return iter(())

    def _stand(self, rows: list[PlacedRow]) -> None:
        """Keep the earliest time that places an entry in a segment, with its key."""
        assert self._segment_time is not None  # the kind has times
        times_ms = [time_ms for time_ms in map(self._segment_time, rows) if time_ms is not None]
        oldest_ms = min(times_ms, default=None)
        if oldest_ms is not None and (self._oldest_ms is None or oldest_ms < self._oldest_ms):
            self._oldest_ms = oldest_ms
            self._oldest_key = next(row.key for row in rows if self._segment_time(row) == oldest_ms)

    def refuse_expired(self, stream_time_ms: int) -> None:
        """Raise StateRowError if a store with this stream time would have forgotten the oldest entry."""
        retention_ms, interval_ms = self._spec.retention
        first_live = max(0, (stream_time_ms - retention_ms) // interval_ms)
        if self._oldest_ms is not None and self._oldest_ms // interval_ms < first_live:
            assert self._layout.segment_time_column is not None  # there is an oldest one
            problem = (
                f"is of {self._oldest_ms}, which the store would have forgotten: its latest entry in the shard is of "
                f"{stream_time_ms}, and it retains {retention_ms} ms. Leave out such rows"
            )
            raise self._wrong(self._oldest_key, self._layout.segment_time_column, problem)

    def _wrong(self, key: bytes, column: str, problem: str) -> StateRowError:
        return StateRowError(self._spec.name, column=column, key_digest=key_digest(key), problem=problem)


class _Versions(_Entries):
    """Versions in order of key and start. A tombstone ends a version that no other follows at once."""

    def __init__(self, spec: StoreSpec) -> None:
        super().__init__(spec)
        self._before: PlacedRow | None = None

    def _timed_writes(self, rows: list[PlacedRow]) -> Iterator[LogicalWrite]:
        self._stand(rows)
        for row in rows:
            assert row.start_ms is not None  # checked when the row was placed
            before, self._before = self._before, row
            if before is not None:
                yield from self._between(before, row)
            yield LogicalWrite(row.key, row.stored, row.start_ms)

    def last_writes(self) -> Iterator[LogicalWrite]:
        if self._before is not None:
            yield from _end_of(self._before)

    def _between(self, before: PlacedRow, row: PlacedRow) -> Iterator[LogicalWrite]:
        assert before.start_ms is not None  # both were checked when the rows were placed
        assert row.start_ms is not None
        if (row.key, row.start_ms) < (before.key, before.start_ms):
            problem = "comes too late: versions must come in order of key and start. write_initial_state() sorts them"
            raise self._wrong(row.key, "start_ms", problem)
        if row.key != before.key:
            yield from _end_of(before)
        elif before.end_ms is None or row.start_ms < before.end_ms:
            problem = f"begins at {row.start_ms}, while the version before it is still valid"
            raise self._wrong(row.key, "start_ms", problem)
        elif row.start_ms > before.end_ms:
            yield from _end_of(before)


def _end_of(row: PlacedRow) -> Iterator[LogicalWrite]:
    if row.end_ms is not None:
        yield LogicalWrite(row.key, None, row.end_ms)
