"""What spans are called and say. Source: OpenTelemetry's semantic conventions for messaging and for Kafka."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from statestore.middleware.extras import extra

with extra("tracing"):
    from opentelemetry.semconv._incubating.attributes import messaging_attributes as messaging
    from opentelemetry.trace import SpanContext, SpanKind, TraceFlags

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, Tracer
    from opentelemetry.util.types import AttributeValue

_MAX_KEY_BYTES: Final = 256


class Operation(Enum):
    """What is done with a record: the operation's name, its type, and the kind of its span."""

    POLL = ("poll", messaging.MessagingOperationTypeValues.RECEIVE.value, SpanKind.CLIENT)
    PROCESS = ("process", messaging.MessagingOperationTypeValues.PROCESS.value, SpanKind.CONSUMER)
    SEND = ("send", messaging.MessagingOperationTypeValues.SEND.value, SpanKind.PRODUCER)


class RecordPlace(NamedTuple):
    """Where a record is in Kafka; None and -1 are not known."""

    topic: str | None = None
    partition: int | None = None
    offset: int = -1


class SpanMaker:
    """Starts the spans of records."""

    def __init__(self, tracer: Tracer, consumer_group: str | None, *, shows_keys: bool) -> None:
        self._start = tracer.start_span
        self._shows_keys = shows_keys
        self._constant: dict[Operation, dict[str, AttributeValue]] = {}
        for operation in Operation:
            constant = self._constant[operation] = {
                messaging.MESSAGING_SYSTEM: messaging.MessagingSystemValues.KAFKA.value,
                messaging.MESSAGING_OPERATION_NAME: operation.value[0],
                messaging.MESSAGING_OPERATION_TYPE: operation.value[1],
            }
            if consumer_group is not None and operation is not Operation.SEND:
                constant[messaging.MESSAGING_CONSUMER_GROUP_NAME] = consumer_group

    def start(
        self,
        operation: Operation,
        context: Context,
        place: RecordPlace,
        key: object,
        value: object,
        links: list[Link] | None = None,
    ) -> Span:
        """Start the span of what is done with a record, below the span of the context, or as the first of a trace."""
        name, _, kind = operation.value
        attributes = self._constant[operation].copy()
        if place.topic is not None:
            name = f"{name} {place.topic}"
            attributes[messaging.MESSAGING_DESTINATION_NAME] = place.topic
        if place.partition is not None:
            attributes[messaging.MESSAGING_DESTINATION_PARTITION_ID] = str(place.partition)
        if place.offset >= 0:
            attributes[messaging.MESSAGING_KAFKA_OFFSET] = place.offset
        if value is None:
            attributes[messaging.MESSAGING_KAFKA_MESSAGE_TOMBSTONE] = True
        text = _text(key) if self._shows_keys else None
        if text is not None:
            attributes[messaging.MESSAGING_KAFKA_MESSAGE_KEY] = text
        return self._start(name, context, kind, attributes, links)


def remote_span(traceparent: bytes) -> SpanContext:
    """Return the span that a well-formed traceparent names."""
    _, trace, span, flags = traceparent.split(b"-")
    return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16)))


def _text(key: object) -> str | None:
    """Return a key that is a text; None for any other, which has no form that everybody would know it by."""
    if isinstance(key, bytes) and len(key) <= _MAX_KEY_BYTES:
        try:
            key = key.decode()
        except UnicodeDecodeError:
            return None
    return key if isinstance(key, str) and len(key) <= _MAX_KEY_BYTES and key.isprintable() else None
