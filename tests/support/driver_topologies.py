"""What tests of TopologyTestDriver share: topologies of one function, and every kind and format of store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from statestore import (
    AggregationWithHeaders,
    Headers,
    Processor,
    ProcessorContext,
    Record,
    Serdes,
    StoreBuilder,
    Stores,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    VersionedRecord,
    VersionedRecordWithHeaders,
    Windowed,
)
from statestore.testing import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver

TEXT, INT64, BYTES = Serdes.string(), Serdes.int64(), Serdes.bytes()
RETENTION_MS, WINDOW_MS, SEGMENT_MS = 120_000, 10_000, 60_000

Function = Callable[[ProcessorContext, Record[Any, Any]], None]


class Running(Processor):
    """Runs a function of (context, record), and notes when it is closed."""

    def __init__(self, function: Function, init: Callable[[ProcessorContext], None] | None, closed: list[str]) -> None:
        self.function = function
        self.on_init = init
        self.closed = closed

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        if self.on_init is not None:
            self.on_init(context)

    def process(self, record: Record[Any, Any]) -> None:
        self.function(self.context, record)

    def close(self) -> None:
        self.closed.append(self.context.node)


def forward(context: ProcessorContext, record: Record[Any, Any]) -> None:
    """Forward the record."""
    context.forward(record)


def chain(
    function: Function = forward,
    *builders: StoreBuilder[Any],
    init: Callable[[ProcessorContext], None] | None = None,
    closed: list[str] | None = None,
    value_serde: Any = TEXT,
) -> Topology:
    """Return the topology in -> function -> out, of text."""
    topology = Topology()
    topology.add_source("in", "in", key_serde=TEXT, value_serde=value_serde)
    topology.add_processor("p", lambda: Running(function, init, [] if closed is None else closed), ["in"])
    for builder in builders:
        topology.add_state_store(builder, "p")
    topology.add_sink("out", "out", ["p"])
    return topology


def input_of(driver: TopologyTestDriver, topic: str = "in", **options: Any) -> TestInputTopic[Any, Any]:
    """Return an end to pipe text into a topic."""
    return driver.create_input_topic(topic, **{"key_serde": TEXT, "value_serde": TEXT, **options})


def output_of(driver: TopologyTestDriver, topic: str = "out", **options: Any) -> TestOutputTopic[Any, Any]:
    """Return an end to read text from a topic."""
    return driver.create_output_topic(topic, **{"key_serde": TEXT, "value_serde": TEXT, **options})


def changelog_of(driver: TopologyTestDriver, store: str, application: str = "test-application") -> list[Any]:
    """Read the changelog of a store: (key, value, timestamp, headers) each, in bytes."""
    topic = driver.create_output_topic(f"{application}-{store}-changelog", key_serde=BYTES, value_serde=BYTES)
    return [(one.key, one.value, one.timestamp_ms, list(one.headers)) for one in topic.read_records_to_list()]


class Kind(NamedTuple):
    """A kind of store in a format: its builders, one write and one read of (value, timestamp_ms, headers)."""

    persistent: Callable[[str], StoreBuilder[Any]]
    in_memory: Callable[[str], StoreBuilder[Any]]
    put: Callable[[Any, str, str | None, int, Headers], object]
    get: Callable[[Any, str, int], Any]
    held: Callable[[str, int, Headers], Any]
    """What `get` returns of what was put."""


def _kv(builder: str, supplier: str) -> tuple[Callable[[str], Any], Callable[[str], Any]]:
    create = getattr(Stores, builder)
    return (
        lambda name: create(getattr(Stores, supplier)(name), TEXT, TEXT),
        lambda name: create(Stores.in_memory_key_value_store(name), TEXT, TEXT),
    )


def _timed(builder: str, supplier: str, in_memory: str, *spans: int) -> tuple[Callable[[str], Any], ...]:
    create = getattr(Stores, builder)

    def of(factory: str) -> Callable[[str], Any]:
        return lambda name: create(getattr(Stores, factory)(name, *spans, segment_interval=SEGMENT_MS), TEXT, TEXT)

    return of(supplier), of(in_memory)


def _holder(holder: Callable[..., Any], value: str | None, *rest: Any) -> Any:
    return None if value is None else holder(value, *rest)


def _put_kv(holder: Callable[[str, int, Headers], Any]) -> Callable[..., object]:
    return lambda store, key, value, ms, headers: store.put(key, _holder(holder, value, ms, headers))


def _put_window(holder: Callable[[str, int, Headers], Any]) -> Callable[..., object]:
    return lambda store, key, value, ms, headers: store.put(key, _holder(holder, value, ms, headers), ms)


def _put_session(holder: Callable[[str, int, Headers], Any]) -> Callable[..., object]:
    return lambda store, key, value, ms, headers: store.put(
        Windowed(key, ms, ms + 1), _holder(holder, value, ms, headers)
    )


def _plain(value: str, ms: int, headers: Headers) -> str:
    return value


def _with_timestamp(value: str, ms: int, headers: Headers) -> Any:
    return ValueAndTimestamp(value, ms)


def _with_headers(value: str, ms: int, headers: Headers) -> Any:
    return ValueTimestampHeaders(value, ms, headers)


def _aggregation(value: str, ms: int, headers: Headers) -> Any:
    return AggregationWithHeaders(value, headers)


def _get(store: Any, key: str, ms: int) -> Any:
    return store.get(key)


def _fetch(store: Any, key: str, ms: int) -> Any:
    return store.fetch(key, ms)


def _fetch_session(store: Any, key: str, ms: int) -> Any:
    return store.fetch_session(key, ms, ms + 1)


_WINDOW = (RETENTION_MS, WINDOW_MS)
_KV_HEADERS = "timestamped_key_value_store_with_headers"
_WINDOW_HEADERS = "timestamped_window_store_with_headers"
KINDS: dict[str, Kind] = {
    "kv": Kind(*_kv("key_value_store_builder", "persistent_key_value_store"), _put_kv(_plain), _get, _plain),
    "ts-kv": Kind(
        *_kv("timestamped_key_value_store_builder", "persistent_timestamped_key_value_store"),
        _put_kv(_with_timestamp),
        _get,
        _with_timestamp,
    ),
    "headers-kv": Kind(
        *_kv(f"{_KV_HEADERS}_builder", f"persistent_{_KV_HEADERS}"), _put_kv(_with_headers), _get, _with_headers
    ),
    "window": Kind(
        *_timed("window_store_builder", "persistent_window_store", "in_memory_window_store", *_WINDOW),
        _put_window(_plain),
        _fetch,
        _plain,
    ),
    "ts-window": Kind(
        *_timed(
            "timestamped_window_store_builder",
            "persistent_timestamped_window_store",
            "in_memory_window_store",
            *_WINDOW,
        ),
        _put_window(_with_timestamp),
        _fetch,
        _with_timestamp,
    ),
    "headers-window": Kind(
        *_timed(f"{_WINDOW_HEADERS}_builder", f"persistent_{_WINDOW_HEADERS}", "in_memory_window_store", *_WINDOW),
        _put_window(_with_headers),
        _fetch,
        _with_headers,
    ),
    "session": Kind(
        *_timed("session_store_builder", "persistent_session_store", "in_memory_session_store", RETENTION_MS),
        _put_session(_plain),
        _fetch_session,
        _plain,
    ),
    "headers-session": Kind(
        *_timed(
            "session_store_with_headers_builder",
            "persistent_session_store_with_headers",
            "in_memory_session_store",
            RETENTION_MS,
        ),
        _put_session(_aggregation),
        _fetch_session,
        _aggregation,
    ),
    "versioned": Kind(
        *_timed(
            "versioned_key_value_store_builder",
            "persistent_versioned_key_value_store",
            "in_memory_versioned_key_value_store",
            RETENTION_MS,
        ),
        lambda store, key, value, ms, headers: store.put(key, value, ms),
        _get,
        lambda value, ms, headers: VersionedRecord(value, ms),
    ),
    "headers-versioned": Kind(
        *_timed(
            "versioned_key_value_store_with_headers_builder",
            "persistent_versioned_key_value_store_with_headers",
            "in_memory_versioned_key_value_store",
            RETENTION_MS,
        ),
        lambda store, key, value, ms, headers: store.put(key, value, ms, headers),
        _get,
        lambda value, ms, headers: VersionedRecordWithHeaders(value, ms, None, headers),
    ),
}
UPGRADES = {
    "kv": ("ts-kv", "headers-kv"),
    "ts-kv": ("headers-kv",),
    "window": ("ts-window", "headers-window"),
    "ts-window": ("headers-window",),
    "session": ("headers-session",),
    "versioned": ("headers-versioned",),
}


def allowing(older: str, newer: str) -> Callable[[Any], Any]:
    """Return what says of a builder of `newer` that it may take over what `older` held, if that has to be said."""
    skips_a_step = older in ("kv", "window") and newer.startswith("headers-")
    return lambda builder: builder.with_upgrade_through_timestamped() if skips_a_step else builder


def storing(kind: str, *, in_memory: bool = False, change: Callable[[Any], Any] = lambda builder: builder) -> Topology:
    """Return a topology that puts each record into the store "s" of a kind, with its timestamp and headers."""
    made = KINDS[kind]
    builder = change((made.in_memory if in_memory else made.persistent)("s"))

    def put(context: ProcessorContext, record: Record[Any, Any]) -> None:
        made.put(context.state_store("s"), record.key, record.value, record.timestamp_ms, record.headers)
        context.forward(record)

    return chain(put, builder)


HEADERS, NONE = Headers([("h", b"1"), ("h", None)]), Headers()
RECORDS = [
    TestRecord("a", "1", 10_000, HEADERS),
    TestRecord("b", "2", 20_000),
    TestRecord("c", "gone", 30_000, HEADERS),
    TestRecord("c", None, 30_000, HEADERS),
    TestRecord("a", "3", 40_000),
]


def held(kind: Kind, store: Any) -> list[Any]:
    """Return what a store holds of the records."""
    return [kind.get(store, record.key, record.timestamp_ms) for record in RECORDS]


def expected(name: str) -> list[Any]:
    """Return what a store of this kind should hold of the records."""
    made = KINDS[name]
    if "kv" in name or "versioned" in name:
        last_a, b = made.held("3", 40_000, NONE), made.held("2", 20_000, NONE)
        return [last_a, b, None, None, last_a]
    first_a, b, last_a = (
        made.held("1", 10_000, HEADERS),
        made.held("2", 20_000, NONE),
        made.held("3", 40_000, NONE),
    )
    return [first_a, b, None, None, last_a]


class Copying(Processor):
    """Puts each record into the global store."""

    def init(self, context: ProcessorContext) -> None:
        self.store = context.state_store("g")

    def process(self, record: Record[Any, Any]) -> None:
        self.store.put(record.key, record.value)


def with_global_store(function: Any, *, in_memory: bool = False) -> Topology:
    """Return a topology with the global store "g" of the topic "global"."""
    topology = chain(function)
    made = KINDS["kv"]
    builder = (made.in_memory if in_memory else made.persistent)("g")
    return topology.add_global_store(builder, "gs", "global", "gp", Copying, key_serde=TEXT, value_serde=TEXT)


def look_up(context: ProcessorContext, record: Record[Any, Any]) -> None:
    """Forward what the global store has of the key."""
    context.forward(record.with_value(context.state_store("g").get(record.key)))
