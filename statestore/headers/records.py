"""ProducerRecord, which a Sender hands to a topic, and ConsumerRecord, which comes from one.

Their headers are always there, and their own: those given are copied, so that a mirror can pass on a record's headers
while either side changes its own.

On the way out, serialisers may add headers; then the headers are closed, and the record is handed on. So a record can
be sent once: sent again, it would have those headers twice.

Source: KIP-82, "Headers will be mutable" and "users should not resend the same record"; Kafka's ProducerRecord,
ConsumerRecord and KafkaProducer.doSend.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, Generic, TypeVar

from statestore.errors import RecordSentError
from statestore.format.serde import Serde
from statestore.format.varint import INT32_MAX, INT64_MAX
from statestore.headers.extended_serdes import ExtendedSerializer
from statestore.headers.record_headers import Headers

K = TypeVar("K")
V = TypeVar("V")

NO_TIMESTAMP: Final = -1
"""The timestamp of a consumed record that has none. Kafka's RecordBatch.NO_TIMESTAMP."""


class TimestampType(IntEnum):
    """Who gave a record its timestamp. The numbers are Kafka's."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    """The producer."""
    LOG_APPEND_TIME = 1
    """The broker."""


@dataclass(frozen=True, init=False)
class ProducerRecord(Generic[K, V]):
    """A record to be sent. Equal to one with equal fields, sent or not; not hashable, for its headers are not."""

    topic: str
    partition: int | None
    """Where it is to go; None leaves that to who sends it."""
    timestamp_ms: int | None
    """Milliseconds since the epoch; None leaves it to who sends it."""
    key: K
    value: V
    headers: Headers
    _sent: bool = field(repr=False, compare=False)

    def __init__(
        self,
        topic: str,
        *,
        key: K,
        value: V,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Iterable[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Make a record with a copy of these headers, or of none.

        Raises TypeError if the topic is not a str, ValueError if partition or timestamp are negative or too large for
        their 32 and 64 bits, and what `Header` raises.
        """
        _require_topic(topic)
        if partition is not None:
            _require_natural("partition", partition, INT32_MAX, "or None")
        if timestamp_ms is not None:
            _require_natural("timestamp", timestamp_ms, INT64_MAX, "or None")
        copied = Headers(() if headers is None else headers)
        _set(self, topic=topic, partition=partition, timestamp_ms=timestamp_ms, key=key, value=value, headers=copied)
        _set(self, _sent=False)

    @property
    def is_sent(self) -> bool:
        """Whether `mark_sent` was called."""
        return self._sent

    def mark_sent(self) -> None:
        """Make the headers read-only, for good: the record is on its way. Called by what sends it.

        Raises RecordSentError if the record was marked before.
        """
        self.require_unsent()
        self.headers.freeze()
        _set(self, _sent=True)

    def require_unsent(self) -> None:
        """Raise RecordSentError if the record was sent. Call it before any work is done for the record."""
        if self._sent:
            raise RecordSentError(self.topic)

    @classmethod
    def adopt(cls, topic: str, timestamp_ms: int | None, key: K, value: V, headers: Headers) -> ProducerRecord[K, V]:
        """Return a record to no partition whose headers are `headers` themselves. Nothing is checked."""
        record = object.__new__(cls)
        vars(record).update(
            topic=topic, partition=None, timestamp_ms=timestamp_ms, key=key, value=value, headers=headers, _sent=False
        )
        return record

    def copy(self, *, headers: Iterable[tuple[str, bytes | None]] | None = None, **fields: Any) -> ProducerRecord[K, V]:
        """Return a record like this one that can be changed and sent, even if this one was sent.

        It has a copy of this record's headers, with those that serialisers added; `headers` are taken instead if given,
        and so are `topic`, `partition`, `timestamp_ms`, `key` and `value`. Raises what ProducerRecord raises.
        """
        taken = {name: getattr(self, name) for name in ("topic", "partition", "timestamp_ms", "key", "value")} | fields
        return ProducerRecord(**taken, headers=self.headers if headers is None else headers)


@dataclass(frozen=True, init=False)
class ConsumerRecord(Generic[K, V]):
    """A record as it came from a topic. Its headers can be changed. Equal to one with equal fields; not hashable."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    """Milliseconds since the epoch; NO_TIMESTAMP if the record has none."""
    timestamp_type: TimestampType
    key: K
    value: V
    headers: Headers

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        key: K,
        value: V,
        timestamp_ms: int = NO_TIMESTAMP,
        timestamp_type: TimestampType = TimestampType.NO_TIMESTAMP_TYPE,
        headers: Iterable[tuple[str, bytes | None]] = (),
    ) -> None:
        """Make a record with a copy of these headers.

        Raises TypeError if the topic is not a str or the headers are None, ValueError if partition or offset are
        negative or too large for their 32 and 64 bits, and what `Header` raises.
        """
        _require_topic(topic)
        _require_natural("partition", partition, INT32_MAX)
        _require_natural("offset", offset, INT64_MAX)
        if headers is None:
            raise TypeError("headers must not be None: give () for none")
        _set(self, topic=topic, partition=partition, offset=offset, key=key, value=value, headers=Headers(headers))
        _set(self, timestamp_ms=timestamp_ms, timestamp_type=timestamp_type)

    @classmethod
    def adopt(
        cls, topic: str, partition: int, offset: int, timestamp_ms: int, key: K, value: V, headers: Headers
    ) -> ConsumerRecord[K, V]:
        """Return a record with its producer's timestamp, whose headers are `headers` themselves. Nothing is checked."""
        record = object.__new__(cls)
        vars(record).update(
            topic=topic,
            partition=partition,
            offset=offset,
            timestamp_ms=timestamp_ms,
            timestamp_type=TimestampType.CREATE_TIME,
            key=key,
            value=value,
            headers=headers,
        )
        return record

    def copy(
        self, *, headers: Iterable[tuple[str, bytes | None]] | None = None, **fields: Any
    ) -> ConsumerRecord[Any, Any]:
        """Return a record like this one with other headers, `timestamp_ms`, `key` or `value`; headers are copied.

        It came from where this one came: topic, partition and offset stay. Raises what ConsumerRecord raises.
        """
        taken = {name: getattr(self, name) for name in ("timestamp_ms", "timestamp_type", "key", "value")} | fields
        headers = self.headers if headers is None else headers
        return ConsumerRecord(self.topic, self.partition, self.offset, **taken, headers=headers)


class Sender(Generic[K, V]):
    """Serialises records, the key first, and hands them to `deliver`: a client's produce call, or a list's append."""

    def __init__(
        self,
        key_serde: Serde[K],
        value_serde: Serde[V],
        deliver: Callable[[ProducerRecord[bytes | None, bytes | None]], object],
    ) -> None:
        self._keys = ExtendedSerializer(key_serde)
        self._values = ExtendedSerializer(value_serde)
        self._deliver = deliver

    def send(self, record: ProducerRecord[K | None, V | None]) -> None:
        """Send a record, once; its headers are read-only from then on, those that the serdes added among them.

        Raises RecordSentError if it was sent before, SerializationError, after which it is as it was and can be sent.
        If `deliver` raises, the record counts as sent: nobody knows how far it came. What it is handed has read-only
        headers, too.
        """
        record.require_unsent()
        before = record.headers.copy()
        try:
            key = self._keys.serialize(record.topic, record.headers, record.key)
            value = self._values.serialize(record.topic, record.headers, record.value)
        except BaseException:
            # Else those that a serde added before it failed would be there twice after the next try.
            record.headers._take(before)
            raise
        record.mark_sent()
        delivered = ProducerRecord(
            record.topic,
            key=key,
            value=value,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers,
        )
        # Who delivers it may have several look at it: each of them sees what was sent.
        delivered.headers.freeze()
        self._deliver(delivered)


def _set(record: object, **fields: Any) -> None:
    for name, content in fields.items():
        object.__setattr__(record, name, content)


def _require_topic(topic: object) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"a topic must be a str, got {topic!r}")


def _require_natural(what: str, number: int, largest: int, otherwise: str = "") -> None:
    if not 0 <= number <= largest:
        allowed = f"0 to {largest} {otherwise}".rstrip()
        raise ValueError(f"invalid {what} {number}: it must be {allowed}")
