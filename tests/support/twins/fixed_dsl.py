"""Scenarios of the DSL that are not drawn, and programs that are refused when they are built: by both, or here."""

from __future__ import annotations

from dataclasses import replace

from tests.support.java.driver import Step, pipe
from tests.support.java.dsl import DslScenario
from tests.support.twins.dsl_programs import Node, Program


def grouped() -> Node:
    return Program().stream("in").group_by_key()


def ended(node: Node, *steps: Step) -> DslScenario:
    """The scenario of a program that writes what a node has to a topic."""
    (node.to_stream() if node.is_table else node).to("out")
    return DslScenario(node.program, steps)


def two_in_one(first: str, second: str) -> Node:
    """The streams of two topics, to be added up in one aggregate."""
    program = Program()
    one = program.stream(first).group_by_key().cogroup("sum")
    return program.stream(second).group_by_key().cogroup("sum", one)


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


def joined_streams(before_ms: int = 5, after_ms: int = 5) -> DslScenario:
    program = Program()
    left = program.stream("left")
    return ended(
        left.join_stream("join", program.stream("right"), "pair", before_ms=before_ms, after_ms=after_ms, grace_ms=0)
    )


def joined_with_grace(history_ms: int | None) -> DslScenario:
    program = Program()
    kept = {} if history_ms is None else {"history_ms": history_ms, "segment_ms": 100}
    table = program.table("right", materialized={"name": "store", **kept})
    return ended(program.stream("left").join_table("join", table, "pair", grace_ms=10))


def outer_join(*steps: Step, before_ms: int, after_ms: int) -> DslScenario:
    program = Program()
    windows = {"before_ms": before_ms, "after_ms": after_ms, "grace_ms": 0}
    program.stream("left").join_stream("outer_join", program.stream("right"), "pair", **windows).to("out")
    return DslScenario(program, steps, persistent=True)


FIXED = {
    "who looks through what waits ends at a place of several records, if both sides are open": outer_join(
        pipe("left", "a", "x", 6),
        pipe("right", "c", "y", 13),
        pipe("right", "c", "z", 13),
        pipe("left", "b", "x", 12),
        pipe("right", "d", "y", 14),
        pipe("left", "f", "x", 14),  # sends on the first one alone, and then takes 13 to be the earliest
        pipe("left", "g", "x", 16),  # so that this one sends on the next
        pipe("left", "h", "x", 17),
        before_ms=10,
        after_ms=2,
    ),
    "a buffer that is full fails": ended(
        Program().table("in").suppress_until_time_limit(5, max_records=1, full="shut_down"),
        pipe("in", "a", "x", 1),
        pipe("in", "a", "y", 2),
        pipe("in", "b", "z", 2),
        pipe("in", "b", "z", 3),
    ),
}

LAST_MS = 2**63 - 1

DIFFERING = {
    "a jump past the retention": ended(
        grouped().windowed_by_time(10, grace_ms=5).emit_strategy("window_close").count(),
        pipe("in", "a", "x", 5),
        pipe("in", "a", "x", 100),
    ),
    "no key, and a grace": ended(
        (left := Program().stream("left")).join_table(
            "left_join",
            left.program.table("right", materialized={"name": "store", "history_ms": 10}),
            "pair",
            grace_ms=5,
        ),
        pipe("left", None, "x", 5),
    ),
    "the end of time": ended(grouped().windowed_by_time(10, grace_ms=5).count(), pipe("in", "a", "x", LAST_MS - 3)),
    "the last millisecond of a session": replace(
        ended(
            grouped().windowed_by_session(5, grace_ms=0).emit_strategy("window_close").count(),
            pipe("in", "a", "x", 0),
            pipe("in", "b", "x", 5),
            pipe("in", "a", "x", 5),
            pipe("in", "b", "x", 20),
        ),
        persistent=True,
    ),
    "a stream of several that lags behind": ended(
        two_in_one("fast", "slow").windowed_by_time(10, grace_ms=0).aggregate(0),
        pipe("fast", "a", "xx", 5),
        pipe("fast", "a", "xx", 25),
        pipe("slow", "a", "x", 6),
    ),
    "headers of a session": ended(
        grouped().windowed_by_session(10, grace_ms=5).count(), pipe("in", "a", "x", 5, [("trace", "1")])
    ),
}
"""What Kafka does otherwise: what either of them does is said by a test of its own."""

WRONG = {
    "an advance longer than the size": windows_of_time(5, advance_ms=6),
    "an advance of 0": windows_of_time(5, advance_ms=0),
    "a size of 0": windows_of_time(0),
    "a negative grace": windows_of_time(5, grace_ms=-1),
    "a retention that is too short": ended(
        grouped().windowed_by_time(5, grace_ms=5).count(materialized={"name": "store", "retention_ms": 9})
    ),
    "a retention that is too short for sliding windows": ended(
        grouped().windowed_by_difference(5, grace_ms=5).count(materialized={"name": "store", "retention_ms": 14})
    ),
    "a retention that is too short for sessions": ended(
        grouped().windowed_by_session(5, grace_ms=5).count(materialized={"name": "store", "retention_ms": 9})
    ),
    "sliding windows of a negative length": ended(grouped().windowed_by_difference(-1, grace_ms=5).count()),
    "sessions with a negative gap": ended(grouped().windowed_by_session(-1, grace_ms=5).count()),
    "a table without windows that waits for them to close": ended(grouped().count().suppress_until_window_closes()),
    "a versioned table that is suppressed": ended(
        Program()
        .table("in", materialized={"name": "store", "history_ms": 9, "segment_ms": 9})
        .filter("is_even")
        .suppress_until_time_limit(5)
    ),
    "two nodes of one name": ended(Program().stream("in").filter("is_even", name="n").filter("is_long", name="n")),
    "two stores of one name": two_stores(),
    "an illegal name of a store": ended(grouped().count(materialized={"name": "a b"})),
    "an illegal name of a node": ended(Program().stream("in").filter("is_even", name="a b")),
    "windows of a join that end before they begin": ended(
        (left := Program().stream("left")).join_stream(
            "join", left.program.stream("right"), "pair", before_ms=-5, after_ms=4, grace_ms=0
        )
    ),
    "a grace of a join with a table without versions": ended(
        (left := Program().stream("left")).join_table("join", left.program.table("right"), "pair", grace_ms=5)
    ),
    "a grace of a join longer than the table's history": ended(
        (left := Program().stream("left")).join_table(
            "join", left.program.table("right", materialized={"name": "store", "history_ms": 4}), "pair", grace_ms=5
        )
    ),
    "a table without windows that is suppressed until they close": ended(
        Program().table("in").suppress_until_window_closes()
    ),
    "a retention of sessions that is too short": ended(
        grouped().windowed_by_session(5, grace_ms=5).count(materialized={"name": "store", "retention_ms": 9})
    ),
    "a retention of sliding windows that is too short": ended(
        grouped().windowed_by_difference(5, grace_ms=5).count(materialized={"name": "store", "retention_ms": 14})
    ),
    "a stream and a table of one topic": topic_of_two("stream", "table"),
    "two tables of one topic": topic_of_two("table", "table"),
    "join windows that end before they begin": joined_streams(before_ms=-6),
    "a grace period without versions": joined_with_grace(None),
    "a grace period that is longer than the history": joined_with_grace(9),
}

WRONG_HERE = {
    # Kafka keeps records for no time, and finds none.
    "a join in windows of no length without a grace": joined_streams(0, 0),
}
