"""The order in which a shard's records are processed: by time across partitions, by offset within one.

As a task of Kafka Streams does, the next record is taken from the partition whose next record is the earliest; of equal
ones, from the first by topic and partition. So stream time goes on evenly, whatever a micro-batch brings of each
partition, and records of two topics meet in time. Source: Kafka's PartitionGroup.

Taking the earliest head again and again is the same as sorting by the highest timestamp so far within the partition:
that is how it is done, some thousand records at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from statestore.processor.receivers import SourceRecord
from statestore.spark.blobs import decode_blob, sort_by_position

_RECORDS_AT_ONCE = 10_000
_Times = np.ndarray[Any, np.dtype[np.int64]]


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
        yield from _merged([_Partition(parts[at]) for at in sorted(parts) if (at[0] in topics_first) is first])


def _parts(batch: pa.RecordBatch) -> Iterator[tuple[tuple[str, int], pa.RecordBatch]]:
    """Yield each topic partition of a batch that is sorted by position, with its records."""
    if not batch.num_rows:
        return
    topics, partitions = batch.column("topic").indices.to_numpy(), batch.column("partition").to_numpy()
    changes = np.flatnonzero((np.diff(topics) != 0) | (np.diff(partitions) != 0)) + 1
    names = batch.column("topic").dictionary
    for start, end in zip((0, *changes.tolist()), (*changes.tolist(), batch.num_rows), strict=True):
        yield (names[int(topics[start])].as_py(), int(partitions[start])), batch.slice(start, end - start)


class _Partition:
    """The records of one topic partition, by offset, and how many of them were taken."""

    def __init__(self, parts: list[pa.RecordBatch]) -> None:
        self.records = pa.Table.from_batches(list(_without_overlaps(parts)))
        times_ms = self.records.column("timestamp_ms").to_numpy()
        self.highest_ms: _Times = np.maximum.accumulate(times_ms)
        self.taken = 0

    @property
    def is_done(self) -> bool:
        return self.taken == len(self.highest_ms)

    def next_ms(self, step: int = 1) -> int:
        """Return the time of the record `step` records ahead, or of the last one."""
        return int(self.highest_ms[min(self.taken + step, len(self.highest_ms)) - 1])

    def take_until(self, end: int) -> tuple[pa.Table, _Times]:
        """Return the records before number `end` that were not taken yet, with their times."""
        start, self.taken = self.taken, end
        return self.records.slice(start, end - start), self.highest_ms[start:end]

    def count(self, time_ms: int, *, inclusive: bool) -> int:
        """Return the number of the first record that is not before `time_ms`, or not at it either."""
        return int(np.searchsorted(self.highest_ms, time_ms, side="right" if inclusive else "left"))


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


def _merged(partitions: Sequence[_Partition]) -> Iterator[SourceRecord]:
    while partitions := [partition for partition in partitions if not partition.is_done]:
        step = max(1, _RECORDS_AT_ONCE // len(partitions))
        # Up to here, no partition has more than `step` records to give.
        bound_ms = min(partition.next_ms(step) for partition in partitions)
        earlier = [partition.take_until(partition.count(bound_ms, inclusive=False)) for partition in partitions]
        yield from _interleaved([(records, times) for records, times in earlier if len(times)])
        for partition in partitions:
            # Those of one time are any number, but they come partition after partition.
            yield from _rows(partition.take_until(partition.count(bound_ms, inclusive=True))[0])


def _interleaved(parts: Sequence[tuple[pa.Table, _Times]]) -> Iterator[SourceRecord]:
    if len(parts) < 2:
        for records, _ in parts:
            yield from _rows(records)
        return
    order = np.argsort(np.concatenate([times for _, times in parts]), kind="stable")
    records = _one([batch for part, _ in parts for batch in part.to_batches()])
    yield from _rows(pa.Table.from_batches([records.take(pa.array(order))]))


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
