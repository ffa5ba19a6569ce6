"""Aggregates of streams and of tables by key.

Kafka's KGroupedStreamImplTest, KGroupedTableImplTest, KTableAggregateTest and KTableReduceTest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore import Serde, Serdes
from statestore.dsl import KStream, KTable, Materialized
from tests.support.dsl.kafka_cases import (
    INT,
    TEXT,
    CaseBuilder,
    Step,
    anything,
    case,
    dropped,
    last,
    of_cases,
    of_cases_both_ways,
    out,
    pipe,
    plus,
    rows,
    stored,
)
from tests.support.dsl.kafka_programs import add, remove, zero

Program = Callable[[CaseBuilder], KTable[KStream]]

VERSIONED = Materialized.as_versioned("versioned", 300_000)


# ---- Of streams

SEVEN = pipe("topic", "1 A at 5, 2 B at 1, 1 C at 3, 1 D at 10, 3 E at 8, 3 F at 9, 3 null at 0")


def counted(builder: CaseBuilder) -> KTable[KStream]:
    return builder.stream("topic").group_by_key().count(materialized=Materialized.as_("count"))


def reduced(builder: CaseBuilder) -> KTable[KStream]:
    return builder.stream("topic").group_by_key().reduce(plus, materialized=Materialized.as_("reduce"))


def aggregated(stored: Materialized) -> Program:
    return lambda builder: builder.stream("topic").group_by_key().aggregate(zero, add, materialized=stored)


COUNTED = {
    "should count and materialize results, and measure skips": case(
        counted, SEVEN, anything, stored("count", {"1": (3, 10), "2": (1, 1), "3": (2, 9)}), dropped(1)
    ),
}

OF_STREAMS = {
    "should reduce and materialize results, and measure skips": case(
        reduced, SEVEN, anything, stored("reduce", {"1": ("A+C+D", 10), "2": ("B", 1), "3": ("E+F", 9)}), dropped(1)
    ),
    "should aggregate and materialize results": case(
        aggregated(Materialized.as_("aggregate").with_value_serde(TEXT)),
        SEVEN,
        anything,
        stored("aggregate", {"1": ("0+A+C+D", 10), "2": ("0+B", 1), "3": ("0+E+F", 9)}),
    ),
    "should aggregate with default serdes": case(
        aggregated(Materialized.with_(TEXT, TEXT)), SEVEN, last("1 0+A+C+D at 10, 2 0+B at 1, 3 0+E+F at 9")
    ),
}


# ---- Of tables


def grouped(selector: Callable[[Any, Any], Any], stored: Materialized | None = None) -> Callable[[CaseBuilder], Any]:
    def program(builder: CaseBuilder) -> Any:
        table = builder.table("topic", materialized=stored)
        return table.group_by(selector, key_serde=TEXT, value_serde=TEXT)

    return program


def as_it_is(key: Any, value: Any) -> tuple[Any, Any]:
    return key, value


def by_value(key: Any, value: Any) -> tuple[Any, Any]:
    return value, value


def by_value_or_nothing(key: str, value: Any) -> tuple[Any, Any] | None:
    return {"null": (None, value), "NULL": None}.get(key, (value, value))


def added(group: Callable[[CaseBuilder], Any]) -> Program:
    stored = Materialized.as_("topic1-Canonized").with_value_serde(TEXT)
    return lambda builder: group(builder).aggregate(zero, add, remove, materialized=stored)


def counts(group: Callable[[CaseBuilder], Any], stored: Materialized | None = None) -> Program:
    return lambda builder: group(builder).count(materialized=stored)


def letters(builder: CaseBuilder) -> KTable[KStream]:
    """The second letters of keys by their first ones."""
    group = grouped(lambda key, value: (key[0], key[1]))(builder)
    made: KTable[KStream] = group.aggregate(
        str,
        lambda key, value, held: held + value,
        lambda key, value, held: held.replace(value, ""),
        materialized=Materialized.as_("someStore").with_value_serde(TEXT),
    )
    return made


def whole_numbers(source: Materialized | None, stored: Materialized | None) -> Program:
    def program(builder: CaseBuilder) -> KTable[KStream]:
        table = builder.table("topic", value_serde=Serdes.double(), materialized=source)
        group = table.group_by(lambda key, value: (key, int(value)), key_serde=TEXT, value_serde=INT)
        made: KTable[KStream] = group.reduce(int.__add__, int.__sub__, materialized=stored)
        return made

    return program


SET: Serde[Any] = Serdes.of("set", lambda items: ",".join(sorted(items)).encode(), lambda data: set(_items(data)))


def _items(data: bytes) -> list[str]:
    return data.decode().split(",") if data else []


def sets(builder: CaseBuilder) -> KTable[KStream]:
    table = builder.table("topic", value_serde=SET)
    group = table.group_by(as_it_is, key_serde=TEXT, value_serde=SET)
    made: KTable[KStream] = group.reduce(set.union, set.difference, materialized=Materialized.as_("myStore"))
    return made


NUMBERS: tuple[Step, ...] = (
    pipe("topic", *rows("A 1.1 at 10, B 2.2 at 11", float)),
    last("A 1 at 10, B 2 at 11", value=int),
    pipe("topic", *rows("A 2.6 at 30, B 1.3 at 30, A 5.7 at 50, B 6.2 at 20", float)),
    last("A 5 at 50, B 6 at 30", value=int),
)
COLORS: tuple[Step, ...] = (
    pipe("topic", "A green at 10, B green at 9, A blue at 12, C yellow at 15, D green at 11"),
    out(
        "green 1 at 10, green 2 at 10, green 1 at 12, blue 1 at 12, yellow 1 at 15, green 2 at 12",
        value=int,
    ),
)
PLACES = pipe("topic", "A 1 at 10, B 1 at 50, C 1 at 30, D 2 at 40, E 2 at 60")

OF_TABLES = {
    "basic aggregate": case(
        added(grouped(as_it_is)),
        pipe("topic", "A 1 at 10, B 2 at 15, A 3 at 20, B 4 at 18, C 5 at 5, D 6 at 25, B 7 at 15, C 8 at 10"),
        out(
            "A 0+1 at 10, B 0+2 at 15, A 0+1-1+3 at 20, B 0+2-2+4 at 18, C 0+5 at 5, D 0+6 at 25, "
            "B 0+2-2+4-4+7 at 18, C 0+5-5+8 at 10"
        ),
    ),
    "aggregate by another key": case(
        added(grouped(by_value_or_nothing)),
        pipe(
            "topic", "A 1 at 10, A null at 15, A 1 at 12, B 2 at 20, null 3 at 25, B 4 at 23, NULL 5 at 24, B 7 at 22"
        ),
        out(
            "1 0+1 at 10, 1 0+1-1 at 15, 1 0+1-1+1 at 15, 2 0+2 at 20, 2 0+2-2 at 23, 4 0+4 at 23, 4 0+4-4 at 23, "
            "7 0+7 at 22"
        ),
    ),
    "aggregate of versioned store": case(
        added(grouped(by_value_or_nothing, VERSIONED)),
        pipe(
            "topic", "A 1 at 10, A null at 15, A 1 at 12, B 2 at 20, null 3 at 25, B 4 at 23, NULL 5 at 24, B 7 at 22"
        ),
        out("1 0+1 at 10, 1 0+1-1 at 15, 2 0+2 at 20, 2 0+2-2 at 23, 4 0+4 at 23"),
    ),
    "count": case(counts(grouped(by_value), Materialized.as_("count")), *COLORS),
    "count with internal store": case(counts(grouped(by_value)), *COLORS),
    "count of versioned store": case(
        counts(grouped(by_value, VERSIONED)),
        pipe("topic", "A green at 10, B green at 9, A blue at 12, A blue at 11, C yellow at 15, D green at 11"),
        COLORS[1],
    ),
    "remove old before add new": case(
        letters,
        pipe("topic", "11 A at 10, 12 B at 8, 11 null at 12, 12 C at 6"),
        out("1 1 at 10, 1 12 at 10, 1 2 at 12, 1 2 at 12"),
    ),
    "should not send transient state if not upgrading": case(
        counts(grouped(as_it_is)), pipe("topic", ("1", "", 8), ("1", "", 9)), out("1 1 at 8, 1 1 at 9", value=int)
    ),
    "should reduce": case(whole_numbers(Materialized.as_("store"), Materialized.as_("reduced")), *NUMBERS),
    "should reduce with internal store name": case(whole_numbers(Materialized.as_("store"), None), *NUMBERS),
    "should reduce and materialize results": case(
        whole_numbers(None, Materialized.as_("reduce")), *NUMBERS, stored("reduce", {"A": (5, 50), "B": (6, 30)})
    ),
    "should count and materialize results": case(
        counts(grouped(by_value), Materialized.as_("count")),
        PLACES,
        anything,
        stored("count", {"1": (3, 50), "2": (2, 60)}),
    ),
    "should aggregate and materialize results": case(
        added(grouped(by_value)),
        PLACES,
        anything,
        stored("topic1-Canonized", {"1": ("0+1+1+1", 50), "2": ("0+2+2", 60)}),
    ),
    "should add and subtract": case(
        sets,
        pipe("topic", ("A", {"a"}, 10)),
        stored("myStore", {"A": ({"a"}, 10)}),
        pipe("topic", ("A", {"b"}, 15)),
        stored("myStore", {"A": ({"b"}, 15)}),
        pipe("topic", ("A", None, 12)),
        stored("myStore", {"A": (set(), 15)}),
        anything,
    ),
}


test_counts_of_streams = of_cases_both_ways(COUNTED)
test_aggregates_of_streams = of_cases(OF_STREAMS)
test_aggregates_of_tables = of_cases(OF_TABLES)
