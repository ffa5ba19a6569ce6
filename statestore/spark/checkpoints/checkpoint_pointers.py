"""Reads commit pointers out of a checkpoint, with Spark's own state reader. The running query is not disturbed."""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from statestore.errors import RecoveryError
from statestore.recovery.location.schemes import problem_of_checkpoint
from statestore.spark.checkpoints.source_offsets import read_source_offsets
from statestore.spark.drivers import POINTER_VARIABLE
from statestore.spark.sessions import is_connect
from statestore.spark.spark_versions import SPARK_FAILURES, refuse_checkpoint_format

_DEFAULT_FILESYSTEM: Final = "spark.hadoop.fs.defaultFS"


def read_pointers(spark: SparkSession, checkpoint_location: str | Path, *, batch_id: int | None = None) -> DataFrame:
    """Return the commit pointers after a batch, one row a shard, as one string column `pointer`.

    `batch_id` is any batch that Spark retains; None is the last committed one. A query with several stateful()
    operators has those of all; each pointer says which state it belongs to. Raises RecoveryError if the checkpoint has
    none, and SparkVersionError for checkpoint format 2 with Spark 4.0.
    """
    refuse_checkpoint_format(spark)
    checkpoint = str(checkpoint_location)
    if not is_connect(spark):  # a path of the server's machine is none of this one's
        problem = problem_of_checkpoint(checkpoint, default_filesystem=spark.conf.get(_DEFAULT_FILESYSTEM, None))
        if problem is not None:
            raise RecoveryError(checkpoint, problem)
    # Spark's reader of RocksDB state asks the coordinator of state stores, which a session only has once it was asked
    # for its streaming queries.
    _ = spark.streams.active
    found = [
        pointers
        for operator in spark.read.format("state-metadata").load(checkpoint).collect()
        if (pointers := _operator_pointers(spark, checkpoint, operator, batch_id)) is not None
    ]
    if not found:
        raise RecoveryError(
            checkpoint, "has no stateful() operator that has committed a batch: name the checkpointLocation of one"
        )
    return reduce(DataFrame.unionAll, found)


def recorded_pointers(spark: SparkSession, checkpoint_location: str | Path, batch_id: int | None = None) -> list[str]:
    """Return the commit pointers after a batch as JSON. Raises RecoveryError if there are none to be read."""
    try:
        rows = read_pointers(spark, checkpoint_location, batch_id=batch_id).collect()
    except SPARK_FAILURES as cause:
        which = "the last committed batch" if batch_id is None else f"batch {batch_id}"
        raise RecoveryError(
            str(checkpoint_location),
            f"{which} can't be read ({_condition(cause)}). Name the checkpointLocation of the query, and a batch that "
            "is committed and that Spark still retains (spark.sql.streaming.minBatchesToRetain); set "
            "spark.sql.streaming.stateStore.checkpointFormatVersion as the query does, for Spark does not record it",
        ) from cause
    return [row.pointer for row in rows]


def _condition(failure: Exception) -> str:
    """Return Spark's name for what went wrong, which stands in the message only if it went wrong in a task."""
    if isinstance(failure, PySparkException):
        return failure.getCondition() or type(failure).__name__
    named = re.search(r"\[([A-Z][A-Z_.]+)\]", str(failure))
    return named[1] if named else type(failure).__name__


def committed_pointers_option(spark: SparkSession, checkpoint_location: str | Path, batch_id: int | None = None) -> str:
    """Return the commit pointers after a batch, None for the last one, as the data source's option `pointers` takes it.

    For tools, and for sessions that are not there where the checkpoint is; `committed_options` has more of them. Raises
    RecoveryError.
    """
    return "\n".join(recorded_pointers(spark, checkpoint_location, batch_id))


def committed_options(
    spark: SparkSession,
    checkpoint_location: str | Path,
    *,
    batch_id: int | None = None,
    change_start_batch_id: int | None = None,
    change_end_batch_id: int | None = None,
) -> dict[str, str]:
    """Return options by which `headerstate` knows what is committed, in place of its option `checkpoint`.

    For sessions in which the data source can't read the checkpoint, as those of Spark Connect. They say what is
    committed now: after `batch_id`, None for the last one; or, for a change feed, from `change_start_batch_id` to
    `change_end_batch_id`, both included, None for the last one. Raises RecoveryError, and ValueError for batches that
    make no sense together.
    """
    if change_start_batch_id is None:
        if change_end_batch_id is not None:
            raise ValueError("change_end_batch_id needs change_start_batch_id")
        return _pointer_options(committed_pointers_option(spark, checkpoint_location, batch_id))
    if batch_id is not None:
        raise ValueError("batch_id has no meaning for a change feed: use change_end_batch_id")
    start, end = change_start_batch_id, change_end_batch_id
    if end is None:
        end = read_source_offsets(spark, checkpoint_location).batch_id
    if not 0 <= start <= end:
        raise ValueError(f"change_start_batch_id must be from 0 to {end}, the last batch, not {start}")
    feed = {"readChangeFeed": "true", "changeStartBatchId": str(start), "changeEndBatchId": str(end)}
    if start > 0:
        feed["pointersBefore"] = committed_pointers_option(spark, checkpoint_location, start - 1)
    return {**feed, **_pointer_options(committed_pointers_option(spark, checkpoint_location, end))}


def _pointer_options(pointers: str) -> dict[str, str]:
    # The checkpoint has no others: of a shard without one, nothing is committed.
    return {"pointers": pointers, "allPointers": "true"}


def _operator_pointers(spark: SparkSession, checkpoint: str, operator: Row, batch_id: int | None) -> DataFrame | None:
    """Return the pointers that one of the checkpoint's state stores holds, None if it is not one of ours."""
    reader = spark.read.format("statestore").option("operatorId", operator.operatorId)
    if batch_id is not None:
        reader = reader.option("batchId", batch_id)
    if operator.stateStoreName != "default":
        return None
    if operator.operatorName.startswith("transformWithState"):
        if f'"{POINTER_VARIABLE}"' not in (operator.operatorProperties or ""):
            return None
        state = reader.option("stateVarName", POINTER_VARIABLE).load(checkpoint)
        return state.select(f.col(f"value.{POINTER_VARIABLE}"))
    if operator.operatorName == "applyInPandasWithState":
        state = reader.load(checkpoint)
        fields = state.schema["value"].dataType["groupState"].dataType.names  # type: ignore[index]
        return state.select(f.col(f"value.groupState.{POINTER_VARIABLE}")) if fields == [POINTER_VARIABLE] else None
    return None
