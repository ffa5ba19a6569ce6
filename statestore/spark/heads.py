"""Publishes heads from the driver: a listener that takes the commit pointers out of each batch's observed metrics.

Spark posts a query's progress after it has written the batch to its commit log, so what is published is committed. A
listener has a thread of its own: no batch waits for it. An event that is lost, or a driver that is killed, costs heads,
until the next one is known in full.
"""

from __future__ import annotations

import base64
import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from statestore.errors import StateStoreError
from statestore.recovery.heads.publishing import HeadPublisher, ShardCommit
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.rescale import where_it_began
from statestore.recovery.metadata.state_metadata import StateMetadata
from statestore.spark.figures import METRICS_PREFIX
from statestore.spark.sessions import LISTENER, is_connect, listen
from statestore.spark.shards.shard_call import POINTER, WENT_ON_FROM

_LOG = logging.getLogger(__name__)
_listeners: WeakKeyDictionary[SparkSession, _HeadListener] = WeakKeyDictionary()
"""One in each session."""


def publish_heads(spark: SparkSession, location: DurableLocation, metadata: StateMetadata) -> None:
    """Have the driver publish heads of a state. With Spark Connect it can't: a client does not touch a location."""
    if is_connect(spark):
        return
    if spark not in _listeners:
        _listeners[spark] = _HeadListener()
        listen(spark, _listeners[spark])
    _listeners[spark].add(location, metadata)


def shard_commits(shards: Iterable[str]) -> Iterator[ShardCommit]:
    """Yield what `ShardResult.observed_json` tells of commits."""
    for text in shards:
        found = json.loads(text)
        yield ShardCommit(zlib.decompress(base64.b64decode(found[POINTER])).decode(), found[WENT_ON_FROM])


class _HeadListener:
    """Publishes the heads of the states that it was told of. Asks the JVM one thing of each event, which takes time."""

    def __init__(self) -> None:
        self._states: dict[str, tuple[DurableLocation, StateMetadata]] = {}
        self._publishers: dict[tuple[str, str], HeadPublisher] = {}
        """By run and state."""

    def add(self, location: DurableLocation, metadata: StateMetadata) -> None:
        """Publish heads of this state from now on."""
        self._states[metadata.state_id] = location, metadata

    def onQueryProgress(self, event: Any) -> None:
        """Publish what a batch has committed. A failure harms nothing: the next batch publishes."""
        try:
            progress = json.loads(event.json())["progress"]
            for name, metrics in progress.get("observedMetrics", {}).items():
                if name.removeprefix(METRICS_PREFIX) in self._states:
                    self._publish(progress, name.removeprefix(METRICS_PREFIX), metrics["shards"])
        except Exception:
            # Spark would only print it.
            _LOG.exception("no head of a batch")

    def onQueryTerminated(self, event: Any) -> None:
        """Forget the run."""
        run = event.runId().toString()
        self._publishers = {key: publisher for key, publisher in self._publishers.items() if key[0] != run}

    def onQueryStarted(self, event: Any) -> None:
        """Do nothing: no batch ran."""

    onQueryIdle = onQueryStarted

    class Java:
        implements = (LISTENER,)

    def _publish(self, progress: Mapping[str, Any], state_id: str, shards: Iterable[str]) -> None:
        try:
            self._publisher(progress, state_id).take(progress["batchId"], shard_commits(shards))
        except StateStoreError as failure:
            _LOG.warning("no head of batch %d of query %s: %s", progress["batchId"], progress["id"], failure)

    def _publisher(self, progress: Mapping[str, Any], state_id: str) -> HeadPublisher:
        run = progress["runId"]
        if (run, state_id) not in self._publishers:
            location, metadata = self._states[state_id]
            self._publishers[run, state_id] = HeadPublisher(
                location,
                state_id,
                metadata.shards,
                partial(where_it_began, location, metadata),
                query=progress["id"],
                run=run,
            )
        return self._publishers[run, state_id]
