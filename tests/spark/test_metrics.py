"""Figures as metrics of Prometheus and OpenTelemetry: by the names of one table, added up over batches."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client import CollectorRegistry

from statestore.recovery.commit.figures import RestoreFigures, SizeFigures, SnapshotFigures
from statestore.spark import StateStoreListener
from statestore.spark.figures import RecordFigures
from statestore.spark.metrics import METRICS
from tests.support.spark.told import progress, shard

QUERY = {"query": "orders", "state": "state-1"}
SHARD = {**QUERY, "shard": "1"}
TOTALS = {**SHARD, "store": "totals"}
RESTORE = RestoreFigures(1, 20, 300, 250.0)
BATCHES = (
    progress(
        shard(1, restore=RESTORE, snapshot=SnapshotFigures(overdue=1), sizes={"totals": SizeFigures(5, 900, 90)}),
        batch_id=0,
    ),
    progress(
        replace(shard(1, restore=RESTORE, failures={"KeyError": 2}), counted={"a.window.late_records": 3}),
        shard(0, records=RecordFigures(4)),
        batch_id=1,
    ),
)
EXPECTED = (
    ("statestore.batches", "", QUERY, 2),
    ("statestore.duration", "s", QUERY, 0.864),
    ("statestore.restored_again", "", QUERY, 1),
    ("statestore.process", "", SHARD, 20),
    ("statestore.process", "", {**QUERY, "shard": "0"}, 4),
    ("statestore.records_produced", "", SHARD, 18),
    ("statestore.dropped_records", "", SHARD, 0),
    ("statestore.restore", "", SHARD, 40),
    ("statestore.restore.size", "By", SHARD, 600),
    ("statestore.times.open", "s", SHARD, 0.02),
    ("statestore.stores.entries_put", "", TOTALS, 10),
    ("statestore.stores.header", "By", TOTALS, 2_468),
    ("statestore.failures", "", {**SHARD, "error": "KeyError"}, 2),
    ("statestore.counted", "", {**SHARD, "node": "a.window", "what": "late_records"}, 3),
    # Gauges.
    ("statestore.version", "", SHARD, 8),
    ("statestore.snapshot.overdue", "", SHARD, 0),
    ("statestore.sizes.entries", "", TOTALS, 5),
    ("statestore.sizes.size", "By", TOTALS, 900),
)
"""Of OpenTelemetry."""


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def reader() -> Iterator[InMemoryMetricReader]:
    reader = InMemoryMetricReader()
    yield reader
    reader.shutdown()


def told(reader: InMemoryMetricReader) -> dict[tuple[str, str, frozenset[tuple[str, str]]], float]:
    data = reader.get_metrics_data()
    assert data is not None
    return {
        (metric.name, str(metric.unit), frozenset(point.attributes.items())): point.value
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        for point in metric.data.data_points
    }


def as_a_collector_writes_it(name: str, unit: str, *, is_counter: bool) -> str:
    """Return a metric's name by OpenTelemetry's rules for Prometheus."""
    unit_name = {"": "", "s": "_seconds", "By": "_bytes"}[unit]
    return name.replace(".", "_") + unit_name + ("_total" if is_counter else "")


def test_both_have_the_same_numbers_by_the_same_names(
    registry: CollectorRegistry, reader: InMemoryMetricReader
) -> None:
    listener = StateStoreListener().to_prometheus(registry).to_opentelemetry(MeterProvider([reader]))
    for event in BATCHES:
        listener.onQueryProgress(event)
    found = told(reader)
    for name, unit, labels, value in EXPECTED:
        assert found[name, unit, frozenset(labels.items())] == pytest.approx(value), name
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in registry.collect()
        for sample in family.samples
        if not sample.name.endswith("_created")
    }
    counters = {family.name for family in registry.collect() if family.type == "counter"}
    assert samples == {
        (as_a_collector_writes_it(name, unit, is_counter=_is_counter(name, unit, counters)), labels): value
        for (name, unit, labels), value in found.items()
    }


def _is_counter(name: str, unit: str, counters: set[str]) -> bool:
    return as_a_collector_writes_it(name, unit, is_counter=False) in counters


def test_names_are_one_each_and_what_prometheus_takes() -> None:
    names = [metric.prometheus_name for metric in METRICS]
    assert len({*names}) == len({metric.opentelemetry_name for metric in METRICS}) == len(names)
    assert [name for name in names if not re.fullmatch(r"statestore_[a-z_]*[a-z]", name)] == []
    gauges = [metric.figure for metric in METRICS if metric.is_gauge]
    assert gauges == [
        "version",
        "snapshot.overdue",
        "upgrade.entries_left",
        "sizes.entries",
        "sizes.size_bytes",
        "sizes.header_bytes",
    ]


@pytest.mark.parametrize(
    ("kafka_streams", "figure"),
    [
        ("process-total", "records.process_total"),
        ("punctuate-total", "records.punctuate_total"),
        ("records-produced-total", "records.records_produced_total"),
        ("dropped-records-total", "records.dropped_records_total"),
        ("restore-total", "restore.restore_total"),
    ],
)
def test_kafka_streams_names_stay(kafka_streams: str, figure: str) -> None:
    names: Mapping[str, str] = {metric.figure: metric.prometheus_name for metric in METRICS}
    assert names[figure] == f"statestore_{kafka_streams.replace('-', '_')}"


def test_a_query_without_a_name_goes_by_its_id(registry: CollectorRegistry) -> None:
    listener = StateStoreListener().to_prometheus(registry)
    event = progress(shard(), name=None)
    listener.onQueryProgress(event)
    labels = {"query": str(event.progress.id), "state": "state-1"}
    assert registry.get_sample_value("statestore_batches_total", labels) == 1


def test_metrics_go_on_when_on_batch_fails(registry: CollectorRegistry) -> None:
    def fail(_: object) -> None:
        raise ValueError("no such gauge")

    listener = StateStoreListener(fail).to_prometheus(registry)
    listener.onQueryProgress(progress(shard()))
    assert registry.get_sample_value("statestore_batches_total", QUERY) == 1
