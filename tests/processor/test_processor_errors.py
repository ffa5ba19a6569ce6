"""What processors do at the wrong time or with the wrong things: an error that says so, from every node."""

from __future__ import annotations

import json
import sysconfig
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from statestore import BatchProcessor, Headers, Processor, ProcessorContext, PunctuationType, Record, Serdes, Topology
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.errors import DeserializationError, ProcessorError, SerializationError, TopologyError
from statestore.errors.readable import user_line, utc_text
from statestore.processor.context import TaskRecordContext
from statestore.processor.rehearsal import refuse_empty_classes
from statestore.processor.task import Task
from tests.support.driver_topologies import KINDS

TEXT = Serdes.string()
RECORD = ("in", 2, 7, 5, b"k", b"v", b"")


class Doing(Processor):
    """Runs functions of itself, whose context is `context`."""

    def __init__(self, **functions: Callable[..., Any]) -> None:
        self.functions = functions

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.run("init")

    def process(self, record: Record[Any, Any]) -> None:
        self.run("process", record)

    def finish_batch(self) -> None:
        self.run("finish_batch")

    def close(self) -> None:
        self.run("close")

    def run(self, what: str, *arguments: Any) -> None:
        if what in self.functions:
            self.functions[what](self.context, *arguments)


def topology(**functions: Callable[..., Any]) -> Topology:
    made = Topology()
    made.add_source("source", "in", key_serde=TEXT, value_serde=TEXT)
    made.add_processor("p", lambda: Doing(**functions), ["source"])
    made.add_sink("out", "out", ["p"])
    made.add_state_store(KINDS["ts-kv"].persistent("s"), "p")
    return made


def task_of(made: Topology, stream_time_ms: int = -1) -> Task:
    context = TaskRecordContext(stream_time_ms)
    stores = {name: each.build(MemoryByteStore(name), context=context) for name, each in made.store_builders.items()}
    return Task(made, 0, stores, context)


def forward(context: ProcessorContext, *_: Any) -> None:
    context.forward(Record("k", "v", 1))


def forward_to_out(context: ProcessorContext, *_: Any) -> None:
    context.forward(Record("k", "v", 1), "out")


@pytest.mark.parametrize("forwarding", [forward, forward_to_out])
def test_nothing_can_be_forwarded_in_init_or_close(forwarding: Callable[..., None]) -> None:
    with pytest.raises(TopologyError, match=r"node 'p' forwards in init\(\) or close\(\).*Forward from process\(\)"):
        task_of(topology(init=forwarding))
    task = task_of(topology(close=forwarding))
    with pytest.raises(ProcessorError, match=r"node 'p' failed in close\(\): TopologyError: node 'p' forwards in init"):
        task.close()
    assert task.outputs == []


def test_what_is_held_back_can_be_forwarded_when_the_batch_ends() -> None:
    task = task_of(topology(finish_batch=forward))
    task.finish_batch()
    assert [output[3] for output in task.outputs] == [b"v"]


@pytest.mark.parametrize(("stream_time_ms", "expected_ms"), [(-1, 0), (70, 70)])
def test_what_init_and_close_put_has_stream_time(stream_time_ms: int, expected_ms: int) -> None:
    found: list[Any] = []

    def put(context: ProcessorContext) -> None:
        store = context.state_store("s")
        store.put_value("k", "v")
        found.append(store.get("k").timestamp_ms)

    task_of(topology(init=put, close=put), stream_time_ms).close()
    assert found == [expected_ms, expected_ms]


@pytest.mark.parametrize("what", ["text", None, ("k", "v")])
def test_only_records_can_be_forwarded(what: Any) -> None:
    with pytest.raises(ProcessorError, match="node 'p' can only forward a Record, not"):
        task_of(topology(process=lambda context, record: context.forward(what))).process([RECORD])


@pytest.mark.parametrize(
    ("sink", "message"),
    [
        ({"topic": "out", "value_serde": Serdes.int64()}, r"SerializationError: sink 'end' can't write"),
        ({"topic": lambda record, metadata: 1 // 0}, "ZeroDivisionError"),
        ({"topic": lambda record, metadata: None}, "the function that chooses a topic returned None"),
    ],
)
def test_a_sink_right_below_a_source_says_which_record_it_was(sink: dict[str, Any], message: str) -> None:
    made = Topology()
    made.add_source("source", "in", key_serde=TEXT, value_serde=TEXT)
    made.add_sink("end", sink.pop("topic"), ["source"], **sink)
    with pytest.raises(ProcessorError, match=f"node 'end' failed on record in-2 at offset 7: .*{message}") as caught:
        task_of(made).process([RECORD])
    assert (caught.value.topic, caught.value.partition, caught.value.offset, caught.value.doing) == ("in", 2, 7, "")
    assert isinstance(caught.value.__cause__, SerializationError | ZeroDivisionError | TypeError)


def test_a_record_that_was_held_back_is_named_when_it_fails() -> None:
    held: list[Any] = []

    def hold(context: ProcessorContext, record: Record[Any, Any]) -> None:
        held.append((record, context.record_metadata))

    def finish(context: ProcessorContext) -> None:
        for record, metadata in held:
            with context.resumed(record, metadata):
                raise KeyError(record.value)

    task = task_of(topology(process=hold, finish_batch=finish))
    task.process([RECORD])
    with pytest.raises(ProcessorError, match="node 'p' failed on record in-2 at offset 7: KeyError: 'v'"):
        task.finish_batch()


def test_a_processor_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    class Needs(Processor):
        def __init__(self, model: str) -> None:
            self.model = model

    made = Topology()
    made.add_source("source", "in", key_serde=TEXT, value_serde=TEXT)
    made.add_processor("p", Needs, ["source"])  # type: ignore[arg-type]
    with pytest.raises(ProcessorError, match=r"node 'p' failed when it was made: TypeError: .*'model'"):
        task_of(made)


def test_a_supplier_must_make_a_new_one_each_time() -> None:
    only = Doing()
    made = Topology()
    made.add_source("source", "in", key_serde=TEXT, value_serde=TEXT)
    with pytest.raises(ValueError, match="processor 'p': supplier must make a new processor each time"):
        made.add_processor("p", lambda: only, ["source"])
    assert list(made.nodes) == ["source"]


def global_topology(**functions: Callable[..., Any]) -> Topology:
    made = topology(process=functions.pop("reads", forward))
    made.add_global_store(
        KINDS["kv"].persistent("g"), "gs", "global", "gp", lambda: Doing(**functions), key_serde=TEXT, value_serde=TEXT
    )
    return made


def test_a_global_store_has_no_time_to_schedule_by() -> None:
    def schedule(context: ProcessorContext) -> None:
        context.schedule(1, PunctuationType.STREAM_TIME, print)

    with pytest.raises(TopologyError, match="node 'gp' feeds a global store: it can't schedule punctuation"):
        task_of(global_topology(init=schedule))


@pytest.mark.parametrize("method", ["put", "delete", "put_if_absent", "put_all", "close", "flush"])
def test_who_reads_a_global_store_is_told_that_it_cannot_write(method: str) -> None:
    def write(context: ProcessorContext, record: Record[Any, Any]) -> None:
        getattr(context.state_store("g"), method)("k", "v")

    with pytest.raises(ProcessorError, match=rf"store 'g' can only be read here: it has no {method}\(\)"):
        task_of(global_topology(reads=write)).process([RECORD])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((-2,), ValueError, "must be from 0 to 2\\^63 - 1, or -1 if it is unknown, got -2"),
        ((2**63,), ValueError, "must be from 0 to 2\\^63 - 1"),
        ((1.5,), TypeError, "must be a whole number, got 1.5"),
        ((None,), TypeError, "must be a whole number, got None"),
        (
            (1, "headers"),
            TypeError,
            r"headers are keys and values in pairs, not a str: write Headers\(\[\(key, value\)\]\)",
        ),
        ((1, {"a": b"1"}), TypeError, "not a dict, whose keys can't repeat: write Headers"),
    ],
)
def test_records_that_can_not_be(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Record("k", "v", *arguments)


def test_the_headers_of_a_record_are_set_as_they_are_given_and_never_none() -> None:
    given = Headers([("a", b"1")])
    record = Record("k", "v", 1)
    record.headers = given
    given.add("b", None)
    assert list(record.headers) == [("a", b"1")]
    for none, message in ((None, "must not be None"), ({"a": b"1"}, "not a dict")):
        with pytest.raises(TypeError, match=message):
            record.headers = none  # type: ignore[assignment]
    assert list(record.headers) == [("a", b"1")]


def test_a_record_takes_pairs_for_headers_and_any_whole_number_for_a_time() -> None:
    record = Record("k", "v", True, [("a", b"1"), ("a", None)])
    assert (record.timestamp_ms, type(record.timestamp_ms)) == (1, int)
    assert list(record.headers) == [("a", b"1"), ("a", None)]
    assert list(record.with_headers([("b", b"")]).headers) == [("b", b"")]


TIMED = ("in", 2, 7, 1_772_366_400_000, b"ada", b"v", b"")
"""A record of the 1st of March 2026, noon."""
ADA = f"key {sha256(b'ada').hexdigest()[:16]} of 3 bytes, value of 1 bytes, headers of 0 bytes"


def line_of(call: Callable[..., Any]) -> str:
    return f"{__file__}:{call.__code__.co_firstlineno + 1}"


def read_badly(data: bytes) -> Any:
    return json.loads(data)["amount"]


def test_what_failed_says_key_time_and_line_of_the_users_code() -> None:
    def deeper(value: str) -> None:
        json.loads(value)  # which is Python's own code, and not the user's

    with pytest.raises(ProcessorError) as caught:
        task_of(topology(process=lambda context, record: deeper(record.value))).process([TIMED])
    assert f"({ADA}, 2026-03-01 12:00:00 UTC, at {line_of(deeper)}). Nothing of the batch" in str(caught.value)
    assert (caught.value.key_bytes, caught.value.timestamp_ms, caught.value.at) == (3, TIMED[3], line_of(deeper))


def test_a_record_that_no_serde_can_read_says_key_time_and_line() -> None:
    made = Topology()
    made.add_source("source", "in", key_serde=TEXT, value_serde=Serdes.of("mine", str.encode, read_badly))
    made.add_sink("out", "out", ["source"])
    with pytest.raises(DeserializationError) as caught:
        task_of(made).process([TIMED])
    assert f"at offset 7 ({ADA}, 2026-03-01 12:00:00 UTC, at {line_of(read_badly)}): " in str(caught.value)
    assert (caught.value.offset, caught.value.key_bytes, caught.value.at) == (7, 3, line_of(read_badly))


@pytest.mark.parametrize(
    ("timestamp_ms", "text"),
    [(0, "1970-01-01 00:00:00 UTC"), (1_700_000_000_000_000, "the year 55,840"), (-(10**15), "the year -29,719")],
)
def test_times_are_readable_whatever_they_are(timestamp_ms: int, text: str) -> None:
    assert utc_text(timestamp_ms) == text


def raised(*files: str) -> Exception:
    """What code raised that is in the first file, and calls what is in the next, and so on."""
    functions: dict[str, Any] = {}
    for number, file in enumerate(files):
        body = f"f{number + 1}()" if number + 1 < len(files) else "raise KeyError(1)"
        exec(compile(f"def f{number}():\n    {body}", file, "exec"), functions)
    with pytest.raises(KeyError) as caught:
        functions["f0"]()
    error = caught.value
    error.__traceback__ = error.__traceback__ and error.__traceback__.tb_next  # without this file
    return error


def test_the_users_code_may_be_an_installed_package_and_python_never_is() -> None:
    shop, numpy = (f"{sysconfig.get_path('purelib')}/{name}" for name in ("shop/totals.py", "numpy/core.py"))
    python = f"{sysconfig.get_path('stdlib')}/json/decoder.py"
    assert user_line(raised(python, shop, numpy, python)) == f"{shop}:2"
    assert user_line(raised(shop, "/home/me/rules.py", numpy)) == "/home/me/rules.py:2"
    assert user_line(raised(python)) == user_line(KeyError()) == ""


class Nothing(Processor):
    pass


class NothingInColumns(BatchProcessor):
    pass


@pytest.mark.parametrize(
    ("supplier", "method"),
    [
        (Nothing, r"process\(self, record\)"),
        (partial(Nothing), r"process\(self, record\)"),
        (NothingInColumns, r"process_batch\(self, records\)"),
    ],
)
def test_a_class_that_processes_nothing_is_named_before_a_record_comes(supplier: Any, method: str) -> None:
    made = Topology().add_source("source", "in", key_serde=TEXT, value_serde=Serdes.bytes())
    made.add_processor("p", supplier, ["source"])
    with pytest.raises(TopologyError, match=rf"processor 'p' can't process anything: \w+ must define {method}"):
        refuse_empty_classes(made)
    refuse_empty_classes(topology())
