"""Tables of a topic, filtered and mapped.

Kafka's KTableSourceTest, KTableFilterTest, KTableMapValuesTest and KTableImplTest. They see
old values by enabling them; here `changes()` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from statestore.dsl import KStream, KTable, Materialized, TimeWindows
from tests.support.dsl.kafka_cases import (
    INT,
    CaseBuilder,
    Step,
    case,
    changed,
    dropped,
    of_cases,
    out,
    pipe,
    plus,
    stored,
)

VERSIONED = Materialized.as_versioned("versioned", 300_000)


def is_even(key: Any, value: int) -> bool:
    return value % 2 == 0


# ---- Of a topic


def table(stored: Materialized | None = None, values: Any = INT) -> Callable[[CaseBuilder], Any]:
    return lambda builder: builder.table("topic", value_serde=values, materialized=stored)


def text_table(builder: CaseBuilder) -> KTable[KStream]:
    made: KTable[KStream] = builder.table("topic", materialized=Materialized.as_("store"))
    return made


def changes_of_text(builder: CaseBuilder) -> KStream:
    made: KStream = builder.table("topic").changes()
    return made


SOURCE = {
    "table": case(
        table(),
        pipe("topic", ("A", 1, 10), ("B", 2, 11), ("C", 3, 12), ("D", 4, 13), ("A", None, 14), ("B", None, 15)),
        out(("A", 1, 10), ("B", 2, 11), ("C", 3, 12), ("D", 4, 13), ("A", None, 14), ("B", None, 15)),
    ),
    # Kafka has the emission on change alone disabled.
    "table source emits what did not change": case(
        table(Materialized.as_("store")),
        pipe("topic", ("A", 1, 10), ("B", 2, 11), ("A", 1, 12), ("B", 3, 13), ("A", 1, 9)),
        out(("A", 1, 10), ("B", 2, 11), ("A", 1, 12), ("B", 3, 13), ("A", 1, 9)),
    ),
    "table should meter on skipped records": case(
        table(Materialized.as_("store")), pipe("topic", (None, 1, 0)), out(), dropped(1)
    ),
    "table takes what is out of order": case(
        text_table,
        pipe("topic", ("key", "value", 10), ("key", "value", 5)),
        out(("key", "value", 10), ("key", "value", 5)),
        stored("store", {"key": ("value", 5)}),
    ),
    "value getter": case(
        text_table,
        pipe("topic", ("A", "01", 10), ("B", "01", 20), ("C", "01", 15)),
        stored("store", {"A": ("01", 10), "B": ("01", 20), "C": ("01", 15)}),
        pipe("topic", ("A", "02", 30), ("B", "02", 5)),
        stored("store", {"A": ("02", 30), "B": ("02", 5), "C": ("01", 15)}),
        pipe("topic", ("A", "03", 29)),
        stored("store", {"A": ("03", 29), "B": ("02", 5), "C": ("01", 15)}),
        pipe("topic", ("A", None, 50), ("B", None, 3)),
        stored("store", {"A": None, "B": None, "C": ("01", 15)}),
        out(
            ("A", "01", 10),
            ("B", "01", 20),
            ("C", "01", 15),
            ("A", "02", 30),
            ("B", "02", 5),
            ("A", "03", 29),
            ("A", None, 50),
            ("B", None, 3),
        ),
    ),
    "sending old value": case(
        changes_of_text,
        pipe("topic", ("A", "01", 10), ("B", "01", 20), ("C", "01", 15)),
        out(changed("A", "01", None, 10), changed("B", "01", None, 20), changed("C", "01", None, 15)),
        pipe("topic", ("A", "02", 8), ("B", "02", 22)),
        out(changed("A", "02", "01", 8), changed("B", "02", "01", 22)),
        pipe("topic", ("A", "03", 12)),
        out(changed("A", "03", "02", 12)),
        pipe("topic", ("A", None, 15), ("B", None, 20)),
        out(changed("A", None, "03", 15), changed("B", None, "02", 20)),
    ),
}


# ---- Filtered


def evens_and_odds(kept: Materialized | None) -> Callable[[CaseBuilder], None]:
    def program(builder: CaseBuilder) -> None:
        source = builder.table("topic", value_serde=INT)
        builder.catch(source.filter(is_even, materialized=kept), "even")
        builder.catch(source.filter_not(is_even), "odd")

    return program


def kept_evens_and_odds(builder: CaseBuilder) -> None:
    source = builder.table("topic", value_serde=INT)
    source.filter(is_even, materialized=Materialized.as_("even"))
    source.filter_not(is_even, materialized=Materialized.as_("odd"))


def changes_of_evens(source: Materialized | None, filtered: Materialized | None) -> Callable[[CaseBuilder], KStream]:
    def program(builder: CaseBuilder) -> KStream:
        table: KTable[KStream] = builder.table("topic", value_serde=INT, materialized=source)
        return table.filter(is_even, materialized=filtered).changes()

    return program


def regrouped(source: Materialized | None, filtered: Materialized | None) -> Callable[[CaseBuilder], None]:
    """A filter of "accept", whose table is aggregated by another key."""

    def program(builder: CaseBuilder) -> None:
        table = builder.table("topic", materialized=source)
        builder.catch(table, "source")
        accepted = table.filter(lambda key, value: value.lower() == "accept", materialized=filtered)
        builder.catch(accepted, "filtered")
        texts = {"key_serde": builder.serdes["topic"][0], "value_serde": builder.serdes["topic"][1]}
        grouped = accepted.group_by(lambda key, value: (key, value), **texts)
        builder.catch(grouped.reduce(plus, lambda so_far, gone: f"{so_far}-{gone}"), "reduced")

    return program


PASSED_THROUGH: tuple[Step, ...] = (
    pipe("topic", ("A", 1, 10), ("B", 2, 5), ("C", 3, 8), ("D", 4, 14), ("A", None, 18), ("B", None, 15)),
    out(("A", None, 10), ("B", 2, 5), ("C", None, 8), ("D", 4, 14), ("A", None, 18), ("B", None, 15), name="even"),
    out(("A", 1, 10), ("B", None, 5), ("C", 3, 8), ("D", None, 14), ("A", None, 18), ("B", None, 15), name="odd"),
)

FILTERED: tuple[Step, ...] = (
    pipe("topic", ("A", 1, 5), ("B", 1, 10), ("C", 1, 15)),
    out(("A", None, 5), ("B", None, 10), ("C", None, 15)),
    pipe("topic", ("A", 2, 15), ("B", 2, 8)),
    out(("A", 2, 15), ("B", 2, 8)),
    pipe("topic", ("A", 3, 20)),
    out(("A", None, 20)),
    pipe("topic", ("A", None, 10), ("B", None, 20)),
    out(("A", None, 10), ("B", None, 20)),
)

OLD_VALUES: tuple[Step, ...] = (
    pipe("topic", ("A", 1, 5), ("B", 1, 10), ("C", 1, 15)),
    out(),
    pipe("topic", ("A", 2, 15), ("B", 2, 8)),
    out(changed("A", 2, None, 15), changed("B", 2, None, 8)),
    pipe("topic", ("A", 3, 20)),
    out(changed("A", None, 2, 20)),
    pipe("topic", ("A", None, 10), ("B", None, 20)),
    out(changed("B", None, 2, 20)),
)

REJECTED: tuple[Step, ...] = (
    pipe("topic", ("A", "reject", 5), ("B", "reject", 10), ("C", "reject", 20)),
    out(("A", "reject", 5), ("B", "reject", 10), ("C", "reject", 20), name="source"),
)

SKIPPED = out(name="filtered")
NOT_SKIPPED = out(("A", None, 5), ("B", None, 10), ("C", None, 20), name="filtered")
KEPT = Materialized.as_("store2")

FILTER = {
    "should pass through without materialization": case(evens_and_odds(None), *PASSED_THROUGH),
    "should pass through on materialization": case(evens_and_odds(KEPT), *PASSED_THROUGH),
    "should get values on materialization": case(
        kept_evens_and_odds,
        pipe("topic", ("A", 1, 5), ("B", 1, 10), ("C", 1, 15)),
        stored("even", {"A": None, "B": None, "C": None}),
        stored("odd", {"A": (1, 5), "B": (1, 10), "C": (1, 15)}),
        pipe("topic", ("A", 2, 10), ("B", 2, 5)),
        stored("even", {"A": (2, 10), "B": (2, 5), "C": None}),
        stored("odd", {"A": None, "B": None, "C": (1, 15)}),
        pipe("topic", ("A", 3, 15)),
        stored("even", {"A": None, "B": (2, 5), "C": None}),
        stored("odd", {"A": (3, 15), "B": None, "C": (1, 15)}),
        pipe("topic", ("A", None, 10), ("B", None, 20)),
        stored("even", {"A": None, "B": None, "C": None}),
        stored("odd", {"A": None, "B": None, "C": (1, 15)}),
    ),
    "should not send old values without materialization": case(
        lambda builder: builder.table("topic", value_serde=INT).filter(is_even), *FILTERED
    ),
    "should not send old values on materialization": case(
        lambda builder: builder.table("topic", value_serde=INT).filter(is_even, materialized=KEPT), *FILTERED
    ),
    "should enable send old values when not materialized already but forced to materialize": case(
        changes_of_evens(None, None), *OLD_VALUES
    ),
    "should enable send old values when materialized already and forced to materialize": case(
        changes_of_evens(None, KEPT), *OLD_VALUES
    ),
    "should send old values when enabled on upstream materialization": case(changes_of_evens(KEPT, None), *OLD_VALUES),
    "should skip null to repartition without materialization": case(
        regrouped(None, None), *REJECTED, SKIPPED, out(name="reduced")
    ),
    "should skip null to repartition on materialization": case(
        regrouped(None, KEPT), *REJECTED, SKIPPED, out(name="reduced")
    ),
    "should not skip null if versioned upstream": case(
        regrouped(VERSIONED, None), *REJECTED, NOT_SKIPPED, out(name="reduced")
    ),
    "should skip null if versioned downstream": case(
        regrouped(Materialized.as_("store"), VERSIONED), *REJECTED, SKIPPED, out(name="reduced")
    ),
}


# ---- With other values


def kept_numbers(builder: CaseBuilder) -> None:
    source = builder.table("topic")
    source.map_values(int, materialized=Materialized.as_("plus").with_value_serde(INT))
    source.map_values(lambda value: -int(value), materialized=Materialized.as_("minus").with_value_serde(INT))


def numbers(kept: Materialized | None = None) -> Callable[[CaseBuilder], KTable[KStream]]:
    return lambda builder: builder.table("topic").map_values(int, materialized=kept)


def changes_of_numbers(kept: Materialized | None) -> Callable[[CaseBuilder], KStream]:
    return lambda builder: numbers(kept)(builder).changes()


def several(source: Materialized | None) -> Callable[[CaseBuilder], None]:
    """A table, mapped, filtered, and read again from a topic that it is written to."""

    def program(builder: CaseBuilder) -> None:
        table = builder.table("topic", materialized=source)
        mapped = table.map_values(int)
        table.to_stream().to("topic2")
        caught = (table, mapped, mapped.filter(is_even), builder.table("topic2"))
        for name, each_table in zip(("first", "mapped", "even", "second"), caught, strict=True):
            builder.catch(each_table, name)

    return program


KEPT_NUMBERS = Materialized.as_("anyName").with_value_serde(INT)

MAPPED: tuple[Step, ...] = (
    pipe("topic", ("A", "1", 5), ("B", "2", 25), ("C", "3", 20), ("D", "4", 10)),
    out(("A", 1, 5), ("B", 2, 25), ("C", 3, 20), ("D", 4, 10)),
)

OLD_NUMBERS: tuple[Step, ...] = (
    pipe("topic", ("A", "01", 5), ("B", "01", 10), ("C", "01", 15)),
    out(changed("A", 1, None, 5), changed("B", 1, None, 10), changed("C", 1, None, 15)),
    pipe("topic", ("A", "02", 10), ("B", "02", 8)),
    out(changed("A", 2, 1, 10), changed("B", 2, 1, 8)),
    pipe("topic", ("A", "03", 20)),
    out(changed("A", 3, 2, 20)),
    pipe("topic", ("A", None, 30)),
    out(changed("A", None, 3, 30)),
)

TEXTS = (("A", "01", 5), ("B", "02", 100), ("C", "03", 0), ("D", "04", 0), ("A", "05", 10), ("A", "06", 8))
ALL_BUT_EVEN: tuple[Step, ...] = (
    pipe("topic", *TEXTS),
    out(*TEXTS, name="first"),
    out(("A", 1, 5), ("B", 2, 100), ("C", 3, 0), ("D", 4, 0), ("A", 5, 10), ("A", 6, 8), name="mapped"),
    out(*TEXTS, name="second"),
)

MAP_VALUES = {
    "table": case(numbers(), *MAPPED),
    "queryable table": case(numbers(KEPT_NUMBERS), *MAPPED, stored("anyName", {"A": (1, 5), "B": (2, 25)})),
    "queryable value getter": case(
        kept_numbers,
        pipe("topic", ("A", "01", 50), ("B", "01", 10), ("C", "01", 30)),
        stored("plus", {"A": (1, 50), "B": (1, 10), "C": (1, 30)}),
        stored("minus", {"A": (-1, 50), "B": (-1, 10), "C": (-1, 30)}),
        pipe("topic", ("A", "02", 25), ("B", "02", 20)),
        stored("plus", {"A": (2, 25), "B": (2, 20), "C": (1, 30)}),
        stored("minus", {"A": (-2, 25), "B": (-2, 20), "C": (-1, 30)}),
        pipe("topic", ("A", "03", 35)),
        stored("plus", {"A": (3, 35), "B": (2, 20), "C": (1, 30)}),
        stored("minus", {"A": (-3, 35), "B": (-2, 20), "C": (-1, 30)}),
        pipe("topic", ("A", None, 1)),
        stored("plus", {"A": None, "B": (2, 20), "C": (1, 30)}),
        stored("minus", {"A": None, "B": (-2, 20), "C": (-1, 30)}),
    ),
    "not sending old value": case(
        numbers(),
        pipe("topic", ("A", "01", 5), ("B", "01", 10), ("C", "01", 15)),
        out(("A", 1, 5), ("B", 1, 10), ("C", 1, 15)),
        pipe("topic", ("A", "02", 10), ("B", "02", 8)),
        out(("A", 2, 10), ("B", 2, 8)),
        pipe("topic", ("A", "03", 20)),
        out(("A", 3, 20)),
        pipe("topic", ("A", None, 30)),
        out(("A", None, 30)),
    ),
    "should enable sending old values on parent if map values not materialized": case(
        changes_of_numbers(None), *OLD_NUMBERS
    ),
    "should not enable sending old values on parent if map values materialized": case(
        changes_of_numbers(KEPT_NUMBERS), *OLD_NUMBERS
    ),
    "several tables": case(
        several(None),
        *ALL_BUT_EVEN,
        out(("A", None, 5), ("B", 2, 100), ("C", None, 0), ("D", 4, 0), ("A", None, 10), ("A", 6, 8), name="even"),
    ),
    "several tables, the first materialized": case(
        several(Materialized.as_("fred")),
        *ALL_BUT_EVEN,
        out(("B", 2, 100), ("D", 4, 0), ("A", 6, 8), name="even"),
    ),
}


# ---- Kept behind a cache: a deletion goes on if the store has a value, whether or not old values are sent

CACHED = Materialized.as_("cached").with_value_serde(INT).with_caching_enabled()
BEHIND_A_CACHE = {
    name: case(
        program,
        pipe("topic", ("A", 1, 10), ("A", None, 11), ("A", None, 12), ("B", None, 13), ("A", 2, 14)),
        out(("A", 1, 10), ("A", None, 11), ("A", 2, 14)),
    )
    for name, program in {
        "filtered": lambda builder: table()(builder).filter(lambda key, value: True, materialized=CACHED),
        "mapped": lambda builder: table()(builder).map_values(lambda value: value, materialized=CACHED),
        "joined": lambda builder: table()(builder).left_join(
            builder.table("other"), lambda left, right: left, materialized=CACHED
        ),
    }.items()
}
BEHIND_A_CACHE["of windows"] = case(
    lambda builder: (
        builder.stream("topic")
        .group_by_key()
        .windowed_by(TimeWindows.of_size_with_no_grace(10))
        .count()
        .map_values(lambda count: count % 3 or None, materialized=CACHED)
    ),
    pipe("topic", ("A", "a", 1), ("A", "b", 2), ("A", "c", 3)),
    out("A@0/10 1 at 1, A@0/10 2 at 2, A@0/10 null at 3", value=int),
)


test_tables_behind_a_cache = of_cases(BEHIND_A_CACHE)
test_tables_of_a_topic = of_cases(SOURCE)
test_filtered_tables = of_cases(FILTER)
test_mapped_tables = of_cases(MAP_VALUES)
