"""ProducerRecord and ConsumerRecord: headers of their own, Kafka's checks, sent once."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from statestore import ConsumerRecord, Header, Headers, ProducerRecord
from statestore.errors import HeadersFrozenError, RecordSentError
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.headers import TimestampType
from statestore.headers.records import NO_TIMESTAMP

Make = Callable[..., Any]


def produced(**fields: Any) -> ProducerRecord[Any, Any]:
    return ProducerRecord(**{"topic": "orders", "key": "k", "value": 1, **fields})


def consumed(**fields: Any) -> ConsumerRecord[Any, Any]:
    return ConsumerRecord(**{"topic": "orders", "partition": 0, "offset": 5, "key": "k", "value": 1, **fields})


BOTH = pytest.mark.parametrize("make", [produced, consumed])


def test_fields_and_defaults() -> None:
    record = produced(partition=2, timestamp_ms=7, headers=[("a", b"1")])
    assert (record.topic, record.partition, record.timestamp_ms, record.key, record.value) == ("orders", 2, 7, "k", 1)
    assert (produced().partition, produced().timestamp_ms, produced().is_sent) == (None, None, False)
    got = consumed(timestamp_ms=7, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert (got.topic, got.partition, got.offset, got.key, got.value) == ("orders", 0, 5, "k", 1)
    assert (got.timestamp_ms, got.timestamp_type) == (7, TimestampType.LOG_APPEND_TIME)
    assert (consumed().timestamp_ms, consumed().timestamp_type) == (NO_TIMESTAMP, TimestampType.NO_TIMESTAMP_TYPE)
    assert [int(kind) for kind in TimestampType] == [-1, 0, 1]


@BOTH
def test_headers_are_never_none(make: Make) -> None:
    assert make().headers == Headers()
    assert not make().headers.is_frozen
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().headers = None
    assert make().headers is not make().headers


def test_a_producer_takes_none_for_no_headers_and_a_consumer_does_not() -> None:
    assert produced(headers=None).headers == Headers()
    with pytest.raises(TypeError, match="headers must not be None"):
        consumed(headers=None)


@BOTH
@pytest.mark.parametrize(
    "given",
    [
        Headers([("a", b"1"), ("a", None)]),
        Headers([("a", b"1"), ("a", None)]).freeze(),
        [("a", b"1"), ("a", None)],
        (Header("a", b"1"), Header("a", None)),
    ],
    ids=["headers", "frozen headers", "pairs", "tuple of headers"],
)
def test_given_headers_are_copied(make: Make, given: Any) -> None:
    record = make(headers=given)
    record.headers.add("b", b"2")
    assert list(record.headers) == [("a", b"1"), ("a", None), ("b", b"2")]
    assert list(given) == [("a", b"1"), ("a", None)]


@BOTH
def test_an_iterator_of_headers_is_read_once(make: Make) -> None:
    assert list(make(headers=(pair for pair in [("a", b"1")])).headers) == [("a", b"1")]


def test_a_mirror_passes_headers_on_without_parsing_them() -> None:
    source = consumed(headers=Headers.from_bytes(encode_headers([("a", b"1"), ("a", b"2"), ("b", None)])))
    before = parse_count()
    mirrored = produced(headers=source.headers)
    assert mirrored.headers.to_bytes() is source.headers.to_bytes()
    assert parse_count() == before
    mirrored.headers.remove("a")
    assert list(mirrored.headers) == [("b", None)]
    assert list(source.headers) == [("a", b"1"), ("a", b"2"), ("b", None)]


@BOTH
@pytest.mark.parametrize("topic", [None, b"orders", 5])
def test_a_topic_is_text(make: Make, topic: Any) -> None:
    with pytest.raises(TypeError, match="a topic must be a str, got"):
        make(topic=topic)


@pytest.mark.parametrize(
    ("make", "fields", "problem"),
    [
        (produced, {"partition": -1}, "invalid partition -1: it must be 0 to 2147483647 or None"),
        (produced, {"partition": 2**31}, "invalid partition 2147483648"),
        (produced, {"timestamp_ms": -1}, "invalid timestamp -1: it must be 0 to 9223372036854775807 or None"),
        (produced, {"timestamp_ms": 2**63}, "invalid timestamp"),
        (consumed, {"partition": -1}, "invalid partition -1: it must be 0 to 2147483647$"),
        (consumed, {"offset": -1}, "invalid offset -1"),
    ],
)
def test_numbers_are_in_range(make: Make, fields: dict[str, int], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        make(**fields)


@BOTH
@pytest.mark.parametrize("headers", [[(None, b"")], [("a", "text")]])
def test_headers_are_checked(make: Make, headers: Any) -> None:
    with pytest.raises(TypeError, match="header"):
        make(headers=headers)


def test_a_sent_record_has_read_only_headers() -> None:
    record = produced(headers=[("a", b"1")])
    held = record.headers
    record.mark_sent()
    assert record.is_sent
    assert record.headers is held
    with pytest.raises(HeadersFrozenError):
        held.add("b", b"2")
    assert list(record.headers) == [("a", b"1")]


def test_a_record_is_sent_once_and_its_copy_again() -> None:
    record = produced(partition=3, timestamp_ms=7, headers=[("a", b"1")])
    record.mark_sent()
    with pytest.raises(RecordSentError, match=r"topic 'orders' was sent already.*copy\(\)") as caught:
        record.mark_sent()
    assert caught.value.topic == "orders"

    again = record.copy()
    assert again == record
    assert not again.is_sent
    again.headers.add("b", b"2")
    again.mark_sent()
    assert list(record.headers) == [("a", b"1")]
    assert list(record.copy(headers=()).headers) == []
    assert list(record.copy(headers=[("c", None)]).headers) == [("c", None)]


@BOTH
def test_equality_is_by_fields(make: Make) -> None:
    assert make(headers=[("a", b"1")]) == make(headers=[("a", b"1")])
    assert make(headers=[("a", b"1")]) != make()
    assert make() != make(value=2)
    assert make() != make(partition=9)
    with pytest.raises(TypeError):
        hash(make())


def test_records_are_picklable() -> None:
    record = produced(headers=[("a", b"1")])
    record.mark_sent()
    copied = pickle.loads(pickle.dumps(record))
    assert copied == record
    assert copied.is_sent
    assert copied.headers.is_frozen
    assert pickle.loads(pickle.dumps(consumed(headers=[("a", None)]))) == consumed(headers=[("a", None)])


def test_repr_says_all_that_counts() -> None:
    assert repr(produced(headers=[("a", b"1")])) == (
        "ProducerRecord(topic='orders', partition=None, timestamp_ms=None, key='k', value=1, "
        "headers=Headers([('a', b'1')]))"
    )
