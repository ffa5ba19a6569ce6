"""What Spark's checkpoint says of a query: its commit pointers, and where its sources stand.

    offsets/N   what batch N reads up to: a line "v1", a line of JSON about the batch, then a line for each source
    commits/N   there once batch N is committed

A source's line is its offset as JSON, or "-" if it had none yet. That of Kafka is what `startingOffsets` takes. Source:
Spark's OffsetSeqLog and CommitLog. Pointers are read by Spark's own state reader. A running query is not disturbed.
"""

from __future__ import annotations

import re
from functools import reduce
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from statestore.errors import RecoveryError
from statestore.recovery.location.schemes import problem_of_checkpoint
from statestore.spark.drivers import POINTER_VARIABLE
from statestore.spark.sessions import is_connect
from statestore.spark.spark_versions import SPARK_FAILURES, refuse_checkpoint_format

_VERSION: Final = "v1"
_HEAD_LINES: Final = 2
_GLOB: Final = re.compile(r"([\\*?\[\]{}])")
_ESCAPED: Final = re.compile(r'[ "#%<>?\[\\\]^`{|}]')
"""What Spark's reader of state escapes in a checkpoint's path, and then takes for its name."""


def read_pointers(spark: SparkSession, checkpoint_location: str | Path, *, batch_id: int | None = None) -> DataFrame:
    """Return the commit pointers after a batch, one row a shard, as one string column `pointer`.

    `batch_id` is any batch that Spark retains; None is the last committed one. If a query has several stateful()
    operators, the pointers of all are returned; each says which state it belongs to. Raises RecoveryError if the
    checkpoint has none, and SparkVersionError for checkpoint format 2 with Spark 4.0.
    """
    refuse_checkpoint_format(spark)
    checkpoint = str(checkpoint_location)
    if not is_connect(spark):  # its paths are those of the server's machine
        default = spark.conf.get("spark.hadoop.fs.defaultFS", None)
        problem = problem_of_checkpoint(checkpoint, default_filesystem=default)
        if problem is not None:
            raise RecoveryError(checkpoint, problem)
    # Spark's reader of RocksDB state needs the coordinator of state stores, which a session starts when it is asked for
    # its streaming queries.
    _ = spark.streams.active
    try:
        operators = spark.read.format("state-metadata").load(checkpoint).collect()
        read = [_operator_pointers(spark, checkpoint, operator, batch_id) for operator in operators]
    except SPARK_FAILURES as cause:
        if (escaped := _ESCAPED.search(checkpoint)) is None:
            raise
        problem = f"Spark's reader of state finds nothing in a path with {escaped[0]!r}: rename it, or go by the head"
        raise RecoveryError(checkpoint, problem) from cause
    found = [pointers for pointers in read if pointers is not None]
    if not found:
        raise RecoveryError(
            checkpoint, "has no stateful() operator that has committed a batch: name the checkpointLocation of one"
        )
    return reduce(DataFrame.unionAll, found)


def recorded_pointers(spark: SparkSession, checkpoint_location: str | Path, batch_id: int | None = None) -> list[str]:
    """Return the commit pointers after a batch as JSON. Raises RecoveryError if they can't be read."""
    try:
        rows = read_pointers(spark, checkpoint_location, batch_id=batch_id).collect()
    except SPARK_FAILURES as cause:
        which = "the last committed batch" if batch_id is None else f"batch {batch_id}"
        raise RecoveryError(
            str(checkpoint_location),
            f"{which} can't be read ({_condition(cause)}). Name the checkpointLocation of the query, and a committed "
            "batch that Spark still retains (spark.sql.streaming.minBatchesToRetain); set "
            "spark.sql.streaming.stateStore.checkpointFormatVersion as the query does: Spark does not record it",
        ) from cause
    return [row.pointer for row in rows]


def _condition(failure: Exception) -> str:
    """Return Spark's error condition, which is in the message only if a task failed."""
    if isinstance(failure, PySparkException):
        return failure.getCondition() or type(failure).__name__
    named = re.search(r"\[([A-Z][A-Z_.]+)\]", str(failure))
    return named[1] if named else type(failure).__name__


def committed_pointers_option(spark: SparkSession, checkpoint_location: str | Path, batch_id: int | None = None) -> str:
    """Return the commit pointers after a batch, None for the last one, a line each. Raises RecoveryError."""
    return "\n".join(recorded_pointers(spark, checkpoint_location, batch_id))


def committed_options(
    spark: SparkSession,
    checkpoint_location: str | Path,
    *,
    batch_id: int | None = None,
    change_start_batch_id: int | None = None,
    change_end_batch_id: int | None = None,
) -> dict[str, str]:
    """Return options that tell `headerstate` what is committed now, in place of its option `checkpoint`.

    For sessions in which the data source can't read the checkpoint, such as those of Spark Connect. They mean the state
    after `batch_id`, None for the last one; or, for a change feed, the changes from `change_start_batch_id` to
    `change_end_batch_id`, both included, None for the last one. Raises RecoveryError, and ValueError for batches that
    make no sense together.
    """
    if change_start_batch_id is None:
        if change_end_batch_id is not None:
            raise ValueError("change_end_batch_id needs change_start_batch_id")
        pointers = committed_pointers_option(spark, checkpoint_location, batch_id)
        return {"pointers": pointers, "allPointers": "true"}
    if batch_id is not None:
        raise ValueError("batch_id has no meaning for a change feed: use change_end_batch_id")
    start, end = change_start_batch_id, change_end_batch_id
    if end is None:
        end = last_batch_id(spark, checkpoint_location)
    if not 0 <= start <= end:
        raise ValueError(f"change_start_batch_id must be from 0 to {end}, the last batch, not {start}")
    feed = committed_options(spark, checkpoint_location, batch_id=end)
    feed |= {"readChangeFeed": "true", "changeStartBatchId": str(start), "changeEndBatchId": str(end)}
    if start > 0:
        feed["pointersBefore"] = committed_pointers_option(spark, checkpoint_location, start - 1)
    return feed


def _operator_pointers(spark: SparkSession, checkpoint: str, operator: Row, batch_id: int | None) -> DataFrame | None:
    """Return the pointers in one of the checkpoint's state stores; None if it is not one of ours."""
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


class SourceOffsets(NamedTuple):
    """Up to where a committed batch has read each source, in Spark's order of sources."""

    batch_id: int
    sources: tuple[str | None, ...]
    """Each source's offset as JSON, where a query that goes on must begin; None if it had none yet."""
    uncommitted_batch_id: int | None
    """A batch that was planned but not committed, whose records are yet to be processed; None if there is none."""


def read_source_offsets(
    spark: SparkSession, checkpoint_location: str | Path, batch_id: int | None = None
) -> SourceOffsets:
    """Return where a query's sources stood after a batch, None for the last committed one. Raises RecoveryError."""
    checkpoint = str(checkpoint_location).rstrip("/")
    committed = _committed(spark, checkpoint)
    files = _files(spark, f"{checkpoint}/offsets", "path", "content")
    planned = {number: bytes(file.content) for number, file in files.items()}
    if batch_id is None:
        batch_id = max(committed)
    elif batch_id not in committed:
        raise RecoveryError(
            checkpoint, f"has no commit of batch {batch_id}; retained are {min(committed)} to {max(committed)}"
        )
    where = f"{checkpoint}/offsets/{batch_id}"
    if batch_id not in planned:
        raise RecoveryError(
            where, f"is missing or empty: batch {batch_id} is committed, and this file says what it has read"
        )
    # Not splitlines(): strings in JSON may hold other line ends of Unicode.
    lines = planned[batch_id].decode(errors="replace").removesuffix("\n").split("\n")
    if len(lines) <= _HEAD_LINES or lines[0] != _VERSION:
        raise RecoveryError(where, f"begins with {lines[:1]}, not with {_VERSION!r}, the known version of offset logs")
    sources = tuple(None if line == "-" else line for line in lines[_HEAD_LINES:])
    latest = max(planned)
    return SourceOffsets(batch_id, sources, None if latest in committed else latest)


def last_batch_id(spark: SparkSession, checkpoint_location: str | Path) -> int:
    """Return the last committed batch. Raises RecoveryError if there is none."""
    return max(_committed(spark, str(checkpoint_location).rstrip("/")))


def _committed(spark: SparkSession, checkpoint: str) -> set[int]:
    """Return the batches that are known to be committed, at least one. Raises RecoveryError."""
    found = _files(spark, f"{checkpoint}/commits", "path").keys()
    if not found:
        raise RecoveryError(checkpoint, "has no committed batch")
    return set(found)


def _files(spark: SparkSession, directory: str, *columns: str) -> dict[int, Row]:
    """Return the files of a log by batch. Spark can read every filesystem that a checkpoint can be on."""
    try:
        # Spark reads files by patterns: escaped, this one means the path itself.
        literal = _GLOB.sub(r"\\\1", directory)
        files = spark.read.format("binaryFile").load(literal).select(*columns).collect()
    except AnalysisException as cause:
        raise RecoveryError(directory, f"can't be read ({cause.getCondition() or cause})") from cause
    named = ((file.path.rpartition("/")[2], file) for file in files)
    return {int(name): file for name, file in named if name.isdigit()}
