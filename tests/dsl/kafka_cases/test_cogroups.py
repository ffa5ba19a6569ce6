"""Several streams in one aggregate, also by windows.

Kafka's CogroupedKStreamImplTest, TimeWindowedCogroupedKStreamImplTest, SlidingWindowedCogroupedKStreamImplTest and
SessionWindowedCogroupedKStreamImplTest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from statestore.dsl import KStream, KTable, Materialized, SessionWindows, SlidingWindows, TimeWindows
from tests.support.dsl.kafka_cases import INT, TEXT, CaseBuilder, CaseRun, Step, case, of_cases, out, pipe, plus, rows
from tests.support.dsl.kafka_programs import TEXTS, add, remove, zero

Program = Callable[[CaseBuilder], KTable[KStream]]
Aggregator = Callable[[Any, Any, Any], Any]


def join_text(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate + value


def add_number(key: Any, value: Any, aggregate: int) -> int:
    return aggregate + int(value)


def cogrouped(
    aggregators: Mapping[str, Aggregator],
    begins: Callable[[], Any] = str,
    stored: Materialized = TEXTS,
    *,
    windows: Any = None,
    merger: Aggregator | None = None,
    numbers: str = "",
) -> Program:
    """A program whose streams, each of the topic of its name, are aggregated together."""

    def program(builder: CaseBuilder) -> KTable[KStream]:
        first, *others = (
            (builder.stream(topic, value_serde=INT if topic == numbers else TEXT).group_by_key(), aggregator)
            for topic, aggregator in aggregators.items()
        )
        made = first[0].cogroup(first[1])
        for stream, aggregator in others:
            made = made.cogroup(stream, aggregator)
        windowed = made if windows is None else made.windowed_by(windows)
        return windowed.aggregate(begins, merger, materialized=stored)

    return program


def joined_with_a_table(builder: CaseBuilder) -> KTable[KStream]:
    grouped = [builder.stream(topic).group_by_key() for topic in ("one", "two")]
    aggregated = grouped[0].cogroup(join_text).cogroup(grouped[1], join_text)
    stored = Materialized.as_("store").with_value_serde(TEXT)
    made = aggregated.aggregate(str, materialized=stored, name="name")
    joined: KTable[KStream] = made.join(builder.table("three"), plus, materialized=TEXTS)
    return joined


def out_first(text: str, value: Callable[[str], Any] = str) -> Step:
    """What came out begins with these rows: Kafka's test does not look at the rest."""
    wanted = rows(text, value)

    def step(run: CaseRun) -> None:
        found = [(record.key, record.value, record.timestamp_ms) for record in run.take("out")]
        assert found[: len(wanted)] == wanted

    return step


def out_of_windows(text: str) -> Step:
    """Exactly these rows came out, whatever the windows of their keys: Kafka's test looks at the keys alone."""
    wanted = rows(text)

    def step(run: CaseRun) -> None:
        assert [(record.key.key, record.value, record.timestamp_ms) for record in run.take("out")] == wanted

    return step


ONE = {"one": join_text}
TWO = {"one": join_text, "two": join_text}
NUMBERS = Materialized.as_("store1").with_value_serde(INT)

SUMMED = (
    "k1 1 at 0, k2 1 at 1, k1 2 at 10, k2 2 at 100, k2 4 at 100, k2 6 at 200, k1 4 at 10, k2 8 at 500, k1 6 at 500, "
    "k2 11 at 500"
)

COGROUPED = {
    "should cogroup and aggregate single streams": case(
        cogrouped(ONE),
        pipe("one", "k1 A at 0, k2 B at 0, k2 B at 0, k1 A at 0"),
        out("k1 A at 0, k2 B at 0, k2 BB at 0, k1 AA at 0"),
    ),
    "cogroup handles null values": case(
        cogrouped(ONE),
        pipe("one", "k1 A at 0, k2 B at 0, k2 null at 0, k2 B at 0, k1 A at 0"),
        out("k1 A at 0, k2 B at 0, k2 BB at 0, k1 AA at 0"),
    ),
    "should cogroup and aggregate two streams with distinct keys": case(
        cogrouped(TWO),
        pipe("one", "k1 A at 0, k1 A at 1, k1 A at 10, k1 A at 100"),
        pipe("two", "k2 B at 100, k2 B at 200, k2 B at 1, k2 B at 500, k2 B at 500, k2 B at 100"),
        out(
            "k1 A at 0, k1 AA at 1, k1 AAA at 10, k1 AAAA at 100, k2 B at 100, k2 BB at 200, k2 BBB at 200, "
            "k2 BBBB at 500, k2 BBBBB at 500, k2 BBBBBB at 500"
        ),
    ),
    "should cogroup and aggregate two streams with shared keys": case(
        cogrouped(TWO),
        pipe("one", "k1 A at 0, k2 A at 1, k1 A at 10, k2 A at 100"),
        pipe(
            "two",
            "k2 B at 100, k2 B at 200, k1 B at 1, k2 B at 500, k1 B at 500, k2 B at 500, k3 B at 500, k2 B at 100",
        ),
        out_first(
            "k1 A at 0, k2 A at 1, k1 AA at 10, k2 AA at 100, k2 AAB at 100, k2 AABB at 200, k1 AAB at 10, "
            "k2 AABBB at 500, k1 AABB at 500, k2 AABBBB at 500"
        ),
    ),
    "should allow different output type": case(
        cogrouped({"one": add_number, "two": add_number}, int, NUMBERS),
        pipe("one", "k1 1 at 0, k2 1 at 1, k1 1 at 10, k2 1 at 100"),
        pipe(
            "two",
            "k2 2 at 100, k2 2 at 200, k1 2 at 1, k2 2 at 500, k1 2 at 500, k2 3 at 500, k3 2 at 500, k2 2 at 100",
        ),
        out_first(SUMMED, int),
    ),
    "should cogroup streams with different input types": case(
        cogrouped({"one": add_number, "two": add_number}, int, NUMBERS, numbers="two"),
        pipe("one", "k1 1 at 0, k2 1 at 1, k1 1 at 10, k2 1 at 100"),
        pipe(
            "two",
            *rows(
                "k2 2 at 100, k2 2 at 200, k1 2 at 1, k2 2 at 500, k1 2 at 500, k2 3 at 500, k3 2 at 500, k2 2 at 100",
                int,
            ),
        ),
        out_first(f"{SUMMED}, k3 2 at 500", int),
    ),
    "mixed aggregators": case(
        cogrouped({"one": remove, "two": add}, zero),
        pipe("one", "k1 1 at 0, k2 1 at 1, k1 1 at 10, k2 1 at 100"),
        pipe("two", "k1 2 at 500, k2 2 at 500, k1 2 at 500, k2 2 at 100"),
        out(
            "k1 0-1 at 0, k2 0-1 at 1, k1 0-1-1 at 10, k2 0-1-1 at 100, k1 0-1-1+2 at 500, k2 0-1-1+2 at 500, "
            "k1 0-1-1+2+2 at 500, k2 0-1-1+2+2 at 500"
        ),
    ),
    "cogroup with three grouped streams": case(
        cogrouped({**TWO, "three": join_text}),
        pipe("one", "k1 A at 0, k2 A at 1, k1 A at 10, k2 A at 100"),
        pipe("two", "k2 B at 100, k2 B at 200, k1 B at 1, k2 B at 500"),
        pipe("three", "k1 B at 500, k2 B at 500, k3 B at 500, k2 B at 100"),
        out_first(
            "k1 A at 0, k2 A at 1, k1 AA at 10, k2 AA at 100, k2 AAB at 100, k2 AABB at 200, k1 AAB at 10, "
            "k2 AABBB at 500, k1 AABB at 500, k2 AABBBB at 500, k3 B at 500"
        ),
    ),
    "cogroup with an inner join of tables": case(
        joined_with_a_table,
        pipe("one", "k1 A at 5"),
        pipe("two", "k2 B at 6"),
        out(),
        pipe("three", "k1 C at 0, k2 D at 10"),
        out("k1 A+C at 5, k2 B+D at 10"),
    ),
}


# ---- By windows

TUMBLING = TimeWindows.of_size_with_no_grace(500)
SLIDING = SlidingWindows.of_time_difference_and_grace(500, 2000)
A_DAY_OF_GRACE = SessionWindows.of_inactivity_gap_and_grace(100, 24 * 3_600_000)
GAP_500 = SessionWindows.of_inactivity_gap_with_no_grace(500)
MIXED = {"one": add, "two": remove}


def merged(key: Any, one: str, other: str) -> str:
    return f"{one}+{other}"


FOUR_OF_ONE = pipe("one", "k1 A at 0, k2 A at 0, k2 A at 1, k1 A at 2")

TIME_WINDOWS = {
    "time window aggregate": case(
        cogrouped(MIXED, zero, windows=TUMBLING),
        pipe("one", "k1 A at 0, k2 A at 0, k2 A at 1, k1 A at 2, k1 B at 3, k2 B at 3, k2 B at 4, k1 B at 4"),
        out_of_windows(
            "k1 0+A at 0, k2 0+A at 0, k2 0+A+A at 1, k1 0+A+A at 2, k1 0+A+A+B at 3, k2 0+A+A+B at 3, "
            "k2 0+A+A+B+B at 4, k1 0+A+A+B+B at 4"
        ),
    ),
    "time window, mixed aggregators": case(
        cogrouped(MIXED, zero, windows=TUMBLING),
        FOUR_OF_ONE,
        pipe("two", "k1 B at 3, k2 B at 3, k2 B at 4, k1 B at 4"),
        out_of_windows(
            "k1 0+A at 0, k2 0+A at 0, k2 0+A+A at 1, k1 0+A+A at 2, k1 0+A+A-B at 3, k2 0+A+A-B at 3, "
            "k2 0+A+A-B-B at 4, k1 0+A+A-B-B at 4"
        ),
    ),
    "time window, many windows": case(
        cogrouped({"one": add}, zero, windows=TUMBLING),
        pipe("one", "k1 A at 0, k2 A at 499, k2 A at 500, k1 A at 500"),
        out_of_windows("k1 0+A at 0, k2 0+A at 499, k2 0+A at 500, k1 0+A at 500"),
    ),
    "time window, overlapping windows": case(
        cogrouped({"one": add}, zero, windows=TUMBLING.advance_by(200)),
        pipe("one", "k1 A at 0, k2 A at 0, k1 B at 250, k2 B at 250, k2 A at 500, k1 A at 500"),
        out_of_windows(
            "k1 0+A at 0, k2 0+A at 0, k1 0+A+B at 250, k1 0+B at 250, k2 0+A+B at 250, k2 0+B at 250, "
            "k2 0+B+A at 500, k2 0+A at 500, k1 0+B+A at 500, k1 0+A at 500"
        ),
    ),
    "time window, mixed aggregators, many windows": case(
        cogrouped(MIXED, zero, windows=TUMBLING),
        FOUR_OF_ONE,
        pipe("two", "k1 B at 3, k2 B at 3, k2 B at 501, k1 B at 501"),
        out_of_windows(
            "k1 0+A at 0, k2 0+A at 0, k2 0+A+A at 1, k1 0+A+A at 2, k1 0+A+A-B at 3, k2 0+A+A-B at 3, k2 0-B at 501, "
            "k1 0-B at 501"
        ),
    ),
}

SLIDING_WINDOWS = {
    "sliding window aggregate": case(
        cogrouped(MIXED, zero, windows=SLIDING),
        pipe(
            "one",
            "k1 A at 500, k2 A at 500, k2 A at 501, k1 A at 502, k1 B at 503, k2 B at 503, k2 B at 504, k1 B at 504",
        ),
        out(
            "k1@0/500 0+A at 500, k2@0/500 0+A at 500, k2@501/1001 0+A at 501, k2@1/501 0+A+A at 501, "
            "k1@501/1001 0+A at 502, k1@2/502 0+A+A at 502, k1@501/1001 0+A+B at 503, k1@503/1003 0+B at 503, "
            "k1@3/503 0+A+A+B at 503, k2@501/1001 0+A+B at 503, k2@502/1002 0+B at 503, k2@3/503 0+A+A+B at 503, "
            "k2@502/1002 0+B+B at 504, k2@501/1001 0+A+B+B at 504, k2@504/1004 0+B at 504, k2@4/504 0+A+A+B+B at 504, "
            "k1@503/1003 0+B+B at 504, k1@501/1001 0+A+B+B at 504, k1@504/1004 0+B at 504, k1@4/504 0+A+A+B+B at 504"
        ),
    ),
    "sliding window, overlapping windows": case(
        cogrouped({"one": add}, zero, windows=SLIDING),
        pipe("one", "k1 A at 500, k2 A at 500, k1 B at 750, k2 B at 750, k2 A at 1000, k1 A at 1000"),
        out_of_windows(
            "k1 0+A at 500, k2 0+A at 500, k1 0+B at 750, k1 0+A+B at 750, k2 0+B at 750, k2 0+A+B at 750, "
            "k2 0+B+A at 1000, k2 0+A at 1000, k2 0+A+B+A at 1000, k1 0+B+A at 1000, k1 0+A at 1000, k1 0+A+B+A at 1000"
        ),
    ),
}

SESSIONS = {
    "session window aggregate": case(
        cogrouped({"one": add}, zero, windows=GAP_500, merger=merged),
        pipe("one", "k1 A at 0, k2 A at 0, k1 B at 599, k2 B at 607"),
        out_of_windows("k1 0+A at 0, k2 0+A at 0, k1 0+B at 599, k2 0+B at 607"),
    ),
    "session window aggregate, twice at one time": case(
        cogrouped({"one": add}, zero, windows=GAP_500, merger=merged),
        pipe("one", "k1 A at 0, k1 A at 0, k2 B at 599, k1 B at 607"),
        out_of_windows("k1 0+A at 0, k1 0+0+A+A at 0, k2 0+B at 599, k1 0+B at 607"),
    ),
    "session window aggregate of two streams": case(
        cogrouped(MIXED, zero, windows=A_DAY_OF_GRACE, merger=merged),
        pipe("one", "k1 A at 0, k1 A at 84, k1 A at 113, k1 A at 199, k1 B at 300, k2 B at 301, k2 B at 400"),
        pipe("one", "k1 B at 400"),
        out_of_windows(
            "k1 0+A at 0, k1 null at 0, k1 0+0+A+A at 84, k1 null at 84, k1 0+0+0+A+A+A at 113, k1 null at 113, "
            "k1 0+0+0+0+A+A+A+A at 199, k1 0+B at 300, k2 0+B at 301, k2 null at 301, k2 0+0+B+B at 400, "
            "k1 null at 300, k1 0+0+B+B at 400"
        ),
    ),
    "session window, mixed aggregators": case(
        cogrouped(MIXED, zero, windows=A_DAY_OF_GRACE, merger=merged),
        FOUR_OF_ONE,
        pipe("two", "k1 B at 3, k2 B at 3, k2 B at 444, k1 B at 444"),
        out_of_windows(
            "k1 0+A at 0, k2 0+A at 0, k2 null at 0, k2 0+0+A+A at 1, k1 null at 0, k1 0+0+A+A at 2, k1 null at 2, "
            "k1 0+0+0+A+A-B at 3, k2 null at 1, k2 0+0+0+A+A-B at 3, k2 0-B at 444, k1 0-B at 444"
        ),
    ),
    "session window, mixed aggregators, many windows": case(
        cogrouped(MIXED, zero, windows=A_DAY_OF_GRACE, merger=merged),
        FOUR_OF_ONE,
        pipe("two", "k1 B at 3, k2 B at 500, k2 B at 501, k1 B at 501"),
        out_of_windows(
            "k1 0+A at 0, k2 0+A at 0, k2 null at 0, k2 0+0+A+A at 1, k1 null at 0, k1 0+0+A+A at 2, k1 null at 2, "
            "k1 0+0+0+A+A-B at 3, k2 0-B at 500, k2 null at 500, k2 0+0-B-B at 501, k1 0-B at 501"
        ),
    ),
}


test_cogroups = of_cases(COGROUPED)


test_windowed_cogroups = of_cases(TIME_WINDOWS | SLIDING_WINDOWS | SESSIONS)
