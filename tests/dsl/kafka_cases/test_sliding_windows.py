"""Aggregates by sliding windows, put out at each change and on close.

Kafka's KStreamSlidingWindowAggregateTest, SlidingWindowedKStreamImplTest, and what KGroupedStreamImplTest counts.
"""

from __future__ import annotations

import random

import pytest

from statestore.dsl import EmitStrategy, KStream, KTable, Materialized, SlidingWindows
from statestore.errors import TopologyError
from tests.support.dsl.kafka_cases import (
    TEXT,
    CaseBuilder,
    Step,
    anything,
    case,
    dropped,
    last,
    of_cases,
    out,
    out_by_key,
    out_in_any_order,
    pipe,
    rows,
    windows,
)
from tests.support.dsl.kafka_programs import CLOSE, UPDATE, Program, aggregated, counted, joined, outs_of, reduced

within = SlidingWindows.of_time_difference_and_grace


# ---- KStreamSlidingWindowAggregateTest


AGGREGATE_SMALL_INPUT = pipe("topic", "A 1 at 10, A 2 at 10, A 3 at 14, A 4 at 15, A 5 at 20, A 6 at 22, A 7 at 30")
REDUCE_SMALL_INPUT = pipe("topic", "A 1 at 10, A 2 at 14, A 3 at 15, A 4 at 22, A 5 at 26, A 6 at 30")
EARLY_RECORDS_SMALL_INPUT = pipe("topic", "A 1 at 0, A 2 at 5, A 3 at 6, A 4 at 3, A 5 at 13, A 6 at 10, A 7 at 70")
EARLY_RECORDS_REPEATED_INPUT = pipe(
    "topic", "A 1 at 0, A 2 at 2, A 3 at 4, A 4 at 0, A 5 at 2, A 6 at 2, A 7 at 0, A 8 at 7"
)
EARLY_NO_GRACE_PERIOD_SMALL_INPUT = pipe(
    "topic", "A 1 at 0, A 2 at 5, A 3 at 6, A 4 at 3, A 5 at 13, A 6 at 10, A 6 at 70"
)
NO_GRACE_PERIOD_SMALL_INPUT = pipe("topic", "A 1 at 100, A 2 at 105, A 3 at 106, A 4 at 103, A 5 at 113, A 6 at 110")
AGGREGATE_LARGE_INPUT = pipe(
    "topic",
    "A 1 at 10, A 2 at 20, A 3 at 22, A 4 at 15, B 1 at 12, B 2 at 13, B 3 at 18, B 4 at 19, B 5 at 25, "
    "B 6 at 14, C 1 at 11, C 2 at 15, C 3 at 16, C 4 at 21, C 5 at 23, D 4 at 11, D 2 at 12, D 3 at 29, "
    "D 5 at 16",
)
EARLY_RECORDS_LARGE_INPUT = pipe(
    "topic", "E 1 at 0, E 3 at 5, E 4 at 6, E 2 at 3, E 6 at 13, E 5 at 10, E 7 at 4, E 8 at 2, E 9 at 15"
)
EARLY_NO_GRACE_PERIOD_LARGE_INPUT = pipe(
    "topic", "E 1 at 0, E 3 at 5, E 4 at 6, E 2 at 3, E 6 at 13, E 5 at 10, E 7 at 4, E 8 at 2, E 9 at 15"
)
NO_GRACE_PERIOD_LARGE_INPUT = pipe(
    "topic",
    "E 1 at 100, E 3 at 105, E 4 at 106, E 2 at 103, E 6 at 113, E 5 at 110, E 7 at 104, E 8 at 102, E 9 at 115",
)
LATE = pipe(
    "topic",
    "k 100 at 200, k 0 at 100, k 1 at 101, k 2 at 102, k 3 at 103, k 4 at 104, k 5 at 105, k 6 at 15, "
    "k 101 at 300, k 102 at 400",
)

JOINED_ON_UPDATE: tuple[Step, ...] = (
    pipe("one", "A 1 at 10, B 2 at 11, C 3 at 12"),
    outs_of(one="A@0/10 0+1 at 10, B@1/11 0+2 at 11, C@2/12 0+3 at 12"),
    pipe("one", "A 1 at 15, B 2 at 16, C 3 at 19"),
    outs_of(
        one="A@11/21 0+1 at 15, A@5/15 0+1+1 at 15, B@12/22 0+2 at 16, B@6/16 0+2+2 at 16, C@13/23 0+3 at 19, "
        "C@9/19 0+3+3 at 19",
    ),
    pipe("two", "A a at 10, C c at 12"),
    outs_of(
        two="A@0/10 0+a at 10, C@2/12 0+c at 12",
        both="A@0/10 0+1%0+a at 10, C@2/12 0+3%0+c at 12",
    ),
    pipe("two", "A a at 15, B b at 16, C c at 17"),
    outs_of(
        two="A@11/21 0+a at 15, A@5/15 0+a+a at 15, B@6/16 0+b at 16, C@13/23 0+c at 17, C@7/17 0+c+c at 17",
        both="A@11/21 0+1%0+a at 15, A@5/15 0+1+1%0+a+a at 15, B@6/16 0+2+2%0+b at 16, C@13/23 0+3%0+c at 19",
    ),
)

JOINED_ON_CLOSE: tuple[Step, ...] = (
    pipe("one", "A 1 at 10, B 2 at 11, C 3 at 12"),
    outs_of(one="A@0/10 0+1 at 10, B@1/11 0+2 at 11"),
    pipe("one", "A 1 at 15, B 2 at 16, C 3 at 19"),
    outs_of(one="C@2/12 0+3 at 12, A@5/15 0+1+1 at 15, B@6/16 0+2+2 at 16"),
    pipe("two", "A a at 10, C c at 12"),
    outs_of(two="A@0/10 0+a at 10", both="A@0/10 0+1%0+a at 10"),
    pipe("two", "A a at 15, B b at 16, C c at 17"),
    outs_of(
        two="C@2/12 0+c at 12, A@5/15 0+a+a at 15, B@6/16 0+b at 16",
        both="C@2/12 0+3%0+c at 12, A@5/15 0+1+1%0+a+a at 15, B@6/16 0+2+2%0+b at 16",
    ),
)

AGGREGATE = {
    "aggregate small input, on update": case(
        aggregated(within(10, 5), UPDATE),
        AGGREGATE_SMALL_INPUT,
        out_in_any_order(
            "A@0/10 0+1 at 10, A@0/10 0+1+2 at 10, A@4/14 0+1+2+3 at 14, A@5/15 0+1+2+3+4 at 15, "
            "A@10/20 0+1+2+3+4+5 at 20, A@11/21 0+3 at 14, A@11/21 0+3+4 at 15, A@11/21 0+3+4+5 at 20, "
            "A@12/22 0+3+4+5+6 at 22, A@15/25 0+4 at 15, A@15/25 0+4+5 at 20, A@15/25 0+4+5+6 at 22, "
            "A@16/26 0+5 at 20, A@16/26 0+5+6 at 22, A@20/30 0+5+6+7 at 30, A@21/31 0+6 at 22, "
            "A@21/31 0+6+7 at 30, A@23/33 0+7 at 30"
        ),
    ),
    "aggregate small input, on close": case(
        aggregated(within(10, 5), CLOSE),
        AGGREGATE_SMALL_INPUT,
        out_in_any_order(
            "A@0/10 0+1+2 at 10, A@4/14 0+1+2+3 at 14, A@5/15 0+1+2+3+4 at 15, A@10/20 0+1+2+3+4+5 at 20, "
            "A@11/21 0+3+4+5 at 20, A@12/22 0+3+4+5+6 at 22"
        ),
    ),
    "reduce small input, on update": case(
        reduced(within(10, 5), UPDATE),
        REDUCE_SMALL_INPUT,
        out_in_any_order(
            "A@0/10 1 at 10, A@4/14 1+2 at 14, A@5/15 1+2+3 at 15, A@11/21 2 at 14, A@11/21 2+3 at 15, "
            "A@12/22 2+3+4 at 22, A@15/25 3 at 15, A@15/25 3+4 at 22, A@16/26 4 at 22, A@16/26 4+5 at 26, "
            "A@20/30 4+5+6 at 30, A@23/33 5 at 26, A@23/33 5+6 at 30, A@27/37 6 at 30"
        ),
    ),
    "reduce small input, on close": case(
        reduced(within(10, 5), CLOSE),
        REDUCE_SMALL_INPUT,
        out_in_any_order(
            "A@0/10 1 at 10, A@4/14 1+2 at 14, A@5/15 1+2+3 at 15, A@11/21 2+3 at 15, A@12/22 2+3+4 at 22"
        ),
    ),
    "early records small input, on update": case(
        aggregated(within(50, 0), UPDATE),
        EARLY_RECORDS_SMALL_INPUT,
        out_in_any_order(
            "A@0/50 0+1 at 0, A@0/50 0+1+2 at 5, A@0/50 0+1+2+3 at 6, A@0/50 0+1+2+3+4 at 6, "
            "A@0/50 0+1+2+3+4+5 at 13, A@0/50 0+1+2+3+4+5+6 at 13, A@1/51 0+2 at 5, A@1/51 0+2+3 at 6, "
            "A@1/51 0+2+3+4 at 6, A@1/51 0+2+3+4+5 at 13, A@1/51 0+2+3+4+5+6 at 13, A@4/54 0+2+3 at 6, "
            "A@4/54 0+2+3+5 at 13, A@4/54 0+2+3+5+6 at 13, A@6/56 0+3 at 6, A@6/56 0+3+5 at 13, "
            "A@6/56 0+3+5+6 at 13, A@7/57 0+5 at 13, A@7/57 0+5+6 at 13, A@11/61 0+5 at 13, A@20/70 0+7 at 70"
        ),
    ),
    "early records small input, on close": case(
        aggregated(within(50, 0), CLOSE),
        EARLY_RECORDS_SMALL_INPUT,
        out_in_any_order(
            "A@0/50 0+1+2+3+4+5+6 at 13, A@1/51 0+2+3+4+5+6 at 13, A@4/54 0+2+3+5+6 at 13, "
            "A@6/56 0+3+5+6 at 13, A@7/57 0+5+6 at 13, A@11/61 0+5 at 13"
        ),
    ),
    "early records repeated input, on update": case(
        aggregated(within(5, 0), UPDATE),
        EARLY_RECORDS_REPEATED_INPUT,
        out_in_any_order(
            "A@0/5 0+1 at 0, A@0/5 0+1+2 at 2, A@0/5 0+1+2+3 at 4, A@0/5 0+1+2+3+4 at 4, "
            "A@0/5 0+1+2+3+4+5 at 4, A@0/5 0+1+2+3+4+5+6 at 4, A@0/5 0+1+2+3+4+5+6+7 at 4, A@1/6 0+2 at 2, "
            "A@1/6 0+2+3 at 4, A@1/6 0+2+3+5 at 4, A@1/6 0+2+3+5+6 at 4, A@2/7 0+2+3+5+6+8 at 7, "
            "A@3/8 0+3 at 4, A@3/8 0+3+8 at 7, A@5/10 0+8 at 7"
        ),
    ),
    "early records repeated input, on close": case(
        aggregated(within(5, 0), CLOSE),
        EARLY_RECORDS_REPEATED_INPUT,
        out_in_any_order("A@0/5 0+1+2+3+4+5+6+7 at 4, A@1/6 0+2+3+5+6 at 4"),
    ),
    "early no grace period small input, on update": case(
        aggregated(within(50, 0), UPDATE),
        EARLY_NO_GRACE_PERIOD_SMALL_INPUT,
        out_in_any_order(
            "A@0/50 0+1 at 0, A@0/50 0+1+2 at 5, A@0/50 0+1+2+3 at 6, A@0/50 0+1+2+3+4 at 6, "
            "A@0/50 0+1+2+3+4+5 at 13, A@0/50 0+1+2+3+4+5+6 at 13, A@1/51 0+2 at 5, A@1/51 0+2+3 at 6, "
            "A@1/51 0+2+3+4 at 6, A@1/51 0+2+3+4+5 at 13, A@1/51 0+2+3+4+5+6 at 13, A@4/54 0+2+3 at 6, "
            "A@4/54 0+2+3+5 at 13, A@4/54 0+2+3+5+6 at 13, A@6/56 0+3 at 6, A@6/56 0+3+5 at 13, "
            "A@6/56 0+3+5+6 at 13, A@7/57 0+5 at 13, A@7/57 0+5+6 at 13, A@11/61 0+5 at 13, A@20/70 0+6 at 70"
        ),
    ),
    "early no grace period small input, on close": case(
        aggregated(within(50, 0), CLOSE),
        EARLY_NO_GRACE_PERIOD_SMALL_INPUT,
        out_in_any_order(
            "A@0/50 0+1+2+3+4+5+6 at 13, A@1/51 0+2+3+4+5+6 at 13, A@4/54 0+2+3+5+6 at 13, "
            "A@6/56 0+3+5+6 at 13, A@7/57 0+5+6 at 13, A@11/61 0+5 at 13"
        ),
    ),
    "no grace period small input, on update": case(
        aggregated(within(50, 0), UPDATE),
        NO_GRACE_PERIOD_SMALL_INPUT,
        out_in_any_order(
            "A@50/100 0+1 at 100, A@55/105 0+1+2 at 105, A@56/106 0+1+2+3 at 106, A@56/106 0+1+2+3+4 at 106, "
            "A@63/113 0+1+2+3+4+5 at 113, A@63/113 0+1+2+3+4+5+6 at 113, A@101/151 0+2 at 105, "
            "A@101/151 0+2+3 at 106, A@101/151 0+2+3+4 at 106, A@101/151 0+2+3+4+5 at 113, "
            "A@101/151 0+2+3+4+5+6 at 113, A@104/154 0+2+3 at 106, A@104/154 0+2+3+5 at 113, "
            "A@104/154 0+2+3+5+6 at 113, A@106/156 0+3 at 106, A@106/156 0+3+5 at 113, "
            "A@106/156 0+3+5+6 at 113, A@107/157 0+5 at 113, A@107/157 0+5+6 at 113, A@111/161 0+5 at 113"
        ),
    ),
    "no grace period small input, on close": case(
        aggregated(within(50, 0), CLOSE),
        NO_GRACE_PERIOD_SMALL_INPUT,
        out_in_any_order("A@50/100 0+1 at 100, A@55/105 0+1+2 at 105, A@56/106 0+1+2+3+4 at 106"),
    ),
    "aggregate large input, on close": case(
        aggregated(within(10, 10), CLOSE),
        AGGREGATE_LARGE_INPUT,
        out_by_key(
            "A@0/10 0+1 at 10, A@5/15 0+1+4 at 15, B@2/12 0+1 at 12, B@3/13 0+1+2 at 13, "
            "B@8/18 0+1+2+3+6 at 18, C@5/15 0+2 at 15, C@6/16 0+2+3 at 16"
        ),
    ),
    "aggregate large input, on update": case(
        aggregated(within(10, 50), UPDATE),
        AGGREGATE_LARGE_INPUT,
        out_by_key(
            "A@0/10 0+1 at 10, A@5/15 0+1+4 at 15, A@10/20 0+1+2 at 20, A@10/20 0+1+2+4 at 20, "
            "A@11/21 0+2 at 20, A@11/21 0+2+4 at 20, A@12/22 0+2+3 at 22, A@12/22 0+2+3+4 at 22, "
            "A@16/26 0+2+3 at 22, A@21/31 0+3 at 22, B@2/12 0+1 at 12, B@3/13 0+1+2 at 13, "
            "B@4/14 0+1+2+6 at 14, B@8/18 0+1+2+3 at 18, B@8/18 0+1+2+3+6 at 18, B@9/19 0+1+2+3+4 at 19, "
            "B@9/19 0+1+2+3+4+6 at 19, B@13/23 0+2 at 13, B@13/23 0+2+3 at 18, B@13/23 0+2+3+4 at 19, "
            "B@13/23 0+2+3+4+6 at 19, B@14/24 0+3 at 18, B@14/24 0+3+4 at 19, B@14/24 0+3+4+6 at 19, "
            "B@15/25 0+3+4+5 at 25, B@19/29 0+4 at 19, B@19/29 0+4+5 at 25, B@20/30 0+5 at 25, "
            "C@1/11 0+1 at 11, C@5/15 0+1+2 at 15, C@6/16 0+1+2+3 at 16, C@11/21 0+1+2+3+4 at 21, "
            "C@12/22 0+2 at 15, C@12/22 0+2+3 at 16, C@12/22 0+2+3+4 at 21, C@13/23 0+2+3+4+5 at 23, "
            "C@16/26 0+3 at 16, C@16/26 0+3+4 at 21, C@16/26 0+3+4+5 at 23, C@17/27 0+4 at 21, "
            "C@17/27 0+4+5 at 23, C@22/32 0+5 at 23, D@1/11 0+4 at 11, D@2/12 0+4+2 at 12, "
            "D@6/16 0+4+2+5 at 16, D@12/22 0+2 at 12, D@12/22 0+2+5 at 16, D@13/23 0+5 at 16, "
            "D@19/29 0+3 at 29"
        ),
    ),
    "early records large input, on close": case(
        aggregated(within(10, 1), CLOSE),
        EARLY_RECORDS_LARGE_INPUT,
        out_by_key("E@0/10 0+1+3+4+2 at 6, E@1/11 0+3+4+2 at 6, E@3/13 0+3+4+2+6+5+7 at 13"),
    ),
    "early records large input, on update": case(
        aggregated(within(10, 50), UPDATE),
        EARLY_RECORDS_LARGE_INPUT,
        out_by_key(
            "E@0/10 0+1 at 0, E@0/10 0+1+3 at 5, E@0/10 0+1+3+4 at 6, E@0/10 0+1+3+4+2 at 6, "
            "E@0/10 0+1+3+4+2+5 at 10, E@0/10 0+1+3+4+2+5+7 at 10, E@0/10 0+1+3+4+2+5+7+8 at 10, "
            "E@1/11 0+3 at 5, E@1/11 0+3+4 at 6, E@1/11 0+3+4+2 at 6, E@1/11 0+3+4+2+5 at 10, "
            "E@1/11 0+3+4+2+5+7 at 10, E@1/11 0+3+4+2+5+7+8 at 10, E@3/13 0+3+4+2+6 at 13, "
            "E@3/13 0+3+4+2+6+5 at 13, E@3/13 0+3+4+2+6+5+7 at 13, E@4/14 0+3+4 at 6, E@4/14 0+3+4+6 at 13, "
            "E@4/14 0+3+4+6+5 at 13, E@4/14 0+3+4+6+5+7 at 13, E@5/15 0+3+4+6+5 at 13, "
            "E@5/15 0+3+4+6+5+9 at 15, E@6/16 0+4 at 6, E@6/16 0+4+6 at 13, E@6/16 0+4+6+5 at 13, "
            "E@6/16 0+4+6+5+9 at 15, E@7/17 0+6 at 13, E@7/17 0+6+5 at 13, E@7/17 0+6+5+9 at 15, "
            "E@11/21 0+6 at 13, E@11/21 0+6+9 at 15, E@14/24 0+9 at 15"
        ),
    ),
    "early no grace period large input, on close": case(
        aggregated(within(10, 0), CLOSE),
        EARLY_NO_GRACE_PERIOD_LARGE_INPUT,
        out_by_key("E@0/10 0+1+3+4+2 at 6, E@1/11 0+3+4+2 at 6, E@3/13 0+3+4+2+6+5+7 at 13, E@4/14 0+3+4+6+5+7 at 13"),
    ),
    "early no grace period large input, on update": case(
        aggregated(within(10, 0), UPDATE),
        EARLY_NO_GRACE_PERIOD_LARGE_INPUT,
        out_by_key(
            "E@0/10 0+1 at 0, E@0/10 0+1+3 at 5, E@0/10 0+1+3+4 at 6, E@0/10 0+1+3+4+2 at 6, "
            "E@1/11 0+3 at 5, E@1/11 0+3+4 at 6, E@1/11 0+3+4+2 at 6, E@3/13 0+3+4+2+6 at 13, "
            "E@3/13 0+3+4+2+6+5 at 13, E@3/13 0+3+4+2+6+5+7 at 13, E@4/14 0+3+4 at 6, E@4/14 0+3+4+6 at 13, "
            "E@4/14 0+3+4+6+5 at 13, E@4/14 0+3+4+6+5+7 at 13, E@5/15 0+3+4+6+5 at 13, "
            "E@5/15 0+3+4+6+5+9 at 15, E@6/16 0+4 at 6, E@6/16 0+4+6 at 13, E@6/16 0+4+6+5 at 13, "
            "E@6/16 0+4+6+5+9 at 15, E@7/17 0+6 at 13, E@7/17 0+6+5 at 13, E@7/17 0+6+5+9 at 15, "
            "E@11/21 0+6 at 13, E@11/21 0+6+9 at 15, E@14/24 0+9 at 15"
        ),
    ),
    "no grace period large input, on close": case(
        aggregated(within(10, 0), CLOSE),
        NO_GRACE_PERIOD_LARGE_INPUT,
        out_by_key(
            "E@90/100 0+1 at 100, E@95/105 0+1+3 at 105, E@96/106 0+1+3+4+2 at 106, "
            "E@101/111 0+3+4+2 at 106, E@103/113 0+3+4+2+6+5+7 at 113, E@104/114 0+3+4+6+5+7 at 113"
        ),
    ),
    "no grace period large input, on update": case(
        aggregated(within(10, 0), UPDATE),
        NO_GRACE_PERIOD_LARGE_INPUT,
        out_by_key(
            "E@90/100 0+1 at 100, E@95/105 0+1+3 at 105, E@96/106 0+1+3+4 at 106, E@96/106 0+1+3+4+2 at 106, "
            "E@101/111 0+3 at 105, E@101/111 0+3+4 at 106, E@101/111 0+3+4+2 at 106, "
            "E@103/113 0+3+4+2+6 at 113, E@103/113 0+3+4+2+6+5 at 113, E@103/113 0+3+4+2+6+5+7 at 113, "
            "E@104/114 0+3+4 at 106, E@104/114 0+3+4+6 at 113, E@104/114 0+3+4+6+5 at 113, "
            "E@104/114 0+3+4+6+5+7 at 113, E@105/115 0+3+4+6+5 at 113, E@105/115 0+3+4+6+5+9 at 115, "
            "E@106/116 0+4 at 106, E@106/116 0+4+6 at 113, E@106/116 0+4+6+5 at 113, "
            "E@106/116 0+4+6+5+9 at 115, E@107/117 0+6 at 113, E@107/117 0+6+5 at 113, "
            "E@107/117 0+6+5+9 at 115, E@111/121 0+6 at 113, E@111/121 0+6+9 at 115, E@114/124 0+9 at 115"
        ),
    ),
    "join, on update": case(joined(within(10, 100), UPDATE), *JOINED_ON_UPDATE),
    "join, on close": case(joined(within(10, 0), CLOSE), *JOINED_ON_CLOSE),
    "should meter when skipping null key, on update": case(
        aggregated(within(10, 100)), pipe("topic", (None, "1", 0)), out(), dropped(1)
    ),
    "should meter when skipping null key, on close": case(
        aggregated(within(10, 100), CLOSE), pipe("topic", (None, "1", 0)), out(), dropped(1)
    ),
    "should meter when skipping expired window by grace, on update": case(
        aggregated(within(10, 90)),
        LATE,
        out("k@190/200 0+100 at 200, k@290/300 0+101 at 300, k@390/400 0+102 at 400"),
        dropped(7),
    ),
    "should meter when skipping expired window by grace, on close": case(
        aggregated(within(10, 90), CLOSE),
        LATE,
        out("k@190/200 0+100 at 200, k@290/300 0+101 at 300"),
        dropped(7),
    ),
}


test_sliding_windows = of_cases(AGGREGATE)
# ---- The same letters in any order

LETTERS = rows(
    "A A at 10, A B at 15, A C at 16, A D at 18, A E at 30, A F at 40, A G at 55, A H at 56, A I at 58, A J at 58, "
    "A K at 62, A L at 63, A M at 63, A N at 63, A O at 76, A P at 77, A Q at 80, A R at 2, A S at 3, A T at 5, "
    "A U at 8"
)
OF_LETTERS = rows(
    "A@0/10 ARSTU at 10, A@3/13 ASTU at 10, A@4/14 ATU at 10, A@5/15 ABTU at 15, A@6/16 ABCU at 16, "
    "A@8/18 ABCDU at 18, A@9/19 ABCD at 18, A@11/21 BCD at 18, A@16/26 CD at 18, A@17/27 D at 18, A@20/30 E at 30, "
    "A@30/40 EF at 40, A@31/41 F at 40, A@45/55 G at 55, A@46/56 GH at 56, A@48/58 GHIJ at 58, A@52/62 GHIJK at 62, "
    "A@53/63 GHIJKLMN at 63, A@56/66 HIJKLMN at 63, A@57/67 IJKLMN at 63, A@59/69 KLMN at 63, A@63/73 LMN at 63, "
    "A@66/76 O at 76, A@67/77 OP at 77, A@70/80 OPQ at 80, A@77/87 PQ at 80, A@78/88 Q at 80, A@171/181 V at 181"
)


def sorted_letters(strategy: EmitStrategy) -> Program:
    def program(builder: CaseBuilder) -> KTable[KStream]:
        windowed = builder.stream("topic").group_by_key().windowed_by(within(10, 100)).emit_strategy(strategy)
        stored = Materialized.as_("letters").with_value_serde(TEXT).with_retention(50_000)
        return windowed.aggregate(str, lambda key, value, held: "".join(sorted(held + value)), materialized=stored)

    return program


def last_of_windows(strategy: EmitStrategy, seed: int) -> dict[object, tuple[str, int]]:
    """Return what was put out last of each window, after the letters in a random order, and V that closes windows."""
    found: dict[object, tuple[str, int]] = {}

    def note(run: object) -> None:
        found.update({record.key: (record.value, record.timestamp_ms) for record in run.take("out")})  # type: ignore[attr-defined]

    letters = random.Random(seed).sample(LETTERS, len(LETTERS))
    case(sorted_letters(strategy), pipe("topic", *letters, ("A", "V", 181)), note).run()
    return found


@pytest.mark.parametrize("seed", range(3))
def test_aggregate_random_input(seed: int) -> None:
    assert last_of_windows(UPDATE, seed) == {key: (value, time_ms) for key, value, time_ms in OF_LETTERS}


@pytest.mark.parametrize("seed", range(3))
def test_aggregate_random_input_on_close(seed: int) -> None:
    """All windows that closed. Kafka loses those that V jumps past, and lists the ones from 52 on alone."""
    closed = [row for row in OF_LETTERS if row[0].end_ms + 100 < 181]
    assert last_of_windows(CLOSE, seed) == {key: (value, time_ms) for key, value, time_ms in closed}


# ---- SlidingWindowedKStreamImplTest and KGroupedStreamImplTest

FIVE = pipe("topic", "1 1 at 100, 1 2 at 150, 1 3 at 500, 2 10 at 200, 2 20 at 150")
STORED = Materialized.as_("store").with_value_serde(TEXT)


SLIDING_WINDOWED = {
    "should count sliding windows": case(
        counted(within(100, 1000)),
        FIVE,
        last(
            "1@0/100 1 at 100, 1@101/201 1 at 150, 1@50/150 2 at 150, 1@400/500 1 at 500, 2@100/200 2 at 200, "
            "2@50/150 1 at 150, 2@151/251 1 at 200",
            value=int,
        ),
    ),
    "should reduce sliding windows": case(
        reduced(within(100, 1000)),
        FIVE,
        last(
            "1@0/100 1 at 100, 1@101/201 2 at 150, 1@50/150 1+2 at 150, 1@400/500 3 at 500, 2@100/200 10+20 at 200, "
            "2@50/150 20 at 150, 2@151/251 10 at 200"
        ),
    ),
    "should aggregate sliding windows": case(
        aggregated(within(100, 1000)),
        FIVE,
        last(
            "1@0/100 0+1 at 100, 1@101/201 0+2 at 150, 1@50/150 0+1+2 at 150, 1@400/500 0+3 at 500, "
            "2@100/200 0+10+20 at 200, 2@50/150 0+20 at 150, 2@151/251 0+10 at 200"
        ),
    ),
    "should materialize count": case(
        counted(within(100, 1000), UPDATE, Materialized.as_("store")),
        FIVE,
        anything,
        windows(
            "store",
            "1@0/100 1 at 100, 1@50/150 2 at 150, 1@101/201 1 at 150, 1@400/500 1 at 500, 2@50/150 1 at 150, "
            "2@100/200 2 at 200, 2@151/251 1 at 200",
            value=int,
        ),
    ),
    "should materialize reduced": case(
        reduced(within(100, 1000), UPDATE, STORED),
        FIVE,
        anything,
        windows(
            "store",
            "1@0/100 1 at 100, 1@50/150 1+2 at 150, 1@101/201 2 at 150, 1@400/500 3 at 500, 2@50/150 20 at 150, "
            "2@100/200 10+20 at 200, 2@151/251 10 at 200",
        ),
    ),
    "should materialize aggregated": case(
        aggregated(within(100, 1000), UPDATE, STORED),
        FIVE,
        anything,
        windows(
            "store",
            "1@0/100 0+1 at 100, 1@50/150 0+1+2 at 150, 1@101/201 0+2 at 150, 1@400/500 0+3 at 500, "
            "2@50/150 0+20 at 150, 2@100/200 0+10+20 at 200, 2@151/251 0+10 at 200",
        ),
    ),
    "should drop windows outside of retention": case(
        aggregated(within(100, 1000), UPDATE, STORED.with_retention(1200).with_store_in_memory()),
        pipe("topic", "1 2 at 100, 1 3 at 500, 1 4 at 799, 1 4 at 1000, 1 5 at 2000"),
        anything,
        windows("store", "1@900/1000 0+4 at 1000, 1@1900/2000 0+5 at 2000"),
    ),
    "should count sliding windows of KGroupedStreamImplTest": case(
        counted(within(500, 2000)),
        pipe(
            "topic",
            "1 A at 500, 1 A at 999, 1 A at 600, 2 B at 500, 2 B at 600, 2 B at 700, 3 C at 501, 1 A at 1000, "
            "1 A at 1000, 2 B at 1000, 2 B at 1000, 3 C at 600",
        ),
        out_by_key(
            "1@0/500 1 at 500, 1@100/600 2 at 600, 1@499/999 2 at 999, 1@499/999 3 at 999, 1@500/1000 4 at 1000, "
            "1@500/1000 5 at 1000, 1@501/1001 1 at 999, 1@501/1001 2 at 999, 1@501/1001 3 at 1000, "
            "1@501/1001 4 at 1000, 1@601/1101 1 at 999, 1@601/1101 2 at 1000, 1@601/1101 3 at 1000, "
            "1@1000/1500 1 at 1000, 1@1000/1500 2 at 1000, 2@0/500 1 at 500, 2@100/600 2 at 600, "
            "2@200/700 3 at 700, 2@500/1000 4 at 1000, 2@500/1000 5 at 1000, 2@501/1001 1 at 600, "
            "2@501/1001 2 at 700, 2@501/1001 3 at 1000, 2@501/1001 4 at 1000, 2@601/1101 1 at 700, "
            "2@601/1101 2 at 1000, 2@601/1101 3 at 1000, 2@701/1201 1 at 1000, 2@701/1201 2 at 1000, "
            "3@1/501 1 at 501, 3@100/600 2 at 600, 3@502/1002 1 at 600",
            value=int,
        ),
    ),
}


test_sliding_windowed_streams = of_cases(SLIDING_WINDOWED)


def test_should_throw_when_retention_is_too_small() -> None:
    builder = CaseBuilder(in_columns=True)
    aggregated(within(100, 1000), UPDATE, STORED.with_retention(1))(builder)
    with pytest.raises(TopologyError, match="retention"):
        builder.build()
