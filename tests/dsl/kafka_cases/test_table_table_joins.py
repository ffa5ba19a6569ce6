"""Joins of tables: Kafka's KTableKTableInnerJoinTest, KTableKTableLeftJoinTest and KTableKTableOuterJoinTest.

All of them pipe the same records, and differ in what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from statestore.dsl import KStream, KTable, Materialized
from tests.support.dsl.kafka_cases import (
    INT,
    TEXT,
    CaseBuilder,
    Row,
    Step,
    case,
    changed,
    dropped,
    numbered,
    of_cases,
    out,
    pipe,
    plus,
    stored,
)

Expected = tuple[tuple[Row, ...], ...]
"""What comes out of each of the steps, as changes."""

INPUTS: tuple[Step, ...] = (
    pipe("left", *numbered("X", 2, 5, 1), (None, "SomeVal", 42)),
    pipe("right", *numbered("Y", 2, 0, 10), (None, "AnotherVal", 73)),
    pipe("left", *numbered("XX", 4, 7)),
    pipe("right", *numbered("YY", 4, 0, 5)),
    pipe("left", *numbered("XXX", 4, 6)),
    pipe("right", (0, None, 5), (1, None, 7)),
    pipe("left", *numbered("XXXX", 4, 13)),
    pipe("left", (0, None, 0), (1, None, 42), (2, None, 5), (3, None, 20)),
)

BOTH_HAVE_ALL: tuple[Row, ...] = (
    changed(0, "XXX0+YY0", "XX0+YY0", 6),
    changed(1, "XXX1+YY1", "XX1+YY1", 6),
    changed(2, "XXX2+YY2", "XX2+YY2", 10),
    changed(3, "XXX3+YY3", "XX3+YY3", 15),
)

INNER: Expected = (
    (),
    (changed(0, "X0+Y0", None, 5), changed(1, "X1+Y1", None, 10)),
    (changed(0, "XX0+Y0", "X0+Y0", 7), changed(1, "XX1+Y1", "X1+Y1", 10)),
    (
        changed(0, "XX0+YY0", "XX0+Y0", 7),
        changed(1, "XX1+YY1", "XX1+Y1", 7),
        changed(2, "XX2+YY2", None, 10),
        changed(3, "XX3+YY3", None, 15),
    ),
    BOTH_HAVE_ALL,
    (changed(0, None, "XXX0+YY0", 6), changed(1, None, "XXX1+YY1", 7)),
    (changed(2, "XXXX2+YY2", "XXX2+YY2", 13), changed(3, "XXXX3+YY3", "XXX3+YY3", 15)),
    (changed(2, None, "XXXX2+YY2", 10), changed(3, None, "XXXX3+YY3", 20)),
)

LEFT_WITHOUT_LAST: Expected = (
    (changed(0, "X0+null", None, 5), changed(1, "X1+null", None, 6)),
    (changed(0, "X0+Y0", "X0+null", 5), changed(1, "X1+Y1", "X1+null", 10)),
    (
        changed(0, "XX0+Y0", "X0+Y0", 7),
        changed(1, "XX1+Y1", "X1+Y1", 10),
        changed(2, "XX2+null", None, 7),
        changed(3, "XX3+null", None, 7),
    ),
    (
        changed(0, "XX0+YY0", "XX0+Y0", 7),
        changed(1, "XX1+YY1", "XX1+Y1", 7),
        changed(2, "XX2+YY2", "XX2+null", 10),
        changed(3, "XX3+YY3", "XX3+null", 15),
    ),
    BOTH_HAVE_ALL,
    (changed(0, "XXX0+null", "XXX0+YY0", 6), changed(1, "XXX1+null", "XXX1+YY1", 7)),
    (
        changed(0, "XXXX0+null", "XXX0+null", 13),
        changed(1, "XXXX1+null", "XXX1+null", 13),
        changed(2, "XXXX2+YY2", "XXX2+YY2", 13),
        changed(3, "XXXX3+YY3", "XXX3+YY3", 15),
    ),
)

LEFT: Expected = (
    *LEFT_WITHOUT_LAST,
    (
        changed(0, None, "XXXX0+null", 0),
        changed(1, None, "XXXX1+null", 42),
        changed(2, None, "XXXX2+YY2", 10),
        changed(3, None, "XXXX3+YY3", 20),
    ),
)

OUTER: Expected = (
    *LEFT_WITHOUT_LAST,
    (
        changed(0, None, "XXXX0+null", 0),
        changed(1, None, "XXXX1+null", 42),
        changed(2, "null+YY2", "XXXX2+YY2", 10),
        changed(3, "null+YY3", "XXXX3+YY3", 20),
    ),
)


def joined(how: str, *, stored: Materialized | None = None, sends_old: bool = False) -> Callable[[CaseBuilder], Any]:
    def program(builder: CaseBuilder) -> KStream | KTable[KStream]:
        left, right = (builder.table(topic, key_serde=INT) for topic in ("left", "right"))
        made: KTable[KStream] = getattr(left, how)(right, plus, materialized=stored)
        return made.changes() if sends_old else made

    return program


def values(expected: Expected) -> list[Step]:
    """The steps, each followed by the new values alone."""
    rows = [[(key, change.new, timestamp_ms) for key, change, timestamp_ms in each] for each in expected]
    return list(chain.from_iterable(zip(INPUTS, (out(*each) for each in rows), strict=True)))


def changes(expected: Expected) -> list[Step]:
    return list(chain.from_iterable(zip(INPUTS, (out(*each) for each in expected), strict=True)))


KEPT = Materialized.as_("joined").with_value_serde(TEXT)

CASES = {
    "inner: join": case(joined("join"), *values(INNER), dropped(2)),
    "inner: queryable join": case(
        joined("join", stored=KEPT), *values(INNER), stored("joined", dict.fromkeys(range(4))), dropped(2)
    ),
    "inner: sending old values": case(joined("join", sends_old=True), *changes(INNER)),
    "left: join": case(joined("left_join"), *values(LEFT), dropped(2)),
    "left: queryable join": case(
        joined("left_join", stored=KEPT), *values(LEFT), stored("joined", dict.fromkeys(range(4)))
    ),
    "left: sending old values": case(joined("left_join", sends_old=True), *changes(LEFT)),
    "outer: join": case(joined("outer_join"), *values(OUTER), dropped(2)),
    "outer: queryable join": case(
        joined("outer_join", stored=KEPT),
        *values(OUTER),
        stored("joined", {0: None, 1: None, 2: ("null+YY2", 10), 3: ("null+YY3", 20)}),
    ),
    "outer: sending old values": case(joined("outer_join", sends_old=True), *changes(OUTER)),
}


test_table_joins = of_cases(CASES)
