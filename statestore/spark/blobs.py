"""Blobs: records of one shard as an Arrow IPC stream, the only thing that crosses Spark's shuffle.

Input blobs have one or more record batches of INPUT, each sorted by (topic, partition, offset); output blobs have
one record batch of OUTPUT. Header bytes are KIP-1271's and are not parsed between pack and unpack.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import Integers, row_sizes
from statestore.processor.receivers import SinkRecord

INPUT = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.binary(), nullable=False),
    ]
)
OUTPUT = pa.schema(
    [
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("timestamp_ms", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.binary(), nullable=False),
    ]
)
BLOB = "blob"
"""The column that blobs are in, before the shard call and behind it."""
POSITION = ["topic", "partition", "offset"]


def encode_blob(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return record batches of one schema as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    blob: bytes = sink.getvalue().to_pybytes()
    return blob


def decode_blob(blob: bytes | pa.Buffer) -> list[pa.RecordBatch]:
    """Return the record batches of a blob, without copying their content."""
    with pa.ipc.open_stream(blob) as reader:
        return list(reader)


def sort_by_position(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch ordered by (topic, partition, offset)."""
    topics = batch.column("topic").cast(pa.string())
    keys = pa.table([topics, batch.column("partition"), batch.column("offset")], names=POSITION)
    return batch.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in POSITION]))


def record_sizes(batch: pa.RecordBatch) -> Integers:
    """Return the size in bytes of each record of a batch: of its key, value and headers."""
    return row_sizes(batch.column("key")) + row_sizes(batch.column("value")) + row_sizes(batch.column("headers"))


def output_blob(records: Sequence[SinkRecord]) -> bytes:
    """Return what the sinks were sent, at least one record, as an output blob."""
    topics, timestamps, keys, values, headers = zip(*records, strict=True)
    columns = [
        pa.array(topics, pa.string()).dictionary_encode(),
        pa.array(timestamps, pa.int64()),
        pa.array(keys, pa.binary()),
        pa.array(values, pa.binary()),
        pa.array(headers, pa.binary()),
    ]
    return encode_blob([pa.record_batch(columns, schema=OUTPUT)])


class OutputBlobs:
    """Takes what the sinks are sent and packs it into blobs of `records_each` records: bytes, not objects, wait."""

    def __init__(self, records_each: int) -> None:
        self.record_count = 0
        """How many records the blobs have that were packed so far."""
        self._records_each = records_each
        self._records: list[SinkRecord] = []
        self._blobs: list[bytes] = []

    def add(self, record: SinkRecord) -> None:
        """Take one more record."""
        records = self._records
        records.append(record)
        if len(records) >= self._records_each:
            self._pack()

    def take(self) -> list[bytes]:
        """Return the blobs that are full and were not taken yet."""
        blobs, self._blobs = self._blobs, []
        return blobs

    def take_all(self) -> list[bytes]:
        """Return all that was not taken yet, also in a blob that is not full."""
        if self._records:
            self._pack()
        return self.take()

    def _pack(self) -> None:
        self._blobs.append(output_blob(self._records))
        self.record_count += len(self._records)
        self._records.clear()


class BlobSpool:
    """Holds the blobs of one shard and batch: in memory up to a limit, the rest in a temporary file.

    The file is read through mmap, so that the operating system keeps of it what fits.
    """

    def __init__(self, memory_limit_bytes: int) -> None:
        self._memory_left_bytes = memory_limit_bytes
        self._blobs: list[bytes | pa.Buffer] = []
        self._directory: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> BlobSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self._blobs.clear()
        if self._directory is not None:
            self._directory.cleanup()

    def add(self, blob: bytes) -> None:
        """Keep one more blob."""
        self._memory_left_bytes -= len(blob)
        if self._memory_left_bytes >= 0:
            self._blobs.append(blob)
            return
        if self._directory is None:
            self._directory = tempfile.TemporaryDirectory(prefix="statestore-blobs-")
        path = Path(self._directory.name, f"{len(self._blobs)}.arrow")
        path.write_bytes(blob)
        self._blobs.append(pa.memory_map(str(path)).read_buffer())

    @property
    def blobs(self) -> Sequence[bytes | pa.Buffer]:
        """Every blob that was added, in that order."""
        return self._blobs
