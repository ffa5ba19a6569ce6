"""All joins of one key's records, of which some come out of order: Kafka's AbstractJoinIntegrationTest and its kin.

An output is its value and timestamp, as A-a@4; "~" stands for a value of None, and "?" before it for a key of None.
Of each input, the outputs are joined by commas; "." stands for none.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

from statestore.dsl import Joined, JoinWindows, KStream, KTable, Materialized
from tests.support.dsl.kafka_cases import LONG, TEXT, CaseBuilder, Row, Step, case, of_cases, out, pipe, stored

Program = Callable[[CaseBuilder], Any]

OUT_OF_ORDER = (
    "L~@1 R~@2 LA@3 Ra@4 LB@5 Rb@6 L~@7 R~@8 LC@9 Rc@10 R~@11 L~@12 R~@13 Rd@7 LD@6 L~@2 R~@3 Re@14 LE@15 L~@10 R~@9 "
    "LF@4 Rf@3"
)
IN_ORDER = "L~@1 R~@2 LA@3 Ra@4 LB@5 Rb@6 L~@7 R~@8 LC@9 Rc@10 R~@11 L~@12 R~@13 Rd@14 LD@15 L?E@16 R?e@17"
OF_LEFT = "L~@1 LA@2 LB@3 L~@4 LC@5 L~@6 LD@7"

WITHIN_10_S = JoinWindows.of_time_difference_and_grace(10_000, 24 * 3_600_000)
FIVE_MINUTES = 300_000


def row(text: str) -> Row:
    value, timestamp_ms = text.split("@")
    key = None if value.startswith("?") else 0
    value = value.removeprefix("?")
    return key, None if value == "~" else value, int(timestamp_ms)


def steps(given: str, expected: str) -> list[Step]:
    """Each of the inputs, followed by what comes out of it."""
    inputs, outputs = given.split(), expected.split()
    made: list[tuple[Step, Step]] = []
    for record, rows in zip(inputs, outputs, strict=True):
        came_out = [] if rows == "." else [row(each) for each in rows.split(",")]
        made.append((pipe({"L": "left", "R": "right"}[record[0]], row(record[1:])), out(*came_out)))
    return list(chain.from_iterable(made))


def dashed(left: Any, right: Any) -> str:
    return "-".join("null" if side is None else side for side in (left, right))


# ---- Programs


def streams(*hows: str) -> Program:
    def program(builder: CaseBuilder) -> KStream:
        made, right = (builder.stream(topic, key_serde=LONG) for topic in ("left", "right"))
        for how in hows:
            made = getattr(made, how)(right, dashed, WITHIN_10_S, value_serde=TEXT)
        return made

    return program


def repartitioned_streams(how: str) -> Program:
    def program(builder: CaseBuilder) -> KStream:
        left, right = (builder.stream(topic, key_serde=LONG) for topic in ("left", "right"))
        left = left.map(lambda key, value: (key, value), key_serde=LONG, value_serde=TEXT)
        right = right.flat_map(lambda key, value: [(key, value)], key_serde=LONG, value_serde=TEXT)
        right = right.select_key(lambda key, value: key, key_serde=LONG)
        joined: KStream = getattr(left, how)(right, dashed, WITHIN_10_S)
        return joined

    return program


def self_join(builder: CaseBuilder) -> KStream:
    left = builder.stream("left", key_serde=LONG)
    return left.join(left, dashed, WITHIN_10_S)


def stream_table(how: str, *, is_versioned: bool = False, grace_ms: int | None = None) -> Program:
    def program(builder: CaseBuilder) -> KStream:
        stored = Materialized.as_versioned("table-store", FIVE_MINUTES) if is_versioned else None
        table = builder.table("right", key_serde=LONG, materialized=stored)
        waits = () if grace_ms is None else (Joined().with_grace_period(grace_ms),)
        joined: KStream = getattr(builder.stream("left", key_serde=LONG), how)(table, dashed, *waits)
        return joined

    return program


def tables(*hows: str, versioned: str = "") -> Program:
    def program(builder: CaseBuilder) -> KTable[KStream]:
        left, right = (
            builder.table(
                topic,
                key_serde=LONG,
                materialized=Materialized.as_versioned(topic, FIVE_MINUTES)
                if topic in versioned
                else Materialized.as_(topic),
            )
            for topic in ("left", "right")
        )
        made = left
        for how in hows[:-1]:
            made = getattr(made, how)(right, dashed)
        kept = Materialized.as_("joined").with_key_serde(LONG).with_value_serde(TEXT)
        joined: KTable[KStream] = getattr(made, hows[-1])(right, dashed, materialized=kept)
        return joined

    return program


# ---- Cases

TWO_STREAMS = (
    ". . . A-a@4 B-a@5 A-b@6,B-b@6 . . C-a@9,C-b@9 A-c@10,B-c@10,C-c@10 . . . "
    "A-d@14,B-d@14,C-d@14 D-a@15,D-b@15,D-c@15,D-d@15"
)
THREE_STREAMS = (
    ". . . A-a-a@4 B-a-a@5 A-b-a@6,B-b-a@6,A-a-b@6,B-a-b@6,A-b-b@6,B-b-b@6 . . C-a-a@9,C-a-b@9,C-b-a@9,C-b-b@9 "
    "A-c-a@10,A-c-b@10,B-c-a@10,B-c-b@10,C-c-a@10,C-c-b@10,A-a-c@10,B-a-c@10,A-b-c@10,B-b-c@10,C-a-c@10,C-b-c@10,"
    "A-c-c@10,B-c-c@10,C-c-c@10 . . . "
    "A-d-a@14,A-d-b@14,A-d-c@14,B-d-a@14,B-d-b@14,B-d-c@14,C-d-a@14,C-d-b@14,C-d-c@14,A-a-d@14,B-a-d@14,A-b-d@14,"
    "B-b-d@14,C-a-d@14,C-b-d@14,A-c-d@14,B-c-d@14,C-c-d@14,A-d-d@14,B-d-d@14,C-d-d@14 "
    "D-a-a@15,D-a-b@15,D-a-c@15,D-a-d@15,D-b-a@15,D-b-b@15,D-b-c@15,D-b-d@15,D-c-a@15,D-c-b@15,D-c-c@15,D-c-d@15,"
    "D-d-a@15,D-d-b@15,D-d-c@15,D-d-d@15 . ."
)
ONE_STREAM = ". A-A@2 B-A@3,A-B@3,B-B@3 . C-A@5,C-B@5,A-C@5,B-C@5,C-C@5 . D-A@7,D-B@7,D-C@7,A-D@7,B-D@7,C-D@7,D-D@7"

STREAM_STREAM = {
    "self join": case(self_join, *steps(OF_LEFT, ONE_STREAM)),
    "inner": case(streams("join"), *steps(IN_ORDER, f"{TWO_STREAMS} . .")),
    "inner repartitioned": case(repartitioned_streams("join"), *steps(IN_ORDER, f"{TWO_STREAMS} . .")),
    "left": case(streams("left_join"), *steps(IN_ORDER, f"{TWO_STREAMS} ?E-null@16 .")),
    "left repartitioned": case(repartitioned_streams("left_join"), *steps(IN_ORDER, f"{TWO_STREAMS} ?E-null@16 .")),
    "outer": case(streams("outer_join"), *steps(IN_ORDER, f"{TWO_STREAMS} ?E-null@16 ?null-e@17")),
    "outer repartitioned": case(
        repartitioned_streams("outer_join"), *steps(IN_ORDER, f"{TWO_STREAMS} ?E-null@16 ?null-e@17")
    ),
    "multi inner": case(streams("join", "join"), *steps(IN_ORDER, THREE_STREAMS)),
}

STREAM_TABLE = {
    name: case(program, *steps(OUT_OF_ORDER, expected))
    for name, program, expected in (
        ("inner", stream_table("join"), ". . . . B-a@5 . . . . . . . . . D-d@6 . . . E-e@15 . . . ."),
        (
            "left",
            stream_table("left_join"),
            ". . A-null@3 . B-a@5 . . . C-null@9 . . . . . D-d@6 . . . E-e@15 . . F-null@4 .",
        ),
        (
            "inner with versioned store",
            stream_table("join", is_versioned=True),
            ". . . . B-a@5 . . . . . . . . . D-b@6 . . . E-e@15 . . F-a@4 .",
        ),
        (
            "left with versioned store",
            stream_table("left_join", is_versioned=True),
            ". . A-null@3 . B-a@5 . . . C-null@9 . . . . . D-b@6 . . . E-e@15 . . F-a@4 .",
        ),
        (
            "inner with versioned store and grace",
            stream_table("join", is_versioned=True, grace_ms=2),
            ". . . . . . . . B-a@5 . . . . . D-b@6 . . . . . . F-a@4 .",
        ),
        (
            "left with versioned store and grace",
            stream_table("left_join", is_versioned=True, grace_ms=2),
            ". . . . A-null@3 . . . B-a@5 . . . . . D-b@6 . . . C-null@9 . . F-a@4 .",
        ),
    )
}

TABLE_TABLE = {
    name: case(program, *steps(OUT_OF_ORDER, expected), stored("joined", {0: (expected_last, last_ms)}))
    for name, program, expected, expected_last, last_ms in (
        (
            "inner",
            tables("join"),
            ". . . A-a@4 B-a@5 B-b@6 ~@7 . . C-c@10 ~@11 . . . D-d@7 ~@7 . . E-e@15 ~@14 . . F-f@4",
            "F-f",
            4,
        ),
        (
            "left",
            tables("left_join"),
            ". . A-null@3 A-a@4 B-a@5 B-b@6 ~@7 . C-null@9 C-c@10 C-null@11 ~@12 . . D-d@7 ~@7 . . E-e@15 ~@14 . "
            "F-null@4 F-f@4",
            "F-f",
            4,
        ),
        (
            "outer",
            tables("outer_join"),
            ". . A-null@3 A-a@4 B-a@5 B-b@6 null-b@7 ~@8 C-null@9 C-c@10 C-null@11 ~@12 . null-d@7 D-d@7 null-d@7 ~@3 "
            "null-e@14 E-e@15 null-e@14 ~@9 F-null@4 F-f@4",
            "F-f",
            4,
        ),
        (
            "inner with versioned stores",
            tables("join", versioned="left, right"),
            ". . . A-a@4 B-a@5 B-b@6 ~@7 . . C-c@10 ~@11 . . . . . . . E-e@15 . . . .",
            "E-e",
            15,
        ),
        (
            "left with versioned stores",
            tables("left_join", versioned="left, right"),
            ". . A-null@3 A-a@4 B-a@5 B-b@6 ~@7 . C-null@9 C-c@10 C-null@11 ~@12 . . . . . . E-e@15 . . . .",
            "E-e",
            15,
        ),
        (
            "outer with versioned stores",
            tables("outer_join", versioned="left, right"),
            ". . A-null@3 A-a@4 B-a@5 B-b@6 null-b@7 ~@8 C-null@9 C-c@10 C-null@11 ~@12 . . . . . null-e@14 E-e@15 "
            ". . . .",
            "E-e",
            15,
        ),
        (
            "inner with left versioned only",
            tables("join", versioned="left"),
            ". . . A-a@4 B-a@5 B-b@6 ~@7 . . C-c@10 ~@11 . . . . . . . E-e@15 . ~@15 . E-f@15",
            "E-f",
            15,
        ),
        (
            "left with left versioned only",
            tables("left_join", versioned="left"),
            ". . A-null@3 A-a@4 B-a@5 B-b@6 ~@7 . C-null@9 C-c@10 C-null@11 ~@12 . . . . . . E-e@15 . E-null@15 . "
            "E-f@15",
            "E-f",
            15,
        ),
        (
            "outer with left versioned only",
            tables("outer_join", versioned="left"),
            ". . A-null@3 A-a@4 B-a@5 B-b@6 null-b@7 ~@8 C-null@9 C-c@10 C-null@11 ~@12 . null-d@7 . . ~@3 null-e@14 "
            "E-e@15 . E-null@15 . E-f@15",
            "E-f",
            15,
        ),
        (
            "inner with right versioned only",
            tables("join", versioned="right"),
            ". . . A-a@4 B-a@5 B-b@6 ~@7 . . C-c@10 ~@11 . . . . . . . E-e@15 ~@14 . F-e@14 .",
            "F-e",
            14,
        ),
        (
            "left with right versioned only",
            tables("left_join", versioned="right"),
            ". . A-null@3 A-a@4 B-a@5 B-b@6 ~@7 . C-null@9 C-c@10 C-null@11 ~@12 . . D-null@6 ~@2 . . E-e@15 ~@14 . "
            "F-e@14 .",
            "F-e",
            14,
        ),
        (
            "outer with right versioned only",
            tables("outer_join", versioned="right"),
            ". . A-null@3 A-a@4 B-a@5 B-b@6 null-b@7 ~@8 C-null@9 C-c@10 C-null@11 ~@12 . . D-null@6 ~@2 . null-e@14 "
            "E-e@15 null-e@14 . F-e@14 .",
            "F-e",
            14,
        ),
    )
}

MULTI_JOINS = {
    name: case(tables(first, second), *steps(IN_ORDER, expected), stored("joined", {0: ("D-d-d", 15)}))
    for name, first, second, expected in (
        (
            "inner inner",
            "join",
            "join",
            ". . . A-a-a@4,A-a-a@4 B-a-a@5 B-b-b@6,B-b-b@6 ~@7 . . C-c-c@10,C-c-c@10 . . . . D-d-d@15 . .",
        ),
        (
            "inner left",
            "join",
            "left_join",
            ". . . A-a-a@4,A-a-a@4 B-a-a@5 B-b-b@6,B-b-b@6 ~@7 . . C-c-c@10,C-c-c@10 ~@11 . . . D-d-d@15 . .",
        ),
        (
            "inner outer",
            "join",
            "outer_join",
            ". . . A-a-a@4,A-a-a@4 B-a-a@5 B-b-b@6,B-b-b@6 null-b@7 ~@8 . C-c-c@10,C-c-c@10 ~@11,~@11 . . null-d@14 "
            "D-d-d@15 . .",
        ),
        (
            "left inner",
            "left_join",
            "join",
            ". . . A-a-a@4,A-a-a@4 B-a-a@5 B-b-b@6,B-b-b@6 ~@7 . . C-c-c@10,C-c-c@10 ~@11 . . . D-d-d@15 . .",
        ),
        (
            "left left",
            "left_join",
            "left_join",
            ". . A-null-null@3 A-a-a@4,A-a-a@4 B-a-a@5 B-b-b@6,B-b-b@6 ~@7 . C-null-null@9 C-c-c@10,C-c-c@10 "
            "C-null-null@11,C-null-null@11 ~@12 . . D-d-d@15 . .",
        ),
        (
            "left outer",
            "left_join",
            "outer_join",
            ". . A-null-null@3 A-a-a@4,A-a-a@4 B-a-a@5 B-b-b@6,B-b-b@6 null-b@7 ~@8 C-null-null@9 C-c-c@10,C-c-c@10 "
            "C-null-null@11,C-null-null@11 ~@12 . null-d@14 D-d-d@15 . .",
        ),
        (
            "outer inner",
            "outer_join",
            "join",
            ". . . A-a-a@4,A-a-a@4 B-a-a@5 B-b-b@6,B-b-b@6 null-b-b@7 . . C-c-c@10,C-c-c@10 ~@11 . . "
            "null-d-d@14,null-d-d@14 D-d-d@15 . .",
        ),
        (
            "outer left",
            "outer_join",
            "left_join",
            ". . A-null-null@3 A-a-a@4,A-a-a@4 B-a-a@5 B-b-b@6,B-b-b@6 null-b-b@7 ~@8 C-null-null@9 "
            "C-c-c@10,C-c-c@10 C-null-null@11,C-null-null@11 ~@12 . null-d-d@14,null-d-d@14 D-d-d@15 . .",
        ),
        (
            "outer outer",
            "outer_join",
            "outer_join",
            ". . A-null-null@3 A-a-a@4,A-a-a@4 B-a-a@5 B-b-b@6,B-b-b@6 null-b-b@7 ~@8,~@8 C-null-null@9 "
            "C-c-c@10,C-c-c@10 C-null-null@11,C-null-null@11 ~@12 . null-d-d@14,null-d-d@14 D-d-d@15 . .",
        ),
    )
}


test_stream_stream = of_cases(STREAM_STREAM)
test_stream_table = of_cases(STREAM_TABLE)
test_table_table = of_cases(TABLE_TABLE)
test_multi_joins = of_cases(MULTI_JOINS)
