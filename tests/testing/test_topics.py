"""The ends of the test driver: what they take, at what time, and what they give back."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from statestore import Headers, Record, Serdes, Topology
from statestore.errors import DeserializationError, DriverError, NoRecordError, SerializationError, StateStoreError
from statestore.errors.run import InvalidTimestampError, UnknownTopicError
from statestore.testing import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver
from tests.support.driver_topologies import TEXT, chain, forward, input_of, output_of

HEADERS = Headers([("h", b"1"), ("h", None), ("", b"")])


@pytest.fixture
def driver() -> Iterator[TopologyTestDriver]:
    with TopologyTestDriver(chain(forward), initial_wall_clock_time_ms=1_000) as made:
        yield made


def times(driver: TopologyTestDriver) -> list[Any]:
    return [(record.value, record.timestamp_ms) for record in output_of(driver).read_records_to_list()]


def test_a_value_a_pair_and_a_record_can_be_piped(driver: TopologyTestDriver) -> None:
    topic, out = input_of(driver), output_of(driver)
    topic.pipe_input("only a value")
    topic.pipe_input("k", "v")
    topic.pipe_input("k", "v", timestamp_ms=5, headers=HEADERS)
    topic.pipe_input("value", timestamp_ms=6)
    topic.pipe_input(TestRecord("k", "r", 7, HEADERS))
    topic.pipe_input("k", None)
    topic.pipe_input(None)
    assert out.read_records_to_list() == [
        TestRecord(None, "only a value", 1_000),
        TestRecord("k", "v", 1_000),
        TestRecord("k", "v", 5, HEADERS),
        TestRecord(None, "value", 6),
        TestRecord("k", "r", 7, HEADERS),
        TestRecord("k", None, 1_000),
        TestRecord(None, None, 1_000),
    ]


def test_lists_are_piped_in_order(driver: TopologyTestDriver) -> None:
    topic, out = input_of(driver), output_of(driver)
    topic.pipe_value_list(["a", "b"])
    assert out.read_key_values_to_list() == [(None, "a"), (None, "b")]
    topic.pipe_key_value_list([("k", "a"), ("l", "b")])
    assert out.read_key_values_to_list() == [("k", "a"), ("l", "b")]
    records = [TestRecord("k", "a", 3, HEADERS), TestRecord("l", "b")]
    topic.pipe_record_list(records)
    assert out.read_records_to_list() == [records[0], TestRecord("l", "b", 1_000)]


def test_one_record_is_read_as_record_pair_or_value(driver: TopologyTestDriver) -> None:
    input_of(driver).pipe_key_value_list([("a", "1"), ("b", "2"), ("c", "3")])
    out = output_of(driver)
    assert (out.get_queue_size(), out.queue_size, out.is_empty()) == (3, 3, False)
    assert out.read_value() == "1"
    assert out.read_key_value() == ("b", "2")
    assert out.read_record() == TestRecord("c", "3", 1_000)
    assert (out.get_queue_size(), out.is_empty()) == (0, True)


def test_values_of_a_map_are_the_last_ones_and_keys_must_be_there(driver: TopologyTestDriver) -> None:
    topic, out = input_of(driver), output_of(driver)
    topic.pipe_key_value_list([("a", "1"), ("b", "2"), ("a", "3")])
    assert out.read_key_values_to_map() == {"a": "3", "b": "2"}
    topic.pipe_input("a", "1")
    topic.pipe_input("no key")
    topic.pipe_input("b", "2")
    with pytest.raises(DriverError, match="Null keys not allowed with read_key_values_to_map"):
        out.read_key_values_to_map()
    assert out.read_value() == "2"


def test_topics_of_one_name_share_what_is_written(driver: TopologyTestDriver) -> None:
    input_of(driver).pipe_value_list(["a", "b"])
    first, second = output_of(driver), output_of(driver)
    assert (first.read_value(), second.read_value()) == ("a", "b")
    assert first.is_empty()


def test_reading_nothing_says_whether_there_ever_was_something(driver: TopologyTestDriver) -> None:
    out = output_of(driver)
    with pytest.raises(NoRecordError, match=r"^Uninitialized topic: out$"):
        out.read_record()
    with pytest.raises(NoRecordError, match=r"^Uninitialized topic: nowhere$") as caught:
        output_of(driver, "nowhere").read_value()
    assert caught.value.topic == "nowhere"
    assert (output_of(driver, "nowhere").is_empty(), output_of(driver, "nowhere").get_queue_size()) == (True, 0)
    assert output_of(driver, "nowhere").read_records_to_list() == []
    input_of(driver).pipe_input("v")
    assert out.read_value() == "v"
    with pytest.raises(NoRecordError, match=r"^Empty topic: out$"):
        out.read_key_value()
    assert (out.read_values_to_list(), out.read_key_values_to_map()) == ([], {})


def test_an_unknown_input_topic_is_refused_when_it_is_piped_to(driver: TopologyTestDriver) -> None:
    topic = input_of(driver, "unknown")
    with pytest.raises(UnknownTopicError, match=r"no source of the topology reads topic 'unknown'.*read in"):
        topic.pipe_input("v")
    input_of(driver).pipe_input("v")
    assert output_of(driver).read_value() == "v"


def test_times_start_and_advance_as_in_kafka(driver: TopologyTestDriver) -> None:
    # Seen at Kafka's driver 4.3.1.
    topic = input_of(driver, start_timestamp_ms=100, auto_advance_ms=7)
    topic.pipe_input("a")
    topic.pipe_input("b")
    topic.pipe_input("c", timestamp_ms=500)
    topic.pipe_input("d")
    topic.advance_time(1_000)
    topic.pipe_input("e")
    assert times(driver) == [("a", 100), ("b", 107), ("c", 500), ("d", 114), ("e", 1_121)]


def test_the_time_of_a_topic_starts_at_the_wall_clock(driver: TopologyTestDriver) -> None:
    before = input_of(driver)
    driver.advance_wall_clock_time(500)
    after = input_of(driver)
    before.pipe_input("a")
    after.pipe_input("b")
    assert times(driver) == [("a", 1_000), ("b", 1_500)]


def test_lists_have_times_of_their_own_or_the_topics(driver: TopologyTestDriver) -> None:
    topic = input_of(driver, start_timestamp_ms=10, auto_advance_ms=1)
    topic.pipe_key_value_list([("k", "a"), ("k", "b")])
    topic.pipe_key_value_list([("k", "c"), ("k", "d")], 100, 20)
    topic.pipe_value_list(["e", "f"], 100, -30)
    topic.pipe_value_list(["g", "h"], start_timestamp_ms=50)
    topic.pipe_record_list([TestRecord("k", "i"), TestRecord("k", "j", 3), TestRecord("k", "l")])
    assert times(driver) == [
        *[("a", 10), ("b", 11), ("c", 100), ("d", 120), ("e", 100), ("f", 70), ("g", 50), ("h", 50)],
        *[("i", 12), ("j", 3), ("l", 13)],
    ]


def test_illegal_times_are_refused(driver: TopologyTestDriver) -> None:
    topic = input_of(driver)
    for refused in (
        lambda: topic.advance_time(-1),
        lambda: topic.pipe_input("v", timestamp_ms=-1),
        lambda: topic.pipe_input("v", timestamp_ms=1.5),
        lambda: topic.pipe_value_list(["v"], advance_ms=5),
        lambda: topic.pipe_value_list(["v"], -5),
        lambda: input_of(driver, auto_advance_ms=-1),
        lambda: input_of(driver, start_timestamp_ms=-1),
        lambda: TestRecord("k", "v", -1),
    ):
        with pytest.raises(ValueError, match=r"timestamp_ms|advance_ms"):
            refused()
    # A step back beyond the epoch: what came before it is done, and the driver goes on.
    with pytest.raises(InvalidTimestampError, match=r"in-0 at offset 1 has the timestamp -5"):
        topic.pipe_value_list(["a", "b"], 5, -10)
    topic.pipe_input("c", timestamp_ms=6)
    assert times(driver) == [("a", 5), ("c", 6)]


def test_a_record_brings_its_own_timestamp_and_headers(driver: TopologyTestDriver) -> None:
    with pytest.raises(TypeError, match="has its own timestamp and headers"):
        input_of(driver).pipe_input(TestRecord("k", "v"), timestamp_ms=3)
    assert output_of(driver).is_empty()


def test_names_of_topics_must_be_names(driver: TopologyTestDriver) -> None:
    for illegal in ("", None):
        with pytest.raises(ValueError, match="topic must be a name"):
            driver.create_input_topic(illegal, key_serde=TEXT, value_serde=TEXT)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="topic must be a name"):
            driver.create_output_topic(illegal, key_serde=TEXT, value_serde=TEXT)  # type: ignore[arg-type]


def test_a_wrong_serde_shows_itself_and_stops_nothing(driver: TopologyTestDriver) -> None:
    wrong = driver.create_input_topic("in", key_serde=TEXT, value_serde=Serdes.int64())
    with pytest.raises(SerializationError, match="int64"):
        wrong.pipe_input("k", "text")
    with pytest.raises(SerializationError):
        input_of(driver).pipe_key_value_list([("a", "1"), ("b", 2), ("c", "3")])  # type: ignore[list-item]
    input_of(driver).pipe_input("d", "4")
    reading = driver.create_output_topic("out", key_serde=TEXT, value_serde=Serdes.int64())
    with pytest.raises(DeserializationError, match="int64 needs 8 bytes"):
        reading.read_value()
    assert output_of(driver).read_key_values_to_list() == [("d", "4")]


def test_headers_are_copied_on_their_way_in_and_out() -> None:
    def change(context: Any, record: Record[Any, Any]) -> None:
        record.headers.add("seen", b"")
        context.forward(record)

    with TopologyTestDriver(chain(change)) as driver:
        headers = Headers([("h", b"1")])
        record = TestRecord("k", "v", 1, headers)
        headers.add("later", b"")
        topic, out = input_of(driver), output_of(driver)
        topic.pipe_input(record)
        topic.pipe_input(record)
        assert list(record.headers) == [("h", b"1")]
        found = out.read_records_to_list()
        assert [list(one.headers) for one in found] == [[("h", b"1"), ("seen", b"")]] * 2
        found[0].headers.add("mine", b"")
        assert len(found[1].headers) == 2


def add(header: str) -> Any:
    """A serde of text that leaves a header, and wants to see it again."""

    def serialize(value: str, headers: Headers | None) -> bytes:
        assert headers is not None
        headers.add(header, value.encode())
        return value.encode()

    def deserialize(data: bytes, headers: Headers | None) -> str:
        assert headers is not None
        found = headers.last_header(header)
        return f"{data.decode()} {None if found is None else found.value!r}"

    return Serdes.of_headers(header, serialize, deserialize)


def test_serdes_that_want_headers_get_them() -> None:
    topology = Topology()
    topology.add_source("in", "in", key_serde=add("key"), value_serde=add("value"))
    topology.add_sink("out", "out", ["in"], key_serde=TEXT, value_serde=TEXT)
    with TopologyTestDriver(topology) as driver:
        topic = driver.create_input_topic("in", key_serde=add("key"), value_serde=add("value"))
        record = TestRecord("k", "v", 1)
        topic.pipe_input(record)
        topic.pipe_input(None, "w", headers=HEADERS)
        assert len(record.headers) == 0
        out = driver.create_output_topic("out", key_serde=TEXT, value_serde=add("value"))
        first, second = out.read_record(), out.read_record()
        assert (first.key, first.value) == ("k b'k'", "v b'v' b'v'")
        assert list(first.headers) == [("key", b"k"), ("value", b"v")]
        assert (second.key, second.value) == (None, "w b'w' b'w'")
        assert list(second.headers) == [*HEADERS, ("value", b"w")]


def test_serdes_of_topics_are_told_the_topic() -> None:
    serde = Serdes.of_topics(
        "topical",
        lambda topic, headers, value: f"{value} to {topic}".encode(),
        lambda topic, headers, data: f"{data.decode()}, from {topic}",
    )
    with TopologyTestDriver(chain(forward)) as driver:
        driver.create_input_topic("in", key_serde=serde, value_serde=serde).pipe_input("k", "v")
        out = driver.create_output_topic("out", key_serde=serde, value_serde=serde)
        assert out.read_key_value() == ("k to in, from out", "v to in, from out")


def test_a_test_record_is_a_value() -> None:
    record = TestRecord("k", "v", 5, HEADERS)
    assert record == TestRecord("k", "v", 5, HEADERS)
    for other in (
        TestRecord("l", "v", 5, HEADERS),
        TestRecord("k", "w", 5, HEADERS),
        TestRecord("k", "v", 6, HEADERS),
        TestRecord("k", "v", None, HEADERS),
        TestRecord("k", "v", 5),
        "no record",
    ):
        assert record != other
    assert repr(TestRecord("k", 1, 5, Headers([("h", None)]))) == (
        "TestRecord('k', 1, timestamp_ms=5, headers=Headers([('h', None)]))"
    )
    assert TestRecord.of(Record("k", "v", 5, HEADERS)) == record
    assert pickle.loads(pickle.dumps(record)) == record
    with pytest.raises(TypeError, match="unhashable"):
        hash(record)


def test_topics_show_what_they_are(driver: TopologyTestDriver) -> None:
    assert repr(input_of(driver)) == "TestInputTopic('in', key_serde=string, value_serde=string)"
    assert repr(output_of(driver)) == "TestOutputTopic('out', key_serde=string, value_serde=string, size=0)"


def test_none_of_them_is_a_test_case() -> None:
    assert not any(kind.__test__ for kind in (TestRecord, TestInputTopic, TestOutputTopic))
    assert issubclass(NoRecordError, StateStoreError)
