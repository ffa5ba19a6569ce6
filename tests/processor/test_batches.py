"""Batch processors: columns do what records one by one do, in every topology, and in spite of every error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors import ProcessorError, TopologyError
from statestore.format.records.header_bytes import parse_count
from statestore.format.serde import Serdes
from statestore.headers.record_columns import RecordColumns
from statestore.headers.record_headers import Headers
from statestore.headers.topic_columns import SourceFields, source_batch
from statestore.interception.failures import FailureHandling
from statestore.processor.context import ProcessorContext, TaskRecordContext
from statestore.processor.processor import BatchProcessor, Processor
from statestore.processor.punctuation import PunctuationType
from statestore.processor.record import Record
from statestore.processor.task import Task
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.processor.topology import Topology
from statestore.recovery.commit.changelog import batch_changelog
from statestore.stores.builder import StoreBuilder
from statestore.stores.iterator import Windowed
from statestore.stores.stores import Stores
from tests.support.processors import Passing

STORE = "values"
STEP_MS = 30_000
RETENTION_MS = 5 * STEP_MS
HEADERS = Headers([("h", b"1"), ("h", None)]).to_bytes()


class Keeps:
    """What the twins have in common: a store, and a punctuator that forwards the time and what is in it."""

    every_ms: int | None = None
    type: pa.DataType
    kind: str

    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.state_store(STORE)
        if self.every_ms is not None:
            context.schedule(self.every_ms, PunctuationType.STREAM_TIME, self.punctuate)

    def punctuate(self, now_ms: int) -> None:
        for key, _ in self.store.all():
            self.context.forward(Record(key, b"at %d" % now_ms, now_ms, [("p", b"")]))


class Previous(Keeps, Processor):
    """Keeps each key's value, and forwards the one before it."""

    def process(self, record: Record[Any, Any]) -> None:
        held = self.store.get(record.key)
        self.store.put_value(record.key, record.value)
        self.context.forward(record.with_value(getattr(held, "value", held)))


class PreviousInColumns(Keeps, BatchProcessor):
    def process_batch(self, records: RecordColumns) -> None:
        assert len(records)
        groups = records.by_key
        now = self.store.get_many(groups.keys).value.to_pylist()
        before = []
        for code, value in zip(groups.codes.tolist(), records.value.to_pylist(), strict=True):
            before.append(now[code])
            now[code] = value
        self.store.put_many(records)
        self.context.forward_batch(records.with_columns(value=pa.array(before, self.type)))


class Puts(Keeps, Processor):
    """Keeps each key's value without looking at what was there: in a batch, reads are of another stream time."""

    def process(self, record: Record[Any, Any]) -> None:
        if hasattr(self.store, "put_value"):
            self.store.put_value(record.key, record.value)
        else:
            self.store.put(record.key, record.value)
        self.context.forward(record)


class PutsInColumns(Keeps, BatchProcessor):
    def process_batch(self, records: RecordColumns) -> None:
        self.store.put_many(records)
        self.context.forward_batch(records)


class PutsTimed(Keeps, Processor):
    """Keeps values by key and a time of the record, and tells what it found then."""

    def process(self, record: Record[Any, Any]) -> None:
        if self.kind == "session":
            self.store.put_value(Windowed(record.key, *session_of(record.timestamp_ms)), record.value)
        else:
            self.store.put_value(record.key, record.value, record.timestamp_ms * STEP_MS)
        self.context.forward(record)

    def punctuate(self, now_ms: int) -> None:
        for key in "klm":
            times = range(41)
            if self.kind == "session":
                found = [self.store.fetch_session(key, *session_of(time)) for time in times]
            else:
                found = [self.store.fetch(key, time * STEP_MS) for time in times]
            self.context.forward(Record(key, str(found), now_ms))


class PutsTimedInColumns(PutsTimed, BatchProcessor):
    def process_batch(self, records: RecordColumns) -> None:
        times = records.timestamp_ms.to_numpy()
        if self.kind == "session":
            starts, ends = zip(*map(session_of, times.tolist()), strict=True)
            self.store.put_many(records, pa.array(starts), pa.array(ends))
        else:
            self.store.put_many(records, times * STEP_MS)
        self.context.forward_batch(records)


class Plain(Previous):
    """The same for a store without put_value."""

    def process(self, record: Record[Any, Any]) -> None:
        held = self.store.get(record.key)
        self.store.put(record.key, record.value)
        self.context.forward(record.with_value(held))


class Notes(Processor):
    """Keeps what it knows of each record, and forwards it as the record's value."""

    def init(self, context: ProcessorContext) -> None:
        self.context, self.store = context, context.state_store("notes")

    def process(self, record: Record[Any, Any]) -> None:
        context = self.context
        known = (
            context.record_metadata,
            context.record_size_bytes,
            context.current_timestamp_ms,
            context.current_headers,
            context.current_stream_time_ms,
            record,
        )
        self.store.put_value(record.key, str(known))
        self.context.forward(record.with_value(str(known)))


FORMATS: dict[str, Callable[..., StoreBuilder[Any]]] = {
    "plain": lambda serde: Stores.key_value_store_builder(
        Stores.persistent_key_value_store(STORE), Serdes.string(), serde
    ),
    "timestamped": lambda serde: Stores.timestamped_key_value_store_builder(
        Stores.persistent_timestamped_key_value_store(STORE), Serdes.string(), serde
    ),
    "headers": lambda serde: Stores.timestamped_key_value_store_with_headers_builder(
        Stores.persistent_timestamped_key_value_store_with_headers(STORE), Serdes.string(), serde
    ),
}
STACKS: dict[str, Callable[[StoreBuilder[Any]], StoreBuilder[Any]]] = {
    "bare": lambda builder: builder,
    "not logged": lambda builder: builder.with_logging_disabled(),
    "cached": lambda builder: builder.with_caching_enabled(40),
    "measured": lambda builder: builder.with_metrics_enabled(),
    "expiring by events": lambda builder: builder.with_ttl(15, "event"),
    "expiring by the clock": lambda builder: builder.with_ttl(15),
}
SERDES = {"bytes": Serdes.bytes(), "string": Serdes.string(), "int64": Serdes.int64()}


SHAPES = ["chain", "below a scalar node", "above a scalar node", "to chosen topics", "beside others"]


def session_of(time: int) -> tuple[int, int]:
    return time * STEP_MS, time * STEP_MS + time % 3 * 20_000


def timed(kind: str, serde: Any) -> StoreBuilder[Any]:
    """A store of windows or sessions whose put_value logs what the row says."""
    text = Serdes.string()
    if kind == "session":
        return Stores.session_store_with_headers_builder(
            Stores.persistent_session_store_with_headers(STORE, RETENTION_MS), text, serde
        )
    supplier = Stores.persistent_timestamped_window_store_with_headers(
        STORE, RETENTION_MS, STEP_MS, retain_duplicates=kind == "window with duplicates"
    )
    return Stores.timestamped_window_store_with_headers_builder(supplier, text, serde)


@dataclass(frozen=True)
class Case:
    """A topology that has a twin, and how it is run."""

    format: str = "headers"
    stack: str = "bare"
    serde: str = "bytes"
    shape: str = "chain"
    kind: str = "key-value"
    every_ms: int | None = None
    skip: bool = False

    def topology(self, in_columns: bool) -> Topology:
        serde = SERDES[self.serde]
        scalar = Plain if self.format == "plain" else Previous
        twins: tuple[type, type] = scalar, PreviousInColumns
        if self.kind != "key-value":
            twins = PutsTimed, PutsTimedInColumns
        elif self.stack == "expiring by events":
            twins = Puts, PutsInColumns
        twin = type(
            "Twin",
            (twins[in_columns],),
            {"every_ms": self.every_ms, "type": serde.columns.type, "kind": self.kind},
        )
        topology = Topology()
        topology.add_source("in", ["a", "b"], key_serde=Serdes.string(), value_serde=serde)
        if self.shape == "below a scalar node":
            topology.add_processor("before", Passing, ["in"])
        topology.add_processor("twin", twin, ["before" if self.shape == "below a scalar node" else "in"])
        builder = FORMATS[self.format](serde) if self.kind == "key-value" else timed(self.kind, serde)
        topology.add_state_store(STACKS[self.stack](builder), "twin")
        value_serde = serde if self.every_ms is None else None
        if self.shape == "above a scalar node":
            topology.add_processor("notes", Notes, ["twin"])
            notes = Stores.persistent_timestamped_key_value_store_with_headers("notes")
            topology.add_state_store(
                Stores.timestamped_key_value_store_with_headers_builder(notes, Serdes.string(), Serdes.string()),
                "notes",
            )
            topology.add_sink("out", "out", ["notes"])
        elif self.shape == "to chosen topics":
            topology.add_sink("out", lambda record, metadata: f"out-{record.key}-{metadata}", ["twin"])
        else:
            topology.add_sink("out", "out", ["twin"], value_serde=value_serde)
        if self.shape == "beside others":
            topology.add_sink("copy", "copy", ["in"])
            topology.add_source("scalar", ["c"], key_serde=Serdes.string(), value_serde=serde)
            topology.add_processor("passes", Passing, ["scalar"])
            topology.add_sink("passed", "passed", ["passes"])
        return topology


@dataclass
class Ran:
    """All that is left of a task."""

    outputs: dict[str, list[Any]] = field(default_factory=dict)
    stores: dict[str, list[Any]] = field(default_factory=dict)
    changelogs: dict[str, list[Any]] = field(default_factory=dict)
    end: Any = None
    error: Any = None


def ran(topology: Topology, case: Case, batches: list[list[SourceFields]], in_columns: bool) -> Ran:
    """Run records through a topology, by themselves or in columns, and return what is left."""
    context = TaskRecordContext(system_time_ms=1_000)
    changelogs = {name: batch_changelog(builder.spec) for name, builder in topology.store_builders.items()}
    stores = build_stores(
        topology, context, lambda name: StoreBacking(WriteSet(MemoryByteStore(name)), changelogs[name])
    )
    policy = FailureHandling(deserialization="continue") if case.skip else FailureHandling()
    task = Task(topology, 3, stores, context, handling=policy)
    found = Ran()
    try:
        for batch in batches:
            assert (task.process_batch(source_batch(batch)) if in_columns else task.process(batch)) == len(batch)
        task.end_batch(1_000)
        dropped = {name: store.dropped_records for name, store in stores.items()}
        found.end = task.leave(), dropped
    except Exception as error:
        found.error = _essence(error)
    for output in task.outputs:
        found.outputs.setdefault(output[0], []).append(output)
    if found.error is None:
        found.stores = {name: list(store.stack.top.range(None, None)) for name, store in stores.items()}
        found.changelogs = {name: changelog.records() for name, changelog in changelogs.items()}
    return found


def _essence(error: Exception) -> Any:
    """What must be the same of an error: what a batch processor raises is of no single record."""
    if isinstance(error, ProcessorError):
        return type(error), error.node, type(error.__cause__), str(error.__cause__)
    return type(error), str(error)


VALUES = {
    "bytes": [b"", b"x", b"\xff\x00", b"long" * 40],
    "string": [b"", b"text"],
    "int64": [b"\0" * 8, b"\x80" + b"\0" * 7],
}
UNREADABLE = {"bytes": [], "string": [b"\xff"], "int64": [b"short"]}


@st.composite
def cases(draw: st.DrawFn) -> tuple[Case, list[list[SourceFields]]]:
    kind = draw(st.sampled_from(["key-value", "key-value", "window", "window with duplicates", "session"]))
    stacks = [stack for stack in sorted(STACKS) if kind == "key-value" or "expiring" not in stack]
    case = Case(
        draw(st.sampled_from(sorted(FORMATS))),
        draw(st.sampled_from(stacks)),
        draw(st.sampled_from(sorted(SERDES))),
        draw(st.sampled_from(SHAPES)),
        kind,
        draw(st.none() | st.integers(1, 20)),
        draw(st.booleans()),
    )
    topics, keys, earliest_ms = ["a", "b"], [b"k", b"l", b"m"], 0
    values = VALUES[case.serde]
    if case.shape == "beside others":
        topics.append("c")
    trouble = draw(st.sampled_from(["none", "none", "unreadable", "any"]))
    if trouble != "none":
        keys.append(b"\xff")
        values = values + UNREADABLE[case.serde]
    if trouble == "any":
        topics.append("unknown")
        earliest_ms = -1
    row = st.tuples(
        st.sampled_from(topics),
        st.integers(earliest_ms, 40),
        st.sampled_from(keys),
        st.none() | st.sampled_from(values),
        st.sampled_from([b"", HEADERS]),
    )
    rows = draw(st.lists(row, min_size=1, max_size=14))
    records = [(topic, 0, offset, *rest) for offset, (topic, *rest) in enumerate(rows)]
    size = draw(st.just(len(records)) | st.integers(1, len(records)))
    return case, [records[start : start + size] for start in range(0, len(records), size)]


@given(cases())
@settings(max_examples=300)
def test_columns_do_what_records_do(drawn: tuple[Case, list[list[SourceFields]]]) -> None:
    case, batches = drawn
    expected = ran(case.topology(in_columns=False), case, batches, in_columns=False)
    assert ran(case.topology(in_columns=True), case, batches, in_columns=True) == expected


def rows(*items: tuple[bytes | None, bytes | None], timestamps_ms: tuple[int, ...] = ()) -> list[SourceFields]:
    times = timestamps_ms or (5,) * len(items)
    return [
        ("a", 0, number, time_ms, key, value, HEADERS)
        for number, ((key, value), time_ms) in enumerate(zip(items, times, strict=True))
    ]


@pytest.mark.parametrize("kind", ["window", "window with duplicates", "session"])
@pytest.mark.parametrize("stack", ["bare", "cached"])
def test_reads_in_columns_are_reads_one_by_one(kind: str, stack: str) -> None:
    builder = STACKS[stack](timed(kind, Serdes.bytes()))
    store = builder.build(MemoryByteStore(STORE), context=TaskRecordContext())
    times = np.array([3, 1, 9, 9, 4, 12, 11, 2])
    keys = pa.array(["k", "l", "k", "k", "m", "l", "k", "k"])
    values = pa.array([b"1", b"2", b"3", b"4", None, b"", b"6", b"late"], pa.binary())
    headers = pa.array([Headers([("n", b"%d" % n)]).to_bytes() for n in range(8)])
    records = RecordColumns(keys, values, times, headers)
    asked = pa.array([key for key in "klmn" for _ in range(14)])
    asked_times = np.array([*range(14)] * 4)
    if kind == "session":
        starts, ends = (np.array(ends) for ends in zip(*map(session_of, times.tolist()), strict=True))
        store.put_many(records, starts, ends)
        starts, ends = (np.array(ends) for ends in zip(*map(session_of, asked_times.tolist()), strict=True))
        many = store.fetch_session_many(asked, starts, ends)
        alone = [*map(store.fetch_session, asked.to_pylist(), starts.tolist(), ends.tolist())]
        assert many.timestamp_ms is None
        assert [held and held.aggregation for held in alone] == many.value.to_pylist()
        found = store.find_sessions_many(asked, asked_times, asked_times + 2)
        by_key = [
            list(store.find_sessions(*each))
            for each in zip(asked.to_pylist(), asked_times.tolist(), (asked_times + 2).tolist(), strict=True)
        ]
        spans = zip(found.rows.tolist(), found.start_ms.tolist(), found.end_ms.tolist(), strict=True)
        expected = [(row, *session[1:]) for row, each in enumerate(by_key) for session, _ in each]
        assert list(spans) == expected
        assert found.held.value.to_pylist() == [held.aggregation for each in by_key for _, held in each]
    else:
        store.put_many(records, times * STEP_MS)
        many = store.fetch_many(asked, asked_times * STEP_MS)
        alone = [*map(store.fetch, asked.to_pylist(), (asked_times * STEP_MS).tolist())]
        assert [held and held.value for held in alone] == many.value.to_pylist()
        assert [held and held.timestamp_ms for held in alone] == many.timestamp_ms.to_pylist()
    assert [held and held.headers.to_bytes() for held in alone] == many.headers.to_pylist()
    assert len([held for held in alone if held is not None]) == 3
    store.flush()
    assert store.dropped_records == 1


class Seen(BatchProcessor):
    """Takes down the values of each batch, and what is known meanwhile."""

    batches: list[list[Any]]
    known: list[Any]
    every_ms: int | None = None

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        if self.every_ms is not None:
            context.schedule(self.every_ms, PunctuationType.STREAM_TIME, lambda now_ms: self.batches.append([now_ms]))

    def process_batch(self, records: RecordColumns) -> None:
        self.batches.append(records.value.to_pylist())
        context = self.context
        self.known.append((context.record_metadata, context.current_timestamp_ms, context.current_headers))
        context.forward_batch(records)


def seen(process: Callable[[Any, RecordColumns], None] | None = None, **sources: Any) -> tuple[type[Seen], Topology]:
    """A topology in -> Seen -> out, with what the processor of it sees."""
    members: dict[str, Any] = {"batches": [], "known": []}
    processor = type("Twin", (Seen,), members if process is None else {**members, "process_batch": process})
    topology = Topology()
    topology.add_source("in", **{"key_serde": Serdes.bytes(), "value_serde": Serdes.bytes(), **sources})
    topology.add_processor("seen", processor, ["in"])
    topology.add_sink("out", "out", ["seen"])
    return processor, topology


def run(topology: Topology, *records: SourceFields, context: TaskRecordContext | None = None) -> Task:
    task = Task(topology, 0, {}, context or TaskRecordContext())
    assert task.takes_batches
    assert task.process_batch(source_batch(records)) == len(records)
    task.end_batch(0)
    return task


def test_a_batch_ends_where_a_punctuator_is_due() -> None:
    processor, topology = seen()
    processor.every_ms = 10
    values = [b"%d" % number for number in range(6)]
    run(topology, *rows(*((b"k", value) for value in values), timestamps_ms=(3, 4, 12, 11, 13, 25)))
    assert processor.batches == [[b"0"], [3], [b"1", b"2"], [12], [b"3", b"4", b"5"], [25]]


def test_no_record_is_the_current_one_in_a_batch() -> None:
    processor, topology = seen()
    run(topology, *rows((b"k", b"1"), (b"k", b"2"), timestamps_ms=(9, 7)), context=TaskRecordContext(100))
    assert processor.known == [(None, 100, Headers())]


def test_headers_pass_through_without_a_parse() -> None:
    before = parse_count()
    _, topology = seen()
    assert [output[4] for output in run(topology, *rows((b"k", b"1"), (b"l", None))).outputs] == [HEADERS, HEADERS]
    assert parse_count() == before


def test_headers_can_be_read_added_and_removed_in_columns() -> None:
    def process(processor: Seen, records: RecordColumns) -> None:
        counts = pa.array([b"1", None], pa.binary())
        assert records.header("h").to_pylist() == [None, None]
        processor.context.forward_batch(records.with_header("n", counts).without_header("h").with_header("all", b"x"))

    _, topology = seen(process)
    headers = [Headers.from_bytes(output[4]) for output in run(topology, *rows((b"k", b"1"), (b"l", None))).outputs]
    assert headers == [Headers([("n", b"1"), ("all", b"x")]), Headers([("n", None), ("all", b"x")])]


def test_a_sink_writes_columns_by_their_type() -> None:
    def process(processor: Seen, records: RecordColumns) -> None:
        for value in (7, 1.5, "t", True, None, {"a": 1}):
            processor.context.forward_batch(records.with_columns(value=pa.array([value])))

    _, topology = seen(process)
    values = [output[3] for output in run(topology, *rows((b"k", b"1"))).outputs]
    assert values == [b"\0" * 7 + b"\7", b"?\xf8" + b"\0" * 6, b"t", b"true", None, b'{"a":1}']


def test_a_failure_says_which_batch_it_was() -> None:
    def process(processor: Seen, records: RecordColumns) -> None:
        raise ValueError("no")

    _, topology = seen(process)
    with pytest.raises(
        ProcessorError,
        match=r"'seen' failed in process_batch\(\) of 2 records, the first of them record a-0 at offset 0",
    ):
        run(topology, *rows((b"k", b"1"), (b"k", b"2")))


def test_what_a_row_leads_to_further_down_names_the_row() -> None:
    class Refuses(Processor):
        def process(self, record: Record[Any, Any]) -> None:
            if record.value == b"2":
                raise ValueError("no")

    _, topology = seen()
    topology.add_processor("refuses", Refuses, ["seen"])
    with pytest.raises(ProcessorError, match="'refuses' failed on record a-0 at offset 1") as raised:
        run(topology, *rows((b"k", b"1"), (b"k", b"2")))
    assert (raised.value.topic, raised.value.partition, raised.value.offset) == ("a", 0, 1)


def test_a_source_above_needs_serdes_with_columns() -> None:
    _, topology = seen(value_serde=Serdes.of("own", bytes, bytes))
    with pytest.raises(TopologyError, match="its value serde 'own' has no columns"):
        Task(topology, 0, {}, TaskRecordContext())


def test_what_can_be_forwarded_and_when() -> None:
    class Eager(Seen):
        def init(self, context: ProcessorContext) -> None:
            context.forward_batch(RecordColumns(pa.array([b"k"]), pa.array([b"v"]), pa.array([1])))

    _, topology = seen()
    topology.processors["seen"].supplier = Eager
    with pytest.raises(TopologyError, match=r"forwards in init\(\) or close\(\)"):
        Task(topology, 0, {}, TaskRecordContext())

    def process(processor: Seen, records: RecordColumns) -> None:
        context = processor.context
        context.forward_batch(records.slice(0, 0))
        context.forward_batch(records, "out")
        with pytest.raises(TopologyError, match="forwards to 'nobody'"):
            context.forward_batch(records, "nobody")
        with pytest.raises(TypeError, match="can only forward RecordColumns, not list"):
            context.forward_batch([records])  # type: ignore[arg-type]

    _, topology = seen(process)
    assert len(run(topology, *rows((b"k", b"1"))).outputs) == 1
