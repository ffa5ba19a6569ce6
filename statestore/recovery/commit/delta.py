"""Delta files: the changelog of one shard and batch, as an Arrow IPC file that any Arrow reader can open.

    store         dictionary<int32, string>   which store the record belongs to
    key           binary                      the store's key, as Kafka Streams would send it to the changelog topic
    value         binary, null = tombstone    the plain value, without timestamp or headers
    timestamp     int64                       see `changelog`
    header_bytes  binary                      likewise, in KIP-1271's encoding, as the store had them

Schema metadata `statestore.delta` is a JSON object: format, state_id, shard, version, and
"stores": {name: {"format": StoreFormat by name, "stream_time_ms": of the store, before the batch}}.
A record batch holds records of one store, in order: at most 4,096, and 4 MiB, but for one record that is larger alone.
`format.arrow_file` bounds what it may inflate to. A store may have several, also with others between them, and it may
be listed without having any. Of several records with one key the last one counts; versioned stores have all of them, in
the order of the puts.

Formats 1 and 2 had a column `headers` of list<struct<key, value>>, which is encoded when it is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.chunks import chunks, slices
from statestore.bytestore.kinds.kind_layout import layout_of
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.bytestore.protocol import Change
from statestore.bytestore.write_sets.write_set import Deleted
from statestore.errors import FormatError
from statestore.errors.state import DurableFileCorruptedError
from statestore.format.arrow_file import ArrowFile, ballast
from statestore.format.binary_columns import columns_of_rows
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.format.records.header_columns import HEADERS_TYPE, encode_header_column
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_columns import join_stored_columns, split_stored_columns
from statestore.recovery.commit.changelog import (
    BatchChangelog,
    ChangelogRecord,
    HeldWrite,
    LastWrites,
    record_sizes,
    restored_changes,
)
from statestore.recovery.commit.figures import StoreFigures, total
from statestore.recovery.location.shard_files import path_part

DELTA_FORMAT = 3
METADATA_KEY = b"statestore.delta"
_RECORD: Final = (
    pa.field("store", pa.dictionary(pa.int32(), pa.string()), nullable=False),
    pa.field("key", pa.binary(), nullable=False),
    pa.field("value", pa.binary()),
    pa.field("timestamp", pa.int64(), nullable=False),
)
SCHEMA: Final = pa.schema([*_RECORD, pa.field("header_bytes", pa.binary(), nullable=False)])
_SCHEMA_OF_LISTS: Final = pa.schema([*_RECORD, pa.field("headers", HEADERS_TYPE, nullable=False)])
_SCHEMAS: Final = {1: _SCHEMA_OF_LISTS, 2: _SCHEMA_OF_LISTS, DELTA_FORMAT: SCHEMA}
_MAX_BATCH_ROWS: Final = 4_096
"""Fewer if they are large: encoding and restoring hold a record batch in memory several times."""


class DeltaInfo(NamedTuple):
    """Which version of which shard a delta file makes."""

    state_id: str
    shard: int
    version: int


class LoggedStore(NamedTuple):
    """What a delta says of a store whose records it holds."""

    format: StoreFormat
    stream_time_ms: int
    """The store's stream time before the batch; -1 if nothing had been put yet."""


_STORE_OF_FORMAT_1 = LoggedStore(StoreFormat.TIMESTAMPED_WITH_HEADERS, -1)  # it knew no other stores


class DeltaWriter:
    """Writes a delta to a pyarrow stream or binary file, batch by batch; `stores` are those that may have records."""

    def __init__(self, sink: Any, info: DeltaInfo, stores: Mapping[str, LoggedStore]) -> None:
        metadata = {
            "format": DELTA_FORMAT,
            **info._asdict(),  # state_id, shard and version
            "stores": {
                name: {"format": logged.format.name, "stream_time_ms": logged.stream_time_ms}
                for name, logged in stores.items()
            },
        }
        self._schema = SCHEMA.with_metadata({METADATA_KEY: json.dumps(metadata).encode()})
        self.figures: dict[str, StoreFigures] = {}  # what was written of each store
        self._names = pa.array(list(stores), pa.string())
        self._numbers = {name: number for number, name in enumerate(stores)}
        self._writer = pa.ipc.new_file(sink, self._schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))

    def write(self, name: str, changelog: BatchChangelog) -> None:
        """Write the records that the changelog of the store `name` holds."""
        number = pa.scalar(self._numbers[name], pa.int32())
        figures = self.figures.get(name, StoreFigures())
        for keys, values, timestamps, header_bytes in _columns(changelog):
            store = pa.DictionaryArray.from_arrays(pa.repeat(number, len(keys)), self._names)
            columns = [store, keys, values, timestamps, header_bytes]
            batch = pa.record_batch(columns, schema=self._schema)
            self._writer.write_batch(batch, custom_metadata=ballast(batch))
            sizes = [column.total_values_length for column in (keys, values, header_bytes)]
            counted = StoreFigures(len(keys) - values.null_count, values.null_count, *sizes)
            figures = total(StoreFigures, (figures, counted))
        self.figures[name] = figures

    def close(self) -> None:
        """Write the end of the file; its owner closes the sink."""
        self._writer.close()


def encode_delta(
    info: DeltaInfo, changelogs: Mapping[str, BatchChangelog], stream_times_ms: Mapping[str, int]
) -> tuple[pa.Buffer, Mapping[str, StoreFigures]]:
    """Return the delta file of what was written to each store, and the figures of the stores that were written to.

    `stream_times_ms` are those of the segmented stores before the batch, if they had one.
    """
    written = {name: changelog for name, changelog in changelogs.items() if len(changelog)}
    sink = pa.BufferOutputStream()
    writer = DeltaWriter(sink, info, logged_stores(written, stream_times_ms))
    for name, changelog in written.items():
        writer.write(name, changelog)
    writer.close()
    return sink.getvalue(), writer.figures


def logged_stores(
    changelogs: Mapping[str, BatchChangelog], stream_times_ms: Mapping[str, int]
) -> dict[str, LoggedStore]:
    """Return what a delta says of the stores with these changelogs; see `encode_delta`."""
    return {
        name: LoggedStore(changelog.spec.format, stream_times_ms.get(name, -1))
        for name, changelog in changelogs.items()
    }


def _columns(changelog: BatchChangelog) -> Iterator[list[pa.Array]]:
    """Yield keys, values, timestamps and header bytes of the changelog's records, a record batch at a time."""
    if isinstance(changelog, LastWrites):
        for part in _parts(changelog.writes):
            yield _columns_of_writes(changelog.spec.format, *part)
        return
    for records in chunks(changelog, record_sizes, max_rows=_MAX_BATCH_ROWS):
        types = pa.binary(), pa.binary(), pa.int64(), pa.binary()
        yield [pa.array(column, type_) for column, type_ in zip(columns_of_rows(records, 4), types, strict=True)]


def _parts(writes: Mapping[bytes, HeldWrite]) -> Iterator[tuple[list[bytes], list[HeldWrite]]]:
    """Yield keys and writes, as many together as a record batch may have: `chunks` for what is in memory already."""
    keys_left, writes_left = iter(writes), iter(writes.values())
    while keys := list(islice(keys_left, _MAX_BATCH_ROWS)):
        held = list(islice(writes_left, _MAX_BATCH_ROWS))
        contents = _stored(held)
        if None in contents:
            contents = [write[-1] if stored is None else stored for stored, write in zip(contents, held, strict=True)]
        sizes = np.fromiter(map(len, keys), np.int64, len(keys)) + np.fromiter(map(len, contents), np.int64, len(keys))
        for rows in slices(sizes):
            yield keys[rows], held[rows]


def _stored(writes: Sequence[HeldWrite]) -> Sequence[Any]:
    if set(map(type, writes)) == {bytes}:
        return writes
    return [write if write.__class__ is bytes else None if write.__class__ is Deleted else write[0] for write in writes]


def _columns_of_writes(store_format: StoreFormat, keys: Sequence[bytes], writes: Sequence[HeldWrite]) -> list[pa.Array]:
    """Return what `changelog_record` returns of each write, in columns."""
    stored = pa.array(_stored(writes), pa.binary())
    values, timestamps, header_bytes = split_stored_columns(store_format, stored)
    # Writes that are tuples end with their record's timestamp and headers.
    if timestamps is None or timestamps.null_count:
        own = pa.array([None if write.__class__ is bytes else write[-2] for write in writes], pa.int64())
        timestamps = own if timestamps is None else pa.compute.coalesce(timestamps, own)
    if header_bytes is None:
        header_bytes = pa.repeat(pa.scalar(b"", pa.binary()), len(keys))
    elif header_bytes.null_count:
        own = pa.array([None if write.__class__ is bytes else write[-1] for write in writes], pa.binary())
        header_bytes = pa.compute.coalesce(header_bytes, own)
    return [pa.array(keys, pa.binary()), values, timestamps, header_bytes]


class Delta:
    """A delta file in memory or mapped, read one record batch at a time; `where` names it in errors.

    Every method raises DurableFileCorruptedError for what is not a delta's.
    """

    def __init__(self, content: pa.Buffer, where: str) -> None:
        self.where = where
        with self._damage():
            self._file = ArrowFile(content)
            schema = self._file.schema
            recorded = (schema.metadata or {}).get(METADATA_KEY)
            if recorded is None:
                raise FormatError("delta", f"its schema is not a delta's: {schema}")
            metadata = json.loads(recorded)
            self._schema = _SCHEMAS.get(metadata["format"])
            if self._schema is None:
                raise FormatError("delta", f"it has format {metadata['format']!r}, this release knows {DELTA_FORMAT}")
            if not schema.equals(self._schema):
                raise FormatError("delta", f"its schema is not that of its format: {schema}")
            shard, version = (whole_number(metadata[field], 0) for field in ("shard", "version"))
            self.info = DeltaInfo(path_part(metadata["state_id"]), shard, version)
            self.stores = {
                str(name): LoggedStore(StoreFormat[logged["format"]], whole_number(logged["stream_time_ms"], -1))
                for name, logged in metadata.get("stores", {}).items()
            }
            """What it says of each store. Format 1 lists none."""

    def logged_store(self, store: str) -> LoggedStore:
        """Return what the delta says of a store that it has records of."""
        return self.stores.get(store, _STORE_OF_FORMAT_1)

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield each record batch with the name of the store that all its records belong to."""
        return ((batch.column("store")[0].as_py(), batch) for batch in self._batches() if batch.num_rows)

    def keys(self, store: str) -> Iterator[pa.BinaryArray]:
        """Yield the keys of each record batch of a store; nothing else is inflated."""
        for batch in self._batches(("store", "key")):
            if batch.num_rows and batch.column("store")[0].as_py() == store:
                yield batch.column("key")

    def verify(self) -> None:
        """Read and check the whole file."""
        for _ in self._batches():
            pass

    def changes(self, spec: StoreSpec, batch: pa.RecordBatch) -> Iterator[Change]:
        """Yield what a batch changes in a store without versions, sorted by key: RocksDB takes half the time then."""
        written_as = self.logged_store(spec.name).format
        if written_as is spec.format:
            columns = (batch.column(name) for name in ("value", "timestamp", "header_bytes"))
            keys, stored = layout_of(spec).physical_keys(batch.column("key")), join_stored_columns(written_as, *columns)
            order = pc.sort_indices(keys)  # stable
            return zip(keys.take(order).to_pylist(), stored.take(order).to_pylist(), strict=True)
        return iter(restored_changes(spec, written_as, changelog_records(batch)))

    def _batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        batches = self._file.batches(columns)
        while True:
            with self._damage():
                batch = next(batches, None)
                if batch is None:
                    return
                if batch.num_rows > _MAX_BATCH_ROWS:
                    raise FormatError("delta", f"{batch.num_rows} records are together, {_MAX_BATCH_ROWS} are allowed")
                batch.validate(full=True)
                if self._schema is _SCHEMA_OF_LISTS and columns is None:
                    encoded = [*batch.columns[:-1], encode_header_column(batch.column("headers"))]
                    batch = pa.record_batch(encoded, schema=SCHEMA)
            yield batch

    @contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, OSError, FormatError, *MALFORMED) as cause:
            raise DurableFileCorruptedError(self.where, cause=f"is not a readable delta file ({cause})") from cause


def changelog_records(batch: pa.RecordBatch) -> Sequence[ChangelogRecord]:
    """Return the records of a batch in order."""
    columns = (batch.column(name).to_pylist() for name in ("key", "value", "timestamp", "header_bytes"))
    return [ChangelogRecord(*row) for row in zip(*columns, strict=True)]
