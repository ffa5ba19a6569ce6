"""What is to close or is held back, and what is kept of windows, is where its key is when a state is rescaled."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from statestore import Serdes, Topology, dsl
from statestore.headers.topic_columns import SourceFields
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import shard_stores
from tests.support.dsl.runs import SHOWN, TEXT
from tests.support.recovery.rescaling import KEYS, States

CLOSE = dsl.EmitStrategy.on_window_close()
FINAL = dsl.Suppressed.until_window_closes(dsl.BufferConfig.unbounded().with_max_records(1_000))


def program(name: str) -> Topology:
    builder = dsl.StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    by_key = stream.group_by_key()
    tables = {
        "windows": lambda: by_key.windowed_by(dsl.TimeWindows.of_size_with_no_grace(10)).emit_strategy(CLOSE).count(),
        "sliding": lambda: (
            by_key.windowed_by(dsl.SlidingWindows.of_time_difference_with_no_grace(9)).emit_strategy(CLOSE).count()
        ),
        "sessions": lambda: (
            by_key.windowed_by(dsl.SessionWindows.of_inactivity_gap_with_no_grace(9)).emit_strategy(CLOSE).count()
        ),
        "suppressed windows": lambda: (
            by_key.windowed_by(dsl.TimeWindows.of_size_with_no_grace(10)).count().suppress(FINAL)
        ),
        "suppressed sessions": lambda: (
            by_key.windowed_by(dsl.SessionWindows.of_inactivity_gap_with_no_grace(9)).count().suppress(FINAL)
        ),
        "suppressed": lambda: by_key.count().suppress(
            dsl.Suppressed.until_time_limit(10, dsl.BufferConfig.max_records(1_000))
        ),
    }
    tables[name]().to_stream().to("out", key_serde=SHOWN, value_serde=SHOWN)
    return builder.build()


def process(states: States, keys: Iterable[str], time_ms: int) -> list[str]:
    """Process a record of each key, in the shard that it belongs to, and return the keys and values that came out."""
    out: list[str] = []
    for shard in range(states.shards):
        mine = [key for key in keys if states.shard_of(key) == shard]
        records: list[SourceFields] = [("in", 0, 0, time_ms, key.encode(), b"v", b"") for key in mine]
        pointer = states.pointer(shard)
        context = TaskRecordContext(pointer.stream_time_ms, 0)
        with states.state.open(pointer) as batch:
            stores = shard_stores(states.topology, batch, context)
            task = Task(
                states.topology,
                0,
                stores,
                context,
                punctuations=pointer.punctuations,
                processor_metadata=pointer.processor_metadata,
            )
            task.process(records)
            task.end_batch(0)
            end = task.leave()
            out += [" ".join(part.decode() for part in each[2:4] if part is not None) for each in task.outputs]
            states.pointers[shard] = batch.commit(end).pointer
    return out


@pytest.mark.parametrize(
    ("name", "shown", "held_back"),
    [
        ("windows", "[20,30]", None),
        ("sliding", "[11,20]", None),
        ("sessions", "[20,20]", None),
        ("suppressed windows", "[20,30]", 1),
        ("suppressed sessions", "[20,20]", 1),
        ("suppressed", "", 0),
    ],
)
@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 2)])
def test_each_comes_out_once_in_the_shard_of_its_key(
    tmp_path: Path, name: str, shown: str, held_back: int | None, old: int, new: int
) -> None:
    states = States(tmp_path, program(name), old)
    assert process(states, KEYS, 20) == []
    states.rescaled(new, trust_keys=True)
    made = states.opened()
    firsts = {made.shard_of(key): key for key in reversed(KEYS)}
    assert process(made, firsts.values(), 20) == []
    # One record of each shard lets all go on that is there.
    found = [line.partition(" ")[0] for line in process(made, firsts.values(), 60)]
    assert sorted(found) == sorted(f"{key}{shown}" for key in KEYS)
    for shard in range(new):
        left = [number for what, number in made.pointer(shard).processor_metadata.items() if what.endswith("-records")]
        assert left == ([] if held_back is None else [held_back])


def kept_again() -> Topology:
    """Return a program whose stores have keys with windows in them, in every place where they can have some."""
    builder, named = dsl.StreamsBuilder(), dsl.Materialized.as_
    by_key = builder.stream("in", key_serde=TEXT, value_serde=TEXT).group_by_key()
    windows = by_key.windowed_by(dsl.TimeWindows.of_size_with_no_grace(10)).count(materialized=named("windows"))
    mapped = windows.map_values(lambda count: 3 * count, value_serde=Serdes.int64(), materialized=named("mapped"))
    odd = mapped.filter(lambda window, count: count % 2, materialized=named("odd"))
    both = mapped.outer_join(odd, lambda one, other: f"{one} {other}", value_serde=TEXT, materialized=named("both"))
    sessions = by_key.windowed_by(dsl.SessionWindows.of_inactivity_gap_with_no_grace(3)).count()
    named_sessions = sessions.map_values(str, value_serde=TEXT, materialized=named("sessions"))
    late = windows.late_records().group_by_key().count(materialized=named("late"))
    changes, odd_changes = mapped.to_stream(), odd.to_stream()
    within = dsl.JoinWindows.of_time_difference_and_grace(1, 4)
    stored = dsl.StreamJoined.with_(None, Serdes.int64(), Serdes.int64()).with_store_name("met")
    of_windows = changes.group_by_key().windowed_by(dsl.TimeWindows.of_size_with_no_grace(20)).emit_strategy(CLOSE)
    counted = of_windows.count(materialized=named("of-windows"))
    for number, stream in enumerate(
        (
            both.suppress(FINAL.with_name("held")).to_stream(),
            named_sessions.to_stream(),
            late.to_stream(),
            changes.deduplicate(5, materialized=named("first")),
            changes.left_join(odd_changes, lambda one, other: f"{one} met {other}", within, stored),
            counted.map_values(
                lambda count: -count, value_serde=Serdes.int64(), materialized=named("negative")
            ).to_stream(),
        )
    ):
        stream.to(f"out-{number}", key_serde=SHOWN, value_serde=SHOWN)
    return builder.build()


def test_it_is_recorded_where_in_a_key_the_windows_are() -> None:
    recorded = {store: keys for node in kept_again().processors.values() for store, keys in node.entry_keys.items()}
    assert recorded == {
        "mapped": "windowed",
        "odd": "windowed",
        "both": "windowed",
        "held-store": "windowed",
        "held-store-times": "timers windowed",
        "sessions": "session",
        "first": "map windowed",
        "met-this-join-store": "windowed",
        "met-left-shared-join-store": "waiting windowed",
        "met-outer-other-join-store": "windowed",
        "of-windows": "windowed",
        "of-windows-ends": "window ends windowed",
        "negative": "windowed windowed",
    }


@pytest.mark.parametrize(("old", "new"), [(3, 5), (1, 2)])
def test_what_is_kept_of_windows_goes_on_as_if_it_had_always_had_its_shards(tmp_path: Path, old: int, new: int) -> None:
    rescaled, other = States(tmp_path, kept_again(), old), States(tmp_path / "other", kept_again(), new)
    for time_ms in (1, 12, 5):
        assert sorted(process(rescaled, KEYS, time_ms)) == sorted(process(other, KEYS, time_ms))
    rescaled.rescaled(new, trust_keys=old == 1)
    made = rescaled.opened()
    assert made.shown() == other.shown()
    found = []
    for time_ms in (15, 2, 26, 70):
        found += (outputs := sorted(process(made, KEYS, time_ms)))
        assert outputs == sorted(process(other, KEYS, time_ms))
    assert made.shown() == other.shown()
    for value in ("1", "3", "3 3", "3 met 3", "-2"):
        assert any(line.endswith(f"] {value}") for line in found), value
