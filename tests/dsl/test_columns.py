"""Operators in columns do what they do record by record: outputs, stores, what is counted, with all policies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Headers, Serde, Serdes, Topology
from statestore.dsl.aggregable_stream import ReducibleStream
from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.windows import SessionWindows, TimeWindows
from statestore.processor.batch_processor import BatchProcessor
from statestore.stores.session import SessionStore
from statestore.testing import TestRecord, TopologyTestDriver

TEXT, INT32, INT64, DOUBLE = Serdes.string(), Serdes.int32(), Serdes.int64(), Serdes.double()
POLICIES = ["latest", "first", "merge_distinct", "append", "none"]
LONGER = "a\0\0\0\0\0\0\0\x14"
"""A key that stands between the sessions of another one."""
STEPS = ["count", "sum", "min", "max", "first", "last"]


@dataclass(frozen=True)
class Program:
    """An aggregate, and how its changes go on."""

    step: str
    value_serde: Serde[Any]
    policy: HeaderPolicy
    is_cached: bool
    wants_old: bool
    windows: TimeWindows | SessionWindows | None = None
    retention_ms: int | None = None

    def topology(self, *, in_columns: bool) -> Topology:
        builder = StreamsBuilder(in_columns=in_columns)
        source = builder.stream("in", key_serde=TEXT, value_serde=self.value_serde)
        grouped: ReducibleStream = source.group_by_key()
        if self.windows is not None:
            grouped = source.group_by_key().windowed_by(self.windows)
        kept = Materialized.as_("kept").with_store_in_memory()
        kept = kept.with_caching_enabled() if self.is_cached else kept
        kept = kept if self.retention_ms is None else kept.with_retention(self.retention_ms)
        table: KTable = getattr(grouped, self.step)(materialized=kept, headers=self.policy)
        table.to_stream().to("out")
        if self.windows is not None:
            table.late_records().to("late")
        if self.wants_old:
            # A step that takes records, below one that may forward columns.
            table.changes().map_values(lambda change: f"{change.old} -> {change.new}", value_serde=TEXT).to("changes")
        return builder.build()


@dataclass(frozen=True)
class Deduplication:
    """What makes two records the same, and for how long; what passes is counted."""

    by: str | None
    within_ms: int
    grace_ms: int
    value_serde: Serde[Any] = TEXT

    def topology(self, *, in_columns: bool) -> Topology:
        builder = StreamsBuilder(in_columns=in_columns)
        source = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
        kept = Materialized.as_("kept").with_store_in_memory()
        passed = source.deduplicate(self.within_ms, by=self.by, grace=self.grace_ms, materialized=kept)
        passed.to("out")
        passed.group_by_key().count().to_stream().to("changes")
        return builder.build()


VALUES = {
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**62), 2**62) | st.integers(-9, 9),
    DOUBLE: st.floats(),
    TEXT: st.text(max_size=2),
}
RECORDS = st.tuples(
    st.sampled_from([None, "a", "a", "b", LONGER]),
    st.integers(0, 40) | st.integers(0, 40) | st.integers(0, 150),
    st.lists(st.tuples(st.sampled_from("hi"), st.none() | st.binary(max_size=2)), max_size=3),
)


@st.composite
def programs(draw: st.DrawFn) -> Program:
    step = draw(st.sampled_from(STEPS))
    serde = draw(st.sampled_from([INT32, INT64, DOUBLE] if step in ("sum", "min", "max") else [INT64, DOUBLE, TEXT]))
    policy = HeaderPolicy.of(draw(st.sampled_from(POLICIES)))
    if draw(st.booleans()):
        policy = policy.capped(max_count=draw(st.integers(0, 3)), max_bytes=draw(st.integers(0, 20)))
    size, grace = draw(st.integers(1, 20)), draw(st.integers(0, 20))
    time_windows = TimeWindows.of_size_and_grace(size, grace).advance_by(draw(st.integers(1, size)))
    sessions = SessionWindows.of_inactivity_gap_and_grace(size - 1, 2 * grace)
    windows = draw(st.sampled_from([None, time_windows, sessions]))
    retention_ms = None if windows is None else draw(st.none() | st.just(60))
    return Program(step, serde, policy, draw(st.booleans()), draw(st.booleans()), windows, retention_ms)


def run(topology: Topology, batches: list[list[TestRecord]], value_serde: Serde[Any]) -> dict[str, Any]:
    """Return all that can be seen of a run; what fails is told by its class, and nothing after it is run."""
    seen: dict[str, Any] = {"error": None}
    with TopologyTestDriver(topology) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=value_serde)
        for batch in batches:
            try:
                source.pipe_micro_batch(batch)
            except Exception as error:
                seen["error"] = type(error.__cause__ or error).__name__
                return seen
        for topic in ("out", "late", "changes"):
            output = driver.create_output_topic(topic, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
            seen[topic] = output.read_records_to_list()
        store = driver.get_state_store("kept")
        entries = store.fetch(None, None) if isinstance(store, SessionStore) else store.all()
        seen["store"] = [(key, repr(held), held.headers) for key, held in entries]
        beside = driver.get_all_state_stores().get("kept-expiry")
        seen["expiry"] = None if beside is None else list(beside.all())
        seen["counted"] = {name: number for name, number in driver.metrics().items() if "." in name}
    return seen


@settings(max_examples=300, deadline=None)
@given(st.data(), programs())
def test_columns_do_what_records_do(data: st.DataObject, program: Program) -> None:
    drawn = st.lists(st.tuples(RECORDS, st.none() | VALUES[program.value_serde]), max_size=10)
    batches = [
        [TestRecord(key, value, time, Headers(headers)) for (key, time, headers), value in batch]
        for batch in data.draw(st.lists(drawn, min_size=1, max_size=4))
    ]
    in_columns = program.topology(in_columns=True)
    assert any(isinstance(node.supplier(), BatchProcessor) for node in in_columns.processors.values())
    by_records = run(program.topology(in_columns=False), batches, program.value_serde)
    assert run(in_columns, batches, program.value_serde) == by_records


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.lists(RECORDS, max_size=12), min_size=1, max_size=4),
    st.builds(
        Deduplication, st.sampled_from([None, "h"]), st.integers(0, 40), st.integers(0, 20) | st.integers(0, 400)
    ),
)
def test_deduplication_in_columns_does_what_it_does_by_records(
    drawn: list[list[tuple[str | None, int, list[tuple[str, bytes | None]]]]], program: Deduplication
) -> None:
    batches = [
        [TestRecord(key, f"{key} at {time}", time, Headers(headers)) for key, time, headers in batch] for batch in drawn
    ]
    in_columns = program.topology(in_columns=True)
    assert all(isinstance(node.supplier(), BatchProcessor) for node in in_columns.processors.values())
    assert run(in_columns, batches, TEXT) == run(program.topology(in_columns=False), batches, TEXT)


def test_a_session_is_seen_no_longer_than_its_retention_within_a_batch() -> None:
    windows = SessionWindows.of_inactivity_gap_and_grace(5, 10)
    program = Program("count", INT64, HeaderPolicy.of("latest"), is_cached=False, wants_old=False, windows=windows)
    batch = [TestRecord(key, 1, time) for key, time in (("a", 10), ("b", 25), ("a", 10))]
    seen = [run(program.topology(in_columns=in_columns), [batch], INT64) for in_columns in (False, True)]
    assert seen[0] == seen[1]
    assert [record.value[-1] for record in seen[1]["out"]] == [1, 1, 1]
