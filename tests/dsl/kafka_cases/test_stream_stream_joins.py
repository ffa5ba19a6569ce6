"""Inner and left joins of streams: Kafka's KStreamKStreamJoinTest and KStreamKStreamLeftJoinTest."""

from __future__ import annotations

from typing import Any

from statestore.dsl import JoinWindows, KStream
from statestore.dsl.joins.joined import StreamJoined
from tests.support.dsl.kafka_cases import INT, CaseBuilder, Step, case, numbered, of_cases, out, pipe, plus

AT_ONCE = JoinWindows.of_time_difference_with_no_grace(0)
WITHIN_100 = JoinWindows.of_time_difference_with_no_grace(100)
WITHIN_100_AND_10 = JoinWindows.of_time_difference_and_grace(100, 10)
IN_MEMORY = StreamJoined().with_stores_in_memory()


def joined(op: str, windows: JoinWindows, options: StreamJoined | None = None) -> Any:
    def program(builder: CaseBuilder) -> KStream:
        left, right = (builder.stream(topic, key_serde=INT) for topic in ("left", "right"))
        made: KStream = getattr(left, op)(right, plus, windows, options)
        return made

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


CASES = {
    "join": case(joined("join", WITHIN_100), *ALL_AT_0),
    "join in memory": case(joined("join", WITHIN_100, IN_MEMORY), *ALL_AT_0),
    "windowing": case(
        joined("join", WITHIN_100),
        left("A", 2),
        out(),
        right("a", 2),
        out((0, "A0+a0", 0), (1, "A1+a1", 0)),
        *UPPER_BOUND,
        *LOWER_BOUND,
        *BOUNDS_OF_THE_OTHER_SIDE,
    ),
    "asymmetric windowing after": case(joined("join", AT_ONCE.after(100)), *AFTER),
    "asymmetric windowing before": case(joined("join", AT_ONCE.before(100)), *BEFORE),
    "sums of the same key": case(
        sums,
        pipe("left", ("A", 1, 1), ("B", 1, 2)),
        pipe("right", ("A", 1, 1), ("B", 2, 2)),
        out(("A", 2, 1), ("B", 3, 2)),
    ),
}


test_inner_joins = of_cases(CASES)

LEFT_ALL_AT_0: tuple[Step, ...] = (
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

LEFT_UPPER_BOUND: tuple[Step, ...] = (
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

LEFT_LOWER_BOUND: tuple[Step, ...] = (
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

LEFT_CASES = {
    "left join with default suppliers": case(joined("left_join", WITHIN_100), *LEFT_ALL_AT_0),
    "left join with in-memory suppliers": case(joined("left_join", WITHIN_100, IN_MEMORY), *LEFT_ALL_AT_0),
    "left join duplicates": case(
        joined("left_join", WITHIN_100_AND_10),
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
        joined("left_join", WITHIN_100),
        *THREE_ON_THE_LEFT,
        pipe("left", (2, "dummy", 401)),
        out((0, "A0+null", 1), (0, "A0-0+null", 3)),
        pipe("right", (2, "dummy", 401)),
        out((2, "dummy+dummy", 401)),
    ),
    "left expired non-joined records are emitted by the right processor": case(
        joined("left_join", WITHIN_100),
        *THREE_ON_THE_LEFT,
        pipe("right", (2, "dummy", 401)),
        out((0, "A0+null", 1), (0, "A0-0+null", 3)),
        pipe("left", (2, "dummy", 402)),
        out((2, "dummy+dummy", 402)),
    ),
    "right non-joined records are never emitted by the left processor": case(
        joined("left_join", WITHIN_100),
        *THREE_ON_THE_RIGHT,
        pipe("left", (2, "dummy", 401)),
        out(),
        pipe("right", (2, "dummy", 402)),
        out((2, "dummy+dummy", 402)),
    ),
    "right non-joined records are never emitted by the right processor": case(
        joined("left_join", WITHIN_100),
        *THREE_ON_THE_RIGHT,
        pipe("right", (2, "dummy", 401)),
        out(),
        pipe("left", (2, "dummy", 402)),
        out((2, "dummy+dummy", 402)),
    ),
    "left joined records with zero after are emitted": case(
        joined("left_join", WITHIN_100.after(0)),
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
        joined("left_join", WITHIN_100),
        pipe("left", (0, "A0", 0), (1, "A1", 100)),
        out(),
        pipe("right", (1, "a1", 110)),
        out((0, "A0+null", 0), (1, "A1+a1", 110)),
    ),
    "grace period": case(
        joined("left_join", WITHIN_100_AND_10),
        left("A", 2),
        out(),
        right("a", 4, 101),
        out(),
        pipe("right", (0, "dummy", 1201)),
        out((0, "A0+null", 0), (1, "A1+null", 0)),
    ),
    "windowing": case(
        joined("left_join", WITHIN_100),
        left("A", 2),
        out(),
        right("a"),
        out((0, "A0+a0", 0), (1, "A1+a1", 0)),
        *LEFT_UPPER_BOUND,
        *LEFT_LOWER_BOUND,
    ),
    "should not emit left join result for asymmetric window": case(
        joined("left_join", WITHIN_100.before(0)),
        left("A", 2, 0, 1),
        out(),
        pipe("right", (0, "a0", 100)),
        out((0, "A0+a0", 100)),
        pipe("right", (1, "a1", 102)),
        out((1, "A1+null", 1)),
    ),
}


test_left_joins = of_cases(LEFT_CASES)
