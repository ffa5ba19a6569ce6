"""Sender: headers are closed by a send, a failed one leaves the record as it was, and none happens twice."""

from __future__ import annotations

from typing import Any

import pytest

from statestore import Headers, ProducerRecord
from statestore.errors import HeadersFrozenError, RecordSentError, SerializationError
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.format.serde import Serde, Serdes
from statestore.headers.records import Sender


def note_and_encode(value: str, headers: Any) -> bytes:
    headers.add("schema", b"7")
    return value.encode("ascii")


NOTING = Serdes.of_headers("noting", note_and_encode, lambda data, headers: data.decode())
Sent = list[ProducerRecord[bytes | None, bytes | None]]


def record(value: str | None = "v", **fields: Any) -> ProducerRecord[str | None, str | None]:
    return ProducerRecord("orders", key="k", value=value, headers=[("a", b"1")], **fields)


def sender(sent: Sent) -> Sender[str, str]:
    return Sender(Serdes.string(), NOTING, sent.append)


def test_what_is_delivered() -> None:
    sent: Sent = []
    sender(sent).send(record(partition=3, timestamp_ms=7))
    expected = [("a", b"1"), ("schema", b"7")]
    assert sent == [
        ProducerRecord("orders", key=b"k", value=b"v", partition=3, timestamp_ms=7, headers=expected),
    ]


def test_who_looks_at_what_is_delivered_changes_it_for_nobody() -> None:
    seen: Sent = []

    def deliver(delivered: ProducerRecord[Any, Any]) -> None:
        for _ in range(2):
            with pytest.raises(HeadersFrozenError):
                delivered.headers.add("observer", b"1")
            seen.append(delivered)
        delivered.copy().headers.add("observer", b"1")

    Sender(Serdes.string(), NOTING, deliver).send(record())
    assert [list(one.headers) for one in seen] == [[("a", b"1"), ("schema", b"7")]] * 2


def test_the_key_is_serialised_first_and_both_see_the_topic() -> None:
    def noting(part: str) -> Serde[str]:
        def serialize(topic: str | None, headers: Any, text: str) -> bytes:
            headers.add(part, str(topic).encode())
            return text.encode()

        return Serdes.of_topics(part, serialize, lambda topic, headers, data: data.decode())

    sent: Sent = []
    Sender(noting("key"), noting("value"), sent.append).send(record())
    assert list(sent[0].headers) == [("a", b"1"), ("key", b"orders"), ("value", b"orders")]


def test_a_send_closes_the_headers_with_what_serdes_added() -> None:
    first = record()
    held = first.headers
    sender([]).send(first)
    assert list(held) == [("a", b"1"), ("schema", b"7")]
    with pytest.raises(HeadersFrozenError):
        held.remove("a")


def test_a_second_send_raises_before_anything_happens() -> None:
    sent: Sent = []
    first = record()
    sender(sent).send(first)
    with pytest.raises(RecordSentError, match=r"copy\(\)"):
        sender(sent).send(first)
    assert len(sent) == 1
    assert list(first.headers) == [("a", b"1"), ("schema", b"7")]
    sender(sent).send(first.copy(headers=[("a", b"1")]))
    assert sent[0] == sent[1]


def test_after_an_error_of_a_serde_the_record_can_be_sent() -> None:
    sent: Sent = []
    failing = record("é")
    held = failing.headers
    with pytest.raises(SerializationError, match=r"^noting: "):
        sender(sent).send(failing)
    assert sent == []
    assert list(held) == [("a", b"1")]
    assert not failing.is_sent
    assert not held.is_frozen
    Sender(Serdes.string(), Serdes.string(), sent.append).send(failing)
    assert sent[0].value == "é".encode()


def test_after_an_error_of_the_delivery_the_record_counts_as_sent() -> None:
    def refuse(record: ProducerRecord[bytes | None, bytes | None]) -> None:
        raise OSError("no broker")

    failing = record()
    with pytest.raises(OSError, match="no broker"):
        Sender(Serdes.string(), NOTING, refuse).send(failing)
    assert failing.is_sent
    with pytest.raises(RecordSentError):
        sender([]).send(failing)


def test_a_delete_keeps_its_headers() -> None:
    sent: Sent = []
    sender(sent).send(record(None))
    assert sent[0].value is None
    assert list(sent[0].headers) == [("a", b"1")]


def test_headers_pass_through_a_plain_sender_unparsed() -> None:
    data = encode_headers([("a", b"1")])
    sent: Sent = []
    before = parse_count()
    passing = ProducerRecord("orders", key="k", value="v", headers=Headers.from_bytes(data))
    Sender(Serdes.string(), Serdes.string(), sent.append).send(passing)
    assert sent[0].headers.to_bytes() is data
    assert parse_count() == before
