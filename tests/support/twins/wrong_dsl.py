"""Programs of the DSL that are refused when they are built: by both, or here alone."""

from __future__ import annotations

from tests.support.java.dsl import DslScenario
from tests.support.twins.dsl_programs import Node, Program


def grouped() -> Node:
    return Program().stream("in").group_by_key()


def ended(node: Node) -> DslScenario:
    """The scenario of a program that writes what a node has to a topic."""
    (node.to_stream() if node.is_table else node).to("out")
    return DslScenario(node.program)


def windows_of_time(size_ms: int, grace_ms: int = 0, advance_ms: int | None = None) -> DslScenario:
    return ended(grouped().windowed_by_time(size_ms, grace_ms=grace_ms, advance_ms=advance_ms).count())


def two_stores() -> DslScenario:
    of = grouped()
    of.count(materialized={"name": "store"}).to_stream().to("counts")
    return ended(of.reduce("concat", materialized={"name": "store"}))


def topic_of_two(first: str, second: str) -> DslScenario:
    """A program that has two streams or tables of one topic."""
    program = Program()
    for number, kind in enumerate((first, second)):
        made = program.stream("in") if kind == "stream" else program.table("in")
        (made.to_stream() if made.is_table else made).to(f"out-{number}")
    return DslScenario(program)


def joined_streams(before_ms: int = 5, after_ms: int = 5, *, rekeyed: bool = False) -> DslScenario:
    program = Program()
    left = program.stream("left")
    left = left.select_key("upper") if rekeyed else left
    return ended(
        left.join_stream("join", program.stream("right"), "pair", before_ms=before_ms, after_ms=after_ms, grace_ms=0)
    )


def joined_with_grace(history_ms: int | None) -> DslScenario:
    program = Program()
    kept = {} if history_ms is None else {"history_ms": history_ms, "segment_ms": 100}
    table = program.table("right", materialized={"name": "store", **kept})
    return ended(program.stream("left").join_table("join", table, "pair", grace_ms=10))


WRONG = {
    "an advance longer than the size": windows_of_time(5, advance_ms=6),
    "an advance of 0": windows_of_time(5, advance_ms=0),
    "a size of 0": windows_of_time(0),
    "a negative grace": windows_of_time(5, grace_ms=-1),
    "a retention that is too short": ended(
        grouped().windowed_by_time(5, grace_ms=5).count(materialized={"name": "store", "retention_ms": 9})
    ),
    "two nodes of one name": ended(Program().stream("in").filter("is_even", name="n").filter("is_long", name="n")),
    "two stores of one name": two_stores(),
    "an illegal name of a store": ended(grouped().count(materialized={"name": "a b"})),
    "an illegal name of a node": ended(Program().stream("in").filter("is_even", name="a b")),
    "a stream and a table of one topic": topic_of_two("stream", "table"),
    "two tables of one topic": topic_of_two("table", "table"),
    "join windows that end before they begin": joined_streams(before_ms=-6),
    "a grace period without versions": joined_with_grace(None),
    "a grace period that is longer than the history": joined_with_grace(9),
}

WRONG_HERE = {
    # Kafka makes one source of both.
    "two streams of one topic": topic_of_two("stream", "stream"),
    # Kafka writes to a topic in between, to be read by key.
    "an aggregate by changed keys": ended(Program().stream("in").select_key("upper").group_by_key().count()),
    "a join by changed keys": joined_streams(rekeyed=True),
    "a table of changed keys": ended(Program().stream("in").select_key("upper").to_table()),
    "a merged stream of changed keys": ended(
        (stream := Program().stream("in")).merge(stream.select_key("upper")).group_by_key().count()
    ),
    # Kafka keeps records for no time, and finds none.
    "a join in windows of no length without a grace": joined_streams(0, 0),
}
