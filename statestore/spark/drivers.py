"""Two thin drivers of the shard call, one for each of Spark's entry points for stateful Python.

Spark's state holds one string per shard, the commit pointer. Spark groups by shard, so each driver is called once per
shard and micro-batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from statestore.errors import StateStoreError
from statestore.spark.shard_call import ShardCall

_OUTPUT_SCHEMA = "blob binary"
POINTER_VARIABLE = "pointer"
_POINTER_SCHEMA = f"{POINTER_VARIABLE} string"
_QUERY_ID = "sql.streaming.queryId"


def through_transform_with_state(packed: DataFrame, call: ShardCall) -> DataFrame:
    """Run the shard call through transformWithStateInPandas."""
    grouped = packed.groupBy("route")
    return grouped.transformWithStateInPandas(_ShardProcessor(call), _OUTPUT_SCHEMA, "append", "none")


def through_apply_in_pandas_with_state(packed: DataFrame, call: ShardCall) -> DataFrame:
    """Run the shard call through applyInPandasWithState."""

    def run_shard(key: tuple[int], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        recorded = state.get[0] if state.exists else None
        pointer = yield from _frames(call, key[0], frames, recorded)
        state.update((pointer,))

    grouped = packed.groupBy("route")
    return grouped.applyInPandasWithState(
        run_shard, _OUTPUT_SCHEMA, _POINTER_SCHEMA, "append", GroupStateTimeout.NoTimeout
    )


class _ShardProcessor(StatefulProcessor):
    def __init__(self, call: ShardCall) -> None:
        self._call = call

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._pointer = handle.getValueState(POINTER_VARIABLE, _POINTER_SCHEMA)

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        recorded = self._pointer.get()
        pointer = yield from _frames(self._call, key[0], rows, recorded[0] if recorded else None)
        self._pointer.update((pointer,))

    def close(self) -> None:
        """Nothing to let go of: what a shard call opens it closes, also after a failure."""


def _frames(call: ShardCall, route: Any, frames: Iterable[pd.DataFrame], recorded: str | None) -> Any:
    """Yield the call's output blobs as frames of one row, and return the pointer to record."""
    blobs = (blob for frame in frames for blob in frame["blob"])
    run = call.run(int(route), blobs, recorded, _query_id())
    try:
        while True:
            yield pd.DataFrame({"blob": [next(run)]})
    except StopIteration as end:
        return end.value
    finally:
        run.close()


def _query_id() -> str:
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(_QUERY_ID)
    if query_id is None:
        raise StateStoreError(
            "stateful() runs only within a streaming query: Spark gave the task no streaming query id"
        )
    return query_id
