"""The split form: an interceptor deposits schemas and writes their ids, beside a serde that knows of no registry."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from statestore import ConsumerRecord, Headers, Processor, ProcessorContext, ProducerRecord, Record, Serdes, Topology
from statestore.errors import ConfigException, StateStoreError
from statestore.errors.middleware import ChainOrderError, RegistryUnavailableError, SchemaRefusedError
from statestore.headers.record_columns import RecordColumns
from statestore.middleware import Chain, FailureHandling, Interceptor
from statestore.middleware.schemas import schema_registry as sr
from statestore.middleware.schemas.schema_registry import IdPlace, avro_serde, ids
from statestore.testing import TopologyTestDriver
from tests.support.avro_schemas import NEW, OLD, ORDER, OTHER, TOPIC, confluent, written


def emitted(value: bytes | None, topic: str = TOPIC) -> ProducerRecord[bytes | None, bytes | None]:
    return ProducerRecord(topic, key=b"k", value=value)


def ingested(record: ProducerRecord[bytes | None, bytes | None]) -> ConsumerRecord[bytes | None, bytes | None]:
    return ConsumerRecord(record.topic, 0, 0, key=record.key, value=record.value, headers=record.headers)


@pytest.mark.parametrize("place", [IdPlace.HEADER, IdPlace.PREFIX])
def test_b9_the_split_form_is_the_serde_in_two_parts(place: IdPlace) -> None:
    registry = confluent()
    plain = sr.plain_avro_serde(OLD)
    chain = Chain([sr.SchemaInterceptor(registry, {TOPIC: OLD}, place=place)])
    (record,) = chain.emit(emitted(plain.serialize(ORDER)))
    assert (record.value, record.headers) == written(avro_serde(registry, OLD, place=place), ORDER)
    (back,) = chain.ingest(ingested(record))
    assert plain.deserialize(back.value or b"") == ORDER
    assert list(back.headers) == []
    newer = sr.SchemaInterceptor(registry, {TOPIC: NEW}, place=place)
    (back,) = newer.on_ingest(ingested(record))
    assert sr.plain_avro_serde(NEW).deserialize(back.value or b"")["id"] == 5
    for untouched in (emitted(None), emitted(b"any", "elsewhere")):
        assert chain.emit(untouched) == [untouched]
        assert chain.ingest(ingested(untouched)) == [ingested(untouched)]


def test_the_split_form_refuses_what_it_can_not_read_and_not_what_it_can_not_ask_for() -> None:
    registry = confluent()
    interceptor = sr.SchemaInterceptor(registry, {TOPIC: OTHER})
    (record,) = sr.SchemaInterceptor(registry, {TOPIC: OLD}).on_emit(emitted(b"\x0a\0"))
    for refused, words in [
        (record, "int is not string"),
        (emitted(b"\0\0\0\0\x63\0"), "no schema with the id 99"),
        (emitted(b"\x0a\0"), "no schema id"),
    ]:
        with pytest.raises(SchemaRefusedError, match=words):
            interceptor.on_ingest(ingested(refused))
    with pytest.raises(RegistryUnavailableError):
        sr.SchemaInterceptor(sr.ConfluentRegistry(dict), {TOPIC: OLD}).on_ingest(ingested(record))
    with pytest.raises(ValueError, match="stand as they are"):
        sr.SchemaInterceptor(registry, {TOPIC: {"type": "bytes"}})


def test_the_split_form_comes_before_what_changes_the_value() -> None:
    class Compression(Interceptor):
        kind = "compression"

    with pytest.raises(ChainOrderError, match="as the serde has written it"):
        Chain([Compression(), sr.SchemaInterceptor(sr.Md5Registry(), {TOPIC: OLD})])


@pytest.mark.parametrize("place", list(IdPlace))
def test_columns_get_the_ids_that_records_get(place: IdPlace) -> None:
    class Both(sr.Md5Registry):
        def deposit(self, subject: str, schema: sr.RegisteredSchema) -> ids.SchemaIds:
            number = 7 if subject == "orders-value" else 8
            return super().deposit(subject, schema)._replace(number=number, guid=bytes([number] * 16))

    interceptor = sr.SchemaInterceptor(Both(), {TOPIC: OLD, "others": OTHER}, place=place)
    stale = Headers([(ids.VALUE_SCHEMA_ID, b"old"), ("content-type", b"text/plain"), ("h", b"1")])
    rows = [(TOPIC, b"1", stale), ("others", b"2", Headers()), ("free", b"3", stale), (TOPIC, None, stale)]
    records = [ProducerRecord(topic, key=b"k", value=value, headers=headers) for topic, value, headers in rows]
    columns = RecordColumns(
        pa.array([b"k"] * 4),
        pa.array([value for _, value, _ in rows], pa.binary()),
        pa.array([0] * 4),
        pa.array([headers.to_bytes() for _, _, headers in rows]),
    )
    topics = pa.array([topic for topic, _, _ in rows]).dictionary_encode()
    columns = RecordColumns.adopt(
        columns.key, columns.value, columns.timestamp_ms, columns.headers, pa.record_batch({"topic": topics})
    )
    made = interceptor.on_emit_columns(columns)
    expected = [interceptor.on_emit(record)[0] for record in records]
    assert made.value.to_pylist() == [record.value for record in expected]
    assert [list(Headers.from_bytes(data)) for data in made.headers.to_pylist()] == [list(r.headers) for r in expected]


def test_it_is_made_of_a_configuration(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(OLD))
    config = {
        "statestore.schema.registry": "tests.support.avro_schemas:confluent",
        "statestore.schema.schemas": f"{TOPIC}:{file}",
        "statestore.schema.place": "prefix",
    }
    (record,) = sr.SchemaInterceptor.from_config(config).on_emit(emitted(b"\x0a\0"))
    assert record.value == b"\0\0\0\0\1" + b"\x0a\0"
    for wrong in ({"schemas": "orders"}, {"schemas": f"orders:{tmp_path}/none"}, {"place": "anywhere"}):
        with pytest.raises(ConfigException):
            sr.SchemaInterceptor.from_config(config | {f"statestore.schema.{name}": x for name, x in wrong.items()})


class Unreachable(Interceptor):
    """Asks what does not answer, in one of its hooks."""

    def __init__(self, hook: str) -> None:
        self.hook = hook

    def on_ingest(self, record: Any) -> list[Any]:
        return self.ask("on_ingest", record)

    def on_consume(self, record: Any) -> list[Any]:
        return self.ask("on_consume", record)

    def on_send(self, topic: str, record: Any) -> list[Any]:
        return self.ask("on_send", record)

    def on_emit(self, record: Any) -> list[Any]:
        return self.ask("on_emit", record)

    def ask(self, hook: str, record: Any) -> list[Any]:
        if hook == self.hook:
            raise RegistryUnavailableError("registry", problem="down")
        return [record]


class Asks(Processor):
    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[Any, Any]) -> None:
        if record.value == b"ask":
            raise RegistryUnavailableError("registry", problem="down")
        self.context.forward(record)


@pytest.mark.parametrize("hook", ["on_ingest", "on_consume", "process", "on_send", "on_emit"])
def test_b9_nothing_becomes_a_dead_letter_because_a_service_is_down(hook: str) -> None:
    topology = Topology()
    topology.add_source("in", TOPIC, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    topology.add_processor("asks", Asks, ["in"])
    topology.add_sink("out", "copied", ["asks"], key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    with TopologyTestDriver(
        topology,
        interceptors=[Unreachable(hook)],
        failures=FailureHandling(
            dead_letters="dead", deserialization="dead_letter", processing="dead_letter", production="dead_letter"
        ),
    ) as driver:
        topic = driver.create_input_topic(TOPIC, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
        with pytest.raises(StateStoreError) as raised:
            topic.pipe_input(b"k", b"ask" if hook == "process" else b"v")
        assert "down" in str(raised.value)
        assert driver.produced_topic_names() == set()
