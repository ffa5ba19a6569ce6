"""Where a query's sources stand, from the logs in its Spark checkpoint.

    offsets/N   what batch N reads up to: a line "v1", a line of JSON about the batch, then a line for each source
    commits/N   there once batch N is committed

A source's line is its offset as JSON, or "-" if it had none yet. That of Kafka is what `startingOffsets` takes. Source:
Spark's OffsetSeqLog and CommitLog.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from statestore.errors import RecoveryError

_VERSION: Final = "v1"
_HEAD_LINES: Final = 2
_NO_OFFSET: Final = "-"
_GLOB: Final = re.compile(r"([\\*?\[\]{}])")


class SourceOffsets(NamedTuple):
    """Up to where a committed batch has read, source by source, in the order in which Spark numbers them."""

    batch_id: int
    sources: tuple[str | None, ...]
    """Each source's offset as JSON; None if it had none yet. A query that goes on must begin there."""
    uncommitted_batch_id: int | None
    """A batch that was planned and not committed; None if there is none. Its records are yet to be processed."""


def read_source_offsets(
    spark: SparkSession, checkpoint_location: str | Path, batch_id: int | None = None
) -> SourceOffsets:
    """Return where a query's sources stood after a batch, None is the last committed one. Raises RecoveryError."""
    checkpoint = str(checkpoint_location).rstrip("/")
    committed = _log(spark, f"{checkpoint}/commits")
    planned = _log(spark, f"{checkpoint}/offsets")
    if not committed:
        raise RecoveryError(checkpoint, "has no committed batch")
    if batch_id is None:
        batch_id = max(committed)
    elif batch_id not in committed:
        raise RecoveryError(
            checkpoint, f"has no commit of batch {batch_id}; retained are {min(committed)} to {max(committed)}"
        )
    where = f"{checkpoint}/offsets/{batch_id}"
    if batch_id not in planned:
        raise RecoveryError(
            where, f"is missing or empty: batch {batch_id} is committed, and what it has read stood there"
        )
    # Not splitlines(): JSON may have the other line ends of Unicode inside a string.
    lines = planned[batch_id].decode(errors="replace").removesuffix("\n").split("\n")
    if len(lines) <= _HEAD_LINES or lines[0] != _VERSION:
        raise RecoveryError(where, f"is not an offset log of version {_VERSION!r}, but begins with {lines[:1]}")
    sources = tuple(None if line == _NO_OFFSET else line for line in lines[_HEAD_LINES:])
    latest = max(planned)
    return SourceOffsets(batch_id, sources, None if latest in committed else latest)


def _log(spark: SparkSession, directory: str) -> dict[int, bytes]:
    """Return the entries of a log by their batches. Spark reads every filesystem that a checkpoint can be on."""
    try:
        files = spark.read.format("binaryFile").load(_literal(directory)).select("path", "content").collect()
    except AnalysisException as cause:
        raise RecoveryError(directory, f"can't be read ({cause.getCondition() or cause})") from cause
    named = ((file.path.rpartition("/")[2], file.content) for file in files)
    return {int(name): bytes(content) for name, content in named if name.isdigit()}


def _literal(path: str) -> str:
    """Return the pattern that means this path, whatever is in its name: Spark reads files by patterns."""
    return _GLOB.sub(r"\\\1", path)
