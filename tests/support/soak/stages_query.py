"""A query of four stages under faults: counts of words are added up by the words' lengths, and joined with the sums."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timezone
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, Row, SparkSession

from orders import kafka_row, write_rows
from statestore import Serdes, Topology
from statestore.dsl import Materialized, StreamsBuilder
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.spark import read_store, stateful
from statestore.testing.faults import Effect, FaultEnvironment
from statestore.testing.faults.runner import Contents, MakeQuery
from tests.support.soak import query as soak
from tests.support.soak.records import BATCHES, PARTITIONS, START_MS
from tests.support.spark.queries import KAFKA_ROWS

TEXT, INT64 = Serdes.string(), Serdes.int64()
WORDS = ("a", "be", "or", "to", "not", "that", "question")


class Line(NamedTuple):
    """A record of the topic of lines."""

    text: str
    partition: int
    offset: int
    timestamp_ms: int

    @property
    def value(self) -> bytes:
        return self.text.encode()

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        return [("line", str(self.timestamp_ms).encode())]


def program() -> Topology:
    builder = StreamsBuilder()
    lines = builder.stream("lines", key_serde=TEXT, value_serde=TEXT)
    words = lines.flat_map_values(str.split, value_serde=TEXT)
    grouped = words.group_by(lambda _, word: word, key_serde=TEXT, name="words")
    counts = grouped.count(materialized=Materialized.as_("counts"))
    counts.to_stream().to("counts")
    lengths = {"key_serde": INT64, "value_serde": INT64, "name": "lengths"}
    by_length = counts.group_by(lambda word, count: (len(word), count), **lengths)
    sums = by_length.sum(materialized=Materialized.as_("lengths"))
    kept = Materialized.as_("shares")
    counts.join(sums, share, foreign_key=lambda word, _: len(word), value_serde=TEXT, materialized=kept)
    return builder.build()


def share(count: int, of: int) -> str:
    return f"{count} of {of}"


def seeded_lines(seed: int) -> list[list[Line]]:
    """The lines of each micro-batch; no two have the same time, so that their order is known."""
    rng, offsets, made = random.Random(seed), [0] * PARTITIONS, []
    for number in range(BATCHES):
        batch = []
        for step in range(rng.randint(4, 10)):
            partition = rng.randrange(PARTITIONS)
            text = " ".join(rng.choices(WORDS, k=rng.randint(0, 5)))
            batch.append(Line(text, partition, offsets[partition], START_MS + 1_000 * number + step))
            offsets[partition] += 1
        made.append(batch)
    return made


class StagesQuery:
    """The query with the input of one seed. Its sink is exactly once, by the id of the micro-batch."""

    def __init__(self, spark: SparkSession, environment: FaultEnvironment) -> None:
        self.spark, self.environment = spark.newSession(), environment
        for name, value in soak.SETTINGS.items():
            self.spark.conf.set(name, value)
        self.spark.conf.set("spark.sql.streaming.stateStore.providerClass", soak.ROCKSDB_PROVIDER)
        seed = environment.plan.seed
        goes_back = any(fault.effect is Effect.OLDER_CHECKPOINT for fault in environment.plan.faults)
        self.recovery = RecoveryOptions(
            snapshot_every_deltas=1 + seed % 2, retained_versions=BATCHES if goes_back else 1 + seed % 3
        )
        self.input = environment.home / "input"
        self.input.mkdir()
        self.batches = seeded_lines(seed)
        self.written: dict[int, list[Row]] = {}

    def add_batch(self, number: int) -> None:
        rows = [kafka_row("lines", None, line) for line in self.batches[number]]  # type: ignore[arg-type]  # no keys
        write_rows(rows, self.input / f"{number:04d}.parquet", modified_s=1_700_000_000 + number)

    def run(self) -> None:
        records = self.spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1).parquet(str(self.input))
        rows = stateful(
            records, program(), shards=PARTITIONS, recovery=self.recovery, **self.environment.stateful_options()
        )
        writer = rows.writeStream.foreachBatch(self.environment.sink(self._write))
        writer = writer.option("checkpointLocation", str(self.environment.checkpoint)).trigger(availableNow=True)
        self.environment.wait_for(writer.start())

    def expected(self) -> Contents:
        seen: Counter[str] = Counter()
        output: dict[str, list[Any]] = {}
        counts: dict[str, Any] = {}
        for line in (line for batch in self.batches for line in batch):
            for word in line.text.split():
                seen[word] += 1
                counts[word] = seen[word], line.timestamp_ms, line.headers
                output.setdefault(word, []).append(counts[word])
        lengths: Counter[int] = Counter()
        for word, count in seen.items():
            lengths[len(word)] += count
        shares = {word: share(count, lengths[len(word)]) for word, count in seen.items()}
        return {"output": output, "counts": counts, "lengths": dict(lengths), "shares": shares}

    def found(self) -> Contents:
        output: dict[str, list[Any]] = {}
        for batch_id in sorted(self.written):
            for row in self.written[batch_id]:
                time_ms = round(row.timestamp.replace(tzinfo=timezone.utc).timestamp() * 1000)
                output.setdefault(bytes(row.key).decode(), []).append(
                    (INT64.deserialize(bytes(row.value)), time_ms, _headers(row))
                )
        counts = {row.key: (row.value, row.timestamp_ms, _headers(row)) for row in self._kept("counts", "string")}
        lengths = {row.key: row.value for row in self._kept("lengths", "int64")}
        shares = {row.key: row.value for row in self._kept("shares", "string", "string")}
        return {"output": output, "counts": counts, "lengths": lengths, "shares": shares}

    def _kept(self, store: str, key_serde: str, value_serde: str = "int64") -> list[Row]:
        found = read_store(
            self.spark,
            store,
            checkpoint_location=self.environment.checkpoint,
            state_location=self.environment.state_location,
            key_serde=key_serde,
            value_serde=value_serde,
        )
        return found.collect()

    def _write(self, rows: DataFrame, batch_id: int) -> None:
        self.written[batch_id] = rows.collect()


def _headers(row: Row) -> list[Any]:
    return [(header.key, bytes(header.value)) for header in row.headers]


@contextmanager
def queries() -> Iterator[MakeQuery]:
    """Start the Spark session of a soak, and hand out what makes its queries."""
    with soak.queries(StagesQuery) as made:
        yield made
