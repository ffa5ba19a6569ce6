"""The Spark data source: the state of a real query as rows, its changes, and a query that starts from rows."""

from __future__ import annotations

import threading
from functools import cached_property, reduce
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from orders import START_MS, expected_totals, seeded_orders
from statestore.errors import InputSchemaError, RecoveryError, StateStoreError, TargetNotEmptyError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from statestore.spark import __main__ as command_line
from statestore.spark import committed_options, read_store, register_data_source, write_initial_state
from statestore.spark.checkpoints.checkpoint import committed_pointers_option
from tests.support.spark.every_kind import STORES, WINDOW_MS, builders, entries, every_kind_topology
from tests.support.spark.queries import SHARDS, OrderQuery
from tests.support.spark.versions import not_in_spark_4_0

ORDERS = seeded_orders(150)
BATCHES = [ORDERS[start : start + 50] for start in range(0, 150, 50)]
APPLY = "apply_in_pandas_with_state"  # starts faster


class Ran:
    """A query that has run, and reads of its state."""

    def __init__(self, query: OrderQuery) -> None:
        self.spark = query.spark
        self.home = query.home
        self.checkpoint = str(query.home / "checkpoint")
        self.location = str(query.home / "state")

        self._read: dict[str, DataFrame] = {}

    def load(self, store: str, **options: object) -> DataFrame:
        reader = self.spark.read.format("headerstate").option("store", store).option("checkpoint", self.checkpoint)
        return reader.options(**options).load(self.location)  # type: ignore[arg-type]

    @cached_property
    def committed(self) -> dict[str, str]:
        return committed_options(self.spark, self.checkpoint)

    def load_committed(self, store: str, **options: object) -> DataFrame:
        """Load a store as `load` does, but look into the checkpoint once for all."""
        reader = self.spark.read.format("headerstate").option("store", store).options(**self.committed)
        return reader.options(**options).load(self.location)  # type: ignore[arg-type]

    def read(self, store: str) -> DataFrame:
        """Read a store, the first time that it is asked for."""
        if store not in self._read:
            places = {"checkpoint_location": self.checkpoint, "state_location": self.location}
            self._read[store] = read_store(self.spark, store, **places).cache()  # type: ignore[arg-type]
        return self._read[store]


def run(spark: SparkSession, home: Path, batches: list[int], shards: int = SHARDS, via: str = APPLY) -> Ran:
    (home / "input").mkdir(parents=True)
    query = OrderQuery(spark, home, via)
    for batch in batches:
        query.add(BATCHES[batch])
    query.run(every_kind_topology(), shards=shards)
    register_data_source(spark)
    return Ran(query)


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    return run(spark, tmp_path_factory.mktemp("ran"), [0, 1, 2])


@pytest.mark.parametrize("store", ["versions", "windows"])
def test_a_store_is_rows_with_a_task_for_each_shard(ran: Ran, store: str) -> None:
    rows = ran.load(store)
    assert rows.schema == ran.read(store).schema
    assert rows.rdd.getNumPartitions() == SHARDS
    assert sorted(map(repr, rows.collect())) == sorted(map(repr, ran.read(store).collect()))


def test_a_retained_version_is_read_as_it_was(ran: Ran, capsys: pytest.CaptureFixture[str]) -> None:
    first = ran.load("totals", batchId=0)
    rows = first.collect()
    assert {bytes(row.key).decode(): row.timestamp_ms for row in rows} == {
        customer: timestamp_ms for customer, (_, timestamp_ms, _) in expected_totals(BATCHES[0]).items()
    }
    assert {row.version for row in rows} == {1}
    assert command_line.main(["pointers", ran.checkpoint, "--batch-id", "0"]) == 0
    printed = capsys.readouterr().out
    assert sorted(printed.split()) == sorted(committed_pointers_option(ran.spark, ran.checkpoint, 0).split())
    by_pointers = ran.spark.read.format("headerstate").options(store="totals", pointers=printed).load(ran.location)
    assert entries(by_pointers) == entries(first)
    (ran.home / "pointers").write_text(committed_pointers_option(ran.spark, ran.checkpoint))
    latest = ran.spark.read.format("headerstate").options(store="totals", pointers=ran.home / "pointers")
    assert entries(latest.load(ran.location)) == entries(ran.read("totals"))


def test_all_that_is_made_of_one_load_is_of_one_batch(ran: Ran) -> None:
    logs = [Path(ran.checkpoint, log, "2") for log in ("commits", "offsets")]
    content = [log.read_bytes() for log in logs]
    for log in logs:
        log.unlink()
    try:
        loaded = ran.load("totals")
        before = loaded.count(), loaded.agg(f.max("timestamp_ms")).first()
    finally:
        for log, written in zip(logs, content, strict=True):
            log.write_bytes(written)
    later = loaded.where("shard >= 0")
    assert (later.count(), later.agg(f.max("timestamp_ms")).first()) == before
    assert ran.load("totals").agg(f.max("timestamp_ms")).first() != before[1]


@not_in_spark_4_0
def test_filters_are_pushed_down_where_that_is_asked_for(ran: Ran) -> None:
    last_window_ms = START_MS + 140_000
    for store, condition in (
        ("totals", f.col("key") == b"ada"),
        ("windows", (f.col("start_ms") >= last_window_ms) & f.col("key").isin(b"ada", b"chen", b"hiro")),
        ("versions", f.col("end_ms").isNull()),
        ("sessions", ~(f.col("shard") == 1) & (f.col("end_ms") < last_window_ms)),
    ):
        expected = ran.read(store).where(condition)
        pushed = ran.load_committed(store, pushFilters="true").where(condition)
        assert entries(pushed) == entries(expected) != [], store
        assert "Filter (" not in pushed._jdf.queryExecution().executedPlan().toString()
    assert last_window_ms % WINDOW_MS == 0
    one_shard = ran.load_committed("totals", pushFilters="true", trustKeys="true").where(f.col("key") == b"ada")
    assert one_shard.rdd.getNumPartitions() == 1
    assert [bytes(row.key) for row in one_shard.collect()] == [b"ada"]


@not_in_spark_4_0
def test_without_being_asked_nothing_is_pushed_down_because_spark_mixes_up_filters(ran: Ran) -> None:
    # If the second half of this fails, Spark has learned to keep them apart: then pushFilters can be the default.
    rows = ran.load("totals", includeHeaders="false")
    assert rows.where(f.col("key") == b"ada").count() == 1
    assert rows.count() == len(expected_totals(ORDERS))
    assert "headers" not in rows.columns
    pushing = ran.load("totals", pushFilters="true")
    assert pushing.where(f.col("key") == b"ada").count() == 1
    with pytest.raises(AnalysisException, match="DataFrameReusedError"):
        pushing.where(f.col("key") == b"chen").count()
    assert pushing.count() == 1


def test_the_change_feed_has_what_batches_wrote(ran: Ran) -> None:
    changes = ran.load("totals", readChangeFeed="true", changeStartBatchId=1).collect()
    for batch, orders in ((1, BATCHES[1]), (2, BATCHES[2])):
        written = {bytes(row.key).decode(): row.timestamp_ms for row in changes if row.batch_id == batch}
        assert written == {order.customer: order.timestamp_ms for order in orders}
    assert {row.version for row in changes} == {2, 3}
    assert {row.change for row in changes} == {"put"}
    assert all(len(row.headers) >= 3 for row in changes)


def test_changes_applied_to_a_version_make_the_later_one(ran: Ran) -> None:
    state: dict[tuple[object, ...], object] = {}
    feed = ran.load("sessions", readChangeFeed="true", changeStartBatchId=0, changeEndBatchId=1).collect()
    for row in sorted(feed, key=lambda row: (row.shard, row.version, row.position)):
        if row.change == "delete":
            state.pop(place_of(row), None)
        else:
            state[place_of(row)] = row.value
    assert {row.change for row in feed} == {"put", "delete"}
    assert state == {place_of(row): row.value for row in ran.load("sessions", batchId=1).collect()}


def place_of(row: Row) -> tuple[object, ...]:
    return (row.shard, bytes(row.key), row.start_ms, row.end_ms)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"batchId": 99}, "RecoveryError.*batch 99 can't be read"),
        ({"checkpoint": "/nowhere"}, "RecoveryError: /nowhere"),
        ({"workDir": "/nowhere"}, "DataSourceOptionError.*'workDir'.*not a directory"),
        ({"store": "nothing"}, r"DataSourceOptionError.*'store'.*\['sessions', 'totals', 'versions', 'windows'\]"),
        ({"readChangeFeed": "true", "changeStartBatchId": 7}, "DataSourceOptionError.*the last batch is 2"),
    ],
)
def test_what_can_not_be_read_is_said(ran: Ran, options: dict[str, object], problem: str) -> None:
    with pytest.raises(PySparkException, match=f"(?s){problem}"):
        ran.load(**{"store": "totals", **options}).collect()  # type: ignore[arg-type]


def test_reads_of_several_threads_have_their_answers(ran: Ran) -> None:
    counts: list[int] = []
    threads = [threading.Thread(target=lambda: counts.append(ran.load("totals").count())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [len(expected_totals(ORDERS))] * 2


def rows_of_all_stores(ran: Ran) -> DataFrame:
    loaded = (ran.load_committed(store).withColumn("store", f.lit(store)) for store in STORES)
    return reduce(DataFrame.unionByName, loaded)


def test_a_query_goes_on_from_rows_as_if_it_had_never_stopped(ran: Ran, spark: SparkSession, tmp_path: Path) -> None:
    before = run(spark, tmp_path / "before", [0, 1], shards=1)
    location = tmp_path / "after" / "state"
    rows = rows_of_all_stores(before).cache()
    made = write_initial_state(rows, location, stores=builders(), shards=2)
    assert made.entries["totals"] == len(expected_totals(ORDERS[:100]))
    not_started = spark.read.format("headerstate").option("store", "windows").load(str(location))
    assert entries(not_started) == entries(rows.where("store = 'windows'"))
    after = run(spark, tmp_path / "after", [2], shards=2)
    for store in STORES:
        assert entries(after.load_committed(store)) == entries(ran.read(store)), store


def test_what_fails_leaves_nothing_that_is_state(ran: Ran, spark: SparkSession, tmp_path: Path) -> None:
    rows, location = ran.read("totals"), tmp_path / "state"
    keyless = rows.withColumn("key", f.when(f.col("key") != b"ada", f.col("key")))
    with pytest.raises(PySparkException, match=r"StateRowError.*a row without a key"):
        write_initial_state(keyless, location, stores=builders()[:1], shards=2)
    with pytest.raises(InputSchemaError, match="'value': is missing"):
        write_initial_state(rows.drop("value"), location, stores=builders()[:1], shards=2)
    assert read_metadata(DurableLocation(location)) is None
    with pytest.raises(PySparkException, match="there is no state"):
        spark.read.format("headerstate").load(str(location)).count()
    made = write_initial_state(rows, location, stores=[builders()[0].spec], shards=2)
    assert made.entries == {"totals": rows.count()}
    with pytest.raises(TargetNotEmptyError):
        write_initial_state(rows, location, stores=builders()[:1], shards=2)


def test_a_dataframe_of_one_partition_is_saved(ran: Ran, spark: SparkSession, tmp_path: Path) -> None:
    rows = ran.read("totals")
    options = {"store": "totals", "kind": "headers-kv", "shards": "3"}
    with pytest.raises(PySparkException, match=r"ShardOverlapError.*write_initial_state\(\)"):
        rows.write.format("headerstate").mode("append").options(**options).save(str(tmp_path))
    assert read_metadata(DurableLocation(tmp_path)) is None
    rows.coalesce(1).write.format("headerstate").mode("append").options(**options).save(str(tmp_path))
    saved = spark.read.format("headerstate").load(str(tmp_path))
    assert entries(saved) == entries(rows)
    with pytest.raises(PySparkException, match="TargetNotEmptyError"):
        rows.coalesce(1).write.format("headerstate").mode("append").options(**options).save(str(tmp_path))


def test_a_read_in_the_program_raises_errors_as_they_are(ran: Ran, tmp_path: Path) -> None:
    with pytest.raises(RecoveryError, match="there is no state"):
        read_store(ran.spark, "totals", checkpoint_location=ran.checkpoint, state_location=tmp_path)
    with pytest.raises(StateStoreError, match="batch 77 can't be read"):
        committed_pointers_option(ran.spark, ran.checkpoint, 77)
