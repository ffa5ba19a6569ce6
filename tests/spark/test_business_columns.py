"""Columns through a stateful query and back, and the same again when a batch is run again in another shape."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from orders import running_total_topology
from statestore import Serdes
from statestore.errors import DataSourceOptionError
from statestore.spark import error_of, from_records, read_store, stateful, to_records
from tests.support.spark.queries import run_to_the_end

COLUMNS = "customer string, amount int, at timestamp, tenant string"
Seen = tuple[int, str | None]


def write_orders_of(spark: SparkSession, path: Path, number: int) -> None:
    """Write orders of which many have the same customer and time, so that only their bytes tell them apart."""
    rows = [(f"c{n % 3}", (-1) ** n * n, 1_700_000_000 + number, None if n % 2 else f"t{n}") for n in range(24)]
    made = spark.createDataFrame(rows, "customer string, amount int, at bigint, tenant string")
    made.withColumn("at", F.timestamp_seconds("at")).coalesce(1).write.mode("append").parquet(str(path))


def run(spark: SparkSession, home: Path, partitions: int) -> dict[int, dict[str, list[Seen]]]:
    """Run a query to its end, its input in so many partitions; return what it put out of each customer, by batch."""
    seen: dict[int, dict[str, list[Seen]]] = {}
    orders = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(home / "orders"))
    records = to_records(
        orders.repartition(partitions, F.rand(partitions)) if partitions > 1 else orders,
        key="customer",
        value=["amount"],
        timestamp="at",
        headers={"tenant": "tenant"},
        topic="orders",
    )
    out = stateful(records, running_total_topology(), shards=2, state_location=home / "state")
    totals = from_records(out, "int64", key="customer", value="total", headers={"tenant": "string"})

    def keep(rows: DataFrame, batch_id: int) -> None:
        of_customer: dict[str, list[Seen]] = defaultdict(list)
        for row in rows.collect():
            of_customer[row.customer].append((row.total, row.tenant))
        seen[batch_id] = dict(of_customer)

    run_to_the_end(totals.writeStream.foreachBatch(keep), home / "checkpoint")
    return seen


def test_a_batch_that_is_run_again_has_the_same_order_whatever_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    write_orders_of(spark, tmp_path / "orders", 0)
    first = run(spark, tmp_path, 1)
    assert {customer: len(seen) for customer, seen in first[0].items()} == {"c0": 8, "c1": 8, "c2": 8}
    for commit in (tmp_path / "checkpoint" / "commits").glob("*0*"):
        commit.unlink()
    write_orders_of(spark, tmp_path / "orders", 1)
    second = run(spark, tmp_path, 5)
    assert second.keys() == {0, 1}
    assert second[0] == first[0]
    sums = {f"c{c}": sum((-1) ** n * n for n in range(c, 24, 3)) for c in range(3)}
    doubled = {customer: 2 * total for customer, total in sums.items()}
    assert {customer: seen[-1][0] for customer, seen in second[1].items()} == doubled

    state: dict[str, Any] = {"checkpoint_location": tmp_path / "checkpoint", "state_location": tmp_path / "state"}
    held = read_store(spark, "totals", key_serde="string", value_serde=Serdes.int64(), **state)
    assert {row.key: row.value for row in held.collect()} == doubled
    assert sum(sums.values()) < 0, "negative numbers are read"
    with pytest.raises(PythonException) as raised:
        read_store(spark, "totals", value_serde="int32", **state).collect()
    failure = error_of(raised.value)
    assert failure is not None
    assert (failure.kind, failure.fields["option"]) == (DataSourceOptionError, "valueAs")
