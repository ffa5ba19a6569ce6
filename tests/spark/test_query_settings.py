"""What Spark's defaults get wrong for `stateful()` is set for its query alone: no other one of the session has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from orders import running_total_topology, seeded_orders
from statestore.spark import stateful
from statestore.spark.query_settings import carried_by, settings_of
from tests.support.spark.queries import OrderQuery

APPLY = "apply_in_pandas_with_state"  # starts faster
PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@pytest.fixture
def fresh(spark: SparkSession) -> SparkSession:
    """A session of which nothing was asked yet."""
    return spark.newSession()


def totals(query: OrderQuery, shards: int, name: str = "state", **options: Any) -> DataFrame:
    return stateful(
        query.records(),
        running_total_topology(),
        shards=shards,
        state_location=query.home / name,
        local_dir=str(query.home / "local"),
        **options,
    )


def run(rows: DataFrame, checkpoint: Path) -> None:
    """Run to the end of the input as users do, with a projection on top."""
    writer = rows.select("key", "value").writeStream.format("noop").trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


def recorded(checkpoint: Path) -> dict[str, str]:
    """Return the settings that Spark recorded with its first batch."""
    settings: dict[str, str] = json.loads((checkpoint / "offsets/0").read_text().splitlines()[1])["conf"]
    return settings


def state_partitions(checkpoint: Path) -> int:
    return sum(path.name.isdigit() for path in (checkpoint / "state/0").iterdir())


@pytest.fixture
def query(fresh: SparkSession, tmp_path: Path) -> OrderQuery:
    query = OrderQuery(fresh, tmp_path, "")
    query.add(seeded_orders(20, 1))
    return query


def test_each_query_of_a_session_has_a_state_partition_for_each_of_its_shards(query: OrderQuery) -> None:
    # Both are made before either is started.
    few = totals(query, 2, "few")
    many = totals(query, 3, "many", via=APPLY)
    assert query.spark.conf.get(PARTITIONS) == "200"
    run(few, query.home / "few-checkpoint")
    run(many, query.home / "many-checkpoint")
    assert (state_partitions(query.home / "few-checkpoint"), state_partitions(query.home / "many-checkpoint")) == (2, 3)
    assert recorded(query.home / "few-checkpoint")[PROVIDER].endswith("RocksDBStateStoreProvider")
    assert recorded(query.home / "many-checkpoint")[PROVIDER].endswith("HDFSBackedStateStoreProvider")
    # Batch jobs have what the user set, and so has the next query.
    assert query.spark.conf.get(PARTITIONS) == "200"
    assert query.spark.conf.get(PROVIDER).endswith("HDFSBackedStateStoreProvider")


def test_what_the_user_set_counts_also_between_stateful_and_start(query: OrderQuery) -> None:
    rows = totals(query, 3, via=APPLY)
    query.spark.conf.set(PARTITIONS, "2")
    run(rows, query.home / "checkpoint")
    assert state_partitions(query.home / "checkpoint") == 2


def test_of_several_in_one_query_the_largest_number_holds(query: OrderQuery) -> None:
    both = totals(query, 3, "three").union(totals(query, 4, "four")).union(totals(query, 2, "two"))
    wanted = {PARTITIONS: "4", PROVIDER: "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"}
    assert settings_of(carried_by(both._jdf.queryExecution().analyzed())) == wanted


def test_a_query_that_began_otherwise_than_planned_is_refused_before_anything_is_committed(query: OrderQuery) -> None:
    # Another session sees the plan, but was not told of it.
    totals(query, 2, via=APPLY).createGlobalTempView("totals")
    try:
        with pytest.raises(StreamingQueryException, match=r"StatePartitionsError.* 200 .*planned 2: .* new checkpoint"):
            run(query.spark.newSession().table("global_temp.totals"), query.home / "checkpoint")
    finally:
        query.spark.catalog.dropGlobalTempView("totals")
    assert {path.name for path in (query.home / "state").iterdir()} == {"statestore.json", "starting"}
