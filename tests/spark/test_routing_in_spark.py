"""The hash that routing numbers are found by is Spark's."""

from pyspark.sql import SparkSession

from statestore.recovery.metadata.state_metadata import spark_hash


def test_the_hash_is_sparks(spark: SparkSession) -> None:
    rows = spark.range(-50, 500).selectExpr("cast(id as int) n", "hash(cast(id as int)) h").collect()
    assert [spark_hash(row.n) for row in rows] == [row.h for row in rows]
