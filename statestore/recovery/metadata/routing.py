"""The group key under which Spark holds each shard.

Spark places a group by Murmur3 of its key, modulo the number of state partitions. Small consecutive numbers collide
there and leave partitions idle, so each shard gets a routing number that Spark's hash sends to partition
`shard % partitions`. The numbers are found once and recorded: later starts must look under the same keys.
"""

from __future__ import annotations

from itertools import count
from typing import Final

from statestore.errors.new_state import TooManyShardsError

MAX_SHARDS: Final = 100_000
"""How many shards a state may have: each has a number of its own in the metadata, which is found by trying."""
_SPARK_SEED = 42
_MASK = 0xFFFFFFFF


def routing_numbers(shards: int, partitions: int) -> tuple[int, ...]:
    """Return one distinct routing number for each shard, such that shard s goes to partition `s % partitions`."""
    if shards < 1 or partitions < 1:
        raise ValueError(f"shards and partitions must be at least 1, not {shards} and {partitions}")
    waiting: dict[int, list[int]] = {}
    for shard in reversed(range(shards)):
        waiting.setdefault(shard % partitions, []).append(shard)
    numbers = [0] * shards
    for number in count():
        shards_of_partition = waiting.get(spark_hash(number) % partitions)
        if shards_of_partition:
            numbers[shards_of_partition.pop()] = number
            if not any(waiting.values()):
                return tuple(numbers)
    raise AssertionError("unreachable")


def refuse_too_many_shards(shards: int) -> None:
    """Raise TooManyShardsError for more than MAX_SHARDS, whose numbers nobody would wait for."""
    if shards > MAX_SHARDS:
        raise TooManyShardsError(shards=shards, limit=MAX_SHARDS)


def spark_hash(number: int) -> int:
    """Return Spark SQL's `hash(cast(number as int))`, signed. Source: Murmur3_x86_32.hashInt."""
    k1 = (_rotate_left((number & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593) & _MASK
    h1 = (_rotate_left(_SPARK_SEED ^ k1, 13) * 5 + 0xE6546B64) & _MASK
    h1 ^= 4  # the length of an int
    h1 = ((h1 ^ (h1 >> 16)) * 0x85EBCA6B) & _MASK
    h1 = ((h1 ^ (h1 >> 13)) * 0xC2B2AE35) & _MASK
    h1 ^= h1 >> 16
    return h1 - (1 << 32) if h1 >> 31 else h1


def _rotate_left(word: int, bits: int) -> int:
    return ((word << bits) | (word >> (32 - bits))) & _MASK
