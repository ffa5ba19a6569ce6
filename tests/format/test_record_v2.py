"""Record v2: round trips. Golden vectors: tests/headers. Malformed bytes: test_malformed_bytes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.records.record_v2 import BatchBase, RecordV2, decode_record, encode_record, position_of
from tests.support.cuts import check_cut_is_noticed
from tests.support.record_bytes import record_bytes

BYTES = st.none() | st.binary(max_size=6) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 9000])
HEADERS = st.lists(st.tuples(st.text(max_size=4), BYTES), max_size=4).map(tuple)
RECORDS = st.builds(
    RecordV2,
    timestamp_delta=st.integers(-(2**63), 2**63 - 1),
    offset_delta=st.integers(-(2**31), 2**31 - 1),
    key=BYTES,
    value=BYTES,
    headers=HEADERS,
    attributes=st.integers(-128, 127),
)
SOME = RecordV2(5, 1, b"key", b"value", (("a", b"1"), ("b", None)))


@given(RECORDS, st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_inside_other_bytes(record: RecordV2, before: bytes, after: bytes) -> None:
    encoded = encode_record(record)
    assert decode_record(before + encoded + after, len(before)) == (record, len(before) + len(encoded))


@given(RECORDS, st.data())
def test_cut_anywhere_it_is_truncated(record: RecordV2, data: st.DataObject) -> None:
    check_cut_is_noticed(decode_record, encode_record(record), data)


@given(st.binary(max_size=40))
def test_any_bytes_decode_or_raise_a_format_error(data: bytes) -> None:
    for candidate in (data, bytes([2 * min(len(data), 63)]) + data):
        try:
            record, end = decode_record(candidate)
        except FormatError:
            continue
        assert end <= len(candidate)
        assert decode_record(encode_record(record))[0] == record


def test_no_length_leads_into_the_next_record() -> None:
    first = record_bytes("0000000104610000")  # its value claims a byte more than the record has
    with pytest.raises(FormatError):
        decode_record(first[:-1].replace(b"\x10", b"\x0c", 1) + encode_record(SOME))


def test_attributes_are_signed() -> None:
    data = record_bytes("80000001010000"[:-2])
    assert decode_record(data)[0].attributes == -128
    assert encode_record(decode_record(data)[0]) == data


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"attributes": 128}, ValueError),
        ({"timestamp_delta": 2**63}, ValueError),
        ({"offset_delta": 2**31}, ValueError),
        ({"key": "text"}, TypeError),
        ({"value": bytearray(b"x")}, TypeError),
        ({"headers": ((None, b""),)}, TypeError),
        ({"headers": (("a", "text"),)}, TypeError),
        ({"headers": (("\ud800", b""),)}, UnicodeEncodeError),
    ],
)
def test_what_no_record_can_hold(changes: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        encode_record(SOME._replace(**changes))


def test_position() -> None:
    base = BatchBase(offset=100, timestamp_ms=1000)
    assert position_of(SOME, base) == (101, 1005, -1)
    assert position_of(SOME, base._replace(sequence=2**31 - 1)) == (101, 1005, 0)
    assert position_of(SOME, base._replace(log_append_time_ms=7)) == (101, 7, -1)
    assert position_of(SOME, base._replace(timestamp_ms=2**63 - 1, log_append_time_ms=7)).timestamp_ms == 7
    with pytest.raises(FormatError, match=r"^record offset: 9223372036854775808 does not fit"):
        position_of(SOME, base._replace(offset=2**63 - 1))
    with pytest.raises(FormatError, match=r"^record timestamp: "):
        position_of(SOME, base._replace(timestamp_ms=2**63 - 5))
