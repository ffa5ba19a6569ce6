"""Records to and from the message formats: with headers in v2, without below."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import ConsumerRecord, Headers, ProducerRecord
from statestore.errors import FormatError
from statestore.format.records.message_v0_v1 import MessageV0V1, decode_message, encode_message
from statestore.format.records.record_v2 import BatchBase, RecordV2, decode_record, encode_record
from statestore.headers import TimestampType
from statestore.headers.conversion import down_convert, from_record_v2, to_record_v2, up_convert
from statestore.headers.records import NO_TIMESTAMP

Pairs = list[tuple[str, bytes | None]]

BYTES = st.none() | st.binary(max_size=4)
PAIRS = st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=4)
SOME: Pairs = [("a", b"1"), ("b", None), ("a", b"2")]


@given(BYTES, BYTES, PAIRS, st.integers(0, 2**62), st.integers(0, 2**62), st.integers(0, 2**31 - 1))
def test_what_is_produced_is_consumed(
    key: bytes | None, value: bytes | None, pairs: Pairs, timestamp_ms: int, base_ms: int, offset_delta: int
) -> None:
    produced = ProducerRecord("orders", key=key, value=value, timestamp_ms=timestamp_ms, headers=pairs)
    record = to_record_v2(produced, base_timestamp_ms=base_ms, offset_delta=offset_delta)
    wire, _ = decode_record(encode_record(record))
    consumed = from_record_v2(wire, "orders", 3, BatchBase(100, base_ms))
    assert consumed == ConsumerRecord(
        "orders",
        3,
        100 + offset_delta,
        key=key,
        value=value,
        timestamp_ms=timestamp_ms,
        timestamp_type=TimestampType.CREATE_TIME,
        headers=pairs,
    )


def test_the_brokers_time_stands_for_the_producers() -> None:
    consumed = from_record_v2(RecordV2(timestamp_delta=5), "orders", 0, BatchBase(log_append_time_ms=9))
    assert (consumed.timestamp_ms, consumed.timestamp_type) == (9, TimestampType.LOG_APPEND_TIME)


def test_a_record_without_a_timestamp_is_not_written() -> None:
    with pytest.raises(ValueError, match="'orders' has no timestamp"):
        to_record_v2(ProducerRecord("orders", key=b"k", value=b"v"), base_timestamp_ms=0)


def test_impossible_positions_are_refused() -> None:
    with pytest.raises(FormatError, match="64 bits"):
        from_record_v2(RecordV2(offset_delta=1), "orders", 0, BatchBase(offset=2**63 - 1))
    with pytest.raises(ValueError, match="invalid offset -1"):
        from_record_v2(RecordV2(offset_delta=-1), "orders", 0, BatchBase())


def consumed(
    timestamp_type: TimestampType = TimestampType.CREATE_TIME, headers: Pairs | Headers = SOME
) -> ConsumerRecord[bytes | None, bytes | None]:
    return ConsumerRecord(
        "orders", 3, 100, key=b"k", value=None, timestamp_ms=7, timestamp_type=timestamp_type, headers=headers
    )


@pytest.mark.parametrize("magic", [0, 1])
def test_down_conversion_drops_headers_and_says_how_many(magic: int) -> None:
    message, dropped = down_convert(consumed(), magic)
    assert dropped == 3
    assert (message.magic, message.offset, message.key, message.value) == (magic, 100, b"k", None)
    assert message.timestamp_ms == (7 if magic else NO_TIMESTAMP)
    assert down_convert(consumed(headers=[]), magic).dropped_headers == 0
    assert decode_message(encode_message(message))[0] == message


@pytest.mark.parametrize("magic", [-1, 2, 3])
def test_there_is_no_down_conversion_to_a_format_with_headers(magic: int) -> None:
    with pytest.raises(ValueError, match=f"got {magic}"):
        down_convert(consumed(), magic)


@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_v1_keeps_all_but_the_headers(timestamp_type: TimestampType) -> None:
    converted = up_convert(down_convert(consumed(timestamp_type), 1).message, "orders", 3)
    assert converted == consumed(timestamp_type, headers=[])
    assert converted.headers == Headers()


def test_v0_loses_the_timestamp_too() -> None:
    message = down_convert(consumed(TimestampType.LOG_APPEND_TIME), 0).message
    assert message == MessageV0V1(0, 100, b"k", None)
    converted = up_convert(message, "orders", 3)
    assert (converted.timestamp_ms, converted.timestamp_type) == (NO_TIMESTAMP, TimestampType.NO_TIMESTAMP_TYPE)
    assert (converted.offset, converted.key, converted.value) == (100, b"k", None)


def test_up_converted_records_have_headers_to_add_to() -> None:
    converted = up_convert(MessageV0V1(1, 0, b"k", b"v", timestamp_ms=7), "orders", 3)
    assert list(converted.headers.add("a", b"1")) == [("a", b"1")]
