"""Branches of a program that come together again in a topic: columns put out what records do, in the same order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import BatchProcessor, Serdes, Topology
from statestore.dsl.kstream import KStream
from statestore.dsl.materialized import Materialized
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.windows import SessionWindows, TimeWindows
from statestore.testing import TestRecord, TopologyTestDriver

TEXT, INT64, BYTES = Serdes.string(), Serdes.int64(), Serdes.bytes()
OUTPUTS = ["x", "y"]
KEPT = Materialized().with_store_in_memory()
WINDOWS = {
    "windows": TimeWindows.of_size_and_grace(5, 10).advance_by(3),
    "sessions": SessionWindows.of_inactivity_gap_and_grace(4, 10),
}
Step = tuple[int, str]
"""Which of the streams before it goes on, and how."""


def counted(stream: KStream, how: str) -> KStream:
    """The changes of a count, without the windows of their keys, where there are some."""
    grouped: Any = stream.group_by_key()
    grouped = grouped.windowed_by(WINDOWS[how]) if how in WINDOWS else grouped
    counts = grouped.count(materialized=KEPT.with_caching_enabled() if how == "cached" else KEPT).to_stream()
    if how not in WINDOWS:
        return counts.map_values(str, value_serde=TEXT)
    return counts.map(lambda window, count: (window.key, f"{window} {count}"), key_serde=TEXT, value_serde=TEXT)


STEPS: dict[str, Callable[[KStream], KStream]] = {
    "pass": lambda stream: stream.filter(lambda key, value: value != "b"),
    "change": lambda stream: stream.map_values(lambda value: f"<{value}>", value_serde=TEXT),
    "deduplicate": lambda stream: stream.deduplicate(6, grace=10, materialized=KEPT),
    **{how: (lambda stream, how=how: counted(stream, how)) for how in ("count", "cached", "windows", "sessions")},
}
NEEDS_KEYS = {"deduplicate", "count", "cached", "windows", "sessions"}


def topology_of(steps: list[Step], sinks: list[tuple[int, str | None]], *, in_columns: bool) -> Topology:
    """A program of streams, of which some are put out to topics; None has each record choose one."""
    builder = StreamsBuilder(in_columns=in_columns)
    streams = [builder.stream(topic, key_serde=TEXT, value_serde=TEXT) for topic in ("in", "other")]
    has_keys = [True, True]
    for place, how in steps:
        place %= len(streams)
        if how in NEEDS_KEYS and not has_keys[place]:
            how = "change"
        streams.append(STEPS[how](streams[place]))
        has_keys.append(has_keys[place] and how not in WINDOWS)
    for number, (place, topic) in enumerate(sinks):
        chosen: Any = topic or (lambda record, metadata: OUTPUTS[len(record.value or "") % 2])
        streams[place % len(streams)].to(chosen, name=f"sink-{number}")
    for number in range(2):
        streams[number].to("all", name=f"all-{number}")
    return builder.build()


def put_out(topology: Topology, batches: list[tuple[str, list[TestRecord]]]) -> dict[str, list[Any]]:
    """What each topic gets, in its order."""
    with TopologyTestDriver(topology) as driver:
        inputs = {name: driver.create_input_topic(name, key_serde=TEXT, value_serde=TEXT) for name in ("in", "other")}
        for topic, batch in batches:
            inputs[topic].pipe_micro_batch(batch)
        return {
            topic: driver.create_output_topic(topic, key_serde=BYTES, value_serde=BYTES).read_records_to_list()
            for topic in (*OUTPUTS, "all")
        }


RECORDS = st.builds(TestRecord, st.sampled_from("kl"), st.sampled_from(["a", "b", None]), st.integers(0, 25))
BATCHES = st.lists(
    st.tuples(st.sampled_from(["in", "in", "other"]), st.lists(RECORDS, min_size=2, max_size=6)), min_size=1, max_size=3
)
PROGRAMS = st.lists(st.tuples(st.integers(0, 8), st.sampled_from(sorted(STEPS))), min_size=1, max_size=4)
SINKS = st.lists(st.tuples(st.integers(0, 8), st.sampled_from([*OUTPUTS, None])), min_size=1, max_size=4)


@settings(max_examples=200, deadline=None)
@given(steps=PROGRAMS, sinks=SINKS, batches=BATCHES)
def test_each_topic_has_the_records_in_one_order(
    steps: list[Step], sinks: list[tuple[int, str | None]], batches: list[tuple[str, list[TestRecord]]]
) -> None:
    by_records, in_columns = (
        put_out(topology_of(steps, sinks, in_columns=in_columns), batches) for in_columns in (False, True)
    )
    assert in_columns == by_records


@pytest.mark.parametrize(
    ("sinks", "goes_in_columns"),
    [
        ([(2, "x"), (0, "y")], True),
        ([(2, "x"), (1, "x")], True),  # records of two sources, which do not overtake each other
        ([(2, "x"), (0, "x")], False),
        ([(2, "x"), (2, "x")], False),
        ([(2, None)], True),
        ([(2, None), (0, "x")], False),
        ([(2, None), (0, None)], False),
    ],
)
def test_only_branches_that_share_a_topic_go_by_records(
    sinks: list[tuple[int, str | None]], goes_in_columns: bool
) -> None:
    builder = StreamsBuilder()
    streams = [builder.stream(topic, key_serde=TEXT, value_serde=TEXT) for topic in ("in", "other")]
    streams.append(streams[0].group_by_key().count().to_stream())
    for place, topic in sinks:
        chosen: Any = topic or (lambda record, metadata: "x")
        streams[place].to(chosen)
    nodes = builder.build().processors.values()
    assert any(isinstance(node.supplier(), BatchProcessor) for node in nodes) is goes_in_columns
