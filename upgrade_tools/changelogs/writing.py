"""Sends records to changelog topics, in order and once, acknowledged by all in-sync replicas."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from statestore.format.records.header_bytes import parse_headers
from statestore.recovery.commit.changelog import ChangelogRecord
from upgrade_tools.changelogs.cluster import Cluster, described
from upgrade_tools.errors import ChangelogError

_FLUSH_S: Final = 60.0
_POLL_S: Final = 0.5
_POLL_EVERY_RECORDS: Final = 1_000
WRITE_AGAIN = (
    "What was written so far stays. Before you start the application, run this again with --append, which adds what "
    "is missing"
)
_UNDER_WAY_BYTES: Final = 64 << 20
"""About how much the client buffers. Its own limit, 1 GiB, stays, as a lower one would limit the size of records."""
_MAX_MESSAGE_BYTES: Final = 1_000_000_000
"""The client's maximum: the topic limits the size of records."""
_LOG = logging.getLogger(__name__)


class ChangelogWriter:
    """Writes to the partitions of one topic. Use it as a context manager: its end waits for acknowledgements."""

    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._topic = topic
        self._refused: list[KafkaError] = []
        options = cluster.client_options(
            enable_idempotence=True,
            acks="all",
            linger_ms=20,
            delivery_report_only_error=True,
            message_max_bytes=_MAX_MESSAGE_BYTES,
        )
        refused = self._refused

        def delivered(error: KafkaError | None, _: Message[bytes, bytes]) -> None:
            if error is not None:
                refused.append(error)

        # The callback does not reference the writer, so that the client is freed with it.
        with cluster.errors():
            self._producer = Producer({**options, "on_delivery": delivered}, logger=_LOG)

    def __enter__(self) -> ChangelogWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._producer.purge()
        left = self._producer.flush(_FLUSH_S)
        if kind is None:
            self._check()
            if left:
                raise self._failed(f"{left} records were not acknowledged within {_FLUSH_S:.0f} s")

    def write(self, partition: int, records: Iterable[ChangelogRecord]) -> int:
        """Send records to a partition in order; return how many. Raises ChangelogError, FormatError."""
        count = sent_bytes = 0
        for key, value, timestamp_ms, header_bytes in records:
            self._send(partition, key, value, timestamp_ms, parse_headers(header_bytes))
            count += 1
            sent_bytes += len(key) + len(value or b"") + len(header_bytes)
            if sent_bytes >= _UNDER_WAY_BYTES:
                self._producer.flush(_FLUSH_S)
                sent_bytes = 0
            if count % _POLL_EVERY_RECORDS == 0:
                self._producer.poll(0)
                self._check()
        return count

    def _send(self, partition: int, key: bytes, value: bytes | None, timestamp_ms: int, headers: list[Any]) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, value, key=key, partition=partition, timestamp=timestamp_ms, headers=headers
                )
                return
            except BufferError:  # the client's queue is full
                self._producer.poll(_POLL_S)
                self._check()
            except KafkaException as cause:
                problem = f"key 0x{key.hex()} in partition {partition} can't be sent ({described(cause)})"
                raise self._failed(problem) from cause

    def _failed(self, problem: str) -> ChangelogError:
        return ChangelogError(self._topic, f"{problem}. {WRITE_AGAIN}")

    def _check(self) -> None:
        for error in self._refused:
            raise self._failed(f"the broker refused a record ({described(error)})")
