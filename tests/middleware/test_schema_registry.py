"""Avro with a schema registry: ids as Confluent's client has them, older schemas, and a registry that is not there."""

from __future__ import annotations

import json
import pickle
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import Headers, Processor, ProcessorContext, Record, Serdes, Stores, Topology, ValueTimestampHeaders
from statestore.connect.recently_used import RecentlyUsed
from statestore.errors import DataException, DeserializationError, SerializationError
from statestore.errors.middleware import (
    IncompatibleSchemaError,
    RegistryUnavailableError,
    SchemaIdError,
    SchemaNotFoundError,
    SchemaRejectedError,
)
from statestore.middleware import FailureHandling
from statestore.middleware.schemas import schema_registry as sr
from statestore.middleware.schemas.schema_registry import IdPlace, avro_serde, ids
from statestore.middleware.schemas.schema_registry.registry import schema_md5
from statestore.testing import TopologyTestDriver
from tests.support.avro_schemas import NEW, OLD, ORDER, OTHER, TOPIC, confluent, next_address, read, record_of, written

SPENDTHRIFT = record_of(
    "Tree",
    {"name": "children", "type": {"type": "array", "items": "Tree"}},
    *({"name": f"n{number}", "type": "null"} for number in range(9)),
)
KEY = record_of("Key", {"name": "k", "type": "string"})


class Counted(sr.Md5Registry):
    """Counts what it is asked."""

    asked: list[Any]

    def __init__(self, schemas: dict[bytes, str] | None = None) -> None:
        super().__init__(schemas)
        self.asked = []

    def deposit(self, subject: str, schema: sr.RegisteredSchema) -> ids.SchemaIds:
        self.asked.append(subject)
        return super().deposit(subject, schema)

    def fetch(self, schema_id: ids.SchemaId) -> sr.RegisteredSchema | None:
        self.asked.append(schema_id)
        return super().fetch(schema_id)


@pytest.mark.parametrize("in_header", [True, False], ids=["header", "prefix"])
@pytest.mark.parametrize("for_key", [True, False], ids=["key", "value"])
def test_b9_ids_are_those_of_confluents_client_both_ways(in_header: bool, for_key: bool) -> None:
    registry = confluent()
    conf = {"schema.id.serializer": header_schema_id_serializer} if in_header else {}
    theirs = AvroSerializer(registry.connection, json.dumps(OLD), conf=conf)
    pairs: list[tuple[str, bytes]] = []
    context = SerializationContext(TOPIC, MessageField.KEY if for_key else MessageField.VALUE, pairs)
    expected = theirs(ORDER, context)

    ours = avro_serde(registry, OLD, for_key=for_key, place=IdPlace.HEADER if in_header else IdPlace.PREFIX)
    data, headers = written(ours, ORDER)
    assert data == expected
    assert [tuple(header) for header in headers] == pairs
    assert bool(pairs) is in_header
    assert registry.connection.get_subjects() == [f"{TOPIC}-{'key' if for_key else 'value'}"]

    assert expected is not None
    assert read(ours, expected, Headers(pairs)) == ORDER
    assert AvroDeserializer(registry.connection)(data, context) == ORDER


def test_b9_bytes_stand_as_they_are_as_confluents_client_has_them() -> None:
    registry = confluent()
    ours = avro_serde(registry, {"type": "bytes"}, place=IdPlace.PREFIX)
    context = SerializationContext(TOPIC, MessageField.VALUE, [])
    theirs = AvroSerializer(registry.connection, json.dumps({"type": "bytes"}))
    data, headers = written(ours, b"raw")
    assert data == theirs(b"raw", context)
    assert read(ours, data, headers) == b"raw"
    with pytest.raises(IncompatibleSchemaError, match="bytes only"):
        read(avro_serde(registry, {"type": "string"}), data, headers)
    with pytest.raises(SerializationError, match="of type str"):
        written(ours, "text")


def test_b9_content_type_and_md5_in_headers() -> None:
    registry = sr.Md5Registry()
    serde = avro_serde(registry, OLD, place=IdPlace.MD5)
    data, headers = written(serde, ORDER)
    md5 = schema_md5(json.dumps(OLD, indent=4))
    assert list(headers) == [("content-type", b"application/avro-binary"), (sr.AVRO_SCHEMA_MD5, md5)]
    assert {md5: json.dumps(OLD)} == registry.schemas
    assert read(serde, data, headers) == ORDER
    assert read(avro_serde(registry), data, headers) == ORDER
    with pytest.raises(ValueError, match="for values only"):
        avro_serde(registry, OLD, place=IdPlace.MD5, for_key=True)
    with pytest.raises(SerializationError, match="the store keeps none"):
        serde.serialize(ORDER)


def test_the_md5_is_of_all_that_a_schema_says_but_not_of_how_it_is_written() -> None:
    scale = [{"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": scale} for scale in (1, 2)]
    assert schema_md5(json.dumps(scale[0])) != schema_md5(json.dumps(scale[1]))
    assert schema_md5(json.dumps(scale[0])) == schema_md5(json.dumps(dict(reversed(scale[0].items())), indent=2))


@pytest.mark.parametrize("place", [IdPlace.HEADER, IdPlace.PREFIX])
def test_b9_what_an_older_schema_wrote_is_read(place: IdPlace) -> None:
    registry = confluent()
    data, headers = written(avro_serde(registry, OLD, place=place), ORDER)
    newer = avro_serde(registry, NEW, place=place)
    first, second = read(newer, data, headers), read(newer, data, headers)
    assert first == {"id": 5, "tags": [], "mark": b"\xff"}
    first["tags"].append("mine")
    assert second["tags"] == read(newer, data, headers)["tags"] == []


def test_b9_schemas_that_do_not_go_together_are_refused_with_the_reason() -> None:
    registry = confluent()
    data, headers = written(avro_serde(registry, OLD), ORDER)
    with pytest.raises(IncompatibleSchemaError, match="int is not string"):
        read(avro_serde(registry, OTHER), data, headers)
    with pytest.raises(IncompatibleSchemaError, match="fewer bytes"):
        read(avro_serde(registry, OLD), data[:-2], headers)
    with pytest.raises(IncompatibleSchemaError, match="1 bytes behind"):
        read(avro_serde(registry, OLD), data + b"\0", headers)
    with pytest.raises(SerializationError, match="can't be written"):
        written(avro_serde(registry, OLD), {"note": "none"})
    with pytest.raises(SerializationError, match="only reads"):
        written(avro_serde(registry), ORDER)


def test_b9_the_registry_is_asked_once_a_schema_by_all_copies_in_a_process() -> None:
    schemas: dict[bytes, str] = {}
    writing = Counted(schemas)
    serde = avro_serde(writing, OLD, place=IdPlace.MD5)
    data, headers = written(serde, ORDER)
    for _ in range(3):
        written(serde, ORDER)
        written(pickle.loads(pickle.dumps(serde)), ORDER)
    assert writing.asked == [f"{TOPIC}-value"]

    reading = Counted(schemas)
    assert read(avro_serde(reading, NEW), data, headers)["id"] == 5
    for _ in range(3):
        assert read(avro_serde(copy(reading), OLD), data, headers) == ORDER
    assert len(reading.asked) == 1


def test_that_a_schema_is_missing_is_believed_for_a_while_only() -> None:
    registry = Counted()
    now_s = 0.0
    registry.clock = lambda: now_s
    serde = avro_serde(registry, OLD)
    headers = Headers([("content-type", b"application/avro-binary"), (sr.AVRO_SCHEMA_MD5, bytes(16))])
    for _ in range(3):
        with pytest.raises(SchemaNotFoundError, match=f"MD5 {'0' * 32}, which the record names"):
            read(serde, b"\x0a\0", headers)
    assert len(registry.asked) == 1
    registry.schemas[bytes(16)] = json.dumps(OLD)
    now_s = 29.9
    with pytest.raises(SchemaNotFoundError):
        read(serde, b"\x0a\0", headers)
    now_s = 30.0
    assert read(serde, b"\x0a\0", headers) == {"id": 5, "note": None}


def test_what_a_process_keeps_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("statestore.middleware.schemas.schema_registry.registry._KEPT_SCHEMAS", 2)
    registry = Counted()
    fields = [record_of("Order", {"name": name, "type": "int"}) for name in "abcd"]
    for place in (0, 1, 2, 3, 0):
        written(avro_serde(registry, fields[place], place=IdPlace.MD5), {"abcd"[place]: 1})
    assert len(registry.asked) == 5
    for number in (*range(4), 0):
        with pytest.raises(SchemaNotFoundError):
            registry.get(ids.SchemaId("number", number))
    assert len(registry.asked) == 10


def test_a_registry_closes_what_it_has_opened() -> None:
    class Opened(sr.Md5Registry):
        opened: list[Any]

        def connect(self) -> Any:
            self.opened.append(ThreadingHTTPServer(("127.0.0.1", 0), _Answers, bind_and_activate=False).socket)
            return self.opened[-1]

    registry = Opened()
    registry.opened = []
    registry.close()
    assert registry.connection is registry.connection
    registry.close()
    assert [each.fileno() for each in registry.opened] == [-1]


class _Answers(BaseHTTPRequestHandler):
    answer: tuple[int, Any] = (200, {})
    paths: list[str]

    def do_GET(self) -> None:
        self.paths.append(self.path)
        status, body = self.answer
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[tuple[type[_Answers], str]]:
    answers = type("Answers", (_Answers,), {"paths": []})
    running = ThreadingHTTPServer(("127.0.0.1", 0), answers)
    thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield answers, f"127.0.0.1:{running.server_port}"
    finally:
        running.shutdown()
        running.server_close()
        thread.join()


def asking(address: str, **config: Any) -> sr.ConfluentRegistry:
    return sr.ConfluentRegistry({"url": f"http://{address}", "max.retries": 0, **config})


NUMBERED = b"\0\0\0\0\7" + b"\x0a\0"


def test_b9_a_registry_that_is_down_is_told_apart_from_a_schema_that_is_not_there(server: Any) -> None:
    answers, address = server
    missing = {"error_code": 40403, "message": "Schema 7 not found"}
    # A server that is none of a registry's has no such page, either.
    for status, body, error in [
        (404, missing, SchemaNotFoundError),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}, RegistryUnavailableError),
        (404, "nothing", RegistryUnavailableError),
        (500, {"error_code": 50001, "message": "the store"}, RegistryUnavailableError),
        (503, {}, RegistryUnavailableError),
        (401, {"error_code": 40101, "message": "Unauthorized"}, RegistryUnavailableError),
        (200, ["no schema"], RegistryUnavailableError),
    ]:
        answers.answer = (status, body)
        with pytest.raises(error):
            read(avro_serde(asking(address), OLD), NUMBERED, None)
    answers.answer = (200, {"schema": json.dumps(OLD), "guid": None})
    answers.paths.clear()
    serde = avro_serde(asking(address), NEW)
    assert [read(serde, NUMBERED, None)["id"] for _ in range(3)] == [5, 5, 5]
    assert answers.paths == ["/schemas/ids/7"]


def test_that_a_registry_is_down_is_asked_again_and_shows_no_secret() -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
    registry = asking(f"ann:secret@{address}", **{"basic.auth.credentials.source": "URL"})

    class Talkative(sr.Md5Registry):
        def fetch(self, schema_id: ids.SchemaId) -> sr.RegisteredSchema | None:
            raise ConnectionError("https://ann:secret@registry does not answer")

    for serde in (avro_serde(each, OLD) for each in (registry, Talkative(), sr.ConfluentRegistry(dict))):
        with pytest.raises(RegistryUnavailableError) as refused:
            read(serde, NUMBERED, None)
        shown = f"{refused.value}{refused.value!r}{registry!r}{serde!r}"
        assert "secret" not in shown
        assert "ann" not in shown
    assert repr(registry) == f"ConfluentRegistry('http://{address}')"
    assert pickle.loads(pickle.dumps(refused.value)).service == "ConfluentRegistry()"


@pytest.mark.parametrize(("status", "code"), [(409, 409), (422, 42201), (404, 40403)])
def test_a_schema_that_the_registry_does_not_take_is_refused(server: Any, status: int, code: int) -> None:
    answers, address = server
    answers.answer = (status, {"error_code": code, "message": "Schema being registered is incompatible"})
    with pytest.raises(SchemaRejectedError, match="for subject 'orders-value'") as refused:
        written(avro_serde(asking(address), OLD), ORDER)
    assert refused.value.subject == "orders-value"
    answers.answer = (500, {"error_code": 500, "message": ""})
    with pytest.raises(RegistryUnavailableError):
        written(avro_serde(asking(address), OLD), ORDER)


def test_a_registry_without_guids_writes_numbers_into_the_header(server: Any) -> None:
    answers, address = server
    answers.answer = (200, {"id": 7})
    data, headers = written(avro_serde(asking(address), OLD), ORDER)
    assert list(headers) == [(ids.VALUE_SCHEMA_ID, b"\0\0\0\0\7")]
    answers.answer = (200, {"schema": json.dumps(OLD)})
    assert read(avro_serde(asking(address), OLD), data, headers) == ORDER


def test_without_auto_register_schemas_have_to_be_there() -> None:
    registry = sr.ConfluentRegistry({"url": next_address(), "auto.register.schemas": "false"})
    with pytest.raises(SchemaRejectedError, match="it is not there"):
        written(avro_serde(registry, OLD), ORDER)
    registry.connection.register_schema(f"{TOPIC}-value", Schema(json.dumps(OLD), "AVRO"))
    assert written(avro_serde(registry, OLD), ORDER)[0]
    registry.close()
    with pytest.raises(SchemaRejectedError):
        written(avro_serde(registry, OLD), ORDER)


def test_schemas_that_name_others_are_read() -> None:
    registry = confluent()
    client = registry.connection
    client.register_schema("item", Schema(json.dumps(record_of("Item", {"name": "n", "type": "int"})), "AVRO"))
    item = SchemaReference("shop.Item", "item", 1)
    box = record_of("Box", {"name": "of", "type": "shop.Item"})
    client.register_schema("box", Schema(json.dumps(box), "AVRO", references=[item]))
    both = record_of("Both", {"name": "a", "type": "shop.Box"}, {"name": "b", "type": "shop.Item"})
    references = [SchemaReference("shop.Box", "box", 1), item]
    schema = Schema(json.dumps(both), "AVRO", references=references)
    value = {"a": {"of": {"n": 1}}, "b": {"n": 2}}
    data = AvroSerializer(client, schema)(value, SerializationContext(TOPIC, MessageField.VALUE, []))
    assert data is not None
    assert read(avro_serde(registry), data, None) == value


@pytest.mark.parametrize(
    ("schema", "kind", "words"),
    [
        (json.dumps({"type": "array", "items": "null"}), "AVRO", "8 values"),
        (json.dumps(SPENDTHRIFT), "AVRO", "8 values"),
        ("{", "AVRO", "Malformed Avro schema"),
        ("{}", "JSON", "of JSON can't be read as one of AVRO"),
    ],
)
def test_schemas_that_can_not_be_read_with_are_refused(schema: str, kind: str, words: str) -> None:
    registry = confluent()
    number = registry.connection.register_schema("s", Schema(schema, kind))
    for _ in range(2):
        with pytest.raises(IncompatibleSchemaError, match=words):
            read(avro_serde(registry), b"\0" + number.to_bytes(4, "big") + b"\x02" * 100_000, None)
    if kind == "AVRO":
        with pytest.raises(DataException, match=words):
            avro_serde(registry, schema)


@pytest.mark.parametrize(
    ("headers", "data"),
    [
        ([], b""),
        ([], b"\x02\0\0\0\7"),
        ([], b"\0\0\0"),
        ([], b"\1" + bytes(15)),
        ([(ids.VALUE_SCHEMA_ID, None)], NUMBERED),
        ([(ids.VALUE_SCHEMA_ID, b"")], NUMBERED),
        ([(ids.VALUE_SCHEMA_ID, b"\1" + bytes(15))], NUMBERED),
        ([(sr.AVRO_SCHEMA_MD5, bytes(16))], NUMBERED),
        ([(sr.AVRO_SCHEMA_MD5, bytes(16)), ("content-type", b"text/plain")], NUMBERED),
        ([(sr.AVRO_SCHEMA_MD5, bytes(15)), ("content-type", b"application/avro-binary")], NUMBERED),
    ],
)
def test_records_that_name_no_schema_are_refused(headers: Any, data: bytes) -> None:
    registry = Counted()
    with pytest.raises(SchemaIdError):
        read(avro_serde(registry, OLD), data, Headers(headers))
    assert registry.asked == []


@settings(max_examples=100)
@given(st.binary(max_size=40), st.one_of(st.none(), st.binary(max_size=20)))
def test_any_bytes_are_read_or_refused(data: bytes, header: bytes | None) -> None:
    registry = sr.Md5Registry()
    headers = Headers([] if header is None else [(ids.VALUE_SCHEMA_ID, header)])
    with pytest.raises(DeserializationError):
        read(avro_serde(registry, OLD), data, headers)


@pytest.mark.parametrize("place", list(IdPlace))
def test_what_headers_said_of_another_schema_is_taken_out(place: IdPlace) -> None:
    class Both(sr.Md5Registry):
        def deposit(self, subject: str, schema: sr.RegisteredSchema) -> ids.SchemaIds:
            return super().deposit(subject, schema)._replace(number=7, guid=bytes(16))

        def fetch(self, schema_id: ids.SchemaId) -> sr.RegisteredSchema | None:
            return sr.RegisteredSchema(json.dumps(OLD))

    registry = Both()
    headers = Headers([(ids.VALUE_SCHEMA_ID, b"\0\0\0\0\1"), (sr.AVRO_SCHEMA_MD5, b"old"), (ids.KEY_SCHEMA_ID, b"key")])
    headers.add("content-type", b"text/plain")
    serde = avro_serde(registry, OLD, place=place)
    data = serde.on_topic(TOPIC).serialize(ORDER, headers)
    assert read(serde, data, headers) == ORDER
    names = [header.key for header in headers]
    assert len(set(names)) == len(names)
    assert headers.last_header(ids.KEY_SCHEMA_ID) == (ids.KEY_SCHEMA_ID, b"key")
    assert (ids.VALUE_SCHEMA_ID in names) is (place is IdPlace.HEADER)
    assert (sr.AVRO_SCHEMA_MD5 in names) is (place is IdPlace.MD5)


def keeping(registry: sr.SchemaRegistry, schema: Any, *, with_headers: bool) -> Topology:
    """Return a topology that puts each record into the store "s", as a schema has it."""
    serde = avro_serde(registry, schema)
    key_serde = avro_serde(registry, KEY, for_key=True)
    if with_headers:
        supplier = Stores.persistent_timestamped_key_value_store_with_headers("s")
        builder: Any = Stores.timestamped_key_value_store_with_headers_builder(supplier, key_serde, serde)
    else:
        builder = Stores.key_value_store_builder(Stores.persistent_key_value_store("s"), key_serde, serde)

    class Keep(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: Record[Any, Any]) -> None:
            held = ValueTimestampHeaders(record.value, record.timestamp_ms, record.headers)
            self.context.state_store("s").put(record.key, held if with_headers else record.value)
            self.context.forward(record)

    topology = Topology()
    topology.add_source("in", TOPIC, key_serde=key_serde, value_serde=serde)
    topology.add_processor("keep", Keep, parents=["in"])
    topology.add_state_store(builder, "keep")
    topology.add_sink("out", "copied", parents=["keep"], key_serde=key_serde, value_serde=serde)
    return topology


@pytest.mark.parametrize("with_headers", [True, False], ids=["headers", "plain"])
def test_b9_what_a_store_holds_is_read_after_a_restart_under_a_newer_schema(with_headers: bool) -> None:
    registry = confluent()
    older, newer = (avro_serde(registry, schema) for schema in (OLD, NEW))
    keys = avro_serde(registry, KEY, for_key=True)
    with TopologyTestDriver(keeping(registry, OLD, with_headers=with_headers)) as driver:
        driver.create_input_topic(TOPIC, key_serde=keys, value_serde=older).pipe_input({"k": "a"}, ORDER)
        sent = driver.create_output_topic("copied", key_serde=keys, value_serde=older).read_record()
        assert (sent.key, sent.value) == ({"k": "a"}, ORDER)
        assert [header.key for header in sent.headers] == [ids.KEY_SCHEMA_ID, ids.VALUE_SCHEMA_ID]
        driver.restart(keeping(registry, NEW, with_headers=with_headers))
        held = driver.get_state_store("s").get({"k": "a"})
        assert (held.value if with_headers else held) == {"id": 5, "tags": [], "mark": b"\xff"}
        driver.create_input_topic(TOPIC, key_serde=keys, value_serde=newer).pipe_input(
            {"k": "a"}, {"id": 6, "tags": ["x"], "mark": b""}
        )
        held = driver.get_state_store("s").get({"k": "a"})
        assert (held.value if with_headers else held)["tags"] == ["x"]
    assert sorted(registry.connection.get_subjects()) == sorted(
        ["orders-key", "orders-value", "copied-key", "copied-value", "shop.Key", "shop.Order"]
    )


def test_b9_no_record_is_left_out_because_the_registry_is_down() -> None:
    class Down(sr.Md5Registry):
        is_down = True

        def fetch(self, schema_id: ids.SchemaId) -> sr.RegisteredSchema | None:
            if self.is_down:
                raise ConnectionError("refused")
            return super().fetch(schema_id)

    registry = Down()
    headers = [("content-type", b"application/avro-binary"), (sr.AVRO_SCHEMA_MD5, schema_md5(json.dumps(OLD)))]
    topology = Topology()
    topology.add_source("in", TOPIC, key_serde=Serdes.bytes(), value_serde=avro_serde(registry, OLD))
    topology.add_sink("out", "copied", parents=["in"], key_serde=Serdes.bytes(), value_serde=Serdes.json())
    with TopologyTestDriver(topology, failures=FailureHandling(deserialization="continue")) as driver:
        topic = driver.create_input_topic(TOPIC, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
        with pytest.raises(RegistryUnavailableError, match="no record was refused"):
            topic.pipe_input(b"k", b"\x0a\0", headers=headers)
        driver.restart()
        registry.is_down = False
        topic.pipe_input(b"k", b"\x0a\0", headers=headers)
        copied = driver.create_output_topic("copied", key_serde=Serdes.bytes(), value_serde=Serdes.json())
        # The schema is not there, and that is said of the record: it is left out.
        assert copied.is_empty()
        registry.schemas[schema_md5(json.dumps(OLD))] = json.dumps(OLD)
        registry.clock = lambda: float("inf")
        topic.pipe_input(b"k", b"\x0a\0", headers=headers)
        assert copied.read_value() == {"id": 5, "note": None}


@pytest.fixture
def broker() -> Iterator[str]:
    """Yield the address of a broker that librdkafka brings along for tests."""
    owner = Producer({"test.mock.num.brokers": 1})
    (found,) = owner.list_topics().brokers.values()
    yield f"{found.host}:{found.port}"
    owner.flush()


def test_a_topic_of_too_many_schemas_says_so_and_hinders_nobody_who_asks_for_those_that_are_known(broker: str) -> None:
    kafka = {"bootstrap.servers": broker}
    schemas = [json.dumps({"type": "enum", "name": "E", "symbols": [symbol]}) for symbol in "abc"]
    named = [ids.SchemaId("md5", schema_md5(schema)) for schema in schemas]
    writer = Producer(kafka)
    for schema, schema_id in zip(schemas, named, strict=True):
        writer.produce("many", schema, schema_id.value, partition=0)
    assert writer.flush(10) == 0
    whole = sr.TopicRegistry("many", kafka)
    first = sr.TopicRegistry("many", kafka, max_schemas=2)
    assert [first.get(each).name for each in named[:2]] == ["E", "E"]
    for ask in (lambda: first.get(named[2]), lambda: first.deposit_if_new("subject", sr.RegisteredSchema(schemas[2]))):
        with pytest.raises(RegistryUnavailableError, match=r"max_schemas=2 schemas, and 1 were not read: .*larger"):
            ask()
    assert first.deposit_if_new("subject", sr.RegisteredSchema(schemas[0])).md5 == named[0].value
    assert first.fetch(named[1]) == sr.RegisteredSchema(schemas[1])
    writer.produce("many", None, named[0].value, partition=0)
    assert writer.flush(10) == 0
    del writer
    later = sr.TopicRegistry("many", kafka, max_schemas=2)
    with pytest.raises(RegistryUnavailableError):
        later.fetch(named[2])
    assert later.fetch(named[1]) is not None
    assert whole.fetch(named[2]) is not None
    for registry in (whole, first, later):
        registry.close()
    with pytest.raises(ValueError, match="max_schemas"):
        sr.TopicRegistry("many", kafka, max_schemas=0)


def test_b9_a_topic_is_a_registry_too(broker: str) -> None:
    kafka = {"bootstrap.servers": broker, "sasl.password": "secret"}
    first, second = (sr.TopicRegistry("schemas", kafka) for _ in range(2))
    strangers = Producer({"bootstrap.servers": broker})
    for key, value in [(None, b"{}"), (bytes(16), json.dumps(OLD).encode()), (b"k", None), (b"k", b"\xff")]:
        strangers.produce("schemas", value, key, partition=0)
    assert strangers.flush(10) == 0
    del strangers
    data, headers = written(avro_serde(first, OLD, place=IdPlace.MD5), ORDER)
    assert read(avro_serde(second, NEW), data, headers)["id"] == 5
    data, headers = written(avro_serde(second, NEW, place=IdPlace.MD5), {"id": 1})
    assert read(avro_serde(pickle.loads(pickle.dumps(first)), NEW), data, headers)["id"] == 1
    with pytest.raises(SchemaNotFoundError):
        first.get(ids.SchemaId("md5", bytes(16)))
    assert repr(first) == "TopicRegistry('schemas')"
    for registry in (first, second):
        registry.close()


def test_threads_of_a_process_share_what_it_keeps() -> None:
    kept, before = RecentlyUsed(3), sys.getswitchinterval()

    def use(step: int) -> None:
        for number in range(0, 20_000 * step, step):
            assert kept.get(number % 5, lambda number=number: number % 5) == number % 5
            assert kept.find((number + 1) % 5) in (None, (number + 1) % 5)
            if number % 50 == 0:
                kept.keep(lambda entry: entry != 3)

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(use, (1, 2, 3, 4)))
    finally:
        sys.setswitchinterval(before)
    assert len(pickle.loads(pickle.dumps(kept))) == 0
