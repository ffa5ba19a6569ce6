"""A program of the DSL that is being drawn, and parts that families of programs have in common."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.support.twins.dsl_programs import Node, Program

KEYS = (("a", "a", "a", "a", "b", None), ("a", "b", "c"), ("a", "a", "b", "b", "c", None))
VALUES = {"string": ("x", "y", "zz", "www", "", None), "long": (0, 1, 2, 7, -3, None)}
HEADERS = (("trace", "1"), ("trace", "2"), ("source", None), ("", ""), ("ü", "€"))
LONG_RETENTION_MS = 100_000
MAX_TIME_MS = 2**63 - 1
KEYED = "key_and_pair"
"""A joiner that tables do not have there."""


@dataclass
class Draft:
    """A program that is being drawn, and what its records are to be like.

    Corners are differences of time that matter to the program: times are drawn that differ by such a one, or by a
    millisecond more or less, from the latest.
    """

    random: Random
    program: Program = field(default_factory=Program)
    topics: dict[str, str] = field(default_factory=dict)
    """The topics that it reads, with the types of their values."""
    corners_ms: set[int] = field(default_factory=lambda: {1})
    pace_ms: int = 5
    """How far time goes on at once, mostly."""
    caching: bool = False
    longest_step_ms: int | None = None
    """How far time may go on at once in each topic, at most, once its first record is there; None is any time.

    Then all records have keys and values, so that none is left out before it has taken time on.
    """
    needs_disk: bool = False
    """Whether stores in memory do otherwise there: they forget at once what expires."""
    between: float = 0.12
    """How often a time is drawn that lies between two others, and so may join two sessions."""
    _names: int = 0

    def chance(self, probability: float) -> bool:
        return self.random.random() < probability

    def topic(self, name: str, value: str = "string") -> str:
        self.topics[name] = value
        return name

    def new_name(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def named(self, probability: float = 0.25) -> dict[str, Any]:
        """The option of a name of a node, or none."""
        # Branches put a number behind it, which must not make another's name.
        return {"name": self.new_name("node-") + "-"} if self.chance(probability) else {}

    def stored(self, probability: float = 0.5, **options: Any) -> dict[str, Any]:
        """The option of a store's name, with further ones, or none at all."""
        if not (options or self.caching or self.chance(probability)):
            return {}
        return {"materialized": {"name": self.new_name("store-"), **options}}

    def kept(self, **options: Any) -> dict[str, Any]:
        """The option of how an aggregate is kept: sometimes without a name, which takes a number."""
        return self.stored(**options) or ({"materialized": {}} if self.chance(0.8) else {})

    def add_corners(self, *corners_ms: int) -> None:
        self.corners_ms.update(corner for each in corners_ms for corner in (each - 1, each, each + 1) if corner >= 0)

    def grace_ms(self) -> int:
        return self.random.choice((0, 0, 1, 3, 10, 50))


# ---- Parts of programs


def stream(draft: Draft, topic: str = "in", *, long: float = 0.25) -> Node:
    value = "long" if draft.chance(long) else "string"
    return draft.program.stream(draft.topic(topic, value), value, **draft.named())


def grouped(draft: Draft) -> Node:
    source = stream(draft)
    if draft.chance(0.2):
        source = source.filter(draft.random.choice(("is_even", "is_long")), **draft.named())
    if draft.chance(0.2) and source.value == "string":
        source = source.map_values(draft.random.choice(("upper", "null_if_x")), **draft.named())
    return source.group_by_key()


def aggregated(draft: Draft, of: Node, **stored: Any) -> Node:
    """An aggregation of any kind; options go to its store."""
    options = {**draft.named(), **draft.kept(**stored)}
    kind = draft.random.choice(("count", "reduce", "aggregate", "aggregate"))
    if kind == "count":
        return of.count(**options)
    if kind == "reduce":
        reducers = ("sum", "min") if of.value == "long" else ("concat", "min", "null_if_x")
        return of.reduce(draft.random.choice(reducers), **options)
    initial, aggregator, merger = draft.random.choice(
        (("i", "concat", "concat"), (0, "sum", "sum"), ("~", "key_and_min", "min"), ("i", "null_if_x", "concat"))
    )
    merge = {"merger": merger} if of.key == "session" else {}
    return of.aggregate(initial, aggregator, **merge, **options)


def finish(draft: Draft, table: Node) -> None:
    """Write what becomes of a table to topics."""
    random = draft.random
    if draft.chance(0.3):
        filtered = table.filter(random.choice(("is_even", "is_long")), **draft.named())
        filtered.to_stream(**draft.named()).to("filtered")
    if draft.chance(0.3):
        table.map_values(random.choice(("text", "size")), **draft.named()).to_stream().to("mapped")
    result = table.to_stream(**draft.named())
    if draft.chance(0.2):
        result = result.map_values("text", **draft.named())
    result.to("out", **draft.named())
    if draft.chance(0.3):
        table.changes("changes")  # which comes last there


def time_windows(draft: Draft, of: Node) -> Node:
    size_ms = draft.random.choice((1, 4, 5, 10, 17))
    advance_ms = draft.random.choice((None, None, max(1, size_ms // 2), draft.random.randint(1, size_ms)))
    return windows_of_time(draft, of, size_ms, draft.grace_ms(), advance_ms)


def windows_of_time(draft: Draft, of: Node, size_ms: int, grace_ms: int, advance_ms: int | None) -> Node:
    draft.add_corners(size_ms, grace_ms, size_ms + grace_ms, advance_ms or 0)
    draft.pace_ms = size_ms
    return of.windowed_by_time(size_ms, grace_ms=grace_ms, advance_ms=advance_ms)


def sliding_windows(draft: Draft, of: Node) -> Node:
    return windows_of_difference(draft, of, draft.random.choice((1, 4, 5, 10)), draft.grace_ms())


def windows_of_difference(draft: Draft, of: Node, difference_ms: int, grace_ms: int) -> Node:
    draft.add_corners(difference_ms, grace_ms, difference_ms + grace_ms, 2 * difference_ms + 1)
    draft.pace_ms = difference_ms
    return of.windowed_by_difference(difference_ms, grace_ms=grace_ms)


def session_windows(draft: Draft, of: Node) -> Node:
    gap_ms = draft.random.choice((1, 3, 5, 10))
    grace_ms = draft.random.choice((0, 1, gap_ms, 2 * gap_ms, 50))  # with little, the first of three is forgotten
    draft.add_corners(gap_ms, 2 * gap_ms, grace_ms, gap_ms + grace_ms)
    draft.pace_ms = 2 * gap_ms
    draft.between = 0.3
    return of.windowed_by_session(gap_ms, grace_ms=grace_ms)


def any_windows(draft: Draft, of: Node) -> Node:
    return draft.random.choice((time_windows, sliding_windows, session_windows))(draft, of)


def any_table(draft: Draft, topic: str, *, knows_serdes: bool = False) -> Node:
    """A table with plain keys: of a topic, an aggregation, or one that hangs on such a table.

    There, new values have a serde only if they are kept.
    """
    table = source_table(draft, topic)
    if draft.chance(0.2):
        stored = draft.stored(0.3)
        table = table.filter(draft.random.choice(("is_even", "is_long", "key_is_a")), **draft.named(), **stored)
    if draft.chance(0.2):
        stored = draft.stored(1 if knows_serdes else 0.3)
        table = table.map_values(draft.random.choice(("text", "size")), **draft.named(), **stored)
    return table


def source_table(draft: Draft, topic: str) -> Node:
    if draft.chance(0.25):
        return aggregated(draft, stream(draft, topic).group_by_key())
    if draft.chance(0.2):
        return stream(draft, topic).to_table(**draft.named(), **draft.stored())
    value = "long" if draft.chance(0.25) else "string"
    return draft.program.table(draft.topic(topic, value), value, **draft.named(), **draft.stored())


def versioned_table(draft: Draft, topic: str, history_ms: int) -> Node:
    draft.add_corners(history_ms)
    options = draft.stored(history_ms=history_ms)
    return draft.program.table(draft.topic(topic), **draft.named(), **options)


def branches(draft: Draft, of: Node) -> list[Node]:
    split = of.split(**draft.named())
    tests = draft.random.sample(("is_even", "is_long", "key_is_a", "is_null"), draft.random.randint(1, 3))
    made = [split.branch(test, **draft.named()) for test in tests]
    return [*made, split.default_branch(**draft.named())] if draft.chance(0.6) else made


def joiner(draft: Draft, *others: str) -> str:
    return draft.random.choice(("pair", "pair", "pair", "null_if_x", "right", *others))
