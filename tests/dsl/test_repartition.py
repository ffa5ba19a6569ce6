"""Programs that change keys before a step that keeps state: what `test_against_kafka` can't see of them."""

from __future__ import annotations

import pytest

from statestore import Headers, Serdes, Topology
from statestore.dsl import StreamsBuilder
from statestore.errors import TopologyError
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.interceptors import ColumnStamp, Stamp

TEXT, INT64 = Serdes.string(), Serdes.int64()


def word_count(**grouped: str) -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key_serde=TEXT, value_serde=TEXT)
    words = lines.flat_map_values(lambda line: line.lower().split(), value_serde=TEXT)
    words.group_by(lambda _, word: word, key_serde=TEXT, **grouped).count().to_stream().to("counts")
    return builder.build()


def test_words_are_counted_with_the_headers_of_their_lines() -> None:
    with TopologyTestDriver(word_count(name="words"), application_id="app") as driver:
        lines = driver.create_input_topic("lines", key_serde=TEXT, value_serde=TEXT)
        lines.pipe_input(TestRecord("k", "To be or", 5, Headers([("line", b"1")])))
        lines.pipe_input(TestRecord("l", "not to be", 3, Headers([("line", b"2")])))
        counts = driver.create_output_topic("counts", key_serde=TEXT, value_serde=INT64)
        found = [
            (each.key, each.value, each.timestamp_ms, each.headers.last_header("line").value)
            for each in counts.read_records_to_list()
        ]
        between = driver.create_output_topic("app-words-repartition", key_serde=TEXT, value_serde=TEXT)
        passed = [(each.key, each.value, each.timestamp_ms) for each in between.read_records_to_list()]
    # A count has the latest time of what it counts.
    assert found == [
        ("to", 1, 5, b"1"),
        ("be", 1, 5, b"1"),
        ("or", 1, 5, b"1"),
        ("not", 1, 3, b"2"),
        ("to", 2, 5, b"2"),
        ("be", 2, 5, b"2"),
    ]
    assert passed == [(word, word, 5) for word in ("to", "be", "or")] + [(w, w, 3) for w in ("not", "to", "be")]


@pytest.mark.parametrize("stamp", [Stamp, ColumnStamp])
def test_interceptors_see_what_comes_in_and_goes_out_and_nothing_between(stamp: type[Stamp]) -> None:
    with TopologyTestDriver(word_count(name="words"), application_id="app", interceptors=[stamp("s")]) as driver:
        driver.create_input_topic("lines", key_serde=TEXT, value_serde=TEXT).pipe_input("k", "word")
        between = driver.create_output_topic("app-words-repartition", key_serde=TEXT, value_serde=TEXT).read_record()
        (counted,) = driver.create_output_topic("counts", key_serde=TEXT, value_serde=INT64).read_records_to_list()
    assert [header.key for header in between.headers] == ["in"]
    assert [header.key for header in counted.headers] == ["in", "out"]


def test_a_restart_goes_on_with_what_was_divided() -> None:
    with TopologyTestDriver(word_count()) as driver:
        lines = driver.create_input_topic("lines", key_serde=TEXT, value_serde=TEXT)
        lines.pipe_input("k", "be be")
        driver.restart(restore_from="changelog")
        lines.pipe_input("k", "be")
        counts = driver.create_output_topic("counts", key_serde=TEXT, value_serde=INT64)
        assert [each.value for each in counts.read_records_to_list()] == [1, 2, 3]


def test_two_groupings_of_one_name_are_refused() -> None:
    stream = StreamsBuilder().stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.select_key(lambda _, value: value, key_serde=TEXT).group_by_key(name="same").count()
    with pytest.raises(TopologyError, match="same-repartition-filter"):
        stream.select_key(lambda _, value: value, key_serde=TEXT).group_by_key(name="same").count()
