"""A Kafka cluster as the sink needs it: producers of transactions, ends of logs, and committed records."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

from statestore.errors.run import KafkaRefusedError, KafkaTimeoutError, MarkerTopicError
from statestore.middleware.application import extra

with extra("kafka"):
    from confluent_kafka import (
        OFFSET_BEGINNING,
        Consumer,
        KafkaError,
        KafkaException,
        Message,
        Producer,
        TopicPartition,
    )
    from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

_LOG: Final = logging.getLogger(__name__)
_OWN: Final = (
    "bootstrap.servers",
    "metadata.broker.list",
    "transactional.id",
    "transaction.timeout.ms",
    "partitioner",
    "on_delivery",
)
_QUEUED_KB: Final = 32 << 10
"""How much a producer holds of records that wait to be sent."""
_MISSING_TOPIC_MS: Final = 10_000
"""How long a producer waits for a topic that is missing."""
_LINGER_MS: Final = 50
"""How long records wait for others to fill a request; the commit waits for none."""
_CONNECT_MS: Final = 20
"""Half of it passes before a client connects to the second broker, as every client does at its start."""
_LEADER_MOVES: Final = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._NOENT,
    KafkaError._UNKNOWN_PARTITION,
)
_SILENT: Final = (
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError.REQUEST_TIMED_OUT,
)
_WAIT_S: Final = 0.2
_RETRY_S: Final = 0.1


class KeptRecord(NamedTuple):
    """A record of a log."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class KafkaCluster:
    """A Kafka cluster that answers at `servers`, host:port separated by commas. Picklable: tasks make their clients.

    Raises ValueError for a property that the sink sets by itself.
    """

    servers: str
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Further properties of librdkafka for all clients. They travel to the executors, and are never shown."""
    timeout_s: float = 60.0
    """How long to wait for an answer."""

    def __post_init__(self) -> None:
        own = sorted(set(_OWN) & set(self.options))
        if own:
            raise ValueError(f"{', '.join(own)}: the sink sets this itself; remove it from the options")

    def producer(
        self,
        transactional_id: str,
        timeout_ms: int,
        on_failure: Callable[[KafkaError | None, Any], None],
        kind: Any = Producer,
    ) -> Producer:
        """Return a producer of transactions, each of at most `timeout_ms`. Raises KafkaRefusedError for wrong options.

        It chooses partitions as Kafka's own producer does, by murmur2 of the key. `on_failure` is called with an error
        and the record that Kafka has not taken.
        """
        properties = {
            "bootstrap.servers": self.servers,
            "queue.buffering.max.kbytes": _QUEUED_KB,
            "topic.metadata.propagation.max.ms": _MISSING_TOPIC_MS,
            "reconnect.backoff.ms": _CONNECT_MS,
            "linger.ms": _LINGER_MS,
            **self.options,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": timeout_ms,
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
            "on_delivery": on_failure,
        }
        with self.errors(f"making the producer {transactional_id!r}"):
            producer: Producer = kind(properties, logger=_LOG)
            return producer

    @contextmanager
    def errors(self, action: str) -> Iterator[None]:
        """Raise KafkaTimeoutError or KafkaRefusedError for errors of the client during `action`."""
        try:
            yield
        except KafkaException as cause:
            error = cause.args[0]
            if error.code() in _SILENT:
                raise KafkaTimeoutError(action=action, timeout_s=self.timeout_s, cause=error.str()) from cause
            raise KafkaRefusedError(action=action, cause=error.str()) from cause

    def partitions(self, topic: str) -> int | None:
        """Return how many partitions a topic has; None if it does not exist. Raises as `errors`."""
        with self.errors("asking for topics"):
            found = self._admin.list_topics(timeout=self.timeout_s).topics.get(topic)
        return None if found is None or found.error is not None else len(found.partitions)

    def known_partitions(self, topic: str) -> int:
        """Return how many partitions a topic has that exists, once brokers know it. Raises as `errors`."""
        give_up_s = time.monotonic() + self.timeout_s
        while (found := self.partitions(topic)) is None:
            if time.monotonic() > give_up_s:
                action, problem = f"asking for the topic {topic}", "no broker knows it, though it exists"
                raise KafkaTimeoutError(action=action, timeout_s=self.timeout_s, cause=problem)
            time.sleep(_RETRY_S)
        return found

    def cleanup_policies(self, topic: str) -> frozenset[str]:
        """Return the policies in a topic's `cleanup.policy`. Raises as `errors`."""
        with self.errors(f"asking for the configuration of {topic}"):
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
            (answer,) = self._admin.describe_configs([resource], request_timeout=self.timeout_s).values()
            policy = str(answer.result()["cleanup.policy"].value)
        return frozenset(word.strip() for word in policy.split(","))

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> bool:
        """Make a topic with the cluster's default replication; return False if it exists. Raises as `errors`."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config))
        with self.errors(f"making the topic {topic}"):
            (made,) = self._admin.create_topics([new], request_timeout=self.timeout_s).values()
            try:
                made.result()
            except KafkaException as cause:
                if cause.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                    raise
                return False
        return True

    def end_offsets(self, topic: str, partitions: Iterable[int]) -> dict[int, int]:
        """Return where the logs of these partitions end, open transactions included. Raises as `errors`."""
        asked = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in partitions}
        give_up_s = time.monotonic() + self.timeout_s
        with self.errors(f"asking for the end of {topic}"):
            while True:
                answers = self._admin.list_offsets(asked, request_timeout=self.timeout_s)
                try:
                    return {place.partition: answer.result().offset for place, answer in answers.items()}
                except KafkaException as cause:
                    # A topic that was just made has no leader yet.
                    if cause.args[0].code() not in _LEADER_MOVES or time.monotonic() > give_up_s:
                        raise
                self._admin.poll(_RETRY_S)

    def read(
        self, topic: str, starts: Mapping[int, int], ends: Mapping[int, int], *, committed: bool = True
    ) -> Iterator[KeptRecord]:
        """Yield the records of a topic, of each partition from its start to its end (exclusive).

        `committed` leaves out aborted records, and waits for transactions that are open before an end. Raises as
        `errors`, and MarkerTopicError if the records are gone.
        """
        left = {partition for partition, start in starts.items() if start < ends[partition]}
        if not left:
            return
        consumer = self._consumer("read_committed" if committed else "read_uncommitted")
        try:
            # From 0 means from the first record that the log still has.
            places = {partition: starts[partition] or OFFSET_BEGINNING for partition in left}
            consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in places.items()])
            heard_s = time.monotonic()
            while left:
                with self.errors(f"reading {topic}"):
                    message = consumer.poll(_WAIT_S)
                if message is None:
                    if time.monotonic() - heard_s > self.timeout_s:
                        problem = "a transaction in it may be open"
                        raise KafkaTimeoutError(action=f"reading {topic}", timeout_s=self.timeout_s, cause=problem)
                    continue
                heard_s = time.monotonic()
                record, next_offset = self._record(topic, message)
                partition = message.partition() or 0
                if partition not in left:
                    continue
                if record is not None:
                    yield record
                if next_offset >= ends[partition]:
                    left.discard(partition)
        finally:
            consumer.close()

    def _record(self, topic: str, message: Message[bytes, bytes]) -> tuple[KeptRecord | None, int]:
        """Return the record that a consumer has handed out, or None for an event, and the next offset to read."""
        partition, offset, error = message.partition(), message.offset(), message.error()
        if error is None:
            assert partition is not None
            assert offset is not None
            return KeptRecord(partition, offset, message.key(), message.value()), offset + 1
        if error.code() == KafkaError._PARTITION_EOF:
            return None, offset or 0
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            raise MarkerTopicError(topic, problem="it was deleted and made again: restore it, or use a new checkpoint")
        if error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return None, -1  # nobody joins the group
        if not error.retriable() and error.code() not in _SILENT:
            raise KafkaRefusedError(action=f"reading {topic}", cause=error.str())
        return None, -1

    @property
    def _admin(self) -> AdminClient:
        """A client that the process keeps, because connecting takes longer than asking."""
        return _admin_client(self.servers, tuple(sorted(self.options.items())))

    def _consumer(self, isolation: str) -> Consumer:
        properties = {
            "bootstrap.servers": self.servers,
            **self.options,
            "group.id": "statestore",  # nobody joins it
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
        }
        with self.errors("making a consumer"):
            return Consumer(properties, logger=_LOG)


@lru_cache(maxsize=4)
def _admin_client(servers: str, options: tuple[tuple[str, Any], ...]) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers, **dict(options)}, logger=_LOG)
