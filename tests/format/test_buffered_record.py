"""Suppressed changes have the bytes of Kafka Streams' changelogs, and other bytes are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore import Headers
from statestore.errors import FormatError
from statestore.errors.data import NegativeLengthError, TruncatedError
from statestore.format.keys.entry_key import session_key, windowed_key
from statestore.format.values.buffered_columns import (
    BUFFERED,
    counted_bytes_of,
    decode_logged_columns,
    encode_logged_columns,
)
from statestore.format.values.buffered_record import BufferedRecord, decode_logged_record, encode_buffered_record

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "buffered-changes.json").read_text(encoding="utf-8")
)
VALUES = st.none() | st.binary(max_size=4)
TIMES = st.integers(-(2**63), 2**63 - 1)
RECORDS = st.builds(
    BufferedRecord,
    TIMES,
    VALUES,
    st.lists(st.tuples(st.text(max_size=3), VALUES), max_size=3).map(lambda pairs: Headers(pairs).to_bytes()),
    st.text(max_size=3),
    st.integers(-1, 2**31 - 1),
    TIMES,
    VALUES,
    VALUES,
)


def data(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["value"][-40:])
def test_what_kafka_streams_logged_is_read_and_written(entry: dict[str, Any]) -> None:
    stored = bytes.fromhex(entry["value"])
    held, due_ms = decode_logged_record(stored)
    assert encode_buffered_record(held, buffer_time_ms=due_ms) == stored
    assert (held.prior, held.old, held.new) == tuple(data(entry[name]) for name in ("prior", "old", "new"))
    assert Headers.from_bytes(held.header_bytes) == Headers(
        (name, data(value)) for name, value in entry["record_headers"]
    )
    origin = [entry[name] for name in ("timestamp_ms", "topic", "partition", "offset", "time_ms")]
    assert [held.timestamp_ms, held.topic, held.partition, held.offset, due_ms] == origin


@given(record=RECORDS, due_ms=TIMES)
def test_what_is_written_is_read(record: BufferedRecord, due_ms: int) -> None:
    stored = encode_buffered_record(record, buffer_time_ms=due_ms)
    assert decode_logged_record(stored) == (record, due_ms)
    for end in range(len(stored)):
        with pytest.raises(TruncatedError):
            decode_logged_record(stored[:end])
    with pytest.raises(FormatError):
        decode_logged_record(stored + b"\0")


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Draw what was stored, with one byte changed."""
    stored = bytearray(encode_buffered_record(draw(RECORDS), buffer_time_ms=draw(TIMES)))
    stored[draw(st.integers(0, len(stored) - 1))] = draw(st.integers(0, 255))
    return bytes(stored)


@given(stored=st.binary(max_size=80) | damaged())
def test_any_bytes_are_read_or_refused(stored: bytes) -> None:
    with suppress(FormatError):
        record, due_ms = decode_logged_record(stored)
        assert decode_logged_record(encode_buffered_record(record, buffer_time_ms=due_ms)) == (record, due_ms)


def test_sizes_are_counted_as_in_kafka() -> None:
    headers = Headers([("ü", None), ("𝄞", b"ab")]).to_bytes()
    record = BufferedRecord(0, b"new", headers, "in", 0, 0, b"old", b"old")
    # 28, the key, the topic, "ü" and two halves of the clef, the header's value, new, and old once.
    assert record.counted_bytes(b"k") == 28 + 1 + 2 + 1 + 2 + 2 + 3 + 3
    assert record._replace(prior=b"xy").counted_bytes(b"k") == 28 + 1 + 2 + 1 + 2 + 2 + 3 + 3 + 2


@pytest.mark.parametrize(("place", "size"), [(16, -1), (30, -3)])
def test_lengths_that_are_none_are_refused(place: int, size: int) -> None:
    stored = bytearray(encode_buffered_record(BufferedRecord(0, b"n", b"", "in", 0, 0), buffer_time_ms=0))
    stored[place : place + 4] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(NegativeLengthError):
        decode_logged_record(bytes(stored))


def test_the_key_stands_before_its_window() -> None:
    times = (7).to_bytes(8, "big")
    assert windowed_key(b"key" + times) == session_key(b"key" + 2 * times) == b"key"
    with pytest.raises(TruncatedError):
        session_key(b"key" + times)


MANY_HEADERS = BufferedRecord(5, b"v", Headers([("h", b"%d" % number) for number in range(70)]).to_bytes())


@given(st.lists(st.tuples(RECORDS | st.just(MANY_HEADERS), TIMES, st.binary(max_size=3)), max_size=4), st.data())
def test_columns_are_written_and_read_and_counted_as_records_are(
    rows: list[tuple[BufferedRecord, int, bytes]], data: st.DataObject
) -> None:
    named = [{**record._asdict(), "due_ms": due_ms} for record, due_ms, _ in rows]
    columns = pa.RecordBatch.from_pylist(named, BUFFERED)
    encoded = [encode_buffered_record(record, buffer_time_ms=due_ms) for record, due_ms, _ in rows]
    assert encode_logged_columns(columns).to_pylist() == encoded
    assert decode_logged_columns(pa.array([b"before", *encoded], pa.binary()).slice(1)) == columns
    counted = sum(record.counted_bytes(key) for record, _, key in rows)
    assert counted_bytes_of(columns, pa.array([key for *_, key in rows], pa.binary())) == counted
    if rows:
        damaged = bytearray(encoded[-1])
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
        damaged = damaged[: data.draw(st.integers(0, len(damaged)) | st.just(len(damaged)))]
        unsure = pa.array([*encoded[:-1], bytes(damaged)], pa.binary())
        assert outcome(lambda: decode_logged_columns(unsure)[-1:].to_pylist()) == outcome(
            lambda: [
                {**record._asdict(), "due_ms": due_ms} for record, due_ms in [decode_logged_record(bytes(damaged))]
            ]
        )


def outcome(decode: Callable[[], object]) -> object:
    try:
        return decode()
    except FormatError as refused:
        return str(refused)
