"""Where entries go when a state gets another number of shards, and what proves it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.errors import NewStateError
from statestore.errors.new_state import KeyPlacementError, UnknownRecordKeyError
from statestore.format.keys.partitioner import partition_column
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.making.logical_writes import LogicalWrite
from statestore.recovery.making.placement import Placement
from statestore.recovery.metadata.state_metadata import StateMetadata

SPEC = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.PLAIN)
OLD = StateMetadata("s", 4, "key", (0, 1, 2, 3), (SPEC,), ())
KEYS = [b"key-%d" % number for number in range(60)]


def shards_of(keys: list[bytes], shards: int) -> list[int]:
    return [int(shard) for shard in partition_column(pa.array(keys, pa.binary()), shards)]


def keys_of(shard: int, shards: int = 4) -> list[bytes]:
    return [key for key, place in zip(KEYS, shards_of(KEYS, shards), strict=True) if place == shard]


def writes(keys: list[bytes]) -> list[LogicalWrite]:
    return [LogicalWrite(key, b"v", None) for key in keys]


@pytest.mark.parametrize("shards", [1, 2, 3, 7])
def test_entries_go_where_records_with_their_keys_go(shards: int) -> None:
    placement = Placement(OLD, shards, {})
    for shard in range(4):
        keys = keys_of(shard)
        assert keys
        assert placement.new_shards(SPEC, shard, writes(keys)) == shards_of(keys, shards)


def test_a_key_that_is_not_in_its_shard_is_no_records_key() -> None:
    stranger = keys_of(2)[0]
    with pytest.raises(KeyPlacementError) as raised:
        Placement(OLD, 3, {}).new_shards(SPEC, 1, writes([*keys_of(1), stranger]))
    assert (raised.value.key, raised.value.shard, raised.value.expected_shard) == (stranger.hex(), 1, 2)


def test_the_records_key_may_be_found_in_the_stores_key() -> None:
    placement = Placement(OLD, 3, {"totals": lambda key: key.removeprefix(b"by/")})
    keys = keys_of(1)
    assert placement.new_shards(SPEC, 1, writes([b"by/" + key for key in keys])) == shards_of(keys, 3)


@pytest.mark.parametrize("key_of", [lambda key: key.decode("ascii"), lambda key: key.index(b"/"), lambda key: None])
def test_a_key_without_a_records_key_in_it_is_named(key_of) -> None:
    with pytest.raises((UnknownRecordKeyError, KeyPlacementError)) as raised:
        Placement(OLD, 3, {"totals": key_of}).new_shards(SPEC, 1, writes([b"\xff\xff"]))
    assert "totals" in str(raised.value)


def test_one_shard_proves_nothing() -> None:
    one = replace(OLD, shards=1, routing=(0,))
    with pytest.raises(UnknownRecordKeyError, match="trust_keys"):
        Placement(one, 2, {}).new_shards(SPEC, 0, writes(KEYS))
    for placement in (Placement(one, 2, {}, trust_keys=True), Placement(one, 2, {"totals": bytes})):
        assert placement.new_shards(SPEC, 0, writes(KEYS)) == shards_of(KEYS, 2)
    assert Placement(one, 1, {}).new_shards(SPEC, 0, writes(KEYS)) == [0] * len(KEYS)


def test_who_keeps_its_shards_has_nothing_to_prove() -> None:
    placement = Placement(OLD, 4, {}, keeps_shards=True)
    assert placement.new_shards(SPEC, 1, writes(KEYS)) == [1] * len(KEYS)
    placement.check_new(SPEC, 1, writes(KEYS))


@pytest.mark.parametrize(("shards", "is_possible"), [(1, True), (2, True), (4, True), (3, False), (8, False)])
def test_shards_of_partitions_can_only_be_joined(shards: int, is_possible: bool) -> None:
    placement = Placement(replace(OLD, shard_by="partition"), shards, {})
    if is_possible:
        placement.check()
        assert placement.new_shards(SPEC, 3, writes(KEYS)) == [3 % shards] * len(KEYS)
        placement.check_new(SPEC, 0, writes(KEYS))
    else:
        with pytest.raises(NewStateError, match=f"4 shards can be joined .* not turned into {shards}"):
            placement.check()
    Placement(OLD, shards, {}).check()


def test_what_was_made_is_held_to_its_shard() -> None:
    placement = Placement(OLD, 4, {})
    placement.check_new(SPEC, 1, writes(keys_of(1)))
    with pytest.raises(KeyPlacementError):
        placement.check_new(SPEC, 1, writes(keys_of(3)))
