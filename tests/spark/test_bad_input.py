"""Bad input and wrong starts: an error that names the thing, where it is and what to do; nothing is lost."""

from __future__ import annotations

import importlib
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from orders import RunningTotal, expected_totals, running_total_topology, seeded_orders
from statestore import Processor, Record, Serdes, Stores, Topology
from statestore.errors import (
    InputError,
    InputSchemaError,
    ShardCountChangedError,
    StateStoreError,
    TopologyChangedError,
    TopologyError,
)
from statestore.errors.run import ModuleNotOnWorkersError, NotPicklableError
from statestore.errors.state import LocationNotWritableError
from statestore.middleware import FailureHandling
from statestore.middleware.security.signing import Signing
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from statestore.spark import error_of, read_pointers, read_store, stateful
from tests.support.security_keys import SIGNING_RINGS
from tests.support.spark.queries import OrderQuery

ORDERS = seeded_orders(60)
# What a query is given is checked by the same code under both; where they differ, tests are run under both.
TRANSFORM, APPLY = "transform_with_state", "apply_in_pandas_with_state"


def run_first_orders(query: OrderQuery) -> None:
    """Process 30 orders, so that there is a state to go on from."""
    query.add(ORDERS[:30])
    query.run()


@pytest.fixture
def query(spark: SparkSession, tmp_path: Path) -> OrderQuery:
    return OrderQuery(spark, tmp_path, APPLY)  # which starts faster


def start(query: OrderQuery, records: Any, **options: Any) -> None:
    stateful(records, running_total_topology(), **{"shards": 3, "state_location": query.home / "state", **options})


@pytest.mark.parametrize(
    ("column", "remedy"), [("headers", "includeHeaders"), ("partition", r"to_records\(\) adds it")]
)
def test_a_missing_column_says_where_to_get_it(query: OrderQuery, column: str, remedy: str) -> None:
    with pytest.raises(InputSchemaError, match=rf"'{column}': is missing.*{remedy}"):
        start(query, query.records().drop(column))
    assert not (query.home / "state").exists()


@pytest.mark.parametrize(
    ("column", "expression", "message"),
    [
        ("headers", "map('k', value)", "map<string,binary>.*repeat a key"),
        ("headers", "cast(null as string)", "string"),
        ("headers", "array(named_struct('value', value, 'key', 'k'))", "array<struct<value"),
        ("key", "cast(key as string)", "is string, not binary; cast it"),
        ("offset", "cast(offset as int)", "is int, not bigint"),
        ("timestamp", "cast(timestamp as long)", "is bigint, not timestamp"),
    ],
)
def test_a_column_of_another_type_is_named(query: OrderQuery, column: str, expression: str, message: str) -> None:
    with pytest.raises(InputSchemaError, match=f"'{column}'.*{message}"):
        start(query, query.records().withColumn(column, f.expr(expression)))


def test_an_unknown_column_is_named(query: OrderQuery) -> None:
    with pytest.raises(InputSchemaError, match=r"'tenant': is not a column of Spark's Kafka source"):
        start(query, query.records().withColumn("tenant", f.lit("eu")))


def test_the_kafka_sources_timestamp_type_is_no_unknown_column(query: OrderQuery) -> None:
    start(query, query.records().withColumn("timestampType", f.lit(0)))
    assert (query.home / "state" / "statestore.json").exists()


def test_a_batch_dataframe_is_refused(query: OrderQuery, spark: SparkSession) -> None:
    with pytest.raises(InputError, match="streaming DataFrame"):
        start(query, spark.createDataFrame([], query.records().schema))


@pytest.mark.parametrize(
    ("option", "value"),
    [("shards", 0), ("shards", "4"), ("via", "magic"), ("shard_by", "luck")],
)
def test_nonsense_arguments_are_named(query: OrderQuery, option: str, value: Any) -> None:
    with pytest.raises(ValueError, match=option):
        start(query, query.records(), **{option: value})


def test_a_location_that_cannot_be_written(query: OrderQuery) -> None:
    (query.home / "file").write_text("in the way")
    with pytest.raises(LocationNotWritableError, match=r"file/state.*state_location"):
        start(query, query.records(), state_location=query.home / "file" / "state")


def test_a_topology_without_source_is_refused(query: OrderQuery) -> None:
    with pytest.raises(TopologyError, match="no source"):
        stateful(query.records(), Topology(), shards=1, state_location=query.home / "state")


def test_a_chain_that_needs_shards_by_key_is_refused_without_them(query: OrderQuery) -> None:
    refusing = Signing(SIGNING_RINGS["hmac"][0], window_ms=1000, refuse_replays=True)
    with pytest.raises(TopologyError, match="another partition would come to another shard"):
        start(query, query.records(), interceptors=[refusing], shard_by="partition")
    assert not (query.home / "state").exists()


def with_row(query: OrderQuery, **columns: str) -> Any:
    """The stream of orders with the columns of the record at offset 3 of partition 1 replaced."""
    records = query.records()
    here = f.expr("partition = 1 and offset = 3")
    for name, expression in columns.items():
        records = records.withColumn(name, f.when(here, f.expr(expression)).otherwise(f.col(name)))
    return records


BAD_RECORDS = {
    TRANSFORM: [("value", """binary('{"x": 1}')""", "ProcessorError: node 'total' failed on {record}: KeyError")],
    APPLY: [
        ("key", "null", "InputError: {record} has a null key"),
        ("timestamp", "null", "InputError: {record} has the timestamp None"),
        ("timestamp", "timestamp_micros(-1)", "InputError: {record} has the timestamp -1"),
        ("value", "binary('not json')", "DeserializationError: source 'orders' can't read {record}"),
    ],
}
"""The last one of each driver goes wrong in the shard call, which the driver is to let out; the others before it."""


def test_a_bad_record_stops_the_query_and_loses_nothing(order_query: OrderQuery) -> None:
    order_query.add(ORDERS)
    for column, expression, message in BAD_RECORDS[order_query.via]:
        message = message.format(record="record orders-1 at offset 3")
        with pytest.raises(StreamingQueryException, match=message) as caught:
            order_query.run(records=with_row(order_query, **{column: expression}))
        failure = error_of(caught.value)
        assert failure is not None
        assert re.match(message, str(failure))
        assert str(caught.value).splitlines()[-1] == str(failure), "also of what fails under foreachBatch"
        assert failure.fields["offset"] == 3
    order_query.run()
    assert order_query.totals() == expected_totals(ORDERS)


@pytest.mark.parametrize("via", ["apply_in_pandas_with_state"])
def test_unreadable_records_can_be_skipped_and_are_counted(order_query: OrderQuery) -> None:
    order_query.add(ORDERS)
    failures = FailureHandling(deserialization="continue")
    order_query.run(records=with_row(order_query, value="binary('not json')"), failures=failures)
    readable = [order for order in ORDERS if (order.partition, order.offset) != (1, 3)]
    assert order_query.totals() == expected_totals(readable)
    pointers = read_pointers(order_query.spark, order_query.home / "checkpoint").collect()
    assert sum(CommitPointer.from_json(row.pointer).skipped_records for row in pointers) == 1


def test_null_keys_are_fine_where_records_are_placed_by_partition(spark: SparkSession, tmp_path: Path) -> None:
    class PassOn(Processor):
        def init(self, context: Any) -> None:
            self.context = context

        def process(self, record: Record[Any, Any]) -> None:
            self.context.forward(record)

    topology = Topology()
    topology.add_source("orders", key_serde=Serdes.string(), value_serde=Serdes.bytes())
    topology.add_processor("pass", PassOn, ["orders"])
    topology.add_sink("out", "out", ["pass"])
    query = OrderQuery(spark, tmp_path, APPLY)
    query.add(ORDERS)
    query.run(topology, records=query.records().withColumn("key", f.expr("cast(null as binary)")), shard_by="partition")
    assert len(query.outputs) == len(ORDERS)
    assert {row.key for row in query.outputs} == {None}


def test_a_changed_shard_count_is_refused_and_the_old_one_goes_on(query: OrderQuery) -> None:
    run_first_orders(query)
    query.add(ORDERS[30:])
    with pytest.raises(ShardCountChangedError, match=r"shards=5 .* 2 shards.*Start with shards=2"):
        query.run(shards=5)
    query.run()
    assert query.totals() == expected_totals(ORDERS)


def test_a_changed_topology_is_refused_or_accepted(query: OrderQuery) -> None:
    run_first_orders(query)
    query.add(ORDERS[30:])
    changed = running_total_topology()
    changed.add_processor("second", RunningTotal, ["orders"])
    changed.add_state_store(
        Stores.timestamped_key_value_store_with_headers_builder(
            Stores.persistent_timestamped_key_value_store_with_headers("more"), Serdes.string(), Serdes.int64()
        ),
        "second",
    )
    with pytest.raises(TopologyError, match=r"asked for the state store 'totals', which is not attached to it"):
        query.run(changed, accept_topology_change=True)
    changed.processors["second"].supplier = SecondTotal
    with pytest.raises(TopologyChangedError, match=r"processor 'second' is new; store 'more' is new.*accept_topology"):
        query.run(changed)
    query.run(changed, accept_topology_change=True)
    assert query.totals() == expected_totals(ORDERS)
    with pytest.raises(TopologyChangedError, match=r"store 'more' .* is gone.*accept_topology_change=\['more'\]"):
        query.run(accept_topology_change=True)
    query.add(ORDERS[:5])
    query.run(accept_topology_change=["more"])
    assert query.totals() == expected_totals([*ORDERS, *ORDERS[:5]])
    with pytest.raises(TopologyChangedError, match=r"'more' was dropped"):
        query.run(changed, accept_topology_change=True)
    with pytest.raises(TypeError, match="must be a list of names"):
        query.run(accept_topology_change="more")


class SecondTotal(RunningTotal):
    """Totals what comes since it was added."""

    def init(self, context: Any) -> None:
        self.context, self.totals = context, context.state_store("more")


@pytest.mark.parametrize("via", [APPLY])
def test_a_second_query_on_the_same_location_is_refused(order_query: OrderQuery) -> None:
    order_query.add(ORDERS)
    order_query.run()
    recorded = read_metadata(DurableLocation(order_query.state_location))
    other = Topology()
    other.add_source("orders", "orders", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    other.add_sink("out", "out", ["orders"], key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    changes: dict[str, Any]
    for changes in ({}, {"topology": other, "accept_topology_change": ["totals"]}):
        with pytest.raises(StreamingQueryException, match=r"LocationInUseError: .*belongs to the streaming query"):
            order_query.run(checkpoint="another-checkpoint", **changes)
    assert read_metadata(DurableLocation(order_query.state_location)) == recorded
    order_query.run()
    assert order_query.totals() == expected_totals(ORDERS)


@pytest.mark.parametrize("via", [APPLY])
def test_a_checkpoint_of_another_location_is_refused(order_query: OrderQuery) -> None:
    run_first_orders(order_query)
    order_query.add(ORDERS[30:])
    with pytest.raises(StreamingQueryException, match=r"LocationError.*Start the query with the state_location"):
        order_query.run(state_location=order_query.home / "empty")
    order_query.run()
    assert order_query.totals() == expected_totals(ORDERS)


@pytest.mark.parametrize("via", [APPLY])
def test_a_damaged_delta_stops_the_query_until_it_is_brought_back(order_query: OrderQuery) -> None:
    run_first_orders(order_query)
    shutil.rmtree(order_query.home / "local")
    delta = next(iter((order_query.home / "state").glob("shards/*/deltas/*.arrow")))
    content = delta.read_bytes()
    flipped = content[:200] + bytes([content[200] ^ 4]) + content[201:]
    order_query.add(ORDERS[30:])
    for damaged, error in ((content[:-5], "Corrupted"), (flipped, "Corrupted"), (None, "Missing")):
        delta.unlink() if damaged is None else delta.write_bytes(damaged)
        with pytest.raises(StreamingQueryException, match=f"DurableFile{error}Error.*{delta.name}"):
            order_query.run()
    delta.write_bytes(content)
    order_query.run()
    assert order_query.totals() == expected_totals(ORDERS)


@pytest.mark.parametrize("via", [APPLY])
def test_a_damaged_local_copy_is_rebuilt(order_query: OrderQuery) -> None:
    order_query.add(ORDERS[:20])
    order_query.add(ORDERS[20:30])
    order_query.run()
    for table in (order_query.home / "local").rglob("*.sst"):
        table.write_bytes(table.read_bytes()[:100])
    order_query.add(ORDERS[30:])
    order_query.run()
    assert order_query.totals() == expected_totals(ORDERS)


@pytest.mark.parametrize("via", [APPLY])
def test_reading_what_is_not_there(order_query: OrderQuery) -> None:
    order_query.add(ORDERS)
    order_query.run()
    paths = {"checkpoint_location": order_query.home / "checkpoint", "state_location": order_query.home / "state"}
    with pytest.raises(ValueError, match=r"no store 'nothing', only \['totals'\]"):
        read_store(order_query.spark, "nothing", **paths)
    with pytest.raises(StateStoreError, match="there is no state"):
        read_store(order_query.spark, "totals", **{**paths, "state_location": order_query.home / "nowhere"})


def test_what_the_workers_could_not_run_is_refused_at_the_call(
    query: OrderQuery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "orders_of_a_script.py").write_text(
        "from orders import RunningTotal\nclass Total(RunningTotal): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    module = importlib.import_module("orders_of_a_script")
    lock = threading.Lock()

    class NoProcess(Processor):
        pass

    for supplier, error, message in (
        (module.Total, ModuleNotOnWorkersError, "register_pickle_by_value"),
        (lambda: (lock, RunningTotal())[1], NotPicklableError, "processor 'total'.*'lock'"),
        (NoProcess, TopologyError, r"NoProcess must define process\(self, record\)"),
    ):
        topology = running_total_topology()
        topology.processors["total"].supplier = supplier
        with pytest.raises(error, match=message):
            stateful(query.records(), topology, shards=1, state_location=query.home / "state")
    assert not (query.home / "state").exists()


def test_a_topology_without_a_sink_is_warned_of(query: OrderQuery, caplog: pytest.LogCaptureFixture) -> None:
    topology = running_total_topology()
    del topology.sinks["totals"], topology.nodes["totals"]
    stateful(query.records(), topology, shards=1, state_location=query.home / "state")
    assert "has no sink" in caplog.text
