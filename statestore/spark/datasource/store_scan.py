"""One shard of a store as rows, restored at a committed version into a copy of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Final

import pyarrow as pa

from statestore.bytestore.chunks import chunks
from statestore.bytestore.header_index import found_pairs
from statestore.bytestore.kinds.entry_scan import ENTRY_FIELDS, stored_columns
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec, expiry_spec
from statestore.bytestore.protocol import ByteStore
from statestore.format.records.header_columns import decode_header_column
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.recovery.restore.delta_columns import columns_of_deltas
from statestore.recovery.shard_batch import ShardedState
from statestore.spark.datasource.options import work_directory
from statestore.spark.datasource.read_as import AS_BYTES, ReadAs
from statestore.spark.datasource.row_filter import EVERY_ROW, RowFilter
from statestore.spark.shards.schema import spark_schema
from statestore.stores.builder import live_at


def entry_columns(
    spec: StoreSpec, store: ByteStore, row_filter: RowFilter, *, with_headers: bool
) -> Iterator[dict[str, pa.Array]]:
    """Yield the entries that pass the filter, as columns in the order of the store's bytes. Raises FormatError."""
    layout = layout_of(spec)
    headers = [] if row_filter.header is None else [row_filter.header]
    for chunk in chunks(chain.from_iterable(found_pairs(layout, store, row_filter.bounds(), headers))):
        columns = _kept(row_filter, layout.entry_columns(chunk))
        stored = columns.pop("stored")
        values, timestamps_ms, header_bytes = stored_columns(spec.format, stored)
        columns |= {"value": values, "timestamp_ms": timestamps_ms, "headers": header_bytes}
        yield from asked_columns([columns], row_filter, with_headers=with_headers)


def asked_columns(
    entries: Iterable[dict[str, pa.Array]], row_filter: RowFilter, *, with_headers: bool
) -> Iterator[dict[str, pa.Array]]:
    """Yield the entries that pass the filter, with headers decoded or left out. Raises FormatError."""
    for each in entries:
        columns = _kept(row_filter, each)
        header_bytes = columns.pop("headers")
        if with_headers:
            columns["headers"] = decode_header_column(header_bytes)
        if len(columns["key"]):
            yield columns


def _kept(row_filter: RowFilter, columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    kept = row_filter.kept(columns)
    if kept is None or kept.true_count == len(kept):
        return columns
    return {name: column.filter(kept) for name, column in columns.items()}


STORE_FIELDS: Final = pa.schema([pa.field("shard", pa.int32()), pa.field("version", pa.int64()), *ENTRY_FIELDS])


@dataclass(frozen=True)
class StoreToRead:
    """Which store to read, and what to show of it. Travels to the executors."""

    location: DurableLocation
    metadata: StateMetadata
    spec: StoreSpec
    with_headers: bool = True
    work_dir: str | None = None
    """A directory with room for one shard, or one delta; None is the machine's for temporary files."""
    read_as: ReadAs = AS_BYTES

    fields: ClassVar[pa.Schema] = STORE_FIELDS
    """The columns of rows with headers and bytes."""

    @property
    def is_global(self) -> bool:
        """Whether each shard has the whole store."""
        return self.spec.name in self.metadata.global_stores

    @property
    def schema(self) -> str:
        """The columns of the rows, as Spark writes them."""
        return rows_schema(self.fields, self.with_headers, self.read_as)

    def rows(self, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Return rows of these columns. Raises DataSourceOptionError for bytes that `read_as` can't read."""
        fields = _asked(self.fields, self.with_headers)
        rows = pa.record_batch([columns[field.name].cast(field.type) for field in fields], schema=fields)
        return self.read_as.read(rows, self.spec.name)


def rows_schema(fields: pa.Schema, with_headers: bool, read_as: ReadAs) -> str:
    """Return the columns of rows as Spark writes them; `fields` are those with headers and bytes."""
    return spark_schema(read_as.schema(_asked(fields, with_headers)))


def _asked(fields: pa.Schema, with_headers: bool) -> pa.Schema:
    return fields if with_headers else pa.schema([field for field in fields if field.name != "headers"])


@dataclass(frozen=True)
class StoreScan(StoreToRead):
    """Which entries of a store to read."""

    row_filter: RowFilter = EVERY_ROW
    live_at_ms: int | None = None
    """The time at which entries must not have expired; None shows all entries."""

    def __post_init__(self) -> None:
        if self.live_at_ms is not None and expiry_spec(self.spec) not in self.metadata.stores:
            raise ValueError(f"store {self.spec.name!r} has no time to live and no expiry header: nothing expires")

    @property
    def shards(self) -> list[int]:
        """The shards that may hold wanted rows. Every shard holds a whole global store, so one is read."""
        whole = range(1) if self.is_global else range(self.metadata.shards)
        return self.row_filter.shards(whole)

    def read(self, pointer: CommitPointer) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a shard at the version of its pointer."""
        metadata = self.metadata
        with work_directory("statestore-read-", self.work_dir) as directory:
            # A local copy of its own: a reader must not touch those of a running query. In-memory stores go to disk,
            # too: they need not fit in memory here.
            state = ShardedState(metadata.state_id, self.location, metadata.stores, LocalDirectory(directory))
            for columns in self._columns(state, pointer):
                rows = len(columns["key"])
                columns["shard"] = pa.repeat(pa.scalar(pointer.shard, pa.int32()), rows)
                columns["version"] = pa.repeat(pa.scalar(pointer.version, pa.int64()), rows)
                yield self.rows(columns)

    def _columns(self, state: ShardedState, pointer: CommitPointer) -> Iterator[dict[str, pa.Array]]:
        if self.live_at_ms is None:
            with (
                state.spill_space(pointer.shard) as space,
                columns_of_deltas(self.location, pointer, self.spec, space) as entries,
            ):
                if entries is not None:
                    yield from asked_columns(entries, self.row_filter, with_headers=self.with_headers)
                    return
        with state.open(pointer) as batch:
            store: ByteStore = batch.stores[self.spec.name].bytes
            if self.live_at_ms is not None:
                store = live_at(store, batch.stores[expiry_spec(self.spec).name].bytes, self.live_at_ms)
            yield from entry_columns(self.spec, store, self.row_filter, with_headers=self.with_headers)
