"""Two thin drivers of the shard call, one for each of Spark's entry points for stateful Python.

Spark's state holds one string per shard, the commit pointer. Spark groups by shard, so it calls a driver once per shard
and micro-batch: with the shard's input, or without any if a punctuator on the wall clock is due.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from typing import Any, Final

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
from statestore.spark.sessions import BATCH_ID, QUERY_ID, is_connect
from statestore.spark.shards.blobs import BLOB, release_buffers
from statestore.spark.shards.schema import once
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
"""How much output a frame takes, unless one blob is larger: a frame costs some milliseconds, whatever its size."""
_OF_THE_BATCH: Final = 1
"""The generations of objects that are looked through for garbage: not what has been there for long."""


def through_transform_with_state(packed: DataFrame, call: ShardCall) -> DataFrame:
    """Run the shard call through transformWithStateInPandas."""
    # Without timers Spark does not tell the processor the batch's time; this is the same time. As a constant in
    # generated code Spark would compile it for each batch; for functions with a lambda it generates none.
    timed = packed.withColumn(_NOW, once(f.current_timestamp(), f.unix_millis))
    time_mode = "processingTime" if call.wall_clock else "none"
    grouped, processor = timed.groupBy("route"), light_processor(call)
    with _environment_of_other_functions(packed.sparkSession):
        return grouped.transformWithStateInPandas(processor, _OUTPUT_SCHEMA, "append", time_mode)


@contextmanager
def _environment_of_other_functions(spark: SparkSession) -> Iterator[None]:
    """Give functions that are made meanwhile the environment that Spark gives to mapInArrow.

    Workers with another environment get a daemon of their own, which imports everything again. Spark 4.2 sets a
    variable that shortens tracebacks for every function on Arrow, but not for transformWithState.
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
        # At a timeout there is one frame without rows.
        blobs = (blob for frame in frames for blob in frame["blob"])
        result = yield from collected.bound(_frames(call, key[0], blobs, recorded, now_ms))
        state.update((result.pointer,))
        if result.wake_up_ms is not None:
            state.setTimeoutDuration(max(1, result.wake_up_ms - now_ms))

    timeout = GroupStateTimeout.ProcessingTimeTimeout if call.wall_clock else GroupStateTimeout.NoTimeout
    grouped = packed.groupBy("route")
    return grouped.applyInPandasWithState(run_shard, _OUTPUT_SCHEMA, _POINTER_SCHEMA, "append", timeout)


class CollectedOutput:
    """Bounds how much output of applyInPandasWithState Spark collects before it takes it, for all shards of a task.

    Spark collects output until it has more than `max_rows` rows, whatever their size: of blobs, all output of a task.
    It fails beyond 2 GiB. So after some MB rows of nulls fill that up. They cost a few ms, and `unpack` drops them.
    `max_rows` of 0 or less means no bound, as in Spark's setting.
    """

    def __init__(self, max_rows: int) -> None:
        self._max_rows = max_rows
        self._waiting_bytes = 0

    def bound(self, frames: Generator[pd.DataFrame, None, ShardResult]) -> Generator[pd.DataFrame, None, ShardResult]:
        """Yield the frames of a shard, and frames of nulls between them; return what `frames` returns."""
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
    """Return a processor that imports neither this package nor the topology's modules before it is given rows.

    At the start of a query Spark asks a new Python process on the driver for the state variables, and plans the first
    batch only then: it would wait for the imports.
    """
    pickled_call: bytes = cloudpickle.dumps(call)  # type: ignore[no-untyped-call]

    # A class that is defined in a function is pickled as its code, not as the name of a module to import.
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
            """Do nothing: a shard call closes what it opens, even after a failure."""

        def _of_rows(self) -> Any:
            if self._shards is None:
                from statestore.spark.drivers import StateOfShards, load_call

                self._shards = StateOfShards(load_call(pickled_call), self._handle, self._pointer)
            return self._shards

    variable, schema = POINTER_VARIABLE, _POINTER_SCHEMA
    return ShardProcessor()


def load_call(pickled: bytes) -> ShardCall:
    """Return a pickled call. Raises ModuleNotOnWorkersError if this worker lacks a module of it."""
    with sentence_first():
        try:
            call: ShardCall = cloudpickle.loads(pickled)
        except ModuleNotFoundError as missing:
            raise ModuleNotOnWorkersError(str(missing.name), part="the topology") from missing
    return call


class StateOfShards:
    """Calls each shard of a task with its pointer and timers from Spark's state."""

    def __init__(self, call: ShardCall, handle: StatefulProcessorHandle, pointer: ValueState) -> None:
        self._call = call
        self._handle = handle
        self._pointer = pointer

    def input_rows(self, route: Any, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """Yield the call's output for these rows."""
        first = next(rows)
        now_ms = int(first[_NOW].iloc[0])
        yield from self._run(route, (blob for frame in chain([first], rows) for blob in frame["blob"]), now_ms)

    def expired_timer(self, route: Any, now_ms: int, fired_ms: int) -> Iterator[pd.DataFrame]:
        """Yield the call's output for a timer, which was set for `fired_ms`."""
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
        """Leave one timer, at this time. Others are deleted even if due, so that a batch calls no shard twice.

        Spark itself deletes the one that has fired, and would warn if it did not find it.
        """
        waiting = set(self._handle.listTimers())
        for timer_ms in waiting - {time_ms, fired_ms}:
            self._handle.deleteTimer(timer_ms)
        if time_ms is not None and time_ms not in waiting:
            self._handle.registerTimer(time_ms)


def _frames(
    call: ShardCall, route: Any, blobs: Iterable[bytes], recorded: str | None, now_ms: int
) -> Generator[pd.DataFrame, None, ShardResult]:
    """Yield the call's output in frames, with its figures in the last one; return its result."""
    with sentence_first(), closing(call.run(int(route), blobs, recorded, *_query_and_batch(), now_ms)) as run:
        return (yield from in_frames(run))


def in_frames(run: Generator[bytes, None, ShardResult]) -> Generator[pd.DataFrame, None, ShardResult]:
    """Yield a call's output blobs in frames of some MB, with its figures in the last one; return its result."""
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
    # The last blobs wait for the figures, which would cost as much in a frame of their own.
    yield _frame(held or [None], result.observed_json())
    # The parts of a task refer to each other and to its last records. What is made by columns are few objects, so
    # Python would not look for them for many batches, whatever memory they hold.
    gc.collect(_OF_THE_BATCH)
    release_buffers()
    return result


def _frame(blobs: Sequence[bytes | None], figures: str | None) -> pd.DataFrame:
    return pd.DataFrame({BLOB: blobs, FIGURES: [*[None] * (len(blobs) - 1), figures]})


def _query_and_batch() -> tuple[str, int]:
    context = TaskContext.get()
    query_id, batch_id = (context.getLocalProperty(name) if context else None for name in (QUERY_ID, BATCH_ID))
    if query_id is None or batch_id is None:
        raise StateStoreError(
            "stateful() runs only within a streaming query: Spark gave the task no streaming query id"
        )
    return query_id, int(batch_id)
