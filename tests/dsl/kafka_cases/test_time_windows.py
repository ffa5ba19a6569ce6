"""Aggregates by tumbling and hopping windows, put out at each change and on close.

Kafka's KStreamWindowAggregateTest, TimeWindowedKStreamImplTest, and what KGroupedStreamImplTest counts by windows.
"""

from __future__ import annotations

from statestore.dsl import Materialized, TimeWindows
from tests.support.dsl.kafka_cases import (
    TEXT,
    Step,
    anything,
    case,
    dropped,
    of_cases,
    of_cases_both_ways,
    out,
    pipe,
    restarted,
    windows,
)
from tests.support.dsl.kafka_programs import CLOSE, UPDATE, aggregated, counted, joined, outs_of, reduced

CACHED = Materialized.as_("cached").with_value_serde(TEXT).with_caching_enabled()
HOPPING = TimeWindows.of_size_and_grace(10, 100).advance_by(5)
HOPPING_WITH_5 = TimeWindows.of_size_and_grace(10, 5).advance_by(5)
TUMBLING = TimeWindows.of_size_with_no_grace(500)


# ---- KStreamWindowAggregateTest


EIGHTEEN = pipe(
    "topic",
    "A 1 at 0, B 2 at 1, C 3 at 2, D 4 at 3, A 1 at 4, A 1 at 5, B 2 at 6, D 4 at 7, B 2 at 8, C 3 at 9, "
    "A 1 at 10, B 2 at 11, D 4 at 12, B 2 at 13, C 3 at 14, B 1 at 3, B 2 at 2, B 3 at 9",
)
EIGHTEEN_ADDED = out(
    "A@0/10 0+1 at 0, B@0/10 0+2 at 1, C@0/10 0+3 at 2, D@0/10 0+4 at 3, A@0/10 0+1+1 at 4, "
    "A@0/10 0+1+1+1 at 5, A@5/15 0+1 at 5, B@0/10 0+2+2 at 6, B@5/15 0+2 at 6, D@0/10 0+4+4 at 7, "
    "D@5/15 0+4 at 7, B@0/10 0+2+2+2 at 8, B@5/15 0+2+2 at 8, C@0/10 0+3+3 at 9, C@5/15 0+3 at 9, "
    "A@5/15 0+1+1 at 10, A@10/20 0+1 at 10, B@5/15 0+2+2+2 at 11, B@10/20 0+2 at 11, D@5/15 0+4+4 at 12, "
    "D@10/20 0+4 at 12, B@5/15 0+2+2+2+2 at 13, B@10/20 0+2+2 at 13, C@5/15 0+3+3 at 14, C@10/20 0+3 at 14, "
    "B@0/10 0+2+2+2+1 at 8, B@0/10 0+2+2+2+1+2 at 8, B@0/10 0+2+2+2+1+2+3 at 9, B@5/15 0+2+2+2+2+3 at 13"
)


JOINED_ON_UPDATE: tuple[Step, ...] = (
    pipe("one", "A 1 at 0, B 2 at 1, C 3 at 2, D 4 at 3, A 1 at 9"),
    outs_of(
        one="A@0/10 0+1 at 0, B@0/10 0+2 at 1, C@0/10 0+3 at 2, D@0/10 0+4 at 3, A@0/10 0+1+1 at 9, A@5/15 0+1 at 9"
    ),
    pipe("one", "A 1 at 5, B 2 at 6, D 4 at 7, B 2 at 8, C 3 at 9"),
    outs_of(
        one="A@0/10 0+1+1+1 at 9, A@5/15 0+1+1 at 9, B@0/10 0+2+2 at 6, B@5/15 0+2 at 6, D@0/10 0+4+4 at 7, "
        "D@5/15 0+4 at 7, B@0/10 0+2+2+2 at 8, B@5/15 0+2+2 at 8, C@0/10 0+3+3 at 9, C@5/15 0+3 at 9"
    ),
    pipe("two", "A a at 0, B b at 1, C c at 2, D d at 20, A a at 20"),
    outs_of(
        two="A@0/10 0+a at 0, B@0/10 0+b at 1, C@0/10 0+c at 2, D@15/25 0+d at 20, D@20/30 0+d at 20, "
        "A@15/25 0+a at 20, A@20/30 0+a at 20",
        both="A@0/10 0+1+1+1%0+a at 9, B@0/10 0+2+2+2%0+b at 8, C@0/10 0+3+3%0+c at 9",
    ),
    pipe("two", "A a at 5, B b at 6, D d at 7, D d at 18, A a at 21"),
    outs_of(
        two="A@0/10 0+a+a at 5, A@5/15 0+a at 5, B@0/10 0+b+b at 6, B@5/15 0+b at 6, D@0/10 0+d at 7, "
        "D@5/15 0+d at 7, D@10/20 0+d at 18, D@15/25 0+d+d at 20, A@15/25 0+a+a at 21, A@20/30 0+a+a at 21",
        both="A@0/10 0+1+1+1%0+a+a at 9, A@5/15 0+1+1%0+a at 9, B@0/10 0+2+2+2%0+b+b at 8, B@5/15 0+2+2%0+b at 8, "
        "D@0/10 0+4+4%0+d at 7, D@5/15 0+4%0+d at 7",
    ),
)

JOINED_ON_CLOSE: tuple[Step, ...] = (
    pipe("one", "A 1 at 0, B 2 at 1, C 3 at 2, D 4 at 3, A 1 at 9, A 1 at 15"),
    outs_of(one="A@0/10 0+1+1 at 9, B@0/10 0+2 at 1, C@0/10 0+3 at 2, D@0/10 0+4 at 3"),
    pipe("one", "A 1 at 10, B 2 at 11, D 4 at 12, B 2 at 13, C 3 at 14, A 1 at 20"),
    outs_of(one="A@5/15 0+1+1 at 10, B@5/15 0+2+2 at 13, C@5/15 0+3 at 14, D@5/15 0+4 at 12"),
    pipe("two", "A a at 0, B b at 1, C c at 2, D d at 10, A a at 15"),
    outs_of(two="A@0/10 0+a at 0, B@0/10 0+b at 1, C@0/10 0+c at 2"),
    pipe("two", "A a at 5, B b at 6, D d at 7, D d at 18, A a at 21"),
    outs_of(
        two="A@5/15 0+a at 5, B@5/15 0+b at 6, D@5/15 0+d+d at 10",
        both="A@5/15 0+1+1%0+a at 10, B@5/15 0+2+2%0+b at 13, D@5/15 0+4%0+d+d at 12",
    ),
)

EXPIRED = pipe(
    "topic",
    "k 100 at 100, k 0 at 0, k 1 at 1, k 2 at 2, k 3 at 3, k 4 at 4, k 5 at 5, k 6 at 6, k 105 at 105, k 106 at 106",
)
KEPT_FOR_100 = Materialized.as_("kept").with_value_serde(TEXT).with_retention(100)
WITH_90 = TimeWindows.of_size_and_grace(10, 90)
EXPIRED_BY_GRACE = pipe(
    "topic",
    "k 100 at 200, k 0 at 100, k 1 at 101, k 2 at 102, k 3 at 103, k 4 at 104, k 5 at 105, k 6 at 6",
)

WINDOW_AGGREGATE = {
    "basic, on update": case(aggregated(HOPPING), EIGHTEEN, EIGHTEEN_ADDED),
    "basic, on update, cached": case(aggregated(HOPPING, stored=CACHED), EIGHTEEN, EIGHTEEN_ADDED),
    "basic, on close": case(aggregated(HOPPING, CLOSE), EIGHTEEN, out()),
    "join, on update": case(joined(HOPPING, UPDATE), *JOINED_ON_UPDATE),
    "join, on close": case(joined(HOPPING_WITH_5, CLOSE), *JOINED_ON_CLOSE),
    "should meter when skipping null key, on update": case(
        aggregated(HOPPING), pipe("topic", (None, "1", 0)), out(), dropped(1)
    ),
    "should meter when skipping null key, on close": case(
        aggregated(HOPPING, CLOSE), pipe("topic", (None, "1", 0)), out(), dropped(1)
    ),
    "should meter when skipping expired window, on update": case(
        aggregated(WITH_90.advance_by(5), UPDATE, KEPT_FOR_100, begins=str),
        EXPIRED,
        out(
            "k@95/105 +100 at 100, k@100/110 +100 at 100, k@5/15 +5 at 5, k@5/15 +5+6 at 6, "
            "k@100/110 +100+105 at 105, k@105/115 +105 at 105, k@100/110 +100+105+106 at 106, "
            "k@105/115 +105+106 at 106"
        ),
        dropped(7),
    ),
    "should meter when skipping expired window, on close": case(
        aggregated(WITH_90.advance_by(5), CLOSE, KEPT_FOR_100, begins=str),
        EXPIRED,
        out("k@5/15 +5+6 at 6"),
        dropped(7),
    ),
    "should meter when skipping expired window by grace, on update": case(
        aggregated(WITH_90, UPDATE, begins=str), EXPIRED_BY_GRACE, out("k@200/210 +100 at 200"), dropped(7)
    ),
    "should meter when skipping expired window by grace, on close": case(
        aggregated(WITH_90, CLOSE, begins=str), EXPIRED_BY_GRACE, out(), dropped(7)
    ),
    "should not emit final if not progress enough, on update": case(
        aggregated(HOPPING_WITH_5),
        pipe("topic", "A 1 at 0, B 2 at 5, C 3 at 15"),
        out("A@0/10 0+1 at 0, B@0/10 0+2 at 5, B@5/15 0+2 at 5, C@10/20 0+3 at 15, C@15/25 0+3 at 15"),
        pipe("topic", ("D", "4", 15)),
        out("D@10/20 0+4 at 15, D@15/25 0+4 at 15"),
        pipe("topic", ("E", "5", 19)),
        out("E@10/20 0+5 at 19, E@15/25 0+5 at 19"),
    ),
    "should not emit final if not progress enough, on close": case(
        aggregated(HOPPING_WITH_5, CLOSE),
        pipe("topic", "A 1 at 0, B 2 at 5, C 3 at 15"),
        out("A@0/10 0+1 at 0, B@0/10 0+2 at 5"),
        pipe("topic", ("D", "4", 15)),
        out(),
        pipe("topic", ("E", "5", 19)),
        out(),
    ),
    "should emit with interval 0, on update": case(
        aggregated(HOPPING_WITH_5),
        pipe("topic", "A 1 at 0, A 1 at 5, B 2 at 10, C 3 at 15, D 4 at 20"),
        out(
            "A@0/10 0+1 at 0, A@0/10 0+1+1 at 5, A@5/15 0+1 at 5, B@5/15 0+2 at 10, B@10/20 0+2 at 10, "
            "C@10/20 0+3 at 15, C@15/25 0+3 at 15, D@15/25 0+4 at 20, D@20/30 0+4 at 20"
        ),
    ),
    "should emit with interval 0, on close": case(
        aggregated(HOPPING_WITH_5, CLOSE),
        pipe("topic", "A 1 at 0, A 1 at 5, B 2 at 10, C 3 at 15, D 4 at 20"),
        out("A@0/10 0+1+1 at 5, A@5/15 0+1 at 5, B@5/15 0+2 at 10"),
    ),
    "should emit from last emit time, on update": case(
        aggregated(HOPPING_WITH_5),
        pipe("topic", "A 1 at 0, B 2 at 5, C 3 at 15"),
        out("A@0/10 0+1 at 0, B@0/10 0+2 at 5, B@5/15 0+2 at 5, C@10/20 0+3 at 15, C@15/25 0+3 at 15"),
        restarted,
        pipe("topic", ("D", "4", 25)),
        out("D@20/30 0+4 at 25, D@25/35 0+4 at 25"),
    ),
    "should emit from last emit time, on close": case(
        aggregated(HOPPING_WITH_5, CLOSE),
        pipe("topic", "A 1 at 0, B 2 at 5, C 3 at 15"),
        out("A@0/10 0+1 at 0, B@0/10 0+2 at 5"),
        restarted,
        pipe("topic", ("D", "4", 25)),
        out("B@5/15 0+2 at 5, C@10/20 0+3 at 15"),
    ),
}


# ---- TimeWindowedKStreamImplTest and KGroupedStreamImplTest

SIX = pipe("topic", "1 1 at 10, 1 2 at 15, 1 3 at 500, 2 10 at 550, 2 20 at 500, 2 30 at 1000")
NAMED = Materialized.as_("aggregated").with_value_serde(TEXT)
SOME = TimeWindows.of_size_and_grace(500, 100)

TIME_WINDOWED = {
    "should reduce windowed, on update": case(
        reduced(TUMBLING, UPDATE),
        SIX,
        out(
            "1@0/500 1 at 10, 1@0/500 1+2 at 15, 1@500/1000 3 at 500, 2@500/1000 10 at 550, "
            "2@500/1000 10+20 at 550, 2@1000/1500 30 at 1000"
        ),
    ),
    "should reduce windowed, on close": case(
        reduced(TUMBLING, CLOSE), SIX, out("1@0/500 1+2 at 15, 1@500/1000 3 at 500, 2@500/1000 10+20 at 550")
    ),
    "should aggregate windowed, on update": case(
        aggregated(TUMBLING),
        SIX,
        out(
            "1@0/500 0+1 at 10, 1@0/500 0+1+2 at 15, 1@500/1000 0+3 at 500, 2@500/1000 0+10 at 550, "
            "2@500/1000 0+10+20 at 550, 2@1000/1500 0+30 at 1000"
        ),
    ),
    "should aggregate windowed, on close": case(
        aggregated(TUMBLING, CLOSE),
        SIX,
        out("1@0/500 0+1+2 at 15, 1@500/1000 0+3 at 500, 2@500/1000 0+10+20 at 550"),
    ),
    "should materialize reduced": case(
        reduced(TUMBLING, UPDATE, NAMED), SIX, anything, windows("aggregated", "2@1000/1500 30 at 1000")
    ),
    "should materialize aggregated": case(
        aggregated(TUMBLING, UPDATE, NAMED), SIX, anything, windows("aggregated", "2@1000/1500 0+30 at 1000")
    ),
}

COUNTED = {
    "should count windowed, on update": case(
        counted(TUMBLING, UPDATE),
        SIX,
        out(
            "1@0/500 1 at 10, 1@0/500 2 at 15, 1@500/1000 1 at 500, 2@500/1000 1 at 550, 2@500/1000 2 at 550, "
            "2@1000/1500 1 at 1000",
            value=int,
        ),
    ),
    "should count windowed, on close": case(
        counted(TUMBLING, CLOSE),
        SIX,
        out("1@0/500 2 at 15, 1@500/1000 1 at 500, 2@500/1000 2 at 550", value=int),
    ),
    "should materialize count, on update": case(
        counted(TUMBLING, UPDATE, Materialized.as_("count-store")),
        SIX,
        anything,
        windows("count-store", "2@1000/1500 1 at 1000", value=int),
    ),
    "should materialize count, on close": case(
        counted(TUMBLING, CLOSE, Materialized.as_("count-store")),
        SIX,
        anything,
        windows("count-store", "1@500/1000 1 at 500, 2@500/1000 2 at 550, 2@1000/1500 1 at 1000", value=int),
    ),
    "should count windowed of KGroupedStreamImplTest": case(
        counted(SOME, UPDATE, Materialized.as_("aggregate-by-key-windowed")),
        pipe(
            "topic",
            "1 A at 0, 1 A at 499, 1 A at 100, 2 B at 0, 2 B at 100, 2 B at 200, 3 C at 1, 1 A at 500, "
            "1 A at 500, 2 B at 500, 2 B at 500, 3 B at 100",
        ),
        out(
            "1@0/500 1 at 0, 1@0/500 2 at 499, 1@0/500 3 at 499, 2@0/500 1 at 0, 2@0/500 2 at 100, "
            "2@0/500 3 at 200, 3@0/500 1 at 1, 1@500/1000 1 at 500, 1@500/1000 2 at 500, 2@500/1000 1 at 500, "
            "2@500/1000 2 at 500, 3@0/500 2 at 100",
            value=int,
        ),
    ),
}


test_window_aggregates = of_cases(WINDOW_AGGREGATE)
test_time_windowed_streams = of_cases(TIME_WINDOWED)
test_windows_are_counted = of_cases_both_ways(COUNTED)
