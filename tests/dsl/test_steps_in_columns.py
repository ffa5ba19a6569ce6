"""Steps with functions do in columns what they do record by record: outputs, headers, errors, what is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from statestore import (
    BatchProcessor,
    Headers,
    Processor,
    ProcessorContext,
    Record,
    RecordColumns,
    Serdes,
    Topology,
    Windowed,
)
from statestore.dsl.aggregates.aggregable_stream import ReducibleStream
from statestore.dsl.kstream import KStream
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors import stateless
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.windowed_serdes import time_windowed_serde
from statestore.dsl.windows import SessionWindows, TimeWindows
from statestore.errors import StateStoreError
from statestore.headers.topic_columns import source_batch
from statestore.interception.failures import FailureHandling
from statestore.processor import column_sources
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.interceptors import Named

TEXT, INT64, DOUBLE, BYTES = Serdes.string(), Serdes.int64(), Serdes.double(), Serdes.bytes()
JSON = Serdes.json()


class OwnText(str):
    """A text, but not of the type that a column is made of at once."""


def size(value: Any) -> int:
    return len(str(value or ""))


def failing(value: Any) -> Any:
    if value == "bad":
        raise ValueError("this one")
    return value


STEPS: dict[str, Callable[[KStream], KStream]] = {
    "filter": lambda stream: stream.filter(lambda key, value: size(value) % 2),
    "filter not": lambda stream: stream.filter_not(lambda key, value: key is None),
    "peek": lambda stream: stream.peek(lambda key, value: None),
    "upper": lambda stream: stream.map_values(lambda value: f"{value}".upper(), value_serde=TEXT),
    "own text": lambda stream: stream.map_values(lambda value: OwnText(f"{value}."), value_serde=TEXT),
    "size": lambda stream: stream.map_values(lambda key, value: size(key) + size(value), value_serde=INT64),
    "half": lambda stream: stream.map_values(lambda value: size(value) / 2, value_serde=DOUBLE),
    "whole": lambda stream: stream.map_values(size, value_serde=DOUBLE),
    "any": lambda stream: stream.map_values(lambda value: value or 0),
    "letters": lambda stream: stream.flat_map_values(lambda value: list(str(value or "")), value_serde=TEXT),
    "key of value": lambda stream: stream.select_key(lambda key, value: str(value) if value else None, key_serde=TEXT),
    "swap": lambda stream: stream.map(
        lambda key, value: (str(value), key and str(key)), key_serde=TEXT, value_serde=TEXT
    ),
    "twice": lambda stream: stream.flat_map(
        lambda key, value: [(None, str(value)), [str(value), None]], key_serde=TEXT, value_serde=TEXT
    ),
    "JSON": lambda stream: stream.map_values(
        lambda value: value and {"v": [value], "b": size(value)}, value_serde=JSON
    ),
    "windows": lambda stream: counted(
        with_known_values(stream).group_by_key().windowed_by(TimeWindows.of_size_and_grace(10, 9).advance_by(5))
    ),
    "sessions": lambda stream: counted(
        with_known_values(stream).group_by_key().windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 9))
    ),
    "keys with windows": lambda stream: stream.select_key(
        lambda key, value: Windowed(str(key), size(value), size(value) + 5), key_serde=time_windowed_serde(TEXT, 5)
    ),
    "count by its key": lambda stream: counted(with_known_values(stream).group_by_key()),
    "keys of JSON": lambda stream: stream.select_key(lambda key, value: [size(value) % 2], key_serde=JSON),
    "table": lambda stream: table_of(stream),
    "again": lambda stream: with_known_values(stream).repartition(key_serde=stream._key_serde or TEXT),
    "branches": lambda stream: branches_of(stream),
    "one branch": lambda stream: one_branch_of(stream),
    "count": lambda stream: counts_of(stream),
}
FAILING: dict[str, Callable[[KStream], KStream]] = {
    "map_values": lambda stream: stream.map_values(failing, value_serde=TEXT),
    "filter": lambda stream: stream.filter(lambda key, value: failing(value) or True),
    "branch": lambda stream: (
        stream.split()
        .branch(lambda key, value: failing(value) or True, name="b")
        .no_default_branch()["KSTREAM-BRANCH-0000000001b"]
    ),
    "pairs": lambda stream: stream.flat_map(
        lambda key, value: [(key, value), None if value == "bad" else (key, value)], key_serde=TEXT, value_serde=TEXT
    ),
    "what is too large": lambda stream: stream.map_values(
        lambda value: 2**70 if value == "bad" else size(value), value_serde=INT64
    ),
    "what has no UTF-8": lambda stream: stream.map_values(
        lambda value: "\ud800" if value == "bad" else value, value_serde=TEXT
    ),
    "what can't be written of a count": lambda stream: (
        stream.filter(lambda key, value: key is not None)
        .group_by_key()
        .count(materialized=Materialized().with_store_in_memory())
        .to_stream()
        .map_values(lambda count: 1 if count == 3 else str(count), value_serde=TEXT)
    ),
    "what JSON can't hold": lambda stream: stream.map_values(
        lambda value: {1, 2} if value == "bad" else [value], value_serde=JSON
    ),
    "a rank": lambda stream: ranked(stream.group_by_key()),
    "a rank in windows": lambda stream: ranked(
        stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10).advance_by(5))
    ),
    "a rank in sessions": lambda stream: ranked(
        stream.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5))
    ),
    "a reducer": lambda stream: reduced(stream.group_by_key(), lambda old, new: failing(new)),
    "a reducer in windows": lambda stream: reduced(
        stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10).advance_by(5)),
        lambda old, new: failing(new),
    ),
    "a reducer in sessions": lambda stream: reduced(
        stream.group_by_key().windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(5)),
        lambda old, new: failing(new),
    ),
    "what a store can't hold": lambda stream: reduced(
        stream.group_by_key(), lambda old, new: "\ud800" if new == "bad" else None if old == "" else new
    ),
    "what windows can't hold": lambda stream: reduced(
        stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10).advance_by(5)),
        lambda old, new: 1 if new == "bad" else new,
    ),
    "headers": lambda stream: reduced(stream.group_by_key(), lambda old, new: new, headers=failing_headers),
    "a value of a table": lambda stream: (
        last_of(stream).map_values(failing, value_serde=TEXT).filter(lambda key, value: True).to_stream()
    ),
    "a table's, which can't be written": lambda stream: (
        last_of(stream).map_values(lambda value: 1 if value == "bad" else value, value_serde=TEXT).to_stream()
    ),
    "what can't be written": lambda stream: stream.map_values(
        lambda value: 1 if value == "bad" else value, value_serde=TEXT
    ),
}


def reduced(grouped: Any, reducer: Callable[[Any, Any], Any], **options: Any) -> KStream:
    table: KTable = grouped.reduce(reducer, materialized=Materialized().with_store_in_memory(), **options)
    return table.to_stream().select_key(lambda key, value: str(key), key_serde=TEXT)


def failing_headers(old: Headers, new: Headers) -> Headers:
    if len(old) > 1:
        raise ValueError("this one")
    return new


def ranked(grouped: ReducibleStream[KStream]) -> KStream:
    top: KTable = grouped.top(2, by=failing, materialized=Materialized().with_store_in_memory())
    return top.to_stream().map_values(str, value_serde=TEXT).select_key(lambda key, value: str(key), key_serde=TEXT)


def last_of(stream: KStream) -> KTable:
    kept = Materialized().with_store_in_memory()
    return stream.filter(lambda key, value: key is not None).group_by_key().last(materialized=kept)


def branches_of(stream: KStream) -> KStream:
    """The branch of long values; the others end in topics of their own."""
    split = stream.split(name=f"{stream._node}-")
    split.branch(lambda key, value: size(value) > 3, name="long")
    split.branch(lambda key, value: value is None, name="none", chain=lambda branch: branch.to("nones"))
    branches = split.default_branch(name="rest", chain=lambda branch: branch.to("rest"))
    return branches[f"{stream._node}-long"]


def one_branch_of(stream: KStream) -> KStream:
    """The only branch: other records go nowhere."""
    split = stream.split(name=f"{stream._node}-")
    return split.branch(lambda key, value: key == "k", name="k").no_default_branch()[f"{stream._node}-k"]


def table_of(stream: KStream) -> KStream:
    counted = (
        with_known_values(stream)
        .group_by(lambda key, value: str(size(value) % 2), key_serde=TEXT)
        .count(materialized=Materialized().with_store_in_memory())
    )
    odd = counted.map_values(lambda count: {"n": count} if count % 3 else None, value_serde=JSON)
    odd.filter(lambda key, value: key == "1" or value["n"] > 1).changes().map_values(str, value_serde=TEXT).to("rest")
    return odd.map_values(lambda key, value: float(int(key) + value["n"]), value_serde=DOUBLE).to_stream()


def with_known_values(stream: KStream) -> KStream:
    return stream.map_values(str, value_serde=TEXT) if stream._value_serde is None else stream


def counts_of(stream: KStream) -> KStream:
    grouped = with_known_values(stream).group_by(
        lambda key, value: None if value is None else str(value), key_serde=TEXT
    )
    return counted(grouped)


def counted(grouped: ReducibleStream[KStream]) -> KStream:
    return grouped.count(materialized=Materialized().with_store_in_memory()).to_stream()


def topology_of(names: list[str], steps: dict[str, Callable[[KStream], KStream]], *, in_columns: bool) -> Topology:
    builder = StreamsBuilder(in_columns=in_columns)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    for name in names:
        stream = steps[name](stream)
    stream.to("out")
    return builder.build()


def run(topology: Topology, batches: list[list[TestRecord]], **failures: str) -> dict[str, Any]:
    """What each topic gets, in its order, and the error that ends it."""
    handling = FailureHandling(dead_letters="dead", **failures) if failures else None
    found: dict[str, Any] = {"error": None}
    with TopologyTestDriver(topology, failures=handling) as driver:
        source = driver.create_input_topic("in", key_serde=BYTES, value_serde=BYTES)
        for batch in batches:
            try:
                source.pipe_micro_batch(batch)
            except StateStoreError as error:
                found["error"] = f"{type(error).__name__}: {error}"
                return found
        found["counted"] = {name: number for name, number in driver.metrics().items() if "." in name}
        for topic in ("out", "nones", "rest", "dead"):
            output = driver.create_output_topic(topic, key_serde=BYTES, value_serde=BYTES)
            found[topic] = output.read_records_to_list()
    return found


@pytest.fixture(autouse=True)
def _parts_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stateless, "_ROWS_MAX", 4)
    monkeypatch.setattr(stateless, "_LOOK_AFTER", 2)


def texts(*drawn: str | None) -> st.SearchStrategy[bytes | None]:
    return st.sampled_from([text if text is None else text.encode() for text in drawn])


HEADERS = st.lists(st.tuples(st.sampled_from("hi"), st.sampled_from([b"1", b"", None])), max_size=2)
VALUES = ("a", "to be", "bé", "", None)


def batches_of(*values: str | None) -> st.SearchStrategy[list[list[TestRecord]]]:
    records = st.builds(TestRecord, texts("k", "l", None), texts(*values), st.integers(0, 25), HEADERS)
    return st.lists(st.lists(records, min_size=1, max_size=7), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(names=st.lists(st.sampled_from(sorted(STEPS)), min_size=1, max_size=4), batches=batches_of(*VALUES))
def test_columns_do_what_records_do(names: list[str], batches: list[list[TestRecord]]) -> None:
    in_columns = run(topology_of(names, STEPS, in_columns=True), batches)
    assert in_columns["error"] is None
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(column_sources, "_ROWS_MIN", 100)
        assert run(topology_of(names, STEPS, in_columns=True), batches) == in_columns
    if "whole" not in names:  # in columns, its values are floats
        assert run(topology_of(names, STEPS, in_columns=False), batches) == in_columns


TEXTS = texts(
    "{}", ' {"b": 1, "a": 1e2}', '{"a":1,"a":2}', "null", "1e999", '"\\ud800"', '"é"', "[1", "1,2", "NaN", "", None
)


UNWRITABLE = [[TestRecord(b"{}", value, 1) for value in (b"1e999", b"{}")]]


@example(batches=UNWRITABLE, on_bad_bytes="fail", steps="last")
@example(batches=UNWRITABLE, on_bad_bytes="fail", steps="first")
@settings(max_examples=100, deadline=None)
@given(
    batches=st.lists(st.lists(st.builds(TestRecord, TEXTS, TEXTS, st.integers(0, 9)), max_size=7), min_size=1),
    on_bad_bytes=st.sampled_from(["fail", "continue", "dead_letter"]),
    steps=st.sampled_from(["none", "first", "last", "mapped", "counted"]),
)
def test_json_in_columns_is_what_it_is_by_records(
    batches: list[list[TestRecord]], on_bad_bytes: str, steps: str
) -> None:
    def made_of(stream: KStream) -> KStream:
        kept = Materialized().with_store_in_memory()
        if steps in ("first", "last"):
            table: KTable = getattr(stream.group_by_key(), steps)(materialized=kept)
            return table.to_stream().map_values(repr, value_serde=TEXT)
        if steps == "mapped":
            return stream.map_values(lambda key, value: [key, value], value_serde=JSON)
        return stream.group_by_key().count(materialized=kept).to_stream() if steps == "counted" else stream

    def topology(in_columns: bool) -> Topology:
        builder = StreamsBuilder(in_columns=in_columns)
        made_of(builder.stream("in", key_serde=JSON, value_serde=JSON)).to("out")
        return builder.build()

    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(column_sources, "_ROWS_MIN", 0)
        columns, records = (
            run(topology(in_columns), batches, deserialization=on_bad_bytes) for in_columns in (True, False)
        )
    for found in (columns, records):  # in columns, what can't be written to a store is not said to be of one record
        found["error"] = found["error"] and found["error"].partition(":")[0]
    assert columns == records


@pytest.mark.parametrize("stage", ["none", "processing", "production"])
@pytest.mark.parametrize("step", FAILING)
@settings(max_examples=15, deadline=None)
@given(batches=batches_of(*VALUES, "bad"))
def test_who_fails_is_named_or_left_out(step: str, stage: str, batches: list[list[TestRecord]]) -> None:
    handling = {} if stage == "none" else {stage: "dead_letter"}
    by_records, in_columns = (
        run(topology_of([step], FAILING, in_columns=in_columns), batches, **handling) for in_columns in (False, True)
    )
    assert in_columns == by_records


def test_what_is_written_is_read_beside_what_is_not() -> None:
    values = iter([1, "text", 2.5, None])
    builder = StreamsBuilder()
    mixed = builder.stream("in", key_serde=TEXT, value_serde=TEXT).map_values(
        lambda _: next(values), value_serde=DOUBLE
    )
    mixed.map_values(repr, value_serde=TEXT).to("out")
    found = run(builder.build(), [[TestRecord(b"k", b"v", 1)] * 4])
    assert [record.value for record in found["out"]] == [b"1.0", b"'text'", b"2.5", b"None"]


@pytest.mark.parametrize("rows_min", [1, 3, 100])
def test_short_runs_of_topics_go_one_by_one_and_none_is_lost(monkeypatch: pytest.MonkeyPatch, rows_min: int) -> None:
    monkeypatch.setattr(column_sources, "_ROWS_MIN", rows_min)
    builder = StreamsBuilder()
    for topic in ("a", "b"):
        stream = builder.stream(topic, key_serde=TEXT, value_serde=TEXT)
        stream.map_values(str.upper, value_serde=TEXT).to(f"of-{topic}")
    task = Task(builder.build(), 0, {}, TaskRecordContext())
    topics = [*"abaaaabbab", *"bbbb"]
    records = [(topic, 0, number, number, None, f"v{number}".encode(), b"") for number, topic in enumerate(topics)]
    task.process_batch(source_batch(records))
    assert task.outputs == [
        (f"of-{topic}", number, None, f"V{number}".encode(), b"") for number, topic in enumerate(topics)
    ]


@pytest.mark.parametrize(
    ("header_bytes", "value_bytes", "rows"),
    [(10, 10, [8_000, 2_000]), (600, 10, [4_000, 4_000, 2_000]), (10, 4_000, [1_000] * 10)],
)
def test_what_one_record_becomes_goes_on_in_parts_of_bounded_size(
    monkeypatch: pytest.MonkeyPatch, header_bytes: int, value_bytes: int, rows: list[int]
) -> None:
    monkeypatch.setattr(stateless, "_ROWS_MAX", 8_000)
    monkeypatch.setattr(stateless, "_BYTES_MAX", 2_600_000)
    monkeypatch.setattr(stateless, "_LOOK_AFTER", 1_000)
    seen: list[int] = []

    class Sizes(BatchProcessor):
        def process_batch(self, records: RecordColumns) -> None:
            seen.append(len(records))

    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    made = stream.flat_map_values(lambda value: [value * value_bytes] * 10_000, value_serde=TEXT)
    made.process(Sizes)
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        source.pipe_micro_batch([TestRecord("k", "v", 1, [("h", b"h" * header_bytes)])])
    assert seen == rows


def test_steps_take_columns_where_all_serdes_have_some() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    counted = stream.filter(lambda key, value: True, name="filtered").map_values(len, value_serde=INT64, name="sized")
    counted.map_values(str, name="unknown").filter(lambda key, value: True, name="below").to("out")
    made = {name: node.supplier() for name, node in builder.build().processors.items()}
    assert {name for name, each in made.items() if isinstance(each, BatchProcessor)} == {"filtered", "sized"}


class Marks(Processor):
    """Changes the headers of the very record that its siblings get, too."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        record.headers.add("marked", b"1")
        self.context.forward(record)


def test_what_takes_records_below_a_step_has_it_take_records_too() -> None:
    builder = StreamsBuilder()
    passed = builder.stream("in", key_serde=TEXT, value_serde=TEXT).filter(lambda key, value: True)
    passed.process(Marks).to("nones", key_serde=TEXT, value_serde=TEXT)
    passed.to("out")
    found = run(builder.build(), [[TestRecord(b"k", b"v", number) for number in range(3)]])
    # As in Kafka, whoever comes after it sees what a processor has done to a record's headers.
    assert [record.headers for record in found["out"]] == [Headers([("marked", b"1")])] * 3


class LongOnes(Named):
    """Lets long values in."""

    def on_consume(self, record: Record[str, str]) -> list[Record[str, str]]:
        return [record] * (len(record.value) > 1)


def test_an_interceptor_that_sees_records_has_aggregates_take_records() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.group_by_key().count(materialized=Materialized().with_store_in_memory()).to_stream().to("out")
    with TopologyTestDriver(builder.build(), interceptors=[LongOnes("long")]) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        source.pipe_micro_batch([TestRecord("k", value, 1) for value in ("aa", "b", "cc")])
        found = driver.create_output_topic("out", key_serde=TEXT, value_serde=INT64).read_key_values_to_list()
    assert found == [("k", 1), ("k", 2)]
