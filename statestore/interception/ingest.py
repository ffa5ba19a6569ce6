"""Records on their way into a task: what the interceptors of the side that comes in leave of them.

It is where this system has its broker: before any source, as bytes with headers. Source: KIP-82's broker-side
interceptor.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.headers.topic_columns import SOURCE_COLUMNS, SourceFields, record_columns, source_records
from statestore.interception.failed_record import Refusal
from statestore.interception.failures import OnRefusal, raise_refusal
from statestore.interception.interceptor import IngestedRecord, Interceptor
from statestore.interception.passage import PLACE, IngestPassage, record_of, source_of


class Ingest:
    """The interceptors that see what comes in, around the records of one task."""

    def __init__(self, interceptors: Sequence[Interceptor], refuse: OnRefusal = raise_refusal) -> None:
        self._passage: Final = IngestPassage(interceptors, self._refused)
        self._refuse = refuse
        self.is_in_columns: Final = self._passage.is_in_columns
        """Whether records are best passed together."""
        self.current: SourceFields | None = None
        """The record as it came that was passed last, by itself; None if records are passed in columns."""
        self._batch: pa.RecordBatch | None = None
        """The records as they came that were passed last, in columns."""

    def records(self, records: Iterable[SourceFields]) -> Iterator[SourceFields]:
        """Yield what is left of records, in their order, each before the next one is looked at.

        Raises ProcessorError around what an interceptor raises, and if it changes where a record came from or its key:
        that is what decides which shard a record belongs to, and shards are divided already.
        """
        return iter(records) if self._passage.is_open else self._records(records)

    def _records(self, records: Iterable[SourceFields]) -> Iterator[SourceFields]:
        pass_record = self._passage.pass_record
        for source in records:
            self.current = source
            topic, partition, offset, _, key, _, _ = source
            for made in pass_record(record_of(source)):
                yield topic, partition, offset, made.timestamp_ms, key, made.value, made.headers.to_bytes()

    def batches(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield what is left of records in the columns of SOURCE_COLUMNS, in one part unless it has become a lot.

        A part is to be processed before the next one is asked for. Raises what `records` raises.
        """
        self.current, self._batch = None, batch
        if self._passage.is_open:
            yield batch
            return
        columns = record_columns(batch, batch.select(PLACE))
        for passed in self._passage.pass_columns(columns):
            if passed is columns:
                yield batch
                return
            assert passed.origin is not None
            place = passed.origin.select(PLACE).columns
            parts = [*place, passed.timestamp_ms, passed.key, passed.value, passed.headers]
            yield pa.record_batch(parts, schema=SOURCE_COLUMNS)

    def original(self, topic: str, partition: int, offset: int) -> SourceFields | None:
        """Return a record as it came, of those that were passed last; None if it is not among them."""
        place = topic, partition, offset
        if self.current is not None and self.current[:3] == place:
            return self.current
        return None if self._batch is None else _find(self._batch, place)

    def _refused(self, record: IngestedRecord, interceptor: str, error: Refusal) -> None:
        original = self.original(record.topic, record.partition, record.offset)
        self._refuse(original or source_of(record), interceptor, error)


def _find(batch: pa.RecordBatch, place: tuple[Any, ...]) -> SourceFields | None:
    """Return the first record of a batch that came from a place; None if there is none."""
    found = np.ones(batch.num_rows, np.bool_)
    for name, part in zip(PLACE, place, strict=True):
        column = batch.column(name)
        found &= pc.equal(column, pa.scalar(part).cast(column.type)).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(found)
    return next(source_records(batch.slice(int(rows[0]), 1))) if len(rows) else None
