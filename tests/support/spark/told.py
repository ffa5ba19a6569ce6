"""Figures as a shard call tells them, a query's progress as Spark hands it to a listener, in JSON, and a listener."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Mapping
from typing import Any

from pyspark.sql.streaming.listener import QueryProgressEvent

from statestore.recovery.commit.figures import CommitFigures, DeltaFigures, StoreFigures
from statestore.spark import StateStoreListener
from statestore.spark.figures import METRICS_PREFIX, RecordFigures, ShardFigures, TimeFigures

QUERY, RUN = uuid.UUID(int=1), uuid.UUID(int=2)
TIMES = TimeFigures(1.5, 2.0, 3.0, 0.5, 1.0)
STORES = {"totals": StoreFigures(5, 1, 60, 4_000, 1_234)}


def shard(
    number: int = 0,
    *,
    records: RecordFigures = RecordFigures(10, 0, 0, 9),  # noqa: B008
    failures: Mapping[str, int] = {},
    **topics: Any,
) -> ShardFigures:
    commit = CommitFigures(stores=STORES, delta=DeltaFigures(1, 2_900), **topics)
    times = TIMES._replace(open_ms=number * 10.0)
    return ShardFigures(
        shard=number, version=7 + number, records=records, times=times, failures=failures, **vars(commit)
    )


def progress(*shards: ShardFigures, batch_id: int = 3, run: uuid.UUID = RUN, **fields: Any) -> QueryProgressEvent:
    observed = {"state_location": "file:///state", "shards": [figures.to_json() for figures in shards]}
    return QueryProgressEvent.fromJson(
        {
            "progress": {
                "id": str(QUERY),
                "runId": str(run),
                "name": "orders",
                "timestamp": "2026-01-02T03:04:05.678Z",
                "batchId": batch_id,
                "batchDuration": 432,
                "stateOperators": [],
                "sources": [],
                "sink": {"description": "", "numOutputRows": -1},
                "observedMetrics": {f"{METRICS_PREFIX}state-1": observed, "of-the-user": {"count": 1}},
                **fields,
            }
        }
    )


class EndingListener(StateStoreListener):
    """Knows when it is told of nothing any more: Spark waits for itself if it is removed before."""

    def __init__(self) -> None:
        super().__init__()
        self.has_ended = threading.Event()

    def onQueryTerminated(self, event: Any) -> None:
        super().onQueryTerminated(event)
        self.has_ended.set()
