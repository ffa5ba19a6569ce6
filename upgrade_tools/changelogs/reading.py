"""Reads changelog topics from a cluster: finds them, checks that their logs are whole, and reads records."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import pyarrow as pa
from confluent_kafka import TIMESTAMP_CREATE_TIME, Consumer, KafkaError, KafkaException, Message, TopicPartition

from statestore.bytestore.chunks import chunks
from statestore.bytestore.kafka_streams.layout import changelog_partition
from statestore.bytestore.kinds.kind_layout import LAYOUTS
from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.format.records.header_columns import HEADERS_TYPE, encode_header_column
from statestore.recovery.commit.changelog import ChangelogRecord
from upgrade_tools.changelogs.cluster import Cluster, LogEnds, TopicSettings, described
from upgrade_tools.changelogs.logs import LogRecord, PartitionLog
from upgrade_tools.errors import ChangelogDamagedError, ChangelogError, KafkaUnavailableError

_TAKEN_AT_ONCE: Final = 64
"""Messages, of any size."""
_WAIT_S: Final = 0.05
_STALLED_S: Final = 30.0
_NOT_A_MEMBER: Final = "statestore-upgrade-tools"
"""The client needs the name of a group, but never joins it."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class ChangelogTopic:
    """The changelog topic of a store, with the log of each partition."""

    spec: StoreSpec
    topic: str
    logs: tuple[PartitionLog, ...]

    @property
    def span(self) -> int:
        """How many offsets there are in all partitions."""
        return sum(log.span for log in self.logs)


def changelog_topic(application_id: str, store: str) -> str:
    """Return the name of a store's changelog topic."""
    return changelog_partition(application_id, store, 0).topic


def find_changelogs(
    cluster: Cluster, application_id: str, specs: Sequence[StoreSpec], *, transactional: bool = False
) -> list[ChangelogTopic]:
    """Return the changelogs of stores, whose logs are whole. Nobody may be writing to them.

    `transactional` says that transactions have left the gaps in logs that are not compacted.

    Raises ApplicationRunningError, ChangelogMissingError, ChangelogDamagedError, KafkaUnavailableError, and
    ChangelogError for topics that do not fit.
    """
    cluster.refuse_running(application_id)
    topics = {spec.name: changelog_topic(application_id, spec.name) for spec in specs}
    partitions = {name: cluster.partitions(topic) for name, topic in topics.items()}
    return [
        read_log_ends(cluster, spec, topics[spec.name], partitions[spec.name], transactional=transactional)
        for spec in specs
    ]


def refuse_different_partitions(changelogs: Sequence[ChangelogTopic]) -> None:
    """Raise ChangelogError unless these are changelogs of one task, which have as many partitions."""
    for changelog in changelogs:
        found, expected = len(changelog.logs), len(changelogs[0].logs)
        if found != expected:
            raise wrong_partitions(changelog.topic, found, expected, changelogs[0].topic)


def wrong_partitions(topic: str, found: int, expected: int, of: str) -> ChangelogError:
    """Return the error for a topic whose number of partitions is not that of `of`."""
    return ChangelogError(
        topic,
        f"it has {found} partitions, and {of} has {expected}. Stores of one task have as many partitions as its input: "
        "name only stores that belong together, or first rescale the state to as many shards",
    )


def read_log_ends(
    cluster: Cluster, spec: StoreSpec, topic: str, partitions: int, *, transactional: bool = False
) -> ChangelogTopic:
    """Return one changelog, whose topic is there. Raises as `find_changelogs` does."""
    settings = cluster.settings(topic)
    if settings.log_append_time:
        raise ChangelogError(
            topic,
            "it has message.timestamp.type=LogAppendTime, so its records have lost the times of their values. Only a "
            "copy of the local state has them: read that",
        )
    logs = []
    # By this machine's clock, which should be close to the broker's.
    too_old_ms = int(time.time() * 1000) - settings.retention_ms
    for partition, ends in enumerate(cluster.log_ends(topic, partitions)):
        problem = _lost_beginning(spec, settings, ends)
        remedy = "Those records are lost, and only a copy of the local state has their content: read that"
        if problem is None and ends.stable_end_offset < ends.end_offset:
            problem = f"a transaction that has written from offset {ends.stable_end_offset} on has not ended"
            remedy = "Wait until the broker gives it up (transaction.timeout.ms), and run this again"
        if problem is not None:
            raise ChangelogDamagedError(f"{topic}, partition {partition}", f"{problem}. {remedy}")
        gaps = settings.compacts or transactional
        deleted_before_ms = too_old_ms if ends.first_offset else None
        logs.append(PartitionLog(topic, partition, ends.first_offset, ends.stable_end_offset, gaps, deleted_before_ms))
    return ChangelogTopic(spec, topic, tuple(logs))


def _lost_beginning(spec: StoreSpec, settings: TopicSettings, ends: LogEnds) -> str | None:
    """Return why the deleted records before the first one are needed; None if they are not."""
    if not ends.first_offset:
        return None
    gone = f"the log begins at offset {ends.first_offset}"
    if not LAYOUTS[spec.kind].has_timed_keys:
        return f"{gone}, and the deleted records may have had the last values of keys"
    retention_ms, _ = spec.retention
    if not settings.deletes:
        return f"{gone}, and its retention is not what deleted the records before that"
    if settings.retention_ms < retention_ms:
        return f"{gone}, and retention.ms={settings.retention_ms} is less than the {retention_ms} ms of the store"
    return None


def read_records(cluster: Cluster, log: PartitionLog) -> Iterator[LogRecord]:
    """Yield the records of a log in order, without those of aborted transactions.

    Raises ChangelogDamagedError for a record that no store writes, and KafkaUnavailableError.
    """
    if log.span:
        yield from _Reader(cluster, log).records()


def has_records(cluster: Cluster, log: PartitionLog) -> bool:
    """Return whether a log of any topic has records, apart from ends of transactions and aborted records.

    Raises KafkaUnavailableError.
    """
    return bool(log.span) and any(_Reader(cluster, log).messages())


class _Reader:
    """Reads one log to its end."""

    def __init__(self, cluster: Cluster, log: PartitionLog) -> None:
        self._cluster = cluster
        self._log = log
        with cluster.errors():
            self._consumer = Consumer(
                cluster.client_options(
                    group_id=_NOT_A_MEMBER,
                    enable_auto_commit=False,
                    isolation_level="read_committed",
                    auto_offset_reset="error",
                    enable_partition_eof=True,
                    check_crcs=True,
                    fetch_wait_max_ms=10,
                ),
                logger=_LOG,
            )

    def records(self) -> Iterator[LogRecord]:
        """Yield all records, then close the client."""
        for messages in chunks(chain.from_iterable(self.messages()), _sizes):
            yield from self._decoded(messages)

    def messages(self) -> Iterator[list[Message[bytes, bytes]]]:
        """Yield messages as the client returns them, then close it."""
        log = self._log
        try:
            self._consumer.assign([TopicPartition(log.topic, log.partition, log.first_offset)])
            next_offset = log.first_offset
            heard_s = time.monotonic()
            while next_offset < log.end_offset:
                wanted = min(_TAKEN_AT_ONCE, log.end_offset - next_offset)
                messages = self._consumer.consume(wanted, _WAIT_S)
                if messages:
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > _STALLED_S:
                    problem = f"{log.topic}, partition {log.partition} has not handed out offset {next_offset}"
                    raise KafkaUnavailableError(self._cluster.servers, cause=problem)
                data = [message for message in messages if message.error() is None]
                for message in messages:
                    next_offset = max(next_offset, self._after(message))
                yield [message for message in data if _offset(message) < log.end_offset]
        except KafkaException as cause:
            raise KafkaUnavailableError(self._cluster.servers, cause=described(cause)) from cause
        finally:
            self._consumer.close()

    def _after(self, message: Message[bytes, bytes]) -> int:
        """Return the offset up to which the log was read when `message` came, which may be an event."""
        error = message.error()
        if error is None:
            return _offset(message) + 1
        if error.code() == KafkaError._PARTITION_EOF:
            return _offset(message)
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            problem = f"records are being deleted while they are read ({error.str()})"
            remedy = "Run this again, when the topic's retention.ms is longer"
            raise ChangelogDamagedError(self._log.place, f"{problem}. {remedy}")
        if error.retriable() or error.code() == KafkaError._ALL_BROKERS_DOWN:
            return self._log.first_offset
        raise KafkaUnavailableError(self._cluster.servers, cause=described(error))

    def _decoded(self, messages: list[Message[bytes, bytes]]) -> Iterator[LogRecord]:
        headers = [self._headers(message) for message in messages]
        encoded = encode_header_column(pa.array(headers, HEADERS_TYPE)).to_pylist()
        for message, header_bytes in zip(messages, encoded, strict=True):
            key, (kind, timestamp_ms) = message.key(), message.timestamp()
            if key is None:
                raise self._refused(message, "it has no key, as every changelog record has")
            if kind != TIMESTAMP_CREATE_TIME:
                raise self._refused(message, "it has no timestamp of its own")
            yield LogRecord(_offset(message), ChangelogRecord(key, message.value(), timestamp_ms, header_bytes))

    def _headers(self, message: Message[bytes, bytes]) -> list[Any]:
        try:
            return list(message.headers() or ())
        except UnicodeDecodeError as cause:
            raise self._refused(message, f"a header's key is not UTF-8 ({cause})") from cause

    def _refused(self, message: Message[bytes, bytes], problem: str) -> ChangelogDamagedError:
        return self._log.refused(_offset(message), problem)


def _sizes(messages: list[Message[bytes, bytes]]) -> list[int]:
    return [len(message.key() or b"") + len(message.value() or b"") for message in messages]


def _offset(message: Message[bytes, bytes]) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
