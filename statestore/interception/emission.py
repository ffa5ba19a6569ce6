"""Records on their way out of a task: what the interceptors of the side that goes out leave of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from statestore.headers.record_headers import Headers
from statestore.headers.records import ProducerRecord
from statestore.headers.topic_columns import SINK_COLUMNS, Send, SinkFields, SourceFields, record_columns, sink_batch
from statestore.interception.failed_record import Refusal
from statestore.interception.failures import OnRefusal
from statestore.interception.interceptor import EmittedRecord, Interceptor
from statestore.interception.passage import EmitPassage

SendBatch: TypeAlias = "Callable[[pa.RecordBatch, pa.RecordBatch | None], None]"
"""Takes a batch of SINK_COLUMNS, and where the input records behind its rows came from, if that is known."""

_HELD_ROWS: Final = 4096
_HELD_BYTES: Final = 4 << 20
_SOURCE: Final = "source"


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
            self._pass(sink_batch(*zip(*held, strict=True)))
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
        # Which input a row came of goes along, so that what is refused can be put out as it came.
        origin = pa.record_batch([batch.column("topic"), pa.array(np.arange(batch.num_rows))], names=["topic", _SOURCE])
        for passed in self._passage.pass_columns(record_columns(batch, origin)):
            made = [passed.topic, passed.timestamp_ms, passed.key, passed.value, passed.headers]
            self._to_send_batch(pa.record_batch(made, schema=SINK_COLUMNS))

    def _refused(self, record: EmittedRecord, interceptor: str, error: Refusal) -> None:
        self._refuse(self._source(), interceptor, error)

    def _source(self) -> SourceFields | None:
        """Return the input record of the one that an interceptor has, as it came."""
        at = self._passage.at
        if at is None:
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
