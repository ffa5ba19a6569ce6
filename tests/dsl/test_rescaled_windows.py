"""What is to close, and what is held back, is where its key is when a state is rescaled, and is put out there once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from statestore import Topology
from statestore.dsl import (
    BufferConfig,
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from statestore.processor.context import TaskRecordContext
from statestore.processor.receivers import SourceRecord
from statestore.processor.task import Task
from statestore.processor.task_stores import shard_stores
from tests.support.dsl.runs import SHOWN, TEXT
from tests.support.recovery.rescaling import KEYS, States

CLOSE = EmitStrategy.on_window_close()
FINAL = Suppressed.until_window_closes(BufferConfig.unbounded().with_max_records(1_000))


def program(name: str) -> Topology:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    by_key = stream.group_by_key()
    tables = {
        "windows": lambda: by_key.windowed_by(TimeWindows.of_size_with_no_grace(10)).emit_strategy(CLOSE).count(),
        "sliding": lambda: (
            by_key.windowed_by(SlidingWindows.of_time_difference_with_no_grace(9)).emit_strategy(CLOSE).count()
        ),
        "sessions": lambda: (
            by_key.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(9)).emit_strategy(CLOSE).count()
        ),
        "suppressed windows": lambda: by_key.windowed_by(TimeWindows.of_size_with_no_grace(10)).count().suppress(FINAL),
        "suppressed sessions": lambda: (
            by_key.windowed_by(SessionWindows.of_inactivity_gap_with_no_grace(9)).count().suppress(FINAL)
        ),
        "suppressed": lambda: by_key.count().suppress(Suppressed.until_time_limit(10, BufferConfig.max_records(1_000))),
    }
    tables[name]().to_stream().to("out", key_serde=SHOWN, value_serde=SHOWN)
    return builder.build()


def process(states: States, keys: Iterable[str], time_ms: int) -> list[str]:
    """Process a record of each key, in the shard that it belongs to, and return the keys that came out."""
    out: list[str] = []
    for shard in range(states.shards):
        mine = [key for key in keys if states.shard_of(key) == shard]
        records: list[SourceRecord] = [("in", 0, 0, time_ms, key.encode(), b"v", b"") for key in mine]
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
            out += [(each[2] or b"").decode() for each in task.outputs]
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
    found = process(made, firsts.values(), 60)
    assert sorted(found) == sorted(f"{key}{shown}" for key in KEYS)
    for shard in range(new):
        left = [number for what, number in made.pointer(shard).processor_metadata.items() if what.endswith("-records")]
        assert left == ([] if held_back is None else [held_back])
