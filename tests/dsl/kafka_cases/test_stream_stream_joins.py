"""Inner joins of streams: Kafka's KStreamKStreamJoinTest and StreamStreamJoinIntegrationTest."""

from __future__ import annotations

from typing import Any

from statestore.dsl import JoinWindows, KStream
from statestore.dsl.joins.joined import StreamJoined
from tests.support.dsl.kafka_cases import INT, Case, CaseBuilder, Step, case, each, numbered, out, pipe, plus

WITHIN_100 = JoinWindows.of_time_difference_with_no_grace(100)


def joined(windows: JoinWindows, **options: Any) -> Any:
    def program(builder: CaseBuilder) -> KStream:
        left = builder.stream("left", key_serde=INT)
        return left.join(builder.stream("right", key_serde=INT), plus, windows, **options)

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
    left("B"),
    out((0, "B0+a0", 0), (1, "B1+a1", 0)),
    right("b"),
    out(
        (0, "A0+b0", 0),
        (0, "B0+b0", 0),
        (1, "A1+b1", 0),
        (1, "B1+b1", 0),
        (2, "B2+b2", 0),
        (3, "B3+b3", 0),
    ),
    left("C"),
    out(
        (0, "C0+a0", 0),
        (0, "C0+b0", 0),
        (1, "C1+a1", 0),
        (1, "C1+b1", 0),
        (2, "C2+b2", 0),
        (3, "C3+b3", 0),
    ),
    right("c", 2),
    out(
        (0, "A0+c0", 0),
        (0, "B0+c0", 0),
        (0, "C0+c0", 0),
        (1, "A1+c1", 0),
        (1, "B1+c1", 0),
        (1, "C1+c1", 0),
    ),
)

UPPER_BOUND: tuple[Step, ...] = (
    left("B", 4, 1000, 1),
    out(),
    right("b", 4, 1100),
    out((0, "B0+b0", 1100), (1, "B1+b1", 1100), (2, "B2+b2", 1100), (3, "B3+b3", 1100)),
    right("c", 4, 1101),
    out((1, "B1+c1", 1101), (2, "B2+c2", 1101), (3, "B3+c3", 1101)),
    right("d", 4, 1102),
    out((2, "B2+d2", 1102), (3, "B3+d3", 1102)),
    right("e", 4, 1103),
    out((3, "B3+e3", 1103)),
    right("f", 4, 1104),
    out(),
)

LOWER_BOUND: tuple[Step, ...] = (
    right("g", 4, 899),
    out(),
    right("h", 4, 900),
    out((0, "B0+h0", 1000)),
    right("i", 4, 901),
    out((0, "B0+i0", 1000), (1, "B1+i1", 1001)),
    right("j", 4, 902),
    out((0, "B0+j0", 1000), (1, "B1+j1", 1001), (2, "B2+j2", 1002)),
    right("k", 4, 903),
    out((0, "B0+k0", 1000), (1, "B1+k1", 1001), (2, "B2+k2", 1002), (3, "B3+k3", 1003)),
)

BOUNDS_OF_THE_OTHER_SIDE: tuple[Step, ...] = (
    right("l", 4, 2000, 1),
    out(),
    left("C", 4, 2100),
    out((0, "C0+l0", 2100), (1, "C1+l1", 2100), (2, "C2+l2", 2100), (3, "C3+l3", 2100)),
    left("D", 4, 2101),
    out((1, "D1+l1", 2101), (2, "D2+l2", 2101), (3, "D3+l3", 2101)),
    left("E", 4, 2102),
    out((2, "E2+l2", 2102), (3, "E3+l3", 2102)),
    left("F", 4, 2103),
    out((3, "F3+l3", 2103)),
    left("G", 4, 2104),
    out(),
    left("H", 4, 1899),
    out(),
    left("I", 4, 1900),
    out((0, "I0+l0", 2000)),
    left("J", 4, 1901),
    out((0, "J0+l0", 2000), (1, "J1+l1", 2001)),
    left("K", 4, 1902),
    out((0, "K0+l0", 2000), (1, "K1+l1", 2001), (2, "K2+l2", 2002)),
    left("L", 4, 1903),
    out((0, "L0+l0", 2000), (1, "L1+l1", 2001), (2, "L2+l2", 2002), (3, "L3+l3", 2003)),
)

AFTER: tuple[Step, ...] = (
    left("A", 4, 1000, 1),
    out(),
    right("a", 4, 999),
    out(),
    right("b", 4, 1000),
    out((0, "A0+b0", 1000)),
    right("c", 4, 1001),
    out((0, "A0+c0", 1001), (1, "A1+c1", 1001)),
    right("d", 4, 1002),
    out((0, "A0+d0", 1002), (1, "A1+d1", 1002), (2, "A2+d2", 1002)),
    right("e", 4, 1003),
    out((0, "A0+e0", 1003), (1, "A1+e1", 1003), (2, "A2+e2", 1003), (3, "A3+e3", 1003)),
    right("f", 4, 1100),
    out((0, "A0+f0", 1100), (1, "A1+f1", 1100), (2, "A2+f2", 1100), (3, "A3+f3", 1100)),
    right("g", 4, 1101),
    out((1, "A1+g1", 1101), (2, "A2+g2", 1101), (3, "A3+g3", 1101)),
    right("h", 4, 1102),
    out((2, "A2+h2", 1102), (3, "A3+h3", 1102)),
    right("i", 4, 1103),
    out((3, "A3+i3", 1103)),
    right("j", 4, 1104),
    out(),
)

BEFORE: tuple[Step, ...] = (
    left("A", 4, 1000, 1),
    out(),
    right("a", 4, 899),
    out(),
    right("b", 4, 900),
    out((0, "A0+b0", 1000)),
    right("c", 4, 901),
    out((0, "A0+c0", 1000), (1, "A1+c1", 1001)),
    right("d", 4, 902),
    out((0, "A0+d0", 1000), (1, "A1+d1", 1001), (2, "A2+d2", 1002)),
    right("e", 4, 903),
    out((0, "A0+e0", 1000), (1, "A1+e1", 1001), (2, "A2+e2", 1002), (3, "A3+e3", 1003)),
    right("f", 4, 1000),
    out((0, "A0+f0", 1000), (1, "A1+f1", 1001), (2, "A2+f2", 1002), (3, "A3+f3", 1003)),
    right("g", 4, 1001),
    out((1, "A1+g1", 1001), (2, "A2+g2", 1002), (3, "A3+g3", 1003)),
    right("h", 4, 1002),
    out((2, "A2+h2", 1002), (3, "A3+h3", 1003)),
    right("i", 4, 1003),
    out((3, "A3+i3", 1003)),
    right("j", 4, 1004),
    out(),
)


def sums(builder: CaseBuilder) -> KStream:
    left, right = (builder.stream(topic, value_serde=INT) for topic in ("left", "right"))
    return left.join(right, lambda one, other: one + other, WITHIN_100)


CASES: dict[str, Case] = {
    "join": case(joined(WITHIN_100), *ALL_AT_0),
    "join in memory": case(joined(WITHIN_100, joined=StreamJoined().with_stores_in_memory()), *ALL_AT_0),
    "windowing": case(
        joined(WITHIN_100),
        left("A", 2),
        out(),
        right("a", 2),
        out((0, "A0+a0", 0), (1, "A1+a1", 0)),
        *UPPER_BOUND,
        *LOWER_BOUND,
        *BOUNDS_OF_THE_OTHER_SIDE,
    ),
    "asymmetric windowing after": case(joined(JoinWindows.of_time_difference_with_no_grace(0).after(100)), *AFTER),
    "asymmetric windowing before": case(joined(JoinWindows.of_time_difference_with_no_grace(0).before(100)), *BEFORE),
    "sums of the same key": case(
        sums,
        pipe("left", ("A", 1, 1), ("B", 1, 2)),
        pipe("right", ("A", 1, 1), ("B", 2, 2)),
        out(("A", 2, 1), ("B", 3, 2)),
    ),
}


@each(CASES)
def test_inner_joins(case: Case) -> None:
    case.run()
