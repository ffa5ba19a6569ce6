"""Tells classic sessions from those of Spark Connect, and runs on the server what only the server can reach.

    classic   on_server(spark, f, x) ── f(x), in the driver
    Connect   on_server(spark, f, x) ── a job of one task: f(x) ── JSON, of the result or of an error of ours ──> client

A client of Connect may be on another machine, with other credentials or none, so it never touches a state location.
Executors must reach that anyway. A function goes to the server pickled, like all code; what comes back is data.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from statestore import __version__
from statestore.errors import StateStoreError
from statestore.errors.run import ConnectServerError, ModuleNotOnWorkersError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.spark.query_failure import AS_A_VALUE, failure_json, raise_from

QUERY_ID: Final = "sql.streaming.queryId"
"""The local property of tasks with their query's id."""
BATCH_ID: Final = "streaming.sql.batchId"
"""The local property with the number of the batch."""
LISTENER: Final = "org.apache.spark.sql.streaming.PythonStreamingQueryListener"
"""The interface in the JVM of what `listen` takes."""
_P = ParamSpec("_P")
_R = TypeVar("_R")
_RESULT: Final = "result"
_FAILURE: Final = "failure"
_ILLEGAL: Final = "illegal argument"
_LACKS: Final = "lacks"
_MORE_THAN_CORES: Final = 1 << 16


def is_connect(spark: SparkSession) -> bool:
    """Return whether a session is of Spark Connect, which has neither a JVM nor a `sparkContext` here."""
    # Some platforms replace the class SparkSession, so isinstance() tells nothing.
    return any(kind.__module__.startswith("pyspark.sql.connect.") for kind in type(spark).__mro__)


def default_parallelism(spark: SparkSession) -> int:
    """Return how many tasks Spark runs at once, on all executors together."""
    if not is_connect(spark):
        return spark.sparkContext.defaultParallelism
    # Spark divides a range into that many parts.
    parts = spark.range(_MORE_THAN_CORES).select(f.spark_partition_id().alias("part"))
    return int(parts.agg(f.max("part")).collect()[0][0]) + 1


def choose_python(spark: SparkSession) -> None:
    """Make the workers of a local session run in this environment, unless PYSPARK_PYTHON names another."""
    if is_connect(spark):
        return  # the server has chosen one
    context = spark.sparkContext
    if "PYSPARK_PYTHON" not in os.environ and (context.master or "").startswith("local"):
        # Spark would take the first python3 on the PATH, which may be another environment.
        context.pythonExec = sys.executable


def listen(spark: SparkSession, listener: Any) -> None:
    """Have the JVM of a classic session tell a listener of its queries.

    Not by pyspark's class: that reads all of an event before it tells of it, in some 150 calls to the JVM.
    """
    # A client of Connect need not have py4j.
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    wrapper = context._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
    spark._jsparkSession.streams().addListener(wrapper(listener))


def location_in(spark: SparkSession, location: str | Path | DurableLocation) -> DurableLocation:
    """Return a state's location for the session's tasks. Raises ValueError for a relative path under Connect."""
    if is_connect(spark) and not isinstance(location, DurableLocation):
        text = os.fspath(location)
        if text and not urlsplit(text).scheme and not text.startswith("/"):
            raise ValueError(
                f"the location {text!r} is a relative path, which is another directory on the Spark Connect server: "
                "give a URI that the server's executors can open, or an absolute path that they share"
            )
    return DurableLocation.of(location)


def on_server(spark: SparkSession, function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Return `function(*args, **kwargs)`, called on the server; in a classic session, in the driver.

    Under Connect the result must be of JSON's types; a tuple comes back as a list. Raises StateStoreErrors and
    ValueErrors as the function does, and ConnectServerError or ModuleNotOnWorkersError if the server can't call it.
    After any other error Spark calls it again, and then raises a PythonException: the function must allow for that.
    """
    if not is_connect(spark):
        return function(*args, **kwargs)
    pickled: bytes = cloudpickle.dumps((function, args, kwargs))  # type: ignore[no-untyped-call]
    rows = spark.range(0, 1, 1, 1).mapInArrow(_task(pickled), "said string").collect()
    result: _R = _result(json.loads(rows[0].said))
    return result


def answer(pickled: bytes) -> str:
    """In a task, call a pickled function; return its result or its error as JSON."""
    try:
        function, args, kwargs = cloudpickle.loads(pickled)
    except ModuleNotFoundError as missing:
        return _failure(ModuleNotOnWorkersError(str(missing.name), part="the function for the server"))
    try:
        return json.dumps({_RESULT: function(*args, **kwargs)})
    except StateStoreError as error:
        return _failure(error)
    except ValueError as error:
        return json.dumps({_ILLEGAL: str(error)[: AS_A_VALUE.message]})


def _task(pickled: bytes) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return a function for one task that can report that this package is missing there."""
    wanted, lacks = __version__, _LACKS

    # A function within a function is pickled as its code, not as the name of a module to import.
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import json

        import pyarrow

        for _ in batches:
            pass
        try:
            from statestore import __version__ as found

            if found == wanted:
                from statestore.spark.sessions import answer

                said = answer(pickled)
            else:
                said = json.dumps({lacks: f"statestore {wanted}, but {found}"})
        except ModuleNotFoundError as missing:
            said = json.dumps({lacks: f"the module {missing.name}"})
        yield pyarrow.record_batch([pyarrow.array([said], pyarrow.string())], names=["said"])

    return run


def _failure(error: StateStoreError) -> str:
    return json.dumps({_FAILURE: failure_json(error)})


def _result(said: dict[str, Any]) -> Any:
    if _LACKS in said:
        raise ConnectServerError(lacks=said[_LACKS], needed=__version__)
    if _ILLEGAL in said:
        raise ValueError(said[_ILLEGAL])
    if _FAILURE in said:
        raise_from(said[_FAILURE])
    return said[_RESULT]
