"""Blobs: records of one shard as an Arrow IPC stream, the only thing that crosses Spark's shuffle.

Input blobs have one or more record batches of INPUT, each sorted by (topic, partition, offset); output blobs have
one record batch of OUTPUT. Header bytes are KIP-1271's and are not parsed between pack and unpack.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.local_disk_errors import local_disk_errors
from statestore.bytestore.spilling import SpillSpace
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
_ALIGNMENT_BYTES: Final = 64


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
    """Holds the blobs of one shard and batch: in memory up to a limit, the rest in one file in `space`.

    The file is read through mmap, so that the operating system keeps of it what fits; `name` is what it is of.
    """

    def __init__(self, space: SpillSpace, name: str, memory_limit_bytes: int) -> None:
        self._space = space
        self._name = name
        self._memory_limit_bytes = memory_limit_bytes
        self._path = space.directory / f"{name}.blobs"
        self._file: BinaryIO | None = None
        self._start()

    def __enter__(self) -> BlobSpool:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def add(self, blob: bytes) -> None:
        """Keep one more blob. Raises LocalDiskFullError, LocalDirectoryError."""
        self._memory_left_bytes -= len(blob)
        if self._memory_left_bytes >= 0:
            self._held.append(blob)
            return
        with self._disk_errors():
            if self._file is None:
                self._space.make_directory()
                self._file = open(self._path, "wb")  # noqa: SIM115 - closed when it is read, or in clear()
            self._file.write(blob)
            # Arrow wants each to begin where its numbers may stand.
            self._file.write(bytes(-len(blob) % _ALIGNMENT_BYTES))
        self._spilled_sizes.append(len(blob))

    @property
    def blobs(self) -> Sequence[bytes | pa.Buffer]:
        """Every blob that was added, in that order; none can be added until it is cleared."""
        if self._file is None:
            return self._held
        with self._disk_errors():
            self._file.close()
            spilled = pa.memory_map(str(self._path)).read_buffer()
        found: list[bytes | pa.Buffer] = [*self._held]
        start = 0
        for size in self._spilled_sizes:
            found.append(spilled.slice(start, size))
            start += size + -size % _ALIGNMENT_BYTES
        return found

    def clear(self) -> None:
        """Hold no blobs any more. What was handed out of the file stays as it is."""
        file = self._file
        self._start()
        if file is not None:
            # One on a full disk says so once more; what it should hold was given up already.
            with suppress(OSError):
                file.close()
            with self._disk_errors():
                self._path.unlink(missing_ok=True)

    def _start(self) -> None:
        self._file = None
        self._held: list[bytes] = []
        self._spilled_sizes: list[int] = []
        self._memory_left_bytes = self._memory_limit_bytes

    def _disk_errors(self) -> AbstractContextManager[None]:
        return local_disk_errors(f"spilled {self._name}", self._path)
