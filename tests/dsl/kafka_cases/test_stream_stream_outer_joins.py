"""Outer joins of streams: Kafka's KStreamKStreamOuterJoinTest."""

from __future__ import annotations

from typing import Any

from statestore.dsl import JoinWindows, KStream, StreamJoined
from statestore.testing import TestRecord
from tests.support.dsl.kafka_cases import (
    INT,
    LONG,
    CaseBuilder,
    CaseRun,
    Step,
    case,
    numbered,
    of_cases,
    out,
    pipe,
    plus,
)

WITHIN_100 = JoinWindows.of_time_difference_with_no_grace(100)
WITHIN_100_AND_10 = JoinWindows.of_time_difference_and_grace(100, 10)


def joined(windows: JoinWindows, *options: Any, headers: str = "merge_distinct") -> Any:
    def program(builder: CaseBuilder) -> KStream:
        left, right = builder.stream("left", key_serde=INT), builder.stream("right", key_serde=INT, value_serde=LONG)
        return left.outer_join(right, plus, windows, *options, headers=headers)

    return program


def left(prefix: str, count: int = 4, at_ms: int = 0, step_ms: int = 0) -> Step:
    return pipe("left", *numbered(prefix, count, at_ms, step_ms))


def right(first: int, count: int = 4, at_ms: int = 0, step_ms: int = 0) -> Step:
    """Keys 0, 1, ... with values that count up."""
    return pipe("right", *((key, first + key, at_ms + key * step_ms) for key in range(count)))


def pipe_with_header(topic: str, key: int, value: Any, timestamp_ms: int, header: bytes) -> Step:
    return lambda run: run.pipe(topic, [TestRecord(key, value, timestamp_ms, [("h", header)])])


def out_with_headers(*expected: tuple[int, str, int, bytes]) -> Step:
    def step(run: CaseRun) -> None:
        found = [
            (record.key, record.value, record.timestamp_ms, *(header.value for header in record.headers))
            for record in run.take("out")
        ]
        assert found == list(expected)

    return step


ALL_AT_0: tuple[Step, ...] = (
    left("A", 2),
    out(),
    right(10, 2),
    out((0, "A0+10", 0), (1, "A1+11", 0)),
    left("B", 3),
    out((0, "B0+10", 0), (1, "B1+11", 0)),
    right(20),
    out((0, "A0+20", 0), (0, "B0+20", 0), (1, "A1+21", 0), (1, "B1+21", 0), (2, "B2+22", 0)),
    left("C"),
    out((0, "C0+10", 0), (0, "C0+20", 0), (1, "C1+11", 0), (1, "C1+21", 0), (2, "C2+22", 0), (3, "C3+23", 0)),
    pipe("left", (0, "dummy", 400)),
    out(),
)

THREE_ON_THE_LEFT: tuple[Step, ...] = (
    pipe("left", (0, "A0", 1), (1, "A1", 2), (0, "A0-0", 3)),
    out(),
    pipe("right", (1, 11, 3)),
    out((1, "A1+11", 3)),
)

THREE_ON_THE_RIGHT: tuple[Step, ...] = (
    pipe("right", (0, 10, 1), (1, 11, 2), (0, 12, 3)),
    out(),
    pipe("left", (1, "A1", 3)),
    out((1, "A1+11", 3)),
)

UPPER_BOUND: tuple[Step, ...] = (
    right(20, 4, 1000, 1),
    out((2, "null+12", 0), (3, "null+13", 0)),
    left("B", 4, 1100),
    out((0, "B0+20", 1100), (1, "B1+21", 1100), (2, "B2+22", 1100), (3, "B3+23", 1100)),
    left("C", 4, 1101),
    out((1, "C1+21", 1101), (2, "C2+22", 1101), (3, "C3+23", 1101)),
    left("D", 4, 1102),
    out((2, "D2+22", 1102), (3, "D3+23", 1102)),
    left("E", 4, 1103),
    out((3, "E3+23", 1103)),
    left("F", 4, 1104),
    out(),
    pipe("left", (0, "dummy", 1405)),
    out(
        (0, "C0+null", 1101),
        (0, "D0+null", 1102),
        (1, "D1+null", 1102),
        (0, "E0+null", 1103),
        (1, "E1+null", 1103),
        (2, "E2+null", 1103),
        (0, "F0+null", 1104),
        (1, "F1+null", 1104),
        (2, "F2+null", 1104),
        (3, "F3+null", 1104),
    ),
)

LOWER_BOUND: tuple[Step, ...] = (
    left("G", 4, 899),
    out((0, "G0+null", 899), (1, "G1+null", 899), (2, "G2+null", 899), (3, "G3+null", 899)),
    left("H", 4, 900),
    out((0, "H0+20", 1000), (1, "H1+null", 900), (2, "H2+null", 900), (3, "H3+null", 900)),
    left("I", 4, 901),
    out((0, "I0+20", 1000), (1, "I1+21", 1001), (2, "I2+null", 901), (3, "I3+null", 901)),
    left("J", 4, 902),
    out((0, "J0+20", 1000), (1, "J1+21", 1001), (2, "J2+22", 1002), (3, "J3+null", 902)),
    left("K", 4, 903),
    out((0, "K0+20", 1000), (1, "K1+21", 1001), (2, "K2+22", 1002), (3, "K3+23", 1003)),
    pipe("left", (0, "dummy", 1103)),
    out((0, "dummy+null", 1103)),
)

CASES = {
    "outer join with default suppliers": case(joined(WITHIN_100), *ALL_AT_0),
    "outer join with in-memory suppliers": case(joined(WITHIN_100, StreamJoined().with_stores_in_memory()), *ALL_AT_0),
    "outer join of KStreamKStreamJoinTest": case(
        joined(JoinWindows.of_time_difference_and_grace(100, 24 * 3_600_000)),
        left("A", 2),
        out(),
        right(10, 2),
        out((0, "A0+10", 0), (1, "A1+11", 0)),
        left("B"),
        out((0, "B0+10", 0), (1, "B1+11", 0)),
        right(20),
        out(
            (0, "A0+20", 0),
            (0, "B0+20", 0),
            (1, "A1+21", 0),
            (1, "B1+21", 0),
            (2, "B2+22", 0),
            (3, "B3+23", 0),
        ),
    ),
    "outer join duplicates": case(
        joined(WITHIN_100_AND_10),
        pipe("left", (0, "A0", 0), (0, "A0-0", 0)),
        pipe("right", (1, 11, 0), (1, 12, 0), (1, 10, 111), (3, 100, 211)),
        out((1, "null+11", 0), (1, "null+12", 0), (0, "A0+null", 0), (0, "A0-0+null", 0)),
        pipe("left", (2, "A2", 200), (2, "A2-0", 200)),
        pipe("right", (2, 13, 201), (2, 14, 201)),
        out((2, "A2+13", 201), (2, "A2-0+13", 201), (2, "A2+14", 201), (2, "A2-0+14", 201)),
        pipe("right", (3, 100, 1500)),
        out((1, "null+10", 111), (3, "null+100", 211)),
    ),
    "left expired non-joined records are emitted by the left processor": case(
        joined(WITHIN_100),
        *THREE_ON_THE_LEFT,
        pipe("left", (2, "dummy", 401)),
        out((0, "A0+null", 1), (0, "A0-0+null", 3)),
        pipe("right", (2, 100, 401)),
        out((2, "dummy+100", 401)),
    ),
    "left expired non-joined records are emitted by the right processor": case(
        joined(WITHIN_100),
        *THREE_ON_THE_LEFT,
        pipe("right", (2, 100, 401)),
        out((0, "A0+null", 1), (0, "A0-0+null", 3)),
        pipe("left", (2, "dummy", 402)),
        out((2, "dummy+100", 402)),
    ),
    "right expired non-joined records are emitted by the left processor": case(
        joined(WITHIN_100),
        *THREE_ON_THE_RIGHT,
        pipe("left", (2, "dummy", 401)),
        out((0, "null+10", 1), (0, "null+12", 3)),
        pipe("right", (2, 100, 402)),
        out((2, "dummy+100", 402)),
    ),
    "right expired non-joined records are emitted by the right processor": case(
        joined(WITHIN_100),
        *THREE_ON_THE_RIGHT,
        pipe("right", (2, 100, 401)),
        out((0, "null+10", 1), (0, "null+12", 3)),
        pipe("left", (2, "dummy", 402)),
        out((2, "dummy+100", 402)),
    ),
    "ordering": case(
        joined(WITHIN_100),
        pipe("left", (0, "A0", 0), (1, "A1", 100)),
        out(),
        pipe("right", (1, 11, 110)),
        out((0, "A0+null", 0), (1, "A1+11", 110)),
    ),
    "grace period": case(
        joined(WITHIN_100_AND_10),
        pipe("left", (0, "A0", 0)),
        pipe("right", (1, 11, 0)),
        out(),
        pipe("left", (1, "A1", 101)),
        pipe("right", (0, 10, 101)),
        out(),
        pipe("right", (0, 100, 112)),
        out((1, "null+11", 0), (0, "A0+null", 0)),
    ),
    "emit all non-joined results for asymmetric window": case(
        joined(JoinWindows.of_time_difference_with_no_grace(5).after(20)),
        pipe("left", (0, "A0", 29)),
        out(),
        pipe("left", (1, "A1", 30)),
        out(),
        pipe("right", (2, 12, 31)),
        out(),
        pipe("right", (3, 13, 36)),
        out(),
        pipe("right", (4, 14, 37)),
        out((2, "null+12", 31)),
        pipe("right", (5, 15, 50)),
        out((0, "A0+null", 29), (3, "null+13", 36), (4, "null+14", 37)),
    ),
    "windowing": case(
        joined(WITHIN_100),
        left("A", 2),
        out(),
        right(10),
        out((0, "A0+10", 0), (1, "A1+11", 0)),
        *UPPER_BOUND,
        *LOWER_BOUND,
    ),
    "should not emit left join result for asymmetric before window": case(
        joined(WITHIN_100.before(0)),
        left("A", 2, 0, 1),
        out(),
        pipe("right", (0, 10, 100)),
        out((0, "A0+10", 100)),
        pipe("right", (1, 11, 102)),
        out((1, "A1+null", 1)),
        pipe("right", (2, 12, 103)),
        out((1, "null+11", 102)),
        pipe("left", (2, "A2", 103)),
        out((2, "A2+12", 103)),
    ),
    "should not emit left join result for asymmetric after window": case(
        joined(WITHIN_100.after(0)),
        left("A", 2, 0, 1),
        out((0, "A0+null", 0)),
        pipe("right", (1, 11, 1)),
        out((1, "A1+11", 1)),
        pipe("right", (2, 12, 101)),
        out(),
        pipe("right", (3, 13, 101)),
        out(),
        pipe("left", (2, "A2", 201)),
        out((2, "A2+12", 201)),
    ),
    "should forward current headers, but those of the record itself if nothing matched it": case(
        joined(WITHIN_100_AND_10, headers="latest"),
        pipe_with_header("left", 0, "A0", 0, b"\1"),
        pipe_with_header("right", 1, 10, 0, b"\2"),
        pipe_with_header("right", 3, 100, 211, b"\3"),
        # In Kafka both have \3, the header of the record that closed their windows.
        out_with_headers((1, "null+10", 0, b"\2"), (0, "A0+null", 0, b"\1")),
        pipe_with_header("left", 2, "A2", 200, b"\4"),
        pipe_with_header("right", 2, 12, 200, b"\5"),
        out_with_headers((2, "A2+12", 200, b"\5")),
    ),
}


test_outer_joins = of_cases(CASES)
