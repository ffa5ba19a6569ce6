"""State read, rescaled and made through Spark Connect, by a client that shares no directory with the server.

What runs in the client are the functions that take a session; they are called there, and their results come back.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as f

from orders import Order, expected_totals, running_total_topology, seeded_orders, write_orders
from show import held_totals
from statestore import Serdes, Stores
from statestore.errors import TargetNotEmptyError
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.spark import __main__ as command_line
from statestore.spark import (
    committed_options,
    read_pointers,
    read_store,
    register_data_source,
    rescale,
    stateful,
    write_initial_state,
)
from statestore.spark.checkpoints.rescale import Rescaled
from statestore.spark.dataframes.compaction import compacted_rows
from statestore.spark.datasource.options import MAX_POINTERS_BYTES
from tests.support.clusters.connect import THEIRS, ClientFailure, ConnectClient, ConnectServer
from tests.support.recovery.s3_server import S3, SECRET_KEY
from tests.support.spark.queries import KAFKA_ROWS, run_to_the_end
from tests.support.spark.versions import not_in_spark_4_0

SHARDS = 3
NAMES = ["ada", "bjarne", "chen", "dolores"]


def where_it_runs(spark: SparkSession) -> dict[str, Any]:
    spark.range(3).write.parquet(str(THEIRS / "numbers"))
    there = {name for name in os.environ if name.startswith("AWS_")}
    return {
        "numbers": spark.read.parquet(str(THEIRS / "numbers")).count(),
        "session": type(spark).__module__,
        "keys": there,
        "temporary": tempfile.gettempdir(),
    }


def rows_at(spark: SparkSession, path: str) -> list[Any]:
    return spark.read.parquet(path).collect()


def make_a_file(spark: SparkSession) -> None:
    Path("left").touch()


def test_client_and_server_share_no_directory(connect_server: ConnectServer, connect_client: ConnectClient) -> None:
    found = connect_client.call(where_it_runs)
    assert found == {
        "numbers": 3,
        "session": "pyspark.sql.connect.session",
        "keys": set(),
        "temporary": str(connect_client.home),
    }
    assert (connect_server.home / "numbers").is_dir()
    with pytest.raises(AssertionError, match=r"the client has made \['left'\]"):
        connect_client.call(make_a_file)
    (connect_client.home / "left").unlink()
    with pytest.raises(ClientFailure, match="PATH_NOT_FOUND"):
        connect_client.call(rows_at, str(THEIRS / "nothing"))


def entries_of(spark: SparkSession) -> DataFrame:
    rows = [Row(key=name.encode(), value=number, timestamp_ms=1000 + number) for number, name in enumerate(NAMES)]
    typed = spark.createDataFrame(rows, "key binary, value long, timestamp_ms long")
    headers = f.array(f.struct(f.lit("h").alias("key"), f.lit(b"x").alias("value")))
    # Eight bytes, the first one first, as Kafka's serde writes a number.
    return typed.withColumn("value", f.unhex(f.lpad(f.hex("value"), 16, "0"))).withColumn("headers", headers)


def make_state(spark: SparkSession, location: str) -> dict[str, Any]:
    store = Stores.timestamped_key_value_store_with_headers_builder(
        Stores.persistent_timestamped_key_value_store_with_headers("totals"), Serdes.string(), Serdes.int64()
    )
    entries = entries_of(spark)
    made = write_initial_state(entries, location, stores=[store], shards=SHARDS)
    register_data_source(spark)
    register_data_source(spark)  # once more does nothing
    with pytest.raises(TargetNotEmptyError, match=r"holds a state .statestore.json"):
        write_initial_state(entries, location, stores=[store], shards=SHARDS)
    saved = f"{location}-saved"
    options = {"store": "totals", "kind": "headers-kv", "shards": SHARDS, "shardBy": "key"}
    entries.coalesce(1).write.format("headerstate").mode("append").options(**options).save(saved)
    read = spark.read.format("headerstate").options(keyAs="string", valueAs="int64")
    rows = [read.load(each).orderBy("key").collect() for each in (location, saved)]
    return {
        "entries": dict(made.entries),
        "read": [[(row.key, row.value, row.timestamp_ms) for row in each] for each in rows],
        "headers": [[tuple(header) for header in row.headers] for row in rows[0][:1]],
    }


def test_a_state_is_made_and_read_where_the_server_is(connect_client: ConnectClient, connect_location: str) -> None:
    assert connect_client.call(make_state, connect_location) == {
        "entries": {"totals": 4},
        "read": [[(name, number, 1000 + number) for number, name in enumerate(NAMES)]] * 2,
        "headers": [[("h", b"x")]],
    }


@dataclass(frozen=True)
class Stopped:
    """A query of two batches that has stopped, as a client of the server names what it has left."""

    checkpoint: str
    location: str
    location_with_keys: str
    """The same, for who is not told by the environment how to reach it."""
    batches: tuple[list[Order], list[Order]]
    """What it has read; the first one is of one customer, so that nothing was committed of other shards."""

    @property
    def orders(self) -> list[Order]:
        """All of it, in order."""
        return [*self.batches[0], *self.batches[1]]


def run_totals(spark: SparkSession, source: str, checkpoint: str, location: str) -> None:
    records = spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1).parquet(source)
    rows = stateful(
        records,
        running_total_topology(),
        shards=SHARDS,
        state_location=location,
        via="apply_in_pandas_with_state",
    )
    run_to_the_end(rows.writeStream.format("noop"), Path(checkpoint))


@pytest.fixture(scope="module")
def stopped(connect_server: ConnectServer, connect_client: ConnectClient, s3_server: S3) -> Stopped:
    s3_server.new_bucket()
    orders = seeded_orders(30)
    of_one = [order for order in orders if order.customer == orders[0].customer]
    batches = (of_one, [order for order in orders if order not in of_one])
    for number, batch in enumerate(batches):
        write_orders(batch, connect_server.home / "stopped" / "input" / f"{number}.parquet")
    location = f"s3://{s3_server.bucket}/totals"
    home = THEIRS / "stopped"
    connect_client.call(run_totals, str(home / "input"), str(home / "checkpoint"), location)
    return Stopped(str(home / "checkpoint"), location, s3_server.uri("totals"), batches)


def read_in_all_ways(spark: SparkSession, stopped: Stopped) -> dict[str, Any]:
    locations = {"checkpoint_location": stopped.checkpoint, "state_location": stopped.location}
    register_data_source(spark)

    def read(**options: str) -> DataFrame:
        return spark.read.format("headerstate").options(valueAs="int64", **options).load(stopped.location)

    with pytest.raises(PySparkException, match=r"DataSourceOptionError.*Spark Connect.*committed_options\(spark"):
        read(checkpoint=stopped.checkpoint).count()
    printed = io.StringIO()
    with redirect_stdout(printed):
        assert command_line.main(["pointers", stopped.checkpoint]) == 0
    changes = committed_options(spark, stopped.checkpoint, change_start_batch_id=1)
    first = read(**committed_options(spark, stopped.checkpoint, batch_id=0))
    return {
        "read_store": read_store(spark, "totals", **locations).collect(),
        "first": {row.key.decode(): row.value for row in first.select("key", "value").collect()},
        "changes": {row.key.decode(): row.value for row in read(**changes).select("key", "value").collect()},
        "pointers": [row.pointer for row in read_pointers(spark, stopped.checkpoint).collect()],
        "printed": printed.getvalue().split(),
    }


def test_what_is_committed_is_read_in_all_ways(connect_client: ConnectClient, stopped: Stopped) -> None:
    found = connect_client.call(read_in_all_ways, stopped)
    assert held_totals(found["read_store"]) == expected_totals(stopped.orders)
    totals = [{name: total[0] for name, total in expected_totals(batch).items()} for batch in stopped.batches]
    assert [found["first"], found["changes"]] == totals
    assert len(found["pointers"]) == SHARDS
    assert sorted(found["printed"]) == sorted(found["pointers"])


def read_with_filters(spark: SparkSession, stopped: Stopped) -> list[Any]:
    register_data_source(spark)
    options = committed_options(spark, stopped.checkpoint)
    read = spark.read.format("headerstate").options(keyAs="string", valueAs="int64", pushFilters="true", **options)
    once = read.load(stopped.location)
    assert once.schema  # the server keeps what it has made of it
    asked = [once.where(f.col("key") == name).select("key", "value") for name in NAMES[:2]]
    rows = [tuple(row) for row in asked[0].collect()]
    with pytest.raises(PySparkException, match="DataFrameReusedError"):
        asked[1].collect()
    return rows


@not_in_spark_4_0
def test_filters_are_pushed_down_and_not_mixed_up(connect_client: ConnectClient, stopped: Stopped) -> None:
    total = expected_totals(stopped.orders)[NAMES[0]][0]
    # The second one would be given the rows of the first, as it is without Connect.
    assert connect_client.call(read_with_filters, stopped) == [(NAMES[0], total)]


def rescale_to(spark: SparkSession, stopped: Stopped, to: str) -> Rescaled:
    locations = {"checkpoint_location": stopped.checkpoint, "state_location": stopped.location_with_keys}
    return rescale(spark, **locations, to=to, shards=5, key_of={"totals": lambda key: key})


def test_a_state_is_rescaled_where_the_server_is(connect_client: ConnectClient, stopped: Stopped) -> None:
    made = connect_client.call(rescale_to, stopped, f"{stopped.location}-of-5")
    report = made.report
    assert (report.from_shards, report.shards, report.entries) == (SHARDS, 5, len(expected_totals(stopped.orders)))
    assert sum(report.stores["totals"].entries) == report.entries
    assert str(made).startswith(f"3 shards to 5: state {report.state_id}, checked; {report.entries} entries")
    assert made.offsets.batch_id == 1
    with pytest.raises(ClientFailure, match=r"TargetNotEmptyError: state location s3://.*-of-5 holds a state"):
        connect_client.call(rescale_to, stopped, f"{stopped.location}-of-5")


def refusals(spark: SparkSession, stopped: Stopped) -> dict[str, str]:
    """Return what each of several calls raises."""
    nobody, lost = stopped.location_with_keys.replace("/totals?", "/nobody?"), str(THEIRS / "lost")
    given = {"checkpoint_location": stopped.checkpoint, "state_location": stopped.location}
    calls: dict[str, Callable[[], Any]] = {
        "no state": lambda: read_store(spark, "totals", **{**given, "state_location": nobody}),
        "no checkpoint": lambda: read_store(spark, "totals", **{**given, "checkpoint_location": lost}),
        "no batch": lambda: committed_options(spark, stopped.checkpoint, batch_id=77),
        "no change": lambda: committed_options(spark, stopped.checkpoint, change_start_batch_id=2),
        "no store": lambda: read_store(spark, "others", **given),
        "a relative path": lambda: rescale(spark, **given, to="state", shards=2),
        "progress": lambda: rescale(spark, **given, to="s3://b/state", shards=2, on_progress=print),
    }
    found: dict[str, str] = {}
    for name, call in calls.items():
        try:
            call()
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def test_what_is_refused_is_so_as_without_connect(connect_client: ConnectClient, stopped: Stopped) -> None:
    found = connect_client.call(refusals, stopped)
    expected = {
        "no state": "RecoveryError: s3://.*/nobody/statestore.json: there is no state, nor anything else",
        "no checkpoint": "RecoveryError: /proc/self/cwd/lost: has no stateful.* name the checkpointLocation",
        "no batch": r"RecoveryError: .* batch 77 can't be read .STDS_\w+_UNAVAILABLE",
        "no change": "ValueError: change_start_batch_id must be from 0 to 1, the last batch, not 2",
        "no store": r"ValueError: the state has no store 'others', only \['totals'\]",
        "a relative path": "ValueError: the location 'state' is a relative path",
        "progress": "ValueError: the server of Spark Connect can't call on_progress: leave it out",
    }
    assert found.keys() == expected.keys()
    for case, text in expected.items():
        assert re.match(text, found[case]), found[case]
        assert SECRET_KEY not in found[case]


def read_beside(spark: SparkSession, stopped: Stopped, more: str) -> int:
    options = committed_options(spark, stopped.checkpoint)
    register_data_source(spark)
    given = spark.read.format("headerstate").options(pointers=f"{more}\n{options['pointers']}")
    return given.load(stopped.location).count()


def test_pointers_of_some_thousand_shards_fit_into_an_option(connect_client: ConnectClient, stopped: Stopped) -> None:
    # As many as two snapshots leave, of a state that is none of this location's.
    deltas = tuple(
        DurableFile(f"shards/0000/deltas/{number:020d}-{number:032x}.arrow", 12345, f"{number:032x}")
        for number in range(100)
    )
    shards = [CommitPointer("of-another-query", shard, len(deltas), deltas).to_json() for shard in range(1000)]
    many = "\n".join(shards)
    assert 10 << 20 < len(many) < MAX_POINTERS_BYTES // 2
    assert connect_client.call(read_beside, stopped, many) == len(expected_totals(stopped.orders))


def compacted(spark: SparkSession) -> list[Any]:
    rows = [(offset, f"k{offset % 2}".encode(), b"%d" % offset) for offset in range(5)]
    records = spark.createDataFrame(rows, "offset long, key binary, value binary")
    records = records.withColumns({"topic": f.lit("t"), "partition": f.lit(0)})
    empty = f.array().cast("array<struct<key:string,value:binary>>")
    left = compacted_rows(records.withColumn("headers", empty), now_ms=0)
    return sorted((bytes(row.key), bytes(row.value)) for row in left.collect())


def test_a_log_is_compacted(connect_client: ConnectClient) -> None:
    assert connect_client.call(compacted) == [(b"k0", b"4"), (b"k1", b"3")]
