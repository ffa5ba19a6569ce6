"""Queries through Spark Connect, from a client that shares no directory with the server and can't reach the state.

What runs in the client are the functions that take a session; they are called there, and their results come back.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from orders import expected_totals, running_total_topology, seeded_orders, write_orders
from show import held_totals
from statestore import Processor, Record, Serdes, Topology
from statestore.errors import InputError, LocationError, ProcessorError, ShardCountChangedError, StateStoreError
from statestore.errors.run import ModuleNotOnWorkersError
from statestore.recovery.heads.head import newest_head
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from statestore.spark import (
    MemoryOptions,
    batch_figures,
    error_of,
    from_records,
    read_store,
    stateful,
    to_records,
    with_middleware,
)
from statestore.spark.checkpoints.checkpoint import recorded_pointers
from statestore.spark.code_on_workers import check_code_on_workers
from statestore.spark.kafka_sink import KafkaCluster, KafkaTransactions
from statestore.spark.query_failure import QueryFailure
from statestore.spark.sessions import on_server
from statestore.testing.kafka_broker import KafkaBroker
from tests.support.clusters.connect import THEIRS, ClientFailure, ConnectClient, ConnectServer
from tests.support.interceptors import Stamp
from tests.support.kafka.transactions import values
from tests.support.recovery.s3_server import S3
from tests.support.spark.queries import KAFKA_ROWS
from tests.support.spark.told import EndingListener
from tests.support.spark.versions import not_in_spark_4_0, only_in_spark_4_0

PARTITIONS = "spark.sql.shuffle.partitions"
PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ISOLATION = "spark.sql.artifact.isolation.enabled"
SHARDS = 2
TRANSFORM, APPLY = "transform_with_state", "apply_in_pandas_with_state"


@pytest.fixture
def home(connect_server: ConnectServer, tmp_path: Path) -> Path:
    """A directory of the server for this test."""
    path = connect_server.home / tmp_path.name
    path.mkdir()
    return path


def records(spark: SparkSession, name: str) -> DataFrame:
    reader = spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1)
    return reader.parquet(str(THEIRS / name / "input"))


def started(rows: DataFrame, name: str, output: str = "output") -> Any:
    writer = rows.writeStream.format("parquet").option("path", str(THEIRS / name / output))
    return writer.option("checkpointLocation", str(THEIRS / name / "checkpoint")).trigger(availableNow=True).start()


def head_there(location: str) -> Any:
    durable = DurableLocation(location)
    metadata = read_metadata(durable)
    assert metadata is not None
    head = newest_head(durable, metadata.state_id)
    return None if head is None else json.loads(head.to_json())


def run_totals(spark: SparkSession, name: str, location: str, via: str) -> dict[str, Any]:
    """Run the query to the end of its input, and return what it was told."""
    spark.conf.set(PARTITIONS, "200")  # Spark's default; the server has another one
    listener = EndingListener()
    spark.streams.addListener(listener)
    rows = stateful(records(spark, name), running_total_topology(), shards=SHARDS, state_location=location, via=via)
    try:
        query = started(rows, name)
        query.awaitTermination()
        told = [batch for progress in query.recentProgress for batch in batch_figures(progress)]
        assert listener.has_ended.wait(60)
    finally:
        spark.streams.removeListener(listener)
    output = spark.read.parquet(str(THEIRS / name / "output"))
    return {
        "head": on_server(spark, head_there, location),
        "committed": sorted(recorded_pointers(spark, str(THEIRS / name / "checkpoint"))),
        "held": held_totals(read_store(spark, "totals", state_location=location).collect()),
        "told": told,
        "listener": listener.batches(),
        "partitions": spark.conf.get(PARTITIONS),
        "provider": spark.conf.get(PROVIDER).rpartition(".")[2],
        "output": output.selectExpr("key", "value", "unix_millis(timestamp) AS timestamp_ms", "headers").collect(),
    }


@pytest.mark.parametrize("via", [pytest.param(TRANSFORM, marks=not_in_spark_4_0), APPLY])
def test_a_query_goes_on_where_it_was(
    connect_client: ConnectClient, home: Path, connect_location: str, via: str
) -> None:
    orders = seeded_orders(30, 3)
    for number, part in enumerate((orders[:10], orders[10:20], orders[20:])):
        write_orders(part, home / "input" / f"{number}.parquet")
        if number:
            done = connect_client.call(run_totals, home.name, connect_location, via)
            assert [batch.records.process_total for batch in done["told"]] == [10] * (2 // number)
            assert done["told"] == done["listener"]
            assert done["partitions"] == str(SHARDS)
            assert done["head"]["pointers"] == done["committed"]
            assert [batch["batch"] for batch in done["head"]["recent"]] == list(range(number + 1))
    assert done["provider"] == "RocksDBStateStoreProvider" or via == APPLY
    assert done["told"][-1].batch_id == 2
    # The last row of each customer has the total of all three files.
    rows = sorted(done["output"], key=lambda row: row.timestamp_ms)
    assert len(rows) == len(orders)
    assert held_totals(rows) == expected_totals(orders)
    assert done["held"] == expected_totals(orders)


def transformed(spark: SparkSession, name: str, location: str) -> None:
    stateful(records(spark, name), running_total_topology(), shards=SHARDS, state_location=location)


@only_in_spark_4_0
def test_what_spark_4_0_lacks_is_refused(connect_client: ConnectClient, home: Path, connect_location: str) -> None:
    (home / "input").mkdir()
    with pytest.raises(ClientFailure, match=r"SparkVersionError: through Spark Connect .* needs Spark 4\.1 or newer"):
        connect_client.call(transformed, home.name, connect_location)


def where_and_what(how: str) -> Any:
    if how == "ours":
        raise ShardCountChangedError("s3://b/state", recorded=3, asked=2)
    if how == "not ours":
        raise ValueError("no such store")
    return os.getcwd(), os.environ.get("AWS_ENDPOINT_URL")


def called_there(spark: SparkSession) -> dict[str, Any]:
    found: dict[str, Any] = {"result": on_server(spark, where_and_what, how="")}
    for how in ("ours", "not ours"):
        try:
            on_server(spark, where_and_what, how)
        except (StateStoreError, ValueError) as error:
            found[how] = error
    return found


def test_what_only_the_server_reaches_is_done_there(connect_client: ConnectClient, s3: S3) -> None:
    found = connect_client.call(called_there)
    directory, endpoint = found["result"]
    assert directory != str(connect_client.home)
    assert endpoint == s3.environment()["AWS_ENDPOINT_URL"]
    expected = ShardCountChangedError("s3://b/state", recorded=3, asked=2)
    assert (type(found["ours"]), vars(found["ours"])) == (type(expected), vars(expected))
    assert (type(found["not ours"]), str(found["not ours"])) == (ValueError, "no such store")


class Failing(Processor):
    def process(self, record: Record[Any, Any]) -> None:
        raise ValueError(f"no such customer: {record.key}")


def failing_topology() -> Topology:
    made = Topology().add_source("in", key_serde=Serdes.string(), value_serde=Serdes.bytes())
    return made.add_processor("fails", Failing, ["in"]).add_sink("out", "out", ["fails"])


def refusals(spark: SparkSession, name: str, location: str) -> dict[str, Any]:
    """Return what each of several starts is refused with, and what a failed query says."""
    options: dict[str, Any] = {"state_location": location, "shards": SHARDS, "via": APPLY}
    made = stateful(records(spark, name), failing_topology(), **options)
    query = started(made, name)
    found: dict[str, Any] = {}
    try:
        query.awaitTermination()
    except StreamingQueryException as failed:
        found["raised"] = (str(failed), error_of(failed))
    found["query"] = error_of(query)
    for case, changed in (
        ("shards", {"shards": SHARDS + 1}),
        ("relative", {"state_location": "state"}),
        ("memory", {"memory": MemoryOptions(state_bytes=1)}),
    ):
        try:
            stateful(records(spark, name), failing_topology(), **{**options, **changed})
        except (StateStoreError, ValueError) as error:
            found[case] = error
    try:
        again = made.withColumns({"partition": f.lit(0), "offset": f.lit(0).cast("long")})
        started(stateful(again, failing_topology(), **options), f"{name}/twice")
    except Exception as error:
        found["twice"] = error_of(error)
    return found


def test_refusals_and_failures_say_what_they_say_elsewhere(
    connect_client: ConnectClient, home: Path, connect_location: str
) -> None:
    write_orders(seeded_orders(3), home / "input" / "orders.parquet")
    found = connect_client.call(refusals, home.name, connect_location)
    text, raised = found["raised"]
    assert raised == found["query"]
    assert raised.kind is ProcessorError
    assert raised.fields["node"] == "fails"
    assert "ProcessorError: node 'fails' failed on record orders-" in text.splitlines()[0]
    assert text.splitlines()[-1] == str(raised)
    assert (type(found["shards"]), found["shards"].recorded) == (ShardCountChangedError, SHARDS)
    assert "relative path" in str(found["relative"])
    assert "each of 2 concurrent tasks" in str(found["memory"])
    assert found["twice"].kind is LocationError


OWN = "from statestore import Processor\nclass Own(Processor):\n    def process(self, record): pass\n"


def send_a_module(spark: SparkSession, name: str, location: str, module: str) -> tuple[Any, list[str]]:
    """Return what a query of a module that only the client has is refused with, and what is logged once it was sent."""
    sys.path.insert(0, str(Path(module).parent))
    own = importlib.import_module(Path(module).stem)
    made = Topology().add_source("in", key_serde=Serdes.string(), value_serde=Serdes.bytes())
    made.add_processor("own", own.Own, ["in"]).add_sink("out", "out", ["own"])
    options: dict[str, Any] = {"state_location": location, "shards": SHARDS, "via": APPLY}
    with pytest.raises(ModuleNotOnWorkersError) as refused:
        stateful(records(spark, name), made, **options)
    spark.addArtifacts(module, pyfile=True)
    heard: list[str] = []
    logger = logging.getLogger(check_code_on_workers.__module__)
    note = lambda record: heard.append(record.getMessage())  # noqa: E731
    logger.addFilter(note)
    for isolated in ("true", "false"):
        spark.conf.set(ISOLATION, isolated)
        stateful(records(spark, name), made, **options)
    logger.removeFilter(note)
    spark.conf.unset(ISOLATION)
    return refused.value, heard


def test_a_module_of_the_client_is_missed_until_it_is_sent(
    connect_client: ConnectClient, home: Path, connect_location: str, tmp_path: Path
) -> None:
    write_orders(seeded_orders(1), home / "input" / "orders.parquet")
    module = tmp_path / "own_module_of_a_client.py"
    module.write_text(OWN)
    missed, heard = connect_client.call(send_a_module, home.name, connect_location, str(module))
    assert (type(missed), missed.module, missed.part) == (ModuleNotOnWorkersError, module.stem, "processor 'own'")
    # Spark does not give it to tasks of streaming queries.
    assert [line.partition(", was")[0] for line in heard] == [f"module '{module.stem}', of processor 'own'"]


def run_columns(spark: SparkSession, name: str, location: str) -> list[Any]:
    """Run business columns through middleware and state, and return the columns that come out."""
    columns = "buyer string, amount bigint, time_ms bigint"
    rows = [("ada", 5, 1_000), ("ben", 7, 2_000), ("ada", 2, 3_000)]
    spark.createDataFrame(rows, columns).coalesce(1).write.parquet(str(THEIRS / name / "orders"))
    orders = spark.readStream.schema(columns).parquet(str(THEIRS / name / "orders"))
    made = to_records(orders, key="buyer", value=["amount"], timestamp="time_ms", topic="orders")
    stamped = with_middleware(made, [Stamp("before")])
    out = stateful(
        stamped,
        running_total_topology(),
        shards=SHARDS,
        state_location=location,
        via=APPLY,
        interceptors=[Stamp("around")],
    )
    headers = {"in": "string", "out": "string"}
    totals = from_records(out, "int64", key="buyer", value="total", timestamp=None, headers=headers)
    query = started(totals, name)
    query.awaitTermination()
    return spark.read.parquet(str(THEIRS / name / "output")).orderBy("total", "buyer").collect()


def test_columns_go_through_middleware_and_state(
    connect_client: ConnectClient, home: Path, connect_location: str
) -> None:
    rows = connect_client.call(run_columns, home.name, connect_location)
    assert [(row.buyer, row.total, row["in"], row["out"]) for row in rows] == [
        ("ada", 5, "around", "around"),
        ("ada", 7, "around", "around"),
        ("ben", 7, "around", "around"),
    ]


def write_to_kafka(spark: SparkSession, name: str, servers: str, topic: str, **options: Any) -> QueryFailure | None:
    sink = KafkaTransactions(KafkaCluster(servers, timeout_s=20), markers=f"{topic}-markers", topic=topic, **options)
    writer = records(spark, name).select("key", "value").writeStream.foreachBatch(sink)
    writer = writer.option("checkpointLocation", str(THEIRS / name / "checkpoint")).trigger(availableNow=True)
    query = writer.start()
    with suppress(StreamingQueryException):
        query.awaitTermination()
    return error_of(query)


def test_the_sink_of_transactions_needs_a_name_and_writes_each_record_once(
    connect_client: ConnectClient, home: Path, broker: KafkaBroker
) -> None:
    orders = seeded_orders(20)
    for number, part in enumerate((orders[:10], orders[10:])):
        write_orders(part, home / "input" / f"{number}.parquet")
    where = home.name, broker.bootstrap_servers, "connect-sink"
    KafkaCluster(where[1]).create_topic(where[2], 1, {})
    refused = connect_client.call(write_to_kafka, *where)
    assert refused.kind is InputError
    assert "give both with KafkaTransactions(query_id=, partitions=)" in refused.message
    for _ in range(2):
        assert connect_client.call(partial(write_to_kafka, query_id="orders", partitions=2), *where) is None
        assert sorted(values(*where[1:])) == sorted(order.value for order in orders)
        # Without its commit, Spark runs the last batch again.
        for path in (home / "checkpoint" / "commits").glob("*1*"):
            path.unlink()
