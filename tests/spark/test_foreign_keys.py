"""Joins by foreign keys under Spark: after each micro-batch, the results are those of the tables as they then are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from orders import write_rows
from statestore import Serdes, Topology
from statestore.dsl import Materialized, StreamsBuilder
from statestore.spark import read_store, rescale, stateful
from tests.support.spark.queries import KAFKA_ROWS
from tests.support.staged import StagedRun

TEXT = Serdes.string()
SERDES: Any = {"key_serde": TEXT, "value_serde": TEXT}
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


def row(topic: str, key: str, value: str | None, offset: int, timestamp_s: int) -> dict[str, Any]:
    return {
        "key": key.encode(),
        "value": None if value is None else value.encode(),
        "topic": topic,
        "partition": 0,
        "offset": offset,
        "timestamp": datetime.fromtimestamp(timestamp_s, timezone.utc),
        "headers": [{"key": topic, "value": str(offset).encode()}],
    }


def drawn(random: Random, count: int, letters: str) -> list[list[dict[str, Any]]]:
    """Batches in which keys change several times, are deleted, and lose their foreign keys."""
    # Few values, so that keys have again what they had before.
    values = (*(letter + size for letter in letters for size in ("1", "22")[: len(letters) // 2]), "-", None)
    batches, offset = [], 0
    for _ in range(count):
        batch = []
        for _ in range(random.choice((5, 20, 40))):
            offset += 1
            at = offset, random.randrange(1, 1_000)
            if random.random() < 0.7:
                batch.append(row("orders", str(random.randrange(4)), random.choice(values), *at))
            else:
                batch.append(row("customers", random.choice(letters), random.choice((f"name-{offset}", None)), *at))
        batches.append(batch)
    return batches


@pytest.mark.parametrize("shards", [1, 2, 3])
@pytest.mark.parametrize("letters", ["af", "abcdef"])
def test_each_batch_ends_with_the_results_of_its_tables(shards: int, letters: str, tmp_path: Path) -> None:
    """Responses come after all of a batch's left changes: none may be lost that Kafka's order would bring in time."""
    random = Random(shards)
    run = StagedRun(program(), shards, tmp_path)
    tables: dict[str, Table] = {"orders": {}, "customers": {}}
    results: dict[str, Table] = {"inner": {}, "left": {}, "filtered": {}}
    for batch in drawn(random, 6, letters):
        for each in batch:
            put(tables[each["topic"]], each["key"].decode(), each["value"] and each["value"].decode())
        records = (
            (each["topic"], 0, each["offset"], int(each["timestamp"].timestamp()), each["key"], each["value"], b"")
            for each in batch
        )
        for topic, _, key, value, _ in run.run(records):
            put(results[topic], (key or b"").decode(), value and value.decode())
        assert results == joined(tables["orders"], tables["customers"])


@pytest.mark.slow
def test_results_go_on_in_other_shards(spark: SparkSession, tmp_path: Path) -> None:
    """Each stage's state is moved to another number of shards in the middle."""
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

    def run(home: Path, batches: list[list[dict[str, Any]]], shards: Mapping[str, int]) -> None:
        (home / "input").mkdir(parents=True)
        for number, batch in enumerate(batches):
            for each in batch:
                put(tables[each["topic"]], each["key"].decode(), each["value"] and each["value"].decode())
            write_rows(batch, home / "input" / f"{number}.parquet", 1_000.0 + number)
            wanted.append(joined(tables["orders"], tables["customers"]))
        records = spark.readStream.schema(KAFKA_ROWS).option("maxFilesPerTrigger", 1).parquet(str(home / "input"))
        rows = stateful(records, program(), shards=shards, state_location=home / "state", local_dir=str(home / "local"))
        writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(home / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    tables: dict[str, Table] = {"orders": {}, "customers": {}}
    wanted: list[dict[str, Table]] = []
    batches = drawn(Random(7), 4, "abc")
    before, after = tmp_path / "before", tmp_path / "after"
    run(before, batches[:2], {"stage-0": 1, "stage-1": 3, "stage-2": 2})
    shards = {"stage-0": 2, "stage-1": 4, "stage-2": 1}
    for stage, count in shards.items():
        rescale(
            spark,
            checkpoint_location=before / "checkpoint",
            state_location=before / "state" / stage,
            to=after / "state" / stage,
            shards=count,
            state_partitions=max(shards.values()),
            trust_keys=True,
        )
    run(after, batches[2:], shards)
    assert found == wanted
    assert names_of_headers.count({"orders", "customers"}) == len(names_of_headers) > 10
    committed = {"checkpoint_location": after / "checkpoint", "state_location": after / "state"}
    kept = read_store(spark, "customers", **committed, key_serde="string", value_serde="string")
    assert {each.key: each.value for each in kept.collect()} == tables["customers"]
