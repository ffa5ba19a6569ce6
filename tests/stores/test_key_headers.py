"""Serdes of keys that take headers: what the conformance suites don't ask of every stack."""

from __future__ import annotations

from typing import Any

import pytest

from statestore import (
    AggregationWithHeaders,
    Headers,
    Processor,
    Record,
    Serdes,
    Stores,
    Topology,
    ValueTimestampHeaders,
)
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.errors import SerializationError
from statestore.format.records.header_bytes import parse_count
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import ChangelogRecord, EveryWrite
from statestore.stores.stores import StoreBuilder
from statestore.testing import TopologyTestDriver
from tests.stores.in_memory import NAME, builder, content, put, store_of


def _numbered(key: str, headers: Headers | None) -> bytes:
    if headers is None:
        return f"none {key}".encode()
    headers.add("key", key.encode())
    return key.encode()


def _read(data: bytes, headers: Headers | None) -> str:
    written = None if headers is None else headers.last_header("key")
    return f"{data.decode()} {None if written is None else written.value}"


NAMED = Serdes.of_headers("named", _numbered, _read)
"""Adds each key to the headers, and reads it with the one that it finds there."""
IGNORANT = Serdes.of_headers("ignorant", lambda key, headers: key, lambda data, headers: data)


def held(value: Any, headers: Headers | None = None) -> Any:
    return ValueTimestampHeaders.make(value, 1, headers)


class Logged:
    """A store in memory, its record and its changelog."""

    def __init__(self, kind: str = "with headers", *, cached: bool = False) -> None:
        made: StoreBuilder[Any] = builder(kind, (NAMED, Serdes.int64()))
        made = made.with_caching_enabled() if cached else made
        self.context = TaskRecordContext()
        self.context.timestamp_ms = 7
        self.context.headers = Headers([("of", b"record")])
        self._changelog = EveryWrite(made.spec)
        self.store = made.build(MemoryByteStore(NAME), changelog=self._changelog, context=self.context)

    def records(self) -> list[tuple[bytes, bool, list[Any]]]:
        self.store.flush()

        def shown(record: ChangelogRecord) -> tuple[bytes, bool, list[Any]]:
            return record.key, record.value is None, list(Headers.from_bytes(record.header_bytes))

        return [shown(record) for record in self._changelog.records()]


def _with_schema(value: bytes, headers: Headers | None) -> bytes:
    assert headers is not None
    headers.add("schema", b"1")
    return value


@pytest.mark.parametrize("kind", ["with headers", "windows", "sessions", "versions"])
def test_headers_of_the_serde_of_keys_come_before_those_of_the_serde_of_values(kind: str) -> None:
    values = Serdes.of_headers("with schema", _with_schema, lambda data, headers: data)
    store = store_of(kind, serdes=(NAMED, values))
    given = Headers([("h", b"1")])
    if kind == "versions":
        store.put("k", b"v", 10, given)
        headers = store.get("k").headers
    else:
        put(kind, store, "k", AggregationWithHeaders(b"v", given) if kind == "sessions" else held(b"v", given))
        headers = content(kind, store)[0][1].headers
    assert list(headers) == [("h", b"1"), ("key", b"k"), ("schema", b"1")]
    assert list(given) == [("h", b"1")]


@pytest.mark.parametrize("cached", [False, True])
def test_each_delete_is_logged_with_the_headers_that_its_own_key_left(cached: bool) -> None:
    logged = Logged(cached=cached)
    logged.store.put_all([("a", held(1)), ("b", None), ("c", held(2)), ("d", None)])
    logged.store.put_if_absent("e", None)
    logged.store.put("f", None)
    record = ("of", b"record")
    assert logged.records() == [
        (b"a", False, [("key", b"a")]),
        (b"b", True, [record, ("key", b"b")]),
        (b"c", False, [("key", b"c")]),
        (b"d", True, [record, ("key", b"d")]),
        (b"e", True, [record, ("key", b"e")]),
        (b"f", True, [record, ("key", b"f")]),
    ]
    assert list(logged.context.headers) == [record]


def test_what_a_key_left_is_of_its_own_delete_alone() -> None:
    logged = Logged()
    with pytest.raises(SerializationError):
        logged.store.put_all([("a", None), ("b", held("text"))])  # type: ignore[arg-type]
    logged.store.delete("c")
    # As an expired entry is deleted: not through the store.
    logged.store._inner.put(b"d", None)
    record = ("of", b"record")
    assert logged.records() == [(b"c", True, [record, ("key", b"c")]), (b"d", True, [record])]


def test_headers_that_are_given_are_left_as_they_are() -> None:
    logged = Logged()
    given = Headers([("mine", None)])
    logged.store.put("a", held(1, given))
    logged.store.put_if_absent("b", held(1, given))
    logged.store.put_all([("c", held(1, given.freeze()))])
    assert list(given) == [("mine", None)]
    assert [key for key, _ in logged.store.all()] == ["a b'a'", "b b'b'", "c b'c'"]
    assert [list(found.headers) for _, found in logged.store.all()] == [
        [("mine", None), ("key", key)] for key in (b"a", b"b", b"c")
    ]


@pytest.mark.parametrize("kind", ["with headers", "windows", "sessions", "versions"])
def test_a_serde_of_keys_that_does_not_look_at_headers_parses_none(kind: str) -> None:
    store = store_of(kind, serdes=(IGNORANT, Serdes.bytes()))
    plain = store_of(kind, serdes=(Serdes.bytes(), Serdes.bytes()))
    headers = Headers.from_bytes(Headers([("h", b"1")]).to_bytes())
    before = parse_count()
    for each in (store, plain):
        if kind == "versions":
            each.put(b"k", b"v", 10, headers)
        elif kind == "sessions":
            put(kind, each, b"k", AggregationWithHeaders(b"v", headers))
        else:
            put(kind, each, b"k", ValueTimestampHeaders(b"v", 1, headers))
        assert len(content(kind, each)) == 1
    assert parse_count() == before
    assert content(kind, store) == content(kind, plain)


@pytest.mark.parametrize("kind", ["plain", "timestamped", "plain windows", "plain sessions", "plain versions"])
def test_a_serde_of_keys_gets_none_where_a_store_has_none(kind: str) -> None:
    logged = Logged(kind)
    put(kind, logged.store, "k", None)
    ((key, _, headers),) = logged.records()
    assert (key.startswith(b"none k"), headers) == (True, [])


class Keep(Processor):
    """Puts records as they are, and forwards what it finds under their key."""

    def init(self, context: Any) -> None:
        self.context = context
        self.store = context.state_store("s")

    def process(self, record: Record[Any, Any]) -> None:
        self.store.put_value(record.key, record.value)
        self.context.forward(record.with_value(self.store.get(record.key).value))


def test_keys_get_headers_in_a_topology_and_in_a_facade_over_its_store() -> None:
    text = Serdes.string()
    supplier = Stores.in_memory_key_value_store("s")
    topology = Topology().add_source("in", "in", key_serde=text, value_serde=text)
    topology.add_processor("keep", Keep, ["in"])
    topology.add_state_store(Stores.timestamped_key_value_store_with_headers_builder(supplier, NAMED, text), "keep")
    topology.add_sink("out", "out", ["keep"], key_serde=text, value_serde=text)
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", key_serde=text, value_serde=text).pipe_input(
            "k", "v", headers=Headers([("of", b"record")])
        )
        (sent,) = driver.create_output_topic("out", key_serde=text, value_serde=text).read_records_to_list()
        assert (sent.value, list(sent.headers)) == ("v", [("of", b"record")])
        ((key, found),) = driver.get_state_store("s").all()
        assert (key, list(found.headers)) == ("k b'k'", [("of", b"record"), ("key", b"k")])
        facade = driver.get_key_value_store("s")
        assert facade is not None
        facade.put("other", "w")
        assert list(facade.all()) == [("k b'k'", "v"), ("other b'other'", "w")]
        assert facade.get("other") == "w"
