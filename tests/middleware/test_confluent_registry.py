"""What properties of Confluent's serializers, references and rules mean, in the process and with a real registry."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    Metadata,
    MetadataProperties,
    MetadataTags,
    Rule,
    RuleKind,
    RuleMode,
    RuleSet,
    Schema,
    record_subject_name_strategy,
)
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import DescriptorProto

from statestore import ProducerRecord
from statestore.errors import ConfigException, SerializationError
from statestore.errors.middleware import IncompatibleSchemaError, SchemaRejectedError
from statestore.middleware.schemas import schema_registry as sr
from statestore.middleware.schemas.schema_registry import (
    ConfluentRegistry,
    RegisteredSchema,
    avro_serde,
    registry_serde,
)
from statestore.middleware.schemas.schema_registry.ids import read_id
from statestore.middleware.schemas.schema_registry.kinds import schema_of
from tests.support import protobuf_messages as messages
from tests.support.avro_schemas import NEW, OLD, OTHER, TOPIC, next_address, read, written
from tests.support.avro_schemas import ORDER as AVRO_ORDER
from tests.support.registry_server import running_registry

JSON_TEXT = json.dumps({"title": "shop.Note", "type": "object", "properties": {"id": {"type": "integer"}}})
JSON = RegisteredSchema(JSON_TEXT, kind="JSON")
KINDS: list[tuple[Any, Any, str]] = [
    (OLD, AVRO_ORDER, "shop.Order"),
    (JSON, {"id": 5, "more": "é"}, "shop.Note"),
    (messages.ORDER, messages.ORDER(id=5, items=[messages.ITEM(name="é")], at={"seconds": 7}), "shop.Order"),
    (messages.LINE, messages.LINE(text="x"), "shop.Order.Line"),
]
OF_EACH_KIND = pytest.mark.parametrize(
    ("schema", "value", "name"), KINDS, ids=["avro", "json", "protobuf", "nested protobuf"]
)


@pytest.fixture(scope="session")
def registry_address(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a real registry, for all tests of a process: each has a topic of its own."""
    with running_registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture(params=["in the process", pytest.param("server", marks=pytest.mark.java)])
def address(request: pytest.FixtureRequest) -> str:
    """A registry in the process, and a real one."""
    if request.param == "in the process":
        return next_address()
    found: str = request.getfixturevalue("registry_address")
    return found


OPENED: list[ConfluentRegistry] = []


@pytest.fixture(autouse=True)
def close_registries() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def at(address: str, **properties: Any) -> ConfluentRegistry:
    """Return a registry at an address, which is closed after the test."""
    OPENED.append(ConfluentRegistry({"url": address, **properties}))
    return OPENED[-1]


class Registering(ConfluentRegistry):
    """Registers schemas where another one looks them up."""

    def __init__(self, other: ConfluentRegistry) -> None:
        super().__init__("mock://")
        self.other = other

    def connect(self) -> Any:
        return super().connect()._replace(client=self.other.connection)


def names_of(test: str) -> str:
    return f"{test}-{os.urandom(4).hex()}"


def theirs(client: Any, schema: Any, topic: str) -> tuple[Any, Any, SerializationContext]:
    """Return Confluent's serializer and deserializer of a schema, and their context."""
    context = SerializationContext(topic, MessageField.VALUE, [])
    if isinstance(schema, type):
        return ProtobufSerializer(schema, client), ProtobufDeserializer(schema, schema_registry_client=client), context
    if isinstance(schema, RegisteredSchema):
        reader: Any = JSONDeserializer(schema.text, schema_registry_client=client)
        return JSONSerializer(schema.text, client), reader, context
    return AvroSerializer(client, json.dumps(schema)), AvroDeserializer(client), context


@pytest.mark.parametrize("ours_first", [True, False])
@OF_EACH_KIND
def test_b6_ours_and_theirs_read_one_another_through_a_registry(
    address: str, schema: Any, value: Any, name: str, ours_first: bool
) -> None:
    topic = names_of("both")
    registry = at(address)
    serializer, deserializer, context = theirs(registry.connection, schema, topic)
    ours = registry_serde(registry, schema, place=sr.IdPlace.PREFIX)
    if ours_first:
        data, expected = written(ours, value, topic)[0], serializer(value, context)
    else:
        expected, data = serializer(value, context), written(ours, value, topic)[0]
    assert data == expected
    assert deserializer(data, context) == value
    fresh = at(address) if address.startswith("http") else registry
    assert read(registry_serde(fresh, schema), data, None, topic) == value
    found = read(registry_serde(fresh), data, None, topic)
    assert (found.SerializeToString() if hasattr(found, "DESCRIPTOR") else found) == (
        value.SerializeToString() if hasattr(value, "DESCRIPTOR") else value
    )


def test_b6_schemas_that_name_others_are_registered_with_them_and_found_without_auto_register(address: str) -> None:
    prefix = names_of("ref").replace("-", "_")
    item = json.dumps({"type": "record", "name": "Item", "namespace": prefix, "fields": [{"name": "n", "type": "int"}]})
    box = json.dumps({"type": "record", "name": "Box", "namespace": prefix, "fields": [{"name": "of", "type": "Item"}]})
    text = json.dumps({"type": "record", "name": "Both", "fields": [{"name": "a", "type": f"{prefix}.Box"}]})
    references = ((f"{prefix}.Item", item), (f"{prefix}.Box", box))
    json_item = json.dumps({"type": "object", "properties": {"n": {"type": "integer"}}})
    json_text = json.dumps({"title": "Both", "type": "object", "properties": {"a": {"$ref": f"{prefix}.json"}}})
    for schema, value in [
        (RegisteredSchema(text, references), {"a": {"of": {"n": 1}}}),
        (RegisteredSchema(json_text, ((f"{prefix}.json", json_item),), "JSON"), {"a": {"n": 1}}),
        (messages.ORDER, KINDS[2][1]),
    ]:
        topic = names_of("refs")
        registry = at(address)
        data, headers = written(registry_serde(registry, schema), value, topic)
        looking = registry
        if address.startswith("http"):
            looking = at(address, **{"auto.register.schemas": False})
            assert written(registry_serde(looking, schema), value, topic) == (data, headers)
            with pytest.raises(SchemaRejectedError, match="it is not there"):
                written(registry_serde(looking, schema), value, names_of("none"))
        assert read(registry_serde(looking, schema), data, headers, topic) == value
        assert read(registry_serde(looking), data, headers, topic) is not None


def test_b6_a_schema_that_is_not_compatible_is_refused_by_a_real_registry(registry_address: str) -> None:
    registry, topic = at(registry_address), names_of("compatible")
    written(avro_serde(registry, OLD), AVRO_ORDER, topic)
    registry.connection.set_compatibility(f"{topic}-value", "BACKWARD")
    with pytest.raises(SchemaRejectedError, match="Incompatible"):
        written(avro_serde(registry, OTHER), {"id": "x"}, topic)


@OF_EACH_KIND
def test_b6_the_latest_version_is_written_with(address: str, schema: Any, value: Any, name: str) -> None:
    topic = names_of("latest")
    subject = f"{topic}-value"
    registry = at(address, **{"use.latest.version": "true"})
    serde = registry_serde(registry, schema)
    with pytest.raises(SchemaRejectedError, match="it is not there"):
        written(serde, value, topic)
    first = Registering(registry)
    newer = newer_of(schema)
    assert first.deposit(subject, schema_of(schema).registered).number != first.deposit(subject, newer).number
    data, headers = written(serde, value, topic)
    assert registry.get(read_id(headers, data, for_key=False).schema_id).registered.text == newer.text
    assert read(serde, data, headers, topic) == value
    # No schema of one's own is needed to write with the latest.
    assert written(registry_serde(registry), value, topic)[0] == data


def newer_of(schema: Any) -> RegisteredSchema:
    """Return a later version of a schema, whose types stand elsewhere in Protobuf's file."""
    if schema is OLD:
        more = {**OLD, "fields": [*OLD["fields"], {"name": "tags", "type": ["null", "string"], "default": None}]}
        return RegisteredSchema(json.dumps(more))
    if isinstance(schema, RegisteredSchema):
        return schema._replace(text=json.dumps({**json.loads(schema.text), "description": "newer"}))
    item, order = messages.order_files("note")
    moved = [DescriptorProto(name="Before"), *order.message_type]
    del order.message_type[:]
    order.message_type.extend(moved)
    return schema_of(messages.classes_of(item, order)["shop.Order"]).registered


@pytest.mark.parametrize(
    ("properties", "of_value", "of_key"),
    [
        ({"schema.registry.url": "mock://java"}, "{topic}-value", "{topic}-key"),
        ({"subject.name.strategy.type": "RECORD"}, "{name}", "{name}"),
        ({"subject.name.strategy": "TopicRecordNameStrategy"}, "{topic}-{name}", "{topic}-{name}"),
        ({"subject.name.strategy": record_subject_name_strategy}, "{name}", "{name}"),
        (
            {"value.subject.name.strategy": "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy"},
            "{topic}-{name}",
            "{topic}-key",
        ),
        (
            {"key.subject.name.strategy": "RecordNameStrategy", "subject.name.strategy.type": "TOPIC_RECORD"},
            "{topic}-{name}",
            "{name}",
        ),
    ],
)
@OF_EACH_KIND
def test_b6_subjects_go_by_the_strategy_of_the_properties(
    schema: Any, value: Any, name: str, properties: Any, of_value: str, of_key: str
) -> None:
    for for_key, pattern in ((False, of_value), (True, of_key)):
        config = {"url": next_address()} | properties
        if "schema.registry.url" in config:
            del config["url"]
        for each in (config, partial(dict, config)):
            registry = ConfluentRegistry(each)
            written(registry_serde(registry, schema, for_key=for_key), value)
            assert pattern.format(topic=TOPIC, name=name) in registry.connection.get_subjects()
            registry_serde(registry, schema, for_key=for_key).serialize(value)
            assert name in registry.connection.get_subjects()
            written(registry_serde(registry, schema, for_key=for_key, subject="mine"), value)
            assert "mine" in registry.connection.get_subjects()


def test_a_schema_without_a_name_goes_by_no_record() -> None:
    registry = ConfluentRegistry({"url": next_address(), "subject.name.strategy": "RecordNameStrategy"})
    with pytest.raises(SerializationError, match="give the serde a subject"):
        written(registry_serde(registry, ["null", "string"]), "x")


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"use.latest.version": True, "auto.register.schemas": True}, "can't both be true"),
        ({"use.latest.version": "maybe"}, "use.latest.version"),
        ({"subject.name.strategy": "AnyNameStrategy"}, "RecordNameStrategy"),
        ({"subject.name.strategy": "TOPIC", "subject.name.strategy.type": "TOPIC"}, "one property"),
    ],
)
def test_properties_that_can_not_be_meant_are_refused_at_once(properties: Any, words: str) -> None:
    with pytest.raises(ConfigException, match=words):
        ConfluentRegistry({"url": "mock://none", **properties})


def test_normalize_is_passed_on() -> None:
    asked: list[Any] = []

    class Recorded(ConfluentRegistry):
        def connect(self) -> Any:
            connected = super().connect()
            register = connected.client.register_schema_full_response
            connected.client.register_schema_full_response = lambda *of: asked.append(of[2]) or register(*of)
            return connected

    for normalize in ("true", "false"):
        written(avro_serde(Recorded({"url": next_address(), "normalize.schemas": normalize}), OLD), AVRO_ORDER)
    assert asked == [True, False]


def test_an_older_version_in_the_split_form_is_not_said_to_be_the_latest() -> None:
    registry = ConfluentRegistry({"url": next_address(), "use.latest.version": True})
    Registering(registry).deposit(f"{TOPIC}-value", RegisteredSchema(json.dumps(NEW)))
    record = ProducerRecord(TOPIC, key=b"k", value=b"\x0a\0")
    with pytest.raises(SchemaRejectedError, match="not the schema of the topic's values"):
        sr.SchemaInterceptor(registry, {TOPIC: OLD}).on_emit(record)
    (same,) = sr.SchemaInterceptor(registry, {TOPIC: NEW}).on_emit(record)
    assert same.value == record.value
    with pytest.raises(SchemaRejectedError, match="of AVRO, and the schema of JSON"):
        written(registry_serde(registry, JSON), {})


def rule(mode: RuleMode, *, disabled: bool = False) -> Rule:
    return Rule("secret", None, RuleKind.TRANSFORM, mode, "ENCRYPT", ["PII"], None, None, None, None, disabled)


@pytest.mark.parametrize(
    ("rules", "is_read", "is_written"),
    [
        (RuleSet([], [rule(RuleMode.WRITEREAD)]), False, False),
        (RuleSet([], [rule(RuleMode.READ)]), False, True),
        (RuleSet([], [rule(RuleMode.WRITE)]), True, False),
        (RuleSet([], [], [rule(RuleMode.WRITEREAD)]), False, False),
        (RuleSet([], [rule(RuleMode.WRITEREAD, disabled=True)]), True, True),
        (RuleSet([rule(RuleMode.UPGRADE)], []), None, True),
        (RuleSet([], []), True, True),
        (None, True, True),
    ],
)
def test_b6_rules_that_would_have_to_run_are_refused_in_words_and_metadata_is_not(
    rules: RuleSet | None, is_read: bool | None, is_written: bool
) -> None:
    metadata = Metadata(MetadataTags({}), MetadataProperties({"owner": "shop"}), ["owner"])
    registry = ConfluentRegistry({"url": next_address(), "use.latest.version": True})
    schema = Schema(json.dumps(OLD), "AVRO", metadata=metadata, rule_set=rules)
    number = registry.connection.register_schema(f"{TOPIC}-value", schema)
    data = b"\0" + number.to_bytes(4, "big") + b"\x0a\0"
    for reader in (OLD, None, NEW):
        serde = avro_serde(registry, reader)
        # Only what is read as another version would migrate.
        if is_read is False or (is_read is None and reader is NEW):
            with pytest.raises(IncompatibleSchemaError, match=r"rules, which are not run: secret \(ENCRYPT\)"):
                read(serde, data, None)
        else:
            assert read(serde, data, None)["id"] == 5
        if is_written:
            assert written(serde, AVRO_ORDER)[0]
        else:
            with pytest.raises(SchemaRejectedError, match=r"rules, which are not run: secret \(ENCRYPT\)"):
                written(serde, AVRO_ORDER)
