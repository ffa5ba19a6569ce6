"""Interceptors in a task: every hook fires, in its place, and their stores are the query's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from statestore import Record, Serdes, Stores, Topology
from statestore.errors import ProcessorError, TopologyError
from statestore.interception.interceptor import InterceptorContext
from statestore.middleware import EmittedRecord, FailureHandling, IngestedRecord, Interceptor
from statestore.stores.builder import PartStore
from statestore.testing import TopologyTestDriver
from tests.support.driver_topologies import TEXT, chain, input_of, output_of
from tests.support.interceptors import Named, Stamp, Upper
from tests.support.processors import Passing

SEEN = PartStore(Stores.key_value_store_builder(Stores.persistent_key_value_store("seen"), TEXT, Serdes.int64()))


class Counting(Interceptor):
    """Counts the records of each key in a store, and notes its calls, those of the wall clock too if it has ticks."""

    kind = "counting"

    def __init__(self, calls: list[Any], tick_ms: int | None = None) -> None:
        self._calls = calls
        self._tick_ms = tick_ms

    def stores(self) -> Sequence[PartStore]:
        return (SEEN,)

    def init(self, context: InterceptorContext) -> None:
        self._store = context.state_store("seen")
        self._calls.append(("init", context.shard))
        if self._tick_ms is not None:
            context.schedule_wall_clock(self._tick_ms, lambda now_ms: self._calls.append(("tick", now_ms)))

    def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
        key = (record.key or b"").decode()
        self._store.put(key, (self._store.get(key) or 0) + 1)
        return [record]

    def finish_batch(self) -> None:
        self._calls.append("finish")

    def close(self) -> None:
        self._calls.append("close")


class Watching(Named):
    """Notes what is written to stores and what expires there."""

    def __init__(self, seen: list[Any]) -> None:
        super().__init__("watching")
        self._seen = seen

    def on_changelog(self, store: str, records: Iterable[Any]) -> None:
        self._seen.extend((store, record.key, record.value) for record in records)

    def on_expiry(self, store: str, key: bytes, value: bytes | None) -> None:
        self._seen.append(("expired", store, key))


def test_stores_of_an_interceptor_are_the_querys_and_outlive_a_restart() -> None:
    calls: list[Any] = []
    counting = Counting(calls, tick_ms=100)
    with TopologyTestDriver(chain(), interceptors=[counting]) as driver:
        source = input_of(driver)
        source.pipe_input("k", "a")
        driver.restart()
        source.pipe_input("k", "b")
        driver.advance_wall_clock_time(250)
        store = driver.get_key_value_store("seen")
        assert store is not None
        assert store.get("k") == 2
        driver.restart(restore_from="changelog")
        source.pipe_input("k", "c")
        assert store is not None
        assert [record.value for record in output_of(driver).read_records_to_list()] == ["a", "b", "c"]
    assert calls.count(("init", 0)) == calls.count("close") == 3
    assert [call for call in calls if call[0] == "tick"] == [("tick", 250)]
    assert calls.index("finish") > calls.index(("init", 0))
    assert not hasattr(counting, "_store"), "each start has a copy of its own"


def test_b6_each_placement_fires_in_its_turn() -> None:
    seen: list[Any] = []
    store = Stores.key_value_store_builder(Stores.persistent_key_value_store("s"), TEXT, TEXT).with_ttl(50)

    def put(context: Any, record: Record[Any, Any]) -> None:
        context.state_store("s").put(record.key, record.value)
        context.forward(record)

    with TopologyTestDriver(chain(put, store), interceptors=[Upper("typed"), Stamp("bytes"), Watching(seen)]) as driver:
        source, target = input_of(driver), output_of(driver)
        source.pipe_input("a", "one")
        source.pipe_input("b", "silent")
        (record,) = target.read_records_to_list()
        assert (record.value, list(record.headers)) == ("out: ONE", [("in", b"bytes"), ("out", b"bytes")])
        assert ("s", b"a", b"ONE") in seen
        driver.advance_wall_clock_time(100)
        source.pipe_input("c", "later")
        assert [entry[2] for entry in seen if entry[:2] == ("expired", "s")] == [b"a", b"b"]


def test_a_store_is_recorded_with_its_interceptor_and_others_come_and_go_unrecorded() -> None:
    plain = chain()
    around = plain.with_interceptors([Counting([]), Stamp("x")])
    assert plain.to_json() == chain().to_json()
    assert [node for node in around.to_json() if node["type"] == "interceptor"] == [
        {"type": "interceptor", "name": "interceptor-counting", "stores": ["seen"]}
    ]
    around.validate()


def _write(value: str, headers: Any) -> bytes:
    if headers is not None:
        headers.add("charset", b"utf-16-be")
    return value.encode("utf-16-be")


def _read(data: bytes, headers: Any) -> str:
    charset = None if headers is None else headers.last_header("charset")
    return data.decode("utf-8" if charset is None else charset.value.decode())


def test_b7_a_serde_sees_the_headers_that_interceptors_left_and_they_see_those_that_it_added() -> None:
    seen: list[Any] = []

    class Seeing(Named):
        def on_ingest(self, record: IngestedRecord) -> Iterable[IngestedRecord]:
            record.headers.add("charset", b"utf-16-be")
            return [record]

        def on_emit(self, record: EmittedRecord) -> Iterable[EmittedRecord]:
            seen.extend(record.headers.headers("charset"))
            return [record]

    text = Serdes.of_headers("text", _write, _read)
    topology = Topology().add_source("in", "in", key_serde=TEXT, value_serde=text)
    topology.add_processor("p", Passing, ["in"]).add_sink("out", "out", ["p"], key_serde=TEXT, value_serde=text)
    with TopologyTestDriver(topology, interceptors=[Seeing("seeing")]) as driver:
        input_of(driver, value_serde=Serdes.bytes()).pipe_input("k", "é".encode("utf-16-be"))
        assert driver.create_output_topic("out", key_serde=TEXT, value_serde=text).read_value() == "é"
    assert [header.value for header in seen] == [b"utf-16-be"] * 2


class Later(Named):
    def on_consume(self, record: Record[str, str]) -> Iterable[Record[str, str]]:
        return [record.with_timestamp_ms(99).with_headers([("later", b"1")])]


def test_what_is_consumed_is_what_the_processor_is_at() -> None:
    seen: list[Any] = []

    def note(context: Any, record: Record[Any, Any]) -> None:
        seen.append((context.current_timestamp_ms, list(context.current_headers), record.timestamp_ms))

    with TopologyTestDriver(chain(note), interceptors=[Later("later")]) as driver:
        input_of(driver).pipe_input("k", "v", timestamp_ms=5)
    assert seen == [(99, [("later", b"1")], 99)]


def test_the_name_of_a_node_can_not_be_an_interceptors() -> None:
    topology = chain()
    topology.add_processor("interceptor-a", Passing, ["in"])
    with pytest.raises(TopologyError, match="there already is a node 'interceptor-a'"):
        topology.with_interceptors([Stamp("a")])


class AsksForAnothers(Named):
    def init(self, context: InterceptorContext) -> None:
        context.state_store("s")


class Failing(Named):
    def __init__(self, hook: str) -> None:
        super().__init__("failing")
        setattr(self, hook, self._fail)

    def _fail(self, *_: Any) -> Any:
        raise KeyError("no luck")


def test_what_an_interceptor_must_not_have_is_refused_at_the_start() -> None:
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), TEXT, TEXT)
    with pytest.raises(TopologyError, match="'s', which is not among its stores"):
        TopologyTestDriver(chain(lambda *_: None, store), interceptors=[AsksForAnothers("a")])
    twice = Stores.key_value_store_builder(Stores.in_memory_key_value_store("seen"), TEXT, TEXT)
    with pytest.raises(TopologyError, match="there already is a state store 'seen', as interceptor-counting needs"):
        TopologyTestDriver(chain(lambda *_: None, twice), interceptors=[Counting([])])


@pytest.mark.parametrize(
    ("hook", "doing"),
    [
        ("init", "in init()"),
        ("on_consume", "record in-0 at offset 0"),
        ("on_send", "record in-0 at offset 0"),
        ("on_emit", "on a record to topic 'out'"),
        ("on_changelog", "in on_changelog() of store 's'"),
        ("finish_batch", "in finish_batch()"),
        ("close", "in close()"),
    ],
)
def test_what_an_interceptor_raises_ends_the_query_and_names_it(hook: str, doing: str) -> None:
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("s"), TEXT, TEXT)

    def put(context: Any, record: Record[Any, Any]) -> None:
        context.state_store("s").put(record.key, record.value)
        context.forward(record)

    def run() -> None:
        topology = chain(put, store)
        with TopologyTestDriver(
            topology, interceptors=[Failing(hook)], failures=FailureHandling(processing="continue")
        ) as driver:
            input_of(driver).pipe_input("k", "v")

    with pytest.raises(ProcessorError, match="no luck") as raised:
        run()
    assert raised.value.node == "failing"
    assert doing in str(raised.value)
