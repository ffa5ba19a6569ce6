"""Registries that keep schemas of Avro by their MD5, in a mapping, or in a compacted topic.

    topic: key := md5:u8[16]   value := schema, in JSON as UTF-8

Anybody may have written to the topic: an entry whose key is not its MD5 is ignored.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, MutableMapping
from typing import Any, Final

from statestore.connect.converters.avro.avro_datum import LARGEST_SCHEMA_BYTES
from statestore.errors.middleware import SchemaRejectedError
from statestore.middleware.application import extra
from statestore.middleware.schemas.schema_registry.ids import RegisteredSchema, SchemaId, SchemaIds
from statestore.middleware.schemas.schema_registry.registry import SchemaRegistry, schema_md5

_TIMEOUT_S: Final = 30.0


class _ByMd5(SchemaRegistry):
    @abstractmethod
    def _find(self, md5: bytes) -> str | None: ...

    @abstractmethod
    def add(self, md5: bytes, schema: str) -> None:
        """Keep a schema that is not there."""

    def deposit(self, subject: str, schema: RegisteredSchema) -> SchemaIds:
        """Keep a schema under its MD5, if it is not there; the subject makes no difference."""
        if schema.references or schema.kind != "AVRO":
            raise SchemaRejectedError(subject, problem="by MD5 stand schemas of Avro, and each is whole in itself")
        md5 = schema_md5(schema.text)
        if self._find(md5) is None:
            self.add(md5, schema.text)
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
            elif error.code() != self._kafka.KafkaError.GROUP_AUTHORIZATION_FAILED:  # nobody joins the group
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
