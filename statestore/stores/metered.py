"""The outermost layer: times what is done with a store. Source: Kafka's Metered*Store.

A metered store is the same store with its operations timed. One that is not metered pays nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import split_stored
from statestore.stores.iterator import StoreIterator
from statestore.stores.metrics import StoreMetrics
from statestore.stores.typed_store import TypedStore

S = TypeVar("S", bound=TypedStore)

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
