"""What the drivers hand to Spark, as Spark's own serializer takes it."""

import io
from collections.abc import Generator, Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql.pandas.serializers import ApplyInPandasWithStateSerializer
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from statestore.spark import drivers
from statestore.spark.blobs import BLOB
from statestore.spark.drivers import CollectedOutput
from statestore.spark.figures import FIGURES

MAX_ROWS = 50
OUTPUT = StructType([StructField(BLOB, BinaryType()), StructField(FIGURES, StringType())])
POINTER = StructType([StructField("pointer", StringType())])


def arrow_batches(shards: Iterator[Iterator[pd.DataFrame]]) -> list[list[bytes | None]]:
    """Return the blobs in each Arrow batch that Spark's worker makes of the frames of some shards."""
    serializer = ApplyInPandasWithStateSerializer(
        timezone="UTC",
        safecheck=True,
        assign_cols_by_name=True,
        prefer_int_ext_dtype=False,
        state_object_schema=POINTER,
        arrow_max_records_per_batch=MAX_ROWS,
        prefers_large_var_types=False,
        int_to_decimal_coercion_enabled=False,
    )
    state = GroupState(None, 0, 0, "NoTimeout", False, False, False, False, False, -1, b"key", POINTER)
    stream = io.BytesIO()
    serializer.dump_stream(([((frames, state), OUTPUT)] for frames in shards), stream)
    stream.seek(4)  # Spark's sign that a stream of Arrow follows
    found = []
    for batch in pa.ipc.open_stream(stream):
        counts, output = batch.column(0), batch.column(1)
        rows = counts[0]["dataCount"].as_py()
        found.append([row[BLOB].as_py() for row in output.slice(0, rows)])
    return found


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
    batches = arrow_batches(run(blobs) for blobs in shards)
    sent = [[blob for blob in batch if blob is not None] for batch in batches]
    assert [blob for blobs in sent for blob in blobs] == [blob for blobs in shards for blob in blobs]
    assert all(sum(map(len, blobs)) < 1_000 + 300 for blobs in sent)
    assert results == ["result"] * 3
