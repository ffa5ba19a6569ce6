"""The changelog topics of an application that nobody runs, on a real broker, and the commands on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from statestore.format.records.header_bytes import parse_headers
from tests.support.golden.replay import spec_of
from upgrade_tools.changelogs.cluster import Cluster
from upgrade_tools.changelogs.reading import read_log_ends, read_records
from upgrade_tools.cli.app import main

COMPACT = {"cleanup.policy": "compact"}
WINDOWED = {"cleanup.policy": "compact,delete", "retention.ms": "86400000"}

Refused = Callable[..., str]
"""Takes how a command ended, how it had to end, and words of what it had to say, and returns what it said."""


@dataclass
class Message:
    key: bytes | None
    value: bytes | None = b"v"
    timestamp_ms: int = 1_000
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


class Application:
    """The topics of one application, which nobody runs."""

    def __init__(self, servers: str, name: str, target: Path) -> None:
        self.servers, self.name, self.target = servers, name, target
        self.cluster = Cluster(servers)

    def topic(self, store: str = "s", partitions: int = 1, config: Mapping[str, str] = COMPACT) -> str:
        topic = f"{self.name}-{store}-changelog"
        self.cluster.create_topic(topic, partitions, config)
        return topic

    def send(
        self, topic: str, messages: Sequence[Message], *, partition: int = 0, ended: str | None = None, **config: Any
    ) -> Producer:
        """Send messages, in a transaction if it says how that is to end: commit, abort or never."""
        if ended is not None:
            config["transactional.id"] = f"{topic}-{ended}"
        producer = Producer({"bootstrap.servers": self.servers, **config})
        if ended is not None:
            producer.init_transactions(30)
            producer.begin_transaction()
        for message in messages:
            producer.produce(
                topic,
                message.value,
                key=message.key,
                partition=partition,
                timestamp=message.timestamp_ms,
                headers=message.headers,
            )
        assert producer.flush(30) == 0
        if ended == "commit":
            producer.commit_transaction(30)
        elif ended == "abort":
            producer.abort_transaction(30)
        return producer

    def delete_before(self, topic: str, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": self.servers})
        (deleted,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
        assert deleted.result(30).low_watermark == offset

    def restore(self, *stores: str, options: Sequence[str] = ()) -> int:
        named = [word for store in stores for word in ("--store", store)]
        return main(["changelog", "restore", self.servers, str(self.target), *self._id, *named, *options])

    def to_state(self, *stores: str, options: Sequence[str] = ()) -> int:
        named = [word for store in stores for word in ("--store", store)]
        return main(["changelog", "to-state", self.servers, str(self.target), *self._id, *named, *options])

    def emit(self, state: Path, *options: str) -> int:
        return main(["changelog", "emit", str(state), self.servers, *self._id, *options])

    def offsets(self, *options: str) -> int:
        return main(["changelog", "offsets", self.servers, *self._id, *options])

    def log(self, topic: str, kind: str, partition: int = 0) -> list[tuple[bytes, bytes | None, int, list[Any]]]:
        changelog = read_log_ends(
            self.cluster, spec_of(kind), topic, self.cluster.partitions(topic), transactional=True
        )
        return [
            (record.key, record.value, record.timestamp_ms, parse_headers(record.header_bytes))
            for _, record in read_records(self.cluster, changelog.logs[partition])
        ]

    @property
    def _id(self) -> list[str]:
        return ["--application-id", self.name]
