"""What the driver's accessors give of every kind of store, and what can be done with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from statestore import (
    AggregationWithHeaders,
    Headers,
    KeyValueStore,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedRecord,
    VersionedRecordWithHeaders,
    Windowed,
)
from statestore.testing import TopologyTestDriver
from tests.support.driver_topologies import KINDS, TEXT, changelog_of, input_of, storing

HEADERS = Headers([("h", b"1")])
NONE = Headers()

# What each accessor shows of ("v", 7, HEADERS), and which of them give a store of a kind; the others give None. Seen at
# Kafka's driver 4.3.1, but for versioned stores with headers, which it does not have.
SHOWN: dict[str, Any] = {
    "key_value_store": "v",
    "timestamped_key_value_store": ValueAndTimestamp("v", 7),
    "timestamped_key_value_store_with_headers": ValueTimestampHeaders("v", 7, HEADERS),
    "versioned_key_value_store": VersionedRecord("v", 7),
    "versioned_key_value_store_with_headers": VersionedRecordWithHeaders("v", 7, None, HEADERS),
    "window_store": "v",
    "timestamped_window_store": ValueAndTimestamp("v", 7),
    "timestamped_window_store_with_headers": ValueTimestampHeaders("v", 7, HEADERS),
    "session_store": "v",
    "session_store_with_headers": AggregationWithHeaders("v", HEADERS),
}
ACCESSORS: dict[str, set[str]] = {
    "kv": {"key_value_store"},
    "ts-kv": {"key_value_store", "timestamped_key_value_store"},
    "headers-kv": {
        "key_value_store",
        "timestamped_key_value_store",
        "timestamped_key_value_store_with_headers",
    },
    "versioned": {"versioned_key_value_store"},
    "headers-versioned": {"versioned_key_value_store", "versioned_key_value_store_with_headers"},
    "window": {"window_store"},
    "ts-window": {"window_store", "timestamped_window_store"},
    "headers-window": {"window_store", "timestamped_window_store", "timestamped_window_store_with_headers"},
    "session": {"session_store"},
    "headers-session": {"session_store", "session_store_with_headers"},
}


@pytest.fixture(params=["persistent", "in memory"])
def in_memory(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "in memory")


@pytest.fixture
def driver(request: pytest.FixtureRequest, in_memory: bool) -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(storing(request.param, in_memory=in_memory)) as made:
        input_of(made).pipe_input("k", "v", timestamp_ms=7, headers=HEADERS)
        yield made


def of_kinds(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("driver", kinds, indirect=True)


def test_every_accessor_is_in_the_matrix() -> None:
    named = {name.removeprefix("get_") for name in dir(TopologyTestDriver) if name.startswith("get_")}
    assert named - {"state_store", "all_state_stores"} == SHOWN.keys()
    assert ACCESSORS.keys() == set(KINDS)


@pytest.mark.parametrize(("driver", "kind"), [(kind, kind) for kind in KINDS], indirect=["driver"])
def test_accessors_show_what_they_know_and_none_of_other_kinds(driver: TopologyTestDriver, kind: str) -> None:
    found = {}
    for accessor in SHOWN:
        store = getattr(driver, f"get_{accessor}")("s")
        if store is not None:
            found[accessor] = KINDS[kind].get(store, "k", 7)
            assert getattr(driver, f"get_{accessor}")("unknown") is None
    assert found == {accessor: SHOWN[accessor] for accessor in ACCESSORS[kind]}
    whole = driver.get_state_store("s")
    assert KINDS[kind].get(whole, "k", 7) == KINDS[kind].held("v", 7, HEADERS)
    assert driver.get_all_state_stores() == {"s": whole}
    assert driver.get_state_store("unknown") is None


@of_kinds("headers-kv")
def test_a_facade_of_plain_values_does_all_that_a_store_does(driver: TopologyTestDriver) -> None:
    whole, plain = driver.get_state_store("s"), driver.get_key_value_store("s")
    assert isinstance(whole, KeyValueStore)
    assert plain is not None
    plain.put("a", "1")
    assert plain.put_if_absent("a", "2") == "1"
    assert plain.put_if_absent("b", "2") is None
    plain.put_all([("c", "3"), ("d", "4"), ("b", None)])
    assert plain.delete("d") == "4"
    assert list(plain.all()) == [("a", "1"), ("c", "3"), ("k", "v")]
    assert list(plain.reverse_range("b", "z")) == [("k", "v"), ("c", "3")]
    assert list(plain.prefix_scan("k", TEXT)) == [("k", "v")]
    assert list(plain.range_values("a", "c")) == ["1", "3"]
    assert plain.read_only().get("a") == "1"
    assert whole.get("a") == ValueTimestampHeaders("1", -1, NONE)
    assert whole.get("k") == ValueTimestampHeaders("v", 7, HEADERS)
    assert plain.name == "s"


@of_kinds("headers-kv")
def test_a_facade_of_timestamps_puts_no_headers(driver: TopologyTestDriver) -> None:
    whole, timed = driver.get_state_store("s"), driver.get_timestamped_key_value_store("s")
    assert isinstance(whole, KeyValueStore)
    assert timed is not None
    timed.put("k", ValueAndTimestamp("new", 9))
    assert whole.get("k") == ValueTimestampHeaders("new", 9, NONE)
    timed.put("k", None)
    assert whole.get("k") is None


@of_kinds("headers-window")
def test_facades_of_windows(driver: TopologyTestDriver) -> None:
    plain, timed = driver.get_window_store("s"), driver.get_timestamped_window_store("s")
    assert plain is not None
    assert timed is not None
    plain.put("k", "later", 20)
    timed.put("other", ValueAndTimestamp("o", 5), 20)
    assert list(plain.fetch("k", 0, 100)) == [(7, "v"), (20, "later")]
    assert list(timed.backward_fetch("k", 0, 100)) == [
        (20, ValueAndTimestamp("later", -1)),
        (7, ValueAndTimestamp("v", 7)),
    ]
    assert [(window.key, held) for window, held in plain.fetch_all(20, 20)] == [("k", "later"), ("other", "o")]
    whole = driver.get_timestamped_window_store_with_headers("s")
    assert whole is not None
    assert whole.fetch("other", 20) == ValueTimestampHeaders("o", 5, NONE)


@of_kinds("headers-session")
def test_a_facade_of_sessions(driver: TopologyTestDriver) -> None:
    plain, whole = driver.get_session_store("s"), driver.get_session_store_with_headers("s")
    assert plain is not None
    assert whole is not None
    plain.put(Windowed("k", 10, 12), "more")
    assert list(plain.fetch("k")) == [(Windowed("k", 7, 8), "v"), (Windowed("k", 10, 12), "more")]
    assert whole.fetch_session("k", 10, 12) == AggregationWithHeaders("more", NONE)
    plain.remove(Windowed("k", 7, 8))
    assert whole.fetch_session("k", 7, 8) is None


@of_kinds("headers-versioned")
def test_a_facade_of_versions(driver: TopologyTestDriver) -> None:
    plain, whole = driver.get_versioned_key_value_store("s"), driver.get_versioned_key_value_store_with_headers("s")
    assert plain is not None
    assert whole is not None
    assert plain.put("k", "new", 9) == -1
    assert whole.get("k") == VersionedRecordWithHeaders("new", 9, None, NONE)
    assert plain.get("k", 8) == VersionedRecord("v", 7, 9)
    assert plain.delete("k", 11) == VersionedRecord("new", 9)
    assert whole.get("k") is None


@pytest.mark.parametrize("kind", ["kv", "versioned"])
def test_what_a_test_writes_is_logged_without_a_record(kind: str) -> None:
    # Kafka's driver logs such writes for the time 0, whatever was piped before, and shows them with the next record.
    with TopologyTestDriver(storing(kind)) as driver:
        topic = input_of(driver)
        topic.pipe_input("k", "v", timestamp_ms=7, headers=HEADERS)
        KINDS[kind].put(driver.get_state_store("s"), "mine", "m", 3, NONE)
        assert changelog_of(driver, "s") == [(b"k", b"v", 7, [])]
        topic.pipe_input("k", "w", timestamp_ms=8)
        own_ms = 3 if kind == "versioned" else 0
        assert changelog_of(driver, "s") == [(b"mine", b"m", own_ms, []), (b"k", b"w", 8, [])]


def test_a_plain_facade_logs_the_timestamp_that_it_puts() -> None:
    # Kafka's driver throws here, after it has written to the store: its producer takes no negative timestamps.
    with TopologyTestDriver(storing("ts-kv")) as driver:
        store = driver.get_key_value_store("s")
        assert store is not None
        store.put("k", "v")
        driver.advance_wall_clock_time(0)
        assert changelog_of(driver, "s") == [(b"k", b"v", -1, [])]


def test_stores_can_be_filled_before_the_first_record_also_cached_ones() -> None:
    for change in (lambda builder: builder, lambda builder: builder.with_caching_enabled()):
        with TopologyTestDriver(storing("headers-kv", change=change)) as driver:
            store = driver.get_timestamped_key_value_store_with_headers("s")
            assert store is not None
            store.put("k", ValueTimestampHeaders("before", 3, HEADERS))
            assert store.get("k") == ValueTimestampHeaders("before", 3, HEADERS)
            driver.advance_wall_clock_time(0)
            assert changelog_of(driver, "s") == [(b"k", b"before", 3, [("h", b"1")])]


def test_stores_are_measured_by_the_drivers_clock() -> None:
    with TopologyTestDriver(storing("headers-kv", change=lambda builder: builder.with_metrics_enabled())) as driver:
        input_of(driver).pipe_value_list(["no key"] * 0)
        input_of(driver).pipe_key_value_list([("a", "1"), ("b", "2")])
        driver.advance_wall_clock_time(4_000)
        found = driver.metrics()
        assert (found["s/put-total"], found["s/put-rate"], found["s/put-latency-max"]) == (2, 0.5, 0)
        assert found["process-total"] == 2
