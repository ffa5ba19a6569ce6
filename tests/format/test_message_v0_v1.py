"""Messages v0 and v1: bytes that Kafka 4.3.1 wrote, and round trips. Malformed bytes: test_malformed_bytes."""

from __future__ import annotations

import json
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.records.message_v0_v1 import (
    NO_TIMESTAMP,
    OVERHEAD_BYTES,
    MessageV0V1,
    decode_message,
    encode_message,
)
from statestore.testing.jars import java_command, kafka_streams_jars
from tests.support.cuts import check_cut_is_noticed
from tests.support.record_bytes import message_bytes

PROGRAM = Path(__file__).parents[1] / "java" / "WriteMessages.java"
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "messages-v0-v1.json").read_text())
BYTES = st.none() | st.binary(max_size=300)
OFFSETS = st.integers(0, 2**63 - 1)
MESSAGES = st.builds(MessageV0V1, st.just(0), OFFSETS, BYTES, BYTES, st.just(NO_TIMESTAMP), st.just(False)) | st.builds(
    MessageV0V1, st.just(1), OFFSETS, BYTES, BYTES, st.integers(NO_TIMESTAMP, 2**63 - 1), st.booleans()
)
V0 = MessageV0V1(0, 3, b"key", b"value")
V1 = MessageV0V1(1, 3, b"key", None, timestamp_ms=1700000000000)


def content(value: str | None) -> bytes | None:
    return None if value is None else bytes.fromhex(value)


def test_the_vectors_are_all_there() -> None:
    assert GOLDEN["kafka"] == "4.3.1"
    assert [len(GOLDEN[section]) for section in ("messages", "varlongs", "uvarints")] == [49, 256, 64]


@pytest.mark.usefixtures("java")
def test_kafka_writes_the_golden_bytes() -> None:
    class_path = f"{kafka_streams_jars()}/*"
    command = [java_command(), "-Xmx128m", "-cp", class_path, str(PROGRAM)]
    told = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    assert json.loads(told.stdout) == GOLDEN


@pytest.mark.parametrize("vector", GOLDEN["messages"], ids=lambda vector: vector["message"][:8])
def test_bytes_are_those_of_kafka(vector: dict[str, Any]) -> None:
    message = MessageV0V1(
        magic=vector["magic"],
        offset=7,
        key=content(vector["key"]),
        value=content(vector["value"]),
        timestamp_ms=vector["timestamp"],
        is_log_append_time=vector["logAppendTime"],
    )
    written = bytes.fromhex(vector["message"])
    entry = struct.pack(">qi", 7, len(written)) + written
    assert encode_message(message) == entry
    assert decode_message(entry) == (message, len(entry))


@given(MESSAGES, st.binary(max_size=3), st.binary(max_size=3))
def test_round_trip_inside_other_bytes(message: MessageV0V1, before: bytes, after: bytes) -> None:
    encoded = encode_message(message)
    assert len(encoded) == OVERHEAD_BYTES[message.magic] + len(message.key or b"") + len(message.value or b"")
    assert decode_message(before + encoded + after, len(before)) == (message, len(before) + len(encoded))


@given(MESSAGES, st.data())
def test_cut_anywhere_it_is_truncated(message: MessageV0V1, data: st.DataObject) -> None:
    check_cut_is_noticed(decode_message, encode_message(message), data)


@pytest.mark.parametrize("message", [V0, V1])
def test_every_flipped_bit_of_a_message_is_noticed(message: MessageV0V1) -> None:
    encoded = encode_message(message)
    for bit in range(12 * 8, len(encoded) * 8):
        changed = bytearray(encoded)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FormatError, match="holds the checksum"):
            decode_message(bytes(changed))


def test_v0_has_no_timestamp_whose_type_could_be_told() -> None:
    assert decode_message(message_bytes("0008ffffffffffffffff"))[0] == MessageV0V1(0, 0, None, None)


def test_any_negative_size_is_a_null_as_in_kafka() -> None:
    assert decode_message(message_bytes("0000fffffffe80000000"))[0] == MessageV0V1(0, 0, None, None)


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        (V0._replace(magic=2), "0 or 1"),
        (V0._replace(timestamp_ms=5), "v0 has no timestamp"),
        (V0._replace(is_log_append_time=True), "v0 has no timestamp"),
        (V1._replace(timestamp_ms=-2), "negative"),
        (V1._replace(timestamp_ms=2**63), "can't hold"),
        (V0._replace(offset=2**63), "can't hold"),
    ],
)
def test_what_no_message_can_hold(message: MessageV0V1, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        encode_message(message)


@pytest.mark.parametrize("part", ["key", "value"])
def test_key_and_value_are_bytes(part: str) -> None:
    with pytest.raises(TypeError, match="must be bytes or None"):
        encode_message(V0._replace(**{part: "text"}))
