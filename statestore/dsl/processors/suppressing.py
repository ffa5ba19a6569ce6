"""Holds changes of a table back. Source: Kafka's KTableSuppressProcessorSupplier.

A change goes on with the timestamp, headers and origin of the last record of its key. Its old value is the one before
that last change: if a key has changed several times, nodes below get only the last step, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from statestore.dsl.change import Change
from statestore.dsl.processors.planned import Planned
from statestore.dsl.processors.suppression_buffer import BufferPlan, SuppressionBuffer
from statestore.dsl.processors.table_views import Getter, Held, TableView
from statestore.dsl.processors.windows.closing import ObservedTime, WindowClosing
from statestore.dsl.suppressed import BufferConfig
from statestore.errors import SuppressionBufferFullError
from statestore.format.values.buffered_record import decode_buffered_record
from statestore.processor.context import ProcessorContext
from statestore.processor.record import Record, RecordMetadata
from statestore.stores.holders import ValueTimestampHeaders

_UNKNOWN_MS: Final = -1
"""The buffer does not keep the timestamp of the value before."""


@dataclass(frozen=True)
class SuppressPlan:
    """What is held back, and for how long. Travels to the executors."""

    buffer: BufferPlan
    config: BufferConfig
    wait_ms: int
    """How long changes are held back."""
    is_final: bool
    """Whether `wait_ms` counts from the end of the window, not from the first change of the key."""

    @property
    def takes_columns(self) -> bool:
        """Whether changes can be held back in columns: not in a bounded buffer."""
        has_columns = None not in (self.buffer.key_serde.columns, self.buffer.value_serde.columns)
        return has_columns and self.config.record_bound is None and self.config.byte_bound is None


class Suppressing(Planned[SuppressPlan]):
    """Holds changes back."""

    def init(self, context: ProcessorContext) -> None:
        """Open the buffer."""
        super().init(context)
        self._buffer = SuppressionBuffer(self._plan.buffer, context)
        self._observed = ObservedTime(context, self._plan.buffer.store, self._plan.buffer.key_serde)
        self._closing = WindowClosing(self._observed, self._plan.wait_ms)

    def process(self, record: Record[Any, Change]) -> None:
        """Hold a change back, and send on what is due."""
        plan, buffer = self._plan, self._buffer
        buffer.put(record.key.end_ms if plan.is_final else record.timestamp_ms, record)
        due_ms = self._closing.advance(record)
        self._emit(buffer.take(lambda time_ms: time_ms <= due_ms))
        due_of_key_ms = self._closing.of_key(record, due_ms)
        if due_of_key_ms > due_ms:
            self._emit(buffer.take_of_key(record.key, due_of_key_ms))
        if self._is_full():
            if plan.config.is_strict:
                raise SuppressionBufferFullError(
                    node=self._context.node,
                    records=buffer.records,
                    max_records=plan.config.record_bound,
                    size_bytes=buffer.size_bytes,
                    max_bytes=plan.config.byte_bound,
                )
            self._emit(buffer.take(self._is_full))

    def finish_batch(self) -> None:
        """Have the time and the state of the buffer committed with the batch."""
        self._buffer.record()
        self._observed.record()

    def _emit(self, taken: Iterator[tuple[Record[Any, Change], RecordMetadata | None]]) -> None:
        for record, metadata in taken:
            # A window is never sent before it closes, so its deletion need not be sent either.
            if record.value.new is not None or not self._plan.is_final:
                with self._context.resumed(record, metadata):
                    self._context.forward(record)

    def _is_full(self, time_ms: int = 0) -> bool:
        config, buffer = self._plan.config, self._buffer
        too_many = config.record_bound is not None and buffer.records > config.record_bound
        return too_many or (config.byte_bound is not None and buffer.size_bytes > config.byte_bound)


@dataclass(frozen=True)
class SuppressedView(TableView):
    """A table as it was before the changes that are held back."""

    of: TableView
    buffer: BufferPlan

    def open(self, context: ProcessorContext) -> Getter:
        """Return what reads the buffer or, for keys not held back, the table above."""
        get, held_back, plan = self.of.open(context), context.state_store(self.buffer.store).get, self.buffer

        def get_suppressed(key: Any) -> Held:
            stored = held_back(plan.key_serde.serialize(key))
            if stored is None:
                return get(key)
            prior = decode_buffered_record(stored).prior
            if prior is None:
                return None
            return ValueTimestampHeaders(plan.value_serde.deserialize(prior), _UNKNOWN_MS, b"")

        return get_suppressed
