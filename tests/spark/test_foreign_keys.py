"""Joins by foreign keys under Spark: after each micro-batch, the results are those of the tables as they then are."""

from __future__ import annotations

import shutil
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from orders import write_rows
from statestore import Serdes, Topology
from statestore.dsl import Materialized, StreamsBuilder
from statestore.spark import read_store, stateful
from tests.support.spark.queries import KAFKA_ROWS
from tests.support.staged import StagedRun

TEXT = Serdes.string()
SERDES: Any = {"key_serde": TEXT, "value_serde": TEXT}
BATCHES = 4
Table = dict[str, str]


def customer_of(order: str) -> str | None:
    """The foreign key: the first letter of an order, if it has one."""
    return order[0] if order[0] != "-" else None


def pair(left: str, right: str | None) -> str:
    return f"{left}&{right}"


def program() -> Topology:
    builder = StreamsBuilder()
    orders = builder.table("orders", **SERDES)
    customers = builder.table("customers", **SERDES, materialized=Materialized.as_("customers"))
    big = orders.filter(lambda key, order: len(order) > 2)
    for name, joined in (
        ("inner", orders.join(customers, pair, foreign_key=customer_of, value_serde=TEXT)),
        ("left", orders.left_join(customers, pair, foreign_key=customer_of, value_serde=TEXT)),
        ("filtered", big.join(customers, pair, foreign_key=customer_of, value_serde=TEXT, name="big")),
    ):
        joined.to_stream().to(name)
    return builder.build()


def joined(orders: Table, customers: Table) -> dict[str, Table]:
    """The results, by what a join means."""
    known = {key: customers.get(customer_of(order) or "") for key, order in orders.items()}
    inner = {key: pair(orders[key], name) for key, name in known.items() if name is not None}
    return {
        "inner": inner,
        "left": {key: pair(orders[key], name) for key, name in known.items()},
        "filtered": {key: value for key, value in inner.items() if len(orders[key]) > 2},
    }


def put(table: Table, key: str, value: str | None) -> None:
    table.pop(key, None)
    if value is not None:
        table[key] = value


def row(topic: str, key: str, value: str | None, offset: int) -> dict[str, Any]:
    return {
        "key": key.encode(),
        "value": None if value is None else value.encode(),
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "timestamp": datetime.fromtimestamp(1_700_000_000 + offset, timezone.utc),
        "headers": [{"key": topic, "value": str(offset).encode()}],
    }


def drawn(random: Random, count: int, most: int = 40) -> list[list[dict[str, Any]]]:
    """Batches in which keys change several times, are deleted, and lose their foreign keys."""
    batches, offset = [], 0
    for _ in range(count):
        batch = []
        for _ in range(random.randint(1, most)):
            offset += 1
            if random.random() < 0.7:
                value = random.choice(("a1", "a22", "b1", "b22", "c22", "-", "-22", None))
                batch.append(row("orders", str(random.randrange(8)), value, offset))
            else:
                batch.append(row("customers", random.choice("abc"), random.choice((f"name-{offset}", None)), offset))
        batches.append(batch)
    return batches


@pytest.mark.parametrize("seed", range(8))
def test_each_batch_ends_with_the_results_of_its_tables(seed: int, tmp_path: Path) -> None:
    """Responses come after all of a batch's left changes: none may be lost that Kafka's order would bring in time."""
    random = Random(seed)
    run = StagedRun(program(), random.choice((1, 2, 3)), tmp_path)
    tables: dict[str, Table] = {"orders": {}, "customers": {}}
    results: dict[str, Table] = {"inner": {}, "left": {}, "filtered": {}}
    for batch in drawn(random, 4, random.choice((3, 10, 40))):
        for each in batch:
            put(tables[each["topic"]], each["key"].decode(), each["value"] and each["value"].decode())
        records = (
            (each["topic"], 0, each["offset"], each["offset"], each["key"], each["value"], b"") for each in batch
        )
        for topic, _, key, value, _ in run.run(records):
            put(results[topic], (key or b"").decode(), value and value.decode())
        assert results == joined(tables["orders"], tables["customers"])


@pytest.mark.slow
def test_results_are_those_of_the_tables_after_each_batch(spark: SparkSession, tmp_path: Path) -> None:
    results: dict[str, Table] = {"inner": {}, "left": {}, "filtered": {}}
    found, names_of_headers = [], []

    def keep(batch: DataFrame, batch_id: int) -> None:
        for each in batch.collect():
            put(
                results[each.topic],
                bytes(each.key).decode(),
                None if each.value is None else bytes(each.value).decode(),
            )
            if each.topic == "inner" and each.value is not None:
                names_of_headers.append({header.key for header in each.headers})
        found.append({topic: dict(table) for topic, table in results.items()})

    tables: dict[str, Table] = {"orders": {}, "customers": {}}
    wanted: list[dict[str, Table]] = []
    batches = drawn(Random(7), BATCHES)
    (tmp_path / "input").mkdir()
    for started, stopped in ((0, BATCHES // 2), (BATCHES // 2, BATCHES)):
        for number, batch in enumerate(batches[started:stopped], started):
            for each in batch:
                put(tables[each["topic"]], each["key"].decode(), each["value"] and each["value"].decode())
            write_rows(batch, tmp_path / "input" / f"{number}.parquet", 1_000.0 + number)
            wanted.append(joined(tables["orders"], tables["customers"]))
        records = spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1)
        rows = stateful(
            records.parquet(str(tmp_path / "input")),
            program(),
            shards=3,
            state_location=tmp_path / "state",
            local_dir=str(tmp_path / "local"),
        )
        writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        shutil.rmtree(tmp_path / "local")
    assert found == wanted
    assert names_of_headers.count({"orders", "customers"}) == len(names_of_headers) > 10
    kept = read_store(
        spark,
        "customers",
        checkpoint_location=tmp_path / "checkpoint",
        state_location=tmp_path / "state",
        key_serde="string",
        value_serde="string",
    )
    assert {each.key: each.value for each in kept.collect()} == tables["customers"]
