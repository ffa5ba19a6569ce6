"""Draws programs of the DSL, and records for them that come to the corners of their windows.

A family draws programs of one kind of operator: `FAMILIES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

from tests.support.java.driver import Step, advance, pipe
from tests.support.java.dsl import DslScenario
from tests.support.twins.dsl_draft import (
    HEADERS,
    KEYED,
    KEYS,
    LONG_RETENTION_MS,
    MAX_TIME_MS,
    VALUES,
    Draft,
    aggregated,
    any_table,
    any_windows,
    branches,
    finish,
    grouped,
    joiner,
    session_windows,
    sliding_windows,
    source_table,
    stream,
    time_windows,
    versioned_table,
    windows_of_difference,
    windows_of_time,
)
from tests.support.twins.dsl_programs import Node
from tests.support.twins.random_regrouped import (
    cached_foreign_key_joins,
    cached_grouped_tables,
    cogroups,
    foreign_key_joins,
    grouped_tables,
    regrouped,
    regrouped_joins,
)

# ---- Families of programs


def stateless(draft: Draft) -> None:
    """Steps without state, and processors with stores that the builder has, which several may share."""
    random, streams = draft.random, [stream(draft)]
    stores: list[str] = []
    if draft.chance(0.3):
        streams.append(stream(draft, "other").filter("is_even"))
    for _ in range(random.randint(1, 6)):
        of = random.choice(streams)
        alike = [other for other in streams if other.value == of.value and other.id != of.id]
        steps = (
            "filter",
            "filter_not",
            "map_values",
            "flat_map_values",
            "merge",
            "flat_map",
            "map",
            "split",
            "foreach",
            "process",
            "process_values",
            "again",
        )
        made = random.choice(steps)
        if made in ("filter", "filter_not"):
            test = random.choice(("is_even", "is_long", "key_is_a", "is_null"))
            streams.append(getattr(of, made)(test, **draft.named()))
        elif made == "map_values":
            mappers = ("text", "size", "key_and_text")
            mappers += ("upper", "append_x", "null_if_x") if of.value == "string" else ()
            streams.append(of.map_values(random.choice(mappers), **draft.named()))
        elif made == "flat_map_values":
            mappers = ("letters", "twice") if of.value == "string" else ("twice",)
            streams.append(of.flat_map_values(random.choice(mappers), **draft.named()))
        elif made == "flat_map":
            streams.append(of.flat_map(random.choice(("swap", "both", "none_if_x")), **draft.named()))
        elif made == "map":
            streams.append(of.map("swap", **draft.named()))
        elif made == "split":
            streams += branches(draft, of)
        elif made == "foreach":
            of.foreach(**draft.named())
        elif made == "again":
            source = draft.program.stream("in", streams[0].value, **draft.named())
            streams.append(source.filter("is_long", **draft.named()))
        elif made.startswith("process"):
            if not stores or draft.chance(0.7):
                stores.append(draft.program.state_store(draft.new_name("numbers-")))
            streams.append(getattr(of, made)(random.choice(stores), **draft.named()))
        elif alike:
            streams.append(of.merge(random.choice(alike), **draft.named()))
    for number, each in enumerate(streams):
        each.to(f"out-{number}", **draft.named())


def aggregates(draft: Draft) -> None:
    finish(draft, aggregated(draft, grouped(draft)))


def cached_aggregates(draft: Draft) -> None:
    draft.caching = True
    of = grouped(draft)
    finish(draft, aggregated(draft, time_windows(draft, of) if draft.chance(0.5) else of))


def cached_sessions(draft: Draft) -> None:
    """Caches hold sessions that stores have forgotten, so that the retention is long."""
    draft.caching = True
    finish(draft, aggregated(draft, session_windows(draft, grouped(draft)), retention_ms=LONG_RETENTION_MS))


def aggregated_windows(draft: Draft, windows: Callable[[Draft, Node], Node]) -> Node:
    of, stored = windows(draft, grouped(draft)), {}
    if of.key == "session":
        # Those that end in the last millisecond of the retention are lost in memory.
        draft.needs_disk = draft.chance(0.2)
        stored = {} if draft.needs_disk else {"retention_ms": LONG_RETENTION_MS}
    return aggregated(draft, of, **stored)


def windowed(windows: Callable[[Draft, Node], Node]) -> Callable[[Draft], None]:
    def draw(draft: Draft) -> None:
        finish(draft, aggregated_windows(draft, windows))

    return draw


def closed(windows: Callable[[Draft, Node], Node]) -> Callable[[Draft], None]:
    """Emission on close: what a jump of time closes is lost there if it is past the retention.

    So that is long, or the default one, and time makes no such jump. Sessions that a default retention is about to
    forget are not found again there: see fixed_dsl.DIFFERING.
    """

    def draw(draft: Draft) -> None:
        if windows is not session_windows and draft.chance(0.5):
            by_steps = windows_by_steps(draft, is_sliding=windows is sliding_windows)
            finish(draft, aggregated(draft, by_steps(stream(draft).group_by_key()).emit_strategy("window_close")))
            return
        of = windows(draft, grouped(draft)).emit_strategy("window_close")
        draft.needs_disk = of.key == "session"  # in memory, sessions that end together are in another order
        finish(draft, aggregated(draft, of, retention_ms=LONG_RETENTION_MS))

    return draw


def windows_by_steps(draft: Draft, *, is_sliding: bool) -> Callable[[Node], Node]:
    """Windows whose default retention loses none there on close, as time goes on in steps that are short for them."""
    random = draft.random
    draft.needs_disk = True  # in memory, closed windows are forgotten a millisecond earlier
    if is_sliding:
        length_ms, grace_ms = random.choice((1, 4, 5, 10)), draft.grace_ms()
        draft.longest_step_ms = 2 * length_ms
        return lambda of: windows_of_difference(draft, of, length_ms, grace_ms)
    advance_ms, times = random.choice((1, 4, 5, 10)), random.choice((1, 1, 2, 3))
    draft.longest_step_ms, grace_ms = advance_ms, advance_ms * random.choice((0, 0, 1, 2))
    return lambda of: windows_of_time(draft, of, times * advance_ms, grace_ms, advance_ms)


def sessions_on_disk(draft: Draft) -> Callable[[Node], Node]:
    """Sessions of one gap and grace, wherever they are asked for."""
    gap_ms, grace_ms = draft.random.choice((1, 3, 5, 10)), draft.grace_ms()
    draft.needs_disk = True
    draft.add_corners(gap_ms, 2 * gap_ms, grace_ms, gap_ms + grace_ms)
    return lambda of: of.windowed_by_session(gap_ms, grace_ms=grace_ms)


def windowed_table_joins(draft: Draft) -> None:
    """Tables of the same windows, each put out at each change or on close, kept for as short as can be, or for long."""
    random = draft.random
    strategies = [random.choice(("window_close", "window_update")) for _ in range(2)]
    is_closed, is_kept_long = "window_close" in strategies, draft.chance(0.3)
    if draft.chance(0.25):
        windows, is_kept_long = sessions_on_disk(draft), is_kept_long or is_closed
    else:
        windows = windows_by_steps(draft, is_sliding=draft.chance(0.4))
        if is_kept_long or not is_closed:
            draft.longest_step_ms = None
    stored = {"retention_ms": LONG_RETENTION_MS} if is_kept_long else {}

    def table(topic: str, strategy: str) -> Node:
        made = aggregated(draft, windows(stream(draft, topic).group_by_key()).emit_strategy(strategy), **stored)
        holds_back = strategy == "window_update" and draft.chance(0.3)
        return made.suppress_until_window_closes(**draft.named()) if holds_back else made

    left, right = map(table, ("left", "right"), strategies)
    op = random.choice(("join", "left_join", "outer_join"))
    finish(draft, left.join_table(op, right, joiner(draft), **draft.named()))


def suppressed_windows(draft: Draft) -> None:
    table = aggregated_windows(draft, any_windows)
    if draft.chance(0.2):
        table = table.filter(draft.random.choice(("is_even", "is_long")), **draft.named())
    finish(draft, table.suppress_until_window_closes(**draft.named()))


def suppressed_tables(draft: Draft) -> None:
    random = draft.random
    table = source_table(draft, "in") if draft.chance(0.7) else aggregated(draft, time_windows(draft, grouped(draft)))
    if draft.chance(0.2):
        table = table.filter(random.choice(("is_even", "is_long")), **draft.named())
    limit_ms = random.choice((0, 1, 5, 20))
    draft.add_corners(limit_ms)
    bounds = random.choice(({}, {"max_records": random.randint(1, 3)}, {"max_bytes": random.choice((1, 60, 150))}))
    if bounds and draft.chance(0.5):
        bounds["full"] = "emit_early"
    finish(draft, table.suppress_until_time_limit(limit_ms, **bounds, **draft.named()))


def tables(draft: Draft) -> None:
    table = any_table(draft, "in")
    finish(draft, table)


def versioned_tables(draft: Draft) -> None:
    table = versioned_table(draft, "in", draft.random.choice((10, 30)))
    if draft.chance(0.5):
        table = table.filter(draft.random.choice(("is_even", "is_long")), **draft.named(), **draft.stored(0.3))
    finish(draft, table)


def stream_joins(op: str) -> Callable[[Draft], None]:
    def draw(draft: Draft) -> None:
        random = draft.random
        left = stream(draft, "left")
        right = left if draft.chance(0.1) else stream(draft, "right")
        before_ms, after_ms, grace_ms = random.choice((0, 1, 5, 10)), random.choice((0, 1, 5, 10)), draft.grace_ms()
        if draft.chance(0.1):
            before_ms, after_ms = -2, 7
        # What is kept for no time is never found there, and refused here.
        grace_ms = max(grace_ms, 1 - before_ms - after_ms)
        draft.add_corners(before_ms, after_ms, grace_ms, after_ms + grace_ms, before_ms + grace_ms)
        draft.add_corners(before_ms + after_ms + grace_ms)
        draft.pace_ms = max(before_ms, after_ms) + 1
        draft.needs_disk = True
        options = draft.named()
        if draft.chance(0.25):
            options["store_name"] = draft.new_name("joined-")
        joined = left.join_stream(
            op, right, joiner(draft, KEYED), before_ms=before_ms, after_ms=after_ms, grace_ms=grace_ms, **options
        )
        joined.to("out", **draft.named())

    return draw


def stream_table_joins(draft: Draft) -> None:
    left, right = stream(draft, "left"), any_table(draft, "right")
    op = draft.random.choice(("join", "left_join"))
    left.join_table(op, right, joiner(draft, KEYED), **draft.named()).to("out")


def versioned_joins(draft: Draft) -> None:
    """As of the time of the stream's record, which may wait for the table."""
    left, history_ms = stream(draft, "left"), draft.random.choice((10, 30))
    if draft.chance(0.3):
        draft.add_corners(history_ms)
        right = aggregated(draft, stream(draft, "right").group_by_key(), history_ms=history_ms)
    else:
        right = versioned_table(draft, "right", history_ms)
    grace = {}
    if draft.chance(0.6):
        grace["grace_ms"] = draft.random.choice((0, 1, 5, history_ms))
        draft.add_corners(grace["grace_ms"])
    op = draft.random.choice(("join", "left_join"))
    if grace:
        # A record without a key makes the left join fail there.
        left = left.filter("has_key")
    left.join_table(op, right, joiner(draft, KEYED), **grace, **draft.named()).to("out")


def global_joins(draft: Draft) -> None:
    value = "long" if draft.chance(0.2) else "string"
    right = draft.program.global_table(draft.topic("right", value), value, **draft.named(), **draft.stored())
    left = stream(draft, "left", long=0)
    op, key_mapper = draft.random.choice(("join", "left_join")), draft.random.choice(("key", "value", "null_if_x"))
    left.join_global_table(op, right, key_mapper, joiner(draft, KEYED), **draft.named()).to("out")


def table_joins(op: str) -> Callable[[Draft], None]:
    def draw(draft: Draft) -> None:
        joined = any_table(draft, "left").join_table(
            op, any_table(draft, "right"), joiner(draft), **draft.named(), **draft.stored()
        )
        if draft.chance(0.2):
            other = draft.random.choice(("join", "left_join", "outer_join"))
            joined = joined.join_table(other, any_table(draft, "third"), "pair", **draft.named(), **draft.stored())
        finish(draft, joined)

    return draw


def chains(draft: Draft) -> None:
    """Operators on operators, of one topic: each record comes to several of them, in an order."""
    random = draft.random
    streams = [stream(draft)]
    tables = [aggregated(draft, streams[0].group_by_key())]
    for _ in range(random.randint(2, 5)):
        of, table = random.choice(streams), random.choice(tables)
        made = random.choice(("join", "left_join", "tables", "aggregate", "filter", "merge", "to_stream", "streams"))
        if made in ("join", "left_join"):
            streams.append(of.join_table(made, table, joiner(draft, KEYED), **draft.named()))
        elif made == "tables":
            op = random.choice(("join", "left_join", "outer_join"))
            tables.append(table.join_table(op, random.choice(tables), joiner(draft), **draft.named(), **draft.stored()))
        elif made == "aggregate":
            tables.append(aggregated(draft, of.group_by_key()))
        elif made == "filter":
            tables.append(table.filter(random.choice(("is_even", "is_long")), **draft.named(), **draft.stored(0.3)))
        elif made == "to_stream":
            streams.append(table.to_stream(**draft.named()))
        elif made == "merge":
            streams.append(of.merge(random.choice([each for each in streams if each.value == of.value])))
        else:
            times = {"before_ms": random.choice((0, 5)), "after_ms": random.choice((0, 5)), "grace_ms": 5}
            streams.append(of.join_stream("join", random.choice(streams), "pair", **times, **draft.named()))
            draft.needs_disk = True
    for number, each in enumerate(streams[1:]):
        each.to(f"stream-{number}")
    for number, each in enumerate(tables):
        each.to_stream().to(f"table-{number}")


FAMILIES: dict[str, Callable[[Draft], None]] = {
    "stateless": stateless,
    "aggregates": aggregates,
    "cached aggregates": cached_aggregates,
    "time windows": windowed(time_windows),
    "sliding windows": windowed(sliding_windows),
    "session windows": windowed(session_windows),
    "cached session windows": cached_sessions,
    "time windows on close": closed(time_windows),
    "sliding windows on close": closed(sliding_windows),
    "session windows on close": closed(session_windows),
    "suppressed windows": suppressed_windows,
    "suppressed tables": suppressed_tables,
    "tables": tables,
    "versioned tables": versioned_tables,
    "stream joins": stream_joins("join"),
    "left stream joins": stream_joins("left_join"),
    "outer stream joins": stream_joins("outer_join"),
    "stream-table joins": stream_table_joins,
    "stream-table joins as of a time": versioned_joins,
    "joins with a global table": global_joins,
    "table joins": table_joins("join"),
    "left table joins": table_joins("left_join"),
    "outer table joins": table_joins("outer_join"),
    "windowed table joins": windowed_table_joins,
    "chains": chains,
    "regrouped": regrouped,
    "regrouped joins": regrouped_joins,
    "grouped tables": grouped_tables,
    "cached grouped tables": cached_grouped_tables,
    "foreign-key joins": foreign_key_joins,
    "cached foreign-key joins": cached_foreign_key_joins,
    "cogroups": cogroups(),
    "windowed cogroups": cogroups(any_windows),
}


# ---- Records


def draw_dsl_scenario(family: str, seed: int) -> DslScenario:
    """The same one for the same seed."""
    draft = Draft(Random(f"{family} {seed}"))
    FAMILIES[family](draft)
    config = {"dsl.store.format": "HEADERS"} if seed % 4 == 1 else {}
    persistent = seed % 6 == 0
    return DslScenario(
        draft.program,
        tuple(_steps(draft)),
        persistent=persistent or draft.needs_disk,
        persistent_here=persistent,
        caching=draft.caching,
        config=config,
    )


def _steps(draft: Draft) -> Iterable[Step]:
    random, now_ms = draft.random, draft.random.choice((0, 0, 3, 100, 60_000))
    keys, longest_ms = random.choice(KEYS), draft.longest_step_ms
    keys = keys if longest_ms is None else keys[:-1]
    corners_ms, topics = sorted(draft.corners_ms), sorted(draft.topics)
    recent_ms, latest_ms = [now_ms], dict.fromkeys(topics, MAX_TIME_MS)

    def in_step(topic: str, time_ms: int) -> int:
        if longest_ms is None:
            return time_ms
        time_ms = min(time_ms, latest_ms[topic] + longest_ms)
        latest_ms[topic] = time_ms if latest_ms[topic] == MAX_TIME_MS else max(latest_ms[topic], time_ms)
        return time_ms

    for _ in range(random.randint(8, 30)):
        topic = random.choice(topics)
        if random.random() < draft.between:
            time_ms = sum(random.choices(recent_ms[-4:], k=2)) // 2
        else:
            time_ms = _drawn_time_ms(draft, now_ms, corners_ms)
        time_ms = in_step(topic, time_ms)
        recent_ms.append(time_ms)
        value = random.choice(_values(draft, topic))
        headers = random.choices(HEADERS, k=random.choice((0, 0, 1, 2)))
        yield pipe(topic, random.choice(keys), _encoded(value), time_ms, headers)
        now_ms = max(now_ms, time_ms)
        if random.random() < 0.05:
            yield advance(random.choice((1, 5, 1000)))
    if random.random() < 0.7:
        for topic in topics:
            last = random.choice(VALUES[draft.topics[topic]][:4])
            last_ms = in_step(topic, now_ms + random.choice((0, corners_ms[-1], 1000)))
            yield pipe(topic, "last", _encoded(last), last_ms, ())


def _values(draft: Draft, topic: str) -> tuple[str | int | None, ...]:
    values = VALUES[draft.topics[topic]]
    return values if draft.longest_step_ms is None else values[:-1]


def _drawn_time_ms(draft: Draft, now_ms: int, corners_ms: list[int]) -> int:
    random, chance = draft.random, draft.random.random()
    if chance < 0.2:
        return now_ms
    if chance < 0.5:
        return now_ms + random.randint(0, draft.pace_ms)
    if chance < 0.6:
        return now_ms + random.choice(corners_ms)
    if chance < 0.78:
        return max(0, now_ms - random.randint(0, 2 * draft.pace_ms))
    if chance < 0.93:
        return max(0, now_ms - random.choice(corners_ms))
    if chance < 0.98:
        return max(0, now_ms - random.randint(0, corners_ms[-1] + 2))
    return 0


def _encoded(value: str | int | None) -> str | bytes | None:
    return value.to_bytes(8, "big", signed=True) if isinstance(value, int) else value
