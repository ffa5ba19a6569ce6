"""Registries: Confluent's protocol, through confluent-kafka's client, and schemas by their MD5.

An MD5 is looked up in a mapping, or in a compacted topic:

    topic: key := md5:u8[16]   value := schema, in JSON as UTF-8

Anybody may have written to the topic: an entry whose key is not its MD5 is ignored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit
from uuid import UUID

from statestore.connect.converters.avro.avro_datum import LARGEST_SCHEMA_BYTES
from statestore.errors.middleware import IncompatibleSchemaError, SchemaRejectedError
from statestore.middleware.application import extra
from statestore.middleware.schemas.schema_registry.ids import SchemaId, SchemaIds
from statestore.middleware.schemas.schema_registry.registry import RegisteredSchema, SchemaRegistry, schema_md5

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema, SchemaRegistryClient


_DEFAULTS: Final = {"timeout": 10}
"""Seconds: the client would wait for ever."""
_MOST_REFERENCES: Final = 100
_REJECTED: Final = frozenset({409, 422})


class ConfluentRegistry(SchemaRegistry):
    """Confluent's schema registry, and others that speak its protocol; ids are numbers and GUIDs.

    `mock://` and anything makes one in the process, for tests.
    """

    def __init__(
        self, config: str | Mapping[str, Any] | Callable[[], Mapping[str, Any]], *, auto_register: bool = True
    ) -> None:
        """Take an address, or the properties of SchemaRegistryClient, or what returns those on the machine that asks.

        Properties travel to the executors, and are shown nowhere. Without `auto_register` schemas have to be there.
        """
        super().__init__()
        self._config = {"url": config} if isinstance(config, str) else config
        self.auto_register = auto_register

    def connect(self) -> SchemaRegistryClient:
        """Return the client. Raises ExtraMissingError without confluent-kafka, and what the client raises."""
        with extra("schema-registry"):
            from confluent_kafka.schema_registry import SchemaRegistryClient
        config = self._config() if callable(self._config) else self._config
        return SchemaRegistryClient.new_client({**_DEFAULTS, **config})

    def deposit(self, subject: str, schema: str) -> SchemaIds:
        """Register a schema, or without `auto_register` look it up."""
        from confluent_kafka.schema_registry import Schema, SchemaRegistryError

        asked = self.connection.register_schema_full_response if self.auto_register else self.connection.lookup_schema
        try:
            found = asked(subject, Schema(schema, "AVRO"))
        except SchemaRegistryError as answer:
            if answer.http_status_code not in _REJECTED and not _is_missing(answer):
                raise
            problem = "it is not there" if _is_missing(answer) else str(answer.error_message)[:300]
            raise SchemaRejectedError(subject, problem=problem) from answer
        return SchemaIds(found.schema_id, None if found.guid is None else UUID(found.guid).bytes)

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Return the schema with a number or a GUID, with all those that it names."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        if schema_id.form == "md5":
            return None
        try:
            if isinstance(schema_id.value, int):
                schema = self.connection.get_schema(schema_id.value)
            else:
                schema = self.connection.get_schema_by_guid(str(UUID(bytes=schema_id.value)))
        except SchemaRegistryError as answer:
            if _is_missing(answer):
                return None
            raise
        return RegisteredSchema(_text(schema), self._references(schema))

    def _references(self, schema: Schema) -> tuple[tuple[str, str], ...]:
        """Return the schemas that one names, the innermost first."""
        found: dict[str, str] = {}
        waiting = [(each, False) for each in reversed(schema.references or [])]
        seen: dict[str, Any] = {}
        while waiting:
            reference, is_settled = waiting.pop()
            name = str(reference.name)
            if is_settled:
                found[name] = _text(seen[name])
            elif name not in seen:
                if len(seen) == _MOST_REFERENCES:
                    raise IncompatibleSchemaError(f"a schema names more than {_MOST_REFERENCES} others")
                # Deleted versions too: schemas that name them are still read.
                seen[name] = self.connection.get_version(reference.subject, reference.version, True).schema
                waiting.append((reference, True))
                waiting.extend((each, False) for each in reversed(seen[name].references or []))
        return tuple(found.items())

    def __repr__(self) -> str:
        if callable(self._config):
            return "ConfluentRegistry()"
        address = urlsplit(str(self._config.get("url", "")))
        return f"ConfluentRegistry('{address.scheme}://{address.netloc.rpartition('@')[2]}')"


def _is_missing(answer: Any) -> bool:
    """Return whether a registry says that it has no such schema, and not a server that it has no such page."""
    return bool(answer.http_status_code == 404 and 40400 <= (answer.error_code or 0) < 40500)


def _text(schema: Schema) -> str:
    if (schema.schema_type or "AVRO") != "AVRO" or schema.schema_str is None:
        raise IncompatibleSchemaError(f"a schema of type {schema.schema_type} is not one of Avro")
    return schema.schema_str


_TIMEOUT_S: Final = 30.0


class _ByMd5(SchemaRegistry):
    @abstractmethod
    def _find(self, md5: bytes) -> str | None: ...

    @abstractmethod
    def add(self, md5: bytes, schema: str) -> None:
        """Keep a schema that is not there."""

    def deposit(self, subject: str, schema: str) -> SchemaIds:
        """Keep a schema under its MD5, if it is not there; the subject makes no difference."""
        md5 = schema_md5(schema)
        if self._find(md5) is None:
            self.add(md5, schema)
        return SchemaIds(md5=md5)

    def fetch(self, schema_id: SchemaId) -> RegisteredSchema | None:
        """Return the schema with an MD5, if it is there; schemas have no other ids here."""
        if schema_id.form != "md5" or not isinstance(schema_id.value, bytes):
            return None
        found = self._find(schema_id.value)
        return None if found is None else RegisteredSchema(found)


class Md5Registry(_ByMd5):
    """Keeps schemas in a mapping, by their MD5. For a fixed set of schemas, and for tests.

    A process that unpickles it has a mapping of its own: what is deposited there nobody else knows of.
    """

    def __init__(self, schemas: MutableMapping[bytes, str] | None = None) -> None:
        """Take a mapping, which is changed; None for an empty one."""
        super().__init__()
        self.schemas: MutableMapping[bytes, str] = {} if schemas is None else schemas

    def add(self, md5: bytes, schema: str) -> None:
        """Keep a schema that is not there."""
        self.schemas[md5] = schema

    def _find(self, md5: bytes) -> str | None:
        return self.schemas.get(md5)


class TopicRegistry(_ByMd5):
    """Keeps schemas in a topic of one partition, by their MD5; make it with `cleanup.policy=compact`.

    A process reads all of the topic when it is asked first, and what is new when it is asked for what it does not know.
    """

    def __init__(self, topic: str, kafka: Mapping[str, Any], *, max_schemas: int = 10_000) -> None:
        """Take the topic, and the properties of Kafka's clients that say where it is; they are never shown.

        A process holds the topic's first `max_schemas`. If there are more, asking for any other one raises
        RegistryUnavailableError.
        """
        super().__init__()
        if type(max_schemas) is not int or max_schemas < 1:
            raise ValueError(f"max_schemas must be a whole number, 1 or more, got {max_schemas!r}")
        self.topic = topic
        self.max_schemas = max_schemas
        self._kafka = dict(kafka)

    def connect(self) -> Any:
        """Return what reads and writes the topic. Raises ExtraMissingError without confluent-kafka."""
        return _Log(self.topic, self._kafka, self.max_schemas)

    def add(self, md5: bytes, schema: str) -> None:
        """Write a schema to the topic, and wait until the brokers have it. Raises what they answer."""
        self.connection.add(md5, schema.encode())

    def _find(self, md5: bytes) -> str | None:
        log: _Log = self.connection
        found = log.find(md5)
        if found is None and log.left_out:
            self.refuse_service(
                f"the topic has more than max_schemas={self.max_schemas} schemas, and {log.left_out} were not read: "
                "give TopicRegistry a larger max_schemas, or write null under the MD5s that nobody needs, let Kafka "
                "compact the topic, and start again"
            )
        return found

    def __repr__(self) -> str:
        return f"TopicRegistry({self.topic!r})"


class _Log:
    """A topic of schemas, and what was read of it; `left_out` counts those that were too many."""

    def __init__(self, topic: str, kafka: Mapping[str, Any], max_schemas: int) -> None:
        with extra("schema-registry"):
            import confluent_kafka
        self._kafka = confluent_kafka
        self._topic = topic
        self._producer = confluent_kafka.Producer({**kafka, "acks": "all", "enable.idempotence": True})
        own = {"group.id": f"schemas-of-{topic}", "enable.auto.commit": False, "enable.partition.eof": True}
        self._consumer = confluent_kafka.Consumer({**kafka, **own, "auto.offset.reset": "error"})
        self._partition = confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)
        self._consumer.assign([self._partition])
        self._next_offset = 0
        self._schemas: dict[bytes, str] = {}
        self._max_schemas = max_schemas
        self.left_out = 0

    def find(self, md5: bytes) -> str | None:
        """Return a schema; what is new in the topic is read if it is not known."""
        if md5 not in self._schemas:
            self._read_to_end()
        return self._schemas.get(md5)

    def add(self, md5: bytes, schema: bytes) -> None:
        """Write a schema, and wait until the brokers have it. Raises what they answer."""
        answers: list[Any] = []
        self._producer.produce(
            self._topic, schema, md5, partition=0, on_delivery=lambda error, _: answers.append(error)
        )
        self._producer.flush(_TIMEOUT_S)
        if not answers:
            raise TimeoutError(f"no broker has taken a schema in {_TIMEOUT_S:.0f} s")
        if answers[0] is not None:
            raise self._kafka.KafkaException(answers[0])

    def close(self) -> None:
        """Close the consumer, and let go of the producer, which has nothing left to send."""
        self._consumer.close()
        del self._producer

    def _read_to_end(self) -> None:
        _, end_offset = self._consumer.get_watermark_offsets(self._partition, _TIMEOUT_S)
        while self._next_offset < end_offset:
            if (message := self._consumer.poll(_TIMEOUT_S)) is None:
                raise TimeoutError(f"no broker has answered in {_TIMEOUT_S:.0f} s")
            if (error := message.error()) is None:
                self._take(message.key(), message.value())
                self._next_offset = (message.offset() or 0) + 1
            elif error.code() == self._kafka.KafkaError._PARTITION_EOF:
                # Compaction, and the ends of transactions, leave offsets at which there is nothing to read.
                self._next_offset = message.offset() or 0
            else:
                raise self._kafka.KafkaException(error)

    def _take(self, md5: bytes | None, schema: bytes | None) -> None:
        if md5 is None:
            return
        if schema is None:
            self._schemas.pop(md5, None)
        elif md5 not in self._schemas and _has_md5(schema, md5):
            if len(self._schemas) < self._max_schemas:
                self._schemas[md5] = schema.decode()
            else:
                self.left_out += 1


def _has_md5(schema: bytes, md5: bytes) -> bool:
    try:
        return len(schema) <= LARGEST_SCHEMA_BYTES and schema_md5(schema.decode()) == md5
    except (ValueError, RecursionError):
        return False
