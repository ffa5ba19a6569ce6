"""`put_value`: a write takes timestamp and headers from the record that is being processed, unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from statestore import Headers, Serdes, StoreBuilder, Stores, Windowed
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.processor.context import TaskRecordContext

TEXT = Serdes.string()
RECORD_HEADERS = [("trace", b"1"), ("trace", None)]
WINDOW, SESSION = 0, Windowed("k", 0, 10)

BUILDERS: dict[str, Callable[[], StoreBuilder[Any]]] = {
    "timestamped": lambda: Stores.timestamped_key_value_store_builder(
        Stores.persistent_timestamped_key_value_store("s"), TEXT, TEXT
    ),
    "headers": lambda: Stores.timestamped_key_value_store_with_headers_builder(
        Stores.persistent_timestamped_key_value_store_with_headers("s"), TEXT, TEXT
    ),
    "cached headers": lambda: BUILDERS["headers"]().with_caching_enabled(),
    "metered headers": lambda: BUILDERS["headers"]().with_metrics_enabled(),
    "window": lambda: Stores.timestamped_window_store_builder(
        Stores.persistent_timestamped_window_store("s", 1000, 10), TEXT, TEXT
    ),
    "headers window": lambda: Stores.timestamped_window_store_with_headers_builder(
        Stores.persistent_timestamped_window_store_with_headers("s", 1000, 10), TEXT, TEXT
    ),
    "headers session": lambda: Stores.session_store_with_headers_builder(
        Stores.persistent_session_store_with_headers("s", 1000), TEXT, TEXT
    ),
    "headers versioned": lambda: Stores.versioned_key_value_store_with_headers_builder(
        Stores.persistent_versioned_key_value_store_with_headers("s", 1000), TEXT, TEXT
    ),
}
WITHOUT_TIME = ["headers session"]


@pytest.fixture(params=list(BUILDERS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def context() -> TaskRecordContext:
    made = TaskRecordContext()
    made.timestamp_ms = 7
    made.headers = Headers.from_bytes(encode_headers(RECORD_HEADERS))
    return made


@pytest.fixture
def store(kind: str, context: TaskRecordContext) -> Any:
    return BUILDERS[kind]().build(MemoryByteStore("s"), context=context)


def put(kind: str, store: Any, value: str | None, **given: Any) -> None:
    if "window" in kind:
        store.put_value("k", value, WINDOW, **given)
    elif "session" in kind:
        store.put_value(SESSION, value, **given)
    else:
        store.put_value("k", value, **given)


def held(kind: str, store: Any) -> Any:
    if "window" in kind:
        return store.fetch("k", WINDOW)
    return store.fetch_session("k", 0, 10) if "session" in kind else store.get("k")


def test_the_records_timestamp_and_headers_go_in_unparsed(kind: str, store: Any, context: TaskRecordContext) -> None:
    parsed = parse_count()
    put(kind, store, "v")
    found = held(kind, store)
    assert parse_count() == parsed
    assert (found.aggregation if "session" in kind else found.value) == "v"
    if kind not in WITHOUT_TIME:
        assert found.timestamp_ms == 7
    if "headers" in kind:
        assert list(found.headers) == RECORD_HEADERS
        context.headers.add("later", b"2")
        assert list(held(kind, store).headers) == RECORD_HEADERS


def test_what_is_given_counts(kind: str, store: Any) -> None:
    given: dict[str, Any] = {} if kind in WITHOUT_TIME else {"timestamp_ms": 9}
    if "headers" in kind:
        given["headers"] = Headers([("own", b"3")])
    put(kind, store, "v", **given)
    found = held(kind, store)
    assert {name: getattr(found, name) for name in given} == given
    if "headers" in kind:
        put(kind, store, "v", **{**given, "headers": Headers()})
        assert not held(kind, store).headers


def test_none_deletes(kind: str, store: Any) -> None:
    put(kind, store, "v")
    put(kind, store, None)
    assert held(kind, store) is None


def test_without_a_record_a_timestamp_must_be_given(kind: str) -> None:
    store = BUILDERS[kind]().build(MemoryByteStore("s"))
    if kind in WITHOUT_TIME:
        put(kind, store, "v")
        assert not held(kind, store).headers
        return
    with pytest.raises(ValueError, match="no record is being processed"):
        put(kind, store, "v")
    put(kind, store, "v", timestamp_ms=3)
    assert held(kind, store).timestamp_ms == 3


def test_a_put_of_a_version_writes_what_it_is_given_and_put_value_the_records_headers(
    context: TaskRecordContext,
) -> None:
    store: Any = BUILDERS["headers versioned"]().build(MemoryByteStore("s"), context=context)
    store.put("k", "v", 5)
    assert list(store.get("k").headers) == [], "as in Kafka's trunk"
    store.put_value("k", "v", timestamp_ms=5)
    assert list(store.get("k").headers) == RECORD_HEADERS
    store.put_value("k", "v", timestamp_ms=5, headers=Headers())
    assert list(store.get("k").headers) == []
