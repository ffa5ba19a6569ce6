"""Joins of a stream with what a table holds. Source: Kafka's KStreamKTableJoinProcessor, TimeOrderedKeyValueBuffer.

Only records of the stream make results. With a versioned table, each is joined with what was valid at its timestamp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.join_serdes import BufferedKey
from statestore.dsl.processors.joins.joining import JoinedRecords, Joiner, ValueBytes
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.table_views import TableView
from statestore.dsl.processors.windows.closing import ObservedTime, WindowClosing
from statestore.format.keys.window_key import MAX_SEQUENCE, MAX_TIME_MS
from statestore.format.serde import Serde
from statestore.format.values.buffered_record import BufferedRecord
from statestore.headers.record_headers import Headers
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import DROPPED_RECORDS
from statestore.processor.record import Record, RecordMetadata


@dataclass(frozen=True)
class StreamBufferPlan:
    """Where records of a stream wait until their time has come. Travels to the executors."""

    store: str
    key_serde: Serde[Any]
    value_serde: Serde[Any]
    grace_ms: int


@dataclass(frozen=True)
class StreamTablePlan:
    """How a stream is joined with a table. Travels to the executors."""

    view: TableView
    joiner: Joiner
    headers: HeaderPolicy
    is_left: bool
    """Whether a record for which the table has nothing is joined with None instead of dropped."""
    key_selector: Callable[[Any, Any], Any] | None = None
    """A function of a record's key and value that returns the table's key; None means the record's own key."""
    buffer: StreamBufferPlan | None = None


class StreamTableJoining(Planned[StreamTablePlan]):
    """Joins each record as it comes."""

    def init(self, context: ProcessorContext) -> None:
        """Open the table."""
        super().init(context)
        plan = self._plan
        self._get = plan.view.open_as_of(context)
        self._joined = JoinedRecords(plan.joiner, plan.headers, context)

    def process(self, record: Record[Any, Any]) -> None:
        """Join a record with what the table holds."""
        if self._is_joinable(record):
            self._join(record)
        else:
            self._context.count(DROPPED_RECORDS)

    def _is_joinable(self, record: Record[Any, Any]) -> bool:
        return record.value is not None and (self._plan.is_left or self._key_of(record) is not None)

    def _join(self, record: Record[Any, Any]) -> None:
        key = self._key_of(record)
        held = None if key is None else self._get(key, record.timestamp_ms)
        if held is None and not self._plan.is_left:
            return
        left = record.value, record.headers.to_bytes()
        right = None if held is None else (held.value, held.header_bytes)
        self._joined.send(record.key, left, right, record.timestamp_ms, left_came_last=True)

    def _key_of(self, record: Record[Any, Any]) -> Any:
        select = self._plan.key_selector
        return record.key if select is None else select(record.key, record.value)


class BufferedStreamTableJoining(StreamTableJoining):
    """Has records wait for a grace, and joins them in order of time. Those that come after it are joined at once."""

    def init(self, context: ProcessorContext) -> None:
        """Open the buffer, too."""
        super().init(context)
        buffer = self._plan.buffer
        assert buffer is not None
        self._store = context.state_store(buffer.store)
        self._values = ValueBytes(buffer.value_serde)
        self._observed = ObservedTime(context, buffer.store, buffer.key_serde)
        self._closing = WindowClosing(self._observed, buffer.grace_ms)
        self._sequence_name = f"{buffer.store}-sequence"
        self._sequence = context.processor_metadata(self._sequence_name) or 0
        self._earliest_ms = 0
        """No waiting record is earlier."""

    def process(self, record: Record[Any, Any]) -> None:
        """Have a record wait, and join those that are due."""
        if not self._is_joinable(record):
            self._context.count(DROPPED_RECORDS)
            return
        if record.key is None:
            self._join(record)  # it has nothing to wait for; Kafka fails here
            return
        due_ms = self._closing.advance(record)
        if record.timestamp_ms < self._closing.of_key(record, due_ms):
            self._join(record)
        else:
            self._wait(record)
        if record.timestamp_ms >= due_ms:
            self._join_due(due_ms)

    def finish_batch(self) -> None:
        """Have the time and the sequence committed with the batch."""
        self._observed.record()
        if self._sequence:
            self._context.set_processor_metadata(self._sequence_name, self._sequence)

    def _wait(self, record: Record[Any, Any]) -> None:
        value, header_bytes = self._values.write(record)
        topic, partition, offset = self._context.record_metadata or ("", -1, -1)
        held = BufferedRecord(record.timestamp_ms, value, header_bytes, topic, partition, offset)
        self._store.put(self._next_place(record), held)
        self._earliest_ms = min(self._earliest_ms, record.timestamp_ms)

    def _next_place(self, record: Record[Any, Any]) -> BufferedKey:
        while True:
            self._sequence = self._sequence + 1 & MAX_SEQUENCE
            place = BufferedKey(record.timestamp_ms, record.key, self._sequence)
            # A shard merged from several goes on from the lowest sequence, so a place may be taken.
            if self._store.get(place) is None:
                return place

    def _join_due(self, due_ms: int) -> None:
        if due_ms < self._earliest_ms:
            return
        self._earliest_ms = MAX_TIME_MS
        with self._store.all() as waiting:
            for place, held in waiting:
                if place.timestamp_ms > due_ms:
                    self._earliest_ms = place.timestamp_ms
                    return
                value = self._values.read(held.new, held.header_bytes)
                record = Record.adopt(place.key, value, held.timestamp_ms, Headers.from_bytes(held.header_bytes))
                metadata = RecordMetadata(held.topic, held.partition, held.offset) if held.topic else None
                with self._context.resumed(record, metadata):
                    self._join(record)
                    self._store.put(place, None)
