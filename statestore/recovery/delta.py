"""Delta files: the changelog of one shard and batch, as an Arrow IPC file that any Arrow reader can open.

    store      dictionary<int32, string>     which store the record belongs to
    key        binary                        the store's key, as Kafka Streams would send it to the changelog topic
    value      binary, null = tombstone      the plain value, without timestamp or headers
    timestamp  int64                         of the value; of the deleting record for a tombstone
    headers    list<struct<key, value>>      likewise

Schema metadata `statestore.delta` is a JSON object: format, state_id, shard, version. At most one record per store and
key; records of one store stand together.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa

from statestore.bytestore.protocol import Change
from statestore.bytestore.write_set import Tombstone
from statestore.errors import DurableFileCorruptedError, FormatError
from statestore.format.header_columns import HEADERS_TYPE, decode_header_column, encode_header_column
from statestore.format.value_timestamp_headers import join_columns, split_columns

DELTA_FORMAT = 1
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

Changes = Mapping[bytes, "bytes | Tombstone"]


@dataclass(frozen=True)
class DeltaInfo:
    """Which shard and version a delta file says it makes."""

    state_id: str
    shard: int
    version: int


def encode_delta(info: DeltaInfo, changes: Mapping[str, Changes]) -> pa.Buffer:
    """Return the delta file that holds the changes of each store; stores without changes are left out."""
    stores = [name for name, store_changes in changes.items() if store_changes]
    metadata = {
        "format": DELTA_FORMAT,
        "state_id": info.state_id,
        "shard": info.shard,
        "version": info.version,
    }
    schema = SCHEMA.with_metadata({METADATA_KEY: json.dumps(metadata).encode()})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        for index, name in enumerate(stores):
            columns = _changelog_columns(changes[name])
            store = pa.DictionaryArray.from_arrays(
                pa.repeat(pa.scalar(index, pa.int32()), len(changes[name])), pa.array(stores, pa.string())
            )
            writer.write_batch(pa.record_batch([store, *columns], schema=schema))
    return sink.getvalue()


def _changelog_columns(changes: Changes) -> list[pa.Array]:
    stored = pa.array([value if type(value) is bytes else None for value in changes.values()], pa.binary())
    values, timestamps, header_bytes = split_columns(stored)
    if stored.null_count:
        tombstones = [
            (value.timestamp_ms, value.header_bytes) if isinstance(value, Tombstone) else (None, None)
            for value in changes.values()
        ]
        timestamps = pa.compute.coalesce(timestamps, pa.array([timestamp for timestamp, _ in tombstones], pa.int64()))
        header_bytes = pa.compute.coalesce(header_bytes, pa.array([headers for _, headers in tombstones], pa.binary()))
    return [pa.array(changes.keys(), pa.binary()), values, timestamps, decode_header_column(header_bytes)]


@dataclass(frozen=True)
class Delta:
    """An open delta file; `table` has the columns of SCHEMA."""

    info: DeltaInfo
    table: pa.Table

    def changes(self) -> Iterator[tuple[str, Iterator[Change]]]:
        """Yield each store's name with its changes in the stored format; a value of None deletes its key."""
        for batch in self.table.to_batches():
            if batch.num_rows:
                store = batch.column("store")
                # A record batch holds one store: that is how they are written.
                yield store[0].as_py(), _stored_changes(batch)


def _stored_changes(batch: pa.RecordBatch) -> Iterator[Change]:
    stored = join_columns(
        batch.column("value"), batch.column("timestamp"), encode_header_column(batch.column("headers"))
    )
    return zip(batch.column("key").to_pylist(), stored.to_pylist(), strict=True)


def decode_delta(data: pa.Buffer, where: str) -> Delta:
    """Return the delta in `data`; `where` names the file in errors. Raises DurableFileCorruptedError."""
    try:
        with pa.ipc.open_file(data) as reader:
            recorded = (reader.schema.metadata or {}).get(METADATA_KEY)
            if recorded is None or not reader.schema.equals(SCHEMA):
                raise FormatError("delta", f"its schema is not a delta's: {reader.schema}")
            metadata = json.loads(recorded)
            if metadata["format"] != DELTA_FORMAT:
                raise FormatError("delta", f"it has format {metadata['format']!r}, this release knows {DELTA_FORMAT}")
            table = reader.read_all()
        table.validate(full=True)
        info = DeltaInfo(str(metadata["state_id"]), int(metadata["shard"]), int(metadata["version"]))
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, FormatError) as cause:
        raise DurableFileCorruptedError(where, problem=f"is not a readable delta file ({cause})") from cause
    return Delta(info, table)
