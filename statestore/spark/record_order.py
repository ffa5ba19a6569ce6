"""The order in which a shard's records are processed: by time across partitions, by offset within one.

As a task of Kafka Streams does, the next record is taken from the partition whose next record is the earliest; of equal
ones, from the first by topic and partition. So stream time goes on evenly, whatever a micro-batch brings of each
partition, and records of two topics meet in time. Source: Kafka's PartitionGroup.

Taking the earliest head again and again is the same as sorting by the highest timestamp so far within the partition:
that is how it is done, some thousand records at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from statestore.processor.receivers import SourceRecord
from statestore.spark.blobs import decode_blob, sort_by_position

_RECORDS_AT_ONCE = 10_000


def records_in_order(
    blobs: Iterable[bytes | pa.Buffer], topics_first: frozenset[str] = frozenset()
) -> Iterator[SourceRecord]:
    """Yield the records of all blobs in their order, those of `topics_first` before all others."""
    parts: dict[tuple[str, int], list[pa.RecordBatch]] = {}
    for blob in blobs:
        for batch in decode_blob(blob):
            for place, part in _parts(batch):
                parts.setdefault(place, []).append(part)
    for first in (True, False):
        places = [place for place in sorted(parts) if (place[0] in topics_first) is first]
        yield from _merged([pa.Table.from_batches(list(_without_overlaps(parts.pop(place)))) for place in places])


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """Yield each topic partition of a batch that is sorted by position, with its records."""
    if not batch.num_rows:
        return
    topics, partitions = batch.column("topic").indices.to_numpy(), batch.column("partition").to_numpy()
    changes = np.flatnonzero((np.diff(topics) != 0) | (np.diff(partitions) != 0)) + 1
    names = batch.column("topic").dictionary
    for start, end in zip((0, *changes.tolist()), (*changes.tolist(), batch.num_rows), strict=True):
        yield (names[int(topics[start])].as_py(), int(partitions[start])), batch.slice(start, end - start)


def _without_overlaps(parts: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of parts that are in order each, in order: Spark may have cut a partition in any way."""
    parts.sort(key=_first_offset)
    overlapping: list[pa.RecordBatch] = []
    highest = -1
    for part in parts:
        if overlapping and _first_offset(part) > highest:
            yield _sorted(overlapping)
            overlapping = []
        overlapping.append(part)
        highest = max(highest, _last_offset(part))
    yield _sorted(overlapping)


def _sorted(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return parts[0] if len(parts) == 1 else sort_by_position(_one(parts))


def _merged(partitions: Sequence[pa.Table]) -> Iterator[SourceRecord]:
    if not partitions:
        return
    times = [np.maximum.accumulate(records.column("timestamp_ms").to_numpy()) for records in partitions]
    starts = np.cumsum([0, *(len(each) for each in times[:-1])])
    order = np.argsort(np.concatenate(times), kind="stable")  # stable: of equal times, the first partition's first
    taken = np.zeros(len(partitions), np.int64)
    for at in range(0, len(order), _RECORDS_AT_ONCE):
        chunk = order[at : at + _RECORDS_AT_ONCE]
        owner = np.searchsorted(starts, chunk, side="right") - 1
        touched, counts = np.unique(owner, return_counts=True)
        # Of each partition, the next records in a row: only their order among each other is to be made.
        slices = [
            partitions[number].slice(int(taken[number]), int(count))
            for number, count in zip(touched.tolist(), counts.tolist(), strict=True)
        ]
        begins = np.zeros(len(partitions), np.int64)
        begins[touched] = np.cumsum(counts) - counts
        rows = chunk - starts[owner] - taken[owner] + begins[owner]
        taken[touched] += counts
        if len(slices) == 1:
            yield from _rows(slices[0])
        else:
            records = _one([batch for part in slices for batch in part.to_batches()])
            yield from _rows(pa.Table.from_batches([records.take(pa.array(rows))]))


def _rows(records: pa.Table) -> Iterator[SourceRecord]:
    # Python objects of a part at a time: there may be millions of records.
    for batch in records.to_batches(max_chunksize=_RECORDS_AT_ONCE):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the records of some batches as one batch."""
    if len(batches) == 1:
        return batches[0]
    table = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    return table.to_batches()[0]


def _first_offset(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[0].as_py())


def _last_offset(batch: pa.RecordBatch) -> int:
    return int(batch.column("offset")[-1].as_py())
