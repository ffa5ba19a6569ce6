"""Which Spark is refused, what stands in for what Spark 4.0 lacks, and what is refused there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from statestore.errors.run import SparkVersionError
from statestore.spark import from_records, read_pointers, spark_versions
from statestore.spark.datasource.source import HeaderStateDataSource
from statestore.spark.header_functions import typed_headers
from statestore.spark.shards.schema import OUTPUT_SCHEMA
from tests.support.spark.queries import SECOND_CHECKPOINT_FORMAT, spark_settings
from tests.support.spark.versions import only_in_spark_4_0


@pytest.mark.parametrize("version", ["3.5.9", "3.5.2+amzn-1", "4.0.0"])
def test_a_spark_before_4_0_is_refused_in_a_sentence(version: str) -> None:
    program = f"import pyspark; pyspark.__version__ = {version!r}; import statestore.spark"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = done.stderr.splitlines()[-1] if done.stderr else ""
    expected = f"statestore.spark needs Spark 4.0 or newer, and pyspark {version} is installed: install a newer one"
    assert said.removeprefix("statestore.errors.run.SparkVersionError: ") == ("" if version[0] == "4" else expected)


@pytest.mark.parametrize(
    ("text", "version"),
    [("4.0.0", (4, 0)), ("4.3.0.dev1", (4, 3)), ("3.5.6-amzn-2", (3, 5)), ("4.10", (4, 10)), ("5.0-preview", (5, 0))],
)
def test_a_version_is_its_first_two_numbers(text: str, version: tuple[int, int]) -> None:
    assert spark_versions.version_of(text) == version


def test_a_partition_is_what_a_column_says(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = spark.range(40).select((f.col("id") % 5).cast("int").alias("shard"))
    for lacks_some in {True, spark_versions.LACKS_SOME}:
        monkeypatch.setattr(spark_versions, "LACKS_SOME", lacks_some)
        placed = spark_versions.repartition_by_shard(rows, 5)
        assert placed.rdd.getNumPartitions() == 5
        found = placed.withColumn("partition", f.spark_partition_id()).distinct().collect()
        assert sorted((row.shard, row.partition) for row in found) == [(shard, shard) for shard in range(5)]


@only_in_spark_4_0
def test_what_spark_4_0_lacks_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with (
        spark_settings(spark, SECOND_CHECKPOINT_FORMAT),
        pytest.raises(SparkVersionError, match=r"checkpoint format 2 needs Spark 4\.1 or newer, and pyspark 4\.0"),
    ):
        read_pointers(spark, tmp_path)
    with pytest.raises(SparkVersionError, match=r"typed_headers\(\), needs Spark 4\.1"):
        typed_headers("headers")
    with pytest.raises(SparkVersionError, match=r"reads headers in Python.* needs Spark 4\.1"):
        from_records(spark.createDataFrame([], OUTPUT_SCHEMA), "json", headers={"price": "decimal(10,2)"})
    asked = HeaderStateDataSource({"path": str(tmp_path), "store": "totals", "pushFilters": "true"})
    with pytest.raises(SparkVersionError, match="the option pushFilters"):
        asked.schema()
