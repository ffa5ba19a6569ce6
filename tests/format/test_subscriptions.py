"""What tables say to each other in a foreign-key join: Kafka's bytes, and none that break anything."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.format.keys.entry_key import key_at_front, sized
from statestore.format.values.subscriptions import (
    Instruction,
    Response,
    Subscription,
    decode_response,
    decode_subscription,
    encode_response,
    encode_subscription,
    hash128,
)

GOLDEN = json.loads(Path(__file__).parents[1].joinpath("golden", "subscriptions.json").read_text(encoding="utf-8"))


def data(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


@pytest.mark.parametrize("golden", GOLDEN["subscriptions"])
def test_subscriptions_are_written_as_kafka_does_while_it_is_upgraded(golden: dict[str, Any]) -> None:
    subscription = Subscription(Instruction(golden["instruction"]), bytes.fromhex(golden["key"]), data(golden["hash"]))
    assert encode_subscription(subscription).hex() == golden["version_0"]
    for version in ("version_0", "version_1"):
        assert decode_subscription(bytes.fromhex(golden[version])) == subscription


@pytest.mark.parametrize("golden", GOLDEN["responses"])
def test_responses_are_kafkas(golden: dict[str, Any]) -> None:
    response = Response(data(golden["hash"]), data(golden["value"]))
    assert encode_response(response).hex() == golden["bytes"]
    assert decode_response(bytes.fromhex(golden["bytes"])) == response


@pytest.mark.parametrize("golden", GOLDEN["places"])
def test_places_are_kafkas(golden: dict[str, Any]) -> None:
    place = bytes.fromhex(golden["bytes"])
    assert place == sized(bytes.fromhex(golden["foreign_key"])) + bytes.fromhex(golden["key"])
    assert key_at_front(place).hex() == golden["foreign_key"]


@pytest.mark.parametrize(("hashed", "found"), GOLDEN["hashes"])
def test_hashes_are_kafkas(hashed: str, found: str) -> None:
    assert hash128(bytes.fromhex(hashed)).hex() == found


hashes = st.none() | st.binary(min_size=16, max_size=16)


@given(st.sampled_from(Instruction), st.binary(), hashes, st.binary(min_size=1))
def test_what_is_written_is_read(instruction: Instruction, key: bytes, value_hash: bytes | None, value: bytes) -> None:
    subscription = Subscription(instruction, key, value_hash)
    assert decode_subscription(encode_subscription(subscription)) == subscription
    response = Response(value_hash, value)
    assert decode_response(encode_response(response)) == response


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(found: bytes) -> None:
    with contextlib.suppress(FormatError):
        subscription = decode_subscription(found)
        assert decode_subscription(encode_subscription(subscription)) == subscription
        assert found[0] & 1 or encode_subscription(subscription) == found
    with contextlib.suppress(FormatError):
        assert encode_response(decode_response(found)) == found


@pytest.mark.parametrize(
    ("decode", "wrong", "said"),
    [
        (decode_subscription, "", "subscription"),
        (decode_subscription, "00" * 17, "subscription"),
        (decode_subscription, "8104", "partition"),
        (decode_subscription, "8004", "it has the instruction 4, not 0 to 3"),
        (decode_subscription, "8200", "it has version 2, not 0 or 1"),
        (decode_response, "81", "it has version 1, not 0"),
        (decode_response, "00", "response"),
    ],
)
def test_what_is_wrong_is_said(decode: Any, wrong: str, said: str) -> None:
    with pytest.raises(FormatError, match=said):
        decode(bytes.fromhex(wrong))
