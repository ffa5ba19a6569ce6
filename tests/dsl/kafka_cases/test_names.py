"""Names that a program gives and that are made up, stores that steps look into, and what is refused.

Kafka's StreamsBuilderTest, and what its tests of streams, tables and groups refuse.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from statestore import Processor, Stores
from statestore.dsl import JoinWindows, Materialized, SessionWindows, SlidingWindows, StreamJoined, TimeWindows
from statestore.errors import TopologyError
from tests.support.dsl.kafka_cases import TEXT, CaseBuilder, plus
from tests.support.dsl.kafka_programs import add, remove, zero

Program = Callable[[CaseBuilder], object]

NAME = "stream-operation"
WITHIN_AN_HOUR = JoinWindows.of_time_difference_with_no_grace(3_600_000)
SOURCE = "KSTREAM-SOURCE-0000000000"


def described(program: Program) -> str:
    builder = CaseBuilder(in_columns=True)
    program(builder)
    return str(builder.build().describe())


def true(key: Any, value: Any) -> bool:
    return True


def same(key: Any, value: Any) -> Any:
    return key, value


# ---- Nodes


def sources(builder: CaseBuilder) -> None:
    for stream in (builder.stream("one", name="source-node"), builder.stream("two")):
        stream.foreach(same)


def table_sources(builder: CaseBuilder) -> None:
    builder.table("one", name="source-node")
    builder.table("two")


def sinks(builder: CaseBuilder) -> None:
    stream = builder.stream("one")
    stream.to("two", name="sink-processor")
    stream.to("two")


def split(builder: CaseBuilder) -> None:
    branches = builder.stream("one").split(name="branch-processor")
    branches.branch(true, name="-1").branch(true, name="-2")


def with_table(how: str) -> Program:
    def program(builder: CaseBuilder) -> None:
        stream, table = builder.stream("one"), builder.table("two")
        getattr(stream, how)(table, plus, name=NAME)

    return program


def streams(how: str, *, names_stores: bool) -> Program:
    def program(builder: CaseBuilder) -> None:
        left, right = builder.stream("one"), builder.stream("two")
        joined = StreamJoined.with_(TEXT, TEXT, TEXT)
        stored = joined.with_store_name(NAME) if names_stores else joined
        getattr(left, how)(right, plus, WITHIN_AN_HOUR, stored, name=NAME)

    return program


def grouped_table(builder: CaseBuilder) -> None:
    group = builder.table("one").group_by(same, key_serde=TEXT, value_serde=TEXT, name="group-operation")
    group.count(name=NAME)


def global_store(name: str | None) -> Program:
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("store"), TEXT, TEXT)
    return lambda builder: builder.add_global_store(
        store, "topic", Processor, key_serde=TEXT, value_serde=TEXT, name=name
    )


def joined_nodes(this: str, other: str) -> set[str]:
    suffixes = ("this-windowed", "other-windowed", this, other, "merge")
    return {SOURCE, "KSTREAM-SOURCE-0000000001", *(f"{NAME}-{suffix}" for suffix in suffixes)}


NODES: dict[str, tuple[Program, set[str]]] = {
    "stream source": (sources, {"source-node", "KSTREAM-SOURCE-0000000001"}),
    "table source": (
        table_sources,
        {"source-node-source", "source-node", "KSTREAM-SOURCE-0000000004", "KTABLE-SOURCE-0000000005"},
    ),
    "sink": (sinks, {SOURCE, "sink-processor", "KSTREAM-SINK-0000000002"}),
    "map": (lambda builder: builder.stream("one").map(same, name=NAME), {SOURCE, NAME}),
    "map values": (lambda builder: builder.stream("one").map_values(str, name=NAME), {SOURCE, NAME}),
    "map values with key": (lambda builder: builder.stream("one").map_values(same, name=NAME), {SOURCE, NAME}),
    "filter": (lambda builder: builder.stream("one").filter(true, name=NAME), {SOURCE, NAME}),
    "foreach": (lambda builder: builder.stream("one").foreach(true, name=NAME), {SOURCE, NAME}),
    "process values": (lambda builder: builder.stream("one").process_values(Processor, name=NAME), {SOURCE, NAME}),
    "process": (lambda builder: builder.stream("one").process(Processor, name=NAME), {SOURCE, NAME}),
    "split": (split, {SOURCE, "branch-processor", "branch-processor-1", "branch-processor-2"}),
    "join of a stream and a table": (
        with_table("join"),
        {SOURCE, "KSTREAM-SOURCE-0000000002", "KTABLE-SOURCE-0000000003", NAME},
    ),
    "left join of a stream and a table": (
        with_table("left_join"),
        {SOURCE, "KSTREAM-SOURCE-0000000002", "KTABLE-SOURCE-0000000003", NAME},
    ),
    "join of streams": (streams("join", names_stores=True), joined_nodes("this-join", "other-join")),
    "left join of streams": (streams("left_join", names_stores=True), joined_nodes("this-join", "outer-other-join")),
    "outer join of streams": (
        streams("outer_join", names_stores=True),
        joined_nodes("outer-this-join", "outer-other-join"),
    ),
    "merge": (
        lambda builder: builder.stream("one").merge(builder.stream("two"), name="merge-processor"),
        {SOURCE, "KSTREAM-SOURCE-0000000001", "merge-processor"},
    ),
    "to stream": (
        lambda builder: builder.table("one").to_stream(name="to-stream"),
        {"KSTREAM-SOURCE-0000000001", "KTABLE-SOURCE-0000000002", "to-stream"},
    ),
    "to stream with mapper": (
        lambda builder: builder.table("one").to_stream(same, name="to-stream"),
        {"KSTREAM-SOURCE-0000000001", "KTABLE-SOURCE-0000000002", "to-stream", "KSTREAM-KEY-SELECT-0000000004"},
    ),
    "aggregate given a table": (
        grouped_table,
        {
            "KSTREAM-SOURCE-0000000001",
            "KTABLE-SOURCE-0000000002",
            "group-operation",
            f"{NAME}-sink",
            f"{NAME}-source",
            NAME,
        },
    ),
    "global store with a name": (global_store("test"), {"test-source", "test"}),
    "global store without a name": (global_store(None), {SOURCE, "KTABLE-SOURCE-0000000001"}),
}


@pytest.mark.parametrize("name", NODES)
def test_should_use_specified_name_for(name: str) -> None:
    program, expected = NODES[name]
    found = set(re.findall(r"(?:Source|Processor|Sink): (\S+) ", described(program)))
    # What has no children is refused here, so that sources have some.
    assert {node for node in found if not node.startswith("KSTREAM-FOREACH-")} == expected


# ---- Stores

STORES: dict[str, tuple[Program, set[str]]] = {
    "left join of streams, named": (
        streams("left_join", names_stores=True),
        {f"{NAME}-this-join-store", f"{NAME}-outer-other-join-store", f"{NAME}-left-shared-join-store"},
    ),
    "left join of streams, generated": (
        streams("left_join", names_stores=False),
        {
            "KSTREAM-JOINTHIS-0000000004-store",
            "KSTREAM-OUTEROTHER-0000000005-store",
            "KSTREAM-OUTERSHARED-0000000004-store",
        },
    ),
    "join of streams, named": (
        streams("join", names_stores=True),
        {f"{NAME}-this-join-store", f"{NAME}-other-join-store"},
    ),
    "join of streams, generated": (
        streams("join", names_stores=False),
        {"KSTREAM-JOINTHIS-0000000004-store", "KSTREAM-JOINOTHER-0000000005-store"},
    ),
    "outer join of streams, named": (
        streams("outer_join", names_stores=True),
        {f"{NAME}-outer-this-join-store", f"{NAME}-outer-other-join-store", f"{NAME}-outer-shared-join-store"},
    ),
    "outer join of streams, generated": (
        streams("outer_join", names_stores=False),
        {
            "KSTREAM-OUTERTHIS-0000000004-store",
            "KSTREAM-OUTEROTHER-0000000005-store",
            "KSTREAM-OUTERSHARED-0000000004-store",
        },
    ),
    "aggregate given a table": (
        grouped_table,
        {"one-STATE-STORE-0000000000", "KTABLE-AGGREGATE-STATE-STORE-0000000004"},
    ),
    "should not materialize stores if not required": (lambda builder: builder.table("topic"), set()),
}


@pytest.mark.parametrize("name", STORES)
def test_names_of_stores(name: str) -> None:
    program, expected = STORES[name]
    builder = CaseBuilder(in_columns=True)
    program(builder)
    shown = str(builder.build().describe())
    assert set(re.findall(r"[^\s,\[]+", " ".join(re.findall(r"stores: \[(.*)\]", shown)))) == expected


def looked_into(make: Callable[[CaseBuilder], Any]) -> Program:
    """A table that a stream is joined with; it comes before the stream."""

    def program(builder: CaseBuilder) -> None:
        table = make(builder)
        builder.stream("stream-topic").join(table, plus)

    return program


def joined_tables(stored: Materialized | None) -> Program:
    def program(builder: CaseBuilder) -> None:
        one, two = (builder.table(topic) for topic in ("table-topic1", "table-topic2"))
        builder.stream("stream-topic").join(one.join(two, plus, materialized=stored), plus)

    return program


KEPT = Materialized.as_("store").with_value_serde(TEXT)
OF_TOPIC = "table-topic-STATE-STORE-0000000000"

CONNECTED: dict[str, tuple[Program, dict[str, str]]] = {
    "should allow join unmaterialized filtered table": (
        looked_into(lambda builder: builder.table("table-topic").filter(true)),
        {"KSTREAM-JOIN-0000000005": OF_TOPIC, "KTABLE-FILTER-0000000003": ""},
    ),
    "should allow join materialized filtered table": (
        looked_into(lambda builder: builder.table("table-topic").filter(true, materialized=KEPT)),
        {"KSTREAM-JOIN-0000000005": "store", "KTABLE-FILTER-0000000003": "store"},
    ),
    "should allow join unmaterialized map-valued table": (
        looked_into(lambda builder: builder.table("table-topic").map_values(str)),
        {"KSTREAM-JOIN-0000000005": OF_TOPIC, "KTABLE-MAPVALUES-0000000003": ""},
    ),
    "should allow join materialized map-valued table": (
        looked_into(lambda builder: builder.table("table-topic").map_values(str, materialized=KEPT)),
        {"KSTREAM-JOIN-0000000005": "store", "KTABLE-MAPVALUES-0000000003": "store"},
    ),
    "should allow join unmaterialized joined table": (
        joined_tables(None),
        {
            "KSTREAM-JOIN-0000000010": "table-topic1-STATE-STORE-0000000000, table-topic2-STATE-STORE-0000000003",
            "KTABLE-MERGE-0000000007": "",
        },
    ),
    "should allow join materialized joined table": (
        joined_tables(KEPT),
        {"KSTREAM-JOIN-0000000010": "store", "KTABLE-MERGE-0000000007": "store"},
    ),
    "should allow join materialized source table": (
        looked_into(lambda builder: builder.table("table-topic")),
        {"KTABLE-SOURCE-0000000002": OF_TOPIC, "KSTREAM-JOIN-0000000004": OF_TOPIC},
    ),
}


@pytest.mark.parametrize("name", CONNECTED)
def test_stores_of_nodes(name: str) -> None:
    program, expected = CONNECTED[name]
    found = dict(re.findall(r"Processor: (\S+) \(stores: \[(.*)\]\)", described(program)))
    assert {node: found[node] for node in expected} == expected


# ---- Topics


def streams_of(*topics: Any) -> Program:
    def program(builder: CaseBuilder) -> None:
        for each in topics:
            builder.stream(each).foreach(same)

    return program


def test_should_allow_streams_from_same_topic() -> None:
    assert described(streams_of("topic", "topic")).count("Source:") == 1


def test_should_allow_reading_from_same_collection_of_topics() -> None:
    assert described(streams_of(["topic1", "topic2"], ["topic2", "topic1"])).count("Source:") == 1


def tables_of_a_topic(builder: CaseBuilder) -> None:
    for _ in range(2):
        builder.table("topic")


def stream_and_table_of_a_topic(builder: CaseBuilder) -> None:
    builder.stream("topic").foreach(same)
    builder.table("topic")


REFUSED: dict[str, Program] = {
    "should throw when no topic present": streams_of([]),
    "should not allow reading from overlapping and unequal collection of topics": streams_of(
        ["topic"], ["topic", "anotherTopic"]
    ),
    "should not allow tables from same topic": tables_of_a_topic,
    "should not allow stream and table from same topic": stream_and_table_of_a_topic,
    "should throw on versioned store supplier for global table": lambda builder: builder.global_table(
        "topic", materialized=Materialized.as_versioned("store", 0)
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_topics_that_are_refused(name: str) -> None:
    with pytest.raises((TopologyError, ValueError)):
        described(REFUSED[name])


# ---- Functions that are not given

TUMBLING = TimeWindows.of_size_with_no_grace(10)
SLIDING = SlidingWindows.of_time_difference_and_grace(10, 100)
SESSIONS = SessionWindows.of_inactivity_gap_with_no_grace(30)

NOTHING: dict[str, Program] = {
    **{
        f"{step} of a stream": lambda builder, step=step: getattr(builder.stream("one"), step)(None)  # type: ignore[misc]
        for step in (
            "filter",
            "filter_not",
            "map",
            "map_values",
            "flat_map",
            "flat_map_values",
            "select_key",
            "group_by",
            "peek",
            "foreach",
        )
    },
    **{
        f"{step} of a table": lambda builder, step=step: getattr(builder.table("one"), step)(None)  # type: ignore[misc]
        for step in ("filter", "filter_not", "map_values", "group_by")
    },
    "branch": lambda builder: builder.stream("one").split().branch(None),  # type: ignore[arg-type]
    "reduce": lambda builder: builder.stream("one").group_by_key().reduce(None),  # type: ignore[arg-type]
    "initializer": lambda builder: builder.stream("one").group_by_key().aggregate(None, add),  # type: ignore[arg-type]
    "aggregator": lambda builder: builder.stream("one").group_by_key().aggregate(zero, None),  # type: ignore[arg-type]
    "cogroup": lambda builder: builder.stream("one").group_by_key().cogroup(None),  # type: ignore[arg-type]
    "windows": lambda builder: builder.stream("one").group_by_key().windowed_by(None),  # type: ignore[call-overload]
    **{
        f"reduce by {kind} windows": lambda builder, windows=windows: (  # type: ignore[misc]
            builder.stream("one").group_by_key().windowed_by(windows).reduce(None)
        )
        for kind, windows in (("tumbling", TUMBLING), ("sliding", SLIDING), ("session", SESSIONS))
    },
    **{
        f"initializer by {kind} windows": lambda builder, windows=windows: (  # type: ignore[misc]
            builder.stream("one").group_by_key().windowed_by(windows).aggregate(None, add)
        )
        for kind, windows in (("tumbling", TUMBLING), ("sliding", SLIDING))
    },
    "merger of sessions": lambda builder: (
        builder.stream("one").group_by_key().windowed_by(SESSIONS).aggregate(zero, add, None)  # type: ignore[arg-type]
    ),
    "merger of cogrouped sessions": lambda builder: (
        builder.stream("one").group_by_key().cogroup(add).windowed_by(SESSIONS).aggregate(zero)
    ),
    "adder of a table": lambda builder: group_of(builder).reduce(None, plus),
    "subtractor of a table": lambda builder: group_of(builder).reduce(plus, None),
    "initializer of a table": lambda builder: group_of(builder).aggregate(None, add, remove),
    "joiner of streams": lambda builder: builder.stream("one").join(builder.stream("two"), None, WITHIN_AN_HOUR),
    "joiner of a table": lambda builder: builder.stream("one").join(builder.table("two"), None),
    "joiner of tables": lambda builder: builder.table("one").join(builder.table("two"), None),
    "selector of a global table": lambda builder: builder.stream("one").join(builder.global_table("two"), None, plus),
    "other stream": lambda builder: builder.stream("one").join(None, plus, WITHIN_AN_HOUR),  # type: ignore[arg-type]
    "merged stream": lambda builder: builder.stream("one").merge(None),  # type: ignore[arg-type]
}


def group_of(builder: CaseBuilder) -> Any:
    return builder.table("one").group_by(same, key_serde=TEXT, value_serde=TEXT)


@pytest.mark.parametrize("name", NOTHING)
def test_should_not_allow_null(name: str) -> None:
    """Where it is given, not at the first record."""
    with pytest.raises((TopologyError, TypeError)):
        NOTHING[name](CaseBuilder(in_columns=True))


def test_should_not_have_invalid_store_name() -> None:
    with pytest.raises(ValueError, match="foo bar"):
        Materialized.as_("~foo bar~")
