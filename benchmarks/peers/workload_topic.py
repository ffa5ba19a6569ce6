"""The records of benchmarks/workload.py in Kafka topics: of any number the first ones are the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import cycle
from typing import Final, NamedTuple

from confluent_kafka import Producer

from benchmarks.workload import PARTITIONS, records
from upgrade_tools.changelogs.cluster import Cluster

CHUNK_RECORDS: Final = 10_000
_QUEUED_RECORDS: Final = 200_000
_FLUSH_S: Final = 60.0
_LOG_ERRORS: Final = 3
Headers = list[tuple[str, str | bytes | None]]
"""As the client takes them and gives them; here all are bytes."""


class InputRecord(NamedTuple):
    """A record as it is sent."""

    key: bytes
    value: bytes
    timestamp_ms: int
    headers: Headers


def input_records(count: int) -> Iterator[InputRecord]:
    """Yield the first `count` records of the workload."""
    for first in range(0, count, CHUNK_RECORDS):
        chunk = records(first, CHUNK_RECORDS).slice(0, count - first)
        times_ms = (time.timestamp() for time in chunk.column("timestamp").to_pylist())
        for key, value, time_s, headers in zip(
            chunk.column("key").to_pylist(),
            chunk.column("value").to_pylist(),
            times_ms,
            chunk.column("headers").to_pylist(),
            strict=True,
        ):
            yield InputRecord(key, value, round(time_s * 1000), [(each["key"], each["value"]) for each in headers])


def fill_topics(cluster: Cluster, topics: Sequence[str], sent: Iterable[InputRecord]) -> None:
    """Make topics and send records to them in turn, each to the partition of its key.

    Raises RuntimeError if they do not arrive in a minute.
    """
    for topic in topics:
        cluster.create_topic(topic, PARTITIONS, {})
    options = cluster.client_options(
        partitioner="murmur2_random",
        linger_ms=20,
        queue_buffering_max_messages=_QUEUED_RECORDS,
        # Else a batch that is sent twice lands behind later ones, and a key's records change their order.
        enable_idempotence=True,
    )
    producer = Producer({**options, "log_level": _LOG_ERRORS})  # a new broker has it wait, which it would say
    for topic, record in zip(cycle(topics), sent):
        while len(producer) >= _QUEUED_RECORDS // 2:
            producer.poll(0.01)
        producer.produce(topic, record.value, record.key, headers=record.headers, timestamp=record.timestamp_ms)
    if left := producer.flush(_FLUSH_S):
        raise RuntimeError(f"{left} records did not reach {', '.join(topics)} in {_FLUSH_S:.0f} s")
