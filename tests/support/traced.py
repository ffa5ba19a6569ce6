"""What tests of tracing share: a provider that keeps its spans, and the trace of spans as a tree."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler
from opentelemetry.trace import format_span_id, format_trace_id

from statestore import Record, ValueTimestampHeaders


def kept_first(store: Any, record: Record[Any, Any]) -> ValueTimestampHeaders[Any] | None:
    """Return what is kept of a record's key; if nothing is, keep the record with its headers."""
    kept: ValueTimestampHeaders[Any] | None = store.get(record.key)
    if kept is None:
        store.put(record.key, ValueTimestampHeaders.make(record.value, record.timestamp_ms, record.headers))
    return kept


class KeptSpans:
    """A provider and the spans that it has recorded; calling it returns the provider, as Tracing wants it."""

    def __init__(self, sampler: Sampler = ALWAYS_ON) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))

    def __call__(self) -> TracerProvider:
        return self.provider

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        return self.exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]


Tree = dict[str, "Tree"]


def tree(spans: Iterable[ReadableSpan]) -> Tree:
    """Return the names of spans below the names of their parents; those whose parents are not there are on top."""
    spans = list(spans)
    nodes: dict[int, Tree] = {span.context.span_id: {} for span in spans}
    top: Tree = {}
    for span in spans:
        parent = None if span.parent is None else nodes.get(span.parent.span_id)
        (top if parent is None else parent)[span.name] = nodes[span.context.span_id]
    return top


def traceparent(span: ReadableSpan) -> bytes:
    """Return what the headers say that name a span."""
    trace, own = format_trace_id(span.context.trace_id), format_span_id(span.context.span_id)
    return f"00-{trace}-{own}-{span.context.trace_flags:02x}".encode()
