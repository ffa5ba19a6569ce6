"""Cases out of Kafka Streams' own tests: a program, what is piped into it, and what Kafka expects to come of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import pytest

from statestore import Processor, Record, Serde, Serdes, Windowed
from statestore.dsl import Change, KStream, KTable, StreamsBuilder
from statestore.testing import TestRecord, TopologyTestDriver

TEXT: Serde[Any] = Serdes.string()
INT: Serde[Any] = Serdes.int32()
LONG: Serde[Any] = Serdes.int64()

Row: TypeAlias = "tuple[Any, Any, int]"
"""Key, value and timestamp in milliseconds: Kafka's KeyValueTimestamp."""

Given: TypeAlias = "Row | str"
"""A row, or the text of several, as `rows` reads it."""

Way: TypeAlias = 'Literal["records", "columns"]'
"""Record by record, or each step's records as one micro-batch in columns."""


class CaseBuilder(StreamsBuilder):
    """A builder that knows how each topic it reads is written, and catches what comes out as it is."""

    def __init__(self, *, in_columns: bool) -> None:
        super().__init__(in_columns=in_columns)
        self.serdes: dict[str, tuple[Serde[Any], Serde[Any]]] = {}
        self.caught: dict[str, list[Record[Any, Any]]] = {"out": []}

    def stream(self, topics: Any, *, key_serde: Any = TEXT, value_serde: Any = TEXT, name: Any = None) -> KStream:
        for topic in [topics] if isinstance(topics, str) else topics:
            self.serdes[topic] = key_serde, value_serde
        return super().stream(topics, key_serde=key_serde, value_serde=value_serde, name=name)

    def table(self, topic: str, *, key_serde: Any = TEXT, value_serde: Any = TEXT, **options: Any) -> Any:
        self.serdes[topic] = key_serde, value_serde
        return super().table(topic, key_serde=key_serde, value_serde=value_serde, **options)

    def global_table(self, topic: str, *, key_serde: Any = TEXT, value_serde: Any = TEXT, **options: Any) -> Any:
        self.serdes[topic] = key_serde, value_serde
        return super().global_table(topic, key_serde=key_serde, value_serde=value_serde, **options)

    def catch(self, made: KStream | KTable[KStream], name: str = "out") -> None:
        """Let `out(name=...)` see what comes out of a stream or a table."""
        stream = made.to_stream() if isinstance(made, KTable) else made
        stream.process(partial(Catching, self.caught.setdefault(name, [])))


class Catching(Processor):
    def __init__(self, caught: list[Record[Any, Any]]) -> None:
        self._caught = caught

    def process(self, record: Record[Any, Any]) -> None:
        self._caught.append(record)


class CaseRun(NamedTuple):
    """A driver of a case's program."""

    driver: TopologyTestDriver
    builder: CaseBuilder
    way: Way

    def pipe(self, topic: str, records: Iterable[TestRecord[Any, Any]]) -> None:
        keys, values = self.builder.serdes[topic]
        source = self.driver.create_input_topic(topic, key_serde=keys, value_serde=values)
        (source.pipe_record_list if self.way == "records" else source.pipe_micro_batch)(list(records))

    def take(self, name: str) -> list[Record[Any, Any]]:
        """Return what came out since the last call."""
        caught = self.builder.caught[name]
        taken, caught[:] = caught[:], []
        return taken


Step = Callable[[CaseRun], None]


class Case(NamedTuple):
    """A function that makes a program of a builder, and the steps of the test.

    What the function returns is caught as "out".
    """

    program: Callable[[CaseBuilder], KStream | KTable[KStream] | None]
    steps: tuple[Step, ...]

    def run(self, way: Way = "records") -> None:
        builder = CaseBuilder(in_columns=way == "columns")
        made = self.program(builder)
        if made is not None:
            builder.catch(made)
        with TopologyTestDriver(builder.build()) as driver:
            run = CaseRun(driver, builder, way)
            for step in self.steps:
                step(run)
            left_over = {name: rows for name in builder.caught if (rows := _rows(run.take(name)))}
            assert left_over == {}


def case(program: Callable[[CaseBuilder], Any], *steps: Step) -> Case:
    return Case(program, steps)


def of_cases(cases: Mapping[str, Case], way: Way = "records") -> Callable[..., None]:
    """Return a test that runs each case."""

    @pytest.mark.parametrize("case", cases.values(), ids=cases)
    def run(case: Case) -> None:
        case.run(way)

    return run


def of_cases_both_ways(cases: Mapping[str, Case]) -> Callable[..., None]:
    """Return a test that runs each case in both ways: for programs whose first step takes columns."""
    ways: tuple[Way, ...] = ("records", "columns")
    each = [pytest.param(case, way, id=f"{name}, {way}") for name, case in cases.items() for way in ways]

    @pytest.mark.parametrize(("case", "way"), each)
    def run(case: Case, way: Way) -> None:
        case.run(way)

    return run


# ---- Steps


def pipe(topic: str, *records: Given) -> Step:
    """Pipe records of key, value and timestamp."""
    given = _all(records)
    return lambda run: run.pipe(topic, [TestRecord(*row) for row in given])


def out(*expected: Given, name: str = "out", value: Callable[[str], Any] = str) -> Step:
    """Exactly this came out since the last such step, in this order."""
    wanted = _all(expected, value)

    def step(run: CaseRun) -> None:
        assert _rows(run.take(name)) == wanted

    return step


def anything(run: CaseRun) -> None:
    """Kafka's test does not look at what came out."""
    run.take("out")


def out_by_key(*expected: Given, value: Callable[[str], Any] = str) -> Step:
    """The same, sorted by key and start of the window, as Kafka's test compares it."""
    wanted = _all(expected, value)

    def step(run: CaseRun) -> None:
        assert sorted(_rows(run.take("out")), key=_key_and_start) == wanted

    return step


def out_in_any_order(*expected: Given) -> Step:
    """These rows came out, once or several times: what Kafka's test gathers in sets."""
    wanted = set(_all(expected))

    def step(run: CaseRun) -> None:
        assert set(_rows(run.take("out"))) == wanted

    return step


def outs(**expected: str) -> Step:
    """Exactly these rows, as `rows` reads them, came out of several streams or tables."""
    wanted = {name: rows(text) for name, text in expected.items()}

    def step(run: CaseRun) -> None:
        assert {name: _rows(run.take(name)) for name in wanted} == wanted

    return step


def last(*expected: Given, value: Callable[[str], Any] = str) -> Step:
    """The last row of each key that Kafka's test looks at."""
    wanted = _all(expected, value)

    def step(run: CaseRun) -> None:
        found = {row[0]: row for row in _rows(run.take("out"))}
        assert [found.get(row[0]) for row in wanted] == wanted

    return step


def stored(store: str, expected: Mapping[Any, tuple[Any, int] | None]) -> Step:
    """What a key-value store holds of these keys: the value and its timestamp; None for nothing."""

    def step(run: CaseRun) -> None:
        held = run.driver.get_timestamped_key_value_store(store)
        assert held is not None
        found = {key: held.get(key) for key in expected}
        assert {key: each and (each.value, each.timestamp_ms) for key, each in found.items()} == expected

    return step


def windows(store: str, *expected: Given, value: Callable[[str], Any] = str) -> Step:
    """All that a window store holds: windows, their values and timestamps, by key and start."""
    wanted = _all(expected, value)

    def step(run: CaseRun) -> None:
        held = run.driver.get_timestamped_window_store(store)
        assert held is not None
        with held.all() as found:
            rows = [(key, each.value, each.timestamp_ms) for key, each in found]
        assert sorted(rows, key=_key_and_start) == wanted

    return step


def restarted(run: CaseRun) -> None:
    """The program stops and starts again."""
    run.driver.restart()


def restored(run: CaseRun) -> None:
    """The program starts again without its stores, which it makes anew from the changelogs."""
    run.driver.restart(restore_from="changelog")


def sessions(store: str, *expected: tuple[Windowed, Any]) -> Step:
    """All that a session store holds: sessions and their values, by key."""

    def step(run: CaseRun) -> None:
        held = run.driver.get_session_store(store)
        assert held is not None
        with held.fetch(None, None) as found:
            assert sorted(found, key=lambda session: (session[0].key, session[0].end_ms)) == list(expected)

    return step


def dropped(count: int) -> Step:
    """So many records were left out, by all nodes together."""

    def step(run: CaseRun) -> None:
        counted = run.driver.metrics()
        assert sum(number for name, number in counted.items() if name.endswith(".dropped_records")) == count

    return step


# ---- Records as Kafka's tests make them


def numbered(prefix: str, count: int = 4, at_ms: int = 0, step_ms: int = 0) -> list[Row]:
    """Keys 0, 1, ... with values "A0", "A1", ..."""
    return [(key, f"{prefix}{key}", at_ms + key * step_ms) for key in range(count)]


def rows(text: str, value: Callable[[str], Any] = str) -> list[Row]:
    """Rows such as "A 1 at 0, A@0/10 null at 5": the key of a window as Kafka shows it, and null for None."""
    made: list[Row] = []
    for row in text.split(", ") if text else ():
        shown, held, _, timestamp_ms = row.split(" ")
        key, at, window = shown.partition("@")
        start_ms, _, end_ms = window.partition("/")
        whose = Windowed(key, int(start_ms), int(end_ms)) if at else key
        made.append((whose, None if held == "null" else value(held), int(timestamp_ms)))
    return made


def changed(key: Any, new: Any, old: Any, timestamp_ms: int) -> Row:
    return key, Change(new, old, True), timestamp_ms


def plus(left: Any, right: Any) -> str:
    """Kafka's MockValueJoiner and MockReducer."""
    return "+".join("null" if side is None else str(side) for side in (left, right))


def _all(given: Iterable[Given], value: Callable[[str], Any] = str) -> list[Row]:
    return [row for each in given for row in (rows(each, value) if isinstance(each, str) else (each,))]


def _rows(records: Iterable[Record[Any, Any]]) -> list[Row]:
    return [(record.key, record.value, record.timestamp_ms) for record in records]


def _key_and_start(row: Row) -> Any:
    key = row[0]
    return (key.key, key.start_ms) if isinstance(key, Windowed) else key
