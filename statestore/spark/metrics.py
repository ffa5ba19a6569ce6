"""Figures as metrics: one table for Prometheus and OpenTelemetry, against which dashboard, rules and page are checked.

    figures of a batch ── readings ──> metric, labels, value ──> counters add them up, gauges keep the last

There is a metric for each figure, so the table is made of the classes of figures, and names follow from theirs: Kafka
Streams' stay whole. With unit and `_total`, OpenTelemetry's become Prometheus's, as a collector writes them:

    figure                 OpenTelemetry                  Prometheus
    records.process_total  statestore.process             statestore_process_total
    restore.restore_total  statestore.restore             statestore_restore_total
    times.open_ms          statestore.times.open, in s    statestore_times_open_seconds_total
    sizes.size_bytes       statestore.sizes.size, in By   statestore_sizes_size_bytes

Counters begin at 0 with each driver: both systems know that, and rates go on over it. To go on from a number that was
written down, each batch would write once more, and a driver that died between a batch and its number would still be
wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from statestore.middleware.application import extra
from statestore.spark.figures import BY_STORE, TOPICS, BatchFigures

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from prometheus_client import CollectorRegistry

_QUERY: Final = ("query", "state")
"""A query may have several states, each with its id."""
_SHARD: Final = (*_QUERY, "shard")
_STORE: Final = (*_SHARD, "store")
_GAUGES: Final = re.compile(r"version|sizes\..*|snapshot\.overdue|upgrade\.entries_left")
"""Figures that say what is, not what a batch did."""
_UNITS: Final = {"_ms": "s", "_bytes": "By"}
"""The unit, as OpenTelemetry writes it, by the ending of a figure's name."""
_UNIT_NAMES: Final = {"s": "_seconds", "By": "_bytes", "": ""}


@dataclass(frozen=True, eq=False)
class Metric:
    """What a figure is to Prometheus and OpenTelemetry."""

    figure: str
    """Its name in BatchFigures, such as `times.open_ms`."""
    labels: tuple[str, ...]

    @property
    def is_gauge(self) -> bool:
        """Whether the last value counts; all others are counters."""
        return _GAUGES.fullmatch(self.figure) is not None

    @property
    def unit(self) -> str:
        """The unit of readings, as OpenTelemetry writes it."""
        return next((unit for ending, unit in _UNITS.items() if self.figure.endswith(ending)), "")

    @property
    def opentelemetry_name(self) -> str:
        """The name without unit and `_total`."""
        return "statestore." + re.sub(r"\brecords\.|\b(\w+)\.(?=\1)|_(ms|bytes|total)$", "", self.figure)

    @property
    def prometheus_name(self) -> str:
        """The name with both."""
        name = self.opentelemetry_name.replace(".", "_") + _UNIT_NAMES[self.unit]
        return name if self.is_gauge else f"{name}_total"

    @property
    def help(self) -> str:
        """What it says of itself to people."""
        return f"{self.figure}, as last told" if self.is_gauge else f"{self.figure} of all batches of this driver"


class Reading(NamedTuple):
    """What a batch says to one metric, for one value of its labels."""

    metric: Metric
    labels: tuple[str, ...]
    value: float


Exporter = Callable[[Reading], None]

_BATCHES: Final = Metric("batches", _QUERY)
_DURATION: Final = Metric("duration_ms", _QUERY)
_RESTORED_AGAIN: Final = Metric("restored_again", _QUERY)
"""Shards restored after their first call in a run: the first may restore one without anything being wrong."""
_VERSION: Final = Metric("version", _SHARD)
_FAILURES: Final = Metric("failures", (*_SHARD, "error"))
_COUNTED: Final = Metric("counted", (*_SHARD, "node", "what"))
_OF_TOPICS: Final = {
    topic: [Metric(f"{topic}.{field}", labels) for field in kind._fields]
    for topics, labels in ((TOPICS, _SHARD), (BY_STORE, _STORE))
    for topic, kind in topics.items()
}
METRICS: Final = (
    *(_BATCHES, _DURATION, _RESTORED_AGAIN, _VERSION, _FAILURES, _COUNTED),
    *(metric for metrics in _OF_TOPICS.values() for metric in metrics),
)
"""All metrics."""


def readings(figures: BatchFigures, *, restored_again: int) -> Iterator[Reading]:
    """Yield what a batch says to each metric; zeros too, as a counter that is not there yet has no rate."""
    query = figures.query_name or figures.query_id, figures.state_id
    yield Reading(_BATCHES, query, 1)
    yield Reading(_DURATION, query, figures.duration_ms / 1_000)
    yield Reading(_RESTORED_AGAIN, query, restored_again)
    for shard in figures.shards:
        of_shard = (*query, str(shard.shard))
        yield Reading(_VERSION, of_shard, shard.version)
        for topic in TOPICS:
            yield from _of_topic(topic, of_shard, getattr(shard, topic))
        for topic in BY_STORE:
            for store, of_store in getattr(shard, topic).items():
                yield from _of_topic(topic, (*of_shard, store), of_store)
        for error, count in shard.failures.items():
            yield Reading(_FAILURES, (*of_shard, error), count)
        for name, count in shard.counted.items():
            node, _, what = name.rpartition(".")
            yield Reading(_COUNTED, (*of_shard, node, what), count)


def _of_topic(topic: str, labels: tuple[str, ...], values: tuple[float, ...]) -> Iterator[Reading]:
    for metric, value in zip(_OF_TOPICS[topic], values, strict=True):
        yield Reading(metric, labels, value / 1_000 if metric.figure.endswith("_ms") else value)


def prometheus_exporter(registry: CollectorRegistry | None) -> Exporter:
    """Return what hands readings to metrics that it adds to a registry, the default one for None."""
    with extra("prometheus"):
        from prometheus_client import REGISTRY, Counter, Gauge
    into = REGISTRY if registry is None else registry
    made = {
        metric: (Gauge if metric.is_gauge else Counter)(
            metric.prometheus_name, metric.help, metric.labels, registry=into
        )
        for metric in METRICS
    }

    @cache
    def take_of(metric: Metric, labels: tuple[str, ...]) -> Callable[[float], None]:
        of_labels = made[metric].labels(*labels)
        take: Callable[[float], None] = of_labels.set if isinstance(of_labels, Gauge) else of_labels.inc
        return take

    return lambda reading: take_of(reading.metric, reading.labels)(reading.value)


def opentelemetry_exporter(provider: MeterProvider | None) -> Exporter:
    """Return what hands readings to instruments of a provider, the one that is configured for None."""
    with extra("opentelemetry"):
        from opentelemetry.metrics import get_meter
    meter = get_meter("statestore", meter_provider=provider)
    take_by_metric = {
        metric: meter.create_gauge(metric.opentelemetry_name, metric.unit, metric.help).set
        if metric.is_gauge
        else meter.create_counter(metric.opentelemetry_name, metric.unit, metric.help).add
        for metric in METRICS
    }

    def take(reading: Reading) -> None:
        metric, labels, value = reading
        take_by_metric[metric](value, dict(zip(metric.labels, labels, strict=True)))

    return take
