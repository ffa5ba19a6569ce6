"""JSON Schema and Protobuf with a registry: bytes as Confluent's serializers have them, and kinds by turns."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka.schema_registry import Schema, SchemaReference, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.struct_pb2 import Struct
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import (
    ConsumerRecord,
    Headers,
    Processor,
    ProcessorContext,
    ProducerRecord,
    Record,
    Serdes,
    Stores,
    Topology,
)
from statestore.errors import DataException, DeserializationError, SerializationError
from statestore.errors.middleware import IncompatibleSchemaError, SchemaIdError, SchemaRejectedError
from statestore.headers.record_columns import RecordColumns
from statestore.middleware import Chain
from statestore.middleware.schemas import schema_registry as sr
from statestore.middleware.schemas.polyglot import Format
from statestore.middleware.schemas.schema_registry import IdPlace, RegisteredSchema, avro_serde, ids, registry_serde
from statestore.testing import TopologyTestDriver
from tests.support import protobuf_messages as messages
from tests.support.avro_schemas import OLD, TOPIC, confluent, read, written
from tests.support.avro_schemas import ORDER as AVRO_ORDER

JSON_TEXT = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}, "tags": {"type": "array", "items": {"type": "string"}}},
        "required": ["id"],
    }
)
JSON = RegisteredSchema(JSON_TEXT, kind="JSON")
JSON_ORDER = {"id": 5, "tags": ["é"]}
PLACES = pytest.mark.parametrize("place", [IdPlace.HEADER, IdPlace.PREFIX])


def context(pairs: list[tuple[str, bytes]], *, for_key: bool = False) -> SerializationContext:
    return SerializationContext(TOPIC, MessageField.KEY if for_key else MessageField.VALUE, pairs)


def conf(place: IdPlace) -> dict[str, Any]:
    return {"schema.id.serializer": header_schema_id_serializer} if place is IdPlace.HEADER else {}


def theirs(client: Any, value: Any, place: IdPlace, *, for_key: bool = False) -> tuple[bytes, list[tuple[str, bytes]]]:
    """Return what Confluent's serializer of a value makes of it: bytes, and headers."""
    pairs: list[tuple[str, bytes]] = []
    if hasattr(value, "DESCRIPTOR"):
        serializer: Any = ProtobufSerializer(type(value), client, conf=conf(place))
    elif "note" in value:
        serializer = AvroSerializer(client, json.dumps(OLD), conf=conf(place))
    else:
        serializer = JSONSerializer(JSON_TEXT, client, conf=conf(place))
    data = serializer(value, context(pairs, for_key=for_key))
    assert data is not None
    return data, pairs


def order_of(identity: int = 5, *items: str) -> Any:
    return messages.ORDER(id=identity, items=[messages.ITEM(name=each) for each in items], at={"seconds": 7})


@PLACES
@pytest.mark.parametrize("for_key", [True, False], ids=["key", "value"])
@pytest.mark.parametrize(
    "value",
    [order_of(3, "a"), messages.PAYMENT(amount=2), messages.LINE(text="é"), messages.ITEM(), JSON_ORDER],
    ids=["second type", "first type", "nested type", "imports nothing", "json"],
)
def test_b6_bytes_and_schemas_are_those_of_confluents_serializers_both_ways(
    place: IdPlace, for_key: bool, value: Any
) -> None:
    registry = confluent()
    schema = JSON if isinstance(value, dict) else type(value)
    ours = registry_serde(registry, schema, for_key=for_key, place=place)
    data, headers = written(ours, value)
    expected, pairs = theirs(registry.connection, value, place, for_key=for_key)
    assert data == expected
    assert [tuple(header) for header in headers] == pairs
    assert bool(pairs) is (place is IdPlace.HEADER)
    subjects = set(registry.connection.get_subjects())
    assert subjects - {"shop/item.proto"} == {f"{TOPIC}-{'key' if for_key else 'value'}"}

    deserializer: Any = JSONDeserializer(JSON_TEXT, schema_registry_client=registry.connection)
    if not isinstance(value, dict):
        deserializer = ProtobufDeserializer(type(value), schema_registry_client=registry.connection)
    assert deserializer(data, context([tuple(header) for header in headers], for_key=for_key)) == value
    assert read(ours, expected, Headers(pairs)) == value
    # Without a schema, as its own has it; a message is then of a class of its own.
    found = read(registry_serde(registry, for_key=for_key), expected, Headers(pairs))
    assert (found if isinstance(value, dict) else found.SerializeToString()) == (
        value if isinstance(value, dict) else value.SerializeToString()
    )


REGISTRY = confluent()
ORDERS = st.builds(
    order_of, st.integers(-(2**63), 2**63 - 1), *[st.text(max_size=5).filter(lambda text: text.isprintable())] * 2
)


@settings(max_examples=60)
@given(ORDERS, st.sampled_from([IdPlace.HEADER, IdPlace.PREFIX]))
def test_any_message_is_written_as_theirs_and_read_from_theirs(order: Any, place: IdPlace) -> None:
    expected, pairs = theirs(REGISTRY.connection, order, place)
    serde = registry_serde(REGISTRY, messages.ORDER, place=place)
    assert written(serde, order) == (expected, Headers(pairs))
    assert read(serde, expected, Headers(pairs)) == order


@settings(max_examples=60)
@given(
    st.fixed_dictionaries({"id": st.integers(-(2**60), 2**60)}, optional={"tags": st.lists(st.text())}).map(
        lambda value: value | {"more": [None, 1.5, {"é": True}]}
    )
)
def test_any_json_is_written_as_theirs_and_read_from_theirs(value: Any) -> None:
    expected, pairs = theirs(REGISTRY.connection, value, IdPlace.PREFIX)
    serde = registry_serde(REGISTRY, JSON, place=IdPlace.PREFIX)
    assert written(serde, value) == (expected, Headers(pairs))
    assert read(serde, expected, None) == value


@settings(max_examples=150)
@given(st.sampled_from([JSON, messages.ORDER, messages.LINE]), st.binary(max_size=40), st.binary(max_size=6))
def test_any_bytes_behind_an_id_are_read_or_refused(schema: Any, data: bytes, behind: bytes) -> None:
    serde = registry_serde(REGISTRY, schema)
    _, headers = written(serde, JSON_ORDER if schema is JSON else schema())
    (header,) = headers
    for place in (Headers([(header.key, (header.value or b"")[:17] + behind)]), None):
        prefixed = data if place is not None else b"\0\0\0\0\1" + behind + data
        with suppress(DeserializationError):
            found = read(serde, prefixed, place)
            assert isinstance(found, type(schema())) if schema is not JSON else found["id"] == int(found["id"])


def test_places_of_types_are_read_in_all_their_forms_and_refused_when_malformed() -> None:
    registry = confluent()
    serde = registry_serde(registry, messages.PAYMENT, place=IdPlace.PREFIX)
    data, _ = written(serde, messages.PAYMENT(amount=1))
    number, message = data[:5], data[6:]
    assert data[5:6] == b"\0"
    # One index, 0, at length; and an index in more bytes than it needs.
    for behind in (b"\x02\x00", b"\x02\x80\x00"):
        assert read(serde, number + behind + message, None).amount == 1
    for behind, error in [
        (b"", SchemaIdError),
        (b"\x02", SchemaIdError),
        (b"\x01", SchemaIdError),
        (b"\xff" * 11, SchemaIdError),
        (b"\xff\xff\x7f" + bytes(10), SchemaIdError),
        (b"\x02\x01", IncompatibleSchemaError),
        (b"\x02\x7e", IncompatibleSchemaError),
        (b"\x04\x00\x00", IncompatibleSchemaError),
    ]:
        for reading in (serde, registry_serde(registry)):
            with pytest.raises(error, match="not in the file" if error is IncompatibleSchemaError else None):
                read(reading, number + behind, None)
    headers = Headers([(ids.VALUE_SCHEMA_ID, number + b"\0\0")])
    with pytest.raises(SchemaIdError, match="1 bytes behind"):
        read(serde, message, headers)
    data, _ = written(registry_serde(registry, JSON, place=IdPlace.PREFIX), JSON_ORDER)
    with pytest.raises(SchemaIdError, match="1 bytes behind"):
        read(registry_serde(registry), data[5:], Headers([(ids.VALUE_SCHEMA_ID, data[:5] + b"\0")]))


def test_a_message_of_an_older_or_newer_class_is_read_by_its_numbers_and_another_type_is_refused() -> None:
    registry = confluent()
    newer = messages.classes_of(*messages.order_files("note"))["shop.Order"]
    old, new = registry_serde(registry, messages.ORDER), registry_serde(registry, newer)
    assert read(new, *written(old, order_of())) == newer(id=5, at={"seconds": 7})
    back = read(old, *written(new, newer(id=6, note="n")))
    assert back.id == 6
    assert written(old, back)[0] == newer(id=6, note="n").SerializeToString()
    with pytest.raises(IncompatibleSchemaError, match=r"shop\.Payment can't be read as shop\.Order"):
        read(old, *written(registry_serde(registry, messages.PAYMENT), messages.PAYMENT(amount=1)))
    for wrong in ({"id": 5}, messages.PAYMENT(), messages.ORDER):
        with pytest.raises(SerializationError, match=r"needs a message shop\.Order"):
            written(old, wrong)


def test_a_message_that_lacks_what_its_type_requires_is_refused() -> None:
    file = messages.file_of("required.proto", syntax="proto2")
    messages.add_field(file.message_type.add(name="Strict"), 1, "id", messages.INT64)
    file.message_type[0].field[0].label = file.message_type[0].field[0].LABEL_REQUIRED
    strict = messages.classes_of(file)["shop.Strict"]
    serde = registry_serde(confluent(), strict)
    with pytest.raises(SerializationError, match="lacks a field"):
        written(serde, strict())
    _, headers = written(serde, strict(id=1))
    with pytest.raises(IncompatibleSchemaError, match=r"Malformed message shop\.Strict"):
        read(serde, b"\x08", headers)


def test_equal_messages_are_the_same_bytes_whatever_was_set_first() -> None:
    serde = registry_serde(confluent(), Struct, for_key=True)
    one, other = Struct(), Struct()
    for name in "abcdefgh":
        one[name] = name
    for name in "hgfedcba":
        other[name] = name
    assert written(serde, one) == written(serde, other)


def test_a_registry_that_has_protobuf_as_text_is_read_with_a_class() -> None:
    registry = confluent()
    number = registry.connection.register_schema("s", Schema('syntax = "proto3"; package shop; // für', "PROTOBUF"))
    data = b"\0" + number.to_bytes(4, "big") + b"\x02\x02" + order_of().SerializeToString()
    assert read(registry_serde(registry, messages.ORDER), data, None) == order_of()
    with pytest.raises(IncompatibleSchemaError, match="give the serde its class"):
        read(registry_serde(registry), data, None)


@pytest.mark.parametrize("value", [{}, {"id": "5"}, {"id": 5, "tags": [1]}, [], None, 5])
def test_json_that_does_not_follow_its_schema_is_refused_both_ways_and_not_shown(value: Any) -> None:
    serde = registry_serde(REGISTRY, JSON)
    with pytest.raises(SerializationError, match="does not follow its JSON Schema, at"):
        written(serde, value)
    _, headers = written(serde, JSON_ORDER)
    with pytest.raises(IncompatibleSchemaError, match="does not follow its JSON Schema, at"):
        read(serde, json.dumps(value).encode(), headers)
    secret = {"id": "secret", "secret": "secret", "tags": ["secret", {"secret": 1}]}
    with pytest.raises(IncompatibleSchemaError) as refused:
        read(serde, json.dumps(secret).encode(), headers)
    assert "secret" not in str(refused.value)
    with pytest.raises(SerializationError):
        written(serde, {"id": float("nan")})


def test_json_that_another_schema_wrote_is_checked_by_the_readers() -> None:
    registry = confluent()
    looser = registry_serde(registry, RegisteredSchema("{}", kind="JSON"))
    for value in (JSON_ORDER, {"tags": []}):
        data, headers = written(looser, value)
        assert read(registry_serde(registry), data, headers) == value
    with pytest.raises(IncompatibleSchemaError, match="at required"):
        read(registry_serde(registry, JSON), data, headers)


def test_kinds_by_turns_are_read_each_by_what_its_id_says() -> None:
    registry = confluent()
    values = [AVRO_ORDER, JSON_ORDER, order_of(9, "x")] * 2
    sent = [theirs(registry.connection, value, place) for value in values for place in (IdPlace.HEADER, IdPlace.PREFIX)]
    anything, chosen = registry_serde(registry), registry_serde(registry, OLD, JSON, messages.ORDER)
    for serde in (chosen, pickle.loads(pickle.dumps(registry_serde(registry, OLD, JSON)))):
        for (data, pairs), value in zip(sent, [each for each in values for _ in range(2)], strict=True):
            if serde is chosen or isinstance(value, dict):
                assert read(serde, data, Headers(pairs)) == value
            else:
                with pytest.raises(IncompatibleSchemaError, match="of PROTOBUF can't be read as one of AVRO or JSON"):
                    read(serde, data, Headers(pairs))
            found = read(anything, data, Headers(pairs))
            assert getattr(found, "id", None) == getattr(value, "id", None)
    with pytest.raises(IncompatibleSchemaError, match="of JSON can't be read as one of AVRO"):
        read(avro_serde(registry), *written(registry_serde(registry, JSON), JSON_ORDER))
    with pytest.raises(SerializationError, match="only reads"):
        written(anything, JSON_ORDER)


def test_a_value_is_written_under_the_first_schema_of_its_sort() -> None:
    registry = confluent()
    for schemas, kinds in [((OLD, JSON, messages.ORDER), "AP"), ((messages.ORDER, JSON, OLD), "JP")]:
        serde = registry_serde(registry, *schemas)
        value = AVRO_ORDER if kinds[0] == "A" else JSON_ORDER
        for each, kind in ((value, kinds[0]), (order_of(), kinds[1])):
            data, headers = written(serde, each)
            found = registry.get(ids.read_id(headers, data, for_key=False).schema_id)
            assert found.registered.kind[0] == kind
    with pytest.raises(ValueError, match="one schema of each kind, got AVRO, JSON, AVRO"):
        registry_serde(registry, OLD, JSON, {"type": "string"})


def polyglot_topology(serde: Any) -> Topology:
    """Return a topology that keeps each value of a topic in a store without headers, and sends on what it has of it."""
    store = Stores.key_value_store_builder(Stores.persistent_key_value_store("s"), Serdes.string(), serde)

    class Keep(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: Record[Any, Any]) -> None:
            self.context.state_store("s").put(record.key, record.value)
            self.context.forward(record.with_value(self.context.state_store("s").get(record.key)))

    topology = Topology()
    topology.add_source("in", TOPIC, key_serde=Serdes.string(), value_serde=serde)
    topology.add_processor("keep", Keep, parents=["in"])
    topology.add_state_store(store, "keep")
    topology.add_sink("out", "copied", parents=["keep"], key_serde=Serdes.string(), value_serde=serde)
    return topology


def test_b6_one_topic_and_one_store_hold_all_kinds_and_keep_them_over_a_restart() -> None:
    registry = confluent()
    serde = registry_serde(registry, OLD, messages.ORDER)
    values = {"avro": AVRO_ORDER, "protobuf": order_of(9)}
    with TopologyTestDriver(polyglot_topology(serde)) as driver:
        topic = driver.create_input_topic(TOPIC, key_serde=Serdes.string(), value_serde=serde)
        for key, value in values.items():
            topic.pipe_input(key, value)
        # The next release writes JSON, and reads what is there.
        newer = registry_serde(registry, JSON, OLD, messages.ORDER)
        driver.restart(polyglot_topology(newer))
        driver.create_input_topic(TOPIC, key_serde=Serdes.string(), value_serde=newer).pipe_input("json", JSON_ORDER)
        store = driver.get_state_store("s")
        assert {key: store.get(key) for key in (*values, "json")} == values | {"json": JSON_ORDER}
        copied = driver.create_output_topic(
            "copied", key_serde=Serdes.string(), value_serde=newer
        ).read_key_values_to_list()
        assert [value for _, value in copied] == [*values.values(), JSON_ORDER]


@PLACES
@pytest.mark.parametrize(
    ("schema", "plain", "value"),
    [
        (JSON, Format.json().serde, JSON_ORDER),
        (messages.LINE, Format.protobuf(messages.LINE).serde, messages.LINE(text="x")),
    ],
    ids=["json", "protobuf"],
)
def test_the_split_form_is_the_serde_in_two_parts(place: IdPlace, schema: Any, plain: Any, value: Any) -> None:
    registry = confluent()
    chain = Chain([sr.SchemaInterceptor(registry, {TOPIC: schema}, place=place)])
    (record,) = chain.emit(ProducerRecord(TOPIC, key=b"k", value=plain.serialize(value)))
    assert (record.value, record.headers) == written(registry_serde(registry, schema, place=place), value)
    rows = pa.record_batch({"topic": pa.array([TOPIC]).dictionary_encode()})
    arrays = pa.array([b"k"]), pa.array([plain.serialize(value)]), pa.array([0]), pa.array([Headers().to_bytes()])
    sent = chain.interceptors[0].on_emit_columns(RecordColumns.adopt(*arrays, rows))
    assert sent.value.to_pylist() == [record.value]
    assert sent.headers.to_pylist() == [record.headers.to_bytes()]
    came = ConsumerRecord(TOPIC, 0, 0, key=b"k", value=record.value, headers=record.headers)
    (back,) = chain.ingest(came)
    assert plain.deserialize(back.value or b"") == value
    assert list(back.headers) == []


def make_avro_box(client: Any) -> tuple[Any, Any, Callable[..., Any]]:
    item = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "n", "type": "int"}]}
    box = {"type": "record", "name": "Box", "namespace": "shop", "fields": [{"name": "of", "type": "Item"}]}
    both = {"type": "record", "name": "Both", "fields": [{"name": "a", "type": ["null", "shop.Box"]}]}
    texts = [json.dumps(each) for each in (item, box, both)]
    schema = RegisteredSchema(texts[2], (("shop.Item", texts[0]), ("shop.Box", texts[1])))
    client.register_schema("shop.Item", Schema(texts[0], "AVRO"))
    client.register_schema("shop.Box", Schema(texts[1], "AVRO", [SchemaReference("shop.Item", "shop.Item", 1)]))
    theirs = AvroSerializer(client, Schema(texts[2], "AVRO", [SchemaReference("shop.Box", "shop.Box", 1)]))
    return schema, {"a": {"of": {"n": 1}}}, theirs


def make_json_box(client: Any) -> tuple[Any, Any, Callable[..., Any]]:
    item = json.dumps({"type": "integer"})
    box = json.dumps({"type": "object", "properties": {"n": {"$ref": "item.json"}}, "additionalProperties": False})
    both = json.dumps({"title": "Both", "type": "object", "properties": {"a": {"$ref": "box.json#"}}})
    schema = RegisteredSchema(both, (("item.json", item), ("box.json", box)), "JSON")
    client.register_schema("item.json", Schema(item, "JSON"))
    client.register_schema("box.json", Schema(box, "JSON", [SchemaReference("item.json", "item.json", 1)]))
    theirs = JSONSerializer(Schema(both, "JSON", [SchemaReference("box.json", "box.json", 1)]), client)
    return schema, {"a": {"n": 1}}, theirs


@pytest.mark.parametrize("make", [make_avro_box, make_json_box])
@pytest.mark.parametrize("ours_first", [True, False])
def test_b6_schemas_that_name_others_are_registered_with_them_as_theirs_are(make: Any, ours_first: bool) -> None:
    registry = confluent()
    client = registry.connection
    schema, value, serializer = make(confluent().connection if ours_first else client)
    serde = registry_serde(registry, schema, place=IdPlace.PREFIX)
    data, _ = written(serde, value)
    if ours_first:
        _, _, serializer = make(client)
    assert data == serializer(value, context([]))
    assert read(serde, data, None) == value
    assert read(registry_serde(registry), data, None) == value
    assert len(client.get_subjects()) == 3


def test_what_is_no_schema_is_refused_when_the_serde_is_made() -> None:
    registry = confluent()
    for schema in (RegisteredSchema("{", kind="JSON"), RegisteredSchema("{}", kind="XML"), dict, {"type": "none"}):
        with pytest.raises(DataException):
            registry_serde(registry, schema)
    for place, error in ((IdPlace.MD5, SchemaRejectedError), (IdPlace.HEADER, SchemaRejectedError)):
        with pytest.raises(error, match="by MD5 stand schemas of Avro"):
            written(registry_serde(sr.Md5Registry(), JSON, place=place), JSON_ORDER)
    with pytest.raises(SerializationError, match="give the serde a subject"):
        registry_serde(registry, RegisteredSchema("{}", kind="JSON")).serialize({})


def test_a_class_of_messages_travels() -> None:
    serde = pickle.loads(pickle.dumps(registry_serde(confluent(), StringValue)))
    assert read(serde, *written(serde, StringValue(value="é"))) == StringValue(value="é")
    assert serde.deserialize(serde.serialize(StringValue(value="x"))) == StringValue(value="x")


def test_theirs_reads_avro_that_ours_wrote_under_a_union_and_a_recursive_schema() -> None:
    registry = confluent()
    tree: dict[str, Any] = {
        "type": "record",
        "name": "Tree",
        "fields": [{"name": "of", "type": ["null", "string", "long"]}, {"name": "next", "type": ["null", "Tree"]}],
    }
    value = {"of": 7, "next": {"of": "x", "next": {"of": None, "next": None}}}
    data, headers = written(registry_serde(registry, tree), value)
    assert AvroDeserializer(registry.connection)(data, context([tuple(header) for header in headers])) == value
