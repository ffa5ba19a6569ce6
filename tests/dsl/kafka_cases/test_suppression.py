"""Changes that are held back, and the buffers that hold them.

Kafka's SuppressScenarioTest, KTableSuppressProcessorTest, TimeOrderedKeyValueBufferTest, SuppressionIntegrationTest and
SuppressionDurabilityIntegrationTest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from statestore.dsl import (
    BufferConfig,
    KStream,
    KTable,
    Materialized,
    SessionWindows,
    SlidingWindows,
    Suppressed,
    TimeWindows,
)
from statestore.errors import SuppressionBufferFullError, TopologyError
from tests.support.dsl.kafka_cases import (
    LONG,
    TEXT,
    Case,
    CaseBuilder,
    CaseRun,
    Step,
    case,
    of_cases,
    out,
    pipe,
    restarted,
    restored,
    rows,
)

LONGEST_MS = 2**63 - 1
UNBOUNDED = BufferConfig.unbounded()
UNTIL_CLOSE = Suppressed.until_window_closes(UNBOUNDED)


def until(wait_ms: int, buffer: BufferConfig = UNBOUNDED) -> Suppressed:
    return Suppressed.until_time_limit(wait_ms, buffer)


def both(builder: CaseBuilder, table: KTable[KStream], suppressed: Suppressed) -> None:
    builder.catch(table.suppress(suppressed), "suppressed")
    builder.catch(table, "raw")


def keys_of_values(suppressed: Suppressed) -> Callable[[CaseBuilder], None]:
    """How many keys have each value."""

    def program(builder: CaseBuilder) -> None:
        table = builder.table("input")
        grouped = table.group_by(lambda key, value: (value, key), key_serde=TEXT, value_serde=TEXT)
        both(builder, grouped.count(), suppressed)

    return program


def counted(windows: Any) -> Callable[[CaseBuilder], None]:
    def program(builder: CaseBuilder) -> None:
        grouped = builder.stream("input").group_by(lambda key, value: key, key_serde=TEXT, value_serde=TEXT)
        both(builder, grouped.windowed_by(windows).count(materialized=Materialized.as_("counts")), UNTIL_CLOSE)

    return program


def numbers(raw: str, suppressed: str) -> Step:
    steps = out(raw, name="raw", value=int), out(suppressed, name="suppressed", value=int)

    def step(run: CaseRun) -> None:
        for each_step in steps:
            each_step(run)

    return step


THREE = pipe("input", "k1 v1 at 0, k1 v2 at 1, k2 v1 at 2")
OF_THREE = "v1 1 at 0, v1 0 at 1, v2 1 at 1, v1 1 at 2"

SCENARIOS = {
    "should immediately emit events with zero emit after": case(
        keys_of_values(until(0)),
        THREE,
        numbers(OF_THREE, OF_THREE),
        pipe("input", "x x at 3"),
        numbers("x 1 at 3", "x 1 at 3"),
        pipe("input", "x y at 4"),
        numbers("x 0 at 4, y 1 at 4", "x 0 at 4, y 1 at 4"),
    ),
    "should suppress intermediate events with time limit": case(
        keys_of_values(until(2)),
        THREE,
        numbers(OF_THREE, "v1 1 at 2"),
        pipe("input", "tick tick at 3"),
        numbers("tick 1 at 3", "v2 1 at 1"),
        pipe("input", "tick tock at 4"),
        numbers("tick 0 at 4, tock 1 at 4", ""),
    ),
    "should suppress intermediate events with record limit": case(
        keys_of_values(until(LONGEST_MS, BufferConfig.max_records(1))),
        THREE,
        numbers(OF_THREE, "v1 0 at 1, v2 1 at 1"),
        pipe("input", "x x at 3"),
        numbers("x 1 at 3", "v1 1 at 2"),
    ),
    # Of Kafka's 200 bytes, the names of two repartition topics there begin with the id of the driver's application.
    "should suppress intermediate events with bytes limit": case(
        keys_of_values(until(LONGEST_MS, BufferConfig.max_bytes(200 - 2 * len("dummy-topology-test-driver-app-id-")))),
        THREE,
        numbers(OF_THREE, "v1 0 at 1, v2 1 at 1"),
        pipe("input", "x x at 3"),
        numbers("x 1 at 3", "v1 1 at 2"),
    ),
    "should support final results for time windows": case(
        counted(TimeWindows.of_size_and_grace(2, 1)),
        pipe("input", "k1 v at 0, k1 v at 1, k1 v at 2, k1 v at 1, k1 v at 0, k1 v at 5, k1 v at 0"),
        numbers(
            "k1@0/2 1 at 0, k1@0/2 2 at 1, k1@2/4 1 at 2, k1@0/2 3 at 1, k1@0/2 4 at 1, k1@4/6 1 at 5",
            "k1@0/2 4 at 1, k1@2/4 1 at 2",
        ),
    ),
    "should support final results for time windows with large jump": case(
        counted(TimeWindows.of_size_and_grace(2, 2)),
        pipe(
            "input",
            "k1 v at 0, k1 v at 1, k1 v at 2, k1 v at 0, k1 v at 3, k1 v at 0, k1 v at 4, k1 v at 0, k1 v at 30",
        ),
        numbers(
            "k1@0/2 1 at 0, k1@0/2 2 at 1, k1@2/4 1 at 2, k1@0/2 3 at 1, k1@2/4 2 at 3, k1@0/2 4 at 1, "
            "k1@4/6 1 at 4, k1@30/32 1 at 30",
            "k1@0/2 4 at 1, k1@2/4 2 at 3, k1@4/6 1 at 4",
        ),
    ),
    "should support final results for session windows": case(
        counted(SessionWindows.of_inactivity_gap_with_no_grace(5)),
        pipe("input", "k1 v at 0, k1 v at 5, k1 v at 1, k2 v at 11, k1 v at 5, k1 v at 30"),
        numbers(
            "k1@0/0 1 at 0, k1@0/0 null at 0, k1@0/5 2 at 5, k1@0/5 null at 5, k1@0/5 3 at 5, k2@11/11 1 at 11, "
            "k1@30/30 1 at 30",
            "k1@0/5 3 at 5, k2@11/11 1 at 11",
        ),
    ),
}


def shown_and_time(row: Any) -> tuple[str, int]:
    """As Kafka's test sorts: by the windowed key as text, then by time."""
    key = row[0]
    return f"[{key.key}@{key.start_ms}/{key.end_ms}]", row[2]


def sliding(run: Any) -> None:
    found = [(record.key, record.value, record.timestamp_ms) for record in run.take("raw")]
    assert sorted(found, key=shown_and_time) == rows(
        "k1@11/16 1 at 11, k1@11/16 2 at 13, k1@12/17 1 at 13, k1@19/24 1 at 24, k1@5/10 1 at 10, k1@5/10 2 at 10, "
        "k1@5/10 3 at 10, k1@5/10 4 at 10, k1@5/10 5 at 10, k1@6/11 2 at 11, k1@6/11 3 at 11, k1@6/11 4 at 11, "
        "k1@6/11 5 at 11, k1@8/13 4 at 13, k1@8/13 5 at 13, k1@85/90 1 at 90",
        int,
    )


SCENARIOS["should support final results for sliding windows"] = case(
    counted(SlidingWindows.of_time_difference_and_grace(5, 15)),
    pipe(
        "input",
        "k1 v at 10, k1 v at 11, k1 v at 10, k1 v at 13, k1 v at 10, k1 v at 24, k1 v at 5, k1 v at 7, k1 v at 90",
    ),
    sliding,
    out(
        "k1@5/10 5 at 10, k1@6/11 5 at 11, k1@8/13 5 at 13, k1@11/16 2 at 13, k1@12/17 1 at 13, k1@19/24 1 at 24",
        name="suppressed",
        value=int,
    ),
)


# ---- Before other steps


def grouped_after(builder: CaseBuilder) -> KTable[KStream]:
    table: KTable[KStream] = builder.table("topic").suppress(until(10))
    return table.group_by(lambda key, value: (key, value), key_serde=TEXT, value_serde=TEXT).count()


def outer_join_of(held_back: str) -> Callable[[CaseBuilder], KTable[KStream]]:
    def program(builder: CaseBuilder) -> KTable[KStream]:
        left, right = (
            builder.table(topic).suppress(until(10)) if topic == held_back else builder.table(topic)
            for topic in ("left", "right")
        )
        joined: KTable[KStream] = left.outer_join(right, lambda one, other: f"({one or 'null'},{other or 'null'})")
        return joined

    return program


BEFORE = {
    "should work before group by": case(
        grouped_after, pipe("topic", "A a at 0, tick tick at 10"), out("A 1 at 0", value=int)
    ),
    "should work before join right": case(
        outer_join_of("right"),
        pipe("right", "B 1 at 0, A 1 at 0"),
        out(),
        pipe("right", "tick tick at 10"),
        out("A (null,1) at 0, B (null,1) at 0"),
        pipe("right", "A 2 at 11"),
        out(),
        pipe("left", "A a at 12"),
        out("A (a,1) at 12"),
        pipe("left", "B b at 12"),
        out("B (b,1) at 12"),
        pipe("left", "A b at 13"),
        out("A (b,1) at 13"),
        pipe("right", "tick tick1 at 21"),
        out("tick (null,tick1) at 21, A (b,2) at 13"),
    ),
    "should work before join left": case(
        outer_join_of("left"),
        pipe("left", "B 1 at 0, A 1 at 0"),
        out(),
        pipe("left", "tick tick at 10"),
        out("A (1,null) at 0, B (1,null) at 0"),
        pipe("left", "A 2 at 11"),
        out(),
        pipe("right", "A a at 12"),
        out("A (1,a) at 12"),
        pipe("right", "B b at 12"),
        out("B (1,b) at 12"),
        pipe("right", "A b at 13"),
        out("A (1,b) at 13"),
        pipe("left", "tick tick1 at 21"),
        out("tick (tick1,null) at 21, A (2,b) at 13"),
    ),
}


# ---- KTableSuppressProcessorTest, whose processor gets changes of tables


def held_back(suppressed: Suppressed) -> Callable[[CaseBuilder], KTable[KStream]]:
    return lambda builder: builder.table("topic", value_serde=LONG).suppress(suppressed)


def windows_held_back(size_ms: int, grace_ms: int, suppressed: Suppressed = UNTIL_CLOSE) -> Any:
    windows = TimeWindows.of_size_and_grace(size_ms, grace_ms)

    def program(builder: CaseBuilder) -> KTable[KStream]:
        return builder.stream("topic").group_by_key().windowed_by(windows).count().suppress(suppressed)

    return program


HUNDRED_DAYS = 100 * 24 * 3_600_000

PROCESSOR = {
    "zero time limit should immediately emit": case(
        held_back(until(0)), pipe("topic", ("hey", 7, 5)), out(("hey", 7, 5))
    ),
    "windowed zero time limit should immediately emit": case(
        windows_held_back(100, 0, until(0)), pipe("topic", "hey x at 5"), out("hey@0/100 1 at 5", value=int)
    ),
    "intermediate suppression should buffer and emit later": case(
        held_back(until(1)), pipe("topic", ("hey", 1, 0)), out(), pipe("topic", ("tick", None, 1)), out(("hey", 1, 0))
    ),
    "final results suppression should buffer and emit at grace expiration": case(
        windows_held_back(1, 1),
        pipe("topic", "hey x at 99"),
        out(),
        pipe("topic", "dummyKey1 x at 100"),
        out(),
        pipe("topic", "dummyKey2 x at 101"),
        out("hey@99/100 1 at 99", value=int),
    ),
    "final results with zero grace should still buffer until the window end": case(
        windows_held_back(100, 0),
        pipe("topic", "hey x at 5"),
        out(),
        pipe("topic", "dummyKey x at 100"),
        out("hey@0/100 1 at 5", value=int),
    ),
    "suppress should not drop tombstones": case(
        held_back(until(0, BufferConfig.max_records(0))),
        pipe("topic", ("hey", 5, 99), ("hey", None, 100)),
        out(("hey", 5, 99), ("hey", None, 100)),
    ),
    "suppress should emit when over record capacity": case(
        held_back(until(HUNDRED_DAYS, BufferConfig.max_records(1))),
        pipe("topic", ("hey", None, 100)),
        out(),
        pipe("topic", ("dummyKey", None, 101)),
        out(("hey", None, 100)),
    ),
    "suppress should emit when over byte capacity": case(
        held_back(until(HUNDRED_DAYS, BufferConfig.max_bytes(60))),
        pipe("topic", ("hey", None, 100)),
        out(),
        pipe("topic", ("dummyKey", None, 101)),
        out(("hey", None, 100)),
    ),
}


# ---- TimeOrderedKeyValueBufferTest, of a table


def texts_held_back(buffer: BufferConfig) -> Callable[[CaseBuilder], KTable[KStream]]:
    return lambda builder: builder.table("topic").suppress(until(HUNDRED_DAYS, buffer))


BUFFERS = {
    "should respect eviction predicate": case(
        texts_held_back(BufferConfig.max_records(1)),
        pipe("topic", "asdf eyt at 0, zxcv rtg at 1"),
        out("asdf eyt at 0"),
    ),
    "should evict oldest": case(
        texts_held_back(BufferConfig.max_records(1)),
        pipe("topic", "zxcv o23i4 at 1, asdf 3ng at 0"),
        out("asdf 3ng at 0"),
    ),
    "should track count": case(
        texts_held_back(BufferConfig.max_records(1)), pipe("topic", "asdf oin at 0, asdf wekjn at 1"), out()
    ),
}

# What Kafka's buffer counts of the topic "topic".
SIZES: list[tuple[str, int]] = [
    ("asdf 23roni at 0", 43),
    ("asdf 3l at 1", 39),
    ("asdf 3l at 1, zxcv qfowin at 0", 82),
    ("zxcv o23i4 at 1", 42),
    ("zxcv o23i4 at 1, asdf 3ng at 0", 82),
]


test_buffers = of_cases(BUFFERS)


@pytest.mark.parametrize(("records", "size"), SIZES)
def test_should_track_size(records: str, size: int) -> None:
    fits, full = (BufferConfig.max_bytes(bound).shut_down_when_full() for bound in (size, size - 1))
    case(texts_held_back(fits), pipe("topic", records), out()).run()
    with pytest.raises(SuppressionBufferFullError) as error:
        case(texts_held_back(full), pipe("topic", records)).run()
    assert error.value.size_bytes == size


# ---- SuppressionDurabilityIntegrationTest


def counted_and_held_back(buffer: BufferConfig) -> Callable[[CaseBuilder], None]:
    def program(builder: CaseBuilder) -> None:
        counts = builder.stream("input").group_by_key().count(materialized=Materialized.as_("counts"))
        both(builder, counts, until(LONGEST_MS, buffer))

    return program


def recovered(restart: Step) -> Case:
    return case(
        counted_and_held_back(BufferConfig.max_records(3).emit_early_when_full()),
        pipe("input", "k1 v1 at 1, k2 v2 at 2, k3 v3 at 3"),
        numbers("k1 1 at 1, k2 1 at 2, k3 1 at 3", ""),
        pipe("input", "k4 v4 at 4, k5 v5 at 5"),
        numbers("k4 1 at 4, k5 1 at 5", "k1 1 at 1, k2 1 at 2"),
        restart,
        pipe("input", "k6 v6 at 6, k7 v7 at 7, k8 v8 at 8"),
        numbers("k6 1 at 6, k7 1 at 7, k8 1 at 8", "k3 1 at 3, k4 1 at 4, k5 1 at 5"),
    )


test_should_recover_buffer_after_shutdown = of_cases(
    {"from disk": recovered(restarted), "from the changelog": recovered(restored)}
)


# ---- SuppressionIntegrationTest


def test_should_shut_down_when_record_constraint_is_violated() -> None:
    program = keys_of_values(until(LONGEST_MS, BufferConfig.max_records(1).shut_down_when_full()))
    full = case(program, pipe("input", "k1 v1 at 0, k1 v2 at 1, k2 v1 at 2, x x at 3"))
    with pytest.raises(SuppressionBufferFullError):
        full.run()


test_scenarios = of_cases(SCENARIOS | BEFORE)


test_processor = of_cases(PROCESSOR)


@pytest.mark.parametrize(
    "buffer",
    [
        pytest.param(BufferConfig.max_records(1), id="suppress should shut down when over record capacity"),
        pytest.param(BufferConfig.max_bytes(60), id="suppress should shut down when over byte capacity"),
    ],
)
def test_full_buffers(buffer: BufferConfig) -> None:
    program = held_back(until(HUNDRED_DAYS, buffer.shut_down_when_full()))
    full = case(program, pipe("topic", ("hey", 7, 100)), pipe("topic", ("dummyKey", 7, 100)))
    with pytest.raises(SuppressionBufferFullError):
        full.run()


@pytest.mark.parametrize("is_filtered", [False, True], ids=["materialized", "non-materialized"])
def test_should_throw_on_suppress_for_versioned_table(*, is_filtered: bool) -> None:
    builder = CaseBuilder(in_columns=True)
    table = builder.table("input", materialized=Materialized.as_versioned("store", 0))
    builder.catch((table.filter(lambda key, value: True) if is_filtered else table).suppress(until(0)))
    with pytest.raises(TopologyError, match="version"):
        builder.build()
