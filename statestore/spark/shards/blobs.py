"""Blobs: records of one shard as an Arrow IPC stream, the only thing that crosses Spark's shuffle.

Input blobs have record batches of INPUT, each sorted by (topic, partition, offset); output blobs have one record batch
of OUTPUT. Header bytes are those of KIP-1271 and are not parsed between pack and unpack.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.chunks import DEFAULT_BYTES, slices
from statestore.bytestore.engines.rocksdb_options import local_disk_errors
from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.format.binary_columns import Integers, row_sizes
from statestore.headers.topic_columns import SINK_COLUMNS, SOURCE_COLUMNS, sink_batch

INPUT = SOURCE_COLUMNS
OUTPUT = SINK_COLUMNS
BLOB = "blob"
"""The column of blobs, before and after the shard call."""
BLOB_BYTES: Final = 256 << 10
"""About how large blobs become. Spark copies each several times into buffers that it doubles. With blobs of MBs, these
outlive Java's small collections, and each micro-batch ends with a collection of the whole heap."""
POSITION = ["topic", "partition", "offset"]
_ALIGNMENT_BYTES: Final = 64
_MOST_AT_ONCE: Final = 64
"""Records of output that are looked at together."""
_TRIM: Final = getattr(ctypes.CDLL(None), "malloc_trim", None)
"""Gives back what C, Python and RocksDB have freed; only GNU's C library has it."""


class BlobWriter:
    """Writes record batches of one schema into a blob, and keeps no reference to them."""

    def __init__(self, schema: pa.Schema) -> None:
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    @property
    def size_bytes(self) -> int:
        """How large the blob is so far."""
        return int(self._sink.tell())

    def write(self, batch: pa.RecordBatch) -> None:
        """Add a record batch."""
        self._writer.write_batch(batch)

    def finish(self) -> bytes:
        """Return the blob; nothing can be added after that."""
        self._writer.close()
        blob: bytes = self._sink.getvalue().to_pybytes()
        return blob


def encode_blob(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Return record batches of one schema as an Arrow IPC stream."""
    writer = BlobWriter(batches[0].schema)
    for batch in batches:
        writer.write(batch)
    return writer.finish()


def decode_blob(blob: bytes | pa.Buffer) -> list[pa.RecordBatch]:
    """Return the record batches of a blob, without copying their data."""
    with pa.ipc.open_stream(blob) as reader:
        return list(reader)


def schema_of_blob(blob: bytes | pa.Buffer) -> pa.Schema:
    """Return the schema of a blob's record batches."""
    with pa.ipc.open_stream(blob) as reader:
        return reader.schema


def release_buffers() -> None:
    """Return memory that is free to the operating system: while a worker waits, others need it."""
    pa.default_memory_pool().release_unused()
    if _TRIM is not None:
        _TRIM(0)


def sort_by_position(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch ordered by (topic, partition, offset)."""
    topics = batch.column("topic").cast(pa.string())
    keys = pa.table([topics, batch.column("partition"), batch.column("offset")], names=POSITION)
    return batch.take(pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in POSITION]))


def record_sizes(batch: pa.RecordBatch) -> Integers:
    """Return the size in bytes of each record's key, value and headers."""
    return row_sizes(batch.column("key")) + row_sizes(batch.column("value")) + row_sizes(batch.column("headers"))


def pieces(batch: pa.RecordBatch, max_bytes: int = DEFAULT_BYTES) -> Iterator[pa.RecordBatch]:
    """Yield a batch in parts of about so many bytes of keys, values and headers."""
    for rows in slices(record_sizes(batch), max_bytes):
        yield batch.slice(rows.start, rows.stop - rows.start)


def runs(changes: Integers, count: int) -> Iterator[tuple[int, int]]:
    """Yield start and end of each run of equal rows; `changes` are the differences of neighbours."""
    if count:
        ends = (np.flatnonzero(changes) + 1).tolist()
        yield from zip([0, *ends], [*ends, count], strict=True)


def by_shard(batch: pa.RecordBatch, shard_of: Integers) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield each shard that has rows, with its rows."""
    # Stable: the order within a shard stays.
    order = np.argsort(shard_of, kind="stable")
    rows, shards = batch.take(pa.array(order)), shard_of[order]
    for start, end in runs(np.diff(shards), len(order)):
        yield int(shards[start]), rows.slice(start, end - start)


class OutputBlobs:
    """Packs what sinks are sent into blobs, which wait in `spool` as bytes, not objects."""

    def __init__(
        self,
        spool: BlobSpool,
        max_records: int,
        max_bytes: int = BLOB_BYTES,
        place: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None,
    ) -> None:
        """Begin. `place` turns columns of OUTPUT into those of the next stage; None if there is none."""
        self.record_count = 0
        """How many records were packed so far."""
        self.waiting = 0
        """How many full blobs were not taken yet."""
        self._spool = spool
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._place = place
        self._topics: list[str] = []
        self._timestamps_ms: list[int] = []
        self._keys: list[bytes | None] = []
        self._values: list[bytes | None] = []
        self._headers: list[bytes] = []
        self._seen = 0
        """How many of these records were measured: all but the last few."""
        self._seen_bytes = 0
        self._look_at = 1
        """At how many records the others are measured."""

    def add(self, topic: str, timestamp_ms: int, key: bytes | None, value: bytes | None, header_bytes: bytes) -> None:
        """Take one more record. Raises LocalDiskFullError, LocalDirectoryError."""
        # Columns that are measured now and then: a tuple and a sum for each record take three times as long.
        self._topics.append(topic)
        self._timestamps_ms.append(timestamp_ms)
        self._keys.append(key)
        self._values.append(value)
        self._headers.append(header_bytes)
        if len(self._headers) >= self._look_at:
            self._look()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Take more records, as columns of OUTPUT. Raises LocalDiskFullError, LocalDirectoryError."""
        self._pack_all()
        for piece in pieces(batch, self._max_bytes):
            self._add_blob(piece)

    def take(self) -> Iterator[bytes]:
        """Yield the full blobs that were not taken yet; no record can be added meanwhile."""
        if self.waiting:
            for blob in self._spool.blobs:
                yield blob if isinstance(blob, bytes) else blob.to_pybytes()
            self._spool.clear()
            self.waiting = 0

    def take_all(self) -> Iterator[bytes]:
        """Yield all blobs that were not taken yet, with a last one that is not full."""
        self._pack_all()
        return self.take()

    def _look(self) -> None:
        """Measure new records, and pack those that fill blobs. Sets when to do so again: with large records, soon."""
        rows = slice(self._seen, None)
        columns = (self._headers[rows], self._keys[rows], self._values[rows])
        count, size_bytes = len(columns[0]), sum(sum(map(len, filter(None, column))) for column in columns)
        if self._seen_bytes + size_bytes <= self._max_bytes:
            self._seen += count
            self._seen_bytes += size_bytes
        else:
            for parts in zip(*columns, strict=True):
                size = sum(len(part or b"") for part in parts)
                if self._seen and self._seen_bytes + size > self._max_bytes:
                    self._pack()
                self._seen += 1
                self._seen_bytes += size
        if self._seen >= self._max_records or self._seen_bytes >= self._max_bytes:
            self._pack()
        at_once = min(2 * count, _MOST_AT_ONCE) if size_bytes <= self._max_bytes // 8 else 1
        self._look_at = min(self._seen + at_once, self._max_records)

    def _pack_all(self) -> None:
        if self._headers:
            self._look()
        if self._seen:
            self._pack()

    def _pack(self) -> None:
        """Make a blob of the measured records."""
        rows = slice(0, self._seen)
        columns: tuple[list[Any], ...] = (self._timestamps_ms, self._keys, self._values, self._headers)
        self._add_blob(sink_batch(self._topics[rows], *(column[rows] for column in columns)))
        for column in (self._topics, *columns):
            del column[rows]
        self._seen = self._seen_bytes = 0

    def _add_blob(self, batch: pa.RecordBatch) -> None:
        self._spool.add(encode_blob([batch if self._place is None else self._place(batch)]))
        self.waiting += 1
        self.record_count += batch.num_rows


class BlobSpool:
    """Holds blobs in memory up to a limit, the rest in a file that is read through mmap."""

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
            # Arrow wants each to begin at an aligned address.
            self._file.write(bytes(-len(blob) % _ALIGNMENT_BYTES))
        self._spilled_sizes.append(len(blob))

    @property
    def blobs(self) -> Sequence[bytes | pa.Buffer]:
        """All blobs in the order in which they were added; none can be added until it is cleared."""
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
        """Drop all blobs. Those that were handed out stay valid, even in the file."""
        file = self._file
        self._start()
        if file is not None:
            # On a full disk, close may fail again; the file is not needed.
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
