"""The interceptors around one task: what they leave of the records that come in, and of those that its sinks send.

Records come in before any source, as bytes with headers: here this system stands where Kafka has its broker. Source:
KIP-82's broker-side interceptor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from statestore.format.binary_columns import columns_of_rows
from statestore.headers import topic_columns
from statestore.headers.record_headers import Headers
from statestore.headers.records import ProducerRecord
from statestore.headers.topic_columns import Send, SinkFields, SourceFields
from statestore.interception.failures import OnRefusal, Refusal, raise_refusal
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, Interceptor
from statestore.interception.passage import PLACE, EmitPassage, IngestPassage, record_of, source_of

SendBatch: TypeAlias = "Callable[[pa.RecordBatch, pa.RecordBatch | None], None]"
"""Takes a batch of SINK_COLUMNS, and where the input records behind its rows came from, if that is known."""

_HELD_ROWS: Final = 4096
_HELD_BYTES: Final = 4 << 20
_SOURCE: Final = "source"


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

        Raises ProcessorError around what an interceptor raises, and if it changes a record's key or place: they decide
        to which shard the record belongs, and records are divided among shards already.
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
        columns = topic_columns.record_columns(batch, batch.select(PLACE))
        for passed in self._passage.pass_columns(columns):
            if passed is columns:
                yield batch
                return
            assert passed.origin is not None
            place = passed.origin.select(PLACE).columns
            parts = [*place, passed.timestamp_ms, passed.key, passed.value, passed.headers]
            yield pa.record_batch(parts, schema=topic_columns.SOURCE_COLUMNS)

    def original(self, topic: str, partition: int, offset: int) -> SourceFields | None:
        """Return a record as it came, of those that were passed last; None if it is not among them."""
        place = topic, partition, offset
        if self.current is not None and self.current[:3] == place:
            return self.current
        return None if self._batch is None else topic_columns.record_at(self._batch, place)

    def _refused(self, record: IngestedRecord, interceptor: str, error: Refusal) -> None:
        original = self.original(record.topic, record.partition, record.offset)
        self._refuse(original or source_of(record), interceptor, error)


class TaskEmission:
    """The interceptors that see what goes out, around what the sinks of one task send.

    Where all of them take columns, single records are held until some are together, or until `flush`.
    """

    def __init__(
        self,
        interceptors: Sequence[Interceptor],
        send: Send,
        send_batch: Callable[[pa.RecordBatch], None],
        refuse: OnRefusal,
        current: Callable[[], SourceFields | None],
        original: Callable[[str, int, int], SourceFields | None],
    ) -> None:
        """`current` returns the input record that is being processed, `original` one of a place as it came."""
        self._passage: Final = EmitPassage(interceptors, self._refused)
        self.is_in_columns: Final = self._passage.is_in_columns
        """Whether single records are held until some are together."""
        self._to_send = send
        self._to_send_batch = send_batch
        self._refuse = refuse
        self._current = current
        self._original = original
        self._held: list[SinkFields] = []
        self._held_bytes = 0
        self._held_sources: list[SourceFields | None] = []
        self._origin: pa.RecordBatch | None = None
        self.send: Send = self._send_record
        self.send_batch: SendBatch = self._send_columns
        if self._passage.is_open:
            self.send, self.send_batch = send, lambda batch, origin: send_batch(batch)
        elif self.is_in_columns:
            self.send = self._hold

    def flush(self) -> None:
        """Send what is held. Raises what the interceptors raise."""
        if self._held:
            held, self._held, self._held_bytes, self._origin = self._held, [], 0, None
            self._pass(topic_columns.sink_batch(*columns_of_rows(held, len(topic_columns.SINK_COLUMNS))))
            self._held_sources = []

    def _send_record(
        self, topic: str, timestamp_ms: int, key: bytes | None, value: bytes | None, header_bytes: bytes
    ) -> None:
        record: EmittedRecord = ProducerRecord.adopt(topic, timestamp_ms, key, value, Headers.from_bytes(header_bytes))
        send = self._to_send
        for made in self._passage.pass_record(record):
            assert made.timestamp_ms is not None
            send(made.topic, made.timestamp_ms, made.key, made.value, made.headers.to_bytes())

    def _hold(self, topic: str, timestamp_ms: int, key: bytes | None, value: bytes | None, header_bytes: bytes) -> None:
        self._held.append((topic, timestamp_ms, key, value, header_bytes))
        self._held_sources.append(self._current())
        self._held_bytes += len(key or b"") + len(value or b"") + len(header_bytes)
        if len(self._held) >= _HELD_ROWS or self._held_bytes >= _HELD_BYTES:
            self.flush()

    def _send_columns(self, batch: pa.RecordBatch, origin: pa.RecordBatch | None) -> None:
        self.flush()
        self._origin = origin
        self._pass(batch)

    def _pass(self, batch: pa.RecordBatch) -> None:
        # The input of each row goes along, so that a refused row can become a dead letter as it came.
        origin = pa.record_batch([batch.column("topic"), pa.array(np.arange(batch.num_rows))], names=["topic", _SOURCE])
        for passed in self._passage.pass_columns(topic_columns.record_columns(batch, origin)):
            made = [passed.topic, passed.timestamp_ms, passed.key, passed.value, passed.headers]
            self._to_send_batch(pa.record_batch(made, schema=topic_columns.SINK_COLUMNS))

    def _refused(self, record: EmittedRecord, interceptor: str, error: Refusal) -> None:
        self._refuse(self._source(), interceptor, error)

    def _source(self) -> SourceFields | None:
        """Return the input record of the one that an interceptor has, as it came."""
        if (at := self._passage.at) is None:
            return self._as_it_came(self._current())
        columns, row = at
        assert columns.origin is not None
        number: int = columns.origin.column(_SOURCE)[row].as_py()
        if self._held_sources:
            return self._as_it_came(self._held_sources[number])
        if self._origin is None:
            return None
        place: list[Any] = [column[number].as_py() for column in self._origin.columns[:3]]
        return self._original(*place)

    def _as_it_came(self, source: SourceFields | None) -> SourceFields | None:
        return None if source is None else self._original(*source[:3]) or source
