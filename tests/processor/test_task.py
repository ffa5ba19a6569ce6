"""A task: records in, records out, stores written, errors that say where."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from statestore import Headers, Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueTimestampHeaders
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors import DeserializationError, ProcessorError, SerializationError, TopologyError
from statestore.errors.run import UnknownTopicError
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.headers.topic_columns import SourceFields
from statestore.interception.failures import FailureHandling
from statestore.processor.context import TaskRecordContext
from statestore.processor.receivers import serialize_by_type
from statestore.processor.task import Task
from statestore.recovery.commit.changelog import batch_changelog

HEADERS = encode_headers([("h", b"1"), ("h", None)])


def record(value: bytes | None, key: bytes | None = b"k", offset: int = 0, timestamp_ms: int = 5) -> SourceFields:
    return ("in", 0, offset, timestamp_ms, key, value, HEADERS)


class Function(Processor):
    """Runs a function of (context, record)."""

    function: Callable[[ProcessorContext, Record[Any, Any]], None]

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        type(self).function(self.context, record)


def running(function: Callable[[ProcessorContext, Record[Any, Any]], None]) -> type[Function]:
    return type("Running", (Function,), {"function": staticmethod(function)})


def chain(function: Callable[[ProcessorContext, Record[Any, Any]], None], value_serde=None) -> Topology:
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=value_serde or Serdes.json())
    topology.add_processor("p", running(function), ["in"])
    topology.add_sink("out", "out", ["p"])
    return topology


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Task]]:
    """Makes a task of a topology over real stores and runs records through it."""
    opened: list[RocksDBDatabase] = []

    def run_task(topology: Topology, *records: SourceFields, skip: bool = False) -> Task:
        context = TaskRecordContext()
        database = RocksDBDatabase(str(tmp_path / f"db-{len(opened)}"), list(topology.store_builders))
        opened.append(database)
        changelogs = {name: batch_changelog(builder.spec) for name, builder in topology.store_builders.items()}
        stores = {
            name: builder.build(WriteSet(database.family(name, name)), changelog=changelogs[name], context=context)
            for name, builder in topology.store_builders.items()
        }
        policy = FailureHandling(deserialization="continue") if skip else FailureHandling()
        task = Task(topology, 0, stores, context, handling=policy)
        task.changelogs = changelogs  # for the test to look into
        assert task.process(records) == len(records)
        task.close()
        return task

    yield run_task
    for database in opened:
        database.close()


def test_a_record_passes_through_without_a_parse(run: Callable[..., Task]) -> None:
    before = parse_count()
    task = run(chain(lambda context, record: context.forward(record)), record(b'{"a":1}'))
    assert task.outputs == [("out", 5, b"k", b'{"a":1}', HEADERS)]
    assert parse_count() == before


def test_null_keys_and_values_stay_null(run: Callable[..., Task]) -> None:
    task = run(chain(lambda context, record: context.forward(record)), record(None, None))
    assert task.outputs == [("out", 5, None, None, HEADERS)]


def test_changed_headers_key_value_and_timestamp_come_out(run: Callable[..., Task]) -> None:
    def change(context: ProcessorContext, record: Record[Any, Any]) -> None:
        changed = record.with_key("other").with_value("text").with_timestamp_ms(9)
        changed.headers.add("new", b"2")
        context.forward(changed)
        context.forward(record.with_headers(Headers([("only", b"")])))

    task = run(chain(change), record(b"1"))
    first = encode_headers([("h", b"1"), ("h", None), ("new", b"2")])
    assert task.outputs == [
        ("out", 9, b"other", b"text", first),
        ("out", 5, b"k", b"\0" * 7 + b"\1", encode_headers([("only", b"")])),
    ]


def test_forward_reaches_all_children_in_order_or_the_named_one(run: Callable[..., Task]) -> None:
    def forward(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.forward(record.with_value(b"all"))
        context.forward(record.with_value(b"one"), child="second")

    topology = chain(forward)
    topology.add_sink("second", "second", ["p"])
    task = run(topology, record(b"1"))
    assert [(output[0], output[3]) for output in task.outputs] == [
        ("out", b"all"),
        ("second", b"all"),
        ("second", b"one"),
    ]


def test_an_unknown_child_or_store_is_named(run: Callable[..., Task]) -> None:
    with pytest.raises(ProcessorError, match=r"'p' failed on record in-0 at offset 3.*'nobody'.*children: \['out'\]"):
        run(chain(lambda context, record: context.forward(record, child="nobody")), record(b"1", offset=3))

    class Asks(Processor):
        def init(self, context: ProcessorContext) -> None:
            context.state_store("unattached")

    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.json())
    topology.add_processor("p", Asks, ["in"])
    with pytest.raises(TopologyError, match=r"'p' asked for the state store 'unattached'"):
        run(topology)


def test_sources_are_chosen_by_topic(run: Callable[..., Task]) -> None:
    topology = Topology()
    for name, topics in (("a", ["in", "too"]), ("b", ["else"])):
        topology.add_source(name, topics, key_serde=Serdes.string(), value_serde=Serdes.bytes())
        topology.add_sink(f"from-{name}", f"from-{name}", [name])
    rest = record(b"1")[1:]
    task = run(topology, ("too", *rest), ("else", *rest))
    assert [output[0] for output in task.outputs] == ["from-a", "from-b"]
    with pytest.raises(UnknownTopicError, match="'unread'; the sources read else, in, too"):
        run(topology, ("unread", *rest))


def test_user_errors_name_node_and_record_once_and_keep_their_cause(run: Callable[..., Task]) -> None:
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.json())
    topology.add_processor("first", running(lambda context, record: context.forward(record)), ["in"])
    topology.add_processor("second", running(lambda context, record: 1 // 0), ["first"])
    with pytest.raises(ProcessorError, match="node 'second' failed on record in-0 at offset 7: ZeroDiv") as failed:
        run(topology, record(b"1", offset=7))
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert (failed.value.node, failed.value.topic, failed.value.partition, failed.value.offset) == (
        "second",
        "in",
        0,
        7,
    )


def test_a_value_that_the_sink_cannot_write(run: Callable[..., Task]) -> None:
    with pytest.raises(ProcessorError, match=r"sink 'out' can't write.*set has no default form"):
        run(chain(lambda context, record: context.forward(record.with_value({1}))), record(b"1"))


def test_unreadable_records_fail_or_are_skipped_and_counted(run: Callable[..., Task]) -> None:
    records = [record(b"1", offset=0), record(b"{", offset=1), record(b"1", b"\xff", offset=2), record(b"2", offset=3)]
    topology = chain(lambda context, record: context.forward(record))
    with pytest.raises(DeserializationError, match="source 'in' can't read record in-0 at offset 1"):
        run(topology, *records)
    task = run(topology, *records, skip=True)
    assert task.skipped_records == 2
    assert len(task.outputs) == 2


def test_a_tombstone_carries_headers_and_timestamp_of_the_record_at_this_node(run: Callable[..., Task]) -> None:
    def delete(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.state_store("s").put(record.key, None)

    def rewrite(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.forward(record.with_timestamp_ms(99).with_headers(Headers([("by", b"first")])))
        context.state_store("s").put("after", None)

    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.json())
    topology.add_processor("first", running(rewrite), ["in"])
    topology.add_processor("second", running(delete), ["first"])
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("s")
    topology.add_state_store(
        Stores.timestamped_key_value_store_with_headers_builder(supplier, Serdes.string(), Serdes.string()),
        "first",
        "second",
    )
    task = run(topology, record(b"1"))
    assert task.changelogs["s"].records() == [
        (b"k", None, 99, encode_headers([("by", b"first")])),
        (b"after", None, 5, HEADERS),
    ]


def test_stream_time_is_the_highest_timestamp_so_far(run: Callable[..., Task]) -> None:
    seen: list[tuple[int, int]] = []

    def look(context: ProcessorContext, record: Record[Any, Any]) -> None:
        seen.append((record.timestamp_ms, context.current_stream_time_ms))

    run(chain(look), *(record(b"1", timestamp_ms=timestamp) for timestamp in (5, 3, 8, 7)))
    assert seen == [(5, 5), (3, 5), (8, 8), (7, 8)]


def test_processors_are_closed_and_made_anew_for_each_task(run: Callable[..., Task]) -> None:
    log: list[str] = []

    class Logs(Processor):
        def init(self, context: ProcessorContext) -> None:
            log.append("init")

        def process(self, record: Record[Any, Any]) -> None:
            log.append("process")

        def close(self) -> None:
            log.append("close")

    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.json())
    topology.add_processor("p", Logs, ["in"])
    run(topology, record(b"1"))
    run(topology)
    assert log == ["init", "process", "close", "init", "close"]


def test_a_supplier_must_make_a_processor(run: Callable[..., Task]) -> None:
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.json())
    topology.add_processor("p", dict, ["in"])
    with pytest.raises(TypeError, match=r"'p' made \{\}, which is not a Processor"):
        run(topology)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"\x00\xff", b"\x00\xff"),
        ("ä", b"\xc3\xa4"),
        (-1, b"\xff" * 8),
        (2**63 - 1, b"\x7f" + b"\xff" * 7),
        (-(2**63), b"\x80" + b"\x00" * 7),
        (1.0, b"\x3f\xf0" + b"\x00" * 6),
        (True, b"true"),
        ({"ä": [1, None]}, b'{"\xc3\xa4":[1,null]}'),
    ],
)
def test_default_sink_forms(value: Any, expected: bytes) -> None:
    assert serialize_by_type(value) == expected


def test_what_has_no_default_form_is_refused() -> None:
    with pytest.raises(SerializationError, match=r"object has no default form.*serde"):
        serialize_by_type(object())
    for number in (2**63, -(2**63) - 1):
        with pytest.raises(SerializationError, match="does not fit in int64: give the sink a serde"):
            serialize_by_type(number)


def test_a_kept_value_is_what_a_later_record_sees(run: Callable[..., Task]) -> None:
    def count(context: ProcessorContext, record: Record[Any, Any]) -> None:
        store = context.state_store("s")
        seen = store.get(record.key)
        now = (seen.value if seen else "") + "x"
        store.put(record.key, ValueTimestampHeaders.make(now, record.timestamp_ms, record.headers))
        context.forward(record.with_value(now))

    topology = chain(count)
    supplier = Stores.persistent_timestamped_key_value_store_with_headers("s")
    topology.add_state_store(
        Stores.timestamped_key_value_store_with_headers_builder(supplier, Serdes.string(), Serdes.string()), "p"
    )
    task = run(topology, record(b"1"), record(b"1", b"l"), record(b"1"))
    assert [output[3] for output in task.outputs] == [b"x", b"x", b"xx"]
