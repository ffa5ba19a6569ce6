"""A program of three stages as one query: what it puts out and keeps is what the test driver says."""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession

from orders import kafka_row, write_rows
from statestore import Serdes, Topology
from statestore.dsl import Materialized, StreamsBuilder
from statestore.errors import RecoveryError, TopologyError
from statestore.errors.new_state import StatePointersError
from statestore.recovery.heads.head import newest_heads
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import states_at
from statestore.spark import batch_figures, read_store, stateful
from statestore.spark.checkpoints.checkpoint import recorded_pointers
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.interceptors import Stamp
from tests.support.spark.heads import wait_for_head
from tests.support.spark.queries import KAFKA_ROWS
from upgrade_tools.cli.options import CommittedGroup, states_at_each_stage
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.location import LocationState
from upgrade_tools.states.state import StateOptions

pytestmark = pytest.mark.slow

TEXT, INT64 = Serdes.string(), Serdes.int64()


class Given(NamedTuple):
    """A record of a topic; `value` is as `kafka_row` asks for it."""

    topic: str
    key: str | None
    text: str
    offset: int
    timestamp_ms: int
    headers: list[tuple[str, bytes | None]]
    partition: int = 0

    @property
    def value(self) -> bytes:
        return self.text.encode()


BATCHES = [
    [
        Given("known", "be", "a verb", 0, 9, []),
        Given("names", "2", "two", 0, 10, []),
        Given("lines", "a", "to be or", 0, 11, [("line", b"0")]),
        Given("lines", "b", "not to be", 1, 12, [("line", b"1")]),
        Given("names", "3", "three", 1, 13, []),
    ],
    [
        Given("lines", "a", "be careful", 2, 14, [("line", b"2")]),
        Given("names", "2", "pair", 2, 15, [("by", b"kim")]),
        Given("lines", "c", "or", 3, 16, []),
    ],
    [Given("lines", None, "not or to", 4, 17, [("line", b"4")])],
]


class RaisesOnce:
    """A user's function that fails in the first attempt at a word."""

    def __init__(self, word: str, mark: Path) -> None:
        self._word, self._mark = word, str(mark)

    def __call__(self, key: str, value: int) -> None:
        if key == self._word:
            try:
                os.close(os.open(self._mark, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return
            raise ValueError("the first attempt")


def program(mark: Path) -> Topology:
    """Words are counted, and told of what is known; counts are counted and added up by length, and joined."""
    builder, kept = StreamsBuilder(), Materialized.as_
    lines = builder.stream("lines", key_serde=TEXT, value_serde=TEXT)
    lines.filter(lambda _, line: len(line) > 8).to("long")
    words = lines.flat_map_values(str.split, value_serde=TEXT)
    counted = words.group_by(lambda _, word: word, key_serde=TEXT, name="words").count(materialized=kept("counts"))
    counts = counted.to_stream().peek(RaisesOnce("careful", mark))
    counts.to("counts")
    known = builder.global_table("known", key_serde=TEXT, value_serde=TEXT)
    told = counts.join(known, lambda word, _: word, lambda count, what: f"{what} {count}", value_serde=TEXT)
    told.to("told")
    by_length = counts.select_key(lambda word, _: str(len(word)), key_serde=TEXT)
    lengths = by_length.group_by_key(name="lengths", value_serde=INT64).count(materialized=kept("lengths"))
    lengths.to_stream().to("lengths")
    grouped = counted.group_by(
        lambda word, count: (str(len(word)), count), key_serde=TEXT, value_serde=INT64, name="weights"
    )
    grouped.sum(materialized=kept("weights")).to_stream().to("weights")
    names = builder.table("names", key_serde=TEXT, value_serde=TEXT, materialized=kept("names"))
    rejoined = counts.select_key(lambda word, _: str(len(word)), key_serde=TEXT)
    rejoined = rejoined.repartition(name="named", value_serde=INT64)
    rejoined.left_join(names, lambda count, name: f"{name} {count}", value_serde=TEXT).to("named")
    return builder.build()


Outputs = dict[str, list[tuple[Any, ...]]]


def driver_outputs(mark: Path) -> list[Outputs]:
    """What comes out of each batch, by topic."""
    mark.touch()
    found = []
    with TopologyTestDriver(program(mark), interceptors=[Stamp("s")]) as driver:
        for batch in BATCHES:
            for each in batch:
                record = TestRecord(each.key, each.text, each.timestamp_ms, each.headers)
                driver.create_input_topic(each.topic, key_serde=TEXT, value_serde=TEXT).pipe_input(record)
            outputs: Outputs = {}
            for topic in ("counts", "long", "told", "named", "lengths", "weights"):
                end = driver.create_output_topic(topic, key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
                outputs[topic] = [
                    (each.key, each.value, each.timestamp_ms, [(h.key, h.value) for h in each.headers])
                    for each in end.read_records_to_list()
                ]
            found.append({topic: records for topic, records in outputs.items() if records})
    return found


class Query:
    """The program over files, one a micro-batch."""

    def __init__(self, spark: SparkSession, home: Path, shards: int | dict[str, int]) -> None:
        self.spark, self.home, self.shards = spark, home, shards
        self.state = home / "state"
        self.found: list[Outputs] = []
        self.figures: list[Any] = []

    def rows(self, topology: Topology, **options: Any) -> DataFrame:
        records = self.spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1)
        return stateful(
            records.parquet(str(self.home / "input")),
            topology,
            **{"shards": self.shards, "state_location": self.state, "local_dir": str(self.home / "local"), **options},
        )

    def run(self, *batches: list[Given]) -> None:
        for batch in batches:
            number = len(list((self.home / "input").glob("*.parquet")))
            path = self.home / "input" / f"{number}.parquet"
            path.parent.mkdir(exist_ok=True)
            rows = [kafka_row(each.topic, each.key and each.key.encode(), each) for each in batch]
            write_rows(rows, path, 1_000.0 + number)
        writer = self.rows(program(self.home / "mark"), interceptors=[Stamp("s")]).writeStream.foreachBatch(self._keep)
        query = writer.option("checkpointLocation", str(self.home / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        self.figures += [figures for progress in query.recentProgress for figures in batch_figures(progress)]

    def _keep(self, batch: DataFrame, batch_id: int) -> None:
        outputs: Outputs = defaultdict(list)
        for row in batch.selectExpr("*", "unix_millis(timestamp) as time_ms").collect():
            headers = [(header.key, header.value and bytes(header.value)) for header in row.headers]
            outputs[row.topic].append((row.key and bytes(row.key), bytes(row.value), row.time_ms, headers))
        self.found.append(dict(outputs))


def test_one_shard_puts_out_what_the_test_driver_does(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, shards=1)
    query.run(*BATCHES[:1])
    shutil.rmtree(tmp_path / "local")
    query.run(*BATCHES[1:])
    assert (tmp_path / "mark").exists(), "a task was tried again"
    assert query.found == driver_outputs(tmp_path / "there")
    assert sorted(path.name for path in query.state.iterdir()) == ["stage-0", "stage-1", "stage-2"]
    assert len({figures.state_location for figures in query.figures}) == 3


def test_shards_count_each_word_once(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, shards={"stage-0": 1, "stage-1": 2, "stage-2": 1})
    query.run(*BATCHES)
    called: dict[str | None, set[int]] = defaultdict(set)
    for figures in query.figures:
        called[figures.stage] |= {each.shard for each in figures.shards}
    assert called == {"stage-0": {0}, "stage-1": {0, 1}, "stage-2": {0}}
    assert {str(figures).split(":")[0].rpartition(", ")[2] for figures in query.figures} == called.keys()
    words = Counter(word for batch in BATCHES for each in batch if each.topic == "lines" for word in each.text.split())
    weights: Counter[str] = Counter()
    for word, count in words.items():
        weights[str(len(word))] += count
    for store, wanted in (("counts", words), ("weights", weights)):
        kept = read_store(
            spark,
            store,
            checkpoint_location=tmp_path / "checkpoint",
            state_location=query.state,
            key_serde="string",
            value_serde="int64",
        )
        assert {row.key: row.value for row in kept.collect()} == wanted
        found = open_state(str(query.state), StateOptions(store=store))
        assert isinstance(found, LocationState)
        assert store in [spec.name for spec in found.metadata.stores]
    committed = recorded_pointers(spark, str(tmp_path / "checkpoint"))
    heads = [wait_for_head(query.state / stage, len(BATCHES) - 1) for stage in sorted(filter(None, called))]
    assert sorted(pointer.to_json() for head in heads for pointer in head.pointers) == sorted(committed)
    states = [(location, metadata.state_id) for location, metadata in states_at(DurableLocation(query.state))]
    assert newest_heads(states) == heads
    with pytest.raises(StatePointersError, match="a head may be behind"):
        states_at_each_stage(str(query.state), CommittedGroup())
    with pytest.raises(
        RecoveryError, match=r"no store was named.*\(stage-0: known-.*; stage-1: counts, known-.*; stage-2: "
    ):
        open_state(str(query.state))
    last: dict[str, int] = {}
    for outputs in query.found:
        for key, value, _, headers in outputs.get("counts", ()):
            assert int.from_bytes(value, "big") == last.get(key.decode(), 0) + 1
            last[key.decode()] = int.from_bytes(value, "big")
            assert [name for name, _ in headers if name in ("in", "out")] == ["in", "out"]
    assert last == words


def test_what_can_not_run_in_stages_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    query = Query(spark, tmp_path, shards=1)
    (tmp_path / "input").mkdir()
    made = program(tmp_path / "mark")
    with pytest.raises(TopologyError, match="Spark allows one applyInPandasWithState in a query"):
        query.rows(made, via="apply_in_pandas_with_state")
    with pytest.raises(ValueError, match=r"a number, or one for each of stage-0, stage-1, stage-2, not \{"):
        query.rows(made, shards={"stage-0": 1})
    query.rows(made)
    builder = StreamsBuilder()
    builder.stream("lines", key_serde=TEXT, value_serde=TEXT).group_by_key().count()
    with pytest.raises(TopologyError, match="the program has 1 stages, and the state is of 3"):
        query.rows(builder.build())
    shutil.rmtree(query.state)
    query.rows(builder.build())
    with pytest.raises(TopologyError, match="the program has 3 stages, and the state is of 1"):
        query.rows(made, accept_topology_change=True)
