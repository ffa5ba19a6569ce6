"""Metrics of one store under Kafka Streams' names, and how its operations are timed.

A metered store is the same store with its operations timed; one that is not metered pays nothing. Source: Kafka's
StateStoreMetrics and Metered*Store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import split_stored
from statestore.stores.iterator import StoreIterator

if TYPE_CHECKING:
    from statestore.stores.typed_store import TypedStore

S = TypeVar("S", bound="TypedStore")


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


class LatencyRange:
    """Average, least and greatest of what is recorded, in milliseconds."""

    __slots__ = ("count", "max_ms", "min_ms", "total_ms")

    def __init__(self) -> None:
        self.count = 0
        self.total_ms = 0
        self.min_ms = 0
        self.max_ms = 0

    def record(self, latency_ms: int) -> None:
        """Note one latency, which is negative where clocks differ."""
        self.min_ms = min(self.min_ms, latency_ms) if self.count else latency_ms
        self.max_ms = max(self.max_ms, latency_ms) if self.count else latency_ms
        self.count += 1
        self.total_ms += latency_ms


class StoreMetrics:
    """The metrics of one store: `clock_ns` measures how long things take, `clock_ms` is the wall clock."""

    def __init__(
        self,
        *,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        clock_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self.header_bytes = 0  # how many bytes of headers were put, in all
        self.clock_ns = clock_ns
        self.clock_ms = clock_ms
        self.record_latency = LatencyRange()
        """How old records are when what they lead to is put: Kafka's record-e2e-latency."""
        self._started_ns = clock_ns()
        self._sensors: dict[str, Sensor] = {}
        self._iterator_duration = Sensor()
        self._opened_ms: dict[object, int] = {}  # when each open iterator was opened, the first one first

    @property
    def open_iterators(self) -> int:
        """How many iterators are open."""
        return len(self._opened_ms)

    def sensor(self, name: str) -> Sensor:
        """Return the sensor of an operation, by Kafka's name of it."""
        return self._sensors.setdefault(name, Sensor())

    def record_restore(self, elapsed_ns: int, records: int) -> None:
        """Note that the store was restored from so many records, in so many nanoseconds."""
        self.sensor("restore").record(elapsed_ns, records)

    def open_iterator(self, sensor: Sensor, started_ns: int) -> Callable[[], None]:
        """Return what is to be called when an iterator is closed: as in Kafka, its operation takes so long."""
        token = object()
        self._opened_ms[token] = self.clock_ms()

        def closed() -> None:
            del self._opened_ms[token]
            elapsed_ns = self.clock_ns() - started_ns
            sensor.record(elapsed_ns)
            self._iterator_duration.record(elapsed_ns)

        return closed

    def values(self) -> dict[str, float]:
        """Return every metric by its name.

        `OP-rate` is per second since the store was made, `OP-total` a count, `OP-latency-avg` and `OP-latency-max` are
        nanoseconds, as is `iterator-duration`; `record-e2e-latency` is milliseconds; `oldest-iterator-open-since-ms` is
        milliseconds since the epoch, 0 if none is open. All are as in Kafka, where totals are missing, and
        `put-header-bytes-total`, in bytes.
        """
        elapsed_s = max(self.clock_ns() - self._started_ns, 1) / 1e9
        iterators, records = self._iterator_duration, self.record_latency
        found: dict[str, float] = {
            "put-header-bytes-total": self.header_bytes,
            "num-open-iterators": self.open_iterators,
            "oldest-iterator-open-since-ms": next(iter(self._opened_ms.values()), 0),
            "iterator-duration-avg": iterators.total_ns / iterators.count if iterators.count else 0.0,
            "iterator-duration-max": iterators.max_ns,
            "record-e2e-latency-avg": records.total_ms / records.count if records.count else 0.0,
            "record-e2e-latency-min": records.min_ms,
            "record-e2e-latency-max": records.max_ms,
        }
        for name, sensor in sorted(self._sensors.items()):
            found[f"{name}-total"] = sensor.count
            found[f"{name}-rate"] = sensor.count / elapsed_s
            found[f"{name}-latency-avg"] = sensor.total_ns / sensor.count if sensor.count else 0.0
            found[f"{name}-latency-max"] = sensor.max_ns
        return found


# Kafka's sensors, and the operations of each that a store may have.
_SENSORS: Final[Mapping[str, tuple[str, ...]]] = {
    "get": ("get", "get_many"),
    "put": ("put",),
    "put-if-absent": ("put_if_absent",),
    "put-all": ("put_all", "put_many"),
    "delete": ("delete",),
    "remove": ("remove",),
    "fetch": (
        *("fetch", "fetch_many", "backward_fetch", "fetch_all", "backward_fetch_all"),
        *("fetch_session", "fetch_session_many", "find_sessions", "find_sessions_many", "backward_find_sessions"),
    ),
    "range": ("range", "reverse_range", "range_values"),
    "all": ("all", "reverse_all", "backward_all"),
    "prefix-scan": ("prefix_scan",),
    "flush": ("flush",),
}
# After these, Kafka notes how old the record is.
_PUTS: Final = frozenset({"put", "put_if_absent"})


def measure_operations(store: S, store_format: StoreFormat, metrics: StoreMetrics) -> S:
    """Return the store with its operations timed in `metrics`. The store is changed, not copied."""
    store.metrics = metrics
    for sensor, operation in ((sensor, operation) for sensor, each in _SENSORS.items() for operation in each):
        if hasattr(store, operation):
            timed = _time_operation(metrics, sensor, getattr(store, operation))
            setattr(store, operation, _with_record_latency(store, metrics, timed) if operation in _PUTS else timed)
    if store_format.has_headers:

        def count_headers(stored: bytes) -> None:
            metrics.header_bytes += len(split_stored(store_format, stored).header_bytes or b"")

        store.watch_stored(count_headers)
    return store


def _time_operation(metrics: StoreMetrics, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
    """Return `operation`, timed under `name`; if it returns an iterator, until that is closed."""
    sensor, clock_ns = metrics.sensor(name), metrics.clock_ns

    def timed_operation(*arguments: Any, **options: Any) -> Any:
        started_ns = clock_ns()
        try:
            result = operation(*arguments, **options)
        except BaseException:
            sensor.record(clock_ns() - started_ns)
            raise
        if isinstance(result, StoreIterator):
            result.on_close(metrics.open_iterator(sensor, started_ns))
        else:
            sensor.record(clock_ns() - started_ns)
        return result

    return timed_operation


def _with_record_latency(store: TypedStore, metrics: StoreMetrics, put: Callable[..., Any]) -> Callable[..., Any]:
    """Return `put`, which then also notes the age of the record being processed, if there is one."""

    def put_for_record(*arguments: Any, **options: Any) -> Any:
        result = put(*arguments, **options)
        timestamp_ms = store.record_context.timestamp_ms
        if timestamp_ms >= 0:
            metrics.record_latency.record(metrics.clock_ms() - timestamp_ms)
        return result

    return put_for_record
