"""All operators of the DSL that keep state, in one query: what comes out and what is kept is what test drivers say."""

from __future__ import annotations

import shutil
from collections import defaultdict
from functools import reduce
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from statestore.spark import read_store, stateful
from statestore.spark.checkpoints.checkpoint import committed_pointers_option
from tests.support.spark.every_operator import (
    KEYS,
    SHARDS,
    TOPICS,
    Drivers,
    Outputs,
    batches,
    program,
    shard_of,
    write_batch,
)
from tests.support.spark.queries import OrderQuery
from tests.support.tools.runs import Tools

STORES = [spec.name for spec in program().store_specs()]
SHOWN = ["doubled", "final-store-times", "paid-outer-shared-join-store", "prices", "sessions"]
"""Some of them, whose keys hold a record's key in different ways: these are read by Spark, too."""
Entry = tuple[Any, ...]
"""Store, key, start and end, value, timestamp, headers."""


def run(query: OrderQuery) -> tuple[list[Outputs], str]:
    """Process all files that are there, and return what came out in each micro-batch, and the query's plan."""
    found: list[Outputs] = []

    def keep(batch: DataFrame, batch_id: int) -> None:
        outputs: Outputs = defaultdict(list)
        for row in batch.selectExpr("*", "unix_millis(timestamp) as time_ms").collect():
            value = None if row.value is None else bytes(row.value)
            outputs[row.topic, bytes(row.key)].append((value, row.time_ms, headers_of(row)))
        found.append(outputs)

    rows = stateful(
        query.records(),
        program(),
        shards=SHARDS,
        state_location=query.state_location,
        local_dir=str(query.home / "local"),
        via=query.via,
    )
    writer = rows.writeStream.foreachBatch(keep).option("checkpointLocation", str(query.home / "checkpoint"))
    running = writer.trigger(availableNow=True).start()
    running.awaitTermination()
    plan: str = running._jsq.explainInternal(False)
    return found, plan


def headers_of(row: Any) -> list[tuple[str, bytes | None]]:
    return [(header.key, header.value and bytes(header.value)) for header in row.headers or ()]


@pytest.mark.parametrize("via", ["transform_with_state"])
def test_a_query_of_all_operators_does_what_test_drivers_do(
    order_query: OrderQuery, capsys: pytest.CaptureFixture[str]
) -> None:
    home, given = order_query.home, batches()
    drivers, expected, found = Drivers(home / "drivers"), list[Outputs](), list[Outputs]()
    for half in (0, 1):
        for number in (2 * half, 2 * half + 1):
            write_batch(given[number], home / "input" / f"{number}.parquet", number)
            expected.append(drivers.outputs_of(given[number]))
        outputs, plan = run(order_query)
        found += outputs
        assert plan.count("Exchange hashpartitioning") == 1, plan
        if not half:
            drivers.restart()
            shutil.rmtree(home / "local")
    drivers.close()
    assert found == expected
    assert {topic for batch in expected for topic, _ in batch} == set(TOPICS), "each step has put out something"

    tools = Tools(capsys)
    entries = scanned(tools, STORES, drivers.directory)
    assert {entry[0] for entry in entries} == set(STORES), "each store has something"
    spark, checkpoint, location = order_query.spark, str(home / "checkpoint"), str(order_query.state_location)
    places = {"checkpoint_location": checkpoint, "state_location": location}
    shown = [entry for entry in entries if entry[0] in SHOWN]
    assert in_stores({store: read_store(spark, store, **places) for store in SHOWN}) == shown
    (home / "pointers").write_text(committed_pointers_option(spark, checkpoint))
    check_commands(tools, location, home / "pointers", entries)


def check_commands(tools: Tools, location: str, pointers: Path, entries: list[Entry]) -> None:
    """Check what commands find in a state location: all stores, and single keys of some."""
    assert scanned(tools, STORES, location, "--pointers", pointers) == entries
    checked = tools("verify", location, "--pointers", pointers)
    assert checked.code == 0, checked
    for store in SHOWN:
        # It looks into the one shard where the records are whose key is in this one: if it can, another than its own.
        keys = {bytes.fromhex(entry[1]) for entry in entries if entry[0] == store}
        key = max(keys, key=lambda key: (shard_of(key) != shard_of(next(k for k in KEYS if k.encode() in key)), key))
        found = tools("get", "--store", store, "--pointers", pointers, location, f"0x{key.hex()}")
        assert found.code == 0, (store, key, found)


def in_stores(frames: dict[str, DataFrame]) -> list[Entry]:
    """Return the entries of all stores."""
    columns = ["store", "key", "start_ms", "end_ms", "value", "timestamp_ms", "headers"]
    rows = reduce(DataFrame.union, (df.withColumn("store", f.lit(name)).select(columns) for name, df in frames.items()))
    found = [
        (
            row.store,
            row.key.hex(),
            row.start_ms,
            row.end_ms,
            row.value.hex(),
            row.timestamp_ms,
            None if row.headers is None else [(key, value and value.hex()) for key, value in headers_of(row)],
        )
        for row in rows.collect()
    ]
    return sorted(found, key=repr)


def scanned(tools: Tools, stores: list[str], place: Path | str, *options: object) -> list[Entry]:
    """Return the entries of stores, as a command lists them."""
    found: list[Entry] = []
    for store in stores:
        listed = tools("scan", "--json", "--store", store, *options, place)
        assert listed.code == 0, listed
        for entry in listed.document["entries"]:
            for one in versions_of(entry) if "versions" in entry else [entry]:
                headers = [tuple(header) for header in one["headers"]] if "headers" in one else None
                times = one.get("start"), one.get("end")
                found.append((store, entry["key"], *times, one["value"], one.get("timestamp"), headers))
    return sorted(found, key=repr)


def versions_of(entry: dict[str, Any]) -> list[dict[str, Any]]:
    times = {"start": "timestamp", "end": "validTo"}
    found = [{**version, **{time: version[name] for time, name in times.items()}} for version in entry["versions"]]
    return [{**version, "timestamp": None} for version in found]
