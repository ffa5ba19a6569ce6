"""Records that came before are left out, by key, header, columns or a function; within a time, over restarts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Serdes, Topology, ValueTimestampHeaders
from statestore.dsl.materialized import Materialized
from statestore.dsl.row_serde import row_serde
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.errors import ProcessorError, TopologyError
from statestore.testing import TestRecord, TopologyTestDriver

TEXT = Serdes.string()
GOLDEN = Path(__file__).parents[1] / "golden" / "passed-times.json"


def distinct(within_ms: int, *, by: Any = None, grace_ms: int = 0, in_columns: bool = False) -> Topology:
    builder = StreamsBuilder(in_columns=in_columns)
    records = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    records.deduplicate(within_ms, by=by, grace=grace_ms, materialized=Materialized.as_("passed")).to("out")
    return builder.build()


def passed(topology: Topology, records: list[TestRecord], **options: Any) -> tuple[list[TestRecord], dict[str, float]]:
    with TopologyTestDriver(topology, **options) as driver:
        driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT).pipe_micro_batch(records)
        counted = {name.rpartition(".")[2]: number for name, number in driver.metrics().items() if "." in name}
        return driver.create_output_topic("out", key_serde=TEXT, value_serde=TEXT).read_records_to_list(), counted


def distinct_of(records: list[TestRecord], size: int, within_ms: int, **options: Any) -> list[TestRecord]:
    """Return what passes of records that come in batches of a size."""
    with TopologyTestDriver(distinct(within_ms, **options)) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        for first in range(0, len(records), size):
            source.pipe_micro_batch(records[first : first + size])
        return driver.create_output_topic("out", key_serde=TEXT, value_serde=TEXT).read_records_to_list()


def test_of_a_key_one_record_passes_within_the_time() -> None:
    records = [TestRecord("k", str(time), time, [("trace", b"%d" % time)]) for time in (10, 0, 20, 21, 25)]
    found, counted = passed(distinct(10, grace_ms=20), records)
    assert found == [records[0], records[3]]
    assert counted == {"duplicate_records": 3}


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("id", [0, 1, 3, 4, 5, 6]),
        (lambda key, value: value[0], [0, 1, 5]),
        (lambda key, value: None, [0, 1, 2, 3, 4, 5, 6]),
    ],
)
def test_what_makes_two_records_the_same(by: str | Callable[[str, str], Any], expected: list[int]) -> None:
    records = [
        TestRecord("k", "ax", 0, [("id", b"1")]),
        TestRecord("k", "bx", 0, [("id", b"2")]),
        TestRecord("k", "ay", 1, [("id", b"3"), ("id", b"1")]),
        TestRecord("k", "by", 1),
        TestRecord("k", "bz", 2),
        TestRecord("k", "cx", 2, [("id", None)]),
        TestRecord("k", "cy", 2, [("id", b"1"), ("id", None)]),
    ]
    assert passed(distinct(10, by=by), records)[0] == [records[row] for row in expected]


def test_rows_are_the_same_that_are_so_in_some_columns() -> None:
    builder, rows = StreamsBuilder(), Serdes.json()
    records = builder.stream("in", key_serde=TEXT, value_serde=rows)
    records.deduplicate(10, by=["order", "line"]).to("out")
    values = [
        {"order": 1, "line": 2, "note": "a"},
        {"order": 1, "line": "2", "note": "b"},
        {"line": 2, "order": 1, "note": "c"},
        None,
        {"order": 1},
        {"order": 1, "line": None},
        None,
    ]
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=rows)
        source.pipe_micro_batch([TestRecord("k", value, 0) for value in values])
        out = driver.create_output_topic("out", key_serde=TEXT, value_serde=rows)
        assert out.read_values_to_list() == [values[row] for row in (0, 1, 3, 4, 6)]
        with pytest.raises(ProcessorError, match="reads columns 'order', 'line', but the value is list, not a dict"):
            source.pipe_input("k", [1, 2])


def test_what_is_too_late_to_know_and_what_has_no_key_is_left_out_and_counted() -> None:
    records = [
        TestRecord("k", "v", 100),
        TestRecord("l", "v", 85),
        TestRecord("m", "v", 84),
        TestRecord(None, "v", 100),
    ]
    found, counted = passed(distinct(10, grace_ms=5), records)
    assert found == records[:2]
    assert counted == {"dropped_records": 2, "late_records": 1}


def test_a_restart_forgets_nothing(tmp_path: Path) -> None:
    first, again = TestRecord("k", "v", 100), TestRecord("k", "w", 101)
    assert passed(distinct(10), [first], state_dir=tmp_path)[0] == [first]
    found, counted = passed(distinct(10), [again, TestRecord("l", "late", 80)], state_dir=tmp_path)
    assert found == []
    assert counted == {"duplicate_records": 1, "dropped_records": 1, "late_records": 1}


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("size", [1, 8])
def test_what_passed_counts_for_records_out_of_order_until_they_are_late(in_columns: bool, size: int) -> None:
    """Whether it passed in this batch or in one before, and whatever of the same passed since."""
    records = [TestRecord("k", str(number), time) for number, time in enumerate([100, 85, 100, 85, 111, 90, 92, 86])]
    found = distinct_of(records, size, 10, grace_ms=20, in_columns=in_columns)
    assert found == [records[0], records[1], records[4]]


@pytest.mark.parametrize("in_columns", [False, True])
@pytest.mark.parametrize("size", [1, 5])
def test_what_passed_counts_up_to_the_last_millisecond_in_which_the_same_may_come(in_columns: bool, size: int) -> None:
    """At a stream time of 140, one of 110 is not late yet, and near 100 alone."""
    records = [TestRecord(key, "v", time) for key, time in (("k", 100), ("k", 85), ("l", 140), ("k", 121), ("k", 110))]
    assert distinct_of(records, size, 10, grace_ms=20, in_columns=in_columns) == records[:4]


@pytest.mark.parametrize("in_columns", [False, True])
def test_what_has_passed_is_stored_as_it_was_and_read_as_it_was_before(in_columns: bool) -> None:
    golden = json.loads(GOLDEN.read_text())
    topology = distinct(golden["within_ms"], grace_ms=golden["grace_ms"], in_columns=in_columns)
    with TopologyTestDriver(topology) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        source.pipe_micro_batch([TestRecord(golden["key"], "v", time_ms) for time_ms in golden["passed_ms"]])
        store = driver.get_state_store("passed")
        ((key, held),) = store.all()
        found = {"key": key.hex(), "timestamp_ms": held.timestamp_ms, "value": held.value.hex()}
        assert found == golden["entry"]
        before = golden["entry_of_one_time"]
        value = bytes.fromhex(before["value"])
        store.put(bytes.fromhex(before["key"]), ValueTimestampHeaders.make(value, before["timestamp_ms"]))
        near_what_is_forgotten, near_what_is_known = golden["passed_ms"][0], before["timestamp_ms"] - 10
        for time_ms in (near_what_is_known, near_what_is_forgotten):
            source.pipe_input(TestRecord(golden["key"], "again", time_ms))
        out = driver.create_output_topic("out", key_serde=TEXT, value_serde=TEXT)
        passed_ms = [record.timestamp_ms for record in out.read_records_to_list()]
        assert passed_ms == [*golden["passed_ms"], near_what_is_forgotten]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60), st.sampled_from([None, b"1", b"2"])), max_size=40),
    st.integers(0, 15),
    st.integers(0, 30),
    st.integers(1, 40),
    st.booleans(),
)
def test_random_records(
    drawn: list[tuple[str, int, bytes | None]], within_ms: int, grace_ms: int, size: int, in_columns: bool
) -> None:
    """What has passed is remembered for ever here, all of it: a record is the same as any that is so near."""
    records = [TestRecord(key, "v", time, [] if which is None else [("id", which)]) for key, time, which in drawn]
    expected: list[TestRecord] = []
    remembered: list[tuple[tuple[str, bytes | None], int]] = []
    stream_time = -1
    for record, (key, time, which) in zip(records, drawn, strict=True):
        stream_time = max(stream_time, time)
        is_late = stream_time - time > within_ms + grace_ms
        is_there = any(same == (key, which) and abs(time - then) <= within_ms for same, then in remembered)
        if which is None or not (is_late or is_there):
            expected.append(record)
            remembered.append(((key, which), time))
    assert distinct_of(records, size, within_ms, by="id", grace_ms=grace_ms, in_columns=in_columns) == expected


def test_records_with_other_keys_meet_those_of_the_same_ones() -> None:
    builder = StreamsBuilder()
    by_value = builder.stream("in", key_serde=TEXT, value_serde=TEXT).select_key(lambda _, value: value, key_serde=TEXT)
    by_value.deduplicate(10, name="once").to("out")
    topology = builder.build()
    assert topology.repartition_topics == {"once-repartition"}
    with TopologyTestDriver(topology) as driver:
        driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT).pipe_record_list(
            [TestRecord(key, value, time_ms) for time_ms, (key, value) in enumerate(("ax", "by", "cx", "dy", "ez"))]
        )
        out = driver.create_output_topic("out", key_serde=TEXT, value_serde=TEXT)
        assert [(record.key, record.timestamp_ms) for record in out.read_records_to_list()] == [
            ("x", 0),
            ("y", 1),
            ("z", 4),
        ]


def test_keys_that_can_not_be_written_and_negative_spans_are_refused() -> None:
    stream = StreamsBuilder().stream("in", key_serde=TEXT, value_serde=TEXT)
    with pytest.raises(TopologyError, match="the serde of their keys is unknown"):
        stream.select_key(lambda key, value: value).deduplicate(10)
    with pytest.raises(ValueError, match="within"):
        stream.deduplicate(-1)


def test_columns_that_are_not_there_are_refused() -> None:
    builder = StreamsBuilder()
    with pytest.raises(ValueError, match="at least one column"):
        builder.stream("in", key_serde=TEXT, value_serde=TEXT).deduplicate(10, by=[])
    known = builder.stream("rows", key_serde=TEXT, value_serde=row_serde(pa.struct({"order": pa.int64()})))
    with pytest.raises(TopologyError, match="have no column 'lines'; they have order"):
        known.deduplicate(10, by=["order", "lines"])


def test_the_greatest_values_of_a_key() -> None:
    builder = StreamsBuilder()
    words = builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key()
    words.top(2, by=len).to_stream().to("out", value_serde=Serdes.json())
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        for word in ("a", "ccc", "bb", "dd", "eee"):
            source.pipe_input(TestRecord("k", word, 0))
        found = driver.create_output_topic("out", key_serde=TEXT, value_serde=Serdes.json()).read_values_to_list()
    assert found == [["a"], ["ccc", "a"], ["ccc", "bb"], ["ccc", "bb"], ["ccc", "eee"]]
    with pytest.raises(ValueError, match="limit"):
        words.top(0)
