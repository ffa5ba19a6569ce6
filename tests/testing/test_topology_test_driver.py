"""The test driver: what it runs, in which order, what it commits, and what it does when something fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from statestore import (
    Headers,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    Stores,
    Topology,
    ValueTimestampHeaders,
)
from statestore.format.records.header_bytes import parse_count
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import (
    INT64,
    KINDS,
    TEXT,
    Running,
    chain,
    changelog_of,
    forward,
    input_of,
    look_up,
    output_of,
    storing,
    with_global_store,
)
from tests.support.processors import HoldingBack

HEADERS = Headers([("h", b"1")])
STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME


def test_a_record_goes_through_with_what_it_has_and_no_header_is_parsed() -> None:
    seen = []

    def look(context: ProcessorContext, record: Record[Any, Any]) -> None:
        seen.append((context.record_metadata, context.current_stream_time_ms, context.current_system_time_ms))
        context.forward(record)

    with TopologyTestDriver(chain(look), initial_wall_clock_time_ms=9) as driver:
        topic = input_of(driver)
        topic.pipe_record_list([TestRecord("k", "v", 5, HEADERS), TestRecord("k", "w", 3)])
        assert output_of(driver).read_records_to_list() == [TestRecord("k", "v", 5, HEADERS), TestRecord("k", "w", 3)]
        assert seen == [(("in", 0, 0), 5, 9), (("in", 0, 1), 5, 9)]
        assert (driver.stream_time_ms, driver.wall_clock_time_ms) == (5, 9)
        record = TestRecord("k", "v", 5, Headers.from_bytes(HEADERS.to_bytes()))
        before = parse_count()
        topic.pipe_input(record)
        assert parse_count() == before


@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_changelog_shows_each_write(kind: str, in_memory: bool) -> None:
    with TopologyTestDriver(storing(kind, in_memory=in_memory), application_id="orders") as driver:
        topic = input_of(driver)
        topic.pipe_input("k", "v", timestamp_ms=7, headers=HEADERS)
        topic.pipe_input("k", None, timestamp_ms=8, headers=HEADERS)
        found = changelog_of(driver, "s", "orders")
        headers = [("h", b"1")] if kind.startswith("headers-") else []
        assert [record[1:] for record in found] == [(b"v", 7, headers), (None, 8, headers)]
        assert all(record[0].startswith(b"k") for record in found)
        assert driver.produced_topic_names() == {"out", "orders-s-changelog"}


def test_a_store_without_logging_has_no_changelog() -> None:
    with TopologyTestDriver(storing("kv", change=lambda builder: builder.with_logging_disabled())) as driver:
        input_of(driver).pipe_input("k", "v")
        assert driver.produced_topic_names() == {"out"}
        assert changelog_of(driver, "s") == []
        store = driver.get_key_value_store("s")
        assert store is not None
        assert store.get("k") == "v"


def test_a_cache_is_flushed_after_each_record() -> None:
    def puts(context: ProcessorContext, record: Record[Any, Any]) -> None:
        store = context.state_store("s")
        for key, value in (("k", "1"), ("a", "2"), ("k", "3"), ("z", None)):
            store.put(key, value)

    builder = KINDS["kv"].persistent("s").with_caching_enabled()
    with TopologyTestDriver(chain(puts, builder)) as driver:
        for _ in range(2):
            input_of(driver).pipe_input("k", "v", timestamp_ms=4)
            # Kafka's order: that of each key's last write.
            assert changelog_of(driver, "s") == [(b"a", b"2", 4, []), (b"k", b"3", 4, []), (b"z", None, 4, [])]


def test_produced_topics_begin_empty_and_stay_when_they_are_read() -> None:
    topology = chain()
    topology.add_sink("chosen", lambda record, metadata: f"to-{record.key}", ["p"])
    with TopologyTestDriver(topology) as driver:
        assert driver.produced_topic_names() == set()
        input_of(driver).pipe_input("a", "v")
        assert driver.produced_topic_names() == {"out", "to-a"}
        assert output_of(driver, "to-a").read_value() == "v"
        assert driver.produced_topic_names() == {"out", "to-a"}


def again(*topics: str, first: Any) -> Topology:
    """Return a topology whose function `first` of (context) writes to topics that it reads: all end in `out`."""
    topology = chain(lambda context, record: first(context))
    topology.add_sink("chosen", lambda record, metadata: record.key, ["p"])
    topology.add_source("again", list(topics), key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("note", lambda: Noting(), ["again"])
    topology.add_sink("noted", "noted", ["note"])
    return topology


class Noting(Processor):
    """Forwards topic and timestamp of each record, as its value."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        metadata = self.context.record_metadata
        assert metadata is not None
        self.context.forward(record.with_value(f"{metadata.topic}{record.timestamp_ms}"))


# Seen at Kafka's driver 4.3.1: of equal times, its heap decides.
REPIPED = {
    "tb40 tb40 tc45 tc40 tc5 ta50 ta10 ta60": "tb40 tb40 tc45 tc40 tc5 ta50 ta10 ta60",
    "ta50 ta10 ta60 tb40 tb40 tc45 tc40 tc5": "tb40 tb40 tc45 tc40 tc5 ta50 ta10 ta60",
    "tC70 tB70 tA70 tA70 tB70": "tC70 tA70 tB70 tA70 tB70",
    "tA70 tC70 tB70 tC3 tA4 tB5": "tA70 tA4 tB70 tB5 tC70 tC3",
    "tX10 tA70 tB70 tC80": "tX10 tA70 tB70 tC80",
}


@pytest.mark.parametrize("written", REPIPED)
def test_what_is_written_to_a_topic_that_is_read_is_piped_again(written: str) -> None:
    def write(context: ProcessorContext) -> None:
        for record in written.split():
            context.forward(Record(record[:2], "v", int(record[2:])), child="chosen")

    topics = sorted({record[:2] for record in written.split()})
    with TopologyTestDriver(again(*topics, first=write)) as driver:
        input_of(driver).pipe_input("k", "v")
        assert output_of(driver, "noted").read_values_to_list() == REPIPED[written].split()
        # They can also be read where they went through.
        assert output_of(driver, topics[0]).get_queue_size() == written.count(topics[0])
        assert driver.stream_time_ms == max(int(record[2:]) for record in written.split())
        assert driver.metrics()["process-total"] == 1 + len(written.split())


def test_piped_and_piped_again_records_share_the_offsets_of_a_topic() -> None:
    offsets = []

    def note(context: ProcessorContext, record: Record[Any, Any]) -> None:
        assert context.record_metadata is not None
        offsets.append((record.value, context.record_metadata.offset))
        if record.value == "first":
            context.forward(record.with_value("again"))

    topology = Topology()
    topology.add_source("in", "in", key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("p", lambda: Running(note, None, []), ["in"])
    topology.add_sink("back", "in", ["p"])
    with TopologyTestDriver(topology) as driver:
        input_of(driver).pipe_value_list(["first", "second"])
        assert offsets == [("first", 0), ("again", 1), ("second", 2)]


def test_a_source_of_every_other_topic_takes_what_is_piped_but_not_what_is_written() -> None:
    # In Kafka a pattern that matches the topology's own output would read it for ever.
    topology = Topology()
    topology.add_source("rest", key_serde=TEXT, value_serde=TEXT)
    topology.add_sink("out", "out", ["rest"])
    with TopologyTestDriver(topology) as driver:
        input_of(driver, "anything").pipe_input("k", "v")
        input_of(driver, "out").pipe_input("k", "w")
        assert output_of(driver).read_values_to_list() == ["v", "w"]


def test_a_changelog_can_be_a_source() -> None:
    topology = storing("headers-kv")
    topology.add_source("log", "test-application-s-changelog", key_serde=TEXT, value_serde=TEXT)
    topology.add_sink("copy", "copy", ["log"])
    with TopologyTestDriver(topology) as driver:
        input_of(driver).pipe_input("k", "v", timestamp_ms=4, headers=HEADERS)
        assert output_of(driver, "copy").read_records_to_list() == [TestRecord("k", "v", 4, HEADERS)]


@pytest.mark.parametrize("in_memory", [False, True], ids=["persistent", "in memory"])
def test_a_global_store_is_fed_from_its_topic_and_seen_by_all(in_memory: bool) -> None:
    with TopologyTestDriver(with_global_store(look_up, in_memory=in_memory)) as driver:
        input_of(driver).pipe_input("k", "?")
        input_of(driver, "global").pipe_input("k", "v", timestamp_ms=99)
        input_of(driver).pipe_input("k", "?", timestamp_ms=3)
        assert output_of(driver).read_values_to_list() == [None, "v"]
        # No changelog, and no time of its own.
        assert driver.produced_topic_names() == {"out"}
        assert driver.stream_time_ms == 3
        store = driver.get_key_value_store("g")
        assert store is not None
        assert list(store.all()) == [("k", "v")]
        assert driver.get_all_state_stores().keys() == {"g"}
        for how in ("disk", "changelog"):
            driver.restart(restore_from=how)  # type: ignore[arg-type]
            input_of(driver).pipe_input("k", "?")
            assert output_of(driver).read_value() == "v"


def test_what_is_written_to_a_global_topic_is_seen_by_the_next_record() -> None:
    seen = []

    def write(context: ProcessorContext, record: Record[Any, Any]) -> None:
        seen.append(context.state_store("g").get(record.key))
        context.forward(record, child="update")
        seen.append(context.state_store("g").get(record.key))

    topology = with_global_store(write)
    topology.add_sink("update", "global", ["p"])
    with TopologyTestDriver(topology) as driver:
        input_of(driver).pipe_key_value_list([("k", "1"), ("k", "2"), ("k", "3")])
        assert seen == [None, None, "1", "1", "2", "2"]
        assert output_of(driver, "global").read_values_to_list() == ["1", "2", "3"]


def test_what_is_held_back_until_the_batch_is_done_comes_after_each_record() -> None:
    topology = Topology()
    topology.add_source("in", "in", key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("p", HoldingBack, ["in"])
    topology.add_sink("out", "out", ["p"])
    with TopologyTestDriver(topology) as driver:
        input_of(driver).pipe_value_list(["1", "2"])
        assert output_of(driver).read_values_to_list() == ["1", "2"]


def test_entries_with_a_time_to_live_go_when_the_wall_clock_says_so() -> None:
    topology = storing("headers-kv", change=lambda builder: builder.with_ttl(100))
    with TopologyTestDriver(topology) as driver:
        input_of(driver).pipe_input("k", "v", timestamp_ms=5)
        store = driver.get_timestamped_key_value_store_with_headers("s")
        plain = driver.get_key_value_store("s")
        assert store is not None
        assert plain is not None
        driver.advance_wall_clock_time(99)
        assert (plain.get("k"), store.get("k")) == ("v", ValueTimestampHeaders("v", 5, Headers()))
        driver.advance_wall_clock_time(1)
        assert (plain.get("k"), store.get("k")) == (None, None)
        assert [(key, value) for key, value, *_ in changelog_of(driver, "s")] == [(b"k", b"v"), (b"k", None)]


def test_writes_that_come_too_late_are_counted() -> None:
    with TopologyTestDriver(storing("window")) as driver:
        input_of(driver).pipe_value_list([], 0)
        input_of(driver).pipe_key_value_list([("k", "new"), ("k", "late")], 1_000_000, -1_000_000)
        assert driver.metrics()["dropped-records-total"] == 1
        assert driver.metrics()["commit-total"] == 3


def test_metrics_begin_at_zero_with_each_start() -> None:
    with TopologyTestDriver(chain()) as driver:
        names = {"process-total", "punctuate-total", "commit-total", "skipped-records-total", "dropped-records-total"}
        assert driver.metrics().keys() == names
        input_of(driver).pipe_value_list(["a", "b"])
        assert driver.metrics()["process-total"] == 2
        driver.restart()
        assert driver.metrics()["process-total"] == 0


def test_processors_are_made_initialised_and_closed() -> None:
    closed: list[str] = []
    started: list[str] = []
    with TopologyTestDriver(chain(init=lambda context: started.append(context.node), closed=closed)) as driver:
        assert (started, closed) == (["p"], [])
        driver.restart()
        assert (started, closed) == (["p", "p"], ["p"])
    assert closed == ["p", "p"]


def test_what_init_writes_is_committed() -> None:
    topology = chain(
        forward, KINDS["kv"].persistent("s"), init=lambda context: context.state_store("s").put("k", "from init")
    )
    with TopologyTestDriver(topology) as driver:
        assert changelog_of(driver, "s") == [(b"k", b"from init", 0, [])]


@pytest.fixture
def total() -> Iterator[TopologyTestDriver]:
    builder = Stores.timestamped_key_value_store_with_headers_builder(
        Stores.persistent_timestamped_key_value_store_with_headers("s"), TEXT, INT64
    )

    def process(context: ProcessorContext, record: Record[Any, Any]) -> None:
        store = context.state_store("s")
        seen = store.get(record.key)
        if seen is None or record.value > seen.value:
            store.put(record.key, ValueTimestampHeaders.make(record.value, record.timestamp_ms, record.headers))
            context.forward(record)

    with TopologyTestDriver(chain(process, builder, value_serde=INT64)) as made:
        store = made.get_timestamped_key_value_store_with_headers("s")
        assert store is not None
        store.put("a", ValueTimestampHeaders(21, 1, HEADERS))
        yield made


def test_a_maximum_is_kept_with_the_headers_of_its_record(total: TopologyTestDriver) -> None:
    topic = input_of(total, value_serde=INT64)
    out = output_of(total, value_serde=INT64)
    topic.pipe_input("a", 21)
    topic.pipe_input("a", 20)
    assert out.is_empty()
    topic.pipe_input("a", 42, timestamp_ms=2, headers=Headers([("trace", b"42")]))
    topic.pipe_input("b", 1)
    assert out.read_key_values_to_list() == [("a", 42), ("b", 1)]
    store = total.get_timestamped_key_value_store_with_headers("s")
    assert store is not None
    assert store.get("a") == ValueTimestampHeaders(42, 2, Headers([("trace", b"42")]))
