"""Aggregates in a running application, and windowed ones after it has lost its stores.

Kafka's TimeWindowedKStreamIntegrationTest, SlidingWindowedKStreamIntegrationTest and KStreamAggregationIntegrationTest.
Kafka's stores forget final windows that a record jumps past; ours come out, and the cases of time windows say which.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore import Windowed, dsl
from tests.support.dsl.kafka_cases import (
    INT,
    TEXT,
    CaseBuilder,
    CaseRun,
    Row,
    Step,
    case,
    last,
    of_cases,
    of_cases_both_ways,
    out,
    pipe,
    restored,
    sessions,
)
from tests.support.dsl.kafka_programs import CLOSE, TEXTS, UPDATE, Program, Windows, add, aggregated, counted, zero


def hopping(grace_ms: int) -> dsl.TimeWindows:
    return dsl.TimeWindows.of_size_and_grace(10, grace_ms).advance_by(5)


def sliding(grace_ms: int) -> dsl.SlidingWindows:
    return dsl.SlidingWindows.of_time_difference_and_grace(10, grace_ms)


def joined(windows: Windows, strategy: dsl.EmitStrategy) -> Program:
    """The joined records of "one" and "two", aggregated by their windows."""

    def program(builder: CaseBuilder) -> dsl.KTable[dsl.KStream]:
        within = dsl.JoinWindows.of_time_difference_with_no_grace(2)
        stream = builder.stream("one").join(builder.stream("two"), lambda left, right: f"{left},{right}", within)
        windowed = stream.group_by_key().windowed_by(windows).emit_strategy(strategy)
        return windowed.aggregate(zero, add, materialized=TEXTS)

    return program


# ---- TimeWindowedKStreamIntegrationTest


TIME_INPUT = pipe("topic", "A 1 at 0, A 2 at 5, A 3 at 10, B 4 at 6, B 5 at 11, B 6 at 15, C 7 at 25")

TIME_PAIRS: tuple[Step, ...] = (
    *(pipe("one", "A L1 at 0"), pipe("two", "A R1 at 0")),
    *(pipe("one", "A L1 at 5"), pipe("two", "A R1 at 5")),
    *(pipe("one", "B L2 at 11"), pipe("two", "B R2 at 11")),
    *(pipe("one", "B L2 at 15"), pipe("two", "B R2 at 15")),
    *(pipe("one", "C L3 at 25"), pipe("two", "C R3 at 25")),
)
TIME_PAIR_AFTER = pipe("one", "C L3 at 35"), pipe("two", "C R3 at 35")

OF_TIME: dict[str, tuple[dsl.TimeWindows, dsl.EmitStrategy, tuple[str, ...]]] = {
    "no grace, on update": (
        hopping(0),
        UPDATE,
        (
            "A@0/10 0+1 at 0, A@0/10 0+1+2 at 5, A@5/15 0+2 at 5, A@5/15 0+2+3 at 10, A@10/20 0+3 at 10, "
            "B@5/15 0+4 at 6, B@5/15 0+4+5 at 11, B@10/20 0+5 at 11, B@10/20 0+5+6 at 15, B@15/25 0+6 at 15, "
            "C@20/30 0+7 at 25, C@25/35 0+7 at 25",
        ),
    ),
    "no grace, on close": (
        hopping(0),
        CLOSE,
        (
            "A@0/10 0+1+2 at 5, A@5/15 0+2+3 at 10, B@5/15 0+4+5 at 11",
            "A@10/20 0+3 at 10, B@10/20 0+5+6 at 15",  # forgotten by Kafka
            "B@15/25 0+6 at 15",
        ),
    ),
    "grace, on update": (
        hopping(5),
        UPDATE,
        (
            "A@0/10 0+1 at 0, A@0/10 0+1+2 at 5, A@5/15 0+2 at 5, A@5/15 0+2+3 at 10, A@10/20 0+3 at 10, "
            "B@0/10 0+4 at 6, B@5/15 0+4 at 6, B@5/15 0+4+5 at 11, B@10/20 0+5 at 11, B@10/20 0+5+6 at 15, "
            "B@15/25 0+6 at 15, C@20/30 0+7 at 25, C@25/35 0+7 at 25",
        ),
    ),
    "grace, on close": (
        hopping(5),
        CLOSE,
        (
            "A@0/10 0+1+2 at 5, B@0/10 0+4 at 6",
            "A@5/15 0+2+3 at 10, B@5/15 0+4+5 at 11",  # forgotten by Kafka
            "A@10/20 0+3 at 10, B@10/20 0+5+6 at 15",
        ),
    ),
}


def added(text: str) -> int:
    """How many values an aggregate such as "0+1+2" has."""
    return text.count("+")


TIME_COUNTED = {
    f"should aggregate windowed with {name}": case(counted(windows, strategy), TIME_INPUT, out(*texts, value=added))
    for name, (windows, strategy, texts) in OF_TIME.items()
}


test_counts_of_time_windows = of_cases_both_ways(TIME_COUNTED)
TIME = {
    **{
        f"should aggregate windowed with {name}": case(aggregated(windows, strategy), TIME_INPUT, out(*texts))
        for name, (windows, strategy, texts) in OF_TIME.items()
    },
    "should restore after join restart, on update": case(
        joined(hopping(0), UPDATE),
        *TIME_PAIRS,
        out(
            "A@0/10 0+L1,R1 at 0, A@0/10 0+L1,R1+L1,R1 at 5, A@5/15 0+L1,R1 at 5, B@5/15 0+L2,R2 at 11, "
            "B@10/20 0+L2,R2 at 11, B@10/20 0+L2,R2+L2,R2 at 15, B@15/25 0+L2,R2 at 15, C@20/30 0+L3,R3 at 25, "
            "C@25/35 0+L3,R3 at 25"
        ),
        restored,
        *TIME_PAIR_AFTER,
        out("C@30/40 0+L3,R3 at 35, C@35/45 0+L3,R3 at 35"),
    ),
    "should restore after join restart, on close": case(
        joined(hopping(0), CLOSE),
        *TIME_PAIRS,
        out(
            "A@0/10 0+L1,R1+L1,R1 at 5, A@5/15 0+L1,R1 at 5, B@5/15 0+L2,R2 at 11",
            "B@10/20 0+L2,R2+L2,R2 at 15",  # forgotten by Kafka
            "B@15/25 0+L2,R2 at 15",
        ),
        restored,
        *TIME_PAIR_AFTER,
        out(
            "C@20/30 0+L3,R3 at 25",  # forgotten by Kafka
            "C@25/35 0+L3,R3 at 25",
        ),
    ),
}


test_time_windows = of_cases(TIME)
# ---- SlidingWindowedKStreamIntegrationTest


NO_GRACE_INPUT = pipe("topic", "A 1 at 0, A 2 at 5, A 3 at 10, A 4 at 17, B 5 at 6, B 6 at 11, B 7 at 18, C 8 at 25")
GRACE_INPUT = pipe("topic", "A 1 at 0, A 2 at 5, A 3 at 10, A 4 at 6, A 5 at 11, A 6 at 16, A 7 at 27, A 8 at 11")

SLIDING_PAIRS: tuple[Step, ...] = (
    *(pipe("one", "A L1 at 0"), pipe("two", "A R1 at 0")),
    *(pipe("one", "A L2 at 5"), pipe("two", "A R2 at 5")),
    *(pipe("one", "B L3 at 11"), pipe("two", "B R3 at 11")),
    *(pipe("one", "B L4 at 15"), pipe("two", "B R4 at 15")),
    *(pipe("one", "C L5 at 25"), pipe("two", "C R5 at 25")),
)
SLIDING_PAIR_AFTER = pipe("one", "C L6 at 35"), pipe("two", "C R6 at 35")

SLIDING = {
    "should aggregate windowed with no grace, on update": case(
        aggregated(sliding(0), UPDATE),
        NO_GRACE_INPUT,
        out(
            "A@0/10 0+1 at 0, A@1/11 0+2 at 5, A@0/10 0+1+2 at 5, A@1/11 0+2+3 at 10, A@0/10 0+1+2+3 at 10, "
            "A@6/16 0+3 at 10, A@11/21 0+4 at 17, A@7/17 0+3+4 at 17, B@8/18 0+7 at 18, C@15/25 0+8 at 25"
        ),
    ),
    "should aggregate windowed with no grace, on close": case(
        aggregated(sliding(0), CLOSE),
        NO_GRACE_INPUT,
        out(
            "A@0/10 0+1+2+3 at 10, A@1/11 0+2+3 at 10, A@6/16 0+3 at 10, A@7/17 0+3+4 at 17, B@8/18 0+7 at 18, "
            "A@11/21 0+4 at 17"
        ),
    ),
    "should aggregate windowed with grace, on update": case(
        aggregated(sliding(5), UPDATE),
        GRACE_INPUT,
        out(
            "A@0/10 0+1 at 0, A@1/11 0+2 at 5, A@0/10 0+1+2 at 5, A@1/11 0+2+3 at 10, A@0/10 0+1+2+3 at 10, "
            "A@6/16 0+3 at 10, A@1/11 0+2+3+4 at 10, A@6/16 0+3+4 at 10, A@7/17 0+3 at 10, A@0/10 0+1+2+3+4 at 10, "
            "A@7/17 0+3+5 at 11, A@6/16 0+3+4+5 at 11, A@1/11 0+2+3+4+5 at 11, A@11/21 0+5 at 11, "
            "A@11/21 0+5+6 at 16, A@7/17 0+3+5+6 at 16, A@6/16 0+3+4+5+6 at 16, A@12/22 0+6 at 16, "
            "A@17/27 0+7 at 27, A@17/27 0+7 at 27"
        ),
    ),
    "should aggregate windowed with grace, on close": case(
        aggregated(sliding(5), CLOSE),
        GRACE_INPUT,
        out(
            "A@0/10 0+1+2+3+4 at 10, A@1/11 0+2+3+4+5 at 11, A@6/16 0+3+4+5+6 at 16, A@7/17 0+3+5+6 at 16, "
            "A@11/21 0+5+6 at 16"
        ),
    ),
    "should restore after join restart, on update": case(
        joined(sliding(0), UPDATE),
        *SLIDING_PAIRS,
        out(
            "A@0/10 0+L1,R1 at 0, A@1/11 0+L2,R2 at 5, A@0/10 0+L1,R1+L2,R2 at 5, B@1/11 0+L3,R3 at 11, "
            "B@12/22 0+L4,R4 at 15, B@5/15 0+L3,R3+L4,R4 at 15, C@15/25 0+L5,R5 at 25"
        ),
        restored,
        *SLIDING_PAIR_AFTER,
        out("C@26/36 0+L6,R6 at 35, C@25/35 0+L5,R5+L6,R6 at 35"),
    ),
    "should restore after join restart, on close": case(
        joined(sliding(0), CLOSE),
        *SLIDING_PAIRS,
        out(
            "A@0/10 0+L1,R1+L2,R2 at 5, A@1/11 0+L2,R2 at 5, B@1/11 0+L3,R3 at 11, B@5/15 0+L3,R3+L4,R4 at 15, "
            "B@12/22 0+L4,R4 at 15"
        ),
        restored,
        *SLIDING_PAIR_AFTER,
        out("C@15/25 0+L5,R5 at 25"),
    ),
}


test_sliding_windows = of_cases(SLIDING)
# ---- KStreamAggregationIntegrationTest


FIRST_MS, SECOND_MS = 10_000, 11_000
AT_250_MS, AT_400_MS = FIRST_MS + 250, FIRST_MS + 400
LENGTHS = dsl.Materialized.with_(None, INT)


def batch(timestamp_ms: int) -> Step:
    """The records that each of Kafka's tests sends, all at one time."""
    return pipe("topic", *((number, letter, timestamp_ms) for number, letter in enumerate("ABCDE", 1)))


def by_letter(aggregate: Callable[[Any], dsl.KTable[dsl.KStream]], windows: Any = None) -> Program:
    """An aggregate of the stream of numbers and letters, grouped by letter."""

    def program(builder: CaseBuilder) -> dsl.KTable[dsl.KStream]:
        stream = builder.stream("topic", key_serde=INT)
        grouped = stream.group_by(lambda number, letter: letter, key_serde=TEXT)
        return aggregate(grouped if windows is None else grouped.windowed_by(windows))

    return program


def reduced(group: Any) -> dsl.KTable[dsl.KStream]:
    made: dsl.KTable[dsl.KStream] = group.reduce(lambda old, new: f"{old}:{new}")
    return made


def length(group: Any) -> dsl.KTable[dsl.KStream]:
    made: dsl.KTable[dsl.KStream] = group.aggregate(
        lambda: 0, lambda key, text, sum: sum + len(text), materialized=LENGTHS
    )
    return made


def each_letter(*expected: tuple[int, int, Any, int]) -> Step:
    """Start, end, value and timestamp of what comes out of each letter, sorted by value; A stands for the letter."""

    def step(run: CaseRun) -> None:
        found = sorted(run.take("out"), key=lambda record: (record.key.key, record.value))
        assert [(record.key, record.value, record.timestamp_ms) for record in found] == [
            (Windowed(letter, start, end), value.replace("A", letter) if isinstance(value, str) else value, timestamp)
            for letter in "ABCDE"
            for start, end, value, timestamp in expected
        ]

    return step


def numbered_twice(of: Callable[[str], tuple[Any, Any]]) -> list[Row]:
    """What comes out of each letter after two batches: what `of` says of the first and of the second."""
    return [(letter, of(letter)[place], FIRST_MS) for place in (0, 1) for letter in "ABCDE"]


TWO_BATCHES = batch(FIRST_MS), batch(FIRST_MS)
TUMBLING = dsl.TimeWindows.of_size_and_grace(500, 60_000)
BEFORE_SECOND = batch(FIRST_MS), batch(SECOND_MS), batch(SECOND_MS)
IN_SLIDING = batch(FIRST_MS), batch(AT_250_MS), batch(AT_400_MS)

LETTERS = {
    "should reduce": case(
        by_letter(reduced), *TWO_BATCHES, out(*numbered_twice(lambda letter: (letter, f"{letter}:{letter}")))
    ),
    "should aggregate": case(by_letter(length), *TWO_BATCHES, out(*numbered_twice(lambda letter: (1, 2)))),
    "should count": case(
        by_letter(lambda group: group.count()), *TWO_BATCHES, out(*numbered_twice(lambda letter: (1, 2)))
    ),
    "should reduce windowed": case(
        by_letter(reduced, TUMBLING),
        *BEFORE_SECOND,
        each_letter(
            (10_000, 10_500, "A", FIRST_MS), (11_000, 11_500, "A", SECOND_MS), (11_000, 11_500, "A:A", SECOND_MS)
        ),
    ),
    "should aggregate windowed": case(
        by_letter(length, TUMBLING),
        *BEFORE_SECOND,
        each_letter((10_000, 10_500, 1, FIRST_MS), (11_000, 11_500, 1, SECOND_MS), (11_000, 11_500, 2, SECOND_MS)),
    ),
    "should reduce sliding windows": case(
        by_letter(reduced, dsl.SlidingWindows.of_time_difference_and_grace(500, 2000)),
        *IN_SLIDING,
        each_letter(
            (9_500, 10_000, "A", FIRST_MS),
            (10_001, 10_501, "A", AT_250_MS),
            (10_251, 10_751, "A", AT_400_MS),
            (9_750, 10_250, "A:A", AT_250_MS),
            (10_001, 10_501, "A:A", AT_400_MS),
            (9_900, 10_400, "A:A:A", AT_400_MS),
        ),
    ),
    "should aggregate sliding windows": case(
        by_letter(length, dsl.SlidingWindows.of_time_difference_and_grace(500, 300_000)),
        *IN_SLIDING,
        each_letter(
            (9_500, 10_000, 1, FIRST_MS),
            (10_001, 10_501, 1, AT_250_MS),
            (10_251, 10_751, 1, AT_400_MS),
            (9_750, 10_250, 2, AT_250_MS),
            (10_001, 10_501, 2, AT_400_MS),
            (9_900, 10_400, 3, AT_400_MS),
        ),
    ),
}


test_aggregates_by_letter = of_cases(LETTERS)


def counted_by_number(builder: CaseBuilder) -> dsl.KTable[dsl.KStream]:
    grouped = builder.stream("topic", key_serde=INT).group_by_key()
    return grouped.windowed_by(dsl.TimeWindows.of_size_with_no_grace(500)).count()


def users(
    aggregate: Callable[[Any], dsl.KTable[dsl.KStream]], gap_ms: int, grace_ms: int
) -> Callable[[CaseBuilder], dsl.KTable[dsl.KStream]]:
    def program(builder: CaseBuilder) -> dsl.KTable[dsl.KStream]:
        windows = dsl.SessionWindows.of_inactivity_gap_and_grace(gap_ms, grace_ms)
        return aggregate(builder.stream("users").group_by_key().windowed_by(windows))

    return program


def visits(half_ms: int) -> Step:
    """What four users do; sessions end after a gap of twice `half_ms`."""
    second_ms, third_ms = half_ms, 2 * half_ms + 1
    fourth_ms = third_ms + half_ms
    return pipe(
        "users",
        *((user, "start", 0) for user in ("bob", "penny")),
        *((user, "pause", 0) for user in ("jo", "emily")),
        ("emily", "resume", second_ms),
        *(("bob", "pause", third_ms), ("penny", "stop", third_ms)),
        *(("bob", "resume", fourth_ms), ("jo", "resume", fourth_ms)),
        ("jo", "late", fourth_ms - 1),
    )


VISITS = {
    "should group by key": case(
        counted_by_number,
        *TWO_BATCHES,
        out(*((Windowed(number, 10_000, 10_500), count, FIRST_MS) for count in (1, 2) for number in range(1, 6))),
    ),
    "should count session windows": case(
        users(lambda group: group.count(), gap_ms=300_000, grace_ms=0),
        visits(half_ms=150_000),
        last(
            *((Windowed(user, 0, 0), 1, 0) for user in ("bob", "penny", "jo")),
            (Windowed("jo", 450_000, 450_001), 2, 450_001),
            (Windowed("emily", 0, 150_000), 2, 150_000),
            (Windowed("bob", 300_001, 450_001), 2, 450_001),
            (Windowed("penny", 300_001, 300_001), 1, 300_001),
        ),
    ),
}


test_counts = of_cases_both_ways(VISITS)
REDUCED_VISITS = {
    "should reduce session windows": case(
        users(
            lambda group: group.reduce(lambda old, new: f"{old}:{new}", materialized=dsl.Materialized.as_("sessions")),
            gap_ms=1000,
            grace_ms=60_000,
        ),
        visits(half_ms=500),
        last(
            *((Windowed(user, 0, 0), "start", 0) for user in ("bob", "penny")),
            (Windowed("jo", 0, 0), "pause", 0),
            (Windowed("jo", 1500, 1501), "resume:late", 1501),
            (Windowed("emily", 0, 500), "pause:resume", 500),
            (Windowed("bob", 1001, 1501), "pause:resume", 1501),
            (Windowed("penny", 1001, 1001), "stop", 1001),
        ),
        sessions(
            "sessions",
            (Windowed("bob", 0, 0), "start"),
            (Windowed("bob", 1001, 1501), "pause:resume"),
            (Windowed("emily", 0, 500), "pause:resume"),
            (Windowed("jo", 0, 0), "pause"),
            (Windowed("jo", 1500, 1501), "resume:late"),
            (Windowed("penny", 0, 0), "start"),
            (Windowed("penny", 1001, 1001), "stop"),
        ),
    )
}


test_reduced_sessions = of_cases(REDUCED_VISITS)
