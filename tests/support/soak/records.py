"""Seeded records for the query under faults, and the plain model of what must come of them. No store is used here."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from statestore.format.keys.window_key import MAX_TIME_MS
from tests.support.soak.version_history import VersionHistory

TOPIC = "readings"
PARTITIONS = 2
BATCHES = 4
START_MS = 1_700_000_000_000
WINDOW_MS = 10_000
GAP_MS = 6_000
TTL_MS = 25_000
FOREVER_MS = 400 * 24 * 3_600_000
VERSIONS_SEGMENT_MS = 3_600_000

Headers = list[tuple[str, "bytes | None"]]


class Reading(NamedTuple):
    """One record; `amount` of None is a delete."""

    key: str
    amount: int | None
    partition: int
    offset: int
    timestamp_ms: int
    headers: Headers

    @property
    def value(self) -> bytes | None:
        return None if self.amount is None else json.dumps({"amount": self.amount}).encode()


def seeded_batches(seed: int) -> list[list[Reading]]:
    """Return the micro-batches of a seed. A key's records are all in one partition; times jump back now and then."""
    rng = random.Random(seed)
    offsets = [0] * PARTITIONS
    time_ms = START_MS
    batches = []
    for _ in range(BATCHES):
        batch = []
        for _ in range(rng.randint(8, 16)):
            partition = rng.randrange(PARTITIONS)
            time_ms += rng.choice((0, 500, 1_000, 3_000, 9_000))
            late_ms = rng.choice((0, 0, 0, 4_000, 12_000))
            amount = None if rng.random() < 0.15 else rng.randint(-500, 500)
            key = f"sensor-{partition}-{rng.randrange(4)}ü"
            batch.append(Reading(key, amount, partition, offsets[partition], time_ms - late_ms, _headers(rng)))
            offsets[partition] += 1
        batches.append(batch)
    return batches


def _headers(rng: random.Random) -> Headers:
    headers: Headers = [("trace-id", rng.randbytes(8)), ("tenant", rng.choice([b"eu", b"us"]))]
    if rng.random() < 0.2:
        headers.append(("tenant", None))  # a repeated key, and a null value
    return rng.choice((headers, headers, headers, []))


@dataclass
class _Model:
    """What one partition's records make, which is one shard: its records come in the order of their offsets."""

    output: dict[str, list[Any]] = field(default_factory=dict)
    totals: dict[str, Any] = field(default_factory=dict)
    recent: dict[str, Any] = field(default_factory=dict)
    windows: dict[Any, Any] = field(default_factory=dict)
    counts: dict[str, Any] = field(default_factory=dict)
    versions: VersionHistory = field(default_factory=lambda: VersionHistory(FOREVER_MS, VERSIONS_SEGMENT_MS))
    runs: dict[str, list[list[Any]]] = field(default_factory=dict)
    stream_time_ms: int = -1
    expiries_ms: dict[str, int] = field(default_factory=dict)

    def add(self, reading: Reading) -> None:
        key, time_ms, headers = reading.key, reading.timestamp_ms, reading.headers
        self.stream_time_ms = max(self.stream_time_ms, time_ms)
        self.versions.add(key, None if reading.amount is None else (reading.amount, None, headers), time_ms)
        if reading.amount is None:
            self.totals.pop(key, None)
            self.output.setdefault(key, []).append((None, time_ms, headers))
            return
        seen = self.recent[key][0] if self.expiries_ms.get(key, -1) > self.stream_time_ms else 0
        self.recent[key] = (seen + 1, time_ms, headers)
        self.expiries_ms[key] = self.stream_time_ms + TTL_MS
        total = self.totals[key][0] + reading.amount if key in self.totals else reading.amount
        self.totals[key] = (total, time_ms, headers)
        self.output.setdefault(key, []).append((f"{total}/{seen + 1}", time_ms, headers))
        start_ms = time_ms - time_ms % WINDOW_MS
        window = (key, start_ms, start_ms + WINDOW_MS)
        self.windows[window] = (self.windows[window][0] + 1 if window in self.windows else 1, time_ms, headers)
        self.counts[key] = (self.counts[key][0] + 1 if key in self.counts else 1, time_ms, [])
        self._add_to_session(reading)

    def _add_to_session(self, reading: Reading) -> None:
        """Merge all sessions that the reading is at most the gap away from; the headers are those of the last one."""
        time_ms = reading.timestamp_ms
        first_ms, last_ms, total = time_ms, time_ms, reading.amount
        apart = []
        for run in self.runs.get(reading.key, []):
            if run[0] - GAP_MS <= time_ms <= run[1] + GAP_MS:
                first_ms, last_ms, total = min(first_ms, run[0]), max(last_ms, run[1]), total + run[2]
            else:
                apart.append(run)
        self.runs[reading.key] = [*apart, [first_ms, last_ms, total, reading.headers]]

    def contents(self) -> dict[str, dict[Any, Any]]:
        living = {key for key, expiry_ms in self.expiries_ms.items() if expiry_ms > self.stream_time_ms}
        return {
            "output": self.output,
            "totals": self.totals,
            "recent": {key: held for key, held in self.recent.items() if key in living},
            "windows": self.windows,
            "counts": self.counts,
            "sessions": {(key, *run[:2]): (run[2], None, run[3]) for key, runs in self.runs.items() for run in runs},
            "versions": {
                (key, from_ms, to_ms): held
                for key in self.versions.known_keys
                for held, from_ms, to_ms in self.versions.between(key, 0, MAX_TIME_MS)
            },
        }


def expected_contents(readings: Iterable[Reading]) -> dict[str, dict[Any, Any]]:
    """Return what the output and each store must hold: of each entry value, timestamp and headers."""
    models = [_Model() for _ in range(PARTITIONS)]
    for reading in readings:
        models[reading.partition].add(reading)
    merged: dict[str, dict[Any, Any]] = {}
    for model in models:
        for name, entries in model.contents().items():
            merged.setdefault(name, {}).update(entries)
    return merged
