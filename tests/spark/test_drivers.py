"""What the drivers hand to Spark, as Spark's own worker takes it."""

from collections.abc import Generator, Iterator
from typing import Any

import pandas as pd
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from statestore.spark import drivers
from statestore.spark.blobs import BLOB
from statestore.spark.drivers import CollectedOutput
from statestore.spark.figures import FIGURES
from tests.support.spark.arrow_output import batches_of_output

MAX_ROWS = 50
OUTPUT = StructType([StructField(BLOB, BinaryType()), StructField(FIGURES, StringType())])


def frames_of(blobs: list[bytes]) -> Generator[pd.DataFrame, None, Any]:
    for blob in blobs:
        yield pd.DataFrame({BLOB: [blob], FIGURES: [None]})
    return "result"


def test_spark_collects_no_more_output_than_some_megabytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drivers, "_COLLECTED_BYTES", 1_000)
    collected, results = CollectedOutput(MAX_ROWS), []

    def run(blobs: list[bytes]) -> Iterator[pd.DataFrame]:
        results.append((yield from collected.bound(frames_of(blobs))))

    shards = [[bytes([shard, number]) * 150 for number in range(8)] for shard in range(3)]
    batches = batches_of_output((run(blobs) for blobs in shards), OUTPUT, MAX_ROWS)
    sent = [[row[BLOB] for row in batch.to_pylist() if row[BLOB] is not None] for batch in batches]
    assert [blob for blobs in sent for blob in blobs] == [blob for blobs in shards for blob in blobs]
    assert all(sum(map(len, blobs)) < 1_000 + 300 for blobs in sent)
    assert results == ["result"] * 3
