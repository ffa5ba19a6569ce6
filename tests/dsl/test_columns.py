"""Operators in columns do what they do record by record: outputs, stores, what is counted, with all policies."""

from __future__ import annotations

from ast import literal_eval
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import (
    AggregationWithHeaders,
    Headers,
    Processor,
    Record,
    RecordColumns,
    Serde,
    Serdes,
    Topology,
    ValueTimestampHeaders,
    Windowed,
)
from statestore.dsl import aggregations
from statestore.dsl.aggregates.aggregable_stream import ReducibleStream
from statestore.dsl.aggregates.aggregate import Aggregate
from statestore.dsl.header_policy import HeaderPolicy
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.processors import changes_out, time_queue
from statestore.dsl.processors.aggregating_columns import ColumnUpdate
from statestore.dsl.processors.windows import windowed_aggregating
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.suppressed import BufferConfig, EmitStrategy, Suppressed
from statestore.dsl.windows import SessionWindows, TimeWindows
from statestore.format.keys.due_key import time_and_key
from statestore.middleware import Interceptor
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import BatchProcessor
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.recovery.commit.pointer_fields import COUNT_PREFIX
from statestore.stores.session import SessionStore
from statestore.testing import TestRecord, TopologyTestDriver

TEXT, INT32, INT64, DOUBLE = Serdes.string(), Serdes.int32(), Serdes.int64(), Serdes.double()
BYTES, JSON = Serdes.bytes(), Serdes.json()
POLICIES = ["latest", "first", "merge_distinct", "append", "none"]
LONGER = "a\0\0\0\0\0\0\0\x14"
"""A key that stands between the sessions of another one."""
SEVERAL = {
    "sum": Aggregate.sum("x"),
    "least": Aggregate.min("x"),
    "mean": Aggregate.mean("y"),
    "number": Aggregate.count("y"),
    "all": Aggregate.collect(lambda row: row.get("y"), 2),
}


def reduced(old: Any, new: Any) -> Any:
    """Deletes, changes what it gets, and makes what its serde reads otherwise or can't write."""
    if isinstance(old, list):
        old.append(new)
        return None if len(old) > 3 else old
    if isinstance(old, str):
        return None if new == old[-1:] else (old + new)[-4:]
    if new is None:
        raise ValueError("no value")
    if old == -new:
        return None
    return (old, {1: new}) if isinstance(new, dict) or (old > 0 and new == 4) else old + new


def begun() -> Any:
    BEGINNINGS[0] += 1
    return {"number": BEGINNINGS[0], "seen": []}


BEGINNINGS = [0]


def added(key: Any, value: Any, there: Any) -> Any:
    """Deletes, changes what it gets, and makes what its serde reads otherwise or can't write."""
    there["seen"].append((key, value))
    if value == "\0":
        there["seen"] = {1, 2}
    return None if len(there["seen"]) == 3 or value == 0 else there


def merged(key: Any, one: Any, other: Any) -> Any:
    other["seen"] += one["seen"]
    return other


def larger(key: Any, value: Any, there: Any) -> Any:
    return None if there == 3 else there + 1


def sum_of(key: Any, one: Any, other: Any) -> Any:
    return int(one + other)


def last_two(old: Headers, new: Headers) -> list[tuple[str, bytes | None]]:
    return [*old, *new][-2:]


USERS: dict[str, tuple[Any, ...]] = {"reduce": (reduced,), "aggregate": (begun, added), "number": (int, larger)}
"""Steps with functions of a user; "number" makes numbers of any values, as doubles."""
MERGERS = {"aggregate": merged, "number": sum_of}
STEPS: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(["count", "sum", "min", "max", "first", "last", "mean"], ()),
    **{"collect": (2,), "top": (2,), "agg": (SEVERAL,)},
    **USERS,
}
"""And their arguments."""


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
    is_final: bool = False
    ahead: tuple[int, ...] = ()
    """Starts of windows that the store holds before the first batch, as one that came from elsewhere may."""
    suppressed: Suppressed | None = None

    @property
    def kept_serde(self) -> Serde[Any]:
        if self.step in USERS:
            return {"reduce": self.value_serde, "aggregate": JSON, "number": DOUBLE}[self.step]
        if self.step == "count" or (self.step == "sum" and self.value_serde == INT32):
            return INT64
        return JSON if STEPS[self.step] or self.step == "mean" else self.value_serde

    @property
    def some(self) -> Any:
        """What the store may hold."""
        kept = {"mean": [1, 1], "collect": [1], "top": [1], "agg": {"sum": 1}, "aggregate": {"seen": []}}
        return kept.get(self.step, SOME[self.kept_serde])

    def topology(self, *, in_columns: bool) -> Topology:
        builder = StreamsBuilder(in_columns=in_columns)
        source = builder.stream("in", key_serde=TEXT, value_serde=self.value_serde)
        grouped: ReducibleStream = source.group_by_key()
        if self.windows is not None:
            strategy = EmitStrategy(self.is_final)
            grouped = source.group_by_key().windowed_by(self.windows).emit_strategy(strategy)
        kept = Materialized.as_("kept").with_store_in_memory()
        kept = kept.with_caching_enabled() if self.is_cached else kept
        kept = kept if self.retention_ms is None else kept.with_retention(self.retention_ms)
        arguments = STEPS[self.step]
        if self.step in USERS:
            kept = kept.with_value_serde(self.kept_serde)
            if isinstance(self.windows, SessionWindows) and self.step in MERGERS:
                arguments = *arguments, MERGERS[self.step]
        step = "aggregate" if self.step == "number" else self.step
        table: KTable = getattr(grouped, step)(*arguments, materialized=kept, headers=self.policy)
        if self.windows is not None:
            table.late_records().to("late")
        if self.suppressed is not None:
            table = table.suppress(self.suppressed.with_name("held"))
        table.to_stream(name="made").to("out")
        if self.wants_old:
            # A step that takes records, below one that may forward columns.
            table.changes().map_values(lambda change: f"{change.old} -> {change.new}", value_serde=TEXT).to("changes")
        return watched(builder.build())


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
        passed = source.deduplicate(self.within_ms, by=self.by, grace=self.grace_ms, materialized=kept, name="made")
        passed.to("out")
        passed.group_by_key().count().to_stream().to("changes")
        return watched(builder.build())


def watched(topology: Topology) -> Topology:
    """Have it said where what the node "made" forwards came from, and on demand what has been committed."""
    topology.add_source("probe", ["probe"], key_serde=BYTES, value_serde=BYTES)
    for name, processor, parent in (("origins", Where, "made"), ("numbers", Metadata, "probe")):
        topology.add_processor(name, processor, [parent])
        topology.add_sink(f"{name}-out", name, [name], key_serde=BYTES, value_serde=BYTES)
    return topology


class Where(Processor):
    """Says what is known of the record that is being processed."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        context = self._context
        times_ms = context.current_timestamp_ms, context.current_stream_time_ms
        known = record.key, context.record_metadata, context.record_size_bytes, *times_ms
        context.forward(Record(None, str(known).encode(), 0))


class Logs(Interceptor):
    """Takes down what each batch has written to each store, in the order in which it is logged."""

    def __init__(self) -> None:
        self.written: list[tuple[str, list[ChangelogRecord]]] = []

    def on_changelog(self, store: str, records: Iterable[ChangelogRecord]) -> None:
        self.written.append((store, list(records)))


class Metadata(Processor):
    """Says what the processors of the topology have had committed."""

    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        names = "kept-observed-stream-time", "kept-ends", *SUPPRESSION_NUMBERS
        numbers = [self._context.processor_metadata(name) for name in names]
        self._context.forward(Record(None, str(numbers).encode(), 0))


SUPPRESSION_NUMBERS = [
    *("held-store-observed-stream-time", "held-store-times"),
    *(f"{COUNT_PREFIX}held-store-{what}" for what in ("records", "bytes")),
]
SOME = {INT32: 1, INT64: 1, DOUBLE: 1.0, TEXT: "t", JSON: 1, BYTES: b"b"}
NUMBERS = st.integers(-9, 9) | st.floats(-9, 9) | st.just(2**63 - 1)
ROWS = st.dictionaries(st.sampled_from("xyz"), st.none() | NUMBERS | st.just("NaN"))
VALUES = {
    INT32: st.integers(-(2**31), 2**31 - 1),
    INT64: st.integers(-(2**62), 2**62) | st.integers(-9, 9),
    DOUBLE: st.floats(),
    TEXT: st.text(max_size=2),
    JSON: NUMBERS,
}
OTHERS = {
    "agg": ROWS | ROWS | ROWS | st.just("no row"),
    "collect": st.recursive(NUMBERS | st.text(max_size=2), lambda inner: st.lists(inner, max_size=2) | ROWS),
}
"""Values in JSON that not all aggregates take."""
SPANS = st.integers(1, 5) | st.integers(1, 20)
LAST_TIMES = [15, 40, 400, 400_000]
"""So records share windows, miss them, leave what the store shows, and whole segments of it."""


@st.composite
def micro_batches(draw: st.DrawFn, value_serde: Serde[Any], step: str = "") -> list[list[TestRecord]]:
    keys = st.sampled_from([None, "", "a", "a", "ab", "b", LONGER])
    values = st.none() | (OTHERS.get(step, VALUES[JSON]) if value_serde == JSON else VALUES[value_serde])
    times = st.integers(0, draw(st.sampled_from(LAST_TIMES)))
    headers = st.lists(st.tuples(st.sampled_from("hi"), st.none() | st.binary(max_size=2)), max_size=3).map(Headers)
    count = draw(st.integers(0, 40))  # else most lists are of one or two
    drawn = draw(st.lists(st.builds(TestRecord, keys, values, times, headers), min_size=count, max_size=count))
    if draw(st.booleans()):
        drawn.sort(key=lambda record: record.timestamp_ms)
    size = draw(st.integers(1, 15))
    return [drawn[start : start + size] for start in range(0, len(drawn), size)] or [[]]


@st.composite
def programs(draw: st.DrawFn, of: str, steps: Sequence[str] = (*STEPS,)) -> Program:
    step = draw(st.sampled_from(steps))
    has_numbers = step in ("sum", "min", "max", "mean", "top")
    serdes = [INT32, INT64, DOUBLE, JSON] if has_numbers else [INT64, DOUBLE, TEXT, JSON]
    serde = JSON if step == "agg" else draw(st.sampled_from(serdes))
    policy = HeaderPolicy.of(draw(st.sampled_from([*POLICIES, last_two])))
    if draw(st.booleans()):
        policy = policy.capped(max_count=draw(st.integers(0, 3)), max_bytes=draw(st.integers(0, 20)))
    is_cached, wants_old = draw(st.booleans()), draw(st.booleans())
    if of == "keys":
        return Program(step, serde, policy, is_cached, wants_old)
    size = draw(SPANS)
    retention_ms = draw(st.none() | st.just(60))
    windows: TimeWindows | SessionWindows
    if of.startswith("sessions"):
        windows = SessionWindows.of_inactivity_gap_and_grace(size - 1, 2 * (draw(SPANS) - 1))
    else:
        windows = TimeWindows.of_size_and_grace(size, draw(SPANS) - 1).advance_by(draw(st.integers(1, size)))
    is_final = of.endswith("on close")
    ahead = draw(st.lists(st.integers(0, 60), max_size=2)) if is_final or not is_cached else []
    return Program(step, serde, policy, is_cached, wants_old, windows, retention_ms, is_final, tuple(ahead))


@st.composite
def suppressed_programs(draw: st.DrawFn) -> Program:
    program = draw(programs(draw(st.sampled_from(["keys", "windows", "sessions"]))))
    limited = draw(st.integers(0, 20).map(Suppressed.until_time_limit))
    if program.windows is None or draw(st.booleans()):
        return replace(program, suppressed=limited)
    return replace(program, suppressed=Suppressed.until_window_closes(BufferConfig.unbounded()))


def run(
    program: Program | Deduplication, batches: list[list[TestRecord]], restarts_after: int, *, in_columns: bool
) -> dict[str, Any]:
    """Return all that can be seen of a run; what fails is told by its class, and nothing after it is run."""
    logs = Logs()
    BEGINNINGS[0] = 0
    seen: dict[str, Any] = {"error": None, "logged": logs.written}
    topology = program.topology(in_columns=in_columns)
    # What is in the store by then came from a program that put out each change.
    before = replace(program, is_final=False) if isinstance(program, Program) else program
    with TopologyTestDriver(before.topology(in_columns=in_columns), interceptors=[logs]) as driver:
        if isinstance(program, Program):
            for start_ms in program.ahead:
                kept, some = driver.get_state_store("kept"), program.some
                if isinstance(kept, SessionStore):
                    kept.put(Windowed("b", start_ms, start_ms), AggregationWithHeaders(some, Headers()))
                else:
                    kept.put("b", ValueTimestampHeaders.make(some, start_ms), start_ms)
        driver.restart(topology)
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=program.value_serde)
        for number, batch in enumerate(batches):
            try:
                source.pipe_micro_batch(batch)
            except Exception as error:
                seen["error"] = type(error.__cause__ or error).__name__
                return seen
            if number == restarts_after:
                seen["counted before"] = _counted(driver)
                driver.restart(restore_from="changelog")
        driver.create_input_topic("probe", key_serde=BYTES, value_serde=BYTES).pipe_input(None, b"")
        for topic in ("out", "late", "changes", "origins", "numbers"):
            output = driver.create_output_topic(topic, key_serde=BYTES, value_serde=BYTES)
            seen[topic] = output.read_records_to_list()
        store = driver.get_state_store("kept")
        entries = store.fetch(None, None) if isinstance(store, SessionStore) else store.all()
        seen["store"] = [(key, repr(held), held.headers) for key, held in entries]
        for beside in ("kept-ends", "kept-expiry", "held-store", "held-store-times"):
            found = driver.get_all_state_stores().get(beside)
            seen[beside] = None if found is None else list(found.all())
        seen["counted"] = _counted(driver)
    if isinstance(program, Program) and program.is_final and isinstance(program.windows, SessionWindows):
        # By records, ends are noted that are gone at the end of a batch, and may be looked for in vain.
        (numbers,) = seen["numbers"]
        observed_ms, first_ms, *_ = literal_eval(numbers.value.decode())
        ends_ms = [time_and_key(place)[0] for place, _ in seen["kept-ends"]]
        seen["numbers"] = observed_ms, [end_ms for end_ms in ends_ms if end_ms < first_ms]
    return seen


def _counted(driver: TopologyTestDriver) -> dict[str, float]:
    return {name: number for name, number in driver.metrics().items() if "." in name}


@pytest.mark.parametrize("of", ["keys", "windows", "windows on close", "sessions", "sessions on close"])
@pytest.mark.parametrize("steps", [[*{*STEPS} - {*USERS}], [*USERS]], ids=["ours", "of users"])
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_columns_do_what_records_do(of: str, steps: list[str], data: st.DataObject) -> None:
    program = data.draw(programs(of, sorted(steps)))
    batches = data.draw(micro_batches(program.value_serde, program.step))
    restarts_after = data.draw(st.integers(0, 3))
    nodes = program.topology(in_columns=True).processors.values()
    assert any(isinstance(node.supplier(), BatchProcessor) for node in nodes)
    by_records = run(program, batches, restarts_after, in_columns=False)
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(time_queue, "DUE_AT_ONCE", data.draw(st.integers(1, 3)))
        patches.setattr(windowed_aggregating, "_BYTES_AT_ONCE", data.draw(st.sampled_from([2_000, 1 << 20])))
        patches.setattr(changes_out, "_MERGED_FROM", data.draw(st.integers(0, 4)))
        patches.setattr(aggregations, "_BYTES_AT_ONCE", data.draw(st.sampled_from([0, 20, 1 << 20])))
        patches.setattr(aggregations._ByFunctions, "sessions_at_once", data.draw(st.integers(1, 20)))
        assert run(program, batches, restarts_after, in_columns=True) == by_records


@settings(max_examples=60, deadline=None)
@given(batches=micro_batches(TEXT), in_columns=st.booleans())
def test_functions_of_users_do_what_a_model_does(batches: list[list[TestRecord]], in_columns: bool) -> None:
    batches = [[each for each in batch if each.value != "\0"] for batch in batches]  # which JSON can't hold
    program = Program("aggregate", TEXT, HeaderPolicy.of("append"), is_cached=False, wants_old=True)
    found = run(program, batches, 1, in_columns=in_columns)
    kept: dict[str, tuple[Any, int, list[Any]]] = {}
    wanted, changes, number = [], [], 0
    for record in (each for batch in batches for each in batch if None not in (each.key, each.value)):
        if record.key not in kept:
            number += 1
            kept[record.key] = {"number": number, "seen": []}, record.timestamp_ms, []
        old, time_ms, headers = kept.pop(record.key)
        seen = [*old["seen"], [record.key, record.value]]
        new = None if len(seen) == 3 else {**old, "seen": seen}
        state = new, max(time_ms, record.timestamp_ms), headers + list(record.headers)
        if new is not None:
            kept[record.key] = state
        value = None if new is None else JSON.serialize(new)
        wanted.append(TestRecord(record.key.encode(), value, state[1], state[2]))
        changes.append(f"{old} -> {new}".encode())
    assert found["out"] == wanted
    assert [each.value for each in found["changes"]] == changes
    assert {key for key, *_ in found["store"]} == {*kept}


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_suppression_in_columns_does_what_it_does_by_records(data: st.DataObject) -> None:
    program = data.draw(suppressed_programs())
    batches, restarts_after = data.draw(micro_batches(program.value_serde, program.step)), data.draw(st.integers(0, 3))
    nodes = program.topology(in_columns=True).processors
    is_computed = program.step == "mean" or program.step == "agg"  # of what is kept
    assert isinstance(nodes["held"].supplier(), BatchProcessor) is not is_computed
    by_records = run(program, batches, restarts_after, in_columns=False)
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(time_queue, "DUE_AT_ONCE", data.draw(st.integers(1, 3)))
        assert run(program, batches, restarts_after, in_columns=True) == by_records


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from([None, "h"]), st.integers(0, 40), st.integers(0, 20) | st.integers(0, 400))
def test_deduplication_in_columns_does_what_it_does_by_records(
    data: st.DataObject, by: str | None, within_ms: int, grace_ms: int
) -> None:
    program = Deduplication(by, within_ms, grace_ms)
    batches, restarts_after = data.draw(micro_batches(TEXT)), data.draw(st.integers(0, 3))
    nodes = program.topology(in_columns=True).processors
    assert isinstance(nodes["made"].supplier(), BatchProcessor)
    by_records = run(program, batches, restarts_after, in_columns=False)
    assert run(program, batches, restarts_after, in_columns=True) == by_records


GAPS = SessionWindows.of_inactivity_gap_and_grace(5, 10)


def counts_of(*records: tuple[str, int], is_final: bool, retention_ms: int | None = None) -> list[tuple[int, int]]:
    """Return the timestamps and the counts that come out of a batch, which are the same by records and in columns."""
    program = Program("count", INT64, HeaderPolicy.of("latest"), False, False, GAPS, retention_ms, is_final)
    batch = [TestRecord(key, 1, time) for key, time in records]
    by_records, in_columns = (run(program, [batch], 1, in_columns=in_columns) for in_columns in (False, True))
    assert by_records == in_columns
    return [(record.timestamp_ms, record.value[-1]) for record in in_columns["out"]]


def test_a_session_is_seen_no_longer_than_its_retention_within_a_batch() -> None:
    assert counts_of(("a", 10), ("b", 25), ("a", 10), is_final=False) == [(10, 1), (25, 1), (10, 1)]


def test_a_session_that_a_batch_closes_and_then_merges_is_put_out_twice() -> None:
    records = ("a", 10), ("b", 26), ("a", 15), ("c", 60)
    assert counts_of(*records, is_final=True, retention_ms=60) == [(10, 1), (15, 2), (26, 1)]


@pytest.mark.parametrize("in_columns", [False, True])
def test_a_session_whose_end_was_taken_down_no_longer_is_not_put_out_again(in_columns: bool) -> None:
    """As of one that was put out before shards became one whose time is not as late."""
    program = Program("count", INT64, HeaderPolicy.of("latest"), False, False, GAPS, is_final=True)
    with TopologyTestDriver(program.topology(in_columns=in_columns)) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=INT64)
        source.pipe_micro_batch([TestRecord("a", 1, 10)])
        ends = driver.get_state_store("kept-ends")
        for place, _ in list(ends.all()):
            ends.delete(place)
        source.pipe_micro_batch([TestRecord("a", 1, 10), TestRecord("b", 1, 100), TestRecord("b", 1, 200)])
        output = driver.create_output_topic("out", key_serde=BYTES, value_serde=INT64)
        assert [(record.timestamp_ms, record.value) for record in output.read_records_to_list()] == [(100, 1)]


def test_windows_of_a_batch_are_made_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(windowed_aggregating, "_BYTES_AT_ONCE", 10_000)
    seen: list[int] = []
    update = ColumnUpdate.of

    def noted(self: ColumnUpdate, groups: Any, held: Any, records: RecordColumns, rows: Any) -> Any:
        seen.append(len(rows))
        return update(self, groups, held, records, rows)

    monkeypatch.setattr(ColumnUpdate, "of", noted)
    program = Program("count", INT64, HeaderPolicy.of("latest"), True, False, TimeWindows(100, 10, 0))
    found = run(program, [[TestRecord("a", 1, 1_000 + number) for number in range(40)]], 1, in_columns=True)
    assert seen == [70, 70, 70, 70, 70, 50]  # ten windows a record, 128 bytes each
    assert sum(INT64.deserialize(record.value) for record in found["out"]) == 400
