"""Two thin drivers of the shard call, one for each of Spark's entry points for stateful Python.

Spark's state holds one string per shard, the commit pointer. Spark groups by shard, so each driver is called once per
shard and micro-batch: with the shard's input or, if a punctuator on the wall clock is due, by Spark's timers without.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any

import pandas as pd
from pyspark import TaskContext, cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle, ValueState

from statestore.errors import StateStoreError
from statestore.errors.run import ModuleNotOnWorkersError
from statestore.spark.figures import FIGURES
from statestore.spark.query_failure import sentence_first
from statestore.spark.sessions import QUERY_ID, is_connect
from statestore.spark.shards.blobs import BLOB
from statestore.spark.shards.shard_call import ShardCall, ShardResult

_OUTPUT_SCHEMA = f"{BLOB} binary, {FIGURES} string"
POINTER_VARIABLE = "pointer"
_POINTER_SCHEMA = f"{POINTER_VARIABLE} string"
_NOW = "now_ms"
_ARROW_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_SIMPLIFIED = "spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled"
_SIMPLIFIED_VARIABLE = "SPARK_SIMPLIFIED_TRACEBACK"
_COLLECTED_BYTES = 16 << 20
_FRAME_BYTES = 4 << 20
"""Of output that goes to Spark together: each frame costs some milliseconds, whatever is in it."""


def through_transform_with_state(packed: DataFrame, call: ShardCall) -> DataFrame:
    """Run the shard call through transformWithStateInPandas."""
    # Without timers Spark does not tell the processor what the time of the batch is. This is the same time.
    # Spark writes a time into the code that it generates, which it would compile anew for each batch: of a function
    # with a lambda it generates none.
    timed = packed.withColumn(_NOW, f.transform(f.array(f.current_timestamp()), f.unix_millis)[0])
    time_mode = "processingTime" if call.wall_clock else "none"
    grouped, processor = timed.groupBy("route"), light_processor(call)
    with _environment_of_other_functions(packed.sparkSession):
        return grouped.transformWithStateInPandas(processor, _OUTPUT_SCHEMA, "append", time_mode)


@contextmanager
def _environment_of_other_functions(spark: SparkSession) -> Iterator[None]:
    """Give functions that are made meanwhile the environment that Spark gives to mapInArrow.

    Workers of another environment have a daemon of their own, which imports all once more. Spark 4.2 tells every
    function on Arrow by such a variable to shorten tracebacks, but not transformWithState.
    """
    environment = None if is_connect(spark) else spark.sparkContext.environment
    if environment is None or spark.conf.get(_SIMPLIFIED) != "true" or _SIMPLIFIED_VARIABLE in environment:
        yield
        return
    environment[_SIMPLIFIED_VARIABLE] = "1"
    try:
        yield
    finally:
        del environment[_SIMPLIFIED_VARIABLE]


def through_apply_in_pandas_with_state(packed: DataFrame, call: ShardCall) -> DataFrame:
    """Run the shard call through applyInPandasWithState."""
    collected = CollectedOutput(int(packed.sparkSession.conf.get(_ARROW_ROWS) or 0))

    def run_shard(key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        recorded = state.get[0] if state.exists else None
        now_ms = state.getCurrentProcessingTimeMs()
        # Called for a timeout, there is one frame without rows.
        blobs = (blob for frame in frames for blob in frame["blob"])
        result = yield from collected.bound(_frames(call, key[0], blobs, recorded, now_ms))
        state.update((result.pointer,))
        if result.wake_up_ms is not None:
            state.setTimeoutDuration(max(1, result.wake_up_ms - now_ms))

    timeout = GroupStateTimeout.ProcessingTimeTimeout if call.wall_clock else GroupStateTimeout.NoTimeout
    grouped = packed.groupBy("route")
    return grouped.applyInPandasWithState(run_shard, _OUTPUT_SCHEMA, _POINTER_SCHEMA, "append", timeout)


class CollectedOutput:
    """Bounds what Spark collects of applyInPandasWithState's output before it takes it, for all shards of a task.

    Spark puts it into one Arrow batch until that has more than `max_rows` rows, whatever their size: with blobs that is
    all that a task puts out, and more than 2 GiB of it fails. So rows of nulls fill the batch up after some MB. They
    cost a few ms, and who reads the output leaves them out. `max_rows` of 0 or less is Spark's word for no bound.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._waiting_bytes = 0

    def bound(self, frames: Generator[pd.DataFrame, None, ShardResult]) -> Generator[pd.DataFrame, None, ShardResult]:
        """Yield the frames of a shard, and some that fill up Spark's batches; return what `frames` returns."""
        with closing(frames):
            while True:
                try:
                    frame = next(frames)
                except StopIteration as end:
                    result: ShardResult = end.value
                    return result
                yield frame
                self._waiting_bytes += sum(len(blob) for blob in frame[BLOB] if blob is not None)
                if self._waiting_bytes >= _COLLECTED_BYTES and self._max_rows > 0:
                    nothing = [None] * self._max_rows
                    yield pd.DataFrame({BLOB: nothing, FIGURES: nothing})
                    self._waiting_bytes = 0


def light_processor(call: ShardCall) -> StatefulProcessor:
    """Return a processor that imports nothing of this package, nor of the topology's, before it is given rows.

    At the start of a query Spark asks a new Python process on the driver which state variables it has, and plans the
    first batch after that: what is imported there is waited for.
    """
    pickled_call: bytes = cloudpickle.dumps(call)  # type: ignore[no-untyped-call]

    # What is defined in a function travels as its code, not as the name of a module to import.
    class ShardProcessor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self._handle = handle
            self._pointer = handle.getValueState(variable, schema)
            self._shards: Any = None

        def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
            yield from self._of_rows().input_rows(key[0], rows)

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
            fired_ms = expiredTimerInfo.getExpiryTimeInMs()
            yield from self._of_rows().expired_timer(key[0], timerValues.getCurrentProcessingTimeInMs(), fired_ms)

        def close(self) -> None:
            """Nothing to let go of: what a shard call opens it closes, also after a failure."""

        def _of_rows(self) -> Any:
            if self._shards is None:
                from statestore.spark.drivers import StateOfShards, load_call

                self._shards = StateOfShards(load_call(pickled_call), self._handle, self._pointer)
            return self._shards

    variable, schema = POINTER_VARIABLE, _POINTER_SCHEMA
    return ShardProcessor()


def load_call(pickled: bytes) -> ShardCall:
    """Return a call that was pickled. Raises ModuleNotOnWorkersError if this worker lacks a module of it."""
    with sentence_first():
        try:
            call: ShardCall = cloudpickle.loads(pickled)
        except ModuleNotFoundError as missing:
            raise ModuleNotOnWorkersError(str(missing.name), part="the topology") from missing
    return call


class StateOfShards:
    """Runs the call of each shard that a task has, with the pointer and the timers that Spark's state has of it."""

    def __init__(self, call: ShardCall, handle: StatefulProcessorHandle, pointer: ValueState) -> None:
        self._call = call
        self._handle = handle
        self._pointer = pointer

    def input_rows(self, route: Any, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield what the call puts out that is given these rows."""
        first = next(rows)
        now_ms = int(first[_NOW].iloc[0])
        yield from self._run(route, (blob for frame in chain([first], rows) for blob in frame["blob"]), now_ms)

    def expired_timer(self, route: Any, now_ms: int, fired_ms: int) -> Iterator[pd.DataFrame]:
        """Yield what the call puts out at a time that it has asked for: `fired_ms`, the time of the timer."""
        yield from self._run(route, (), now_ms, fired_ms)

    def _run(
        self, route: Any, blobs: Iterable[bytes], now_ms: int, fired_ms: int | None = None
    ) -> Iterator[pd.DataFrame]:
        recorded = self._pointer.get()
        result = yield from _frames(self._call, route, blobs, recorded[0] if recorded else None, now_ms)
        self._pointer.update((result.pointer,))
        if self._call.wall_clock:
            self._wake_up_at(result.wake_up_ms, fired_ms)

    def _wake_up_at(self, time_ms: int | None, fired_ms: int | None) -> None:
        """Leave one timer, at this time. One that is due is deleted, so that a batch calls no shard twice.

        The one that has fired Spark deletes itself, and warns of each that it does not find.
        """
        waiting = set(self._handle.listTimers())
        for timer_ms in waiting - {time_ms, fired_ms}:
            self._handle.deleteTimer(timer_ms)
        if time_ms is not None and time_ms not in waiting:
            self._handle.registerTimer(time_ms)


def _frames(
    call: ShardCall, route: Any, blobs: Iterable[bytes], recorded: str | None, now_ms: int
) -> Generator[pd.DataFrame, None, ShardResult]:
    """Yield the call's output in frames, the last of which has its figures; return what to record."""
    with sentence_first(), closing(call.run(int(route), blobs, recorded, _query_id(), now_ms)) as run:
        return (yield from in_frames(run))


def in_frames(run: Generator[bytes, None, ShardResult]) -> Generator[pd.DataFrame, None, ShardResult]:
    """Yield a call's output blobs in frames of some MB, the last of which has its figures; return its result."""
    held: list[bytes | None] = []
    held_bytes = 0
    while True:
        try:
            blob = next(run)
        except StopIteration as end:
            result: ShardResult = end.value
            break
        if held and held_bytes + len(blob) > _FRAME_BYTES:
            yield _frame(held, None)
            held, held_bytes = [], 0
        held.append(blob)
        held_bytes += len(blob)
    # The last blobs wait for the figures: a frame of their own would cost as much as one with blobs.
    yield _frame(held or [None], result.figures.to_json())
    return result


def _frame(blobs: Sequence[bytes | None], figures: str | None) -> pd.DataFrame:
    return pd.DataFrame({BLOB: blobs, FIGURES: [*[None] * (len(blobs) - 1), figures]})


def _query_id() -> str:
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    if query_id is None:
        raise StateStoreError(
            "stateful() runs only within a streaming query: Spark gave the task no streaming query id"
        )
    return query_id
