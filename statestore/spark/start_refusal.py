"""Checks that need a query's checkpoint and sink, which are known only when it starts.

    listener, on the driver: refusal_at_start() ── a setting of this run's session ──> task: check_start(), which raises

A listener can't stop a query, nor interrupt the thread that waits for it. So it logs the refusal and puts it into a
setting of the run's session, which Spark hands to each task. A batch that a file sink skips has no tasks: there only
the log tells.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from posixpath import normpath
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from pyspark import TaskContext

from statestore.errors import LocationError
from statestore.errors.readable import without_secrets
from statestore.errors.state import CheckpointLocationError, SinkRemembersError
from statestore.recovery.location.schemes import canonical_uri, split_hadoop_path
from statestore.spark.query_failure import raise_from

REFUSAL: Final = "spark.sql.statestore.refusal"
_MADE_UP: Final = re.compile(r"(.*)/(temporary-)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_FILE_SINK: Final = re.compile(r"FileSink\[(.*)\]")


def refusal_at_start(run: Any, hadoop: Any, locations: Iterable[str]) -> LocationError | None:
    """Return why a run of the JVM, whose states are at these locations, must not go on; None if it may."""
    checkpoint = str(run.resolvedCheckpointRoot())
    for location in locations:
        relation = "" if _is_made_up(run, checkpoint) else relation_of(location, checkpoint)
        if relation is not None:
            return CheckpointLocationError(location, checkpoint=checkpoint, relation=relation)
        output = _FILE_SINK.match(run.sink().toString())
        if output is not None and run.offsetLog().getLatest().isEmpty() and _has_batches(hadoop, output[1]):
            return SinkRemembersError(location, output=output[1])
    return None


def _is_made_up(run: Any, checkpoint: str) -> bool:
    """Return whether Spark chose the checkpoint's name: a temporary one, or below the session's directory for them."""
    found = _MADE_UP.fullmatch(checkpoint)
    if found is None or found[2]:
        return found is not None
    home = str(run.sparkSession().conf().get("spark.sql.streaming.checkpointLocation", ""))
    is_new = bool(home) and run.name() is None and bool(run.offsetLog().getLatest().isEmpty())
    return is_new and found[1].endswith(split_hadoop_path(home)[2].rstrip("/"))


def relation_of(location: str, checkpoint: str) -> str | None:
    """Return in words how a location and a checkpoint overlap; None if they don't."""
    scheme, authority, path = split_hadoop_path(checkpoint)
    state, spark = _place(location), _place(f"{scheme or 'file'}://{authority}{quote(path)}")
    if state == spark:
        return "is also"
    if state[:-1] != spark[:-1]:
        return None
    if state[-1].startswith(spark[-1]):
        return "lies within"
    return "has within it" if spark[-1].startswith(state[-1]) else None


def check_start() -> None:
    """In a task, raise the error for which the run was refused at its start."""
    context = TaskContext.get()
    setting = None if context is None else context.getLocalProperty(REFUSAL)
    if setting:
        raise_from(setting)


def _place(uri: str) -> tuple[str, str, str]:
    """Return scheme, host and path of a directory, however they are written; the path ends with one slash."""
    parts = urlsplit(without_secrets(canonical_uri(uri)))
    scheme, path = parts.scheme or "file", f"/{unquote(parts.path).strip('/')}"
    path = os.path.realpath(path) if scheme == "file" else normpath(path)
    return scheme, parts.netloc, f"{path.rstrip('/')}/"


def _has_batches(hadoop: Any, output: str) -> bool:
    path, files = hadoop(f"{output}/_spark_metadata")
    return bool(files.exists(path)) and any(status.getPath().getName() for status in files.listStatus(path))
