"""Rescaling under event time: `python -m tests.simulation.event_time --runs N --seed S`.

A seed draws a program of the DSL, by records or in columns, batches of records in and out of time, and rescalings among
them. What must come out is worked out from what is promised alone: each record's key knows the latest time that the
shards it was in had seen, its present one among them. A window that ends, with its grace, by that time is closed:
it came out once, with all that came in time, and what comes for it is late.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from statestore import Serdes, Topology
from statestore.dsl import EmitStrategy, KStream, Materialized, SessionWindows, StreamsBuilder, TimeWindows
from statestore.format.records.header_bytes import encode_headers
from tests.simulation.workload import place
from tests.support.dsl.runs import SHOWN
from tests.support.recovery.rescaling import States

KEYS = tuple(f"k{number}" for number in range(10))
TEXT = Serdes.string()
LONG_MS = 10_000


class Given(NamedTuple):
    """A record."""

    key: str
    time_ms: int
    value: str


@dataclass
class Model(ABC):
    """What is promised of a program. `came` has what has to have come out, and been counted."""

    shards: int
    seen: dict[int, int] = field(default_factory=dict)
    """The latest time of the records of each shard, since there are so many."""
    before: dict[str, int] = field(default_factory=dict)
    """The latest time that the shards of a key had seen before."""
    came: Counter[Any] = field(default_factory=Counter)

    def time_of(self, key: str) -> int:
        """Return what time it is for a key."""
        return max(self.before.get(key, -1), self.seen.get(place(key.encode(), self.shards), -1))

    def rescale(self, shards: int) -> None:
        """Have another number of shards."""
        self.before = {key: self.time_of(key) for key in KEYS}
        self.shards, self.seen = shards, {}

    def process(self, given: Given) -> None:
        """Process one record."""
        shard = place(given.key.encode(), self.shards)
        self.seen[shard] = max(self.seen.get(shard, -1), given.time_ms)
        for key in KEYS:
            if place(key.encode(), self.shards) == shard:
                self.close(key, self.time_of(key))
        self.take(given, self.time_of(given.key))

    def close(self, key: str, time_ms: int) -> None:
        """Put out what of a key closes at a time."""
        return

    @abstractmethod
    def take(self, given: Given, time_ms: int) -> None:
        """Take a record at the time of its key."""

    def put_out(self, key: str, start_ms: int, end_ms: int, count: int) -> None:
        """Note that a window comes out."""
        self.came["out", f"{key}[{start_ms},{end_ms}]", str(count)] += 1

    def drop(self, given: Given, windows: int = 1) -> None:
        """Note that a record is late, for so many windows."""
        self.came["late", given.key, given.value] += 1
        self.came["late_records"] += 1
        self.came["dropped_records"] += windows


@dataclass
class WindowsOnClose(Model):
    """Windows of 10 ms each 5 ms, with 5 ms of grace."""

    open: dict[tuple[str, int], int] = field(default_factory=dict)

    def close(self, key: str, time_ms: int) -> None:
        """Put out windows that end by 5 ms ago."""
        for of_key, start_ms in sorted(self.open):
            if of_key == key and start_ms + 10 + 5 <= time_ms:
                self.put_out(key, start_ms, start_ms + 10, self.open.pop((of_key, start_ms)))

    def take(self, given: Given, time_ms: int) -> None:
        """Count a record in its windows."""
        starts = [start_ms for start_ms in range(0, given.time_ms + 1, 5) if start_ms + 10 > given.time_ms]
        late = [start_ms for start_ms in starts if start_ms + 10 + 5 <= time_ms]
        for start_ms in starts:
            if start_ms not in late:
                self.open[given.key, start_ms] = self.open.get((given.key, start_ms), 0) + 1
        if late:
            self.drop(given, len(late))


@dataclass
class SessionsOnClose(Model):
    """Sessions with a gap of 6 ms and 3 ms of grace: one has closed when both have passed since its last record."""

    open: dict[str, list[list[int]]] = field(default_factory=dict)
    """Start, end and count."""

    def close(self, key: str, time_ms: int) -> None:
        """Put out sessions whose gap and grace have passed."""
        sessions = self.open.get(key, [])
        for start_ms, end_ms, count in [session for session in sessions if session[1] + 6 + 3 < time_ms]:
            self.put_out(key, start_ms, end_ms, count)
            sessions.remove([start_ms, end_ms, count])

    def take(self, given: Given, time_ms: int) -> None:
        """Make one session of a record and those that are near."""
        sessions = self.open.setdefault(given.key, [])
        near = [each for each in sessions if each[0] - 6 <= given.time_ms <= each[1] + 6]
        start_ms = min([given.time_ms, *(each[0] for each in near)])
        end_ms = max([given.time_ms, *(each[1] for each in near)])
        if end_ms + 6 + 3 < time_ms:
            self.drop(given)
            return
        self.open[given.key] = [each for each in sessions if each not in near]
        self.open[given.key].append([start_ms, end_ms, 1 + sum(each[2] for each in near)])


@dataclass
class Deduplicated(Model):
    """Of records of a key and value within 10 ms, the first one passes."""

    passed: dict[tuple[str, str], list[int]] = field(default_factory=dict)

    def take(self, given: Given, time_ms: int) -> None:
        """Let a record pass, or not."""
        passed = self.passed.setdefault((given.key, given.value), [])
        if given.time_ms + 10 < time_ms:
            self.came["late_records"] += 1
            self.came["dropped_records"] += 1
        elif any(abs(given.time_ms - before_ms) <= 10 for before_ms in passed):
            self.came["duplicate_records"] += 1
        else:
            passed.append(given.time_ms)
            self.came["out", given.key, given.value] += 1


def _counted(stream: KStream, windows: Any, retention_ms: int | None) -> None:
    kept = Materialized.as_("kept").with_store_in_memory()
    kept = kept if retention_ms is None else kept.with_retention(retention_ms)
    by_window = stream.group_by_key().windowed_by(windows).emit_strategy(EmitStrategy.on_window_close())
    table = by_window.count(materialized=kept)
    table.to_stream().to("out", key_serde=SHOWN, value_serde=SHOWN)
    table.late_records().to("late", key_serde=TEXT, value_serde=TEXT)


def _program(model: type[Model], retention_ms: int | None, *, in_columns: bool) -> Topology:
    builder = StreamsBuilder(in_columns=in_columns)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    if model is WindowsOnClose:
        _counted(stream, TimeWindows.of_size_and_grace(10, 5).advance_by(5), retention_ms)
    elif model is SessionsOnClose:
        _counted(stream, SessionWindows.of_inactivity_gap_and_grace(6, 3), None)
    else:
        kept = Materialized.as_("kept").with_store_in_memory()
        stream.deduplicate(10, by="value", materialized=kept).to("out", key_serde=TEXT, value_serde=TEXT)
    return builder.build()


def process(states: States, given: Sequence[Given]) -> Counter[Any]:
    """Process records as one batch; return how often each thing came out or was counted."""
    came: Counter[Any] = Counter()
    for shard in range(states.shards):
        records = [
            ("in", shard, number, each.time_ms, each.key.encode(), value, encode_headers([("value", value)]))
            for number, each in enumerate(given)
            for value in [each.value.encode()]
            if place(each.key.encode(), states.shards) == shard
        ]
        if not records:
            continue
        task = states.process(shard, records)
        came.update((topic, (key or b"").decode(), (value or b"").decode()) for topic, _, key, value, _ in task.outputs)
        for what, number in task.counted.items():
            came[what.rpartition(".")[2]] += number
    return came


def story(rng: random.Random) -> Iterator[list[Given] | int]:
    """Yield batches of records, and numbers of shards. Keys go through time at different speeds."""
    now_ms = {key: rng.choice((20, 60, 110)) for key in KEYS}
    for number in range(rng.randint(4, 8)):
        if number and rng.random() < 0.4:
            yield rng.choice((1, 1, 2, 3, 4))
        ahead_ms = rng.choice((0, 10, 40))
        keys = rng.sample(KEYS, rng.randint(1, len(KEYS)))
        batch = []
        for _ in range(rng.randint(1, 25)):
            key = rng.choice(keys)
            time_ms = max(0, now_ms[key] + rng.choice((0, 0, ahead_ms, -4, -9, -14, -30, 6)))
            now_ms[key] = max(now_ms[key], time_ms)
            batch.append(Given(key, time_ms, rng.choice("xyz")))
        yield batch
    # All that is open closes.
    yield [Given(key, 100_000, "x") for key in KEYS]


def simulate(seed: int) -> str | None:
    """Run the story of a seed; return what went wrong in words, None for nothing."""
    rng = random.Random(seed)
    kind = rng.choice((WindowsOnClose, WindowsOnClose, SessionsOnClose, Deduplicated))
    retention_ms, in_columns, shards = rng.choice((None, LONG_MS)), rng.random() < 0.5, rng.choice((1, 2, 3, 4))
    said = [f"{kind.__name__} {'in columns' if in_columns else 'by records'}, kept {retention_ms}, {shards} shards"]
    model = kind(shards)
    with tempfile.TemporaryDirectory(prefix="event-time-") as home:
        states = States(Path(home), _program(kind, retention_ms, in_columns=in_columns), shards, name="state-0")
        for number, step in enumerate(story(rng), start=1):
            said.append(repr(step))
            if isinstance(step, int):
                states.rescaled(step, f"state-{number}", trust_keys=True)
                states = states.opened(f"state-{number}")
                model.rescale(step)
                continue
            came = process(states, step)
            model.came = Counter()
            for given in step:
                model.process(given)
            if came != model.came:
                wrong = f"missing: {dict(model.came - came)}\nnot expected: {dict(came - model.came)}"
                return "\n".join([f"seed {seed}", *said, wrong])
    return None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.event_time", description=__doc__)
    parser.add_argument("--runs", type=int, default=100, help="how many stories to run")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    asked = parser.parse_args(arguments)
    failed = 0
    for seed in range(asked.seed, asked.seed + asked.runs):
        problem = simulate(seed)
        if problem is not None:
            failed += 1
            print(problem, flush=True)
    print(f"{asked.runs} stories, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
