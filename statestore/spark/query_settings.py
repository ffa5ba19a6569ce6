"""Spark settings for one query alone, not for its session.

    stateful() ── alias with the settings ──> plan ── start() ──> Spark's session for this run <── set, if at a default

Spark clones the session when a query starts, and records the number of state partitions with the query's first batch.
Settings made in the user's session would hold for every other query and batch job, too. So the plan carries them as the
name of an alias, whatever is put on top of it. Spark calls a listener before a run reads any setting; it finds them in
the plan and sets them in the clone. Settings that a checkpoint has recorded win.

Spark has no public API for the clone: it is reached by internal names of Spark 4.2, and a task of the first batch
checks that this worked. A client of Spark Connect can't reach it at all, so there the user's session is set.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from statestore.connect.config import Properties
from statestore.connect.converters.base import HeaderConverter
from statestore.connect.converters.registry import HEADER_CONVERTER, header_converter
from statestore.errors import StatePartitionsError
from statestore.spark.query_failure import failure_json
from statestore.spark.sessions import BATCH_ID, LISTENER, is_connect, listen
from statestore.spark.start_refusal import REFUSAL, refusal_at_start

_LOG = logging.getLogger(__name__)

PARTITIONS: Final = "spark.sql.shuffle.partitions"
STATE_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
SPARKS_DEFAULTS: Final = {
    PARTITIONS: "200",
    STATE_PROVIDER: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
"""Spark's defaults: only a setting that has its default is changed for a query."""

_OWN_PREFIX: Final = "spark.statestore."
_ALIAS: Final = "statestore settings "
_LOCATION: Final = "state_location"

_watched: WeakSet[SparkSession] = WeakSet()
"""The sessions that have a listener."""
_set_here: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
"""The settings made in sessions of Connect."""


def is_default(spark: SparkSession, name: str) -> bool:
    """Return whether a session has a setting by Spark's default, or from an earlier query here, not from the user."""
    return spark.conf.get(name) in (SPARKS_DEFAULTS[name], _set_here.get(spark, {}).get(name))


def session_properties(spark: SparkSession) -> dict[str, str]:
    """Return the session's settings `spark.statestore.*`, without `spark.` in their names."""
    known = spark.conf.getAll
    return {name.removeprefix("spark."): value for name, value in known.items() if name.startswith(_OWN_PREFIX)}


def session_header_converter(spark: SparkSession | None) -> HeaderConverter | None:
    """Return the converter that `spark.statestore.header.converter*` sets; None if unset. Raises ConfigException."""
    known = {} if spark is None else spark.conf.getAll
    properties = Properties(known).below(_OWN_PREFIX)
    is_said = any(name.startswith(HEADER_CONVERTER) for name in properties)
    return header_converter(properties) if is_said else None


def carry(rows: DataFrame, settings: Mapping[str, str], location: str) -> DataFrame:
    """Return `rows` such that each query of them runs with these settings, unless its session has others by then.

    When a query starts, its checkpoint and its sink are compared with `location`, that of the state. Under Connect the
    session itself is set, now, and nothing is compared. If a query has several numbers of partitions, the largest wins.
    """
    spark = rows.sparkSession
    if is_connect(spark):
        for name, value in settings.items():
            if spark.conf.get(name) != value:
                _LOG.info("setting %s to %s in this session, for all that is started in it from now on", name, value)
                spark.conf.set(name, value)
        _set_here.setdefault(spark, {}).update(settings)
        return rows
    if spark not in _watched:
        listen(spark, _StartListener(spark._jsparkSession.streams(), hadoop_files(spark)))
        _watched.add(spark)
    return rows.alias(_ALIAS + json.dumps({**settings, _LOCATION: location}, sort_keys=True))


def check_partitions(planned: int | None) -> None:
    """In a task of a first batch, raise StatePartitionsError if Spark uses its default instead of `planned`."""
    context = TaskContext.get()
    if planned is None or context is None or context.getLocalProperty(BATCH_ID) != "0":
        return
    partitions = context.getLocalProperty(PARTITIONS) or SPARKS_DEFAULTS[PARTITIONS]
    if partitions == SPARKS_DEFAULTS[PARTITIONS] != str(planned):
        raise StatePartitionsError(planned=planned, found=int(partitions))


def hadoop_files(spark: SparkSession) -> Callable[[str], tuple[Any, Any]]:
    """Return a function from a text to Hadoop's path and its filesystem."""
    jvm: Any = spark.sparkContext._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()

    def at(path: str) -> tuple[Any, Any]:
        found = jvm.org.apache.hadoop.fs.Path(path)
        return found, found.getFileSystem(configuration)

    return at


class _StartListener:
    """Sets what the plans of a session's queries carry."""

    class Java:
        implements = (LISTENER,)

    def __init__(self, queries: Any, hadoop: Callable[[str], tuple[Any, Any]]) -> None:
        self._queries = queries
        self._hadoop = hadoop

    def onQueryStarted(self, event: Any) -> None:
        """Set a query's settings before its run begins: Spark waits for this."""
        try:
            run = self._queries.get(event.id()).streamingQuery()
            carried = list(carried_by(run.analyzedPlan()))
            settings = settings_of(carried)
            conf = run.sparkSessionForStream().conf()
            for name, value in settings.items():
                if conf.get(name) == SPARKS_DEFAULTS[name]:
                    _LOG.info("query %s: setting %s to %s", event.id().toString(), name, value)
                    conf.set(name, value)
            refusal = refusal_at_start(run, self._hadoop, [each[_LOCATION] for each in carried])
            if refusal is not None:
                _LOG.error("query %s: %s", event.id().toString(), refusal)
                conf.set(REFUSAL, failure_json(refusal))
        except Exception:
            # Spark would only print the error. The first batch fails if the setting is missing.
            _LOG.exception("query %s: can't set what its stateful() needs", event.id().toString())

    def onQueryProgress(self, event: Any) -> None:
        """Do nothing."""

    onQueryIdle = onQueryTerminated = onQueryProgress


def settings_of(carried: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the settings that the operators of a query carry together."""
    settings: dict[str, str] = {}
    for each in carried:
        for name in SPARKS_DEFAULTS.keys() & each.keys():
            if name != PARTITIONS or int(each[name]) > int(settings.get(name, 0)):
                settings[name] = each[name]
    return settings


def carried_by(plan: Any) -> Iterator[dict[str, Any]]:
    """Yield what each `stateful()` operator in an analyzed plan of the JVM carries."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if node.nodeName() == "SubqueryAlias" and node.alias().startswith(_ALIAS):
            yield json.loads(node.alias().removeprefix(_ALIAS))
        children = node.children()
        waiting += [children.apply(number) for number in range(children.length())]
