"""Runs operators of dsl_operators.py and Spark's own as queries, in turn in one session, and takes what they take."""

from __future__ import annotations

import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import count_query
import dsl_programs
from benchmarks.peers.process_figures import JAVA, PYTHON, ProcessFigures, ProcessTime, descendants
from benchmarks.peers.workload_topic import InputRecord, fill_topics
from dsl_operators import SCHEMA, Inputs, Operator, records_of, write_topic
from statestore import Topology
from statestore.spark import recommended_settings, stateful
from statestore.testing.kafka_broker import KafkaBroker
from upgrade_tools.changelogs.cluster import Cluster
from workload import PARTITIONS

_LOOK_S = 0.1


class Taken(NamedTuple):
    """What a record took, in microseconds: of the clock, and of processor time of all cores together."""

    clock_us: float
    java_us: float
    python_us: float

    @property
    def cpu_us(self) -> float:
        """Processor time of both."""
        return self.java_us + self.python_us


Found = dict[str, dict[str, list[Taken]]]
"""By operator, and form: what a record took in each round."""


class Sizes(NamedTuple):
    """How much is run."""

    batches: int
    """That are measured."""
    warm_up_batches: int
    """That each query has before."""
    records_per_batch: int
    keys: int
    rounds: int

    @property
    def all_batches(self) -> int:
        """Those of the warm-up as well."""
        return self.warm_up_batches + self.batches


class Place(ABC):
    """Where a session's queries read records and put out what comes of them."""

    not_ours: Sequence[int] = ()
    """The processes that this one has started, and whose time is not the queries'."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    @abstractmethod
    def rows(self, topic: str) -> DataFrame:
        """Return the records of a topic as a stream."""

    @abstractmethod
    def start(self, result: DataFrame, output_mode: str, scratch: Path) -> StreamingQuery:
        """Start a query that puts `result` out, until all records are done."""


class Files(Place):
    """From Parquet files to nothing."""

    def __init__(self, spark: SparkSession, home: Path, sizes: Sizes, topics: Sequence[str]) -> None:
        super().__init__(spark)
        self._home = home
        for topic in topics:
            part = (
                sizes.records_per_batch
                if topic in (dsl_programs.TOPIC, dsl_programs.LINES)
                else sizes.records_per_batch // 2
            )
            write_topic(home / topic, topic, sizes.all_batches, part, sizes.keys)

    def rows(self, topic: str) -> DataFrame:
        return count_query.rows_of(self.spark, self._home / topic, schema=SCHEMA)

    def start(self, result: DataFrame, output_mode: str, scratch: Path) -> StreamingQuery:
        return count_query.started(result.writeStream.format("noop").outputMode(output_mode), scratch)


class Topics(Place):
    """From Kafka to Kafka, each key in one partition."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, sizes: Sizes) -> None:
        super().__init__(spark)
        assert broker.process_group is not None
        self.not_ours = [broker.process_group]
        self._servers, self._records_per_batch = broker.bootstrap_servers, sizes.records_per_batch
        self._settings = recommended_settings(cores=os.cpu_count() or 1)
        self._cluster, self._outputs = Cluster(self._servers), 0
        fill_topics(self._cluster, [dsl_programs.TOPIC], _sent(sizes))

    def rows(self, topic: str) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self._servers)
        # Spark rounds down in each partition.
        most = self._records_per_batch + PARTITIONS * PARTITIONS
        reader = reader.option("subscribe", topic).option("maxOffsetsPerTrigger", most)
        reader = reader.option("startingOffsets", "earliest").option("includeHeaders", "true")
        return reader.options(**self._settings.source.as_options()).load().drop("timestampType")

    def start(self, result: DataFrame, output_mode: str, scratch: Path) -> StreamingQuery:
        self._outputs += 1
        topic = f"out-{self._outputs}"
        self._cluster.create_topic(topic, PARTITIONS, {})
        writer = kafka_rows(result).writeStream.format("kafka").outputMode(output_mode)
        writer = writer.option("kafka.bootstrap.servers", self._servers).option("topic", topic)
        return count_query.started(writer.options(**self._settings.sink.as_options()), scratch)


def _sent(sizes: Sizes) -> Iterator[InputRecord]:
    for number in range(sizes.all_batches):
        batch = records_of(number, sizes.records_per_batch, sizes.keys)
        for row in batch.select(["key", "value", "timestamp", "headers"]).to_pylist():
            headers = [(each["key"], each["value"]) for each in row["headers"]]
            yield InputRecord(row["key"], row["value"], round(row["timestamp"].timestamp() * 1_000), headers)


def kafka_rows(result: DataFrame) -> DataFrame:
    """Return what an operator puts out as Kafka's sink takes it: of Spark's own, the aggregate as text."""
    if "total" not in result.columns:
        return result
    key = F.col("key")
    if "window" in result.columns:
        key = F.concat(key, F.unix_millis("window.start").cast("string").cast("binary"))
    more = ["headers"] if "headers" in result.columns else []
    return result.select(key.alias("key"), F.col("total").cast("string").alias("value"), *more)


class Queries:
    """Queries of a place, one after the other."""

    def __init__(self, place: Place, home: Path, warm_up_batches: int) -> None:
        self._place, self._home, self._warm_up_batches, self._runs = place, home, warm_up_batches, 0

    def here(self, operator: Operator, form: str) -> Taken:
        """Run a form of an operator."""
        make = operator.here[form]
        return self._run(operator, "append", lambda inputs, scratch: _stateful(inputs, make(), scratch))

    def sparks(self, operator: Operator, form: str) -> Taken:
        """Run a form of Spark's operator."""
        make = operator.spark[form]
        return self._run(operator, operator.spark_mode, lambda inputs, _: make(inputs))

    def _run(self, operator: Operator, output_mode: str, make: Callable[[Inputs, Path], DataFrame]) -> Taken:
        # Spark goes on for a while to tidy up the state of a query that has ended: none may have its path.
        self._runs += 1
        scratch = self._home / f"query-{self._runs}"
        result = make({topic: self._place.rows(topic) for topic in operator.topics}, scratch)
        figures = ProcessFigures(self._processes)
        query = self._place.start(result, output_mode, scratch)
        before: dict[str, float] | None = None
        while query.isActive:
            time.sleep(_LOOK_S)
            used = figures.cpu_s()
            if (
                before is None
                and sum(batch.numInputRows > 0 for batch in query.recentProgress) >= self._warm_up_batches
            ):
                before = used
        query.awaitTermination()
        after, batches = figures.cpu_s(), count_query.measured(query, self._warm_up_batches)
        shutil.rmtree(scratch, ignore_errors=True)
        if before is None or not batches:
            raise SystemExit("all was done in the warm-up: nothing can be measured")
        rows = sum(batch.numInputRows for batch in batches)
        cpu_us = {kind: (after[kind] - before[kind]) / rows * 1e6 for kind in (JAVA, PYTHON)}
        return Taken(1e6 / count_query.rows_per_s(batches), cpu_us[JAVA], cpu_us[PYTHON])

    def _processes(self) -> Iterator[ProcessTime]:
        return (each for each in descendants(os.getpid()) if each.pid not in self._place.not_ours)


def _stateful(inputs: Inputs, topology: Topology, scratch: Path) -> DataFrame:
    first, *others = (rows.drop("amount") for rows in inputs.values())
    for rows in others:
        first = first.unionAll(rows)
    where = {"state_location": scratch / "state", "local_dir": str(scratch / "local")}
    return stateful(first, topology, shards=PARTITIONS, **where)


def measure(queries: Queries, operators: Sequence[Operator], rounds: int) -> Found:
    """Run all forms of the operators and of Spark's in turn, several rounds; return what each took."""
    found: Found = {operator.name: {} for operator in operators}
    for number in range(1, rounds + 1):
        for operator in operators:
            runs: Mapping[str, Callable[[], Taken]] = {
                **{form: partial(queries.sparks, operator, form) for form in operator.spark},
                **{form: partial(queries.here, operator, form) for form in operator.here},
            }
            for form, run in runs.items():
                taken = run()
                found[operator.name].setdefault(form, []).append(taken)
                print(f"   round {number}: {operator.name}, {form}: {_said(taken)}", flush=True)
    return found


def best(rounds: Sequence[Taken]) -> Taken:
    """Return the least of each figure: other work only ever adds to it."""
    return Taken(*map(min, zip(*rounds, strict=True)))


def rate_by(rounds: Sequence[Taken], other: Sequence[Taken]) -> float:
    """Return the rate by that of another form: the median of the rounds, as machines are slower for minutes at a time.

    Within a round both have run within a minute or two.
    """
    return median(theirs.clock_us / ours.clock_us for ours, theirs in zip(rounds, other, strict=True))


def _said(taken: Taken) -> str:
    return f"{1e6 / taken.clock_us:,.0f} rows/s, {taken.java_us:.1f} us of JVM, {taken.python_us:.1f} us of Python"
