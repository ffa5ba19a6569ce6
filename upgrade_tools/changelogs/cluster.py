"""A Kafka cluster as the tools need it: topics, what is in their logs, and the consumer group of an application."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from upgrade_tools.errors import (
    ApplicationRunningError,
    ChangelogError,
    ChangelogMissingError,
    GroupOffsetsError,
    KafkaUnavailableError,
)

_TIMEOUT_S: Final = 10.0
_LOG = logging.getLogger(__name__)
_CHANGELOG: Final = "-changelog"
_INTERNAL: Final = ("__consumer_offsets", "__share_group_state", "__transaction_state")
"""Kafka's own topics, which no group reads. Users' topics may begin with __ as well."""
_TOO_LONG: Final = "-" * 30_000
"""As metadata of an offset: more than a broker accepts (offset.metadata.max.bytes, 4096 by default)."""
_RETRY_S: Final = 0.1
_COORDINATOR_MOVES: Final = (
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._WAIT_COORD,
)
_LEADER_MOVES: Final = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)
_TOPIC_REFUSED: Final = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.UNKNOWN_TOPIC_OR_PART)
_SERVERS: Final = ("bootstrap.servers", "metadata.broker.list")
_NOBODY: Final = (ConsumerGroupState.EMPTY, ConsumerGroupState.DEAD)

Offsets = dict[str, dict[int, int]]
"""By topic and partition, the offset of the next record to be read."""


@dataclass(frozen=True)
class TopicSettings:
    """What a topic's configuration says about how long records stay."""

    cleanup_policies: frozenset[str]
    retention_ms: int
    """-1 is for ever; applies if records are deleted."""
    compaction_lag_ms: int
    """How long a record stays at least once its key has a later one; applies if records are compacted."""
    log_append_time: bool
    """Whether the broker replaces the timestamps of records with the time at which it appends them."""

    @property
    def deletes(self) -> bool:
        """Whether old records are deleted."""
        return "delete" in self.cleanup_policies and self.retention_ms >= 0

    @property
    def compacts(self) -> bool:
        """Whether records are deleted once their key has a later one."""
        return "compact" in self.cleanup_policies


@dataclass(frozen=True)
class LogEnds:
    """Where the log of a partition begins, and where it ends; the ends are exclusive."""

    first_offset: int
    stable_end_offset: int
    """From here on, records may belong to a transaction that has not ended."""
    end_offset: int


class Cluster:
    """The cluster that answers at `servers`. `options` are further client properties, as librdkafka calls them.

    Raises ValueError if the client does not take one of them, or if they name servers. Every method raises
    KafkaUnavailableError if nobody answers, or the answer is a refusal.
    """

    def __init__(self, servers: str, options: Mapping[str, str] | None = None) -> None:
        self.servers = servers
        self._options = dict(options or {})
        for name in _SERVERS:
            if name in self._options:
                raise ValueError(f"leave out the property {name}: the servers are given already, as {servers}")
        try:
            self._admin = AdminClient(self.client_options(), logger=_LOG)
        except KafkaException as cause:
            raise ValueError(described(cause)) from cause
        except (AttributeError, TypeError) as cause:  # a property that only a program can set
            raise ValueError(f"a property can't be set from a file ({cause})") from cause

    def client_options(self, **more: Any) -> dict[str, Any]:
        """Return the properties of a client, and these as well, with underscores for the dots in their names."""
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {"bootstrap.servers": self.servers, **self._options, **named}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn what the client raises into KafkaUnavailableError."""
        try:
            yield
        except KafkaException as cause:
            raise KafkaUnavailableError(self.servers, cause=described(cause)) from cause

    def topics(self) -> dict[str, int]:
        """Return all topics and how many partitions each has."""
        with self.errors():
            # All topics: a broker may create one that is asked for by name.
            found = self._admin.list_topics(timeout=_TIMEOUT_S).topics
        return {name: len(topic.partitions) for name, topic in found.items() if topic.error is None}

    def partitions(self, topic: str) -> int:
        """Return how many partitions a topic has. Raises ChangelogMissingError if there is no such topic."""
        topics = self.topics()
        if topic not in topics:
            raise ChangelogMissingError(topic, known=[name for name in topics if name.endswith(_CHANGELOG)])
        return topics[topic]

    def settings(self, topic: str) -> TopicSettings:
        """Return a topic's configuration."""
        with self.errors():
            resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
            (answer,) = self._admin.describe_configs([resource], request_timeout=_TIMEOUT_S).values()
            entries = {name: str(entry.value) for name, entry in answer.result().items()}
        policies = frozenset(policy.strip() for policy in entries["cleanup.policy"].split(","))
        return TopicSettings(
            policies,
            int(entries["retention.ms"]),
            int(entries["min.compaction.lag.ms"]),
            entries["message.timestamp.type"] == "LogAppendTime",
        )

    def log_ends(self, topic: str, partitions: int) -> list[LogEnds]:
        """Return what there is in the log of each partition of a topic."""
        first = self._offsets(topic, partitions, OffsetSpec.earliest(), IsolationLevel.READ_UNCOMMITTED)
        stable = self.stable_ends(topic, partitions)
        end = self._offsets(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_UNCOMMITTED)
        return [LogEnds(*offsets) for offsets in zip(first, stable, end, strict=True)]

    def stable_ends(self, topic: str, partitions: int) -> list[int]:
        """Return the stable end offset of each partition of a topic."""
        return self._offsets(topic, partitions, OffsetSpec.latest(), IsolationLevel.READ_COMMITTED)

    def create_topic(self, topic: str, partitions: int, config: Mapping[str, str]) -> None:
        """Create a topic with the cluster's default replication, and wait until it can be used."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=-1, config=dict(config))
        with self.errors():
            for made in self._admin.create_topics([new], request_timeout=_TIMEOUT_S).values():
                made.result()
        give_up_s = time.monotonic() + _TIMEOUT_S
        while self.topics().get(topic) != partitions:
            if time.monotonic() > give_up_s:
                raise KafkaUnavailableError(self.servers, cause=f"{topic} was created, but is not listed")
            self._admin.poll(_RETRY_S)
        self.log_ends(topic, partitions)

    def refuse_running(self, application_id: str) -> None:
        """Raise ApplicationRunningError if anybody is in the application's consumer group."""
        with self.errors():
            listed = self._admin.list_consumer_groups(request_timeout=_TIMEOUT_S).result()
        for error in listed.errors or ():
            raise KafkaUnavailableError(self.servers, cause=described(error))
        for group in listed.valid:
            if group.group_id == application_id:
                if group.state not in _NOBODY:
                    raise ApplicationRunningError(application_id, state=group.state.name.lower())
                return
        self._refuse_members_of_streams_group(application_id)

    def _refuse_members_of_streams_group(self, application_id: str) -> None:
        """Raise ApplicationRunningError if the group is one of the streams protocol, and has members.

        The client does not list such groups. A commit from outside is refused while there are members, whether the
        group has offsets or not; and if there are none, this one is refused for its metadata, so it changes nothing.
        """
        own = f"{application_id}-"
        # Its own topics first: the user may have no access to others.
        for topic in sorted(self._readable(), key=lambda name: (not name.startswith(own), name)):
            error = self._commit_error(application_id, [TopicPartition(topic, 0, 0, _TOO_LONG)])
            if error is None or error.code() == KafkaError.OFFSET_METADATA_TOO_LARGE:
                return
            if error.code() not in _TOPIC_REFUSED:
                raise self._refused(application_id, error)

    def committed(self, application_id: str) -> Offsets:
        """Return what the application's consumer group has committed, of every topic that it reads.

        Raises GroupOffsetsError if a transaction that commits has not ended.
        """
        offsets: Offsets = {}
        for place in self._committed(application_id):
            offsets.setdefault(place.topic, {})[place.partition] = place.offset
        return offsets

    def commit(self, application_id: str, offsets: Offsets) -> None:
        """Set what the application's consumer group has committed. Raises ApplicationRunningError if it has members."""
        places = [
            TopicPartition(topic, partition, offset)
            for topic, partitions in sorted(offsets.items())
            for partition, offset in sorted(partitions.items())
        ]
        error = self._commit_error(application_id, places)
        if error is not None:
            raise self._refused(application_id, error)

    def _readable(self) -> dict[str, int]:
        """Return the topics that are not Kafka's own, and how many partitions each has."""
        return {topic: partitions for topic, partitions in self.topics().items() if topic not in _INTERNAL}

    def _committed(self, application_id: str) -> list[TopicPartition]:
        places = [
            TopicPartition(topic, partition)
            for topic, partitions in sorted(self._readable().items())
            for partition in range(partitions)
        ]
        if not places:
            return []
        found, error = self._group_answer(application_id, lambda client: client.committed(places, timeout=_TIMEOUT_S))
        if error is not None:
            raise self._refused(application_id, error)
        return [place for place in found if place.offset >= 0]

    def _commit_error(self, application_id: str, places: list[TopicPartition]) -> KafkaError | None:
        """Commit, and return the error if that was refused."""
        _, error = self._group_answer(application_id, lambda client: client.commit(offsets=places, asynchronous=False))
        return error

    def _group_answer(
        self, application_id: str, ask: Callable[[Consumer], list[TopicPartition]]
    ) -> tuple[list[TopicPartition], KafkaError | None]:
        """Return the answer of the group's coordinator, and the first error in it. Waits for a coordinator."""
        give_up_s = time.monotonic() + _TIMEOUT_S
        with self._outside_of(application_id) as client:
            while True:
                found: list[TopicPartition] = []
                try:
                    found = ask(client)
                    error = next((place.error for place in found if place.error is not None), None)
                except KafkaException as cause:
                    error = cause.args[0]
                if error is None or error.code() not in _COORDINATOR_MOVES or time.monotonic() > give_up_s:
                    return found, error
                client.poll(_RETRY_S)

    def _refused(self, application_id: str, error: KafkaError) -> ChangelogError:
        """Return the error to raise for what the group's coordinator answers."""
        if error.code() == KafkaError.UNKNOWN_MEMBER_ID:
            return ApplicationRunningError(application_id, state="not empty")
        if error.code() in (KafkaError.UNSTABLE_OFFSET_COMMIT, KafkaError._TIMED_OUT):
            problem = f"a transaction that commits them is open ({described(error)}). Wait until it has ended "
            return GroupOffsetsError(application_id, f"{problem}(transaction.timeout.ms), and run this again")
        return KafkaUnavailableError(self.servers, cause=f"{described(error)}, of group {application_id}")

    @contextmanager
    def _outside_of(self, application_id: str) -> Iterator[Consumer]:
        """Hand out a client that knows the group, and never joins it.

        Not an AdminClient: while a coordinator starts or moves, its requests for offsets crash the process, as
        librdkafka 2.16 then uses the coordinator of a consumer's group, and there is none.
        """
        options = self.client_options(
            group_id=application_id, enable_auto_commit=False, isolation_level="read_committed"
        )
        with self.errors():
            client = Consumer(options, logger=_LOG)
        try:
            yield client
        finally:
            client.close()

    def _offsets(self, topic: str, partitions: int, asked: OffsetSpec, isolation: IsolationLevel) -> list[int]:
        places = {TopicPartition(topic, partition): asked for partition in range(partitions)}
        give_up_s = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                answers = self._admin.list_offsets(places, isolation_level=isolation, request_timeout=_TIMEOUT_S)
                found = {place.partition: answer.result().offset for place, answer in answers.items()}
                return [found[partition] for partition in range(partitions)]
            except KafkaException as cause:
                if cause.args[0].code() not in _LEADER_MOVES or time.monotonic() > give_up_s:
                    raise KafkaUnavailableError(self.servers, cause=described(cause)) from cause
            self._admin.poll(_RETRY_S)


def described(error: KafkaException | KafkaError) -> str:
    """Return what the client says of an error."""
    inner = error.args[0] if isinstance(error, KafkaException) and error.args else error
    return inner.str() if isinstance(inner, KafkaError) else str(inner)


def read_client_options(lines: Iterable[str]) -> dict[str, str]:
    """Return the properties in lines of `name=value`; empty lines and those that begin with # are skipped.

    Raises ValueError for any other line.
    """
    options = {}
    for line in lines:
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ValueError(f"not a property, name=value: {text!r}")
        options[name.strip()] = value.strip()
    return options
