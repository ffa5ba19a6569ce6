"""Names of nodes, stores and repartition topics, and which leads to which.

topologies.txt has Kafka's descriptions of topologies in KStreamKStreamJoinTest, KStreamKTableJoinTest,
CogroupedKStreamImplTest and its windowed kin, SuppressTopologyTest, KStreamImplTest and RepartitionTopicNamingTest. Of
each sub-topology a line for each node, in Kafka's order: its name, the topics that it reads or writes, its stores, and
what it leads to. Numbers are without leading zeros.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statestore import Processor, Record, Stores
from statestore.dsl import (
    BufferConfig,
    JoinWindows,
    KStream,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    Suppressed,
    TimeWindows,
)
from tests.support.dsl.kafka_cases import INT, LONG, TEXT, CaseBuilder, plus
from tests.support.dsl.kafka_programs import add, zero

Program = Callable[[CaseBuilder], object]

WITHIN_100 = JoinWindows.of_time_difference_with_no_grace(100)
UNTIL_CLOSE = Suppressed.until_window_closes(BufferConfig.unbounded())
A_SECOND = Suppressed.until_time_limit(1000)
SERDES = StreamJoined.with_(TEXT, TEXT, TEXT)
KINDS = {"Source": " of ", "Sink": " to "}

DESCRIPTIONS = dict(
    section.split("\n", 1)
    for section in Path(__file__)
    .with_name("topologies.txt")
    .read_text(encoding="utf-8")
    .removeprefix("= ")
    .split("\n= ")
)


def shown(description: str) -> str:
    """A description as it is written below."""
    lines: list[str] = []
    for line in description.splitlines():
        if found := re.match(r" *Sub-topology: (\d+)", line):
            lines.append(f"{found[1]}:")
        elif found := re.match(r" *(Source|Sink): (\S+) \(topics?: \[?(.*?)\]?\)", line):
            lines.append(f"{found[2]}{KINDS[found[1]]}{found[3]}")
        elif found := re.match(r" *Processor: (\S+) \(stores: \[(.*)\]\)", line):
            lines.append(f"{found[1]} ({found[2]})" if found[2] else found[1])
        elif (found := re.match(r" *--> (.*)", line)) and found[1] != "none":
            lines[-1] += f" > {found[1]}"
    return re.sub(r"-0+(\d)", r"-\1", "\n".join(lines))


# ---- Programs


def true(key: Any, value: Any) -> bool:
    return True


def mapped(builder: CaseBuilder, topic: str = "topic") -> KStream:
    return builder.stream(topic).map(lambda key, value: (value, key), key_serde=TEXT, value_serde=TEXT)


def two_joins_of_a_mapped_stream(builder: CaseBuilder) -> None:
    stream, others = builder.stream("topic"), [builder.stream("topic2"), builder.stream("topic3")]
    rekeyed = stream.map(lambda key, value: (value, key), key_serde=TEXT, value_serde=TEXT)
    for other, topic in zip(others, ("out-one", "out-to"), strict=True):
        rekeyed.join(other, plus, WITHIN_100, SERDES, value_serde=TEXT).to(topic)


def two_named_joins_of_a_mapped_stream(builder: CaseBuilder) -> None:
    stream, others = builder.stream("topic"), [builder.stream("topic2"), builder.stream("topic3")]
    rekeyed = stream.map(lambda key, value: (value, key), key_serde=TEXT, value_serde=TEXT)
    for other, name in zip(others, ("one", "two"), strict=True):
        join = {"one": "first-join", "two": "second-join"}[name]
        rekeyed.join(other, plus, WITHIN_100, SERDES, value_serde=TEXT, name=join).to(f"out-{name}")


def two_joins_with_tables(builder: CaseBuilder) -> None:
    stream, tables = builder.stream("topic"), [builder.table("topic2"), builder.table("topic3")]
    rekeyed = stream.map(lambda key, value: (value, key), key_serde=TEXT, value_serde=TEXT)
    for table, topic in zip(tables, ("out-one", "out-two"), strict=True):
        rekeyed.join(table, plus, value_serde=TEXT).to(topic)


def two_named_joins_with_tables(builder: CaseBuilder) -> None:
    stream, tables = builder.stream("topic"), [builder.table("topic2"), builder.table("topic3")]
    rekeyed = stream.map(lambda key, value: (value, key), key_serde=TEXT, value_serde=TEXT)
    for table, name in zip(tables, ("one", "two"), strict=True):
        join = {"one": "first-join", "two": "second-join"}[name]
        rekeyed.join(table, plus, value_serde=TEXT, name=join).to(f"out-{name}")


VALUES = Materialized().with_value_serde(TEXT)
NAMED = {"materialized": Materialized.as_("store").with_value_serde(TEXT), "name": "test"}


def named_cogroup(builder: CaseBuilder) -> None:
    one, two = (builder.stream(topic).group_by_key() for topic in ("one", "two"))
    one.cogroup(add).cogroup(two, add).aggregate(zero, **NAMED).to_stream().to("output")  # type: ignore[arg-type]


def cogroup_of_a_named_group(builder: CaseBuilder) -> None:
    stream, other = builder.stream("one"), builder.stream("two")
    rekeyed = stream.map(lambda key, value: (value, key), key_serde=TEXT, value_serde=TEXT)
    grouped = rekeyed.group_by_key(name="repartition-test")
    both = grouped.cogroup(add).cogroup(other.group_by_key(), add)
    both.aggregate(zero, materialized=VALUES).to_stream().to("output")


def one_and_two(builder: CaseBuilder) -> tuple[Any, Any]:
    stream, other = builder.stream("one"), builder.stream("two")
    rekeyed = stream.map(lambda key, value: (value, key), key_serde=TEXT, value_serde=TEXT)
    return rekeyed.group_by_key(), other.group_by_key()


def cogroup_of_a_mapped_stream(builder: CaseBuilder) -> None:
    one, two = one_and_two(builder)
    one.cogroup(add).cogroup(two, add).aggregate(zero, **NAMED).to_stream().to("output")


def groups_in_two_cogroups(builder: CaseBuilder) -> None:
    one, two = one_and_two(builder)
    first, second = (one.cogroup(add).cogroup(two, add).aggregate(zero, materialized=VALUES) for _ in range(2))
    second.to_stream().to("output")
    first.to_stream().to("OUTPUT2")


def a_group_in_different_cogroups(builder: CaseBuilder) -> None:
    streams = [builder.stream(topic) for topic in ("one", "two", "three")]
    one = streams[0].map(lambda key, value: (value, key), key_serde=TEXT, value_serde=TEXT).group_by_key()
    for other in (streams[2], streams[1]):
        one.cogroup(add).cogroup(other.group_by_key(), add).aggregate(zero, materialized=VALUES)


def a_group_in_a_cogroup_and_alone(builder: CaseBuilder) -> None:
    one, two = one_and_two(builder)
    one.cogroup(add).cogroup(two, add).aggregate(zero, materialized=VALUES)
    one.aggregate(zero, add, materialized=VALUES)


def a_cogroup_used_twice(builder: CaseBuilder) -> None:
    one = mapped(builder, "one").group_by_key(name="foo").cogroup(add)
    for _ in range(2):
        one.aggregate(zero, materialized=VALUES)


def named_windowed_cogroup(windows: Any) -> Program:
    merger = plus_of_key if isinstance(windows, SessionWindows) else None

    def program(builder: CaseBuilder) -> None:
        windowed = builder.stream("topic").group_by_key().cogroup(add).windowed_by(windows)
        windowed.aggregate(zero, merger, materialized=VALUES, name="foo")

    return program


def plus_of_key(key: Any, one: str, other: str) -> str:
    return f"{one}+{other}"


def final_suppression(suppressed: Suppressed) -> Program:
    def program(builder: CaseBuilder) -> None:
        grouped = builder.stream("input").group_by(lambda key, value: key, key_serde=TEXT)
        windowed = grouped.windowed_by(SessionWindows.of_inactivity_gap_and_grace(5, 5))
        table = windowed.count(materialized=Materialized.as_("counts")).suppress(suppressed)
        table.to_stream().map(lambda key, value: (str(key), value)).to("output-suppressed")

    return program


def suppression(suppressed: Suppressed) -> Program:
    return lambda builder: builder.stream("input").group_by_key().count().suppress(suppressed).to_stream().to("output")


def table_from_a_stream(builder: CaseBuilder) -> None:
    builder.stream("input").to_table().to_stream().to("output")


class Silent(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        pass


def processed_with_a_store(builder: CaseBuilder) -> None:
    builder.add_state_store(Stores.key_value_store_builder(Stores.in_memory_key_value_store("sum"), TEXT, INT))
    builder.stream("input").process(Silent, "sum", name="p")


def processed_values(builder: CaseBuilder) -> None:
    builder.stream("input").process_values(Silent, value_serde=INT, name="fkp").to("output")


def kept_table_from_a_stream(builder: CaseBuilder) -> None:
    builder.stream("input").to_table(materialized=Materialized.as_("store").with_store_in_memory())


def table_from_a_mapped_stream(builder: CaseBuilder) -> None:
    rekeyed = builder.stream("input").map(lambda key, value: (ord(key[0]), value), key_serde=INT, value_serde=TEXT)
    rekeyed.to_table(materialized=Materialized.with_(INT, None)).to_stream().to("output")


def joined_tables_from_streams(builder: CaseBuilder) -> None:
    left, right = (builder.stream(topic).to_table() for topic in ("left", "right"))
    left.join(right, plus).to_stream().to("output", value_serde=TEXT)


def stream_joined_with_a_table_from_a_stream(builder: CaseBuilder) -> None:
    stream, table = builder.stream("streamTopic"), builder.stream("tableTopic").to_table()
    stream.join(table, plus, value_serde=TEXT).to("output")


def counted_table_from_a_stream(builder: CaseBuilder) -> None:
    table = builder.stream("input").to_table()
    table.group_by(lambda key, value: (value, value), key_serde=TEXT, value_serde=TEXT).count().to_stream().to("output")


def named_groups_and_join(builder: CaseBuilder) -> None:
    mapped = builder.stream("input").map(lambda key, value: (key.upper(), value), key_serde=TEXT, value_serde=TEXT)
    mapped.filter(true).map_values(str.upper).process(Silent)
    counts = mapped.group_by_key(name="count-stream").count(materialized=Materialized.with_(TEXT, LONG)).to_stream()
    counts.to("outputTopic_0")
    lengths = mapped.group_by_key(name="aggregate-stream").aggregate(zero, add, materialized=VALUES)
    lengths.to_stream().to("outputTopic_1")
    reduced = mapped.filter(true).peek(true).group_by_key(name="reduced-stream").reduce(plus)
    reduced.to_stream().to("outputTopic_2")
    within, stored = (
        JoinWindows.of_time_difference_with_no_grace(5000),
        StreamJoined.with_(TEXT, TEXT, LONG).with_store_name("joined-stream"),
    )
    mapped.filter(true).join(counts, plus, within, stored, name="joined-stream").to("outputTopicForJoin")


def kept_values_of_a_table_from_a_stream(builder: CaseBuilder) -> None:
    stored = Materialized.as_("store").with_value_serde(INT)
    builder.stream("input").to_table().map_values(ord, materialized=stored).to_stream().to("output")


PROGRAMS: dict[str, Program] = {
    "should reuse repartition topic with generated name, of two streams": two_joins_of_a_mapped_stream,
    "should create repartition topics with user provided name, of two streams": two_named_joins_of_a_mapped_stream,
    "should reuse repartition topic with generated name, of a stream and a table": two_joins_with_tables,
    "should create repartition topics with user provided name, of a stream and a table": two_named_joins_with_tables,
    "should name processors and store based on named parameter": named_cogroup,
    "should name repartition topic": cogroup_of_a_named_group,
    "should insert repartition topic for upstream key modification": cogroup_of_a_mapped_stream,
    "... with grouped reused in same cogroups": groups_in_two_cogroups,
    "... with grouped reused in different cogroups": a_group_in_different_cogroups,
    "... with grouped reused": a_group_in_a_cogroup_and_alone,
    "should insert repartition topic for cogroups used twice": a_cogroup_used_twice,
    "named param should set name of a windowed cogroup": named_windowed_cogroup(TimeWindows.of_size_with_no_grace(500)),
    "named param should set name of a sliding cogroup": named_windowed_cogroup(
        SlidingWindows.of_time_difference_and_grace(500, 2000)
    ),
    "named param should set name of a session cogroup": named_windowed_cogroup(
        SessionWindows.of_inactivity_gap_with_no_grace(1)
    ),
    "should use numbering for anonymous final suppression node": final_suppression(UNTIL_CLOSE),
    "should apply name to final suppression node": final_suppression(UNTIL_CLOSE.with_name("myname")),
    "should use numbering for anonymous suppression node": suppression(A_SECOND),
    "should apply name to suppression node": suppression(A_SECOND.with_name("asdf")),
    "should not materialize a table from a stream": table_from_a_stream,
    "should process with a state store": processed_with_a_store,
    "should process values": processed_values,
    "should materialize a table from a stream": kept_table_from_a_stream,
    "should support key change of a table from a stream": table_from_a_mapped_stream,
    "should support table-table join with tables from streams": joined_tables_from_streams,
    "should support stream-table join with a table from a stream": stream_joined_with_a_table_from_a_stream,
    "should support group by and count of a table from a stream": counted_table_from_a_stream,
    "should support a kept table mapped from a table from a stream": kept_values_of_a_table_from_a_stream,
    "should keep repartition topic names when not optimizing": named_groups_and_join,
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_topologies(name: str) -> None:
    builder = CaseBuilder(in_columns=True)
    PROGRAMS[name](builder)
    assert shown(str(builder.build().describe())) == DESCRIPTIONS[name].strip()
