"""Tracing: the spans of a record on its way through a query, in the trace that its headers name.

    poll TOPIC       on_ingest    below the span in the record's headers, or the first of a trace
    process TOPIC    on_consume   below that; open, and the current one, until the next record or the batch's end
    send TOPIC       on_emit      below the span in the headers of what is emitted, wherever these come from

After each, the headers name the span that was made last. So those that a processor puts into state bring its trace out
of it again.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from statestore.headers.record_columns import RecordColumns
from statestore.interception.interceptor import EmittedRecord, IngestedRecord, Interceptor, InterceptorContext
from statestore.middleware.application import TRACE_LINKS, TRACEPARENT, Application, options
from statestore.middleware.lineage.tracing.batch_traces import BatchTraces, ProviderFactory, process_tracer
from statestore.middleware.lineage.tracing.trace_headers import Propagation

if TYPE_CHECKING:
    from opentelemetry.propagators.textmap import TextMapPropagator
    from typing_extensions import Self  # typing has it from Python 3.11 on


class Tracing(Application):
    """Continues the trace in each record's headers, by OpenTelemetry: see `docs/middleware/tracing.md`.

    Spans have the time at which they are made. Trace headers that are malformed begin a trace, and refuse no record.
    """

    kind = "tracing"
    _options = options(CLASS="tracer.provider", STRING="consumer.group", BOOLEAN="shows.keys is.current")
    not_after: ClassVar[Mapping[str, str]] = {
        "slicing": "only the first slice has the record's headers, so each other one would begin a trace of its own",
    }

    def __init__(
        self,
        tracer_provider: ProviderFactory | None = None,
        *,
        propagator: TextMapPropagator | None = None,
        consumer_group: str | None = None,
        shows_keys: bool = True,
        is_current: bool = True,
    ) -> None:
        """Take what it needs.

        Args:
            tracer_provider: called once in each process for the provider, so it has to travel: a function of a module,
                most often. None is the one that is configured for the process; if there is none, nothing is done.
            propagator: reads and writes headers; None is the one that is configured for the process, W3C's by default.
            consumer_group: what spans say of it; None is nothing.
            shows_keys: whether spans show keys that are text, whole numbers or UUIDs.
            is_current: whether OpenTelemetry's current context is the record's while it is processed: then spans, logs
                and baggage of user code belong to its trace.
        """
        if tracer_provider is not None and not callable(tracer_provider):
            raise TypeError("tracer_provider is a function that makes one: a provider itself can't go to the executors")
        self._tracer_provider = tracer_provider
        self._propagator = propagator
        self.goes_by = (TRACEPARENT,) if propagator is None else tuple(propagator.fields)
        self.changes = (*sorted(Propagation(propagator).fields), TRACE_LINKS)
        self._consumer_group = consumer_group
        self._shows_keys = shows_keys
        self._is_current = is_current
        self._identity = uuid.uuid4().hex
        self._batch: BatchTraces | None = None
        self._is_ready = False

    @classmethod
    def from_config(cls, config: Mapping[str, str]) -> Self:
        """Make one of the properties `statestore.tracing.*`: the arguments, with dots for underscores.

        `tracer.provider` is module:function; Kafka's own `group.id` is the consumer group if no other is given. A
        propagator can't be given. Raises ConfigException.
        """
        if "group.id" in config:
            config = {f"statestore.{cls.kind}.consumer.group": config["group.id"], **config}
        return super().from_config(config)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what belongs to a batch: copies and pickles begin without."""
        return {**self.__dict__, "_batch": None, "_is_ready": False, "_context": None}

    def init(self, context: InterceptorContext) -> None:
        """Find the tracer of this process."""
        super().init(context)
        self._traces()

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        """Make the span of a record that was read, unless nobody records its trace."""
        if (traces := self._traces()) is not None:
            traces.ingest(record)
        return (record,)

    def on_ingest_columns(self, records: RecordColumns) -> RecordColumns:
        """Do what `on_ingest` does; records whose traces nobody records are told apart by columns."""
        traces = self._traces()
        return records if traces is None else traces.ingest_columns(records)

    def on_consume(self, record: Any) -> Iterable[Any]:
        """End the span of the record before, and begin that in which this one is processed."""
        if (traces := self._traces()) is not None:
            traces.consume(record)
        return (record,)

    def on_send(self, topic: str, record: Any) -> Iterable[Any]:
        """Have a record belong to a trace: if its headers name none, to that of the record that is processed.

        If they name another one, the span of its emission links to that of the record that is processed.
        """
        traces = self._traces()
        headers = None if traces is None else traces.sent_headers(record.headers)
        return (record if headers is None else record.with_headers(headers),)

    def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
        """Make the span of a record that is written, with its links, unless nobody records its trace."""
        if (traces := self._traces()) is not None:
            traces.emit(record)
        return (record,)

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        """Do what `on_emit` does, as `on_ingest_columns`."""
        traces = self._traces()
        return records if traces is None else traces.emit_columns(records)

    def on_failure(self, error: Exception) -> None:
        """Have the span of the record that failed say so."""
        if self._batch is not None:
            self._batch.fail(error)

    def finish_batch(self) -> None:
        """End the span of the last record."""
        if self._batch is not None:
            self._batch.leave()

    def close(self) -> None:
        """Hand over what was recorded. A span that is still open is that of a record whose processing failed."""
        batch, self._batch, self._is_ready = self._batch, None, False
        if batch is not None:
            batch.close()

    def __repr__(self) -> str:
        return f"Tracing(consumer_group={self._consumer_group!r})"

    def _traces(self) -> BatchTraces | None:
        """Return the traces of this batch; None if nothing is recorded in this process."""
        if not self._is_ready:
            self._is_ready = True
            if (tracer := process_tracer(self._identity, self._tracer_provider)) is not None:
                said = self._consumer_group, self._shows_keys, self._is_current
                self._batch = BatchTraces(tracer, Propagation(self._propagator), self._context, *said)
        return self._batch


class BatchTracing(Tracing):
    """Tracing for topologies with batch processors, which take many records at once: without spans of processing.

    What is written is then below the span of what was read, where its headers come from there.
    """

    on_consume = Interceptor.on_consume
    on_send = Interceptor.on_send
