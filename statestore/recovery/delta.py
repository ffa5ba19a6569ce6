"""Delta files: the changelog of one shard and batch, as an Arrow IPC file that any Arrow reader can open.

    store      dictionary<int32, string>     which store the record belongs to
    key        binary                        the store's key, as Kafka Streams would send it to the changelog topic
    value      binary, null = tombstone      the plain value, without timestamp or headers
    timestamp  int64                         see `changelog`
    headers    list<struct<key, value>>      likewise

Schema metadata `statestore.delta` is a JSON object: format, state_id, shard, version, and
"stores": {name: {"format": StoreFormat by name, "stream_time_ms": of the store, before the batch}}.
Records of one store stand together. At most one record per store and key, but for versioned stores: theirs are all
there, in the order in which they were put.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from statestore.bytestore.protocol import Change
from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.errors import DurableFileCorruptedError, FormatError
from statestore.format.header_columns import HEADERS_TYPE, decode_header_column, encode_header_column
from statestore.format.store_format import StoreFormat
from statestore.format.value_timestamp_headers import join_columns, split_columns
from statestore.recovery.changelog import BatchChangelog, ChangelogRecord, LastWrites, restored_changes

DELTA_FORMAT = 2
METADATA_KEY = b"statestore.delta"
SCHEMA = pa.schema(
    [
        pa.field("store", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("key", pa.binary(), nullable=False),
        pa.field("value", pa.binary()),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("headers", HEADERS_TYPE, nullable=False),
    ]
)


@dataclass(frozen=True)
class DeltaInfo:
    """Which shard and version a delta file says it makes."""

    state_id: str
    shard: int
    version: int


class LoggedStore(NamedTuple):
    """What a delta says of a store whose records it holds."""

    format: StoreFormat
    stream_time_ms: int
    """The store's stream time before the batch; -1 if nothing had been put yet."""


# Format 1 knew no other stores.
_STORE_OF_FORMAT_1 = LoggedStore(StoreFormat.TIMESTAMPED_WITH_HEADERS, -1)


def encode_delta(
    info: DeltaInfo, changelogs: Mapping[str, BatchChangelog], stream_times_ms: Mapping[str, int]
) -> pa.Buffer:
    """Return the delta file that holds what was written to each store; stores without writes are left out.

    `stream_times_ms` are those of the segmented stores before the batch; a store that is not there had none.
    """
    stores = [name for name, changelog in changelogs.items() if len(changelog)]
    metadata = {
        "format": DELTA_FORMAT,
        "state_id": info.state_id,
        "shard": info.shard,
        "version": info.version,
        "stores": {
            name: {"format": changelogs[name].spec.format.name, "stream_time_ms": stream_times_ms.get(name, -1)}
            for name in stores
        },
    }
    schema = SCHEMA.with_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for index, name in enumerate(stores):
            changelog = changelogs[name]
            store = pa.DictionaryArray.from_arrays(
                pa.repeat(pa.scalar(index, pa.int32()), len(changelog)), pa.array(stores, pa.string())
            )
            writer.write_batch(pa.record_batch([store, *_columns(changelog)], schema=schema))
    return sink.getvalue()


def _columns(changelog: BatchChangelog) -> list[pa.Array]:
    if isinstance(changelog, LastWrites) and changelog.spec.format is StoreFormat.TIMESTAMPED_WITH_HEADERS:
        return _columns_of_stored_values(changelog)
    keys, values, timestamps, header_bytes = zip(*changelog.records(), strict=True)
    return [
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(timestamps, pa.int64()),
        decode_header_column(pa.array(header_bytes, pa.binary())),
    ]


def _columns_of_stored_values(changelog: LastWrites) -> list[pa.Array]:
    """Do what `_columns` does, ten times as fast: these are the stores that most records go to."""
    writes = changelog.writes
    stored = pa.array([write if type(write) is bytes else None for write in writes.values()], pa.binary())
    values, timestamps, header_bytes = split_columns(stored)
    if stored.null_count:
        deletes = [(None, None) if type(write) is bytes else write[1:] for write in writes.values()]
        timestamps = pa.compute.coalesce(timestamps, pa.array([timestamp for timestamp, _ in deletes], pa.int64()))
        header_bytes = pa.compute.coalesce(header_bytes, pa.array([headers for _, headers in deletes], pa.binary()))
    return [pa.array(writes.keys(), pa.binary()), values, timestamps, decode_header_column(header_bytes)]


@dataclass(frozen=True)
class Delta:
    """An open delta file; `table` has the columns of SCHEMA."""

    info: DeltaInfo
    table: pa.Table
    stores: Mapping[str, LoggedStore] = field(default_factory=dict)
    """What it says of each store; a store that is not there is one that format 1 knew."""

    def logged(self, store: str) -> LoggedStore:
        """Return what the delta says of a store that it has records of."""
        return self.stores.get(store, _STORE_OF_FORMAT_1)

    def batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield each store's name with the record batch of its records: a batch holds one store's."""
        for batch in self.table.to_batches():
            if batch.num_rows:
                yield batch.column("store")[0].as_py(), batch

    def changes(self, spec: StoreSpec, batch: pa.RecordBatch) -> Iterator[Change]:
        """Yield what the records of a batch change in a store that is not versioned, in its format and layout."""
        written_as = self.logged(spec.name).format
        if spec.kind is StoreKind.KEY_VALUE and written_as is spec.format is StoreFormat.TIMESTAMPED_WITH_HEADERS:
            stored = join_columns(
                batch.column("value"), batch.column("timestamp"), encode_header_column(batch.column("headers"))
            )
            return zip(batch.column("key").to_pylist(), stored.to_pylist(), strict=True)
        return iter(restored_changes(spec, written_as, changelog_records(batch)))


def changelog_records(batch: pa.RecordBatch) -> Sequence[ChangelogRecord]:
    """Return the records of a batch in order."""
    columns = (batch.column("key"), batch.column("value"), batch.column("timestamp"))
    header_bytes = encode_header_column(batch.column("headers"))
    rows = zip(*(column.to_pylist() for column in (*columns, header_bytes)), strict=True)
    return [ChangelogRecord(*row) for row in rows]


def decode_delta(data: pa.Buffer, where: str) -> Delta:
    """Return the delta in `data`; `where` names the file in errors. Raises DurableFileCorruptedError."""
    try:
        with pa.ipc.open_file(data) as reader:
            recorded = (reader.schema.metadata or {}).get(METADATA_KEY)
            if recorded is None or not reader.schema.equals(SCHEMA):
                raise FormatError("delta", f"its schema is not a delta's: {reader.schema}")
            metadata = json.loads(recorded)
            if metadata["format"] not in (1, DELTA_FORMAT):
                raise FormatError("delta", f"it has format {metadata['format']!r}, this release knows {DELTA_FORMAT}")
            table = reader.read_all()
        table.validate(full=True)
        info = DeltaInfo(str(metadata["state_id"]), int(metadata["shard"]), int(metadata["version"]))
        stores = {
            str(name): LoggedStore(StoreFormat[logged["format"]], int(logged["stream_time_ms"]))
            for name, logged in metadata.get("stores", {}).items()
        }
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError, FormatError) as cause:
        raise DurableFileCorruptedError(where, problem=f"is not a readable delta file ({cause})") from cause
    return Delta(info, table, stores)
