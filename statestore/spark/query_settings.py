"""Spark settings of one query alone, which its session does not keep.

    stateful() ── alias with the settings ──> plan ── start() ──> Spark's session for this run <── set, if at a default

Spark clones the session when a query starts, and records the number of state partitions with the query's first batch.
What is set before, in the user's session, also holds for every other query and batch job of it. So the plan carries
the settings, as the name of an alias, through whatever is put on top of it. A listener, which Spark calls before a run
looks at any setting, finds them there and sets them in the clone. A checkpoint's own settings go before them.

Spark has no public way to the clone: it is asked for by the names of Spark 4.2, and a task of the first batch looks
whether that worked. A client of Spark Connect has no way at all: there the user's session is set.
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
from statestore.spark.sessions import BATCH_ID, is_connect
from statestore.spark.start_refusal import REFUSAL, refusal_at_start, to_setting

_LOG = logging.getLogger(__name__)

PARTITIONS: Final = "spark.sql.shuffle.partitions"
STATE_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
SPARKS_DEFAULTS: Final = {
    PARTITIONS: "200",
    STATE_PROVIDER: "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
}
"""What a setting is where nobody has set it: only then may it be another one for a query."""

_OWN_PREFIX: Final = "spark.statestore."
_ALIAS: Final = "statestore settings "
_LOCATION: Final = "state_location"
_ALIAS_NODE: Final = "SubqueryAlias"

_watched: WeakSet[SparkSession] = WeakSet()
"""The sessions that have a listener. One is enough, whatever is started there."""
_set_here: WeakKeyDictionary[SparkSession, dict[str, str]] = WeakKeyDictionary()
"""What was set in sessions of Connect."""


def is_default(spark: SparkSession, name: str) -> bool:
    """Return whether a setting of the session is at Spark's default, or at what an earlier query had set there."""
    return spark.conf.get(name) in (SPARKS_DEFAULTS[name], _set_here.get(spark, {}).get(name))


def session_properties(spark: SparkSession) -> dict[str, str]:
    """Return what the session sets for this project, `spark.statestore.*`, without `spark.`."""
    known = spark.conf.getAll
    return {name.removeprefix("spark."): value for name, value in known.items() if name.startswith(_OWN_PREFIX)}


def session_header_converter(spark: SparkSession | None) -> HeaderConverter | None:
    """Return what `spark.statestore.header.converter` and below say; None if nothing. Raises ConfigException."""
    known = {} if spark is None else spark.conf.getAll
    properties = Properties(known).below(_OWN_PREFIX)
    is_said = any(name.startswith(HEADER_CONVERTER) for name in properties)
    return header_converter(properties) if is_said else None


def carry(rows: DataFrame, settings: Mapping[str, str], location: str) -> DataFrame:
    """Return `rows`, such that each query of them runs with these settings, unless the session has others by then.

    When it starts, `location`, of a state, is compared with its checkpoint and its sink. Under Connect neither is
    so: the session itself is set, now. Of several numbers of partitions in one query, the largest holds.
    """
    spark = rows.sparkSession
    if is_connect(spark):
        _set_in_session(spark, settings)
        return rows
    if spark not in _watched:
        _add_listener(spark)
        _watched.add(spark)
    return rows.alias(_ALIAS + json.dumps({**settings, _LOCATION: location}, sort_keys=True))


def _set_in_session(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if spark.conf.get(name) != value:
            _LOG.info("setting %s to %s in this session: what is started in it from now on runs with that", name, value)
            spark.conf.set(name, value)
    _set_here.setdefault(spark, {}).update(settings)


def check_partitions(planned: int | None) -> None:
    """In a task of a first batch, raise StatePartitionsError if Spark's default holds instead of what was `planned`."""
    context = TaskContext.get()
    if planned is None or context is None or context.getLocalProperty(BATCH_ID) != "0":
        return
    partitions = context.getLocalProperty(PARTITIONS) or SPARKS_DEFAULTS[PARTITIONS]
    if partitions == SPARKS_DEFAULTS[PARTITIONS] != str(planned):
        raise StatePartitionsError(planned=planned, found=int(partitions))


def _add_listener(spark: SparkSession) -> None:
    # A client of Connect need not have py4j.
    from pyspark.java_gateway import ensure_callback_server_started

    context: Any = spark.sparkContext
    ensure_callback_server_started(context._gateway)  # type: ignore[no-untyped-call]
    queries = spark._jsparkSession.streams()
    listener = context._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper(
        _StartListener(queries, hadoop_files(spark))
    )
    queries.addListener(listener)


def hadoop_files(spark: SparkSession) -> Callable[[str], tuple[Any, Any]]:
    """Return a function that returns Hadoop's path of a text, and the filesystem that has it."""
    jvm: Any = spark.sparkContext._jvm
    configuration = spark._jsparkSession.sessionState().newHadoopConf()

    def at(path: str) -> tuple[Any, Any]:
        found = jvm.org.apache.hadoop.fs.Path(path)
        return found, found.getFileSystem(configuration)

    return at


class _StartListener:
    """Sets what the plans of a session's queries carry. pyspark's own base class would parse every progress as well."""

    class Java:
        implements = ("org.apache.spark.sql.streaming.PythonStreamingQueryListener",)

    def __init__(self, queries: Any, hadoop: Callable[[str], tuple[Any, Any]]) -> None:
        self._queries = queries
        self._hadoop = hadoop

    def onQueryStarted(self, event: Any) -> None:
        """Set them before the run begins: Spark waits for this."""
        try:
            run = self._queries.get(event.id()).streamingQuery()
            carried = list(_carried(run.analyzedPlan()))
            settings = _settings_of(carried)
            conf = run.sparkSessionForStream().conf()
            for name, value in settings.items():
                if conf.get(name) == SPARKS_DEFAULTS[name]:
                    _LOG.info("query %s: setting %s to %s", event.id().toString(), name, value)
                    conf.set(name, value)
            refusal = refusal_at_start(run, self._hadoop, [each[_LOCATION] for each in carried])
            if refusal is not None:
                _LOG.error("query %s: %s", event.id().toString(), refusal)
                conf.set(REFUSAL, to_setting(refusal))
        except Exception:
            # Spark would only print it. The first batch checks the setting, and fails without it.
            _LOG.exception("query %s: can't set what its stateful() needs", event.id().toString())

    def onQueryProgress(self, event: Any) -> None:
        """Nothing."""

    def onQueryIdle(self, event: Any) -> None:
        """Nothing."""

    def onQueryTerminated(self, event: Any) -> None:
        """Nothing."""


def settings_in(plan: Any) -> dict[str, str]:
    """Return the settings that an analyzed plan of the JVM carries."""
    return _settings_of(_carried(plan))


def _settings_of(carried: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    settings: dict[str, str] = {}
    for each in carried:
        for name in SPARKS_DEFAULTS.keys() & each.keys():
            if name != PARTITIONS or int(each[name]) > int(settings.get(name, 0)):
                settings[name] = each[name]
    return settings


def _carried(plan: Any) -> Iterator[dict[str, Any]]:
    """Yield what each operator of an analyzed plan of the JVM carries."""
    for node in _nodes(plan):
        if node.nodeName() == _ALIAS_NODE and node.alias().startswith(_ALIAS):
            yield json.loads(node.alias().removeprefix(_ALIAS))


def _nodes(plan: Any) -> Iterator[Any]:
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        yield node
        children = node.children()
        waiting += [children.apply(number) for number in range(children.length())]
