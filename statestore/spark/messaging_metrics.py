"""What a batch says to OpenTelemetry's metrics for messaging, which have the same names for every client of Kafka.

    progress of a batch ── its sources ──> messaging.client.consumed.messages
                        ── its sink ─────> messaging.client.sent.messages
    figures of a shard ── process_ms ────> messaging.process.duration, one call a value

Only what Spark tells: neither consumer group nor broker; a topic where a source reads one; nothing of the time that
Kafka's clients take (messaging.client.operation.duration), of failed batches (error.type), and of foreachBatch.

Source: OpenTelemetry's semantic conventions 1.44.0, messaging metrics.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.streaming.listener import StreamingQueryProgress

from statestore.middleware.application import extra
from statestore.recovery.metadata.state_metadata import stage_name
from statestore.spark.figures import BatchFigures

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

MessagingExporter = Callable[[StreamingQueryProgress, Sequence[BatchFigures]], None]

SCHEMA_URL: Final = "https://opentelemetry.io/schemas/1.44.0"
_BUCKETS_S: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""The conventions' advice for durations."""
_SOURCE: Final = "KafkaV2["
"""How Spark's description of a source of Kafka begins."""
_SINK: Final = "org.apache.spark.sql.kafka010."
"""The same of a sink."""


class _Read(NamedTuple):
    """What a batch has read from a source of Kafka."""

    messages: int
    topics: frozenset[str]


def messaging_exporter(provider: MeterProvider | None) -> MessagingExporter:
    """Return what hands batches to instruments of a provider, the one that is configured for None."""
    with extra("opentelemetry"):
        from opentelemetry.metrics import get_meter
    meter = get_meter("statestore", meter_provider=provider, schema_url=SCHEMA_URL)
    what = "Number of messages that were delivered to the application."
    consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", what)
    what = "Number of messages producer attempted to send to the broker."
    sent = meter.create_counter("messaging.client.sent.messages", "{message}", what)
    duration, what = "messaging.process.duration", "Duration of processing operation."
    process = meter.create_histogram(duration, "s", what, explicit_bucket_boundaries_advisory=_BUCKETS_S)

    def take(progress: StreamingQueryProgress, states: Sequence[BatchFigures]) -> None:
        # As JSON it has offsets in one form; as an object, Spark Connect's are not those of a classic session.
        told = json.loads(progress.json)
        sources = [_read(source) for source in told["sources"]]
        read = [source for source in sources if source is not None]
        for messages, topics in read:
            consumed.add(messages, _attributes("poll", topics))
        rows = told["sink"]["numOutputRows"]
        if told["sink"]["description"].startswith(_SINK) and rows >= 0:
            sent.add(rows, _attributes("send"))
        if read and len(read) == len(sources):
            attributes = _attributes("process", frozenset().union(*(topics for _, topics in read)))
            for elapsed_ms in _processed_ms(states):
                process.record(elapsed_ms / 1_000, attributes)

    return take


def _read(source: dict[str, Any]) -> _Read | None:
    """Return what Spark says of a source; None if that is not Kafka."""
    if not source["description"].startswith(_SOURCE):
        return None
    return _Read(source["numInputRows"], frozenset(source["endOffset"] or ()))


def _processed_ms(states: Sequence[BatchFigures]) -> Iterator[float]:
    """Yield how long each shard took for its messages; later stages have none, but what earlier ones hand on."""
    for figures in states:
        if figures.stage in (None, stage_name(0)):
            yield from (shard.times.process_ms for shard in figures.shards if shard.records.process_total)


def _attributes(operation: str, topics: frozenset[str] = frozenset()) -> dict[str, str]:
    """Return an operation's attributes, with the topic if there is one: Spark has no numbers for each of several."""
    attributes = {"messaging.system": "kafka", "messaging.operation.name": operation}
    if len(topics) == 1:
        (attributes["messaging.destination.name"],) = topics
    return attributes
