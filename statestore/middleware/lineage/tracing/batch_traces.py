"""The traces of the records of one shard and micro-batch, and the tracer of a process: one of a factory, or configured.

Source of what spans are called and say: OpenTelemetry's semantic conventions for messaging and for Kafka.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa

from statestore.format.binary_columns import is_valid, row_objects
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.headers.records import ConsumerRecord, ProducerRecord
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, InterceptorContext
from statestore.middleware.application import TRACE_LINKS, TRACEPARENT, extra, value_of
from statestore.middleware.lineage.tracing import trace_headers

with extra("tracing"):
    from opentelemetry import trace as otel
    from opentelemetry.context import Context, attach, detach
    from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
    from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE
    from opentelemetry.semconv.schemas import Schemas

if TYPE_CHECKING:
    from contextvars import Token

    from opentelemetry.util.types import AttributeValue

ProviderFactory: TypeAlias = "Callable[[], otel.TracerProvider]"

FLUSH_MS: Final = 1000
"""How long a flush may take, in milliseconds; after a longer one the next ones are left out for a while."""
HELD_OFF_MS: Final = 60_000
"""How long flushes are left out after one that took too long, in milliseconds."""

_LOG = logging.getLogger(__name__)


class ProcessTracer:
    """A tracer, and how what it has recorded is handed over. One a process: it is kept when batches end."""

    def __init__(self, provider: otel.TracerProvider) -> None:
        self.provider: Final = provider
        self._held_off_until_s = 0.0
        self.tracer: Final[otel.Tracer] = provider.get_tracer("statestore", schema_url=list(Schemas)[-1].value)

    def flush(self) -> None:
        """Hand over what was recorded, as the process may end; pause for a while after a flush that took too long."""
        flush = getattr(self.provider, "force_flush", None)
        start_s = monotonic()
        if flush is None or start_s < self._held_off_until_s:
            return
        is_done = flush(FLUSH_MS)
        took_ms = (monotonic() - start_s) * 1000
        if not is_done or took_ms > FLUSH_MS:
            self._held_off_until_s = monotonic() + HELD_OFF_MS / 1000
            problem = "spans took %d ms to hand over: check the collector. Batches do not wait for it in the next %d s"
            _LOG.warning(problem, took_ms, HELD_OFF_MS // 1000)


_BY_IDENTITY: Final[dict[str, ProcessTracer]] = {}


def process_tracer(identity: str, factory: ProviderFactory | None) -> ProcessTracer | None:
    """Return the tracer of this process and `identity`; None if nobody has configured OpenTelemetry here."""
    if factory is None:
        provider = otel.get_tracer_provider()
        if isinstance(provider, otel.ProxyTracerProvider | otel.NoOpTracerProvider):
            return None
        return _kept("", provider)
    return _BY_IDENTITY.get(identity) or _kept(identity, factory())


def _kept(identity: str, provider: otel.TracerProvider) -> ProcessTracer:
    if not isinstance(provider, otel.TracerProvider):
        raise TypeError(f"tracer_provider must return a TracerProvider of OpenTelemetry, not {type(provider).__name__}")
    found = _BY_IDENTITY.get(identity)
    if found is None or found.provider is not provider:
        found = _BY_IDENTITY[identity] = ProcessTracer(provider)
    return found


_MAX_KEY_BYTES: Final = 256


class Operation(Enum):
    """What is done with a record: the operation's name, its type, and the kind of its span."""

    POLL = ("poll", messaging.MessagingOperationTypeValues.RECEIVE.value, otel.SpanKind.CLIENT)
    PROCESS = ("process", messaging.MessagingOperationTypeValues.PROCESS.value, otel.SpanKind.CONSUMER)
    SEND = ("send", messaging.MessagingOperationTypeValues.SEND.value, otel.SpanKind.PRODUCER)


class RecordPlace(NamedTuple):
    """Where a record is in Kafka; None and -1 are not known."""

    topic: str | None = None
    partition: int | None = None
    offset: int = -1


_CONSTANT: Final[dict[Operation, dict[str, AttributeValue]]] = {
    operation: {
        messaging.MESSAGING_SYSTEM: messaging.MessagingSystemValues.KAFKA.value,
        messaging.MESSAGING_OPERATION_NAME: operation.value[0],
        messaging.MESSAGING_OPERATION_TYPE: operation.value[1],
    }
    for operation in Operation
}


class _Processed(NamedTuple):
    """The record that is processed, or the last one that was."""

    metadata: tuple[str, int, int] | None
    span: otel.Span | None
    """None if nobody records its trace."""
    headers: Headers
    """As they were when it began: they name its trace."""
    traceparent: bytes | None
    token: Token[Context] | None


@dataclass
class BatchTraces:
    """Makes the spans, of which one may be open: that of the record that is processed."""

    tracer: ProcessTracer
    propagation: trace_headers.Propagation
    context: InterceptorContext | None
    consumer_group: str | None
    shows_keys: bool
    is_current: bool
    _has_spans: bool = field(default=False, init=False)
    _processed: _Processed | None = field(default=None, init=False)

    def ingest(self, record: IngestedRecord) -> None:
        """Make the span of a record that was read; its headers are changed in place."""
        headers = record.headers
        seen = trace_headers.seen_trace(headers)
        if seen.has_links:
            headers.remove(TRACE_LINKS)
        if self._passes(headers, seen):
            return
        self._begin(Operation.POLL, record, RecordPlace(record.topic, record.partition, record.offset))[1].end()

    def consume(self, record: Any) -> None:
        """Begin the span in which a record is processed; its headers are changed in place."""
        self.leave()
        headers, metadata = record.headers, self._metadata
        span: otel.Span | None = None
        seen = trace_headers.seen_trace(headers)
        if self._passes(headers, seen):
            context = self._unsampled_context(headers, seen) if self.is_current else None
        else:
            place = RecordPlace() if metadata is None else RecordPlace(*metadata)
            context, span = self._begin(Operation.PROCESS, record, place)
        token = attach(context) if self.is_current and context is not None else None
        self._processed = _Processed(metadata, span, headers.copy(), value_of(headers, TRACEPARENT), token)

    def sent_headers(self, headers: Headers) -> Headers | None:
        """Return the headers that a record is to be sent with; None for those that it has."""
        processed = self._processed
        if processed is None or processed.metadata != self._metadata:
            return None  # no record is being processed: a punctuation, or what was held back
        sent = headers.last_header(TRACEPARENT)
        if sent is not None and sent.value == processed.traceparent and self.propagation.is_w3c:
            return None
        if not self.propagation.names_trace(headers):
            copied = headers.copy()
            self.propagation.inject(copied, self.propagation.extract(processed.headers))
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
            links = [otel.Link(remote_span(traceparent)) for traceparent in trace_headers.read_links(headers)]
            headers.remove(TRACE_LINKS)
        if self._passes(headers, seen):
            return
        self._begin(Operation.SEND, record, RecordPlace(record.topic, record.partition), links)[1].end()

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
        """Mark the span of the record that is processed as failed, if that record failed."""
        if self._processed is not None and self._processed.metadata == self._metadata:
            self._show_failure(type(error))

    def close(self) -> None:
        """Hand over what was recorded. A record that is still open was not finished: its span is marked as failed."""
        self._show_failure(sys.exc_info()[0])
        self.leave()
        if self._has_spans:
            self.tracer.flush()

    @property
    def _metadata(self) -> tuple[str, int, int] | None:
        return None if self.context is None else self.context.record_metadata

    def _begin(
        self, operation: Operation, record: Any, place: RecordPlace, links: list[otel.Link] | None = None
    ) -> tuple[Context, otel.Span]:
        """Start a span below that of the record's headers, and write it into them; return its context and the span."""
        name, _, kind = operation.value
        context = self.propagation.extract(record.headers)
        attributes = _CONSTANT[operation].copy()
        if self.consumer_group is not None and operation is not Operation.SEND:
            attributes[messaging.MESSAGING_CONSUMER_GROUP_NAME] = self.consumer_group
        if place.topic is not None:
            name = f"{name} {place.topic}"
            attributes[messaging.MESSAGING_DESTINATION_NAME] = place.topic
        if place.partition is not None:
            attributes[messaging.MESSAGING_DESTINATION_PARTITION_ID] = str(place.partition)
        if place.offset >= 0:
            attributes[messaging.MESSAGING_KAFKA_OFFSET] = place.offset
        if record.value is None:
            attributes[messaging.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] = True
        text = _text(record.key) if self.shows_keys else None
        if text is not None:
            attributes[messaging.MESSAGING_KAFKA_MESSAGE_KEY] = text
        if operation is Operation.POLL:
            links = [otel.Link(otel.get_current_span(context).get_span_context())]
        span = self.tracer.tracer.start_span(name, context, kind, attributes, links)
        self._has_spans = self._has_spans or span.is_recording()
        context = otel.set_span_in_context(span, context)
        self.propagation.inject(record.headers, context)
        return context, span

    def _passes(self, headers: Headers, seen: trace_headers.SeenTrace) -> bool:
        """Return whether the sender has not sampled the trace: OpenTelemetry's default samplers follow that, too."""
        if not self.propagation.is_w3c or not trace_headers.is_unsampled(seen.traceparent):
            return False
        if seen.longest_bytes > trace_headers.MAX_VALUE_BYTES:
            trace_headers.drop_oversize(headers)
        return True

    def _show_failure(self, cause: type[BaseException] | None) -> None:
        if self._processed is not None and self._processed.span is not None:
            self._processed.span.set_status(otel.Status(otel.StatusCode.ERROR))
            self._processed.span.set_attribute(ERROR_TYPE, "_OTHER" if cause is None else cause.__qualname__)

    def _unsampled_context(self, headers: Headers, seen: trace_headers.SeenTrace) -> Context:
        if seen.longest_bytes or seen.traceparent is None:
            return self.propagation.extract(headers)
        return otel.set_span_in_context(otel.NonRecordingSpan(remote_span(seen.traceparent)), Context())

    def _columns(self, records: RecordColumns, trace: Callable[..., None]) -> RecordColumns:
        """Call `trace` with row, key, value (any bytes if it has one) and headers of each record to be traced."""
        is_traced = ~trace_headers.unsampled_rows(records) if self.propagation.is_w3c else np.ones(len(records), bool)
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


def remote_span(traceparent: bytes) -> otel.SpanContext:
    """Return the span that a well-formed traceparent names."""
    _, trace, span, flags = traceparent.split(b"-")
    return otel.SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=otel.TraceFlags(int(flags, 16)))


def _text(key: object) -> str | None:
    """Return a key as text; None for one that has no generally known form as such."""
    if isinstance(key, int | UUID) and not isinstance(key, bool):
        return str(key)
    if isinstance(key, bytes) and len(key) <= _MAX_KEY_BYTES:
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return None
    return key if isinstance(key, str) and len(key) <= _MAX_KEY_BYTES and key.isprintable() else None
