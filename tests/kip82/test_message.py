"""Headers inside the value: marked, taken out again, and the value alone for an old reader."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Headers
from statestore.errors import DeserializationError, FormatError, LossyHeadersError
from statestore.format.records.header_bytes import parse_count
from statestore.format.records.record_v2 import RecordV2, decode_record, encode_record
from statestore.format.serde import Serdes
from statestore.kip82.message import WRAPPED, Message, for_old_reader, message_serde, unwrap, wrap

PAIRS = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=3)), max_size=4).map(tuple)
RECORDS = st.builds(
    RecordV2, st.just(0), st.just(0), st.binary(max_size=3), st.binary(max_size=3), PAIRS, st.sampled_from([0, 2, -128])
)
SOME = RecordV2(key=b"k", value=b"v", headers=(("a", b"1"), ("b", None), ("a", b"")))


@given(RECORDS)
def test_what_is_wrapped_is_unwrapped(record: RecordV2) -> None:
    wrapped = wrap(record)
    assert wrapped.headers == ()
    assert bool(wrapped.attributes & WRAPPED) == bool(record.headers)
    assert unwrap(decode_record(encode_record(wrapped))[0]) == record


@given(RECORDS)
def test_an_old_reader_gets_the_value(record: RecordV2) -> None:
    expected = record._replace(headers=())
    before = parse_count()
    assert for_old_reader(wrap(record)) == expected
    assert for_old_reader(record) == expected
    assert parse_count() == before


def test_what_is_not_marked_is_never_taken_for_wrapped() -> None:
    looks_wrapped = RecordV2(value=wrap(SOME).value)
    assert unwrap(looks_wrapped) == looks_wrapped
    assert for_old_reader(looks_wrapped) == looks_wrapped


def test_nothing_is_wrapped_twice() -> None:
    wrapped = wrap(SOME)
    assert wrap(wrapped._replace(headers=(("c", b""),))) == wrapped._replace(headers=(("c", b""),))
    assert unwrap(wrapped._replace(headers=(("c", b""),))).headers == (*SOME.headers, ("c", b""))
    assert unwrap(unwrap(wrapped)) == SOME


def test_a_delete_stays_a_delete() -> None:
    tombstone = RecordV2(key=b"k")
    assert wrap(tombstone) == unwrap(tombstone) == for_old_reader(tombstone) == tombstone


def test_a_delete_has_no_room_for_headers() -> None:
    with pytest.raises(LossyHeadersError, match="header 'a' belongs to a delete, which a wrapped value can't hold"):
        wrap(SOME._replace(value=None))


@pytest.mark.parametrize("reader", [unwrap, for_old_reader])
def test_a_mark_on_what_is_not_wrapped(reader: Any) -> None:
    with pytest.raises(FormatError):
        reader(RecordV2(value=b"\x7f", attributes=WRAPPED))


@given(st.text(max_size=4), PAIRS)
def test_a_serde_of_messages(value: str, pairs: tuple[tuple[str, bytes | None], ...]) -> None:
    serde = message_serde(Serdes.string())
    message = Message(value, Headers(pairs))
    data = serde.serialize(message)
    assert data == (wrap(RecordV2(value=value.encode(), headers=pairs)).value if pairs else b"\0" + value.encode())
    before = parse_count()
    copied = serde.deserialize(data)
    assert copied.value == value
    assert parse_count() == before
    assert copied == message


def test_the_inner_serde_is_passed_the_messages_own_headers() -> None:
    inner = Serdes.of_headers(
        "noting",
        lambda value, headers: bytes(value + len(headers.add("schema", b"7"))),
        lambda data, headers: headers.last_header("schema").value,
    )
    message, outer = Message(2, Headers([("a", b"1")])), Headers()
    functions = message_serde(inner).on_topic("orders")
    data = functions.serialize(message, outer)
    assert list(message.headers) == [("a", b"1")]
    assert list(outer) == []
    copied = functions.deserialize(data, outer)
    assert copied.value == b"7"
    assert list(copied.headers) == [("a", b"1"), ("schema", b"7")]


def test_malformed_messages_are_errors_of_the_serde() -> None:
    with pytest.raises(DeserializationError, match=r"^message of string: headers: needs 63 bytes"):
        message_serde(Serdes.string()).deserialize(b"\x7e")
    with pytest.raises(DeserializationError, match=r"^string: "):
        message_serde(Serdes.string()).deserialize(b"\x00\xff")
