"""Metrics of stores under Kafka Streams' names: how often, and how long. Source: Kafka's StateStoreMetrics.

A metered store is the same store with its operations timed. One that is not metered pays nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from statestore.format.store_format import StoreFormat
from statestore.format.stored_value import split_stored
from statestore.stores.iterator import StoreIterator
from statestore.stores.typed_store import TypedStore

S = TypeVar("S", bound=TypedStore)

# Kafka's sensor for each operation that a store may have.
_SENSORS: Final[Mapping[str, str]] = {
    "get": "get",
    "put": "put",
    "put_if_absent": "put-if-absent",
    "put_all": "put-all",
    "delete": "delete",
    "remove": "remove",
    "fetch": "fetch",
    "fetch_session": "fetch",
    "backward_fetch": "fetch",
    "fetch_all": "fetch",
    "backward_fetch_all": "fetch",
    "find_sessions": "fetch",
    "backward_find_sessions": "fetch",
    "range": "range",
    "reverse_range": "range",
    "all": "all",
    "reverse_all": "all",
    "backward_all": "all",
    "prefix_scan": "prefix-scan",
    "flush": "flush",
}


class Sensor:
    """Counts one operation and adds up its time."""

    __slots__ = ("count", "max_ns", "total_ns")

    def __init__(self) -> None:
        self.count = 0
        self.total_ns = 0
        self.max_ns = 0

    def record(self, elapsed_ns: int, count: int = 1) -> None:
        """Note that the operation was done `count` times in `elapsed_ns` nanoseconds together."""
        self.count += count
        self.total_ns += elapsed_ns
        if elapsed_ns > self.max_ns:
            self.max_ns = elapsed_ns


class StoreMetrics:
    """The metrics of one store, from the moment it is made."""

    def __init__(self, *, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self.header_bytes = 0
        """How many bytes of headers were put, in all."""
        self.open_iterators = 0
        self._clock_ns = clock_ns
        self._started_ns = clock_ns()
        self._sensors: dict[str, Sensor] = {}

    def sensor(self, name: str) -> Sensor:
        """Return the sensor of an operation, by Kafka's name of it."""
        return self._sensors.setdefault(name, Sensor())

    def values(self) -> dict[str, float]:
        """Return every metric by its name.

        `OP-rate` is per second since the store was made, `OP-total` a count, `OP-latency-avg` and `OP-latency-max` are
        nanoseconds, all as in Kafka; `put-header-bytes-total` is bytes, `num-open-iterators` a count.
        """
        elapsed_s = max(self._clock_ns() - self._started_ns, 1) / 1e9
        found: dict[str, float] = {
            "put-header-bytes-total": self.header_bytes,
            "num-open-iterators": self.open_iterators,
        }
        for name, sensor in sorted(self._sensors.items()):
            found[f"{name}-total"] = sensor.count
            found[f"{name}-rate"] = sensor.count / elapsed_s
            found[f"{name}-latency-avg"] = sensor.total_ns / sensor.count if sensor.count else 0.0
            found[f"{name}-latency-max"] = sensor.max_ns
        return found

    def timed(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        """Return `operation` timed under `name`; iterators that it returns are counted until they are closed."""
        sensor, clock_ns = self.sensor(name), self._clock_ns

        def timed_operation(*arguments: Any, **options: Any) -> Any:
            started_ns = clock_ns()
            try:
                result = operation(*arguments, **options)
            finally:
                sensor.record(clock_ns() - started_ns)
            if isinstance(result, StoreIterator):
                self.open_iterators += 1
                result.on_close(self._iterator_closed)
            return result

        return timed_operation

    def _iterator_closed(self) -> None:
        self.open_iterators -= 1


def metered(store: S, store_format: StoreFormat, metrics: StoreMetrics) -> S:
    """Return the store with its operations timed in `metrics`. The store is changed, not copied."""
    for operation, sensor in _SENSORS.items():
        if hasattr(store, operation):
            setattr(store, operation, metrics.timed(sensor, getattr(store, operation)))
    if store_format in (StoreFormat.TIMESTAMPED_WITH_HEADERS, StoreFormat.WITH_HEADERS):
        store.watch_stored(lambda stored: _count_headers(metrics, store_format, stored))
    return store


def _count_headers(metrics: StoreMetrics, store_format: StoreFormat, stored: bytes) -> None:
    metrics.header_bytes += len(split_stored(store_format, stored).header_bytes or b"")
