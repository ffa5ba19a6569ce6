"""Runs scenarios of `java_driver` through statestore's TopologyTestDriver, and says what Java's results mean here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from statestore import (
    AggregationWithHeaders,
    Headers,
    Serdes,
    Topology,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from statestore.errors import DriverError, ProcessorError, TopologyError
from statestore.errors.harness import DriverFailedError
from statestore.errors.run import UnknownTopicError
from statestore.stores.session import ReadOnlySessionStore
from statestore.stores.versioned import ReadOnlyVersionedKeyValueStore
from statestore.testing import TestInputTopic, TestOutputTopic, TestRecord, TopologyTestDriver
from tests.support.java.driver import Scenario, Step
from tests.support.twins.kit import Kit, passing, sink, source, with_global_store
from tests.support.twins.topologies import TOPOLOGIES

BYTES = Serdes.bytes()
FAILED = {"error": ["the driver is not used after a failure"]}

_IN_PROCESS = re.compile(
    r"Exception caught in process\. taskId=0_0, processor=(\S+), topic=(\S+), partition=(\d+), offset=(\d+)$"
)
_IN_PUNCTUATOR = re.compile(r"Exception caught while punctuating processor '(\S+)'$")
_IN_INIT = re.compile(r"failed to initialize processor (\S+)$")
_SAID_BY_BOTH = re.compile(r"(Uninitialized topic|Empty topic|Unknown topic): (\S+)$")


class Run:
    """Steps of a scenario on their way through the driver."""

    def __init__(self, steps: Sequence[Step], driver: TopologyTestDriver) -> None:
        self._driver = driver
        self._inputs: dict[str, TestInputTopic[bytes | None, bytes | None]] = {}
        self._keys = sorted({_text(step[2]) or "" for step in steps if step[0] == "pipe" and step[2]})
        self._times_ms = sorted({step[4] for step in steps if step[0] == "pipe" and step[4] is not None})

    def outcome(self, step: Step) -> Any:
        """What a step gives: None, records, or what went wrong."""
        try:
            return self.perform(step)
        except DriverFailedError:
            return FAILED
        except Exception as failure:
            return {"error": meaning_here(failure)}

    def stores(self) -> dict[str, list[Any]]:
        return {name: self._dump(store) for name, store in sorted(self._driver.get_all_state_stores().items())}

    def topics(self) -> dict[str, list[Any]]:
        return {topic: self._read(topic) for topic in sorted(self._driver.produced_topic_names())}

    def perform(self, step: Step) -> Any:
        """Do what a step says, and return what it reads, if it does."""
        kind, argument, *rest = step
        if kind == "pipe":
            self._pipe(argument, *rest)
        elif kind == "advance":
            self._driver.advance_wall_clock_time(argument)
        elif kind == "read":
            return self._read(argument)
        elif kind == "read_one":
            return _described([self._output(argument).read_record()])
        elif kind == "put":
            store = self._driver.get_key_value_store(argument)
            assert store is not None
            store.put(_text(rest[0]), _text(rest[1]))
        elif kind == "input":
            self._inputs[argument] = self._input(argument, *rest)
        elif kind == "advance_time":
            self._inputs[argument].advance_time(*rest)
        else:
            raise ValueError(f"no such step: {step}")
        return None

    def _pipe(
        self,
        topic: str,
        key: str | None,
        value: str | None,
        timestamp_ms: int | None,
        headers: Sequence[tuple[str, str | None]],
    ) -> None:
        self._input_of(topic).pipe_input(_record(key, value, timestamp_ms, headers))

    def pipe_micro_batch(self, topic: str, steps: Iterable[Step]) -> None:
        """Pipe what steps say into a topic, as one micro-batch."""
        self._input_of(topic).pipe_micro_batch([_record(*step[2:]) for step in steps])

    def _input_of(self, topic: str) -> TestInputTopic[bytes | None, bytes | None]:
        if topic not in self._inputs:
            self._inputs[topic] = self._input(topic, 0, 0)
        return self._inputs[topic]

    def _input(self, topic: str, start_ms: int, auto_advance_ms: int) -> TestInputTopic[bytes | None, bytes | None]:
        return self._driver.create_input_topic(
            topic,
            key_serde=BYTES,
            value_serde=BYTES,
            start_timestamp_ms=start_ms,
            auto_advance_ms=auto_advance_ms,
        )

    def _output(self, topic: str) -> TestOutputTopic[bytes | None, bytes | None]:
        return self._driver.create_output_topic(topic, key_serde=BYTES, value_serde=BYTES)

    def _read(self, topic: str) -> list[Any]:
        return _described(self._output(topic).read_records_to_list())

    def _dump(self, store: Any) -> list[Any]:
        if isinstance(store, ReadOnlyVersionedKeyValueStore):
            times_ms: list[int | None] = [None, *self._times_ms]
            return [
                [key, time_ms, _version(store.get(key) if time_ms is None else store.get(key, time_ms))]
                for key in self._keys
                for time_ms in times_ms
            ]
        entries = store.fetch(None, None) if isinstance(store, ReadOnlySessionStore) else store.all()
        return [[*_key_parts(key), *_value_parts(value)] for key, value in entries]


def run_here(scenario: Scenario) -> dict[str, Any]:
    """What a scenario gives, in the shape of `meaning_of_java`."""
    try:
        kit = Kit(scenario.persistent)
        topology = graph(kit, scenario) if scenario.topology == "graph" else TOPOLOGIES[scenario.topology](kit)
        description = str(topology.describe())
        driver = TopologyTestDriver(
            topology, application_id="app", initial_wall_clock_time_ms=scenario.initial_wall_clock_ms
        )
    except Exception as failure:
        return {"error": meaning_here(failure)}
    with driver:
        run = Run(scenario.steps, driver)
        steps = [run.outcome(step) for step in scenario.steps]
        if FAILED in steps:
            return {"describe": description, "steps": steps}
        return {"describe": description, "steps": steps, "stores": run.stores(), "topics": run.topics()}


def graph(kit: Kit, scenario: Scenario) -> Topology:
    topology = Topology()
    for kind, name, *rest in scenario.graph:
        if kind == "source":
            source(topology, name, *rest[0])
        elif kind == "processor":
            topology.add_processor(name, passing(), rest[0])
        elif kind == "sink":
            sink(topology, name, rest[0], *rest[1])
        elif kind == "store":
            topology.add_state_store(kit.plain(name), *rest[0])
        else:
            with_global_store(topology, name, *rest)
    return topology


def meaning_here(failure: Exception) -> list[Any]:
    """What went wrong, in words that are the same for both drivers."""
    if isinstance(failure, ProcessorError):
        cause = failure.__cause__
        reason = str(cause) if type(cause) is RuntimeError else None
        if failure.topic is not None:
            return ["process", failure.node, failure.topic, failure.partition, failure.offset, reason]
        return ["init" if "init" in failure.doing else "punctuator", failure.node, reason]
    if isinstance(failure, UnknownTopicError):
        return ["Unknown topic", failure.topic]
    if isinstance(failure, DriverError) and (said := _SAID_BY_BOTH.search(str(failure))):
        return list(said.groups())
    if isinstance(failure, TopologyError):
        return ["topology"]
    if isinstance(failure, ValueError | TypeError):
        return ["argument"]
    raise failure


def meaning_of_java(result: dict[str, Any]) -> dict[str, Any]:
    """A result of RunTopologies.java in which errors are as `meaning_here` has them."""
    if "error" in result:
        return {"error": _meaning_of_errors(result["error"])}
    steps = [
        {"error": _meaning_of_errors(step["error"])} if isinstance(step, dict) else step for step in result["steps"]
    ]
    return {**result, "steps": steps}


def _meaning_of_errors(errors: list[str]) -> list[Any]:
    class_name, _, message = errors[0].partition(": ")
    cause_class, _, cause_message = errors[1].partition(": ") if len(errors) > 1 else ("", "", "")
    reason = cause_message if cause_class == "java.lang.IllegalStateException" else None
    if found := _IN_PROCESS.search(message):
        return ["process", found[1], found[2], int(found[3]), int(found[4]), reason]
    if found := _IN_PUNCTUATOR.search(message):
        return ["punctuator", found[1], reason]
    if found := _IN_INIT.search(message):
        return ["init", found[1], reason]
    if found := _SAID_BY_BOTH.search(message):
        return list(found.groups())
    if class_name == "org.apache.kafka.streams.errors.TopologyException":
        return ["topology"]
    if class_name in ("java.lang.IllegalArgumentException", "java.lang.NullPointerException"):
        return ["argument"]
    return errors


def _record(
    key: str | None, value: str | None, timestamp_ms: int | None, headers: Sequence[tuple[str, str | None]]
) -> TestRecord[bytes | None, bytes | None]:
    held = Headers((name, _bytes(data)) for name, data in headers)
    return TestRecord(_bytes(key), _bytes(value), timestamp_ms, held)


def _described(records: Iterable[TestRecord[bytes | None, bytes | None]]) -> list[Any]:
    return [[_hex(record.key), _hex(record.value), record.timestamp_ms, _headers(record.headers)] for record in records]


def _key_parts(key: Any) -> list[Any]:
    return [key.key, key.start_ms, key.end_ms] if isinstance(key, Windowed) else [key]


def _value_parts(value: Any) -> list[Any]:
    if isinstance(value, ValueTimestampHeaders):
        return [value.value, value.timestamp_ms, _headers(value.headers)]
    if isinstance(value, ValueAndTimestamp):
        return [value.value, value.timestamp_ms]
    if isinstance(value, AggregationWithHeaders):
        return [value.aggregation, _headers(value.headers)]
    return [value]


def _version(record: Any) -> list[Any]:
    return [None] if record is None else [record.value, record.timestamp_ms]


def _headers(headers: Headers) -> list[Any]:
    return [[header.key, _hex(header.value)] for header in headers]


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()


def _bytes(data: str | None) -> bytes | None:
    return None if data is None else bytes.fromhex(data)


def _text(data: str | None) -> str | None:
    return None if data is None else bytes.fromhex(data).decode()
