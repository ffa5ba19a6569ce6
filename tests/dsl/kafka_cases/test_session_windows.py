"""Aggregates by session, put out at each change and on close.

Kafka's SessionWindowedKStreamImplTest, KStreamSessionWindowAggregateProcessorTest, and the sessions of
KGroupedStreamImplTest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore import Windowed
from statestore.dsl import EmitStrategy, KStream, KTable, Materialized, SessionWindows
from tests.support.dsl.kafka_cases import (
    LONG,
    TEXT,
    CaseBuilder,
    anything,
    case,
    dropped,
    last,
    of_cases,
    of_cases_both_ways,
    out,
    pipe,
    plus,
    rows,
    sessions,
)
from tests.support.dsl.kafka_programs import CLOSE, TEXTS, UPDATE, Program, add, zero

GAP_MS = 5 * 60 * 1000
GAP = SessionWindows.of_inactivity_gap_with_no_grace(GAP_MS)
GAP_500 = SessionWindows.of_inactivity_gap_with_no_grace(500)
GAP_30 = SessionWindows.of_inactivity_gap_with_no_grace(30)


def counted(spans: SessionWindows, strategy: EmitStrategy = UPDATE, stored: Materialized | None = None) -> Program:
    def program(builder: CaseBuilder) -> KTable[KStream]:
        windowed = builder.stream("topic").group_by_key().windowed_by(spans).emit_strategy(strategy)
        return windowed.count(materialized=stored)

    return program


def reduced(
    spans: SessionWindows,
    strategy: EmitStrategy = UPDATE,
    stored: Materialized | None = None,
    reducer: Callable[[Any, Any], str] = plus,
) -> Program:
    def program(builder: CaseBuilder) -> KTable[KStream]:
        windowed = builder.stream("topic").group_by_key().windowed_by(spans).emit_strategy(strategy)
        return windowed.reduce(reducer, materialized=stored)

    return program


def aggregated(spans: SessionWindows, strategy: EmitStrategy = UPDATE, stored: Materialized = TEXTS) -> Program:
    def program(builder: CaseBuilder) -> KTable[KStream]:
        windowed = builder.stream("topic").group_by_key().windowed_by(spans).emit_strategy(strategy)
        return windowed.aggregate(zero, add, lambda key, one, other: f"{one}+{other}", materialized=stored)

    return program


def counted_by_function(spans: SessionWindows, strategy: EmitStrategy, stored: Materialized) -> Program:
    """What count() does, as an aggregator and a merger."""

    def program(builder: CaseBuilder) -> KTable[KStream]:
        windowed = builder.stream("topic").group_by_key().windowed_by(spans).emit_strategy(strategy)
        merged: Callable[[Any, int, int], int] = lambda key, one, other: one + other  # noqa: E731
        return windowed.aggregate(int, lambda key, value, count: count + 1, merged, materialized=stored)

    return program


# ---- SessionWindowedKStreamImplTest

FIVE = pipe("topic", "1 1 at 10, 1 2 at 15, 1 3 at 600, 2 1 at 600, 2 2 at 599")
NAMED = Materialized.as_("sessions").with_value_serde(TEXT)
CACHED = Materialized.as_("cached").with_caching_enabled()
OF_600, OF_599 = Windowed("1", 600, 600), Windowed("2", 599, 600)
# On update, Kafka's tests still find the session from 10 to 15, in the cache; it is past its retention.
COUNTED_ON_UPDATE = out(
    "1@10/10 1 at 10, 1@10/10 null at 10, 1@10/15 2 at 15, 1@600/600 1 at 600, 2@600/600 1 at 600, "
    "2@600/600 null at 600, 2@599/600 2 at 600",
    value=int,
)

COUNTED = {
    "should count session windowed with caching disabled, on update": case(counted(GAP_500), FIVE, COUNTED_ON_UPDATE),
    "should count session windowed with caching disabled, on close": case(
        counted(GAP_500, CLOSE), FIVE, out("1@10/15 2 at 15", value=int)
    ),
    "should materialize count, on update": case(
        counted(GAP_500, UPDATE, Materialized.as_("sessions")),
        FIVE,
        COUNTED_ON_UPDATE,
        sessions("sessions", (OF_600, 1), (OF_599, 2)),
    ),
    "should materialize count, on close": case(
        counted(GAP_500, CLOSE, Materialized.as_("sessions")),
        FIVE,
        anything,
        sessions("sessions", (OF_600, 1), (OF_599, 2)),
    ),
    "should count session windows of KGroupedStreamImplTest": case(
        counted(GAP_30),
        pipe("topic", "1 1 at 10, 2 2 at 15, 1 1 at 30, 1 1 at 70, 1 1 at 100, 1 1 at 90"),
        last("1@10/30 2 at 30, 2@15/15 1 at 15, 1@70/100 3 at 100", value=int),
    ),
}

SESSION_WINDOWED = {
    "should count session windowed with caching enabled, on update": case(
        counted(GAP_500, UPDATE, CACHED), FIVE, COUNTED_ON_UPDATE
    ),
    "should reduce windowed, on update": case(
        reduced(GAP_500),
        FIVE,
        out(
            "1@10/10 1 at 10, 1@10/10 null at 10, 1@10/15 1+2 at 15, 1@600/600 3 at 600, 2@600/600 1 at 600, "
            "2@600/600 null at 600, 2@599/600 1+2 at 600"
        ),
    ),
    "should reduce windowed, on close": case(reduced(GAP_500, CLOSE), FIVE, out("1@10/15 1+2 at 15")),
    "should aggregate session windowed, on update": case(
        aggregated(GAP_500),
        FIVE,
        out(
            "1@10/10 0+1 at 10, 1@10/10 null at 10, 1@10/15 0+0+1+2 at 15, 1@600/600 0+3 at 600, "
            "2@600/600 0+1 at 600, 2@600/600 null at 600, 2@599/600 0+0+1+2 at 600"
        ),
    ),
    "should aggregate session windowed, on close": case(aggregated(GAP_500, CLOSE), FIVE, out("1@10/15 0+0+1+2 at 15")),
    "should materialize reduced, on update": case(
        reduced(GAP_500, UPDATE, NAMED),
        FIVE,
        anything,
        sessions("sessions", (OF_600, "3"), (OF_599, "1+2")),
    ),
    "should materialize reduced, on close": case(
        reduced(GAP_500, CLOSE, NAMED), FIVE, anything, sessions("sessions", (OF_600, "3"), (OF_599, "1+2"))
    ),
    "should materialize aggregated, on update": case(
        aggregated(GAP_500, UPDATE, NAMED),
        FIVE,
        anything,
        sessions("sessions", (OF_600, "0+3"), (OF_599, "0+0+1+2")),
    ),
    "should materialize aggregated, on close": case(
        aggregated(GAP_500, CLOSE, NAMED), FIVE, anything, sessions("sessions", (OF_600, "0+3"), (OF_599, "0+0+1+2"))
    ),
    "should aggregate session windows of KGroupedStreamImplTest": case(
        counted_by_function(GAP_30, UPDATE, Materialized.as_("session-store").with_value_serde(LONG)),
        pipe("topic", "1 1 at 10, 2 2 at 15, 1 1 at 30, 1 1 at 70, 1 1 at 100, 1 1 at 90"),
        last("1@10/30 2 at 30, 2@15/15 1 at 15, 1@70/100 3 at 100", value=int),
    ),
    "should reduce session windows of KGroupedStreamImplTest": case(
        reduced(GAP_30, UPDATE, Materialized.as_("session-store"), lambda one, other: f"{one}:{other}"),
        pipe("topic", "1 A at 10, 2 Z at 15, 1 B at 30, 1 A at 70, 1 B at 100, 1 C at 90"),
        last("1@10/30 A:B at 30, 2@15/15 Z at 15, 1@70/100 A:B:C at 100"),
    ),
}


# ---- KStreamSessionWindowAggregateProcessorTest, whose store keeps sessions for three gaps

KEPT = Materialized.as_("sessions").with_retention(3 * GAP_MS).with_value_serde(LONG)
ON = {"update": UPDATE, "close": CLOSE}
AFTER_GAP, HALF = GAP_MS + 1, GAP_MS // 2
LATER = AFTER_GAP + AFTER_GAP
AFTER_ALL = AFTER_GAP + HALF

APART = pipe(
    "topic",
    ("mel", "first", 0),
    *(("mel", "second", AFTER_GAP),) * 2,
    *(("mel", "third", LATER),) * 3,
)
MERGING = pipe(
    "topic",
    ("a", "1", 0),
    ("b", "1", 0),
    ("c", "1", 0),
    ("d", "1", 0),
    ("d", "2", HALF),
    ("a", "2", AFTER_GAP),
    ("b", "2", AFTER_GAP),
    ("a", "3", AFTER_ALL),
    ("c", "3", AFTER_ALL),
)
FIRST_FOUR = (
    *rows("a@0/0 1 at 0, b@0/0 1 at 0, c@0/0 1 at 0", int),
    (Windowed("d", 0, HALF), 2, HALF),
)

PROCESSOR = {
    **{
        f"{name}, on {when}": case(counted_by_function(GAP, strategy, KEPT), *steps)
        for when, strategy in ON.items()
        for name, steps in {
            "should create single session when within gap": (
                pipe("topic", ("john", "first", 0), ("john", "second", 500)),
                anything,
                sessions("sessions", (Windowed("john", 0, 500), 2)),
            ),
            "should merge sessions": (
                pipe("topic", ("mel", "first", 0), ("mel", "second", AFTER_GAP)),
                sessions("sessions", (Windowed("mel", 0, 0), 1), (Windowed("mel", AFTER_GAP, AFTER_GAP), 1)),
                pipe("topic", ("mel", "third", HALF)),
                anything,
                sessions("sessions", (Windowed("mel", 0, AFTER_GAP), 3)),
            ),
            "should update session if the same time": (
                pipe("topic", ("mel", "first", 0), ("mel", "second", 0)),
                anything,
                sessions("sessions", (Windowed("mel", 0, 0), 2)),
            ),
            "should remove merged sessions from state store": (
                pipe("topic", ("a", "1", 0)),
                sessions("sessions", (Windowed("a", 0, 0), 1)),
                pipe("topic", ("a", "2", 100)),
                anything,
                sessions("sessions", (Windowed("a", 0, 100), 2)),
            ),
            "should get aggregated values": (
                pipe("topic", ("a", "1", 0), ("a", "1", AFTER_GAP), ("a", "2", AFTER_GAP)),
                anything,
                sessions("sessions", (Windowed("a", 0, 0), 1), (Windowed("a", AFTER_GAP, AFTER_GAP), 2)),
            ),
            "should meter when skipping null key": (pipe("topic", (None, "1", 0)), out(), dropped(1)),
        }.items()
    },
    "should have multiple sessions for same id when timestamp apart by session gap, on close": case(
        counted_by_function(GAP, CLOSE, KEPT),
        APART,
        out("mel@0/0 1 at 0", (Windowed("mel", AFTER_GAP, AFTER_GAP), 2, AFTER_GAP), value=int),
    ),
    "should handle multiple sessions and merging, on close": case(
        counted_by_function(GAP, CLOSE, KEPT), MERGING, out(*FIRST_FOUR)
    ),
    "should immediately forward new session when non-cached store": case(
        counted_by_function(GAP, UPDATE, KEPT),
        pipe("topic", "a 1 at 0, b 1 at 0, c 1 at 0"),
        out("a@0/0 1 at 0, b@0/0 1 at 0, c@0/0 1 at 0", value=int),
    ),
    "should immediately forward removed sessions when merging": case(
        counted_by_function(GAP, UPDATE, KEPT),
        pipe("topic", "a 1 at 0, a 1 at 5"),
        out("a@0/0 1 at 0, a@0/0 null at 0, a@0/5 2 at 5", value=int),
    ),
    "should meter when skipping late record with zero grace": case(
        counted(SessionWindows.of_inactivity_gap_and_grace(10, 0)),
        pipe("topic", "dummy 1 at 0, OnTime1 1 at 0, dummy 1 at 11, Late1 1 at 0"),
        out("dummy@0/0 1 at 0, OnTime1@0/0 1 at 0, dummy@11/11 1 at 11", value=int),
        dropped(1),
    ),
    "should meter when skipping late record with nonzero grace": case(
        counted(SessionWindows.of_inactivity_gap_and_grace(10, 1)),
        pipe("topic", "dummy 1 at 0, OnTime1 1 at 0, dummy 1 at 11, OnTime2 1 at 0, dummy 1 at 12, Late1 1 at 0"),
        anything,
        dropped(1),
    ),
}

FLUSHED = {
    "should have multiple sessions for same id when timestamp apart by session gap": case(
        counted_by_function(GAP, UPDATE, KEPT.with_caching_enabled()),
        APART,
        out(
            "mel@0/0 1 at 0",
            (Windowed("mel", AFTER_GAP, AFTER_GAP), 2, AFTER_GAP),
            (Windowed("mel", LATER, LATER), 3, LATER),
            value=int,
        ),
    ),
    "should handle multiple sessions and merging": case(
        counted_by_function(GAP, UPDATE, KEPT.with_caching_enabled()),
        MERGING,
        out(
            *FIRST_FOUR,
            (Windowed("b", AFTER_GAP, AFTER_GAP), 1, AFTER_GAP),
            (Windowed("a", AFTER_GAP, AFTER_ALL), 2, AFTER_ALL),
            (Windowed("c", AFTER_ALL, AFTER_ALL), 1, AFTER_ALL),
        ),
    ),
}


test_sessions_are_counted = of_cases_both_ways(COUNTED)
test_session_windowed_streams = of_cases(SESSION_WINDOWED)
test_sessions = of_cases(PROCESSOR)
test_cached_sessions_go_on_at_the_end_of_a_batch = of_cases(FLUSHED, "columns")
