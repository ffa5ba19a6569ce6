"""After rescaling, what comes late is judged by what the key's own shard had seen, whatever the others had.

What must come of them is taken from the old state, which is still there: only keys that were in one shard, and are in
one, get records afterwards, and the old shard gets them too. As nobody else lets time pass in the new one, it must do
with them what the old one does.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from statestore import Topology, dsl
from statestore.headers.topic_columns import SourceFields
from statestore.processor.processor import BatchProcessor
from tests.support.dsl.runs import SHOWN, TEXT
from tests.support.recovery.rescaling import States

KEYS = [f"key-{number}" for number in range(12)]
CLOSE, UPDATE = dsl.EmitStrategy.on_window_close(), dsl.EmitStrategy.on_window_update()
LONG = 10_000
HELD = dsl.BufferConfig.max_records(1_000)
STRICT = dsl.BufferConfig.unbounded().with_max_records(1_000)
Declare = Callable[[dsl.KStream, dsl.KStream], Sequence[dsl.KStream]]


def windowed(windows: Any, strategy: dsl.EmitStrategy, retention_ms: int | None = None) -> Declare:
    def declare(left: dsl.KStream, right: dsl.KStream) -> Sequence[dsl.KStream]:
        kept = (
            dsl.Materialized.as_("kept")
            if retention_ms is None
            else dsl.Materialized.as_("kept").with_retention(retention_ms)
        )
        table = left.group_by_key().windowed_by(windows).emit_strategy(strategy).count(materialized=kept)
        return table.to_stream(), table.late_records()

    return declare


def suppressed(left: dsl.KStream, right: dsl.KStream) -> Sequence[dsl.KStream]:
    windows = dsl.TimeWindows.of_size_and_grace(10, 5)
    table = left.group_by_key().windowed_by(windows).count()
    return table.suppress(dsl.Suppressed.until_window_closes(STRICT)).to_stream(), table.late_records()


def limited(left: dsl.KStream, right: dsl.KStream) -> Sequence[dsl.KStream]:
    return [left.group_by_key().count().suppress(dsl.Suppressed.until_time_limit(20, HELD)).to_stream()]


def joined(how: str) -> Declare:
    within = dsl.JoinWindows.of_time_difference_and_grace(10, 5)
    stored = dsl.StreamJoined.with_(TEXT, TEXT, TEXT)

    def declare(left: dsl.KStream, right: dsl.KStream) -> Sequence[dsl.KStream]:
        return [getattr(left, how)(right, lambda one, other: f"{one}&{other}", within, stored, value_serde=TEXT)]

    return declare


FAMILIES: dict[str, Declare] = {
    "windows on close": windowed(dsl.TimeWindows.of_size_and_grace(10, 5), CLOSE),
    "hopping windows on close": windowed(dsl.TimeWindows.of_size_and_grace(20, 0).advance_by(10), CLOSE),
    "windows on close, kept long": windowed(dsl.TimeWindows.of_size_and_grace(10, 5), CLOSE, LONG),
    "windows": windowed(dsl.TimeWindows.of_size_and_grace(10, 5), UPDATE),
    "windows, kept long": windowed(dsl.TimeWindows.of_size_and_grace(10, 5), UPDATE, LONG),
    "sessions on close": windowed(dsl.SessionWindows.of_inactivity_gap_and_grace(6, 5), CLOSE),
    "sessions on close, kept long": windowed(dsl.SessionWindows.of_inactivity_gap_and_grace(6, 5), CLOSE, LONG),
    "sessions": windowed(dsl.SessionWindows.of_inactivity_gap_and_grace(6, 5), UPDATE),
    "sliding windows on close": windowed(dsl.SlidingWindows.of_time_difference_and_grace(6, 5), CLOSE),
    "sliding windows on close, kept long": windowed(dsl.SlidingWindows.of_time_difference_and_grace(6, 5), CLOSE, LONG),
    "sliding windows": windowed(dsl.SlidingWindows.of_time_difference_and_grace(6, 5), UPDATE),
    "suppressed until windows close": suppressed,
    "suppressed until a limit": limited,
    "deduplicated": lambda left, right: [left.deduplicate(10, grace=5)],
    "joined": joined("join"),
    "joined, left": joined("left_join"),
    "joined, outer": joined("outer_join"),
}
SENT_LATER = {"joined, left", "joined, outer"}
"""What nothing was found for goes on later than it could, as in Kafka, by what else is waiting in the shard."""
BY_ROWS_ALONE = {name for name in FAMILIES if name.startswith(("sliding", "suppressed", "joined,"))}
PATHS = [
    (name, in_columns)
    for name in FAMILIES
    for in_columns in (False, True)
    if not in_columns or name not in BY_ROWS_ALONE
]


def program(name: str, *, in_columns: bool) -> Topology:
    builder = dsl.StreamsBuilder(in_columns=in_columns)
    left, right = (builder.stream(topic, key_serde=TEXT, value_serde=TEXT) for topic in ("left", "right"))
    for number, stream in enumerate(FAMILIES[name](left, right)):
        stream.to(f"out-{number}", key_serde=SHOWN, value_serde=SHOWN)
    made = builder.build()
    suppliers = [node.supplier for node in made.processors.values()]
    assert any(isinstance(supplier(), BatchProcessor) for supplier in suppliers) == in_columns, name
    return made


class Given(NamedTuple):
    """A record."""

    topic: str
    key: str
    time_ms: int
    value: str


def drawn(draw: random.Random, keys: Sequence[str], around_ms: int, spread_ms: int, count: int) -> list[Given]:
    return [
        Given(
            draw.choice(("left", "right")),
            draw.choice(keys),
            max(0, around_ms + draw.randint(-spread_ms, spread_ms)),
            f"v{number % 3}",
        )
        for number in range(count)
    ]


Outputs = dict[str, list[tuple[str, bytes | None, bytes | None, int]]]


def process(states: States, given: Sequence[Given]) -> tuple[Outputs, Counter[str]]:
    """Process records as one batch, and return what came out of each shard's keys, and what was counted."""
    outputs: Outputs = {}
    counted: Counter[str] = Counter()
    for shard in range(states.shards):
        records: list[SourceFields] = [
            (each.topic, shard, number, each.time_ms, each.key.encode(), each.value.encode(), b"")
            for number, each in enumerate(given)
            if states.shard_of(each.key) == shard
        ]
        if not records:
            continue
        task = states.process(shard, records)
        counted += Counter({what.rpartition(".")[2]: number for what, number in task.counted.items()})
        for topic, time_ms, key, value, _ in task.outputs:
            record_key = (key or b"").partition(b"[")[0].decode()
            outputs.setdefault(record_key, []).append((topic, key, value, time_ms))
    return outputs, counted


def of_keys(outputs: Outputs, keys: Sequence[str]) -> Outputs:
    return {key: found for key, found in outputs.items() if key in keys}


SCENARIOS = [(2, 1, "ahead"), (3, 2, "ahead"), (2, 1, "behind")]
"""How many shards there were, how many there are, and whose keys go on."""


@pytest.mark.parametrize(
    ("name", "in_columns"), PATHS, ids=[f"{name}, {'columns' if each else 'records'}" for name, each in PATHS]
)
def test_a_key_goes_on_as_in_its_old_shard(tmp_path: Path, name: str, in_columns: bool) -> None:
    seen = Counter[str]()
    topology = program(name, in_columns=in_columns)
    for number, (old, new, whose) in enumerate(SCENARIOS):
        draw = random.Random(f"{name} {number}")
        states = States(tmp_path / str(number), topology, old)
        of_shard = [[key for key in KEYS if states.shard_of(key) == shard] for shard in range(old)]
        ahead = draw.randrange(old)
        for at_ms in (30, 60):
            given = []
            for shard, keys in enumerate(of_shard):
                around_ms = at_ms if shard != ahead else at_ms + draw.choice((40, 120))
                given += drawn(draw, keys, around_ms, 15, 10)
            process(states, given)
        states.rescaled(new, trust_keys=True)
        made = states.opened()
        chosen = ahead if whose == "ahead" else (ahead + 1) % old
        place = made.shard_of(of_shard[chosen][0])
        keys = [key for key in of_shard[chosen] if made.shard_of(key) == place]
        reached_ms = states.pointer(chosen).stream_time_ms
        whole: tuple[Counter[Any], Counter[Any]] = (Counter(), Counter())
        for step_ms in (-10, 5, 60, 300, 600):
            given = drawn(draw, keys, reached_ms + step_ms, 30, 12)
            expected, expected_counts = process(states, given)
            found, counts = process(made, given)
            if name not in SENT_LATER:
                assert of_keys(found, keys) == of_keys(expected, keys), (number, step_ms)
            for total, outputs in zip(whole, (found, expected), strict=True):
                total.update(output for key in keys for output in outputs.get(key, []) if output[3] < reached_ms + 200)
            assert counts == expected_counts, (number, step_ms)
            seen += counts
            seen["outputs"] += len(expected)
        assert whole[0] == whole[1], number
    assert seen["outputs"]
    if name.startswith(("windows", "sessions", "sliding", "dedup")):
        assert seen["late_records"]


@pytest.mark.parametrize("in_columns", [False, True])
def test_a_key_that_came_with_its_window_is_judged_by_the_shard_of_the_whole(tmp_path: Path, in_columns: bool) -> None:
    builder, serde = dsl.StreamsBuilder(in_columns=in_columns), dsl.time_windowed_serde(TEXT, 5)
    by_window = builder.stream("left", key_serde=serde, value_serde=TEXT).group_by_key()
    counts = by_window.windowed_by(dsl.TimeWindows.of_size_with_no_grace(10)).count()
    counts.to_stream().to("out", key_serde=SHOWN)
    counts.late_records().to("late", key_serde=SHOWN)
    states = States(tmp_path, builder.build(), 2)
    shards = {key: [states.shard_of(each) for each in (key, f"{key}{chr(0) * 7}{chr(5)}")] for key in KEYS}
    ahead, other = (
        f"{next(key for key in KEYS if shards[key] == each)}{chr(0) * 7}{chr(5)}" for each in ([1, 0], [0, 1])
    )
    process(states, [Given("left", ahead, 100, "v"), Given("left", other, 3, "v")])
    states.rescaled(1, trust_keys=True)
    found, counted = process(states.opened(), [Given("left", ahead, 5, "v"), Given("left", other, 5, "v")])
    assert [topic for outputs in found.values() for topic, *_ in outputs] == ["late", "out"]
    assert counted["late_records"] == 1


@pytest.mark.parametrize("in_columns", [False, True])
def test_what_had_expired_in_the_shard_of_its_key_is_not_joined_in_another(tmp_path: Path, in_columns: bool) -> None:
    states = States(tmp_path, program("joined", in_columns=in_columns), 2)
    ahead, behind = (next(key for key in KEYS if states.shard_of(key) == shard) for shard in (0, 1))
    for topic in ("left", "right"):
        process(states, [Given(topic, ahead, 100, "v"), Given(topic, behind, 60, "v")])
    states.rescaled(1, trust_keys=True)
    pairs = [Given(topic, key, 58, topic) for key in (ahead, behind) for topic in ("left", "right")]
    assert process(states.opened(), pairs)[0].keys() == {behind}


def test_what_goes_on_at_once_for_a_shard_that_was_ahead_leaves_what_others_hold_back(tmp_path: Path) -> None:
    states = States(tmp_path, program("suppressed until a limit", in_columns=False), 2)
    ahead, other = (
        (key for key in KEYS if states.shard_of(key) == 0),
        (key for key in KEYS if states.shard_of(key) == 1),
    )
    process(states, [Given("left", next(ahead), 1000, "v"), Given("left", held_back := next(other), 3, "v")])
    states.rescaled(1, trust_keys=True)
    made = states.opened()
    late = next(ahead)
    assert [*process(made, [Given("left", late, 5, "v")])[0]] == [late]
    assert [*process(made, [Given("left", next(other), 30, "v")])[0]] == [held_back]


def test_windows_whose_ends_are_not_known_come_once(tmp_path: Path) -> None:
    """One of the shards has put out each change so far, and knows of no ends."""
    states = States(tmp_path, program("windows on close, kept long", in_columns=False), 2)
    keys = [next(key for key in KEYS if states.shard_of(key) == shard) for shard in range(2)]
    process(states, [Given("left", keys[0], 1, "v"), Given("left", keys[0], 1000, "v"), Given("left", keys[1], 3, "v")])
    metadata = states.pointers[1].processor_metadata
    states.pointers[1] = replace(
        states.pointers[1], processor_metadata={name: time for name, time in metadata.items() if "-ends" not in name}
    )
    states.rescaled(1, trust_keys=True)
    made = states.opened()
    found, _ = process(made, [Given("left", keys[1], 500, "v")])
    assert found == {keys[1]: [("out-0", f"{keys[1]}[0,10]".encode(), b"1", 3)]}
    found, _ = process(made, [Given("left", keys[1], 2000, "v")])
    assert {key: [output[1] for output in outputs] for key, outputs in found.items()} == {
        keys[0]: [f"{keys[0]}[1000,1010]".encode()],
        keys[1]: [f"{keys[1]}[500,510]".encode()],
    }
