"""Sender: what happens to a record on its way out, as far as its headers are concerned.

Serialisers may add headers; then the headers are closed, and the record is handed on. So a record can be sent once:
sent again, it would have those headers twice.
Source: KIP-82, "Headers will be mutable" and "users should not resend the same record"; Kafka's KafkaProducer.doSend.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from statestore.format.serde import Serde
from statestore.headers.extended_serdes import ExtendedSerializer
from statestore.headers.records import ProducerRecord

K = TypeVar("K")
V = TypeVar("V")


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
