"""A connector's configuration on the records of a query, and typed views of headers."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from statestore import Headers, Processor, Record, Serdes, Topology
from statestore.connect import Int8
from statestore.connect.converters.registry import header_converter
from statestore.connect.converters.simple import SimpleHeaderConverter
from statestore.connect.header import ConnectHeader
from statestore.connect.ingest import ConnectIngest
from statestore.connect.schema import Schema
from statestore.connect.typed_headers import TypedHeaders
from statestore.errors import ConfigException, DataException, ProcessorError
from statestore.headers.topic_columns import SourceFields, source_batch, source_records
from statestore.interception.chain import query_chain
from statestore.interception.interceptor import header_converter_of
from statestore.testing import TopologyTestDriver
from tests.support.connect.region_steps import REGION_TO_HEADER
from tests.support.ingest import ingest_batch, ingest_records

PASTED = """
name=orders-sink
connector.class=io.example.OrdersSink
transforms=mark,clean,skip
transforms.mark.type=org.apache.kafka.connect.transforms.InsertHeader
transforms.mark.header=origin
transforms.mark.value.literal=7
transforms.clean.type=org.apache.kafka.connect.transforms.DropHeaders
transforms.clean.headers=secret
transforms.skip.type=org.apache.kafka.connect.transforms.Filter
transforms.skip.predicate=isTest
predicates=isTest
predicates.isTest.type=org.apache.kafka.connect.transforms.predicates.HasHeaderKey
predicates.isTest.name=test
"""
JSON_HEADERS = {"header.converter": "JsonConverter", "header.converter.schemas.enable": "false"}


def record(
    *headers: tuple[str, bytes | None], topic: str = "orders", value: bytes | None = b"v", offset: int = 0
) -> Any:
    return (topic, 0, offset, 5, b"k", value, Headers(headers).to_bytes())


def headers_of(records: Any) -> list[list[tuple[str, bytes | None]]]:
    return [list(map(tuple, Headers.from_bytes(each[-1]))) for each in records]


MIXED: list[SourceFields] = [
    record(("secret", b"x"), ("n", b"007"), offset=1),
    record(("test", None), offset=2),
    record(offset=3, value=None),
    record(("n", b"\xff"), ("n", None), topic="other", offset=4),
]


def test_a_pasted_configuration_is_done_to_records_and_untouched_headers_keep_their_bytes() -> None:
    ingest = pickle.loads(pickle.dumps(ConnectIngest(PASTED)))
    assert ingest.is_in_columns
    assert headers_of(ingest_records(MIXED, ingest)) == [
        [("n", b"007"), ("origin", b"7")],
        [("origin", b"7")],
        [("n", b"\xff"), ("n", None), ("origin", b"7")],
    ]


@pytest.mark.parametrize("config", [PASTED, "", {"transforms": ""}])
def test_columns_become_what_records_become(config: Any) -> None:
    ingest = ConnectIngest(config)
    in_columns = list(source_records(ingest_batch(source_batch(MIXED), ingest)))
    assert in_columns == list(ingest_records(MIXED, ingest))


def test_a_batch_of_which_nothing_is_left_has_no_rows() -> None:
    assert ingest_batch(source_batch(MIXED[1:2]), ConnectIngest(PASTED)).num_rows == 0


def test_headers_that_no_step_looks_at_may_be_anything() -> None:
    config = {"transforms": "a", "transforms.a.type": "DropHeaders", "transforms.a.headers": "x", **JSON_HEADERS}
    rows = [record(("x", b"1"), ("no JSON", b"{"))]
    assert headers_of(ingest_records(rows, ConnectIngest(config))) == [[("no JSON", b"{")]]


def test_what_fails_in_columns_names_the_record() -> None:
    malformed = (*record(offset=5)[:-1], b"\x02")
    with pytest.raises(ProcessorError, match="ConnectIngest") as raised:
        ingest_batch(source_batch([*MIXED, malformed]), ConnectIngest(PASTED))
    assert raised.value.offset == 5


def test_steps_that_look_into_values_read_them_by_the_value_converter() -> None:
    ingest = ConnectIngest(REGION_TO_HEADER)
    assert not ingest.is_in_columns
    rows = [record(("kept", b"1.50"), value=b'{"region": "eu", "id": 1}'), record(value=b'{"id":2}', offset=1)]
    first, second = ingest_records(rows, ingest)
    assert headers_of([first, second]) == [[("kept", b"1.50"), ("region", b"eu")], [("region", None)]]
    assert first[5] == b'{"id":1}'
    assert ingest_batch(source_batch(rows), ingest).num_rows == 2
    untouched = ConnectIngest(
        {**REGION_TO_HEADER, "transforms.region.predicate": "none", "predicates": "none"}
        | {"predicates.none.type": "HasHeaderKey", "predicates.none.name": "nobody"}
    )
    assert [each[5] for each in ingest_records(rows, untouched)] == [row[5] for row in rows]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"header.converter": "SimplHeaderConverter"}, "header.converter"),
        ({"value.converter": "JsnConverter"}, "value.converter"),
        ({"transforms": "a"}, "transforms.a.type"),
    ],
)
def test_a_wrong_configuration_is_refused_with_the_name_of_the_property(config: Any, message: str) -> None:
    with pytest.raises(ConfigException, match=message) as raised:
        ConnectIngest(config)
    assert raised.value.name is not None
    assert raised.value.name.startswith(message)


def test_what_a_step_raises_names_the_record() -> None:
    with pytest.raises(ProcessorError, match="ConnectIngest") as raised:
        list(ingest_records([record(value=b"{", offset=9)], ConnectIngest(REGION_TO_HEADER)))
    assert raised.value.offset == 9


def test_a_step_may_not_change_the_key() -> None:
    config = {name.replace("value.", "key."): value for name, value in REGION_TO_HEADER.items()}
    config["transforms.region.type"] = "org.apache.kafka.connect.transforms.HeaderFrom$Key"
    row = ("orders", 0, 0, 5, b'{"region":"eu"}', b"v", b"")
    with pytest.raises(ProcessorError, match="must not change topic, partition, offset or key"):
        list(ingest_records([row], ConnectIngest(config)))


def test_a_sink_s_fields_are_put_into_json() -> None:
    config = {
        "value.converter": "JsonConverter",
        "value.converter.schemas.enable": "false",
        "transforms": "where,only",
        "transforms.where.type": "org.apache.kafka.connect.transforms.InsertField$Value",
        "transforms.where.offset.field": "at",
        "transforms.only.type": "org.apache.kafka.connect.transforms.ReplaceField$Value",
        "transforms.only.exclude": "secret",
        "transforms.only.renames": "n:count",
    }
    rows = [record(value=b'{"n": 1, "secret": 2}', offset=9), record(value=None)]
    assert [each[5] for each in ingest_records(rows, ConnectIngest(config))] == [b'{"count":1,"at":9}', None]


def test_a_step_may_not_change_the_topic_in_columns_either() -> None:
    config = {"transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "or(.*)"}
    kept = ConnectIngest({**config, "transforms.r.replacement": "or$1"})
    assert list(source_records(ingest_batch(source_batch(MIXED), kept))) == MIXED
    with pytest.raises(ProcessorError, match="must not change topic, partition, offset or key"):
        ingest_batch(source_batch(MIXED), ConnectIngest({**config, "transforms.r.replacement": "x$1"}))


def test_a_topic_may_have_a_converter_of_its_own() -> None:
    ingest = ConnectIngest("", topics={"json": JSON_HEADERS, "text": "StringConverter"})
    headers = Headers([("n", b'"7"'), ("m", b"7")])
    read = {topic: [each.value for each in ingest.typed_headers(headers, topic)] for topic in ("json", "text", "any")}
    assert read == {"json": ["7", 7], "text": ['"7"', "7"], "any": ['"7"', Int8(7)]}
    assert ingest.header_converter.from_connect_header("json", "n", None, "x") == b'"x"'
    assert ingest.header_converter.from_connect_header("any", "n", None, "x") == b"x"


class TestTypedHeaders:
    HEADERS = Headers([("n", b"5"), ("bad", b"{"), ("n", b"007"), ("none", None)])

    def test_each_is_read_when_it_is_asked_for(self) -> None:
        json = ConnectIngest(JSON_HEADERS)
        view = json.typed_headers(self.HEADERS, "t")
        assert view[0].value == 5
        assert "bad" in view
        assert len(view) == 4
        with pytest.raises(DataException, match="header 'bad'"):
            view.last_with_name("bad")

    def test_it_finds_what_headers_find(self) -> None:
        view = TypedHeaders(self.HEADERS, SimpleHeaderConverter())
        assert view.last_with_name("n") == ConnectHeader("n", "007", Schema.STRING_SCHEMA)
        assert view.all_with_name("n")[0] == ConnectHeader("n", Int8(5), Schema.INT8_SCHEMA)
        assert view.last_with_name("other") is None
        assert view.last_with_name("n") is view.last_with_name("n")
        assert "other" not in view
        assert [header.key for header in view] == ["n", "bad", "n", "none"]

    def test_what_is_not_changed_keeps_its_bytes(self) -> None:
        spelled = Headers([("n", b" 5"), ("m", b"1,2")])
        view = TypedHeaders(spelled, ConnectIngest({"header.converter.mode": "compat"}).header_converter)
        changed = view.to_connect_headers().add_byte("o", 3)
        assert [header.value for header in changed] == [5, 1, 3]
        assert list(view.write(changed)) == [("n", b" 5"), ("m", b"1,2"), ("o", b"3")]
        assert list(view.write(header.with_value(header.schema, header.value) for header in view)) == [
            ("n", b"5"),
            ("m", b"1"),
        ]


class Reads(Processor):
    """Puts out what it reads of a header."""

    def init(self, context: Any) -> None:
        self.context = context

    def process(self, taken: Record[Any, Any]) -> None:
        attempt = self.context.typed_headers().last_with_name("attempt")
        text = f"{type(attempt.value).__name__} {attempt.value}"
        self.context.forward(taken.with_value(text))


def read_in_driver(ingest: Any, topic: str) -> list[tuple[str, list[tuple[str, bytes | None]]]]:
    topology = Topology().add_source("in", key_serde=Serdes.string(), value_serde=Serdes.string())
    topology.add_processor("reads", Reads, ["in"]).add_sink("out", "out", ["reads"])
    with TopologyTestDriver(topology, interceptors=ingest) as driver:
        piped = driver.create_input_topic(topic, key_serde=Serdes.string(), value_serde=Serdes.string())
        written = driver.create_output_topic("out", key_serde=Serdes.string(), value_serde=Serdes.string())
        piped.pipe_input("k", "v", headers=Headers([("attempt", b"5"), ("secret", b"x")]))
        return [(each.value, list(map(tuple, each.headers))) for each in written.read_records_to_list()]


def test_processors_read_typed_headers_by_the_converter_of_the_query() -> None:
    attempt, origin, secret = ("attempt", b"5"), ("origin", b"7"), ("secret", b"x")
    assert read_in_driver(None, "orders") == [("Int8 5", [attempt, secret])]
    ingest = ConnectIngest(PASTED, topics={"text": "StringConverter"})
    assert read_in_driver(ingest, "orders") == [("Int8 5", [attempt, origin])]
    assert read_in_driver(ingest, "text") == [("str 5", [attempt, origin])]


def hooked(ingest: Any) -> Any:
    return header_converter_of(query_chain(ingest, {}, header_converter("Json")))


def test_the_session_s_converter_is_for_what_nothing_nearer_names() -> None:
    def plain(record: Any) -> Any:
        return record

    quoted = b'{"schema":{"type":"string","optional":false},"payload":"x"}'
    topics = {"text": "StringConverter"}
    own, none = ConnectIngest(JSON_HEADERS, topics=topics), ConnectIngest(PASTED, topics=topics)
    written = {
        name: [hooked(ingest).from_connect_header(topic, "n", Schema.STRING_SCHEMA, "x") for topic in ("any", "text")]
        for name, ingest in {"own": own, "none": none, "plain": plain, "absent": None}.items()
    }
    assert written == {
        "own": [b'"x"', b"x"],
        "none": [quoted, b"x"],
        "plain": [quoted, quoted],
        "absent": [quoted, quoted],
    }
    (marked,) = ingest_records(MIXED[2:3], none.with_default(header_converter("Json")))
    assert headers_of([marked]) == [[("origin", b'{"schema":{"type":"int8","optional":false},"payload":7}')]]
    assert none.header_converter.from_connect_header("any", "n", Schema.STRING_SCHEMA, "x") == b"x", (
        "it stays as it was"
    )


def test_properties_of_a_converter_that_is_not_named_do_nothing_beside_the_session_s(caplog: Any) -> None:
    ConnectIngest({"header.converter.mode": "compat"}).with_default(header_converter("Json"))
    assert "'header.converter.mode'" in caplog.text
