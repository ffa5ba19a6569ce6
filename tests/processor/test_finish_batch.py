"""What processors hold back until the batch ends: order, whose record it is, errors."""

from typing import Any

import pytest

from statestore import Headers, Processor, ProcessorContext, Record, Serdes, Topology
from statestore.errors import ProcessorError
from statestore.format.records.header_bytes import encode_headers
from statestore.headers.topic_columns import SourceFields
from statestore.interception.failures import DeadLetters, FailureHandling
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from tests.support.interceptors import Stamp

HEADERS = encode_headers([("h", b"1")])


class Holding(Processor):
    """Holds records back until the batch ends."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.held: list[tuple[Record[Any, Any], Any]] = []

    def process(self, record: Record[Any, Any]) -> None:
        self.held.append((record, self.context.record_metadata))

    def finish_batch(self) -> None:
        assert self.context.record_metadata is None
        assert self.context.current_timestamp_ms == self.context.current_stream_time_ms
        assert self.context.current_headers == Headers()
        held, self.held = self.held, []
        for record, metadata in held:
            with self.context.resumed(record, metadata):
                self.context.forward(record)
        assert self.context.record_metadata is None


class Looking(Processor):
    """Notes the context of each record."""

    seen: list[Any]

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        context = self.context
        now = (context.record_metadata, context.current_timestamp_ms, context.current_headers.to_bytes())
        type(self).seen.append((record.key, now))


def a_task(*below: type[Processor]) -> Task:
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.string())
    parent = "in"
    for number, processor in enumerate(below):
        topology.add_processor(f"p{number}", processor, [parent])
        parent = f"p{number}"
    topology.add_sink("out", "out", [parent])
    return Task(topology, 0, {}, TaskRecordContext())


def record(key: bytes, offset: int, timestamp_ms: int) -> SourceFields:
    return ("in", 0, offset, timestamp_ms, key, b"v", HEADERS)


def test_parents_finish_before_their_children_and_each_record_is_itself() -> None:
    looking = type("LookingHere", (Looking,), {"seen": []})
    task = a_task(Holding, Holding, looking)
    task.process([record(b"a", 1, 5), record(b"b", 2, 3)])
    assert looking.seen == []
    task.finish_batch()
    assert looking.seen == [("a", (("in", 0, 1), 5, HEADERS)), ("b", (("in", 0, 2), 3, HEADERS))]
    task.finish_batch()
    assert len(looking.seen) == 2
    task.close()


def test_what_is_held_back_goes_to_the_sink_after_the_batch() -> None:
    task = a_task(Holding)
    task.process([record(b"a", 1, 5)])
    assert task.outputs == []
    task.finish_batch()
    assert task.outputs == [("out", 5, b"a", b"v", HEADERS)]
    task.close()


def test_a_record_is_the_current_one_again_after_another_was_resumed() -> None:
    class Resuming(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: Record[Any, Any]) -> None:
            with self.context.resumed(Record("k", "v", 1), None):
                assert self.context.record_size_bytes == 0
            assert self.context.record_size_bytes == len(b"a" + b"v" + HEADERS)
            raise ZeroDivisionError

    with pytest.raises(ProcessorError) as caught:
        a_task(Resuming).process([record(b"a", 7, 5)])
    assert caught.value.key_bytes == 1


def test_what_was_held_back_does_not_make_a_dead_letter_of_another_record() -> None:
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.string(), value_serde=Serdes.string())
    topology.add_processor("p", Holding, ["in"])
    topology.add_sink("out", "out", ["p"], value_serde=Serdes.int64())
    handling = FailureHandling(production="dead_letter", dead_letters=DeadLetters("dead", with_context=False))
    task = Task(topology.with_interceptors([Stamp("s")]), 0, {}, TaskRecordContext(), handling=handling)
    task.process(task.ingest([record(b"a", 1, 5), record(b"b", 2, 6)]))
    task.finish_batch()
    # By then, the first one is gone.
    assert [output[2] for output in task.outputs] == [None, b"b"]
    task.close()


def test_an_error_says_where() -> None:
    class Failing(Processor):
        def process(self, record: Record[Any, Any]) -> None:
            pass

        def finish_batch(self) -> None:
            raise ZeroDivisionError("oh")

    task = a_task(Failing)
    with pytest.raises(ProcessorError, match=r"node 'p0' failed in finish_batch\(\): ZeroDivisionError: oh"):
        task.finish_batch()


def test_an_error_below_names_the_record_that_was_resumed() -> None:
    class Failing(Processor):
        def process(self, record: Record[Any, Any]) -> None:
            raise ZeroDivisionError("oh")

    task = a_task(Holding, Failing)
    task.process([record(b"a", 7, 5)])
    with pytest.raises(ProcessorError, match="node 'p1' failed on record in-0 at offset 7: ZeroDivisionError"):
        task.finish_batch()
