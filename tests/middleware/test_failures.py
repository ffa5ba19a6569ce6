"""Records that fail: refused, unreadable, failed on, unwritable; what the query does, and what dead letters say."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from statestore import Headers, Processor, ProcessorContext, Record, Serdes, Topology
from statestore.errors import DeserializationError, ProcessorError, SerializationError, TopologyError
from statestore.headers.record_columns import RecordColumns
from statestore.headers.topic_columns import SourceFields, source_batch
from statestore.interception.failures import FailedRecord, FailureHandling, FailureStage, OnFailure
from statestore.middleware import DeadLetters, Interceptor
from statestore.processor.context import TaskRecordContext
from statestore.processor.processor import BatchProcessor
from statestore.processor.punctuation import PunctuationType
from statestore.processor.task import Task
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import chain, input_of
from tests.support.interceptors import ColumnStamp, ForbiddenError, Refusing, Stamp

JSON = Serdes.json()


def handle(context: ProcessorContext, record: Record[Any, Any]) -> None:
    """Fail on "boom", forward what no serde writes for "unwritable", the record otherwise."""
    if record.value == "boom":
        raise KeyError("no tenant")
    context.forward(record.with_value({1, 2}) if record.value == "unwritable" else record)


def letters_of(driver: TopologyTestDriver, topic: str = "dead") -> list[TestRecord[bytes, bytes]]:
    return driver.create_output_topic(
        topic, key_serde=Serdes.bytes(), value_serde=Serdes.bytes()
    ).read_records_to_list()


def said(letter: TestRecord[bytes, bytes]) -> dict[str, str]:
    return {
        header.key.removeprefix(DeadLetters.PREFIX): (header.value or b"").decode()
        for header in letter.headers
        if header.key.startswith(DeadLetters.PREFIX)
    }


def outputs_of_text(driver: TopologyTestDriver) -> list[str]:
    return driver.create_output_topic(
        "out", key_serde=Serdes.string(), value_serde=Serdes.string()
    ).read_values_to_list()


STAGES: dict[str, tuple[bytes, str, dict[str, Any]]] = {
    "refused": (b"bad", "TRANSFORMATION", {"interceptors": [Refusing("guard")]}),
    "unreadable": (b"{", "VALUE_CONVERTER", {"deserialization": "dead_letter"}),
    "failed": (b'"boom"', "TASK_PUT", {"processing": "dead_letter"}),
    "unwritable": (b'"unwritable"', "KAFKA_PRODUCE", {"production": "dead_letter"}),
}
FIELDS = {
    "refused": "refusal",
    "unreadable": "deserialization",
    "failed": "processing",
    "unwritable": "production",
}
CLASSES = {
    "refused": ("guard", "tests.support.interceptors.ForbiddenError", "a bad value"),
    "unreadable": ("in", "statestore.errors.DeserializationError", "json"),
    "failed": ("p", "KeyError", "no tenant"),
    "unwritable": ("out", "statestore.errors.SerializationError", "set"),
}


@pytest.mark.parametrize("how", STAGES)
@pytest.mark.parametrize("in_columns", [False, True])
def test_a_dead_letter_is_the_record_as_it_came_with_what_was_wrong(how: str, in_columns: bool) -> None:
    value, stage, options = STAGES[how]
    options = {**options}
    stamp = ColumnStamp("stamp") if in_columns else Stamp("stamp")
    interceptors = [*options.pop("interceptors", ()), stamp]
    failures = FailureHandling(dead_letters="dead", **options)
    with TopologyTestDriver(chain(handle, value_serde=JSON), interceptors=interceptors, failures=failures) as driver:
        raw = input_of(driver, value_serde=Serdes.bytes())
        headers = [("trace", b"1"), (DeadLetters.TOPIC, b"a lie")]
        for number, each in enumerate((b'"before"', value, b'"after"')):
            raw.pipe_input("k", each, timestamp_ms=10 + number, headers=headers)
        assert outputs_of_text(driver) == ["before", "after"]
        (letter,) = letters_of(driver)
        node, error, message = CLASSES[how]
        found = said(letter)
        assert (letter.key, letter.value, letter.timestamp_ms) == (b"k", value, 11)
        assert [header for header in letter.headers if not header.key.startswith(DeadLetters.PREFIX)] == headers[:1]
        assert len(list(letter.headers.headers(DeadLetters.TOPIC))) == 1, "nobody else says where it came from"
        assert (found["topic"], found["partition"], found["offset"]) == ("in", "0", "1")
        assert (found["stage"], found["class.name"], found["exception.class.name"]) == (stage, node, error)
        assert message in found["exception.message"]
        assert (found["connector.name"], found["task.id"]) == ("statestore", "0")
        assert ("exception.stacktrace" in found) is (how != "refused")
        assert driver.metrics()[f"failed-records/{error.rpartition('.')[2]}"] == 1


@pytest.mark.parametrize("how", STAGES)
def test_each_failure_ends_the_query_unless_it_was_told_to_go_on(how: str) -> None:
    value, _, options = STAGES[how]
    interceptors = options.get("interceptors")
    raised = {
        "refused": ForbiddenError,
        "unreadable": DeserializationError,
        "failed": ProcessorError,
        "unwritable": ProcessorError,
    }
    with TopologyTestDriver(chain(handle, value_serde=JSON), interceptors=interceptors) as driver:
        raw = input_of(driver, value_serde=Serdes.bytes())
        with pytest.raises(raised[how]) as caught:
            raw.pipe_input("k", value)
        if how == "unwritable":
            assert isinstance(caught.value.__cause__, SerializationError)
    going_on: dict[str, Any] = dict.fromkeys(FIELDS.values(), "continue")
    with TopologyTestDriver(
        chain(handle, value_serde=JSON), interceptors=interceptors, failures=FailureHandling(**going_on)
    ) as driver:
        input_of(driver, value_serde=Serdes.bytes()).pipe_value_list([value, b'"after"'])
        assert outputs_of_text(driver) == ["after"]
    others = FailureHandling(**{**going_on, FIELDS[how]: "fail"})
    with (
        TopologyTestDriver(chain(handle, value_serde=JSON), interceptors=interceptors, failures=others) as driver,
        pytest.raises(raised[how]),
    ):
        input_of(driver, value_serde=Serdes.bytes()).pipe_input("k", value)


def test_a_handler_may_be_a_function_of_the_record() -> None:
    seen: list[FailedRecord] = []

    def decide(failed: FailedRecord) -> str:
        seen.append(failed)
        return "continue" if len(seen) == 1 else "dead_letter" if len(seen) == 2 else "fail"

    with TopologyTestDriver(
        chain(handle, value_serde=JSON),
        failures=FailureHandling(dead_letters=DeadLetters("dead", "orders", False), processing=decide),
    ) as driver:
        source = input_of(driver, value_serde=JSON)
        source.pipe_input("k", "boom", timestamp_ms=5)
        assert "dead" not in driver.produced_topic_names()
        source.pipe_input("k", "boom", timestamp_ms=6)
        (letter,) = letters_of(driver)
        assert said(letter)["connector.name"] == "orders"
        assert "exception.stacktrace" not in said(letter)
        with pytest.raises(ProcessorError):
            source.pipe_input("k", "boom", timestamp_ms=7)
    assert [(each.stage, each.node, each.timestamp_ms) for each in seen] == [
        (FailureStage.PROCESSING, "p", time_ms) for time_ms in (5, 6, 7)
    ]
    assert isinstance(seen[0].error, KeyError)


def test_an_audit_topic_takes_what_is_refused_even_where_there_are_no_dead_letters() -> None:
    guard = Refusing("guard")
    guard.audit_topic = "audit"
    with TopologyTestDriver(chain(), interceptors=[guard]) as driver:
        input_of(driver).pipe_value_list(["good", "bad"])
        assert [letter.value for letter in letters_of(driver, "audit")] == [b"bad"]
        assert driver.metrics()["process-total"] == 2


def test_what_goes_out_and_is_refused_becomes_a_dead_letter_of_the_input_record() -> None:
    def worsen(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.forward(record)
        context.forward(record.with_value("bad"))

    with TopologyTestDriver(
        chain(worsen), interceptors=[Refusing("guard")], failures=FailureHandling(dead_letters="dead")
    ) as driver:
        input_of(driver).pipe_value_list(["good"])
        (letter,) = letters_of(driver)
        assert (letter.value, said(letter)["offset"], said(letter)["class.name"]) == (b"good", "0", "guard")
        assert outputs_of_text(driver) == ["good"]
    goes_on = FailureHandling(processing="continue")
    with (
        TopologyTestDriver(chain(worsen), interceptors=[Refusing("guard")], failures=goes_on) as driver,
        pytest.raises(ProcessorError, match="ForbiddenError"),
    ):
        input_of(driver).pipe_input("k", "good")


class RefusingColumns(Refusing):
    """Takes columns on either side."""

    def on_emit_columns(self, records: RecordColumns) -> RecordColumns:
        if b"bad" in records.value.to_pylist():
            self._refuse()
        return records


def test_what_is_held_to_go_out_is_refused_while_its_input_is_at_hand() -> None:
    topology = chain(lambda context, record: context.forward(record.with_value("bad")), value_serde=Serdes.string())
    around = topology.with_interceptors([ColumnStamp("stamp"), RefusingColumns("guard")])
    task = Task(around, 0, {}, TaskRecordContext(), handling=FailureHandling(dead_letters=DeadLetters("dead")))
    came: list[SourceFields] = [("in", 0, offset, 5, b"k", b"v%d" % offset, b"") for offset in range(4)]
    for part in (came[:2], came[2:]):
        for batch in task.ingest_batch(source_batch(part)):
            task.process_batch(batch)
    task.finish_batch()
    assert [(topic, value) for topic, _, _, value, _ in task.outputs] == [("dead", record[5]) for record in came]
    assert all(Headers.from_bytes(output[4]).last_header("in") is None for output in task.outputs)


class SendsInPunctuations(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context
        context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[Any, Any]) -> None:
        pass

    def tick(self, now_ms: int) -> None:
        self.context.forward(Record("k", {1}, now_ms))


def test_what_belongs_to_no_record_says_only_what_was_wrong() -> None:
    topology = Topology().add_source("in", "in", key_serde=JSON, value_serde=JSON)
    topology.add_processor("p", SendsInPunctuations, ["in"]).add_sink("out", "out", ["p"])
    with TopologyTestDriver(
        topology,
        failures=FailureHandling(dead_letters="dead", production="dead_letter"),
    ) as driver:
        driver.advance_wall_clock_time(10)
        (letter,) = letters_of(driver)
        assert (letter.key, letter.value) == (None, None)
        assert "topic" not in said(letter)
        assert said(letter)["stage"] == "KAFKA_PRODUCE"


class InColumns(BatchProcessor):
    def process_batch(self, records: RecordColumns) -> None:
        pass


class Consuming(Interceptor):
    def on_consume(self, record: Any) -> list[Any]:
        return [record]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"failures": FailureHandling(processing="continue")}, "a failure has no single record to leave out"),
        ({"interceptors": [Consuming()]}, "on_consume of an interceptor"),
    ],
)
def test_columns_that_leave_no_way_to_tell_records_apart_are_refused_at_the_start(options: Any, problem: str) -> None:
    topology = Topology().add_source("in", "in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    topology.add_processor("p", InColumns, ["in"])
    with pytest.raises(TopologyError, match=problem):
        TopologyTestDriver(topology, **options)


@pytest.mark.parametrize(
    ("options", "kind", "problem"),
    [
        ({"processing": "ignore"}, ValueError, "processing must be one of fail, continue"),
        ({"refusal": "dead_letter"}, ValueError, 'refusal="dead_letter" needs a topic'),
        ({"refusal": 5}, TypeError, "refusal must be one of"),
        ({"dead_letters": ""}, TypeError, "dead_letters must be the name of a topic"),
    ],
)
def test_a_wrong_handling_is_refused(options: Any, kind: type[Exception], problem: str) -> None:
    with pytest.raises(kind, match=problem):
        FailureHandling(**options)


def test_what_is_left_out_is_logged_a_few_times(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "statestore.interception.failures"),
        TopologyTestDriver(chain(handle, value_serde=JSON), failures=FailureHandling(processing="continue")) as driver,
    ):
        input_of(driver, value_serde=Serdes.bytes()).pipe_value_list([json.dumps("boom").encode()] * 12)
    assert len(caplog.records) == 10
    assert "record in-0 at offset 0" in caplog.records[0].getMessage()


def test_a_topic_in_the_word_is_that_for_dead_letters() -> None:
    with TopologyTestDriver(
        chain(handle, value_serde=JSON), failures=FailureHandling(deserialization="topic:dead")
    ) as driver:
        input_of(driver, value_serde=Serdes.bytes()).pipe_input("k", b"{")
        (letter,) = letters_of(driver)
        assert (letter.value, said(letter)["stage"]) == (b"{", "VALUE_CONVERTER")
    named = FailureHandling(processing="topic:dead", dead_letters=DeadLetters("dead", name="orders"))
    assert (named.processing, named.letters.name) == (OnFailure.DEAD_LETTER, "orders")


@pytest.mark.parametrize(
    "options",
    [
        {"processing": "topic:a", "production": "topic:b"},
        {"refusal": "topic:a", "dead_letters": "b"},
        {"deserialization": "topic:"},
        {"deserialization": "a topic:b"},
    ],
)
def test_words_name_one_topic(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"topic"):
        FailureHandling(**options)
