"""Runs programs of the DSL through statestore's own, and compares what came of it with what Kafka Streams gave."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from typing import Any

from statestore import Headers, Processor, ProcessorContext, Record, Serde, Serdes, Stores, Topology
from statestore.dsl.joins.joined import Joined, StreamJoined
from statestore.dsl.ktable import KTable
from statestore.dsl.materialized import Materialized
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.dsl.suppressed import BufferConfig, EmitStrategy, Suppressed
from statestore.dsl.windowed_serdes import session_windowed_serde, time_windowed_serde
from statestore.dsl.windows import JoinWindows, SessionWindows, SlidingWindows, TimeWindows
from statestore.errors import SuppressionBufferFullError
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.java.driver import Step
from tests.support.java.dsl import DslScenario, files_in_memory
from tests.support.twins.driver import Run
from tests.support.twins.dsl_comparing import is_changelog
from tests.support.twins.dsl_functions import (
    AGGREGATORS,
    FLAT_MAPPERS,
    FOREIGN_KEYS,
    JOINERS,
    KEYS,
    MAPPERS,
    PAIRS,
    PREDICATES,
    REDUCERS,
)
from tests.support.twins.kit import text

SERDES: dict[str, Serde[Any]] = {"string": Serdes.string(), "long": Serdes.int64()}
NARROWED_MS = 1_000_000
"""A time difference that before and after replace; each may be negative, if the other makes up for it."""
AGGREGATIONS = ("count", "reduce", "aggregate")


class Interpreter:
    """Builds what the statements of a program say. A method for each op; of some, one for streams and tables."""

    def __init__(self, scenario: DslScenario) -> None:
        self._scenario = scenario
        self._made: dict[str, Any] = {}
        self.builder = StreamsBuilder()

    def build(self) -> StreamsBuilder:
        for statement in self._scenario.program.statements:
            made = getattr(self, "_" + statement["op"])(statement)
            if made is not None:
                self._made[statement["id"]] = made
        return self.builder

    # ---- Where programs begin and end

    def _stream(self, statement: dict[str, Any]) -> Any:
        return self.builder.stream(statement["topic"], **_serdes(statement), **_named(statement))

    def _table(self, statement: dict[str, Any]) -> Any:
        return self.builder.table(
            statement["topic"], **_serdes(statement), **_named(statement), **self._stored_always(statement)
        )

    def _to(self, statement: dict[str, Any]) -> None:
        self._of(statement).to(statement["topic"], **_serdes(statement), **_named(statement))

    def _changes(self, statement: dict[str, Any]) -> None:
        topic, of = statement["topic"], self._of(statement)
        serdes = {**_serdes(statement), "value_serde": CHANGES}
        of.changes(name=f"{topic}-changes").to(topic, **serdes, name=f"{topic}-sink")

    # ---- Steps without state

    def _filter(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, PREDICATES[statement["predicate"]])

    _filter_not = _filter

    def _map_values(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, MAPPERS[statement["mapper"]], value_serde=SERDES[statement["value"]])

    def _flat_map_values(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, FLAT_MAPPERS[statement["mapper"]], value_serde=SERDES[statement["value"]])

    def _map(self, statement: dict[str, Any]) -> Any:
        pairs = PAIRS[statement["mapper"]]
        return self._step(statement, lambda key, value: pairs(key, value)[0], value_serde=SERDES[statement["value"]])

    def _flat_map(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, PAIRS[statement["mapper"]], value_serde=SERDES[statement["value"]])

    def _foreach(self, statement: dict[str, Any]) -> None:
        self._step(statement, lambda key, value: None)

    def _split(self, statement: dict[str, Any]) -> Any:
        return self._step(statement)

    def _branch(self, statement: dict[str, Any]) -> None:
        self._of(statement).branch(PREDICATES[statement["predicate"]], **self._kept_branch(statement))

    def _default_branch(self, statement: dict[str, Any]) -> None:
        self._of(statement).default_branch(**self._kept_branch(statement))

    def _kept_branch(self, statement: dict[str, Any]) -> dict[str, Any]:
        """The options of a branch whose stream is what its statement makes."""
        return {"chain": partial(self._made.__setitem__, statement["id"]), **_named(statement)}

    def _merge(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, self._made[statement["other"]])

    def _to_stream(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, _new_key(statement)) if "mapper" in statement else self._step(statement)

    def _state_store(self, statement: dict[str, Any]) -> None:
        supplier = Stores.in_memory_key_value_store(statement["name"])
        self.builder.add_state_store(Stores.key_value_store_builder(supplier, SERDES["string"], SERDES["long"]))

    def _process(self, statement: dict[str, Any]) -> Any:
        numbered = partial(Numbered, statement["store"], with_values=statement["op"] == "process")
        return self._step(statement, numbered, statement["store"])

    _process_values = _process

    def _to_table(self, statement: dict[str, Any]) -> Any:
        stored = self._stored_always(statement)
        return self._of(statement).to_table(**_named(statement), **stored)

    def _select_key(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, _new_key(statement))

    def _repartition(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, **_serdes(statement))

    def _step(self, statement: dict[str, Any], *arguments: Any, **options: Any) -> Any:
        step = getattr(self._of(statement), statement["op"])
        return step(*arguments, **options, **_named(statement), **self._stored(statement))

    # ---- Aggregations

    def _group_by_key(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, **_serdes(statement))

    def _group_by(self, statement: dict[str, Any]) -> Any:
        return self._step(statement, _new_key(statement), **_serdes(statement))

    def _group_table(self, statement: dict[str, Any]) -> Any:
        pairs = PAIRS[statement["mapper"]]
        return self._of(statement).group_by(
            lambda key, value: pairs(key, value)[0], **_serdes(statement), **_named(statement)
        )

    def _cogroup(self, statement: dict[str, Any]) -> Any:
        of, aggregator = self._of(statement), AGGREGATORS[statement["aggregator"]]
        return (
            self._made[statement["other"]].cogroup(of, aggregator) if "other" in statement else of.cogroup(aggregator)
        )

    def _windowed_by(self, statement: dict[str, Any]) -> Any:
        grace_ms = statement["grace_ms"]
        if statement["kind"] == "time":
            tumbling = TimeWindows.of_size_and_grace(statement["size_ms"], grace_ms)
            advance_ms = statement.get("advance_ms")
            return self._of(statement).windowed_by(tumbling if advance_ms is None else tumbling.advance_by(advance_ms))
        if statement["kind"] == "sliding":
            sliding = SlidingWindows.of_time_difference_and_grace(statement["difference_ms"], grace_ms)
            return self._of(statement).windowed_by(sliding)
        sessions = SessionWindows.of_inactivity_gap_and_grace(statement["gap_ms"], grace_ms)
        return self._of(statement).windowed_by(sessions)

    def _emit_strategy(self, statement: dict[str, Any]) -> Any:
        strategy = getattr(EmitStrategy, f"on_{statement['on']}")()
        return self._of(statement).emit_strategy(strategy)

    def _count(self, statement: dict[str, Any]) -> Any:
        return self._of(statement).count(**_named(statement), **self._stored(statement))

    def _reduce(self, statement: dict[str, Any]) -> Any:
        reducers = [REDUCERS[statement[part]] for part in ("reducer", "subtractor") if part in statement]
        return self._of(statement).reduce(*reducers, **_named(statement), **self._stored_always(statement))

    def _aggregate(self, statement: dict[str, Any]) -> Any:
        functions: list[Callable[..., Any]] = [
            AGGREGATORS[statement[part]] for part in ("aggregator", "subtractor") if part in statement
        ]
        if "merger" in statement:
            both = REDUCERS[statement["merger"]]
            functions.append(lambda key, left, right: both(left, right))
        return self._of(statement).aggregate(
            partial(_itself, statement["initial"]), *functions, **_named(statement), **self._stored_always(statement)
        )

    # ---- Joins

    def _global_table(self, statement: dict[str, Any]) -> Any:
        return self.builder.global_table(
            statement["topic"], **_serdes(statement), **_named(statement), **self._stored_always(statement)
        )

    def _join(self, statement: dict[str, Any]) -> Any:
        join = getattr(self._of(statement), statement["op"])
        other, joiner, kind = self._made[statement["other"]], JOINERS[statement["joiner"]], statement["kind"]
        values = SERDES[statement["left_value"]], SERDES[statement["right_value"]]
        options = {**_named(statement), "headers": "latest", "value_serde": SERDES[statement["value"]]}
        if kind == "stream":
            if statement["op"] != "join":
                options["headers"] = "none"  # there they get lost while records wait
            any_windows = JoinWindows.of_time_difference_and_grace(NARROWED_MS, statement["grace_ms"])
            windows = any_windows.before(statement["before_ms"]).after(statement["after_ms"])
            stored = StreamJoined.with_(SERDES["string"], *values)
            if not self._scenario.persistent_here:
                stored = stored.with_stores_in_memory()
            if "store_name" in statement:
                stored = stored.with_store_name(statement["store_name"])
            return join(other, joiner, windows, stored, **options)
        if kind == "foreign_key":
            key_of = FOREIGN_KEYS[statement["foreign_key"]]
            return join(other, joiner, foreign_key=key_of, **options, **self._stored_always(statement))
        if kind == "global_table":
            return join(other, KEYS[statement["key_mapper"]], joiner, **options)
        if isinstance(self._of(statement), KTable):
            return join(other, joiner, **options, **self._stored(statement))
        joined = Joined.with_(SERDES["string"], values[0])
        if "grace_ms" in statement:
            joined = joined.with_grace_period(statement["grace_ms"])
        return join(other, joiner, joined, **options)

    _left_join = _outer_join = _join

    def _suppress(self, statement: dict[str, Any]) -> Any:
        buffer = BufferConfig.unbounded()
        if "max_records" in statement:
            buffer = BufferConfig.max_records(statement["max_records"])
        if "max_bytes" in statement:
            bound = statement["max_bytes"]
            is_first = "max_records" not in statement
            buffer = BufferConfig.max_bytes(bound) if is_first else buffer.with_max_bytes(bound)
        if "full" in statement:
            emits = statement["full"] == "emit_early"
            buffer = buffer.emit_early_when_full() if emits else buffer.shut_down_when_full()
        if statement["until"] == "window_closes":
            suppressed = Suppressed.until_window_closes(buffer)
        else:
            suppressed = Suppressed.until_time_limit(statement["limit_ms"], buffer)
        return self._of(statement).suppress(
            suppressed.with_name(statement["name"]) if "name" in statement else suppressed
        )

    # ---- Parts of statements

    def _of(self, statement: dict[str, Any]) -> Any:
        return self._made[statement["of"]]

    def _stored(self, statement: dict[str, Any]) -> dict[str, Any]:
        """The option of where a table is kept, if the statement says."""
        asked = statement.get("materialized")
        if asked is None:
            return {}
        if "history_ms" in asked:
            made = Materialized.as_versioned(asked["name"], asked["history_ms"])
        else:
            made = Materialized.as_(asked["name"]) if "name" in asked else Materialized()
        if "retention_ms" in asked:
            made = made.with_retention(asked["retention_ms"])
        if not self._scenario.persistent_here:
            made = made.with_store_in_memory()
        if self._scenario.caching:
            made = made.with_caching_enabled()
        return {"materialized": made.or_serdes(**self._stored_serdes(statement))}

    def _stored_always(self, statement: dict[str, Any]) -> dict[str, Any]:
        """Likewise, where no name does not count."""
        return self._stored({"materialized": {}, **statement})

    @staticmethod
    def _stored_serdes(statement: dict[str, Any]) -> dict[str, Serde[Any]]:
        # Aggregations put the window into the key themselves.
        return _serdes({**statement, "key": "string"} if statement["op"] in AGGREGATIONS else statement)


class Numbered(Processor):
    """Sends on each value with how many its key has had, and each number by its value, if it is `with_values`."""

    def __init__(self, store: str, *, with_values: bool) -> None:
        self._name, self._with_values = store, with_values

    def init(self, context: ProcessorContext) -> None:
        self._context, self._numbers = context, context.state_store(self._name)

    def process(self, record: Record[Any, Any]) -> None:
        number = 0
        if record.key is not None:
            number = (self._numbers.get(record.key) or 0) + 1
            self._numbers.put(record.key, number)
        self._context.forward(record.with_value(f"{number}:{text(record.value)}"))
        if self._with_values:
            self._context.forward(record.with_key(text(record.value)).with_value(str(number)))


def _change_bytes(change: Any) -> bytes:
    return f"{text(change.old)}->{text(change.new)}".encode()


def _not_read(data: bytes) -> Any:
    raise NotImplementedError


CHANGES: Serde[Any] = Serdes.of("change", _change_bytes, _not_read)


def _new_key(statement: dict[str, Any]) -> Callable[[Any, Any], Any]:
    mapper = MAPPERS[statement["mapper"]]
    return lambda key, value: mapper(value)


def _itself(value: Any) -> Any:
    return value


def _serdes(statement: dict[str, Any]) -> dict[str, Serde[Any]]:
    kind = statement.get("key", "string")
    keys = SERDES["string"]
    if kind == "windowed":
        keys = time_windowed_serde(keys, statement["size_ms"])
    elif kind == "session":
        keys = session_windowed_serde(keys)
    return {"key_serde": keys, "value_serde": SERDES[statement["value"]]}


def _named(statement: dict[str, Any]) -> dict[str, str]:
    return {"name": statement["name"]} if "name" in statement else {}


# ---- Running and comparing


def run_dsl_here(scenario: DslScenario) -> dict[str, Any]:
    """What a scenario gives, in the shape of RunDsl.java's results."""
    return _run(scenario, scenario.steps, {})


def run_in_batches_here(scenario: DslScenario) -> dict[str, Any]:
    """What a scenario gives if records of one topic in a row make a micro-batch: all is emitted at the end."""
    with _driver(scenario, Interpreter(scenario).build().build()) as driver:
        run = Run(scenario.steps, driver)
        for topic, steps in groupby(scenario.steps, lambda step: step[1] if step[0] == "pipe" else None):
            if topic is not None:
                run.pipe_micro_batch(topic, steps)
            else:
                for step in steps:
                    run.perform(step)
        return {"emitted": [], "topics": _news(run), "dropped": _dropped(driver)}


def go_on_here(scenario: DslScenario, there: dict[str, Any], first: int) -> dict[str, Any]:
    """What a scenario gives whose first steps were done there: state comes from what Kafka Streams logged of it."""
    changelogs: dict[str, list[TestRecord[Any, Any]]] = {}
    for step in there["emitted"][:first]:
        for topic, records in step.items():
            if is_changelog(topic):
                store = topic.removeprefix("app-").removesuffix("-changelog")
                changelogs.setdefault(store, []).extend(map(_logged, records))
    result = _run(scenario, scenario.steps[first:], changelogs)
    return {**result, "emitted": [*there["emitted"][:first], *result["emitted"]]}


def _driver(
    scenario: DslScenario, topology: Topology, changelogs: dict[str, list[TestRecord[Any, Any]]] | None = None
) -> TopologyTestDriver:
    with _temporary_files_in_memory():
        return TopologyTestDriver(
            topology,
            application_id="app",
            initial_wall_clock_time_ms=scenario.initial_wall_clock_ms,
            changelogs=changelogs,
        )


def step_of_all_times(scenario: DslScenario, there: dict[str, Any]) -> int | None:
    """The number of a step after the first half that has the latest time so far, and is logged by all stores.

    What goes on with it knows what was late before: what time a node has seen is in no changelog. None if there is no
    such step.
    """
    logged = {topic for step in there["emitted"] for topic in step if is_changelog(topic)}
    latest_ms = -1
    for number, (step, emitted) in enumerate(zip(scenario.steps, there["emitted"], strict=True)):
        if step[0] == "pipe" and step[4] >= latest_ms:
            latest_ms = step[4]
            if number >= len(scenario.steps) // 2 and logged <= emitted.keys():
                return number
    return None


def _run(
    scenario: DslScenario, steps: tuple[Step, ...], changelogs: dict[str, list[TestRecord[Any, Any]]]
) -> dict[str, Any]:
    topology = Interpreter(scenario).build().build()
    result: dict[str, Any] = {"describe": str(topology.describe())}
    with _driver(scenario, topology, changelogs) as driver:
        run, emitted = Run(scenario.steps, driver), []
        for step in steps:
            try:
                outcome = run.outcome(step)
            except SuppressionBufferFullError as failure:
                outcome = {"error": [str(failure)]}
            emitted.append(_news(run) if outcome is None else outcome)
            if outcome is not None:
                return {**result, "emitted": emitted}
        result["emitted"] = emitted
        result["dropped"] = _dropped(driver)
        result["stores"] = run.stores()
        result["topics"] = _news(run)
    return result


def _dropped(driver: TopologyTestDriver) -> float:
    """How many records were left out that Kafka counts: none without a key before a repartition topic."""
    metrics = driver.metrics()
    filters = (name for name in metrics if name.startswith("KSTREAM-FILTER-") or "-repartition-filter." in name)
    return metrics["dropped-records-total"] - sum(metrics[name] for name in filters)


def _logged(record: list[Any]) -> TestRecord[Any, Any]:
    key, value, timestamp_ms, headers = record
    held = Headers((name, None if data is None else bytes.fromhex(data)) for name, data in headers)
    # What a buffer logs has the time of writing there, and none in the test driver.
    return TestRecord(bytes.fromhex(key), None if value is None else bytes.fromhex(value), timestamp_ms or 0, held)


@contextmanager
def _temporary_files_in_memory() -> Iterator[None]:
    """Have drivers that are made inside of the `with` keep their files in memory, where there is a place for it."""
    before = tempfile.tempdir
    tempfile.tempdir = files_in_memory()
    try:
        yield
    finally:
        tempfile.tempdir = before


def _news(run: Run) -> dict[str, Any]:
    """What no step has read, of topics that have any."""
    return {topic: records for topic, records in run.topics().items() if records}
