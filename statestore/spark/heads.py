"""Publishes heads: a listener takes the commit pointers out of each batch's observed metrics.

    classic   a listener of the driver's own ──> HeadPublisher, one for each run and state
    Connect   StateStoreListener in the client ── on_server: a HeadPublisher for each batch

Spark posts a query's progress after it has written the batch to its commit log, so what is published is committed. All
listeners of a session share a thread, and each state has one for its heads: no batch waits for them, and no listener
for a location that does not answer. An event that is lost, or a driver that is killed, costs heads, until the next one
is known in full.
"""

from __future__ import annotations

import base64
import json
import logging
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from queue import Full, Queue
from threading import Thread
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary, ref

from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import StreamingQueryProgress

from statestore.errors import StateStoreError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.figures import HeadFigures, LastCall, RecentBatch
from statestore.recovery.heads.publishing import HeadPublisher, ShardCommit
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.rescale import where_it_began
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.spark.checkpoints.checkpoint import recorded_pointers
from statestore.spark.figures import BatchFigures, observed_states, state_figures
from statestore.spark.sessions import LISTENER, is_connect, listen, on_server
from statestore.spark.shards.shard_call import POINTER, WENT_ON_FROM

_LOG = logging.getLogger(__name__)
_WAITING: Final = 100
"""How many batches without a head are kept; a client tells the server of them with the next one."""
_LAST_HEAD_S: Final = 10.0
"""How long the end of a query waits for its last head."""
_states: WeakKeyDictionary[SparkSession, dict[str, tuple[DurableLocation, StateMetadata]]] = WeakKeyDictionary()
"""By session and id: the states of which heads are published."""


class _Told(NamedTuple):
    """What a listener was told of a state in a batch."""

    batch: int
    calls: tuple[ShardCommit, ...]
    figures: HeadFigures | None


def publish_heads(spark: SparkSession, location: DurableLocation, metadata: StateMetadata) -> None:
    """Have the driver publish heads of a state. With Spark Connect, a StateStoreListener does, if there is one."""
    if spark not in _states:
        _states[spark] = {}
        if not is_connect(spark):
            listen(spark, _HeadListener(_states[spark], ref(spark)))
    _states[spark][metadata.state_id] = location, metadata


class _HeadListener:
    """Publishes the heads of states. Asks the JVM one thing of each event: every answer takes time."""

    def __init__(
        self,
        states: Mapping[str, tuple[DurableLocation, StateMetadata]],
        session: Callable[[], SparkSession | None],
    ) -> None:
        self._states = states
        self._session = session
        self._publishers: dict[tuple[str, str], _Publishing] = {}
        """By run and state."""
        self._checkpoints: dict[str, str] = {}
        """By run."""

    def onQueryProgress(self, event: Any) -> None:
        """Publish what a batch has committed. A failure harms nothing: the next batch publishes."""
        try:
            progress = StreamingQueryProgress.fromJson(json.loads(event.json())["progress"])
            for state_id, told in _told(progress, self._states):
                run = str(progress.runId)
                if (run, state_id) not in self._publishers:
                    recorded = partial(self._recorded, self._checkpoints.get(run), state_id)
                    made = _publisher(*self._states[state_id], str(progress.id), run, recorded)
                    self._publishers[run, state_id] = _Publishing(made)
                self._publishers[run, state_id].take(told)
        except Exception:
            # Spark would only print it.
            _LOG.exception("no head of a batch")

    def onQueryTerminated(self, event: Any) -> None:
        """Forget the run, once its heads are published."""
        run = event.runId().toString()
        self._checkpoints.pop(run, None)
        for key in [key for key in self._publishers if key[0] == run]:
            self._publishers.pop(key).end()

    def onQueryStarted(self, event: Any) -> None:
        """Remember where the run's checkpoint is. Spark waits for this."""
        spark = self._session()
        try:
            if spark is not None:
                run = spark._jsparkSession.streams().get(event.id()).streamingQuery()
                self._checkpoints[event.runId().toString()] = str(run.resolvedCheckpointRoot())
        except Exception:
            # Spark would only print it.
            _LOG.exception("the checkpoint of a query can't be asked for heads")

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: no batch ran."""

    def _recorded(self, checkpoint: str | None, state_id: str, batch: int) -> list[CommitPointer]:
        """Return the pointers of a state that a checkpoint has after a batch; none if it can't be read."""
        spark = self._session()
        if spark is None or checkpoint is None:
            return []
        try:
            found = map(CommitPointer.from_json, recorded_pointers(spark, checkpoint, batch))
            return [pointer for pointer in found if pointer.state_id == state_id]
        except StateStoreError as unreadable:
            _LOG.info("the next head of %s comes once each shard was called: %s", checkpoint, unreadable)
            return []

    class Java:
        implements = (LISTENER,)


class _Publishing:
    """Publishes the heads of a run in one state, in a thread of its own."""

    def __init__(self, publisher: HeadPublisher) -> None:
        self._publisher = publisher
        self._told: Queue[_Told | None] = Queue(_WAITING)
        self._thread = Thread(target=self._publish, name="heads", daemon=True)
        self._thread.start()

    def take(self, told: _Told) -> None:
        """Have what a batch has committed published. If too many wait, it is left out."""
        with suppress(Full):
            self._told.put_nowait(told)

    def end(self) -> None:
        """Wait a little until all is published."""
        if self._told.full():
            self._told.get_nowait()
        self._told.put(None)
        self._thread.join(_LAST_HEAD_S)

    def _publish(self) -> None:
        while (told := self._told.get()) is not None:
            try:
                self._publisher.take(*told)
            except StateStoreError as failure:
                _warn(told.batch, self._publisher.query, failure)
            except Exception:
                _LOG.exception("no head of batch %d of query %s", told.batch, self._publisher.query)


class ClientHeads:
    """Publishes the heads of states from a client of Spark Connect, by a task on the server for each batch."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[str, str], deque[_Told]] = {}
        """By run and state, the batches since the last head."""

    def take(self, spark: SparkSession, progress: StreamingQueryProgress) -> None:
        """Publish what a batch has committed, of the states that this client has made queries of."""
        states, run = _states.get(spark, {}), str(progress.runId)
        for state_id, told in _told(progress, states):
            waiting = self._waiting.setdefault((run, state_id), deque(maxlen=_WAITING))
            waiting.append(told)
            try:
                if on_server(spark, _publish, *states[state_id], str(progress.id), run, list(waiting)):
                    waiting.clear()
            except StateStoreError as failure:
                _warn(progress.batchId, str(progress.id), failure)
            except Exception:
                _LOG.exception("no head of batch %d of query %s", progress.batchId, progress.id)

    def forget(self, run: str) -> None:
        """Forget a run that has ended."""
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if key[0] != run}


def shard_commits(shards: Iterable[str]) -> Iterator[ShardCommit]:
    """Yield what `ShardResult.observed_json` tells of commits."""
    for text in shards:
        found = json.loads(text)
        yield ShardCommit(zlib.decompress(base64.b64decode(found[POINTER])).decode(), found[WENT_ON_FROM])


def head_figures(figures: BatchFigures) -> HeadFigures:
    """Return what a head has of a batch's figures."""
    batch = RecentBatch(
        batch=figures.batch_id,
        time_ms=time.time_ns() // 1_000_000,
        duration_ms=figures.duration_ms,
        records=figures.records.process_total,
        delta_bytes=figures.delta.size_bytes,
        times={name: round(ms) for name, ms in figures.times._asdict().items()},
    )
    calls = {each.shard: LastCall(batch.batch, round(each.elapsed_ms), each.sizes) for each in figures.shards}
    return HeadFigures((batch,), calls)


def _told(progress: StreamingQueryProgress, states: Mapping[str, object]) -> Iterator[tuple[str, _Told]]:
    """Yield the id of each of these states that the progress reports on, with what it reports."""
    for state_id, metrics in observed_states(progress):
        if state_id in states:
            try:
                figures = head_figures(state_figures(progress, state_id, metrics))
            except Exception:
                _LOG.exception("no figures in the head of batch %d of query %s", progress.batchId, progress.id)
                figures = None
            yield state_id, _Told(progress.batchId, tuple(shard_commits(metrics["shards"])), figures)


def _publisher(
    location: DurableLocation,
    metadata: StateMetadata,
    query: str,
    run: str,
    recorded: Callable[[int], list[CommitPointer]] | None = None,
) -> HeadPublisher:
    began = partial(where_it_began, location, metadata)
    return HeadPublisher(location, metadata.state_id, metadata.shards, began, query=query, run=run, recorded=recorded)


def _publish(location: DurableLocation, metadata: StateMetadata, query: str, run: str, told: list[_Told]) -> bool:
    """On the server, return whether the last of these batches has a head now."""
    publisher = _publisher(location, metadata, query, run)
    return [publisher.take(*each) is not None for each in told][-1]


def _warn(batch: int, query: str, failure: StateStoreError) -> None:
    _LOG.warning("no head of batch %d of query %s: %s", batch, query, failure)
