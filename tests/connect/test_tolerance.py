"""What a connector's configuration says about records that fail (KIP-298), and what the query's arguments say."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from statestore import Headers, Processor, Record, Serdes, Topology
from statestore.connect import ConfigDef, ConnectIngest, HeaderConverter, Transformation, TransformChain
from statestore.errors import ConfigException, DataException, DeserializationError, ProcessorError
from statestore.middleware import DeadLetters, FailureHandling
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.connect.region_steps import REGION_TO_HEADER

MOVE = {
    "name": "orders-sink",
    **REGION_TO_HEADER,
    "header.converter": "JsonConverter",
    "header.converter.schemas.enable": "false",
}
STAY = {name: value for name, value in MOVE.items() if name not in REGION_TO_HEADER}
TO_VALUE = {**MOVE, "transforms.region.type": "HeaderTo$Value"}
ALL = {"errors.tolerance": "all"}
LETTERS = {**ALL, "errors.deadletterqueue.topic.name": "dead"}

SOUND = b'{"region":"eu","id":1}'
POISON: dict[str, tuple[dict[str, str], bytes, list[tuple[str, bytes]], str]] = {
    "a value that is not read": (MOVE, b"{", [], "deserialization"),
    "a header that is not read": (TO_VALUE, SOUND, [("region", b"{")], "deserialization"),
    "a header that a processor can't read": (STAY, b"read", [("region", b"{")], "deserialization"),
    "a value that a step can't take": (MOVE, b"[1]", [], "refusal"),
}


class Passes(Processor):
    """Forwards what comes, but fails on what is asked for."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == "fail":
            raise RuntimeError("in the processor")
        if record.value == b"read":
            record = record.with_value(self.context.typed_headers().last_with_name("region").value)
        self.context.forward(record)


def topology(value_serde: Any = None) -> Topology:
    made = Topology().add_source("in", "in", key_serde=Serdes.bytes(), value_serde=value_serde or Serdes.bytes())
    return made.add_processor("p", Passes, ["in"]).add_sink("out", "out", ["p"])


@contextmanager
def driver(config: Any, *, serde: Any = None, **options: Any) -> Iterator[TopologyTestDriver]:
    ingest = pickle.loads(pickle.dumps(ConnectIngest(config))) if isinstance(config, dict) else config
    failures = FailureHandling(**options)
    with TopologyTestDriver(topology(serde), interceptors=ingest, failures=failures) as run:
        yield run


def pipe(run: TopologyTestDriver, *values: bytes, headers: Any = ()) -> None:
    topic = run.create_input_topic("in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    for value in values:
        topic.pipe_input(b"k", value, headers=Headers(headers))


def read(run: TopologyTestDriver, topic: str) -> list[TestRecord[bytes, bytes]]:
    made = run.create_output_topic(topic, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    return made.read_records_to_list()


def values(run: TopologyTestDriver, topic: str) -> list[bytes]:
    return [record.value for record in read(run, topic)]


def said(letter: TestRecord[bytes, bytes]) -> dict[str, str]:
    return {
        header.key.removeprefix(DeadLetters.PREFIX): (header.value or b"").decode()
        for header in letter.headers
        if header.key.startswith(DeadLetters.PREFIX)
    }


@pytest.mark.parametrize("poison", POISON)
def test_the_query_s_handlers_are_asked_about_what_connect_can_not_do(poison: str) -> None:
    config, value, headers, handler = POISON[poison]
    with driver(config, **{handler: "continue"}) as run:
        pipe(run, value, headers=headers)
        pipe(run, SOUND)
        assert len(values(run, "out")) == 1
    others = {"deserialization", "refusal", "processing", "production"} - {handler}
    with driver(config, **dict.fromkeys(others, "continue")) as run, pytest.raises(ProcessorError) as raised:
        pipe(run, value, headers=headers)
    assert isinstance(raised.value.__cause__, DataException)
    assert (raised.value.topic, raised.value.offset, raised.value.value_bytes) == ("in", 0, len(value))


@pytest.mark.parametrize("poison", POISON)
def test_what_is_tolerated_becomes_a_dead_letter_as_it_came(poison: str) -> None:
    config, value, headers, handler = POISON[poison]
    brought = [*headers, ("__connect.errors.topic", b"forged")]
    with driver({**config, **LETTERS}) as run:
        pipe(run, value, headers=brought)
        pipe(run, SOUND)
        (letter,) = read(run, "dead")
        assert (letter.key, letter.value, [tuple(each) for each in letter.headers]) == (b"k", value, headers)
        assert len(values(run, "out")) == 1
    with driver({**config, **LETTERS, "errors.deadletterqueue.context.headers.enable": "true"}) as run:
        pipe(run, value, headers=brought)
        facts = said(*read(run, "dead"))
    stage = "TRANSFORMATION" if handler == "refusal" else "VALUE_CONVERTER"
    assert {name: facts[name] for name in ("topic", "partition", "offset", "connector.name", "stage")} == {
        "topic": "in",
        "partition": "0",
        "offset": "0",
        "connector.name": "orders-sink",
        "stage": stage,
    }
    assert facts["exception.class.name"] == "statestore.errors.DataException"


def test_what_is_tolerated_without_a_topic_is_left_out() -> None:
    with driver({**MOVE, **ALL}) as run:
        pipe(run, b"{", b"[1]", SOUND)
        assert values(run, "out") == [b'{"id":1}']


def test_tolerance_is_for_serdes_of_sources_too_and_not_for_processors() -> None:
    with driver({**LETTERS}, serde=Serdes.json()) as run:
        pipe(run, b"{", b"1")
        assert (values(run, "dead"), len(values(run, "out"))) == ([b"{"], 1)
        with pytest.raises(ProcessorError, match="in the processor"):
            pipe(run, b'"fail"')


def test_what_the_query_says_goes_before_the_configuration(caplog: Any) -> None:
    stopping = driver(LETTERS, serde=Serdes.json(), deserialization="fail")
    with stopping as run, pytest.raises(DeserializationError):
        pipe(run, b"{")
    with driver(LETTERS, serde=Serdes.json(), dead_letters="mine") as run:
        pipe(run, b"{")
        assert (values(run, "mine"), values(run, "dead")) == ([b"{"], [])
    assert "errors.deadletterqueue.topic.name" in caplog.text


@pytest.mark.parametrize("tolerance", ["none", None])
def test_without_tolerance_nothing_is_tolerated(tolerance: str | None, caplog: Any) -> None:
    config = {**LETTERS, "errors.tolerance": tolerance}
    if tolerance is None:
        del config["errors.tolerance"]
    with driver(config, serde=Serdes.json()) as run, pytest.raises(DeserializationError):
        pipe(run, b"{")
    assert "errors.deadletterqueue.topic.name" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("errors.tolerance", "some"),
        ("errors.tolerance", "ALL"),
        ("errors.deadletterqueue.context.headers.enable", "perhaps"),
        ("errors.log.enable", "2"),
        ("errors.log.include.messages", ""),
    ],
)
def test_a_wrong_value_is_refused(name: str, value: str) -> None:
    with pytest.raises(ConfigException) as raised:
        ConnectIngest({name: value})
    assert raised.value.name == name


MEANINGLESS = {
    "connector.class": "io.example.OrdersSink",
    "tasks.max": "3",
    "topics": "orders",
    "errors.retry.timeout": "60000",
    "errors.retry.delay.max.ms": "10",
    "errors.deadletterqueue.topic.replication.factor": "1",
    "consumer.override.max.poll.records": "5",
}


def test_what_has_no_meaning_here_is_named_once(caplog: Any) -> None:
    ConnectIngest({**MOVE, **LETTERS, **MEANINGLESS, "errors.log.enable": "true"})
    (warning,) = caplog.messages
    assert [name for name in (*MOVE, *LETTERS, "errors.log.enable") if repr(name) in warning] == []
    assert all(repr(name) in warning for name in MEANINGLESS)


def test_what_a_chain_alone_does_not_do_is_named(caplog: Any) -> None:
    TransformChain.from_properties({**MOVE, **LETTERS})
    (warning,) = caplog.messages
    assert [name for name in (*MOVE, *LETTERS) if repr(name) in warning] == [
        "name",
        "value.converter",
        "value.converter.schemas.enable",
        "header.converter",
        "header.converter.schemas.enable",
        *LETTERS,
    ]


@pytest.mark.parametrize(("enabled", "logged"), [("false", 10), ("true", 15)])
def test_each_record_that_is_left_out_is_logged_if_that_is_asked_for(enabled: str, logged: int, caplog: Any) -> None:
    with driver({**MOVE, **ALL, "errors.log.enable": enabled}) as run, caplog.at_level(logging.WARNING):
        topic = run.create_input_topic("in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
        topic.pipe_micro_batch([TestRecord(b"k", b"{", timestamp_ms=1)] * 15)
    assert len([text for text in caplog.messages if "left out" in text]) == logged


@pytest.mark.parametrize("side", ["key", "value"])
def test_the_error_of_a_bad_key_or_value_says_which(side: str, caplog: Any) -> None:
    config = {**MOVE, f"{side}.converter": "JsonConverter", f"{side}.converter.schemas.enable": "false"}
    bad = {"key": b'"k"', "value": SOUND} | {side: b"{"}
    with driver(config) as run, pytest.raises(ProcessorError, match=f"DataException: {side}: Converting") as raised:
        run.create_input_topic("in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes()).pipe_input(*bad.values())
    assert "header ''" not in str(raised.value) + caplog.text


def test_the_error_of_a_bad_header_says_which() -> None:
    with driver(TO_VALUE) as run, pytest.raises(ProcessorError, match="DataException: header 'region': Converting"):
        pipe(run, SOUND, headers=[("other", b"1"), ("region", b"{")])
    view = ConnectIngest(MOVE).typed_headers(Headers([("", b"{")]), "in")
    with pytest.raises(DataException, match="a header with an empty key: Converting"):
        view.last_with_name("")


def test_values_that_simple_converters_can_not_read_are_no_headers(caplog: Any) -> None:
    with driver({**MOVE, "value.converter": "SimpleHeaderConverter", **ALL}) as run:
        pipe(run, b"\xff")
    assert "can't be read" in caplog.text
    assert "header ''" not in caplog.text


@dataclass(frozen=True)
class Clumsy(Transformation):
    config: ClassVar[ConfigDef] = ConfigDef()

    def apply(self, record: Any) -> Any:
        raise KeyError("no such region")


class Careless(HeaderConverter):
    def to_connect_header(self, topic: str, key: str, value: bytes | None) -> Any:
        raise ZeroDivisionError("careless")

    def from_connect_header(self, topic: str, key: str, schema: Any, value: Any) -> bytes | None:
        return None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"transforms": "a", "transforms.a.type": f"{__name__}:Clumsy"}, "KeyError"),
        ({**MOVE, "value.converter": f"{__name__}:Careless"}, "value: .*ZeroDivisionError"),
    ],
)
def test_whatever_steps_and_converters_raise_is_tolerated_as_in_kafka(config: dict[str, str], words: str) -> None:
    config = {name: value for name, value in config.items() if name != "value.converter.schemas.enable"}
    with driver({**config, **LETTERS}) as run:
        pipe(run, SOUND)
        assert values(run, "dead") == [SOUND]
    with driver(config) as run, pytest.raises(ProcessorError, match=words):
        pipe(run, SOUND)


def test_a_property_and_its_other_name_are_not_both_taken() -> None:
    config = {"transforms": "a", "transforms.a.type": "DropHeaders"}
    both = {**config, "transforms.a.headers": "x", "transforms.a.header.names": "y"}
    with pytest.raises(ConfigException, match=r"transforms\.a\.headers and transforms\.a\.header\.names") as raised:
        TransformChain.from_properties(both)
    assert raised.value.name == "transforms.a.header.names"
