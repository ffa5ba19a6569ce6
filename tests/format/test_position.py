"""Positions are those of Kafka Streams byte for byte, and bytes that are not one are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statestore.errors import FormatError
from statestore.errors.data import TruncatedError
from statestore.format import position as codec
from tests.support.golden.kafka_streams import FIXTURES, load_fixture

GOLDEN = Path(__file__).parents[1] / "golden"
VECTORS = [
    (
        {topic: {int(partition): offset for partition, offset in offsets.items()} for topic, offsets in told.items()},
        bytes.fromhex(vector["arrayHex"]),
        vector["usedBytes"],
    )
    for name in ("codec.json", "codec-b.json")
    for vector in json.loads((GOLDEN / name).read_text(encoding="utf-8"))["position"]
    for told in [vector["position"]]
]
POSITIONS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=4),
    st.dictionaries(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1), max_size=3),
    max_size=3,
)


def test_there_are_vectors() -> None:
    assert len(VECTORS) == 6


@pytest.mark.parametrize(("position", "stored", "used"), VECTORS)
def test_it_is_written_and_read_as_by_kafka_streams(position: codec.Position, stored: bytes, used: int) -> None:
    assert codec.encode_position(position) == stored
    assert codec.decode_position(stored) == position
    assert codec.decode_position(stored[:used]) == position
    with pytest.raises(FormatError):
        codec.decode_position(stored[: used - 1])


def test_every_position_in_the_golden_directories_is_written_back_as_it_was() -> None:
    stored = [
        bytes.fromhex(value)
        for name in FIXTURES
        for database in load_fixture(name).raw
        for family in database["columnFamilies"]
        if family["name"] == "offsets"
        for key, value in family["entries"]
        if bytes.fromhex(key) == b"position"
    ]
    assert len(stored) == 43
    assert [codec.encode_position(codec.decode_position(position)) for position in stored] == stored


@given(POSITIONS)
@example({"topic": {}})
def test_round_trip(position: codec.Position) -> None:
    assert codec.decode_position(codec.encode_position(position)) == position


@given(st.binary(max_size=80) | POSITIONS.map(lambda position: codec.encode_position(position)[:-1]))
@example(bytes.fromhex("00 7fffffff"))
@example(bytes.fromhex("00 00000001 7fffffff"))
@example(bytes.fromhex("00 00000001 00000000 7fffffff"))
def test_any_bytes_are_a_position_or_a_format_error(data: bytes) -> None:
    try:
        position = codec.decode_position(data)
    except FormatError:
        return
    # Read again, what was read is the same: nothing was made up.
    assert codec.decode_position(codec.encode_position(position)) == position


@pytest.mark.parametrize("offsets", [{2**31: 0}, {0: 2**63}, {0: None}, {"0": 0}])
def test_what_is_no_position_is_not_written(offsets: dict[int, int]) -> None:
    with pytest.raises(ValueError, match="'in'"):
        codec.encode_position({"in": offsets})


def test_merging_takes_the_greater_offset_and_changes_neither() -> None:
    one, other = {"a": {0: 5, 1: 1}, "b": {0: 1}}, {"a": {0: 3, 1: 2, 2: -7}, "c": {}}
    assert codec.merge_positions(one, other) == {"a": {0: 5, 1: 2, 2: -7}, "b": {0: 1}, "c": {}}
    assert codec.merge_positions(other, one) == codec.merge_positions(one, other)
    assert (one["a"], other["a"]) == ({0: 5, 1: 1}, {0: 3, 1: 2, 2: -7})


def test_numbers_have_eight_bytes() -> None:
    assert codec.encode_long(codec.OFFSET_UNKNOWN).hex() == "fffffffffffffffc"
    assert codec.decode_long("offset", codec.encode_long(12)) == 12
    with pytest.raises(TruncatedError, match="offset: needs 8 bytes, only 7"):
        codec.decode_long("offset", bytes(7))
    with pytest.raises(FormatError, match="offset: has 9 bytes"):
        codec.decode_long("offset", bytes(9))
