"""Left joins of streams: Kafka's KStreamKStreamLeftJoinTest."""

from __future__ import annotations

from typing import Any

from statestore.dsl import JoinWindows, KStream, StreamJoined
from tests.support.dsl.kafka_cases import INT, Case, CaseBuilder, Step, case, each, numbered, out, pipe, plus

WITHIN_100 = JoinWindows.of_time_difference_with_no_grace(100)
WITHIN_100_AND_10 = JoinWindows.of_time_difference_and_grace(100, 10)


def joined(windows: JoinWindows, *options: Any) -> Any:
    def program(builder: CaseBuilder) -> KStream:
        left = builder.stream("left", key_serde=INT)
        return left.left_join(builder.stream("right", key_serde=INT), plus, windows, *options)

    return program


def left(prefix: str, count: int = 4, at_ms: int = 0, step_ms: int = 0) -> Step:
    return pipe("left", *numbered(prefix, count, at_ms, step_ms))


def right(prefix: str, count: int = 4, at_ms: int = 0, step_ms: int = 0) -> Step:
    return pipe("right", *numbered(prefix, count, at_ms, step_ms))


ALL_AT_0: tuple[Step, ...] = (
    left("A", 2),
    out(),
    right("a", 2),
    out((0, "A0+a0", 0), (1, "A1+a1", 0)),
    left("B", 3),
    out((0, "B0+a0", 0), (1, "B1+a1", 0)),
    right("b"),
    out((0, "A0+b0", 0), (0, "B0+b0", 0), (1, "A1+b1", 0), (1, "B1+b1", 0), (2, "B2+b2", 0)),
    left("C"),
    out((0, "C0+a0", 0), (0, "C0+b0", 0), (1, "C1+a1", 0), (1, "C1+b1", 0), (2, "C2+b2", 0), (3, "C3+b3", 0)),
    pipe("left", (0, "dummy", 1000)),
    out(),
)

THREE_ON_THE_LEFT: tuple[Step, ...] = (
    pipe("left", (0, "A0", 1), (1, "A1", 2), (0, "A0-0", 3)),
    out(),
    pipe("right", (1, "a1", 3)),
    out((1, "A1+a1", 3)),
)

THREE_ON_THE_RIGHT: tuple[Step, ...] = (
    pipe("right", (0, "A0", 1), (1, "A1", 2), (0, "A0-0", 3)),
    out(),
    pipe("left", (1, "a1", 3)),
    out((1, "a1+A1", 3)),
)

UPPER_BOUND: tuple[Step, ...] = (
    right("b", 4, 1000, 1),
    out(),
    left("B", 4, 1100),
    out((0, "B0+b0", 1100), (1, "B1+b1", 1100), (2, "B2+b2", 1100), (3, "B3+b3", 1100)),
    left("C", 4, 1101),
    out((1, "C1+b1", 1101), (2, "C2+b2", 1101), (3, "C3+b3", 1101)),
    left("D", 4, 1102),
    out((2, "D2+b2", 1102), (3, "D3+b3", 1102)),
    left("E", 4, 1103),
    out((3, "E3+b3", 1103)),
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
    out((0, "H0+b0", 1000), (1, "H1+null", 900), (2, "H2+null", 900), (3, "H3+null", 900)),
    left("I", 4, 901),
    out((0, "I0+b0", 1000), (1, "I1+b1", 1001), (2, "I2+null", 901), (3, "I3+null", 901)),
    left("J", 4, 902),
    out((0, "J0+b0", 1000), (1, "J1+b1", 1001), (2, "J2+b2", 1002), (3, "J3+null", 902)),
    left("K", 4, 903),
    out((0, "K0+b0", 1000), (1, "K1+b1", 1001), (2, "K2+b2", 1002), (3, "K3+b3", 1003)),
    pipe("left", (0, "dummy", 1203)),
    out((0, "dummy+null", 1203)),
)

CASES: dict[str, Case] = {
    "left join with default suppliers": case(joined(WITHIN_100), *ALL_AT_0),
    "left join with in-memory suppliers": case(joined(WITHIN_100, StreamJoined().with_stores_in_memory()), *ALL_AT_0),
    "left join duplicates": case(
        joined(WITHIN_100_AND_10),
        pipe("left", (0, "A0", 0), (0, "A0-0", 0)),
        pipe("right", (1, "a0", 111), (2, "dummy", 500)),
        out((0, "A0+null", 0), (0, "A0-0+null", 0)),
        pipe("left", (2, "A2", 1000), (2, "A2-0", 1000)),
        pipe("right", (2, "a2", 1001)),
        out((2, "A2+a2", 1001), (2, "A2-0+a2", 1001)),
        pipe("right", (3, "a3", 315)),
        out(),
    ),
    "left expired non-joined records are emitted by the left processor": case(
        joined(WITHIN_100),
        *THREE_ON_THE_LEFT,
        pipe("left", (2, "dummy", 401)),
        out((0, "A0+null", 1), (0, "A0-0+null", 3)),
        pipe("right", (2, "dummy", 401)),
        out((2, "dummy+dummy", 401)),
    ),
    "left expired non-joined records are emitted by the right processor": case(
        joined(WITHIN_100),
        *THREE_ON_THE_LEFT,
        pipe("right", (2, "dummy", 401)),
        out((0, "A0+null", 1), (0, "A0-0+null", 3)),
        pipe("left", (2, "dummy", 402)),
        out((2, "dummy+dummy", 402)),
    ),
    "right non-joined records are never emitted by the left processor": case(
        joined(WITHIN_100),
        *THREE_ON_THE_RIGHT,
        pipe("left", (2, "dummy", 401)),
        out(),
        pipe("right", (2, "dummy", 402)),
        out((2, "dummy+dummy", 402)),
    ),
    "right non-joined records are never emitted by the right processor": case(
        joined(WITHIN_100),
        *THREE_ON_THE_RIGHT,
        pipe("right", (2, "dummy", 401)),
        out(),
        pipe("left", (2, "dummy", 402)),
        out((2, "dummy+dummy", 402)),
    ),
    "left joined records with zero after are emitted": case(
        joined(WITHIN_100.after(0)),
        left("A", 4, 1000, 1),
        out((0, "A0+null", 1000), (1, "A1+null", 1001), (2, "A2+null", 1002)),
        right("a", 4, 999),
        out((0, "A0+a0", 1000), (1, "A1+a1", 1001), (2, "A2+a2", 1002), (3, "A3+a3", 1003)),
        right("b", 4, 1000),
        out((0, "A0+b0", 1000), (1, "A1+b1", 1001), (2, "A2+b2", 1002), (3, "A3+b3", 1003)),
        right("c", 4, 1001),
        out((1, "A1+c1", 1001), (2, "A2+c2", 1002), (3, "A3+c3", 1003)),
        right("d", 4, 1002),
        out((2, "A2+d2", 1002), (3, "A3+d3", 1003)),
        right("e", 4, 1003),
        out((3, "A3+e3", 1003)),
        right("f", 4, 1100),
        out(),
    ),
    "ordering": case(
        joined(WITHIN_100),
        pipe("left", (0, "A0", 0), (1, "A1", 100)),
        out(),
        pipe("right", (1, "a1", 110)),
        out((0, "A0+null", 0), (1, "A1+a1", 110)),
    ),
    "grace period": case(
        joined(WITHIN_100_AND_10),
        left("A", 2),
        out(),
        right("a", 4, 101),
        out(),
        pipe("right", (0, "dummy", 1201)),
        out((0, "A0+null", 0), (1, "A1+null", 0)),
    ),
    "windowing": case(
        joined(WITHIN_100),
        left("A", 2),
        out(),
        right("a"),
        out((0, "A0+a0", 0), (1, "A1+a1", 0)),
        *UPPER_BOUND,
        *LOWER_BOUND,
    ),
    "should not emit left join result for asymmetric window": case(
        joined(WITHIN_100.before(0)),
        left("A", 2, 0, 1),
        out(),
        pipe("right", (0, "a0", 100)),
        out((0, "A0+a0", 100)),
        pipe("right", (1, "a1", 102)),
        out((1, "A1+null", 1)),
    ),
}


@each(CASES)
def test_left_joins(case: Case) -> None:
    case.run()
