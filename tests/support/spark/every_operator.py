"""A program with every operator of the DSL that keeps state, records for it, and what test drivers make of them."""

from __future__ import annotations

import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from orders import kafka_row, write_rows
from statestore import Serdes, Topology
from statestore.dsl import (
    BufferConfig,
    EmitStrategy,
    Joined,
    JoinWindows,
    Materialized,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)
from statestore.format.keys.partitioner import partition_column
from statestore.testing import TestRecord, TopologyTestDriver

TEXT, INT64, BYTES = Serdes.string(), Serdes.int64(), Serdes.bytes()
SHARDS = 2
KEYS = ("ada", "bo", "cy", "dee", "eve")
BATCHES = 4
_BATCH_MS = 20
_APPLICATION = "program"
TOPICS = ("sessions", "minutes", "late", "near", "paid", "distinct", "charged", "accounts")


class Given(NamedTuple):
    """A record of a topic, of one partition."""

    topic: str
    key: str
    number: int
    offset: int
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]
    partition: int = 0

    @property
    def value(self) -> bytes:
        """The bytes of its value."""
        return INT64.serialize(self.number)


Output = tuple["bytes | None", int, "list[tuple[str, bytes | None]]"]
"""Value, timestamp and headers."""
Outputs = dict[tuple[str, bytes], list[Output]]
"""What came out by topic and key, in its order."""


def program() -> Topology:
    """Return sessions, suppressed and kept windows, late records, sliding windows, a deduplication, and all joins."""
    builder, named = StreamsBuilder(), Materialized.as_
    clicks = builder.stream("clicks", key_serde=TEXT, value_serde=INT64)
    payments = builder.stream("payments", key_serde=TEXT, value_serde=INT64)
    prices = builder.table(
        "prices", key_serde=TEXT, value_serde=INT64, materialized=Materialized.as_versioned("prices", 60)
    )
    by_key = clicks.group_by_key()

    sessions = by_key.windowed_by(SessionWindows.of_inactivity_gap_and_grace(4, 2))
    closed = sessions.emit_strategy(EmitStrategy.on_window_close())
    closed.sum(materialized=named("sessions"), headers="append").to_stream().to("sessions")

    minutes = by_key.windowed_by(TimeWindows.of_size_and_grace(10, 3)).count(materialized=named("minutes"))
    doubled = minutes.map_values(_doubled, value_serde=INT64, materialized=named("doubled"))
    final = Suppressed.until_window_closes(BufferConfig.unbounded()).with_name("final")
    doubled.suppress(final).to_stream().to("minutes")
    minutes.late_records().to("late")

    near = by_key.windowed_by(SlidingWindows.of_time_difference_and_grace(6, 4))
    near.max(materialized=named("near"), headers="first").to_stream().to("near")

    within = JoinWindows.of_time_difference_and_grace(5, 2)
    clicks.outer_join(payments, _both, within, StreamJoined().with_store_name("paid"), value_serde=TEXT).to("paid")
    clicks.deduplicate(8, by="message", materialized=named("passed")).to("distinct")
    waiting = Joined().with_grace_period(5)
    clicks.left_join(prices, _both, waiting, value_serde=TEXT, name="charge").to("charged")

    totals = by_key.sum(materialized=named("totals").with_caching_enabled(), headers="merge_distinct")
    last_payments = payments.to_table(materialized=named("last-payments"))
    accounts = totals.outer_join(last_payments, _both, value_serde=TEXT, materialized=named("accounts"))
    accounts.to_stream().to("accounts")
    return builder.build()


def _doubled(value: int) -> int:
    return 2 * value


def _both(left: Any, right: Any) -> str:
    return f"{left}|{right}"


def batches(seed: int = 3) -> list[list[Given]]:
    """Return micro-batches, each in the order in which a shard takes them: its prices, its payments, its clicks.

    Single records come later than others of their topic and shard, some too late for windows.
    """
    rng, offsets = random.Random(seed), Counter[tuple[str, int]]()
    return [_batch(rng, offsets, 1_000 + number * _BATCH_MS) for number in range(BATCHES)]


def _batch(rng: random.Random, offsets: Counter[tuple[str, int]], start_ms: int) -> list[Given]:
    batch: list[Given] = []
    for topic, first_ms, span_ms, count in (("prices", 0, 2, 4), ("payments", 3, 3, 6), ("clicks", 7, 12, 16)):
        begun: set[int] = set()
        for place in range(count):
            key = rng.choice(KEYS)
            shard = shard_of(key)
            # A shard takes the topic next whose next record is the earliest: the first one says when its turn comes.
            late_ms = rng.choice((0, 0, 0, 6, 25)) if shard in begun else 0
            time_ms = start_ms + first_ms + span_ms * place // count - late_ms
            # Buffers keep a record's offset: it is that which the shard's driver gives it.
            offset = offsets[topic, shard]
            headers = [("trace", f"{topic} {shard} {offset}".encode()), ("message", b"%d" % rng.randrange(6))]
            batch.append(Given(topic, key, rng.randrange(1, 100), offset, time_ms, headers))
            offsets[topic, shard] += 1
            begun.add(shard)
    return batch


def write_batch(batch: Sequence[Given], path: Path, number: int) -> None:
    """Write a micro-batch as a file for a streaming query."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_rows([kafka_row(each.topic, each.key.encode(), each) for each in batch], path, 1_000.0 + number)


class Drivers:
    """A test driver for each shard, which keep their state in one application's directory, a task each."""

    def __init__(self, home: Path) -> None:
        self.directory = home / "shard-0" / _APPLICATION
        self._homes = [home / f"shard-{shard}" for shard in range(SHARDS)]
        self._drivers = [
            TopologyTestDriver(program(), application_id=_APPLICATION, state_dir=home) for home in self._homes
        ]

    def restart(self) -> None:
        """Stop, and start again."""
        for driver in self._drivers:
            driver.restart(program())

    def outputs_of(self, batch: Sequence[Given]) -> Outputs:
        """Process a micro-batch, and return what came out."""
        for topic, records in groupby(batch, attrgetter("topic")):
            by_shard: dict[int, list[TestRecord[str, int]]] = defaultdict(list)
            for each in records:
                record = TestRecord(each.key, each.number, each.timestamp_ms, each.headers)
                by_shard[shard_of(each.key)].append(record)
            for shard, own in by_shard.items():
                source = self._drivers[shard].create_input_topic(topic, key_serde=TEXT, value_serde=INT64)
                source.pipe_micro_batch(own)
        found: Outputs = defaultdict(list)
        for driver in self._drivers:
            for topic in TOPICS:
                end = driver.create_output_topic(topic, key_serde=BYTES, value_serde=BYTES)
                for record in end.read_records_to_list():
                    headers = [(header.key, header.value) for header in record.headers]
                    found[topic, record.key].append((record.value, record.timestamp_ms, headers))
        return found

    def close(self) -> None:
        """Close them, and bring their tasks together: then tools find all of the state in `directory`."""
        for driver in self._drivers:
            driver.close()
        for shard, home in enumerate(self._homes[1:], 1):
            shutil.move(home / _APPLICATION / "0_0", self.directory / f"0_{shard}")


def shard_of(key: str | bytes) -> int:
    """Return where the records of a key go."""
    return int(partition_column(pa.array([key.encode() if isinstance(key, str) else key], pa.binary()), SHARDS)[0])
