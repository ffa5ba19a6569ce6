"""The order in which a shard's records are processed: by time across partitions, by offset within one.

As in a task of Kafka Streams, the next record comes from the partition whose next record is the earliest; of equal
ones, from the first by topic and partition. So stream time advances evenly, however many records of each partition a
micro-batch has, and records of two topics meet in time. Source: Kafka's PartitionGroup.

Equal offsets, which Kafka never has, are ordered by time, key, value and headers. So a batch that is run again has the
same order whatever Spark's shuffle does: records that are still equal are the same.

Taking the earliest head again and again is the same as sorting by the highest timestamp so far within the partition.
Only numbers are sorted, for all records at once; the records stay in their parts until their turn comes. They are never
put into one Arrow array, which can't hold more than 2 GiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.bytestore.chunks import DEFAULT_BYTES, DEFAULT_ROWS, slices
from statestore.format.binary_columns import Integers
from statestore.headers.topic_columns import SourceFields, source_records
from statestore.spark.shards.blobs import decode_blob, record_sizes, runs

_ORDER: Final = ["offset", "timestamp_ms", "key", "value", "headers"]
"""What orders the records of a partition."""


def records_in_order(
    blobs: Iterable[bytes | pa.Buffer], topics_first: frozenset[str] = frozenset()
) -> Iterator[SourceFields]:
    """Return the records of all blobs in their order, those of `topics_first` before all others."""
    return chain.from_iterable(map(source_records, batches_in_order(blobs, topics_first)))


def batches_in_order(
    blobs: Iterable[bytes | pa.Buffer],
    topics_first: frozenset[str] = frozenset(),
    max_rows: int = DEFAULT_ROWS,
    max_bytes: int = DEFAULT_BYTES,
) -> Iterator[pa.RecordBatch]:
    """Yield what `records_in_order` does as record batches of SOURCE_COLUMNS, none of them large."""
    places: dict[tuple[str, int], list[pa.RecordBatch]] = {}
    for blob in blobs:
        for batch in decode_blob(blob):
            for place, part in _parts(batch):
                places.setdefault(place, []).append(part)
    for first in (True, False):
        partitions = [places.pop(place) for place in sorted(places) if (place[0] in topics_first) is first]
        yield from _merge(partitions, max_rows, max_bytes)


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """Yield each topic partition of a batch that is sorted by position, with its records."""
    topics, partitions = batch.column("topic").indices.to_numpy(), batch.column("partition").to_numpy()
    changes = (np.diff(topics) != 0) | (np.diff(partitions) != 0)
    names = batch.column("topic").dictionary
    for start, end in runs(changes, batch.num_rows):
        yield (names[int(topics[start])].as_py(), int(partitions[start])), batch.slice(start, end - start)


def _merge(partitions: Sequence[list[pa.RecordBatch]], max_rows: int, max_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield the records of partitions, at equal times in the order of the partitions."""
    parts = [part for partition in partitions for part in partition]
    if not parts:
        return
    order, times = [], []
    first_row = 0
    for partition in partitions:
        # Spark may have cut the partition in any way.
        rows = _by_offset(partition)
        order.append(first_row + rows)
        times.append(np.maximum.accumulate(_numbers("timestamp_ms", partition)[rows]))
        first_row += len(rows)
    # Stable: records of equal times come in the order of partitions.
    taken = np.concatenate(order)[np.argsort(np.concatenate(times), kind="stable")]
    del order, times
    starts = np.cumsum([0, *(part.num_rows for part in parts)])
    sizes = np.concatenate([record_sizes(part) for part in parts])
    # A few MB at a time, as records become Python objects: there may be millions, and large ones.
    for at in range(0, len(taken), max_rows):
        rows = taken[at : at + max_rows]
        for piece in slices(sizes[rows], max_bytes):
            yield _batch(parts, starts, rows[piece])


def _by_offset(partition: list[pa.RecordBatch]) -> Integers:
    """Return the row numbers of a partition, counted through its parts, in the order of offsets."""
    offsets = _numbers("offset", partition)
    rows = np.argsort(offsets, kind="stable")
    if (np.diff(offsets[rows]) != 0).all():
        return rows
    # A table of the parts: they are not concatenated.
    records = pa.Table.from_batches([part.select(_ORDER) for part in partition])
    # As int64 like all row numbers: numpy would turn unsigned ones beside them into floating-point numbers.
    in_order: Integers = pc.sort_indices(records, [(name, "ascending") for name in _ORDER]).to_numpy().astype(np.int64)
    return in_order


def _numbers(column: str, parts: list[pa.RecordBatch]) -> Integers:
    return np.concatenate([part.column(column).to_numpy() for part in parts])


def _batch(parts: Sequence[pa.RecordBatch], starts: Integers, rows: Integers) -> pa.RecordBatch:
    """Return the records in `rows`, numbered through all parts; `starts` says where each part begins."""
    owners = np.searchsorted(starts, rows, side="right") - 1
    by_owner = np.argsort(owners, kind="stable")
    changes = np.flatnonzero(np.diff(owners[by_owner])) + 1
    found = [_rows(parts[owners[at[0]]], rows[at] - starts[owners[at[0]]]) for at in np.split(by_owner, changes)]
    records = found[0]
    if len(found) > 1:
        places = np.empty(len(rows), np.int64)
        places[by_owner] = np.arange(len(rows))
        records = pa.concat_batches(found).take(pa.array(places))
    return records


def _rows(part: pa.RecordBatch, rows: Integers) -> pa.RecordBatch:
    in_a_row = bool((np.diff(rows) == 1).all())
    return part.slice(int(rows[0]), len(rows)) if in_a_row else part.take(pa.array(rows))
