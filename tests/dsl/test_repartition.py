"""Programs that change keys before a step that keeps state: what `test_against_kafka` can't see of them."""

from __future__ import annotations

import pyarrow as pa
import pytest

from statestore import Headers, Serdes, Topology
from statestore.dsl import Aggregate, Change, Materialized, StreamsBuilder, TimeWindows, time_windowed_serde
from statestore.dsl.change import change_serde
from statestore.dsl.row_serde import row_serde
from statestore.errors import DeserializationError, SerializationError, TopologyError
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


def test_a_table_by_another_key_goes_on_after_a_restart() -> None:
    builder = StreamsBuilder()
    sizes = builder.table("in", key_serde=TEXT, value_serde=INT64)
    by = sizes.group_by(lambda key, value: (key[0], value), key_serde=TEXT, value_serde=INT64)
    by.sum(headers="merge_distinct").to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=INT64)
        source.pipe_input(TestRecord("a1", 5, 1, Headers([("by", b"1")])))
        source.pipe_input(TestRecord("a2", 7, 2, Headers([("by", b"2")])))
        driver.restart(restore_from="changelog")
        source.pipe_input(TestRecord("a1", 6, 1, Headers([("by", b"1")])))
        source.pipe_input(TestRecord("a2", None, 4, Headers([("by", b"4")])))
        found = driver.create_output_topic("out", key_serde=TEXT, value_serde=INT64).read_records_to_list()
    assert [(each.value, each.timestamp_ms) for each in found] == [(5, 1), (12, 2), (13, 2), (6, 4)]
    assert [header.value for header in found[-1].headers] == [b"1", b"2", b"4"]


def test_keys_of_a_table_that_are_equal_but_written_otherwise_are_two() -> None:
    builder, json = StreamsBuilder(), Serdes.json()
    prices = builder.table("in", key_serde=TEXT, value_serde=json)
    prices.group_by(lambda _, price: ([price], 1), key_serde=json, value_serde=INT64).count().to_stream().to("out")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=json)
        for price in (1, 1, 1.0, True):
            source.pipe_input("pear", price)
        found = driver.create_output_topic("out", key_serde=Serdes.bytes(), value_serde=INT64).read_key_values_to_list()
    assert found == [(b"[1]", 1), (b"[1]", 1), (b"[1]", 0), (b"[1.0]", 1), (b"[1.0]", 0), (b"[true]", 1)]


def test_each_stream_of_several_keeps_its_own_time_over_a_restart() -> None:
    builder, windows = StreamsBuilder(), TimeWindows.of_size_with_no_grace(10)
    fast, slow = (builder.stream(topic, key_serde=TEXT, value_serde=INT64) for topic in ("fast", "slow"))
    several = fast.group_by_key().cogroup(lambda _, value, total: total + value)
    several = several.cogroup(slow.group_by_key(), lambda _, value, total: total - value).windowed_by(windows)
    kept = Materialized.as_("totals").with_value_serde(INT64).with_retention(100)
    table = several.aggregate(int, materialized=kept)
    table.to_stream().to("out")
    with pytest.raises(TopologyError, match="is not an aggregate by window"):
        table.late_records()
    with pytest.raises(TopologyError, match="needs a merger if"):
        several.aggregate(int, lambda key, one, other: one)
    with TopologyTestDriver(builder.build()) as driver:
        sources = {
            name: driver.create_input_topic(name, key_serde=TEXT, value_serde=INT64) for name in ("fast", "slow")
        }
        sources["slow"].pipe_input(TestRecord("a", 1, 5))
        sources["fast"].pipe_input(TestRecord("a", 4, 35))
        driver.restart(restore_from="changelog")
        sources["fast"].pipe_input(TestRecord("a", 100, 6))
        sources["slow"].pipe_input(TestRecord("a", 2, 6))
        out = driver.create_output_topic("out", key_serde=time_windowed_serde(TEXT, 10), value_serde=INT64)
        found = [(each.key.start_ms, each.value) for each in out.read_records_to_list()]
        assert driver.metrics()["dropped-records-total"] == 1
    assert found == [(0, -1), (30, 4), (0, -3)]


@pytest.mark.parametrize(
    ("change", "written"),
    [
        (Change("new"), b"new\1"),
        (Change(None, "old"), b"old\0"),
        (Change("new", "old"), b"\6newold\2"),
        (Change("", ""), b"\0\2"),
    ],
)
def test_changes_are_written_as_in_kafka(change: Change, written: bytes) -> None:
    serde = change_serde(TEXT)
    assert serde.serialize(change) == written
    assert serde.deserialize(written) == change


@pytest.mark.parametrize("wrong", [b"", b"new\3", b"\2", b"\6ne\2", b"\5new\2", b"\xff\xff\xff\xff\xff\2", b"\xff\1"])
def test_bytes_that_are_no_change_are_refused(wrong: bytes) -> None:
    with pytest.raises(DeserializationError, match=r"^(change of )?string: "):
        change_serde(TEXT).deserialize(wrong)


def test_a_change_of_nothing_is_not_written() -> None:
    with pytest.raises(SerializationError, match="a change must have a new or an old value"):
        change_serde(TEXT).serialize(Change(None))


def test_a_stream_is_grouped_by_a_column() -> None:
    rows = row_serde(pa.struct([("country", pa.string()), ("amount", pa.int32()), ("at", pa.date32())]))
    builder = StreamsBuilder()
    sales = builder.stream("in", key_serde=TEXT, value_serde=rows)
    by_country = sales.group_by("country").agg({"total": Aggregate.sum("amount")}).to_stream()
    by_country.to("totals")
    by_country.group_by("total").count().to_stream().to("alike")
    for column, problem in (("nowhere", "no column 'nowhere'; they have country, amount, at"), ("at", "writes date32")):
        with pytest.raises(TopologyError, match=problem):
            sales.group_by(column)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=Serdes.json())
        for country, amount in (("se", 5), ("no", 5), (None, 7)):
            source.pipe_input("k", {"country": country, "amount": amount})
        totals = driver.create_output_topic("totals", key_serde=TEXT, value_serde=Serdes.json())
        assert totals.read_key_values_to_list() == [("se", {"total": 5}), ("no", {"total": 5})]
        assert driver.metrics()["dropped-records-total"] == 1
        alike = driver.create_output_topic("alike", key_serde=INT64, value_serde=INT64)
        assert alike.read_key_values_to_list() == [(5, 1), (5, 2)]


def test_two_groupings_of_one_name_are_refused() -> None:
    stream = StreamsBuilder().stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.select_key(lambda _, value: value, key_serde=TEXT).group_by_key(name="same").count()
    with pytest.raises(TopologyError, match="same-repartition-filter"):
        stream.select_key(lambda _, value: value, key_serde=TEXT).group_by_key(name="same").count()
