"""What a record costs, part by part, and what the formats before would cost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.format.records.message_v0_v1 import MessageV0V1, encode_message
from statestore.format.records.record_v2 import RecordV2, encode_record
from statestore.headers.record_size import size_of

BYTES = st.none() | st.binary(max_size=4) | st.sampled_from([b"x" * 63, b"x" * 64, b"x" * 9000])
HEADERS = st.lists(st.tuples(st.text(max_size=3), BYTES), max_size=3).map(tuple)
RECORDS = st.builds(
    RecordV2,
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**31), 2**31 - 1),
    BYTES,
    BYTES,
    HEADERS,
    st.just(0),
)


@given(RECORDS)
def test_the_parts_make_up_the_record(record: RecordV2) -> None:
    size = size_of(record)
    assert size.total_bytes == len(encode_record(record))
    without_headers = len(encode_record(record._replace(headers=())))
    size_field = 1 + (len(encode_record(record)) > 64) + (len(encode_record(record)) > 8193)
    shorter_size_field = 1 + (without_headers > 64) + (without_headers > 8193)
    assert size.headers_bytes - 1 == size.total_bytes - without_headers - (size_field - shorter_size_field)


def test_parts_by_hand() -> None:
    size = size_of(RecordV2(key=b"key", value=b"v" * 64, headers=(("a", b"12"), ("b", None))))
    assert size == (3, 64, 1 + 2, 1 + (1 + 1 + 1 + 2) + (1 + 1 + 1), 2 + 1 + 1 + 1)
    assert size.fixed_lengths_bytes == 8
    assert size.saved_bytes == 8 - 3


def test_the_smallest_record() -> None:
    size = size_of(RecordV2())
    assert size == (0, 0, 2, 1, 4)
    assert size.total_bytes == 7
    assert (size.message_bytes(0), size.message_bytes(1)) == (26, 34)


@given(BYTES, BYTES)
def test_messages_cost_what_they_are_written_with(key: bytes | None, value: bytes | None) -> None:
    size = size_of(RecordV2(key=key, value=value, headers=(("a", b"1"),)))
    for magic in (0, 1):
        assert size.message_bytes(magic) == len(encode_message(MessageV0V1(magic, 0, key, value)))


def test_a_format_with_headers_is_no_format_before() -> None:
    with pytest.raises(ValueError, match="0 or 1, got 2"):
        size_of(RecordV2()).message_bytes(2)
