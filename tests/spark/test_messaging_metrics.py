"""OpenTelemetry's metrics for messaging: its own names, kinds and attributes, and only what Spark has told.

Those of a query from topic to topic are in `test_kafka`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from opentelemetry.metrics import Meter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, Metric
from opentelemetry.semconv._incubating.attributes import messaging_attributes as attribute
from opentelemetry.semconv._incubating.metrics import messaging_metrics as conventions
from opentelemetry.semconv.schemas import Schemas

from statestore.spark import StateStoreListener
from statestore.spark.figures import METRICS_PREFIX, RecordFigures
from tests.support.spark.told import progress, shard

KAFKA = attribute.MessagingSystemValues.KAFKA.value
CONSUMED = conventions.MESSAGING_CLIENT_CONSUMED_MESSAGES
SENT = conventions.MESSAGING_CLIENT_SENT_MESSAGES
PROCESS = conventions.MESSAGING_PROCESS_DURATION
REFERENCE: dict[str, Callable[[Meter], Any]] = {
    CONSUMED: conventions.create_messaging_client_consumed_messages,
    SENT: conventions.create_messaging_client_sent_messages,
    PROCESS: conventions.create_messaging_process_duration,
}
BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""As the text of the conventions has them: their constants do not."""
TO_KAFKA = {"description": "org.apache.spark.sql.kafka010.KafkaSourceProvider$KafkaTable@c6202f1", "numOutputRows": 9}
FILES = {"description": "FileStreamSource[file:/orders]", "endOffset": {"logOffset": 0}, "numInputRows": 4}


def topics(messages: int, *names: str) -> dict[str, Any]:
    """Return what Spark says of a source of these topics."""
    offsets = {name: {"0": 3, "1": 7} for name in names}
    return {
        "description": f"KafkaV2[Subscribe[{', '.join(names)}]]",
        "startOffset": None,
        "endOffset": offsets or None,
        "latestOffset": None,
        "numInputRows": messages,
        "inputRowsPerSecond": 0.0,
        "processedRowsPerSecond": 0.0,
    }


def metrics(reader: InMemoryMetricReader) -> dict[str, Metric]:
    data = reader.get_metrics_data()
    scopes = [] if data is None else [scope for found in data.resource_metrics for scope in found.scope_metrics]
    return {metric.name: metric for scope in scopes for metric in scope.metrics if metric.name in REFERENCE}


def attributes_of(metric: Metric) -> list[dict[str, Any]]:
    return [dict(point.attributes or {}) for point in metric.data.data_points]


def told(*shards: Any, **fields: Any) -> dict[str, Metric]:
    reader = InMemoryMetricReader()
    listener = StateStoreListener().to_opentelemetry(MeterProvider([reader], shutdown_on_exit=False))
    listener.onQueryProgress(progress(*(shards or (shard(0),)), **fields))
    return metrics(reader)


def test_names_kinds_units_and_attributes_are_those_of_the_conventions() -> None:
    found = told(shard(0), shard(1), sources=[topics(20, "orders")], sink=TO_KAFKA)
    assert found.keys() == REFERENCE.keys()
    for name, create in REFERENCE.items():
        reader = InMemoryMetricReader()
        instrument = create(MeterProvider([reader], shutdown_on_exit=False).get_meter("reference"))
        (instrument.record if name == PROCESS else instrument.add)(1)
        expected = metrics(reader)[name]
        assert (found[name].unit, found[name].description) == (expected.unit, expected.description)
        assert type(found[name].data) is type(expected.data)
    system, topic = {attribute.MESSAGING_SYSTEM: KAFKA}, {attribute.MESSAGING_DESTINATION_NAME: "orders"}
    name = attribute.MESSAGING_OPERATION_NAME
    assert attributes_of(found[CONSUMED]) == [{**system, **topic, name: "poll"}]
    assert attributes_of(found[SENT]) == [{**system, name: "send"}]
    assert attributes_of(found[PROCESS]) == [{**system, **topic, name: "process"}]


def test_messages_are_what_spark_read_and_wrote_and_durations_those_of_shard_calls() -> None:
    slow = replace(shard(1), times=shard(1).times._replace(process_ms=300.0))
    idle = shard(2, records=RecordFigures(0, punctuate_total=1))
    found = told(shard(0), slow, idle, sources=[topics(20, "orders")], sink=TO_KAFKA)
    assert [found[name].data.data_points[0].value for name in (CONSUMED, SENT)] == [20, 9]
    [durations] = found[PROCESS].data.data_points
    assert (durations.count, durations.sum) == (2, pytest.approx(0.302))
    assert tuple(durations.explicit_bounds) == BUCKETS_S


@pytest.mark.parametrize(
    ("sources", "consumed", "processed"),
    [
        ([topics(20, "orders", "returns")], [(20, None)], [None]),
        ([topics(20, "orders"), topics(3, "returns")], [(20, "orders"), (3, "returns")], [None]),
        ([topics(20, "orders"), topics(3, "orders")], [(23, "orders")], ["orders"]),
        ([topics(20, "orders"), topics(0)], [(20, "orders"), (0, None)], ["orders"]),
        ([topics(20, "orders"), {**topics(0), **FILES}], [(20, "orders")], None),
        ([{**topics(0), **FILES}], None, None),
    ],
)
def test_a_topic_is_said_only_where_the_number_is_its_own(
    sources: list[dict[str, Any]], consumed: list[tuple[int, str | None]] | None, processed: list[str | None] | None
) -> None:
    found = told(sources=sources)
    topic = attribute.MESSAGING_DESTINATION_NAME
    counts = {name: found[name].data.data_points for name in found}
    assert [(point.value, point.attributes.get(topic)) for point in counts.pop(CONSUMED, ())] == (consumed or [])
    assert [point.attributes.get(topic) for point in counts.pop(PROCESS, ())] == (processed or [])
    assert counts == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"sink": {"description": "ForeachBatchSink", "numOutputRows": -1}},
        {"sink": {**TO_KAFKA, "numOutputRows": -1}},
        {"sink": {"description": "FileSink[file:/totals]", "numOutputRows": 9}},
        {"sources": [topics(20, "orders")], "sink": TO_KAFKA, "observedMetrics": {}},
    ],
)
def test_what_is_not_known_is_not_given(fields: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
    assert told(**fields) == {}
    assert caplog.messages == [], "neither by us nor by OpenTelemetry"


def test_what_a_stage_hands_on_is_no_message() -> None:
    observed = {
        f"{METRICS_PREFIX}state-{number}": {
            "state_location": f"file:///state/stage-{number}",
            "shards": [replace(shard(), times=shard().times._replace(process_ms=number)).to_json()],
        }
        for number in (7, 0)
    }
    found = told(sources=[topics(20, "orders")], observedMetrics=observed)
    [durations] = found[PROCESS].data.data_points
    assert (durations.count, durations.sum) == (1, 0)


def test_the_schema_is_one_that_opentelemetry_has() -> None:
    reader = InMemoryMetricReader()
    listener = StateStoreListener().to_opentelemetry(MeterProvider([reader], shutdown_on_exit=False))
    listener.onQueryProgress(progress(shard(), sources=[topics(1, "orders")]))
    data = reader.get_metrics_data()
    assert data is not None
    urls = {scope.scope.schema_url for found in data.resource_metrics for scope in found.scope_metrics}
    assert urls == {"", Schemas.V1_44_0.value}
