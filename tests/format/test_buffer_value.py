"""Suppressed changes have the bytes of Kafka Streams' changelogs, and other bytes are refused."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError, NegativeLengthError, TruncatedError
from statestore.format.buffer_value import BufferedChange
from statestore.format.entry_key import session_key, windowed_key

GOLDEN: list[dict[str, Any]] = json.loads(
    (Path(__file__).parents[1] / "golden" / "buffered-changes.json").read_text(encoding="utf-8")
)
VALUES = st.none() | st.binary(max_size=4)
TIMES = st.integers(-(2**63), 2**63 - 1)
CHANGES = st.builds(
    BufferedChange,
    VALUES,
    VALUES,
    VALUES,
    TIMES,
    TIMES,
    st.lists(st.tuples(st.text(max_size=3), VALUES), max_size=3),
    st.text(max_size=3),
    st.integers(-1, 2**31 - 1),
    TIMES,
)


def data(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["value"][-40:])
def test_what_kafka_streams_logged_is_read_and_written(entry: dict[str, Any]) -> None:
    stored = bytes.fromhex(entry["value"])
    held = BufferedChange.from_bytes(stored)
    assert held.to_bytes() == stored
    assert (held.prior, held.old, held.new) == tuple(data(entry[name]) for name in ("prior", "old", "new"))
    assert held.headers == [(name, data(value)) for name, value in entry["record_headers"]]
    origin = [entry[name] for name in ("time_ms", "timestamp_ms", "topic", "partition", "offset")]
    assert [held.time_ms, held.timestamp_ms, held.topic, held.partition, held.offset] == origin


@given(change=CHANGES)
def test_what_is_written_is_read(change: BufferedChange) -> None:
    stored = change.to_bytes()
    assert BufferedChange.from_bytes(stored) == change
    for end in range(len(stored)):
        with pytest.raises(TruncatedError):
            BufferedChange.from_bytes(stored[:end])
    with pytest.raises(FormatError):
        BufferedChange.from_bytes(stored + b"\0")


@given(stored=st.binary(max_size=80))
def test_any_bytes_are_read_or_refused(stored: bytes) -> None:
    with suppress(FormatError):
        BufferedChange.from_bytes(stored)


def test_sizes_are_counted_as_in_kafka() -> None:
    change = BufferedChange(b"new", b"old", b"old", 0, 0, [("ü", None), ("𝄞", b"ab")], "in", 0, 0)
    # 28, the key, the topic, "ü" and two halves of the clef, the header's value, new, and old once.
    assert change.size_bytes(b"k") == 28 + 1 + 2 + 1 + 2 + 2 + 3 + 3
    assert change._replace(prior=b"xy").size_bytes(b"k") == 28 + 1 + 2 + 1 + 2 + 2 + 3 + 3 + 2


@pytest.mark.parametrize(("place", "size"), [(16, -1), (26, -2), (30, -3)])
def test_lengths_that_are_none_are_refused(place: int, size: int) -> None:
    stored = bytearray(BufferedChange(b"n", None, None, 0, 0, [], "in", 0, 0).to_bytes())
    stored[place : place + 4] = size.to_bytes(4, "big", signed=True)
    if place == 26:  # fewer headers than none are none, as in Kafka
        assert BufferedChange.from_bytes(bytes(stored)).headers == []
    else:
        with pytest.raises(NegativeLengthError):
            BufferedChange.from_bytes(bytes(stored))


def test_the_key_stands_before_its_window() -> None:
    times = (7).to_bytes(8, "big")
    assert windowed_key(b"key" + times) == session_key(b"key" + 2 * times) == b"key"
    with pytest.raises(TruncatedError):
        session_key(b"key" + times)
