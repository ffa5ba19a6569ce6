"""Joins of a stream with a table, or with a global table.

Kafka's KStreamKTableJoinTest, KStreamKTableLeftJoinTest, KStreamGlobalKTableJoinTest, KStreamGlobalKTableLeftJoinTest,
RelaxedNullKeyRequirementJoinTest and JoinGracePeriodDurabilityIntegrationTest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from statestore.dsl import Joined, JoinWindows, KStream, KTable, Materialized
from statestore.errors import TopologyError
from tests.support.dsl.kafka_cases import (
    INT,
    TEXT,
    Case,
    CaseBuilder,
    Step,
    case,
    dropped,
    numbered,
    of_cases,
    out,
    pipe,
    plus,
    restarted,
    restored,
)

Program = Callable[[CaseBuilder], KStream]
FIVE_MINUTES = 300_000


def stream(prefix: str, count: int) -> Step:
    return pipe("stream", *numbered(prefix, count, 0, 1))


def table(prefix: str, count: int, at_ms: int = 0) -> Step:
    return pipe("table", *numbered(prefix, count, at_ms))


def without_first_two_keys(at_ms: int = 0) -> Step:
    return pipe("table", (0, None, at_ms), (1, None, at_ms))


def with_table(how: str) -> Program:
    def program(builder: CaseBuilder) -> KStream:
        table = builder.table("table", key_serde=INT)
        joined: KStream = getattr(builder.stream("stream", key_serde=INT), how)(table, plus)
        return joined

    return program


def with_grace(builder: CaseBuilder) -> KStream:
    table = builder.table("table", key_serde=INT, materialized=Materialized.as_versioned("V-grace", FIVE_MINUTES))
    stream = builder.stream("stream", key_serde=INT)
    return stream.join(table, plus, Joined.with_(INT, TEXT).with_grace_period(2), name="Grace")


INNER = {
    "should not join with empty table on stream updates": case(with_table("join"), stream("X", 2), out()),
    "should not join on table updates": case(
        with_table("join"),
        stream("X", 2),
        out(),
        table("Y", 2, 7_654),
        out(),
        stream("X", 4),
        out((0, "X0+Y0", 0), (1, "X1+Y1", 1)),
        table("YY", 4, 321),
        out(),
        stream("X", 4),
        out((0, "X0+YY0", 0), (1, "X1+YY1", 1), (2, "X2+YY2", 2), (3, "X3+YY3", 3)),
        table("YYY", 4, 99_999),
        out(),
    ),
    "should join only if match found on stream updates": case(
        with_table("join"), table("Y", 2), out(), stream("X", 4), out((0, "X0+Y0", 0), (1, "X1+Y1", 1))
    ),
    "should clear table entry on null value updates": case(
        with_table("join"),
        table("Y", 4, 55),
        out(),
        stream("X", 4),
        out((0, "X0+Y0", 0), (1, "X1+Y1", 1), (2, "X2+Y2", 2), (3, "X3+Y3", 3)),
        without_first_two_keys(),
        out(),
        stream("XX", 4),
        out((2, "XX2+Y2", 2), (3, "XX3+Y3", 3)),
    ),
    "should meter when skipping null left key": case(
        with_table("join"), pipe("stream", (None, "A", 0)), out(), dropped(1)
    ),
    "should meter when skipping null left value": case(
        with_table("join"), pipe("stream", (1, None, 0)), out(), dropped(1)
    ),
    "should delay join by grace period": case(
        with_grace,
        table("Y", 4),
        out(),
        stream("X", 4),
        out((0, "X0+Y0", 0), (1, "X1+Y1", 1)),
        table("YY", 4),
        out(),
        stream("X", 4),
        out((0, "X0+YY0", 0), (1, "X1+YY1", 1)),
        pipe("stream", (5, "test", 7)),
        out((2, "X2+YY2", 2), (2, "X2+YY2", 2), (3, "X3+YY3", 3), (3, "X3+YY3", 3)),
        table("YYY", 4),
        out(),
    ),
    "should handle late joins with grace period": case(
        with_grace,
        table("Y", 4),
        out(),
        stream("X", 4),
        out((0, "X0+Y0", 0), (1, "X1+Y1", 1)),
        stream("X", 1),
        out((0, "X0+Y0", 0)),
    ),
}

LEFT = {
    "should join with empty table on stream updates": case(
        with_table("left_join"), stream("X", 2), out((0, "X0+null", 0), (1, "X1+null", 1))
    ),
    "should not join on table updates": case(
        with_table("left_join"),
        stream("X", 2),
        out((0, "X0+null", 0), (1, "X1+null", 1)),
        table("Y", 2, 7_654),
        out(),
        stream("X", 4),
        out((0, "X0+Y0", 0), (1, "X1+Y1", 1), (2, "X2+null", 2), (3, "X3+null", 3)),
        table("YY", 4, 321),
        out(),
        stream("X", 4),
        out((0, "X0+YY0", 0), (1, "X1+YY1", 1), (2, "X2+YY2", 2), (3, "X3+YY3", 3)),
        table("YYY", 4, 99_999),
        out(),
    ),
    "should join regardless if match found on stream updates": case(
        with_table("left_join"),
        table("Y", 2),
        out(),
        stream("X", 4),
        out((0, "X0+Y0", 0), (1, "X1+Y1", 1), (2, "X2+null", 2), (3, "X3+null", 3)),
    ),
    "should clear table entry on null value updates": case(
        with_table("left_join"),
        table("Y", 4, 55),
        out(),
        stream("X", 4),
        out((0, "X0+Y0", 0), (1, "X1+Y1", 1), (2, "X2+Y2", 2), (3, "X3+Y3", 3)),
        without_first_two_keys(),
        out(),
        stream("XX", 4),
        out((0, "XX0+null", 0), (1, "XX1+null", 1), (2, "XX2+Y2", 2), (3, "XX3+Y3", 3)),
    ),
}


# ---- Global tables, which are joined by the second part of the stream's values


def with_global_table(how: str) -> Program:
    def second_part(key: Any, value: str) -> str | None:
        _, comma, part = value.partition(",")
        return part if comma else None

    def program(builder: CaseBuilder) -> KStream:
        table = builder.global_table("global")
        joined: KStream = getattr(builder.stream("stream", key_serde=INT), how)(table, second_part, plus)
        return joined

    return program


def foreign(prefix: str, count: int, at_ms: int = 0, *, has_null_key: bool = False) -> Step:
    """Values that name a key of the global table; the timestamps count up."""
    keys = [None if has_null_key and not key else key for key in range(count)]
    return pipe("stream", *((key, f"{prefix}{each},FKey{each}", at_ms + each) for each, key in enumerate(keys)))


def global_table(prefix: str, count: int) -> Step:
    return pipe("global", *((f"FKey{key}", f"{prefix}{key}", 0) for key in range(count)))


def without_first_two_global_keys() -> Step:
    return pipe("global", ("FKey0", None, 0), ("FKey1", None, 0))


FOUR = ((0, "X0,FKey0+Y0", 0), (1, "X1,FKey1+Y1", 1), (2, "X2,FKey2+Y2", 2), (3, "X3,FKey3+Y3", 3))
FOUR_LATER = ((0, "X0,FKey0+YY0", 6), (1, "X1,FKey1+YY1", 7), (2, "X2,FKey2+YY2", 8), (3, "X3,FKey3+YY3", 9))

GLOBAL = {
    "should not join with empty global table on stream updates": case(
        with_global_table("join"), foreign("X", 2), out()
    ),
    "should not join on global table updates": case(
        with_global_table("join"),
        foreign("X", 2),
        out(),
        global_table("Y", 2),
        out(),
        foreign("X", 4, 2),
        out((0, "X0,FKey0+Y0", 2), (1, "X1,FKey1+Y1", 3)),
        global_table("YY", 4),
        out(),
        foreign("X", 4, 6),
        out(*FOUR_LATER),
        global_table("YYY", 4),
        out(),
    ),
    "should join only if match found on stream updates": case(
        with_global_table("join"), global_table("Y", 2), out(), foreign("X", 4), out(*FOUR[:2])
    ),
    "should clear global table entry on null value updates": case(
        with_global_table("join"),
        global_table("Y", 4),
        out(),
        foreign("X", 4),
        out(*FOUR),
        without_first_two_global_keys(),
        out(),
        foreign("XX", 4, 4),
        out((2, "XX2,FKey2+Y2", 6), (3, "XX3,FKey3+Y3", 7)),
    ),
    "should not join on null key mapper values": case(
        with_global_table("join"), global_table("Y", 4), out(), stream("XXX", 4), out()
    ),
    "should join on null key with non-null key mapper values": case(
        with_global_table("join"),
        global_table("Y", 2),
        out(),
        foreign("X", 4, has_null_key=True),
        out((None, "X0,FKey0+Y0", 0), (1, "X1,FKey1+Y1", 1)),
    ),
}

GLOBAL_LEFT = {
    "should join with empty global table on stream updates": case(
        with_global_table("left_join"), foreign("X", 2), out((0, "X0,FKey0+null", 0), (1, "X1,FKey1+null", 1))
    ),
    "should not join on global table updates": case(
        with_global_table("left_join"),
        foreign("X", 2),
        out((0, "X0,FKey0+null", 0), (1, "X1,FKey1+null", 1)),
        global_table("Y", 2),
        out(),
        foreign("X", 4, 2),
        out((0, "X0,FKey0+Y0", 2), (1, "X1,FKey1+Y1", 3), (2, "X2,FKey2+null", 4), (3, "X3,FKey3+null", 5)),
        global_table("YY", 4),
        out(),
        foreign("X", 4, 6),
        out(*FOUR_LATER),
        global_table("YYY", 4),
        out(),
    ),
    "should join regardless if match found on stream updates": case(
        with_global_table("left_join"),
        global_table("Y", 2),
        out(),
        foreign("X", 4),
        out(*FOUR[:2], (2, "X2,FKey2+null", 2), (3, "X3,FKey3+null", 3)),
    ),
    "should clear global table entry on null value updates": case(
        with_global_table("left_join"),
        global_table("Y", 4),
        out(),
        foreign("X", 4),
        out(*FOUR),
        without_first_two_global_keys(),
        out(),
        foreign("XX", 4, 4),
        out((0, "XX0,FKey0+null", 4), (1, "XX1,FKey1+null", 5), (2, "XX2,FKey2+Y2", 6), (3, "XX3,FKey3+Y3", 7)),
    ),
    "should join on null key with non-null key mapper values": case(
        with_global_table("left_join"),
        global_table("Y", 4),
        out(),
        foreign("X", 4, has_null_key=True),
        out((None, "X0,FKey0+Y0", 0), *FOUR[1:]),
    ),
}


# ---- Records without a key, behind a repartition topic

WITHIN_A_MINUTE = JoinWindows.of_time_difference_and_grace(60_000, 10_000)


def divided(builder: CaseBuilder) -> tuple[KStream, KStream]:
    return builder.stream("left").repartition(), builder.stream("right").repartition()


def left_join_of_streams(builder: CaseBuilder) -> KStream:
    left, right = divided(builder)
    return left.left_join(right, plus, WITHIN_A_MINUTE)


def outer_join_of_streams(builder: CaseBuilder) -> KStream:
    left, right = divided(builder)
    return left.outer_join(right, plus, WITHIN_A_MINUTE)


def left_join_of_a_table(builder: CaseBuilder) -> KStream:
    left, right = divided(builder)
    return left.left_join(right.to_table(), plus)


def left_join_of_a_global_table(builder: CaseBuilder) -> KStream:
    left = builder.stream("left").repartition()
    return left.left_join(builder.global_table("global"), lambda key, value: None, plus)


def no_join(builder: CaseBuilder) -> KStream:
    return builder.stream("left").repartition().repartition()


A_LEFT_RECORD = pipe("left", (None, "leftValue", 1))
UNMATCHED = out((None, "leftValue+null", 1))

NULL_KEYS = {
    "relaxed left stream-stream join": case(left_join_of_streams, A_LEFT_RECORD, UNMATCHED),
    "relaxed left stream-table join": case(left_join_of_a_table, A_LEFT_RECORD, UNMATCHED),
    "relaxed outer stream-stream join": case(
        outer_join_of_streams,
        pipe("right", (None, "rightValue", 1)),
        A_LEFT_RECORD,
        out((None, "null+rightValue", 1), (None, "leftValue+null", 1)),
    ),
    "relaxed left stream-global table join": case(left_join_of_a_global_table, A_LEFT_RECORD, UNMATCHED),
    "drop null key records for repartition nodes with no relaxed join downstream": case(no_join, A_LEFT_RECORD, out()),
}


test_stream_table_joins = of_cases(INNER)
test_stream_table_left_joins = of_cases(LEFT)
test_global_table_joins = of_cases(GLOBAL)
test_global_table_left_joins = of_cases(GLOBAL_LEFT)
test_records_without_a_key = of_cases(NULL_KEYS)
# ---- JoinGracePeriodDurabilityIntegrationTest


def texts_with_grace(builder: CaseBuilder) -> KStream:
    table = builder.table("table", materialized=Materialized.as_versioned("grace", 1000))
    return builder.stream("stream").join(table, plus, Joined.with_(TEXT, TEXT).with_grace_period(5), name="Grace")


def recovered(restart: Step) -> Case:
    return case(
        texts_with_grace,
        pipe("table", *((f"k{number}", f"v{number}", 0) for number in range(1, 7))),
        pipe("stream", "k1 v1 at 200, k2 v2 at 400, k3 v3 at 1400"),
        out("k1 v1+v1 at 200, k2 v2+v2 at 400"),
        pipe("stream", "k4 v4 at 800, k5 v5 at 1000"),
        restart,
        pipe("stream", "k6 v6 at 4000"),
        out("k4 v4+v4 at 800, k5 v5+v5 at 1000, k3 v3+v3 at 1400"),
    )


test_should_recover_buffer_after_shutdown = of_cases(
    {"from disk": recovered(restarted), "from the changelog": recovered(restored)}
)


# ---- What is refused: a grace period needs a history

PLAIN = Materialized.as_("tableB").with_store_in_memory()
VERSIONED = Materialized.as_versioned("tableB", FIVE_MINUTES)


def join_with_grace(stored: Materialized | None, grace_ms: int, *, is_filtered: bool = False) -> CaseBuilder:
    builder = CaseBuilder(in_columns=True)
    table: KTable[KStream] = builder.table("topic2", materialized=stored)
    seen = table.filter(lambda key, value: True) if is_filtered else table
    joined = Joined.with_(TEXT, TEXT).with_grace_period(grace_ms)
    builder.stream("topic").join(seen, plus, joined, value_serde=TEXT, name="first-join").to("out-one")
    return builder


@pytest.mark.parametrize(
    ("stored", "grace_ms", "is_filtered"),
    [
        pytest.param(None, 6, False, id="should fail if table is not versioned"),
        pytest.param(PLAIN, 6, True, id="should fail if table is not versioned but materialization is inherited"),
        pytest.param(VERSIONED, 360_000, False, id="should fail if grace period is longer than history retention"),
        pytest.param(
            Materialized.as_versioned("V-grace", 0),
            6,
            True,
            id="should fail if grace period is longer than history retention and inherited store",
        ),
    ],
)
def test_what_is_refused(stored: Materialized | None, grace_ms: int, is_filtered: bool) -> None:
    with pytest.raises(TopologyError, match="grace"):
        join_with_grace(stored, grace_ms, is_filtered=is_filtered).build()


def test_should_not_fail_if_table_is_versioned_but_materialization_is_inherited() -> None:
    assert "tableB" in join_with_grace(VERSIONED, 6, is_filtered=True).build().store_builders
