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


class StoreMetrics:
    """The metrics of one store, from the moment it is made."""

    def __init__(self, *, clock_ns: Callable[[], int] = time.perf_counter_ns) -> None:
        self.header_bytes = 0
        """How many bytes of headers were put, in all."""
        self.open_iterators = 0
        self.clock_ns = clock_ns
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
        elapsed_s = max(self.clock_ns() - self._started_ns, 1) / 1e9
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
