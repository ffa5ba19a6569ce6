"""Heads of real queries: each says what Spark has committed, without Spark."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from orders import running_total_topology, seeded_orders
from statestore.errors import RecoveryError
from statestore.recovery.heads.head import HEADS_DIRECTORY
from statestore.recovery.location.durable_location import DurableLocation
from statestore.spark import read_store, register_data_source, stateful
from statestore.spark.checkpoints.checkpoint import recorded_pointers
from tests.support.spark.heads import wait_for_head
from tests.support.spark.queries import SHARDS, OrderQuery
from upgrade_tools.cli.app import main

pytestmark = pytest.mark.slow

ORDERS = seeded_orders(60)
VIAS = ("transform_with_state", "apply_in_pandas_with_state")


@pytest.mark.parametrize("via", VIAS)
def test_a_head_is_what_spark_has_committed_also_after_a_restart(spark: SparkSession, tmp_path: Path, via: str) -> None:
    query = OrderQuery(spark, tmp_path, via)
    query.add(ORDERS[:20], ORDERS[20:21])
    query.run()
    first = wait_for_head(tmp_path / "state", 1)
    assert [pointer.to_json() for pointer in first.pointers] == sorted(
        recorded_pointers(spark, str(tmp_path / "checkpoint"))
    )
    assert [(batch.batch, batch.records) for batch in first.figures.recent] == [(0, 20), (1, 1)]
    query.add(ORDERS[20:21])  # the shard that the batch before has changed, and no other
    query.run()
    second = wait_for_head(tmp_path / "state", 2)
    assert second.query == first.query
    assert second.run != first.run
    assert second.figures.recent[:-1] == first.figures.recent
    assert {shard for shard, call in second.figures.calls.items() if call.sizes["totals"].entries} == {0, 1}
    assert [pointer.to_json() for pointer in second.pointers] == sorted(
        recorded_pointers(spark, str(tmp_path / "checkpoint"))
    )


@pytest.mark.parametrize("via", VIAS)
def test_a_restart_without_a_head_publishes_at_once(spark: SparkSession, tmp_path: Path, via: str) -> None:
    query = OrderQuery(spark, tmp_path, via)
    query.add(ORDERS[:20])
    query.run()
    wait_for_head(tmp_path / "state", 0)
    shutil.rmtree(tmp_path / "state" / HEADS_DIRECTORY)
    query.add(ORDERS[20:21])
    query.run()
    head = wait_for_head(tmp_path / "state", 1)
    assert {batch.batch for batch in head.figures.recent} == {1}
    assert len(head.changed) == 1
    assert [pointer.to_json() for pointer in head.pointers] == sorted(
        recorded_pointers(spark, str(tmp_path / "checkpoint"))
    )


def test_an_older_checkpoint_takes_the_head_back(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    query = OrderQuery(spark, tmp_path, VIAS[0])
    query.add(ORDERS[:20])
    query.run()
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "older")
    query.add(ORDERS[20:40], ORDERS[40:])
    query.run()
    assert wait_for_head(tmp_path / "state", 2).pointers[0].version == 3
    (tmp_path / "input" / "orders-0002.parquet").unlink()
    query.run(checkpoint="older", accept_older_checkpoint=True)
    assert [pointer.version for pointer in wait_for_head(tmp_path / "state", 1).pointers] == [2, 2]
    assert "the head goes back: from batch 2 of query" in caplog.text
    assert len(list((tmp_path / "state" / HEADS_DIRECTORY).iterdir())) == 1


def test_tools_read_what_the_head_says(spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    query = OrderQuery(spark, tmp_path, VIAS[0])
    query.add(ORDERS[:40], ORDERS[40:])
    query.run()
    head = wait_for_head(tmp_path / "state", 1)
    state = str(tmp_path / "state")
    assert main(["scan", state, "--json"]) == 0
    by_head, said = capsys.readouterr()
    assert f"as of {head.describe()}" in said
    pointers = tmp_path / "pointers"
    pointers.write_text("\n".join(recorded_pointers(spark, str(tmp_path / "checkpoint"))))
    assert main(["scan", state, "--json", "--pointers", str(pointers)]) == 0
    assert capsys.readouterr().out == by_head
    assert main(["verify", state, "--pointers", str(pointers)]) == 0
    assert f"head: {head.describe()}, as the pointers that were given" in capsys.readouterr().out


def test_a_dataframe_is_of_the_head_by_which_it_was_first_used(spark: SparkSession, tmp_path: Path) -> None:
    register_data_source(spark)
    query = OrderQuery(spark, tmp_path, VIAS[1])
    state = str(tmp_path / "state")
    query.add(ORDERS[:20])
    query.run()
    wait_for_head(tmp_path / "state", 0)
    first = spark.read.format("headerstate").load(state)
    rows = sorted(first.collect())
    assert rows == sorted(query.rows_of("totals"))
    assert rows == sorted(read_store(spark, "totals", state_location=state).collect())
    query.add(ORDERS[20:])
    query.run()
    wait_for_head(tmp_path / "state", 1)
    assert sorted(first.collect()) == rows
    second = spark.read.format("headerstate").load(state)
    assert sorted(second.collect()) == sorted(query.rows_of("totals"))
    shutil.rmtree(tmp_path / "state" / HEADS_DIRECTORY)
    with pytest.raises(RecoveryError, match=r"has no head.*Give read_store the query's checkpoint_location"):
        read_store(spark, "totals", state_location=state)
    with pytest.raises(
        PySparkException, match="'checkpoint' of the data source headerstate is missing, and there is no head"
    ):
        spark.read.format("headerstate").load(state).collect()


class Unanswering(DurableLocation):
    """A location that does not answer when a head is written, until it is released."""

    is_released = threading.Event()

    def _write(self, name: str, content: Any) -> None:
        if name.startswith(HEADS_DIRECTORY):
            self.is_released.wait(60)
        super()._write(name, content)


def test_heads_wait_for_no_location_but_their_own(spark: SparkSession, tmp_path: Path) -> None:
    queries = [OrderQuery(spark, tmp_path / name, VIAS[1]) for name in ("stuck", "sound")]
    for query, kind in zip(queries, (Unanswering, DurableLocation), strict=True):
        query.state_location = kind(tmp_path / query.home.name / "state")
        query.add(ORDERS[:5])
    rows = stateful(
        queries[0].records(), running_total_topology(), shards=SHARDS, state_location=queries[0].state_location
    )
    checkpoint = str(tmp_path / "stuck" / "checkpoint")
    stuck = rows.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    try:
        stuck.processAllAvailable()
        queries[1].run()
        wait_for_head(tmp_path / "sound" / "state", 0)
    finally:
        Unanswering.is_released.set()
        stuck.stop()
    wait_for_head(tmp_path / "stuck" / "state", 0)
