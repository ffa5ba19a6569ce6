"""Families of programs that give records or tables other keys, drawn as in `random_dsl`."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.twins.dsl_draft import (
    KEYED,
    LONG_RETENTION_MS,
    Draft,
    aggregated,
    any_table,
    branches,
    finish,
    grouped,
    joiner,
    stream,
    time_windows,
    versioned_table,
)
from tests.support.twins.dsl_programs import Node


def rekeyed(draft: Draft, of: Node) -> Node:
    """A stream with other keys: after any step that changes them."""
    random = draft.random
    made = random.choice(("select_key", "select_key", "map", "flat_map", "merge", "branch"))
    if made == "map":
        return of.map("swap", **draft.named())
    if made == "flat_map":
        return of.flat_map(random.choice(("both", "none_if_x")), **draft.named())
    found = of.select_key(new_key(draft, of), **draft.named())
    if made == "merge" and draft.chance(0.5):
        return found.merge(of, **draft.named())
    return branches(draft, found)[0] if made == "branch" else found


def new_key(draft: Draft, of: Node) -> str:
    return draft.random.choice(("upper", "append_x", "null_if_x", "text") if of.value == "string" else ("text",))


def divided(draft: Draft, of: Node) -> Node:
    """A stream to be aggregated by another key, or one that goes through a topic though it has not."""
    options = draft.named(0.4)
    if draft.chance(0.35):
        return of.group_by(new_key(draft, of), **options)
    if draft.chance(0.3):
        of = rekeyed(draft, of) if draft.chance(0.7) else of
        return of.repartition(**options).group_by_key(**draft.named())
    return rekeyed(draft, of).group_by_key(**options)


def regrouped(draft: Draft) -> None:
    """Aggregates by other keys, several of one grouping, and again of what came of one."""
    of = divided(draft, stream(draft))
    table = aggregated(draft, time_windows(draft, of) if draft.chance(0.3) else of)
    for number in range(draft.random.choice((0, 0, 1, 2))):
        aggregated(draft, of).to_stream().to(f"more-{number}")
    if draft.chance(0.3):
        by_text = table.to_stream("text", **draft.named())
        aggregated(draft, by_text.group_by_key(**draft.named(0.4))).to_stream().to("by text")
    if draft.chance(0.3):
        again = aggregated(draft, divided(draft, stream(draft, "other"))).to_stream()
        aggregated(draft, divided(draft, again)).to_stream().to("again")
    finish(draft, table)


def grouped_tables(draft: Draft) -> None:
    """Tables by other keys, also windowed ones, versioned ones and what came of one, several aggregates of each."""
    random = draft.random
    if draft.chance(0.2):
        table = aggregated(draft, time_windows(draft, grouped(draft)))
    else:
        table = versioned_table(draft, "in", 30) if draft.chance(0.15) else any_table(draft, "in")
    by = table.group_table(
        random.choice(("swap", "by_size")) if table.key == "string" else "by_size", **draft.named(0.4)
    )
    for number in range(random.choice((0, 0, 1, 2))):
        aggregated_table(draft, by).to_stream().to(f"more-{number}")
    table = aggregated_table(draft, by)
    if draft.chance(0.2):
        table = aggregated_table(draft, table.group_table("by_size", **draft.named()))
    elif draft.chance(0.2):
        table = table.join_table("left_join", any_table(draft, "other"), joiner(draft), **draft.named())
    finish(draft, table)


def cached_grouped_tables(draft: Draft) -> None:
    draft.caching = True
    grouped_tables(draft)


def aggregated_table(draft: Draft, of: Node) -> Node:
    """An aggregation of a table that is grouped."""
    options = {**draft.named(), **draft.kept(**({"history_ms": 30} if draft.chance(0.1) else {}))}
    kind = draft.random.choice(("count", "reduce", "aggregate"))
    if kind == "count":
        return of.count(**options)
    if kind == "reduce":
        choices = (("sum", "difference"),) if of.value == "long" else (("concat", "less"), ("concat", "null_if_x"))
        adder, subtractor = draft.random.choice(choices)
        return of.reduce(adder, subtractor=subtractor, **options)
    initial, adder, subtractor = draft.random.choice(
        (("i", "concat", "less"), (0, "sum", "difference"), ("i", "null_if_x", "null_if_x"), ("i", "less", "null_if_x"))
    )
    return of.aggregate(initial, adder, subtractor=subtractor, **options)


def cogroups(windows: Callable[[Draft, Node], Node] | None = None) -> Callable[[Draft], None]:
    """Several streams in one aggregate, some of them by other keys."""

    def draw(draft: Draft) -> None:
        cogrouped(draft, windows)

    return draw


def cogrouped(draft: Draft, windows: Callable[[Draft, Node], Node] | None) -> None:
    random = draft.random
    several = None
    initial, aggregators, merger = random.choice(
        (("i", ("concat", "null_if_x", "less"), "concat"), (0, ("sum",), "sum"))
    )
    for number in range(random.choice((1, 2, 2, 3))):
        of = stream(draft, random.choice(("in", "other")) if number == 1 else f"in-{number}")
        # Two topics called by the store would be one.
        of = divided(draft, of) if number == 0 and draft.chance(0.5) else of.group_by_key()
        several = of.cogroup(random.choice(aggregators), several)
    assert several is not None
    several = several if windows is None else windows(draft, several)
    # What one stream's time has closed is forgotten for the others too: see fixed_dsl.DIFFERING.
    kept = {} if windows is None else {"retention_ms": LONG_RETENTION_MS}
    merge = {"merger": merger} if several.key == "session" else {}
    finish(draft, several.aggregate(initial, **merge, **draft.named(), **draft.kept(**kept)))


def foreign_key_joins(draft: Draft) -> None:
    """Tables of all kinds joined by keys in their values, with themselves too, and what came of that once more."""
    left = versioned_table(draft, "left", 30) if draft.chance(0.15) else any_table(draft, "left", knows_serdes=True)
    right = left if draft.chance(0.1) else any_table(draft, "right", knows_serdes=True)
    # Of a table with itself, an inner join deletes here what it then joins again.
    joined = by_foreign_key(draft, left, right, *(("left_join",) if right is left else ()))
    if draft.chance(0.2):
        joined = by_foreign_key(draft, joined, any_table(draft, "third", knows_serdes=True))
    elif draft.chance(0.2):
        joined = joined.join_table("left_join", any_table(draft, "third"), joiner(draft), **draft.named())
    finish(draft, joined)


def by_foreign_key(draft: Draft, left: Node, right: Node, *ops: str) -> Node:
    foreign_key, op = (
        draft.random.choice(("letter", "letter", "key")),
        draft.random.choice(ops or ("join", "left_join")),
    )
    stored = draft.stored(**({"history_ms": 30} if draft.chance(0.1) else {})) or {"materialized": {}}
    return left.join_by_foreign_key(op, right, foreign_key, joiner(draft), **draft.named(), **stored)


def cached_foreign_key_joins(draft: Draft) -> None:
    draft.caching = True
    foreign_key_joins(draft)


def regrouped_joins(draft: Draft) -> None:
    """Joins whose sides have other keys than they came with, also of a stream with itself, and none."""
    random = draft.random
    left = stream(draft, "left")
    left = rekeyed(draft, left) if draft.chance(0.7) else left.repartition(**draft.named())
    if draft.chance(0.5):
        if draft.chance(0.5):
            table = rekeyed(draft, stream(draft, "right")).to_table(**draft.named(), **draft.stored())
        else:
            table = any_table(draft, "right")
        joined = left.join_table(random.choice(("join", "left_join")), table, joiner(draft, KEYED), **draft.named())
    else:
        right = left if draft.chance(0.2) else stream(draft, "right")
        right = rekeyed(draft, right) if right is not left and draft.chance(0.7) else right
        times = {"before_ms": random.choice((0, 5)), "after_ms": random.choice((0, 5)), "grace_ms": 5}
        draft.add_corners(5, 10)
        draft.needs_disk = True
        op = random.choice(("join", "left_join", "outer_join"))
        joined = left.join_stream(op, right, joiner(draft, KEYED), **times, **draft.named())
    joined.to("out", **draft.named())
    if draft.chance(0.3):
        left.to_table(**draft.named(), **draft.stored()).to_stream().to("table")
