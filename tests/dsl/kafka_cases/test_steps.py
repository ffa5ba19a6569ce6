"""Steps of streams that keep no state, processors, and tables made of streams.

Kafka's KStreamFilterTest, KStreamMapTest, KStreamMapValuesTest, KStreamFlatMapTest, KStreamFlatMapValuesTest,
KStreamSelectKeyTest, KStreamForeachTest, KStreamPeekTest, KStreamSplitTest, KStreamRepartitionTest,
KStreamNewProcessorApiTest, KStreamImplValueJoinerWithKeyTest, and cases of KStreamImplTest and StreamsBuilderTest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore import Processor, ProcessorContext, Record, Stores
from statestore.dsl import JoinWindows, KStream, KTable, Materialized
from statestore.testing import TopologyTestDriver
from tests.support.dsl.kafka_cases import (
    INT,
    LONG,
    TEXT,
    CaseBuilder,
    CaseRun,
    Step,
    anything,
    case,
    numbered,
    of_cases,
    out,
    outs,
    pipe,
    plus,
    stored,
)

Program = Callable[[CaseBuilder], Any]


def numbers(step: str, *functions: Any, values: Any = TEXT, **options: Any) -> Program:
    """A step of a stream of int keys."""

    def program(builder: CaseBuilder) -> Any:
        stream = builder.stream("topic", key_serde=INT, value_serde=values)
        return getattr(stream, step)(*functions, **options)

    return program


def is_multiple_of_three(key: int, value: Any) -> bool:
    return key % 3 == 0


def tenfold(key: int, value: str) -> list[tuple[str, str]]:
    return [(str(key * 10 + number), value) for number in range(key)]


SEVEN = pipe("topic", *((key, f"V{key}", 0) for key in range(1, 8)))
LENGTHS = pipe("topic", (1, "1", 0), (10, "10", 5), (100, "100", 50), (1000, "1000", 500))

STEPS = {
    "filter": case(numbers("filter", is_multiple_of_three), SEVEN, out((3, "V3", 0), (6, "V6", 0))),
    "filter not": case(
        numbers("filter_not", is_multiple_of_three), SEVEN, out(*((key, f"V{key}", 0) for key in (1, 2, 4, 5, 7)))
    ),
    "map": case(
        numbers("map", lambda key, value: (value, key)),
        pipe("topic", (0, "V0", 10), (1, "V1", 9), (2, "V2", 8), (3, "V3", 7)),
        out(("V0", 0, 10), ("V1", 1, 9), ("V2", 2, 8), ("V3", 3, 7)),
    ),
    "map values": case(numbers("map_values", len), LENGTHS, out((1, 1, 0), (10, 2, 5), (100, 3, 50), (1000, 4, 500))),
    "map values with keys": case(
        numbers("map_values", lambda key, value: len(value) + key),
        LENGTHS,
        out((1, 2, 0), (10, 12, 5), (100, 103, 50), (1000, 1004, 500)),
    ),
    "flat map": case(
        numbers("flat_map", tenfold),
        pipe("topic", *numbered("V")),
        out("10 V1 at 0, 20 V2 at 0, 21 V2 at 0, 30 V3 at 0, 31 V3 at 0, 32 V3 at 0"),
    ),
    "flat map values": case(
        numbers("flat_map_values", lambda value: [f"v{value}", f"V{value}"], values=INT),
        pipe("topic", *((key, key, 0) for key in range(4))),
        out(*((key, f"{letter}{key}", 0) for key in range(4) for letter in "vV")),
    ),
    "flat map values with keys": case(
        numbers("flat_map_values", lambda key, value: [f"v{value}", f"k{key}"], values=INT),
        pipe("topic", *((key, key, 0) for key in range(4))),
        out(*((key, f"{letter}{key}", 0) for key in range(4) for letter in "vk")),
    ),
    "select key": case(
        lambda builder: builder.stream("topic", value_serde=INT).select_key(
            lambda key, value: {1: "ONE", 2: "TWO", 3: "THREE"}[value]
        ),
        pipe("topic", (None, 1, 0), (None, 2, 0), (None, 3, 0)),
        out(("ONE", 1, 0), ("TWO", 2, 0), ("THREE", 3, 0)),
    ),
    "should send data through repartition topic": case(
        lambda builder: builder.stream("topic").repartition(), pipe("topic", "a b at 0"), out("a b at 0")
    ),
}


test_steps = of_cases(STEPS)


def test_foreach() -> None:
    seen: list[tuple[int, str]] = []
    builder = CaseBuilder(in_columns=True)
    builder.stream("topic", key_serde=INT).foreach(lambda key, value: seen.append((key * 2, value.upper())))
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("topic", key_serde=INT, value_serde=TEXT)
        source.pipe_key_value_list([(0, "zero"), (1, "one"), (2, "two"), (3, "three")])
    assert seen == [(0, "ZERO"), (2, "ONE"), (4, "TWO"), (6, "THREE")]


def test_should_observe_stream_elements() -> None:
    peeked: list[tuple[int, str]] = []
    observed: list[tuple[int, str]] = []
    builder = CaseBuilder(in_columns=True)
    stream = builder.stream("topic", key_serde=INT).peek(lambda key, value: peeked.append((key, value)))
    stream.foreach(lambda key, value: observed.append((key, value)))
    given = [(key, f"V{key}") for key in range(32)]
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("topic", key_serde=INT, value_serde=TEXT).pipe_key_value_list(given)
    assert peeked == observed == given


# ---- Branches


def is_divisible_by(number: int) -> Callable[[int, Any], bool]:
    return lambda key, value: key % number == 0


def caught(builder: CaseBuilder, name: str) -> Callable[[KStream], None]:
    return lambda stream: builder.catch(stream, name)


def branches_that_are_used_up(builder: CaseBuilder) -> None:
    split = builder.stream("topic", key_serde=INT).split()
    for number in (2, 3, 5):
        split = split.branch(is_divisible_by(number), chain=caught(builder, f"x{number}"))
    assert split.no_default_branch() == {}


def resulting_map(builder: CaseBuilder) -> None:
    made = (
        builder.stream("topic", key_serde=INT)
        .split(name="foo-")
        .branch(is_divisible_by(2), name="bar")
        .branch(is_divisible_by(3), chain=lambda stream: None)
        .branch(is_divisible_by(5), chain=lambda stream: None)
        .branch(lambda key, value: key < 0, chain=lambda stream: stream)
        .branch(is_divisible_by(7))
        .default_branch()
    )
    assert set(made) == {"foo-bar", "foo-4", "foo-5", "foo-0"}
    for name, stream in made.items():
        builder.catch(stream, name.replace("-", "_"))


def branches_to_one_topic(builder: CaseBuilder) -> None:
    split = builder.stream("topic", key_serde=INT).split()
    for number in (2, 5):
        split.branch(is_divisible_by(number), chain=lambda stream: stream.to("output"))
    builder.catch(builder.stream("output", key_serde=INT))


def values(**expected: str) -> Step:
    def step(run: CaseRun) -> None:
        found = {name: [record.value for record in run.take(name)] for name in expected}
        assert found == {name: text.split() for name, text in expected.items()}

    return step


NINE = pipe("topic", *((key, f"V{key}", 0) for key in range(-1, 8)))

BRANCHES = {
    "split": case(branches_that_are_used_up, NINE, values(x2="V0 V2 V4 V6", x3="V3", x5="V5")),
    "resulting map": case(resulting_map, NINE, values(foo_bar="V0 V2 V4 V6", foo_4="V-1", foo_5="V7", foo_0="V1")),
    "branching with no terminal operation": case(branches_to_one_topic, NINE, values(out="V0 V2 V4 V5 V6")),
}


test_branches = of_cases(BRANCHES)
# ---- Topics


def written_and_read(builder: CaseBuilder) -> KStream:
    builder.stream("topic").to("to-topic", key_serde=TEXT, value_serde=TEXT)
    return builder.stream("to-topic")


def written_to_topics_by_record(builder: CaseBuilder) -> None:
    stream = builder.stream("topic")
    stream.to(lambda record, metadata: f"{metadata.topic}-{record.key}-{record.value[0]}")
    for key in ("a", "b"):
        builder.catch(builder.stream(f"topic-{key}-v"), key)


def sink_and_processor(builder: CaseBuilder) -> KStream:
    source = builder.stream("topic")
    source.to("topic-sink")
    return source


def stream_and_repartition(builder: CaseBuilder) -> None:
    source = builder.stream("topic")
    through = source.repartition()
    builder.catch(source, "source")
    builder.catch(through, "through")


def merged(*topics: str) -> Program:
    def program(builder: CaseBuilder) -> KStream:
        first, *others = (builder.stream(topic) for topic in topics)
        for other in others:
            first = first.merge(other)
        return first

    return program


TOPICS = {
    "should send data to topic using produced": case(written_and_read, pipe("topic", "e f at 0"), out("e f at 0")),
    "should send data to dynamic topics": case(
        written_to_topics_by_record,
        pipe("topic", "a v1 at 0, a v2 at 0, b v1 at 0"),
        outs(a="a v1 at 0, a v2 at 0", b="b v1 at 0"),
    ),
    "should process from sink topic": case(sink_and_processor, pipe("topic", "A aa at 0"), out("A aa at 0")),
    "should process via repartition topic": case(
        stream_and_repartition, pipe("topic", "A aa at 0"), outs(source="A aa at 0", through="A aa at 0")
    ),
    "should merge two streams": case(
        merged("one", "two"),
        pipe("one", "A aa at 0"),
        pipe("two", "B bb at 0, C cc at 0"),
        pipe("one", "D dd at 0"),
        out("A aa at 0, B bb at 0, C cc at 0, D dd at 0"),
    ),
    "should merge multiple streams": case(
        merged("one", "two", "three", "four"),
        pipe("one", "A aa at 1"),
        pipe("two", "B bb at 9"),
        pipe("three", "C cc at 2"),
        pipe("four", "D dd at 8, E ee at 3"),
        pipe("three", "F ff at 7"),
        pipe("two", "G gg at 4"),
        pipe("one", "H hh at 6"),
        out("A aa at 1, B bb at 9, C cc at 2, D dd at 8, E ee at 3, F ff at 7, G gg at 4, H hh at 6"),
    ),
}


test_topics = of_cases(TOPICS)
# ---- Processors and their stores


class Updating(Processor):
    """Puts each value, updated, into a store unless its key is there, and forwards it."""

    def init(self, context: ProcessorContext) -> None:
        self._context, self._store = context, context.state_store("store")

    def process(self, record: Record[Any, Any]) -> None:
        self._store.put_if_absent(record.key, record.value + "Updated")
        self._context.forward(record.with_value(record.value + "Updated"))


class Summing(Processor):
    """Sums the lengths of values."""

    def init(self, context: ProcessorContext) -> None:
        self._store = context.state_store("store")

    def process(self, record: Record[Any, Any]) -> None:
        self._store.put(record.key, (self._store.get(record.key) or 0) + len(record.value))


class Filling(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._store = context.state_store("store")

    def process(self, record: Record[Any, Any]) -> None:
        self._store.put(record.key, record.value)


class Measuring(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        self._context.forward(record.with_value(len(record.value)))


def with_store(builder: CaseBuilder, values: Any) -> CaseBuilder:
    supplier = Stores.in_memory_key_value_store("store")
    builder.add_state_store(Stores.key_value_store_builder(supplier, TEXT, values))
    return builder


def global_store(builder: CaseBuilder) -> None:
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("store"), TEXT, TEXT)
    builder.serdes["topic"] = TEXT, TEXT
    builder.add_global_store(store, "topic", Filling, key_serde=TEXT, value_serde=TEXT)


def plainly_stored(**expected: Any) -> Step:
    def step(run: CaseRun) -> None:
        held = run.driver.get_key_value_store("store")
        assert held is not None
        assert {key: held.get(key) for key in expected} == expected

    return step


SIX = pipe("topic", "A 0 at 5, B 00 at 100, C 000 at 0, D 0000 at 0, A 00000 at 10, A 000000 at 8")

PROCESSORS = {
    "should get state store with streams builder": case(
        lambda builder: with_store(builder, TEXT).stream("topic").process_values(Updating, "store"),
        pipe("topic", "a foo at 0, b bar at 0, c baz at 0"),
        out("a fooUpdated at 0, b barUpdated at 0, c bazUpdated at 0"),
        plainly_stored(a="fooUpdated", b="barUpdated", c="bazUpdated"),
    ),
    "should process with processor and state": case(
        lambda builder: with_store(builder, INT).stream("topic").process(Summing, "store", name="p"),
        SIX,
        plainly_stored(A=12, B=2, C=3, D=4),
    ),
    "should process values": case(
        lambda builder: builder.stream("topic").process_values(Measuring, name="fkp"),
        SIX,
        out("A 1 at 5, B 2 at 100, C 3 at 0, D 4 at 0, A 5 at 10, A 6 at 8", value=int),
    ),
    "should add global store": case(global_store, pipe("topic", "hey there at 0"), plainly_stored(hey="there")),
}


test_processors = of_cases(PROCESSORS)
# ---- Tables of streams


def kept_table(builder: CaseBuilder) -> KTable[KStream]:
    return builder.stream("topic").to_table(materialized=Materialized.as_("store").with_store_in_memory())


def table_by_other_keys(builder: CaseBuilder) -> KTable[KStream]:
    mapped = builder.stream("topic").map(
        lambda key, value: (ord(key[0]) - ord("A"), value), key_serde=INT, value_serde=TEXT
    )
    return mapped.to_table(materialized=Materialized.with_(INT, None))


def joined_tables(builder: CaseBuilder) -> KTable[KStream]:
    left, right = (builder.stream(topic).to_table() for topic in ("left", "right"))
    return left.join(right, plus)


def joined_with_table(builder: CaseBuilder) -> KStream:
    return builder.stream("left").join(builder.stream("right").to_table(), plus)


def counted_table(builder: CaseBuilder) -> KTable[KStream]:
    table = builder.stream("topic").to_table()
    return table.group_by(lambda key, value: (value, value), key_serde=TEXT, value_serde=TEXT).count()


def first_letters(builder: CaseBuilder) -> KTable[KStream]:
    kept = Materialized.as_("store").with_value_serde(INT)
    return builder.stream("topic").to_table().map_values(lambda value: ord(value[0]) - ord("a"), materialized=kept)


def read_with_serdes_of_materialized(builder: CaseBuilder) -> KTable[KStream]:
    kept = Materialized.as_("store").with_key_serde(LONG).with_value_serde(TEXT)
    made: KTable[KStream] = builder.table("topic", key_serde=LONG, materialized=kept)
    return made


TEXTS = "A 01 at 5, B 02 at 100, C 03 at 0, D 04 at 0, A 05 at 10, A 06 at 8"
COLORS = pipe("topic", "A green at 10, B green at 9, A blue at 12, C yellow at 15, D green at 11")
SIDES: tuple[Step, ...] = (
    pipe("right", "lhs1 rhsValue1 at 0, rhs2 rhsValue2 at 0, lhs3 rhsValue3 at 0"),
    out(),
    pipe("left", "lhs1 lhsValue1 at 0, lhs2 lhsValue2 at 0"),
    out("lhs1 lhsValue1+rhsValue1 at 0"),
    pipe("left", "lhs3 lhsValue3 at 0"),
    out("lhs3 lhsValue3+rhsValue3 at 0"),
    pipe("left", "lhs1 lhsValue4 at 0"),
    out("lhs1 lhsValue4+rhsValue1 at 0"),
)

TABLES = {
    "should not materialize a table from a stream": case(
        lambda builder: builder.stream("topic").to_table(), pipe("topic", TEXTS), out(TEXTS)
    ),
    "should materialize a table from a stream": case(
        kept_table,
        pipe("topic", "A 01 at 0, B 02 at 0, A 03 at 0"),
        anything,
        stored("store", {"A": ("03", 0), "B": ("02", 0)}),
    ),
    "should support key change of a table from a stream": case(
        table_by_other_keys,
        pipe("topic", TEXTS),
        out((0, "01", 5), (1, "02", 100), (2, "03", 0), (3, "04", 0), (0, "05", 10), (0, "06", 8)),
    ),
    "should support table-table join with tables from streams": case(joined_tables, *SIDES),
    "should support stream-table join with a table from a stream": case(joined_with_table, *SIDES),
    "should support group by and count of a table from a stream": case(
        counted_table,
        COLORS,
        out("green 1 at 10, green 2 at 10, green 1 at 12, blue 1 at 12, yellow 1 at 15, green 2 at 12", value=int),
    ),
    "should support a kept table mapped from a table from a stream": case(
        first_letters,
        COLORS,
        out("A 6 at 10, B 6 at 9, A 1 at 12, C 24 at 15, D 6 at 11", value=int),
        stored("store", {"A": (1, 12), "B": (6, 9), "C": (24, 15), "D": (6, 11)}),
    ),
    "should use serdes defined in materialized to consume table": case(
        read_with_serdes_of_materialized,
        pipe("topic", (1, "value1", 0), (2, "value2", 0)),
        out((1, "value1", 0), (2, "value2", 0)),
        stored("store", {1: ("value1", 0), 2: ("value2", 0)}),
    ),
}


test_tables_of_streams = of_cases(TABLES)
# ---- Joiners that take the key

A_DAY_OF_GRACE = JoinWindows.of_time_difference_and_grace(100, 24 * 3_600_000)


def with_key(key: str, left: int, right: int | None) -> str:
    return f"{key}:{left + (right or 0)}"


def joined_by(how: str, other: str) -> Program:
    def program(builder: CaseBuilder) -> KStream:
        left = builder.stream("left", value_serde=INT)
        sides: dict[str, Callable[[], tuple[Any, ...]]] = {
            "stream": lambda: (builder.stream("right", value_serde=INT), with_key, A_DAY_OF_GRACE),
            "table": lambda: (builder.table("right", value_serde=INT), with_key),
            "global table": lambda: (builder.global_table("right", value_serde=INT), lambda key, value: key, with_key),
        }
        joined: KStream = getattr(left, how)(*sides[other]())
        return joined

    return program


BY_KEY = {
    f"should include key in results of {how} with a {other}": case(
        joined_by(how, other),
        *(pipe(topic, ("A", {"left": 3, "right": 2}[topic], 0)) for topic in order),
        out(("A", "A:5", 0)),
    )
    for how, other, order in (
        ("join", "stream", ("left", "right")),
        ("left_join", "stream", ("left", "right")),
        ("outer_join", "stream", ("left", "right")),
        ("join", "table", ("right", "left")),
        ("left_join", "table", ("right", "left")),
        ("join", "global table", ("right", "left")),
        ("left_join", "global table", ("right", "left")),
    )
}


test_joiners_that_take_the_key = of_cases(BY_KEY)
