"""Joins of streams do in columns, with rows of both sides at once, what they do record by record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Headers, Processor, Record, Serdes, Topology
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.dsl.joins.joined import StreamJoined
from statestore.dsl.kstream import KStream
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors.joins import stream_stream_joining_columns
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.windows import JoinWindows
from statestore.errors import ProcessorError
from statestore.format.records.header_bytes import encode_headers
from statestore.headers.topic_columns import SourceFields, source_batch
from statestore.processor import column_sources
from statestore.processor.column_sources import are_cut_short, sources_together
from statestore.processor.context import ProcessorContext, TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.recovery.commit.changelog import batch_changelog
from statestore.recovery.commit.pointer_fields import BatchEnd

TEXT, JSON = Serdes.string(), Serdes.json()
TOPICS = ("left", "right", "third")
Program = Callable[[KStream, KStream, KStream, JoinWindows, Any], KStream]


def pair(key: str, left: Any, right: Any) -> Any:
    if "bad" in (left, right):
        raise ValueError(f"{left} and {right}")
    return [key, left, right]


def text(value: Any) -> str:
    return str(value)


class Marks(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        self._context.forward(record.with_value(f"{record.value}!"))


def two(left: KStream, right: KStream, third: KStream, windows: JoinWindows, policy: Any) -> KStream:
    stored = StreamJoined().with_store_name("kept").with_stores_in_memory()
    return left.join(right, pair, windows, stored, headers=policy, value_serde=JSON)


def two_with_steps(left: KStream, right: KStream, third: KStream, windows: JoinWindows, policy: Any) -> KStream:
    several = left.flat_map_values(lambda value: [value, value] if value else [value], value_serde=TEXT)
    # Of some values no serde makes a column: then all of that part go on as single records.
    mixed = right.map_values(lambda value: {value} if value == "b" else value, value_serde=TEXT)
    some = mixed.filter(lambda key, value: value != {"b"})
    joined = two(several, some, third, windows, policy)
    return joined.map_values(text, value_serde=TEXT)


def three(left: KStream, right: KStream, third: KStream, windows: JoinWindows, policy: Any) -> KStream:
    stored = StreamJoined().with_store_name("of-three").with_stores_in_memory()
    both = two(left, right, third, windows, policy).map_values(text, value_serde=TEXT)
    return third.join(both, pair, windows, stored, headers=policy, value_serde=JSON)


def latest(left: KStream, right: KStream, third: KStream, windows: JoinWindows, policy: Any) -> KStream:
    joined = two(left, right, third, windows, policy)
    return joined.group_by_key().last(headers="append", materialized=Materialized().with_store_in_memory()).to_stream()


def merged_with_one(left: KStream, right: KStream, third: KStream, windows: JoinWindows, policy: Any) -> KStream:
    return two(left, right, third, windows, policy).map_values(text, value_serde=TEXT).merge(left)


def beside_another(left: KStream, right: KStream, third: KStream, windows: JoinWindows, policy: Any) -> KStream:
    right.merge(third).group_by_key().count().to_stream().map_values(text, value_serde=TEXT).to("counts")
    return two(left, right, third, windows, policy)


def beside_one_of_records(left: KStream, right: KStream, third: KStream, windows: JoinWindows, policy: Any) -> KStream:
    left.process(Marks).to("counts", value_serde=TEXT)
    return two(left, right, third, windows, policy)


def into_one_topic(left: KStream, right: KStream, third: KStream, windows: JoinWindows, policy: Any) -> KStream:
    for side in (left, right):
        side.to("both")
    return two(left, right, third, windows, policy)


def with_itself(left: KStream, right: KStream, third: KStream, windows: JoinWindows, policy: Any) -> KStream:
    return two(left, left.merge(right), third, windows, policy)


PROGRAMS: dict[str, tuple[Program, list[set[str]]]] = {
    "two": (two, [{"left", "right"}]),
    "with steps": (two_with_steps, [{"left", "right"}]),
    "three": (three, [{"left", "right", "third"}]),
    "latest": (latest, [{"left", "right"}]),
    "beside another": (beside_another, [{"left", "right"}]),
    "merged with one": (merged_with_one, []),
    "into one topic": (into_one_topic, []),
    "beside one of records": (beside_one_of_records, []),
    "with itself": (with_itself, []),
}
"""And the topics whose records go on together."""
POLICIES: list[Any] = [
    "latest",
    "first",
    "merge_distinct",
    "append",
    "none",
    lambda one, other: Headers([*other, *one]),
]
WINDOWS = [(5, 5, 3), (0, 4, 0), (-2, 6, 1), (70_000, 3, 0)]


def topology_of(program: Program, windows: tuple[int, int, int], policy: Any, *, in_columns: bool) -> Topology:
    builder = StreamsBuilder(in_columns=in_columns)
    before_ms, after_ms, grace_ms = windows
    within = JoinWindows(before_ms, after_ms, grace_ms)
    streams = [builder.stream(topic, key_serde=TEXT, value_serde=TEXT) for topic in TOPICS]
    program(*streams, within, policy).to("out", value_serde=JSON)
    return builder.build()


@st.composite
def batches(draw: st.DrawFn) -> list[list[SourceFields]]:
    near, last = st.integers(0, 30), 2**63 - 1 - 10**6
    at = draw(st.sampled_from([near, near, near, st.integers(0, 300_000), st.sampled_from([0, 5, last, last + 3])]))
    record = st.tuples(
        st.sampled_from(["left", "right", "left", "right", "third"]),
        st.sampled_from([b"k", b"k", b"l", b"k\0\0\0\0\0\0\0\0\0\0\0\0", None]),
        st.sampled_from([b"a", b"b", b"c", None, b"bad"] if draw(st.integers(0, 9)) == 0 else [b"a", b"b", b"c", None]),
        at,
        st.lists(st.tuples(st.sampled_from("hi"), st.sampled_from([b"1", b"2"])), max_size=2),
    )
    made: list[list[SourceFields]] = []
    for rows in draw(st.lists(st.lists(record, min_size=1, max_size=16), min_size=1, max_size=3)):
        made.append([(t, 0, n, ms, k, v, encode_headers(h)) for n, (t, k, v, ms, h) in enumerate(rows)])
    return made


def ran(topology: Topology, given_: list[list[SourceFields]], *, in_columns: bool) -> list[Any]:
    """What batches put out, keep, log and count, each committed before the next."""
    committed = {name: MemoryByteStore(name) for name in topology.store_builders}
    end, found = BatchEnd(), list[Any]()
    for batch in given_:
        context = TaskRecordContext(end.stream_time_ms)
        written = {name: WriteSet(store) for name, store in committed.items()}
        logs = {name: batch_changelog(builder.spec) for name, builder in topology.store_builders.items()}
        stores = build_stores(
            topology,
            context,
            lambda name: StoreBacking(written[name], logs[name], end.store_times_ms.get(name, -1)),  # noqa: B023
        )
        task = Task(topology, 0, stores, context, processor_metadata=end.processor_metadata)
        try:
            task.process_batch(source_batch(batch)) if in_columns else task.process(batch)
            task.end_batch(0)
        except ProcessorError as error:
            return [*found, str(error)]
        left = task.leave()
        end = replace(left, processor_metadata={**end.processor_metadata, **left.processor_metadata})
        for name, store in written.items():
            store.apply_to(committed[name])
        kept = {name: list(store.range(None, None)) for name, store in committed.items()}
        logged = {name: log.records() for name, log in logs.items()}
        outputs = {topic: [each for each in task.outputs if each[0] == topic] for topic in ("out", "counts", "both")}
        found.append((outputs, end, kept, logged, task.counted))
    return found


@pytest.fixture(autouse=True, params=[False, True], scope="module")
def _parts_are_small(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patches:
        if request.param:
            for name, most in (("_ROWS_FIRST", 2), ("_KEPT_MOST", 2), ("_PAIRS_MOST", 2)):
                patches.setattr(stream_stream_joining_columns, name, most)
        yield


@settings(max_examples=60, deadline=None)
@given(
    given_=batches(),
    program=st.sampled_from(sorted(PROGRAMS)),
    windows=st.sampled_from(WINDOWS),
    policy=st.sampled_from(POLICIES),
)
def test_columns_do_what_records_do(
    given_: list[list[SourceFields]], program: str, windows: tuple[int, int, int], policy: Any
) -> None:
    in_columns, by_records, of_records = (
        ran(
            topology_of(PROGRAMS[program][0], windows, policy, in_columns=way != "records"),
            given_,
            in_columns=way == "columns",
        )
        for way in ("columns", "single", "records")
    )
    assert in_columns == by_records
    assert in_columns == of_records


@pytest.mark.parametrize("name", PROGRAMS)
def test_topics_that_alternate_go_on_together_where_nothing_else_needs_their_order(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program, expected = PROGRAMS[name]
    topology = topology_of(program, WINDOWS[0], "latest", in_columns=True)
    groups: dict[str, set[str]] = {}
    for source, group in sources_together(topology).items():
        groups.setdefault(group, set()).update(topology.sources[source].topics or ())
    assert list(groups.values()) == expected
    monkeypatch.setattr(column_sources, "_ROWS_MIN", 128)
    by_turns = [(TOPICS[number % 2], 0, number, number, None, b"v", b"") for number in range(256)]
    is_wanted = not expected and topology.has_nodes_either_way
    assert are_cut_short(topology, {}, lambda: source_batch(by_turns)) == is_wanted
