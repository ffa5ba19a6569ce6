"""The traces of the records of one shard and micro-batch: what `Tracing` does, once it is where it does it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa

from statestore.format.binary_columns import is_valid, row_objects
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.headers.records import ConsumerRecord, ProducerRecord
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, InterceptorContext
from statestore.middleware.extras import extra
from statestore.middleware.lineage.changing_headers import TRACE_LINKS, TRACEPARENT
from statestore.middleware.lineage.tracing import trace_headers
from statestore.middleware.lineage.tracing.providers import ProcessTracer
from statestore.middleware.lineage.tracing.spans import Operation, RecordPlace, SpanMaker, remote_span
from statestore.middleware.marks import value_of

with extra("tracing"):
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
    from opentelemetry.trace import Link, NonRecordingSpan, Span, Status, StatusCode, set_span_in_context

if TYPE_CHECKING:
    from contextvars import Token


class _Processed(NamedTuple):
    """The record that is processed, or the last one that was."""

    metadata: tuple[str, int, int] | None
    span: Span | None
    """None if nobody records its trace."""
    headers: Headers
    """As they were when it began: they name its trace."""
    traceparent: bytes | None
    token: Token[Context] | None


@dataclass
class BatchTraces:
    """Makes the spans, of which one may be open: that of the record that is processed."""

    _tracer: ProcessTracer
    _spans: SpanMaker
    _propagation: trace_headers.Propagation
    _context: InterceptorContext | None
    _is_current: bool
    _has_spans: bool = False
    _processed: _Processed | None = None

    def ingest(self, record: IngestedRecord) -> None:
        """Make the span of a record that was read; its headers are changed in place."""
        headers = record.headers
        seen = trace_headers.seen_trace(headers)
        if seen.has_links:
            headers.remove(TRACE_LINKS)
        if self._passes(headers, seen):
            return
        place = RecordPlace(record.topic, record.partition, record.offset)
        context = self._propagation.extract(headers)
        self._begin(Operation.POLL, headers, context, place, record)[1].end()

    def consume(self, record: Any) -> None:
        """Begin the span in which a record is processed; its headers are changed in place."""
        self.leave()
        headers, metadata = record.headers, self._metadata
        span: Span | None = None
        seen = trace_headers.seen_trace(headers)
        if self._passes(headers, seen):
            context = self._unsampled_context(headers, seen) if self._is_current else None
        else:
            place = RecordPlace() if metadata is None else RecordPlace(*metadata)
            context, span = self._begin(Operation.PROCESS, headers, self._propagation.extract(headers), place, record)
        token = attach(context) if self._is_current and context is not None else None
        self._processed = _Processed(metadata, span, headers.copy(), value_of(headers, TRACEPARENT), token)

    def sent_headers(self, headers: Headers) -> Headers | None:
        """Return the headers that a record is to be sent with; None for those that it has."""
        processed = self._processed
        if processed is None or processed.metadata != self._metadata:
            return None  # no record is processed, but a punctuation, or what was held back
        sent = headers.last_header(TRACEPARENT)
        if sent is not None and sent.value == processed.traceparent and self._propagation.is_w3c:
            return None
        if not self._propagation.names_trace(headers):
            copied = headers.copy()
            self._propagation.inject(copied, self._propagation.extract(processed.headers))
            return copied
        if processed.span is None or trace_headers.is_same_trace(headers, processed.headers):
            return None
        return trace_headers.link_traces(headers.copy(), processed.headers)

    def emit(self, record: EmittedRecord) -> None:
        """Make the span of a record that is written; its headers are changed in place."""
        headers = record.headers
        seen = trace_headers.seen_trace(headers)
        links = None
        if seen.has_links:
            links = [Link(remote_span(traceparent)) for traceparent in trace_headers.read_links(headers)]
            headers.remove(TRACE_LINKS)
        if self._passes(headers, seen):
            return
        place = RecordPlace(record.topic, record.partition)
        context = self._propagation.extract(headers)
        self._begin(Operation.SEND, headers, context, place, record, links)[1].end()

    def ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Do what `ingest` does to records with topics, partitions and offsets."""
        columns: tuple[Any, ...] = (records.topic, records.partition, records.offset)

        def ingest(row: int, *content: Any) -> None:
            topic, partition, offset = (column[row].as_py() for column in columns)
            self.ingest(ConsumerRecord.adopt(topic, partition, offset, 0, *content))

        return self._columns(records, ingest)

    def emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Do what `emit` does to records with topics."""
        topics: Any = records.topic

        def emit(row: int, *content: Any) -> None:
            self.emit(ProducerRecord.adopt(topics[row].as_py(), None, *content))

        return self._columns(records, emit)

    def leave(self) -> None:
        """End the span of the record that was processed, if there is one."""
        processed, self._processed = self._processed, None
        if processed is None:
            return
        if processed.token is not None:
            detach(processed.token)
        if processed.span is not None:
            processed.span.end()

    def fail(self, error: Exception) -> None:
        """Have the span of the record that is processed say that it failed, if it is that one which did."""
        if self._processed is not None and self._processed.metadata == self._metadata:
            self._show_failure(self._processed, type(error))

    def close(self) -> None:
        """Hand over what was recorded. What is still open was not finished: its span says that it failed."""
        if self._processed is not None:
            self._show_failure(self._processed, sys.exc_info()[0])
        self.leave()
        if self._has_spans:
            self._tracer.flush()

    @property
    def _metadata(self) -> tuple[str, int, int] | None:
        return None if self._context is None else self._context.record_metadata

    def _begin(
        self,
        operation: Operation,
        headers: Headers,
        context: Context,
        place: RecordPlace,
        record: Any,
        links: list[Link] | None = None,
    ) -> tuple[Context, Span]:
        """Start a span and have the headers name it; return it and the context that it is in."""
        span = self._spans.start(operation, context, place, record.key, record.value, links)
        self._has_spans = self._has_spans or span.is_recording()
        context = set_span_in_context(span, context)
        self._propagation.inject(headers, context)
        return context, span

    def _passes(self, headers: Headers, seen: trace_headers.SeenTrace) -> bool:
        """Return whether nobody records the trace that the headers name: then they go on as they are, if not too long.

        What the sender has not sampled is not sampled here either, as by OpenTelemetry's default samplers.
        """
        if not self._propagation.is_w3c or not trace_headers.is_unsampled(seen.traceparent):
            return False
        if seen.longest_bytes > trace_headers.MAX_VALUE_BYTES:
            trace_headers.drop_oversize(headers)
        return True

    @staticmethod
    def _show_failure(processed: _Processed, cause: type[BaseException] | None) -> None:
        if processed.span is not None:
            processed.span.set_status(Status(StatusCode.ERROR))
            processed.span.set_attribute(ERROR_TYPE, "_OTHER" if cause is None else cause.__qualname__)

    def _unsampled_context(self, headers: Headers, seen: trace_headers.SeenTrace) -> Context:
        if seen.longest_bytes or seen.traceparent is None:
            return self._propagation.extract(headers)
        return set_span_in_context(NonRecordingSpan(remote_span(seen.traceparent)), Context())

    def _columns(self, records: RecordColumns, trace: Callable[..., None]) -> RecordColumns:
        """Have records traced by `trace`, which takes row, key, value (of which any bytes stand) and headers."""
        is_traced = ~trace_headers.unsampled_rows(records) if self._propagation.is_w3c else np.ones(len(records), bool)
        may_have_links = trace_headers.may_have_links(records)
        if is_traced.any():
            header_bytes = records.headers.to_pylist()
            keys, has_value = row_objects(records.key), is_valid(records.value)
            for row in np.flatnonzero(is_traced).tolist():
                headers = Headers.from_bytes(header_bytes[row])
                trace(row, keys[row], b"" if has_value[row] else None, headers)
                header_bytes[row] = headers.to_bytes()
            records = records.with_columns(headers=pa.array(header_bytes, pa.binary()))
        return records.without_header(TRACE_LINKS) if may_have_links else records
