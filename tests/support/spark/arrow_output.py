"""What Spark's Python worker makes of the output of applyInPandasWithState, by what each Spark has for that."""

from __future__ import annotations

import inspect
import io
import json
from collections.abc import Iterable, Iterator
from types import SimpleNamespace

import pandas as pd
import pyarrow as pa
from pyspark.sql.pandas import serializers
from pyspark.sql.streaming.state import GroupState
from pyspark.sql.types import StringType, StructField, StructType

from statestore.spark.spark_versions import arrow_type_of

_POINTER = StructType([StructField("pointer", StringType())])
_MAX_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_STATE = {
    "batchProcessingTimeMs": 0,
    "eventTimeWatermarkMs": 0,
    "timeoutConf": "NoTimeout",
    "hasTimedOut": False,
    "watermarkPresent": False,
    "defined": False,
    "updated": False,
    "removed": False,
    "timeoutTimestamp": -1,
}


def batches_of_output(shards: Iterable[Iterator[pd.DataFrame]], output: StructType, max_rows: int) -> list[pa.Array]:
    """Return the rows in each Arrow batch that the worker makes of the frames of some shards, as structs."""
    serializer = getattr(serializers, "ApplyInPandasWithStateSerializer", None)
    worker = _by_worker if serializer is None else _by_serializer
    batches = worker(shards, output, max_rows)
    return [batch.column(1).slice(0, batch.column(0)[0]["dataCount"].as_py()) for batch in batches]


def _by_serializer(
    shards: Iterable[Iterator[pd.DataFrame]], output: StructType, max_rows: int
) -> Iterator[pa.RecordBatch]:
    """Up to Spark 4.2, the serializer collects rows."""
    arguments = {
        "timezone": "UTC",
        "safecheck": True,
        "assign_cols_by_name": True,
        "prefer_int_ext_dtype": False,
        "state_object_schema": _POINTER,
        "arrow_max_records_per_batch": max_rows,
        "prefers_large_var_types": False,
        "int_to_decimal_coercion_enabled": False,
    }
    of_spark = serializers.ApplyInPandasWithStateSerializer
    known = inspect.signature(of_spark).parameters
    serializer = of_spark(**{name: value for name, value in arguments.items() if name in known})
    # Before Spark 4.2, the worker hands on Arrow's type of the output.
    output_type = output if "prefer_int_ext_dtype" in known else arrow_type_of(output)
    state = GroupState(optionalValue=None, keyAsUnsafe=b"key", valueSchema=_POINTER, **_STATE)
    stream = io.BytesIO()
    serializer.dump_stream(([((frames, state), output_type)] for frames in shards), stream)
    stream.seek(4)  # Spark's sign that a stream of Arrow follows
    yield from pa.ipc.open_stream(stream)


def _by_worker(shards: Iterable[Iterator[pd.DataFrame]], output: StructType, max_rows: int) -> Iterator[pa.RecordBatch]:
    """From Spark 4.3 on, the function collects them that the worker makes of the user's."""
    from pyspark import worker
    from pyspark.util import PythonEvalType

    waiting = list(shards)
    keys = pa.array(range(len(waiting)), pa.int32())
    states = [
        {
            "properties": json.dumps(_STATE),
            "keyRowAsUnsafe": b"key",
            "object": None,
            "startOffset": number,
            "numRows": 1,
            "isLastChunk": True,
        }
        for number in range(len(waiting))
    ]
    of_user = (lambda key, values, state: waiting[key[0]], output)
    function, *_ = worker.read_udfs(
        SimpleNamespace(loads=lambda _: of_user),
        [SimpleNamespace(udfs=[b""], args=[3, 1, 0, 0], kwargs={}, result_id=0)],  # of 3 numbers: 1 key, in column 0
        PythonEvalType.SQL_GROUPED_MAP_PANDAS_UDF_WITH_STATE,
        worker.RunnerConf({_MAX_ROWS: str(max_rows), "spark.sql.session.timeZone": "UTC"}),
        worker.EvalConf({"state_value_schema": _POINTER.json()}),
    )
    yield from function(0, iter([pa.record_batch({"route": keys, "state": states})]))
