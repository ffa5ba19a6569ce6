"""What only the start of a query shows: where its checkpoint lies, through what it was made, what a sink remembers."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from orders import running_total_topology, seeded_orders
from statestore import DurableLocation
from statestore.errors import LocationError, RecoveryError
from statestore.errors.state import CheckpointLocationError, LocationSharedError
from statestore.recovery.location.schemes import problem_of_checkpoint
from statestore.recovery.metadata.state_metadata import agree_on_metadata, metadata_of_stores
from statestore.spark import error_of, read_pointers, stateful
from statestore.spark.datasource.committed import state_in
from statestore.spark.start_refusal import relation_of
from tests.support.spark.queries import OrderQuery, run_to_the_end

APPLY, TRANSFORM = "apply_in_pandas_with_state", "transform_with_state"


@pytest.mark.parametrize(
    ("state", "checkpoint", "relation"),
    [
        ("file:///a/state", "file:/a/checkpoint", None),
        ("file:///a/state", "file:/a/state-checkpoint", None),
        ("file:///a/b/state", "file:/a/b/", "lies within"),
        ("file:///a/state", "/a//state/checkpoint", "has within it"),
        ("file:///a/state", "file:/a/state/", "is also"),
        ("s3://bucket/state", "s3a://bucket/state/cp", "has within it"),
        ("abfss://c@a.dfs.core.windows.net/s", "wasbs://c@a.blob.core.windows.net/s/cp", "has within it"),
        ("abfss://c@a.dfs.core.windows.net/s", "abfss://d@a.dfs.core.windows.net/s/cp", None),
        ("s3://bucket/state", "s3a://other/state/cp", None),
        ("s3://key:secret@bucket/state?region=eu", "s3a://bucket/state", "is also"),
        ("s3://bucket/state", "hdfs://bucket/state", None),
        # A location is a URI; of a checkpoint Hadoop tells the path as it is.
        ("file:///a%20b/c%2Bd/%C3%BC/state", "file:/a b/c+d/ü", "lies within"),
        ("file:///a/%23b%3F%25", "file:/a/#b?%/checkpoint", "has within it"),
        ("s3://bucket/a%20b?region=eu", "s3a://bucket/a b", "is also"),
        ("file:///a%2520b", "file:/a%20b", "is also"),
        ("file:///a/checkpoint/../state", "file:/a/checkpoint", None),
        ("s3://bucket/a/../checkpoint/state", "s3a://bucket/checkpoint", "lies within"),
    ],
)
def test_how_a_location_stands_to_a_checkpoint(state: str, checkpoint: str, relation: str | None) -> None:
    assert relation_of(state, checkpoint) == relation


def test_a_location_behind_a_link_is_where_that_leads_to(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "checkpoint")
    assert relation_of((tmp_path / "link/state").as_uri(), str(tmp_path / "checkpoint")) == "lies within"


def test_a_checkpoint_is_no_state_location(tmp_path: Path) -> None:
    for name in ("offsets", "commits", "sources"):
        (tmp_path / name).mkdir()
    with pytest.raises(CheckpointLocationError, match=r"is also the checkpoint.*beside each other"):
        agree_on_metadata(DurableLocation(tmp_path), metadata_of_stores((), 1, "key"))
    assert not (tmp_path / "statestore.json").exists()


def test_paths_where_nothing_is_are_said_as_such(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecoveryError, match="there is no state, nor anything else: is the path right"):
        state_in(DurableLocation(tmp_path / "nowhere"), None)
    (tmp_path / "other").write_text("here")
    with pytest.raises(RecoveryError, match="there is no state; was the query started"):
        state_in(DurableLocation(tmp_path), None)
    assert "there is nothing at" in (problem_of_checkpoint(tmp_path / "nowhere") or "")
    assert "there is no checkpoint at" in (problem_of_checkpoint(tmp_path) or "")
    assert problem_of_checkpoint("/nowhere", default_filesystem="hdfs://node") is None
    (tmp_path / "offsets").mkdir()
    assert problem_of_checkpoint(tmp_path) is problem_of_checkpoint(f"file:{tmp_path}") is None
    (tmp_path / "a#b?c%20" / "offsets").mkdir(parents=True)
    assert problem_of_checkpoint(tmp_path / "a#b?c%20") is None
    assert problem_of_checkpoint("s3a://bucket/checkpoint") is None  # which only Spark can see
    monkeypatch.setenv("SPARK_REMOTE", "sc://server")
    assert problem_of_checkpoint("/nowhere") is None


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> OrderQuery:
    home = tmp_path / "ü+home"  # which a URI escapes, and Hadoop does not
    home.mkdir()
    made = OrderQuery(spark, home, APPLY)
    made.add(seeded_orders(8))
    return made


def totals(query: OrderQuery, state: str = "state") -> DataFrame:
    places = {"state_location": query.home / state, "local_dir": str(query.home / "local")}
    return stateful(query.records(), running_total_topology(), shards=1, **places)


def test_a_location_within_the_checkpoint_is_refused_in_the_first_line(query: OrderQuery) -> None:
    writer = totals(query, "checkpoint/mine").writeStream.format("noop").trigger(availableNow=True)
    running = writer.option("checkpointLocation", str(query.home / "checkpoint")).start()
    with pytest.raises(StreamingQueryException) as caught:
        running.awaitTermination()
    assert "errors.state.LocationError: state location file:" in str(caught.value).splitlines()[0]
    failure = error_of(running)
    assert failure is not None
    assert failure.kind is LocationError
    assert failure.fields["relation"] == "lies within"
    assert str(caught.value).splitlines()[-1] == str(failure)


@pytest.mark.parametrize("home", [None, "checkpoints"])
def test_a_query_without_a_checkpoint_leaves_its_location_to_one_with(query: OrderQuery, home: str | None) -> None:
    checkpoints = "spark.sql.streaming.checkpointLocation"
    if home is not None:
        query.spark.conf.set(checkpoints, str(query.home / home))
    try:
        running = totals(query).writeStream.format("noop").trigger(availableNow=True).start()
    finally:
        query.spark.conf.unset(checkpoints)
    with pytest.raises(StreamingQueryException, match=r"LocationError.* without a checkpointLocation"):
        running.awaitTermination()
    assert not list((query.home / "state").glob("shards/*/deltas/*"))
    run_to_the_end(totals(query).writeStream.format("noop"), query.home / "checkpoint")
    assert query.totals()


def test_another_entry_point_is_said_as_such(query: OrderQuery) -> None:
    query.run()
    query.add(seeded_orders(8))
    with pytest.raises(StreamingQueryException) as caught:
        query.run(via=TRANSFORM)
    failure = error_of(caught.value)
    assert failure is not None
    assert (failure.error, failure.fields) == ("TopologyError", {"recorded": APPLY, "asked": TRANSFORM})


def test_a_checkpoint_that_spark_can_not_read_is_said_as_such(query: OrderQuery) -> None:
    query.home = query.home / "a b"
    query.home.mkdir()
    query.add(seeded_orders(8))
    query.run(state_location=query.home / "state")
    with pytest.raises(RecoveryError, match="finds nothing in a path with ' ': rename it, or go by the head"):
        read_pointers(query.spark, query.home / "checkpoint")


def test_a_sink_that_remembers_another_checkpoint_is_told_of_before_it_drops_anything(
    query: OrderQuery, caplog: pytest.LogCaptureFixture
) -> None:
    def run(state: str) -> None:
        writer = totals(query, state).writeStream.format("parquet").option("path", str(query.home / "out"))
        run_to_the_end(writer, query.home / "checkpoint")

    run("state")
    assert caplog.text == ""
    shutil.rmtree(query.home / "checkpoint")
    query.add(seeded_orders(8))
    with pytest.raises(StreamingQueryException):  # of the batch after the skipped one, which finds no state
        run("state-2")
    assert "remembers the batches of an older one" in caplog.text


def test_two_operators_of_one_query_need_two_locations(query: OrderQuery) -> None:
    first = totals(query)
    again = first.selectExpr("key", "value", "topic", "0 partition", "0L offset", "timestamp", "headers")
    with pytest.raises(LocationSharedError, match="two stateful\\(\\) operators of one query"):
        stateful(again, running_total_topology(), shards=1, state_location=query.home / "state")
    with pytest.raises(AnalysisException) as caught:
        first.union(totals(query))
    failure = error_of(caught.value)
    assert failure is not None
    assert failure.kind is LocationError
