"""Routing numbers spread shards evenly over Spark's state partitions."""

import pytest
from pyspark.sql import SparkSession

from statestore.recovery.metadata.routing import routing_numbers, spark_hash


def test_the_hash_is_sparks(spark: SparkSession) -> None:
    rows = spark.range(-50, 500).selectExpr("cast(id as int) n", "hash(cast(id as int)) h").collect()
    assert [spark_hash(row.n) for row in rows] == [row.h for row in rows]


@pytest.mark.parametrize(("shards", "partitions"), [(1, 1), (1, 200), (8, 8), (8, 3), (3, 8), (100, 7)])
def test_each_shard_has_a_number_of_its_own_in_its_partition(shards: int, partitions: int) -> None:
    numbers = routing_numbers(shards, partitions)
    assert len(set(numbers)) == shards
    assert [spark_hash(number) % partitions for number in numbers] == [shard % partitions for shard in range(shards)]


def test_no_shards_or_partitions_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        routing_numbers(0, 4)
