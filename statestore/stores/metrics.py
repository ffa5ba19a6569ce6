"""Metrics of one store under Kafka Streams' names. Source: Kafka's StateStoreMetrics."""

from __future__ import annotations

import time
from collections.abc import Callable


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
        milliseconds since the epoch, 0 if none is open. Kafka has all of these but the totals, of which
        `put-header-bytes-total` counts bytes.
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
