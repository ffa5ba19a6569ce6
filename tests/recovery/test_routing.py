"""Routing numbers spread shards evenly over Spark's state partitions."""

import pytest

from statestore.errors.new_state import TooManyShardsError
from statestore.recovery.metadata.state_metadata import MAX_SHARDS, refuse_too_many_shards, routing_numbers, spark_hash


@pytest.mark.parametrize(
    ("number", "hashed"), [(0, 933211791), (1, -559580957), (2, 1765031574), (-1, -1604776387), (42, 29417773)]
)
def test_the_hash_is_the_one_that_spark_was_seen_to_give(number: int, hashed: int) -> None:
    """All others: tests/spark/test_routing_in_spark.py."""
    assert spark_hash(number) == hashed


@pytest.mark.parametrize(("shards", "partitions"), [(1, 1), (1, 200), (8, 8), (8, 3), (3, 8), (100, 7)])
def test_each_shard_has_a_number_of_its_own_in_its_partition(shards: int, partitions: int) -> None:
    numbers = routing_numbers(shards, partitions)
    assert len(set(numbers)) == shards
    assert [spark_hash(number) % partitions for number in numbers] == [shard % partitions for shard in range(shards)]


def test_the_same_numbers_are_found_each_time() -> None:
    assert routing_numbers(5, 5) == routing_numbers(5, 5)
    assert routing_numbers(7, 5)[:5] == routing_numbers(5, 5), "the smallest that there are"


@pytest.mark.parametrize(("shards", "partitions"), [(0, 4), (4, 0), (-1, 4)])
def test_no_shards_or_partitions_are_refused(shards: int, partitions: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        routing_numbers(shards, partitions)


def test_more_shards_than_anybody_would_wait_for_are_refused() -> None:
    refuse_too_many_shards(MAX_SHARDS)
    with pytest.raises(TooManyShardsError) as raised:
        refuse_too_many_shards(MAX_SHARDS + 1)
    assert raised.value.limit == MAX_SHARDS
