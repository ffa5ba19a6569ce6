"""What must come out of the workload: one record for each that went in, with its key's count, its value and headers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from benchmarks.peers.workload_topic import Headers, InputRecord
from benchmarks.workload import PARTITIONS
from upgrade_tools.changelogs.cluster import Cluster

_COUNT_BYTES, _TAKEN_AT_ONCE, _WAIT_S = 8, 10_000, 30.0


class Output(NamedTuple):
    """A record of a key that comes out, with its count."""

    count: int
    value: bytes
    headers: Headers


class ExpectedOutput:
    """What must have come out last of each key, by a plain fold over what goes in."""

    def __init__(self) -> None:
        self.records = 0
        self.last: dict[bytes, Output] = {}

    def folding(self, sent: Iterable[InputRecord]) -> Iterator[InputRecord]:
        """Hand on records, and fold each."""
        for record in sent:
            before = self.last.get(record.key)
            self.last[record.key] = Output(before.count + 1 if before else 1, record.value, record.headers)
            self.records += 1
            yield record


class OutputCheck:
    """Compares what comes out, in any order of keys, with what is expected."""

    def __init__(self, expected: ExpectedOutput) -> None:
        self._expected = expected
        self._records = 0
        self._counts: dict[bytes, int] = {}
        """Of each key a bit for each count that has come out."""
        self._found: dict[bytes, Output] = {}
        self._short = 0

    def add(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Take a record that came out."""
        self._records += 1
        if key is None or value is None or len(value) < _COUNT_BYTES:
            self._short += 1
            return
        count = int.from_bytes(value[:_COUNT_BYTES], "big")
        # A count that can't be is no bit, but a record too many: it must not take the memory of such a number.
        if count <= self._expected.records:
            self._counts[key] = self._counts.get(key, 0) | 1 << count
        last = self._found.get(key)
        if last is None or count >= last.count:
            self._found[key] = Output(count, value[_COUNT_BYTES:], headers)

    def problems(self) -> list[str]:
        """Return what is wrong; nothing if all is right."""
        said = []
        if self._records != self._expected.records:
            said.append(f"{self._records:,} records, not {self._expected.records:,}")
        if self._short:
            said.append(f"{self._short:,} records without a key or a count")
        if unknown := self._found.keys() - self._expected.last.keys():
            said.append(_some("keys that never went in", unknown))
        expected = self._expected.last.items()
        # Each count from 1 on, once: with as many records as went in, none can be there twice either.
        if wrong := [key for key, last in expected if self._counts.get(key) != (2 << last.count) - 2]:
            said.append(_some("keys whose counts do not go from 1 to the last, one by one", wrong))
        for what in ("count", "value", "headers"):
            if wrong := [
                key for key, last in expected if getattr(self._found.get(key), what, None) != getattr(last, what)
            ]:
                said.append(_some(f"keys with another last {what}", wrong))
        return said


def add_topic(check: OutputCheck, cluster: Cluster, topic: str) -> None:
    """Give all committed records of a topic to the check. Raises KafkaException, TimeoutError if they don't come."""
    consumer = Consumer(
        cluster.client_options(
            group_id="peers-check",  # the client wants a name, and joins no group
            enable_auto_commit=False,
            isolation_level="read_committed",
            enable_partition_eof=True,
        )
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        left = set(range(PARTITIONS))
        while left:
            messages = consumer.consume(_TAKEN_AT_ONCE, timeout=_WAIT_S)
            if not messages:
                raise TimeoutError(f"{topic} gave nothing for {_WAIT_S:.0f} s")
            for message in messages:
                error = message.error()
                if error is None:
                    check.add(message.key(), message.value(), _pairs(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()


def _pairs(message: Message) -> Headers:
    found = message.headers() or []
    return list(found.items() if isinstance(found, dict) else found)


def _some(what: str, keys: Iterable[bytes]) -> str:
    found = sorted(keys)
    return f"{len(found):,} {what}, such as {', '.join(repr(key) for key in found[:3])}"
