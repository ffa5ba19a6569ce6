"""A query stops, its state gets another number of shards, and a new query goes on with it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from orders import expected_totals, seeded_orders
from statestore.errors import RecoveryError
from statestore.errors.new_state import StatePointersError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import HEADS_DIRECTORY
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import METADATA_NAME, read_metadata
from statestore.spark import __main__ as command_line
from statestore.spark import read_pointers, read_store, rescale
from statestore.spark.checkpoints.checkpoint import read_source_offsets
from statestore.spark.checkpoints.rescale import Rescaled
from tests.support.spark.queries import SHARDS, OrderQuery

ORDERS = seeded_orders(160)
MORE_SHARDS = 5


def rescale_to(query: OrderQuery, to: Path, shards: int, **options: Any) -> Rescaled:
    """Rescale what a stopped query has left."""
    locations = {"checkpoint_location": query.home / "checkpoint", "state_location": query.home / "state"}
    return rescale(query.spark, **locations, to=to, shards=shards, **options)


@pytest.fixture(scope="module")
def stopped_for_all(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> OrderQuery:
    """A query of three shards that has processed half of the orders."""
    query = OrderQuery(spark, tmp_path_factory.mktemp("stopped"), "apply_in_pandas_with_state")
    query.add(ORDERS[:40])
    query.add(ORDERS[40:80])
    query.run()
    return query


@pytest.fixture
def stopped(stopped_for_all: OrderQuery, tmp_path: Path) -> OrderQuery:
    """All that the query has left, for one test alone, but heads: its listener may still write them."""
    without_heads = shutil.ignore_patterns(HEADS_DIRECTORY)
    shutil.copytree(stopped_for_all.home, tmp_path, ignore=without_heads, dirs_exist_ok=True)
    return OrderQuery(stopped_for_all.spark, tmp_path, stopped_for_all.via)


def test_totals_are_those_of_a_query_that_was_never_stopped(stopped: OrderQuery, spark: SparkSession) -> None:
    home = stopped.home
    made = rescale_to(stopped, home / "rescaled" / "state", MORE_SHARDS)
    assert (made.report.from_shards, made.report.shards) == (SHARDS, MORE_SHARDS)
    assert made.report.entries == len({order.customer for order in ORDERS[:80]})
    assert made.offsets.batch_id == 1
    going_on = OrderQuery(spark, home / "rescaled", stopped.via)
    going_on.add(ORDERS[80:120])
    going_on.run(shards=MORE_SHARDS)
    going_on.add(ORDERS[120:])
    shutil.rmtree(going_on.home / "local")
    going_on.run(shards=MORE_SHARDS)
    assert going_on.totals() == expected_totals(ORDERS)
    assert stopped.totals() == expected_totals(ORDERS[:80])


def test_shards_that_nothing_was_recorded_of_yet_are_read_too(stopped: OrderQuery, spark: SparkSession) -> None:
    home = stopped.home
    rescale_to(stopped, home / "rescaled" / "state", MORE_SHARDS)
    going_on = OrderQuery(spark, home / "rescaled", stopped.via)
    one = next(order for order in ORDERS[80:])
    going_on.add([one])
    going_on.run(shards=MORE_SHARDS)
    assert going_on.totals() == expected_totals([*ORDERS[:80], one])


def test_a_dry_run_says_where_to_go_on_and_writes_nothing(stopped: OrderQuery, spark: SparkSession) -> None:
    home = stopped.home
    dry = rescale_to(stopped, home / "new", 2, dry_run=True)
    assert not (home / "new").exists()
    assert "dry run" in str(dry)
    assert "begins after batch 1" in str(dry)
    assert dry.offsets == read_source_offsets(spark, home / "checkpoint")


def test_offsets_are_those_of_the_last_committed_batch(stopped: OrderQuery, spark: SparkSession) -> None:
    checkpoint = stopped.home / "checkpoint"
    offsets = read_source_offsets(spark, checkpoint)
    assert (offsets.batch_id, offsets.uncommitted_batch_id) == (1, None)
    assert [json.loads(source or "") for source in offsets.sources] == [{"logOffset": 1}]
    (checkpoint / "offsets" / "2").write_text('v1\n{}\n{"orders":{"0":9}}\n-\n')
    assert read_source_offsets(spark, checkpoint) == (1, offsets.sources, 2)
    (checkpoint / "commits" / "2").write_text("v1\n{}")
    assert read_source_offsets(spark, checkpoint) == (2, ('{"orders":{"0":9}}', None), None)
    assert read_source_offsets(spark, checkpoint, 1) == (1, offsets.sources, None), "later ones are committed"
    assert read_source_offsets(spark, shutil.copytree(checkpoint, checkpoint.with_name("c[1]*{a}"))).batch_id == 2
    # The line ends that only Unicode knows are part of a string, and Spark writes none after the last line.
    other = '{"a\u2028b\u0085c\x0bd":{"0":9}}'
    (checkpoint / "offsets" / "2").write_text(f"v1\n{{}}\n-\n{other}", encoding="utf-8")
    assert read_source_offsets(spark, checkpoint) == (2, (None, other), None)


@pytest.mark.parametrize(
    ("damage", "problem"),
    [
        ("offsets/1 begins otherwise", r"offsets/1: begins with .*'v2'.*, not with"),
        ("offsets/1 is empty", r"offsets/1: is missing or empty"),
        ("offsets/1 is gone", r"offsets/1: is missing"),
        ("no commits", r"commits: can't be read"),
        ("commits are empty", r"has no committed batch"),
    ],
)
def test_a_checkpoint_that_does_not_say_where_its_sources_are_is_named(
    tmp_path: Path, spark: SparkSession, damage: str, problem: str
) -> None:
    (tmp_path / "commits").mkdir()
    (tmp_path / "offsets").mkdir()
    (tmp_path / "commits" / "1").write_text("v1\n{}")
    (tmp_path / "offsets" / "1").write_text("v1\n{}\n{}\n")
    assert read_source_offsets(spark, tmp_path).batch_id == 1
    if damage == "no commits":
        shutil.rmtree(tmp_path / "commits")
    elif damage == "commits are empty":
        (tmp_path / "commits" / "1").unlink()
    elif damage == "offsets/1 is gone":
        (tmp_path / "offsets" / "1").unlink()
    else:
        (tmp_path / "offsets" / "1").write_text("" if "empty" in damage else "v2\n{}\n{}\n")
    with pytest.raises(RecoveryError, match=problem):
        read_source_offsets(spark, tmp_path)


def test_a_checkpoint_of_another_state_is_refused(stopped: OrderQuery, spark: SparkSession) -> None:
    home = stopped.home
    path = home / "state" / METADATA_NAME
    metadata = read_metadata(DurableLocation(home / "state"))
    assert metadata is not None
    path.write_text(replace(metadata, state_id="0" * 32).to_json())
    with pytest.raises(StatePointersError, match=f"is of state {'0' * 32}"):
        rescale_to(stopped, home / "new", 2)


def test_the_command_line_prints_pointers_and_offsets(
    stopped: OrderQuery, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint = str(stopped.home / "checkpoint")
    assert command_line.main(["pointers", checkpoint]) == 0
    printed = capsys.readouterr().out.splitlines()
    pointers = [CommitPointer.from_json(line) for line in printed]
    assert sorted(printed) == sorted(row.pointer for row in read_pointers(spark, checkpoint).collect())
    assert {pointer.shard for pointer in pointers} == set(range(SHARDS))
    assert command_line.main(["offsets", checkpoint]) == 0
    assert json.loads(capsys.readouterr().out) == {"logOffset": 1}
    assert command_line.main(["offsets", str(stopped.home / "input")]) == 1
    assert "error: " in capsys.readouterr().err


def test_a_read_of_the_new_state_shows_each_entry_once(stopped: OrderQuery, spark: SparkSession) -> None:
    home = stopped.home
    before = read_store(spark, "totals", checkpoint_location=home / "checkpoint", state_location=home / "state")
    made = rescale_to(stopped, home / "new", 2)
    assert sum(made.report.stores["totals"].entries) == before.count() > 0
    assert read_store(spark, "totals", state_location=home / "new").count() == before.count()
