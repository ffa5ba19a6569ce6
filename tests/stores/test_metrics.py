"""Metrics of stores: Kafka's names, and counts that are right."""

from typing import Any

import pytest

from statestore import Windowed
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.processor.context import TaskRecordContext
from statestore.stores.metrics import StoreMetrics
from tests.stores.in_memory import GOOD, HEADERS, NAME, builder, put, store_of


class Clock:
    """Goes on by a microsecond every time it is asked."""

    now_ns = 0

    def __call__(self) -> int:
        self.now_ns += 1000
        return self.now_ns


def metered(kind: str, now_ms: int = 0) -> tuple[Any, StoreMetrics]:
    metrics = StoreMetrics(clock_ns=Clock(), clock_ms=lambda: now_ms)
    family = MemoryDatabase([NAME]).family(NAME)
    context = TaskRecordContext()
    return builder(kind).with_metrics_enabled().build(family, metrics=metrics, context=context), metrics


def totals(metrics: StoreMetrics) -> dict[str, float]:
    """Return what was counted at all."""
    return {name[:-6]: value for name, value in metrics.values().items() if name.endswith("-total") and value}


def test_operations_of_a_key_value_store_are_counted_under_kafkas_names() -> None:
    store, metrics = metered("with headers")
    held = GOOD["with headers"]
    store.put(b"a", held)
    store.put_all([(b"b", held), (b"c", held)])
    store.put_if_absent(b"d", held)
    store.delete(b"a")
    store.get(b"b")
    store.get(b"b")
    for iterator in (store.range(None, None), store.reverse_range(None, None), store.all(), store.prefix_scan(b"")):
        assert len(list(iterator)) == 3
    store.flush()
    assert totals(metrics) == {
        "put": 1,
        "put-all": 1,
        "put-if-absent": 1,
        "delete": 1,
        "get": 2,
        "range": 2,
        "all": 1,
        "prefix-scan": 1,
        "flush": 1,
        "put-header-bytes": 4 * len(HEADERS.to_bytes()),
    }


def test_operations_of_the_other_kinds_are_counted() -> None:
    windows, of_windows = metered("windows")
    put("windows", windows, b"k", GOOD["windows"])
    windows.fetch(b"k", 10)
    list(windows.fetch_all(0, 99))
    list(windows.backward_fetch(b"k", 0, 99))
    list(windows.backward_all())
    assert totals(of_windows) == {"put": 1, "fetch": 3, "all": 1, "put-header-bytes": len(HEADERS.to_bytes())}
    sessions, of_sessions = metered("sessions")
    put("sessions", sessions, b"k", GOOD["sessions"])
    sessions.remove(Windowed(b"k", 10, 10))
    sessions.fetch_session(b"k", 10, 10)
    list(sessions.find_sessions(b"k", 0, 99))
    assert totals(of_sessions) == {"put": 1, "remove": 1, "fetch": 2, "put-header-bytes": len(HEADERS.to_bytes())}
    versions, of_versions = metered("plain versions")
    versions.put(b"k", b"v", 1)
    versions.get(b"k")
    list(versions.get(b"k", 0, 9))
    versions.delete(b"k", 2)
    assert totals(of_versions) == {"put": 1, "get": 2, "delete": 1}


def test_times_are_nanoseconds_and_rates_per_second() -> None:
    store, metrics = metered("plain")
    store.put(b"a", b"1")
    store.put(b"b", b"2")
    values = metrics.values()
    assert (values["put-latency-avg"], values["put-latency-max"]) == (1000, 1000)
    assert values["put-rate"] == 2 / 5e-6  # the clock was asked at the start, four times, and for this
    assert values["get-latency-avg"] == 0
    assert values["get-rate"] == 0


def test_an_operation_that_fails_is_counted_too() -> None:
    store, metrics = metered("plain")
    with pytest.raises(TypeError):
        store.get(None)
    assert totals(metrics) == {"get": 1}


def test_open_iterators_are_counted_until_they_are_closed_read_or_forgotten() -> None:
    store, metrics = metered("plain")
    store.put_all([(b"a", b"1"), (b"b", b"2")])
    closed, read, forgotten = store.all(), store.all(), store.all()
    assert metrics.values()["num-open-iterators"] == 3
    next(closed)
    closed.close()
    closed.close()
    assert metrics.open_iterators == 2
    assert len(list(read)) == 2
    assert metrics.open_iterators == 1
    next(forgotten)
    del forgotten
    assert metrics.open_iterators == 0


def test_an_iterator_in_a_for_loop_is_open() -> None:
    store, metrics = metered("plain")
    store.put_all([(b"a", b"1"), (b"b", b"2")])
    assert [metrics.open_iterators for _ in store.all()] == [1, 1]
    assert metrics.open_iterators == 0


def test_a_store_without_metrics_has_none() -> None:
    assert store_of("plain").metrics is None


@pytest.mark.parametrize("kind", ["timestamped", "with headers", "windows", "sessions", "versions"])
def test_a_value_that_is_put_as_one_counts_once(kind: str) -> None:
    store, metrics = metered(kind)
    store.record_context.enter_record(5, HEADERS, None)
    where = {"windows": (10,)}.get(kind, ())
    key = Windowed(b"k", 10, 10) if kind == "sessions" else b"k"
    store.put_value(key, b"v", *where)
    assert totals(metrics)["put"] == 1


def test_an_operation_that_returns_an_iterator_lasts_until_that_is_closed() -> None:
    store, metrics = metered("plain", now_ms=77)
    store.put_all([(b"a", b"1"), (b"b", b"2")])
    assert metrics.values()["oldest-iterator-open-since-ms"] == 0
    with store.all() as entries:
        assert metrics.values()["oldest-iterator-open-since-ms"] == 77
        assert "all" not in totals(metrics)
        next(entries)
    values = metrics.values()
    assert totals(metrics)["all"] == 1
    assert values["oldest-iterator-open-since-ms"] == values["num-open-iterators"] == 0
    # The clock was asked when it was opened, for each of the two calls of values() meanwhile, and when it was closed.
    assert values["all-latency-avg"] == values["iterator-duration-avg"] == values["iterator-duration-max"] == 3000


def test_the_oldest_open_iterator_is_the_one_that_is_told() -> None:
    now_ms = 10
    metrics = StoreMetrics(clock_ms=lambda: now_ms)
    store = builder("plain").with_metrics_enabled().build(MemoryDatabase([NAME]).family(NAME), metrics=metrics)
    first = store.all()
    now_ms = 20
    second = store.all()
    assert metrics.values()["oldest-iterator-open-since-ms"] == 10
    first.close()
    assert metrics.values()["oldest-iterator-open-since-ms"] == 20
    second.close()


@pytest.mark.parametrize("kind", ["plain", "with headers", "windows", "sessions", "versions"])
def test_how_old_records_are_is_noted_after_puts(kind: str) -> None:
    store, metrics = metered(kind, now_ms=1_000)
    for time_ms in (400, 900):
        store.record_context.enter_record(time_ms, HEADERS, None)
        put(kind, store, b"k", GOOD[kind])
    store.flush()
    values = metrics.values()
    assert [values[f"record-e2e-latency-{figure}"] for figure in ("avg", "min", "max")] == [350, 100, 600]


def test_a_put_for_no_record_has_no_age() -> None:
    store, metrics = metered("plain", now_ms=1_000)
    store.put(b"k", b"v")
    assert metrics.values()["record-e2e-latency-max"] == 0
