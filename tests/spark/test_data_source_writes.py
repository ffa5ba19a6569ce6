"""What the data source makes state of, and what it refuses, without Spark around it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, MapType, StringType

from statestore.bytestore.kinds.store_spec import StoreType
from statestore.errors import DataSourceOptionError, InputSchemaError, TargetNotEmptyError
from statestore.errors.new_state import ShardOverlapError, StateCheckError, StateRowError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from statestore.spark.datasource.writer import StateWriter, complete_state
from tests.support.spark.store_rows import (
    ROW_SCHEMA,
    ROW_TYPES,
    SHARDS,
    Row,
    batch_of,
    comparable,
    options_of,
    read,
    schema_of,
    seeded_rows,
    write,
)

BASE: Row = {"key": b"k", "value": b"v", "timestamp_ms": 5, "headers": [("h", b"x")], "start_ms": None, "end_ms": None}
VERSION: Row = {**BASE, "timestamp_ms": None, "start_ms": 100, "end_ms": None}
SESSION: Row = {**VERSION, "end_ms": 200}
WINDOW: Row = {**BASE, "start_ms": 3_000}
LATE_VERSION: Row = {**VERSION, "start_ms": 10, "end_ms": 20}


@pytest.mark.parametrize(
    ("kind", "rows", "column", "problem"),
    [
        (StoreType.HEADERS_KV, [{**BASE, "key": None}], "key", "a row without a key has no key"),
        (StoreType.HEADERS_KV, [{**BASE, "value": None}], "value", "key of digest 8254c329a92850f6 has no value"),
        (StoreType.HEADERS_KV, [{**BASE, "timestamp_ms": None}], "timestamp_ms", "no timestamp"),
        (StoreType.HEADERS_KV, [BASE, {**BASE, "timestamp_ms": -2}], "timestamp_ms", "negative"),
        (StoreType.HEADERS_KV, [{**BASE, "start_ms": 1}], "start_ms", "has no room for"),
        (StoreType.TS_KV, [BASE], "headers", "has no room for"),
        (
            StoreType.HEADERS_KV,
            [BASE, {**BASE, "key": b"l", "headers": [("h", b"x"), (None, b"x")]}],
            "headers",
            "acac86c0e609ca90 has a",
        ),
        (
            StoreType.HEADERS_KV,
            [{**BASE, "headers": None}, {**BASE, "headers": [None]}],
            "headers",
            "header without a key",
        ),
        (StoreType.KV, [{**BASE, "headers": []}], "timestamp_ms", "has no room for"),
        (StoreType.HEADERS_WINDOW, [BASE], "start_ms", "has no start"),
        (StoreType.HEADERS_WINDOW, [{**WINDOW, "end_ms": 3_999}], "end_ms", "does not end 1000 ms after"),
        (StoreType.HEADERS_WINDOW, [{**WINDOW, "start_ms": -1}], "start_ms", "before 1970"),
        (
            StoreType.HEADERS_WINDOW,
            [{**WINDOW, "start_ms": 0}, {**WINDOW, "start_ms": 99_000}],
            "start_ms",
            "forgotten",
        ),
        (StoreType.HEADERS_SESSION, [{**SESSION, "end_ms": 99}], "end_ms", "ends before it starts"),
        (StoreType.HEADERS_SESSION, [{**SESSION, "end_ms": None}], "end_ms", "has no end"),
        (StoreType.HEADERS_SESSION, [SESSION, {**SESSION, "end_ms": 99_000}], "end_ms", "is of 200.*forgotten"),
        (StoreType.HEADERS_VERSIONED, [{**VERSION, "end_ms": 100}], "end_ms", "ends when it begins"),
        (StoreType.HEADERS_VERSIONED, [VERSION, {**VERSION, "start_ms": 200}], "start_ms", "is still valid"),
        (StoreType.HEADERS_VERSIONED, [{**LATE_VERSION, "end_ms": 150}, VERSION], "start_ms", "is still valid"),
        (StoreType.HEADERS_VERSIONED, [VERSION, LATE_VERSION], "start_ms", "comes too late.*write_initial_state"),
        (
            StoreType.HEADERS_VERSIONED,
            [LATE_VERSION, {**VERSION, "start_ms": 99_000}],
            "end_ms",
            "is of 20.*forgotten",
        ),
    ],
)
def test_a_row_that_is_no_entry_is_named_and_leaves_no_state(
    kind: StoreType, rows: list[Row], column: str, problem: str, tmp_path: Path
) -> None:
    with pytest.raises(StateRowError, match=f"(?s){problem}") as raised:
        write(kind, tmp_path / "state", rows)
    assert raised.value.column == column
    assert raised.value.store == "store"
    assert read_metadata(DurableLocation(tmp_path / "state")) is None
    write(kind, tmp_path / "state", seeded_rows(kind, 2))
    assert comparable(read(tmp_path / "state")[0]) == comparable(seeded_rows(kind, 2))


def test_values_of_an_upgraded_store_have_no_timestamp(tmp_path: Path) -> None:
    row = {**BASE, "timestamp_ms": -1}
    write(StoreType.HEADERS_KV, tmp_path, [row])
    assert comparable(read(tmp_path)[0]) == comparable([row])


def test_two_entries_with_one_key_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StateCheckError, match=r"expected were 2 entries.*found were 1"):
        write(StoreType.HEADERS_KV, tmp_path, [BASE, {**BASE, "value": b"other"}])
    assert read_metadata(DurableLocation(tmp_path)) is None


def test_by_partition_the_rows_say_where_they_belong(tmp_path: Path) -> None:
    schema = schema_of(shard="integer", **ROW_TYPES)
    with pytest.raises(InputSchemaError, match="'shard': is missing"):
        StateWriter.begin(options_of(StoreType.HEADERS_KV, tmp_path, shardBy="partition"), ROW_SCHEMA, False)
    writer = StateWriter.begin(options_of(StoreType.HEADERS_KV, tmp_path, shardBy="partition"), schema, False)
    rows = batch_of([BASE, {**BASE, "key": b"l"}])
    placed = rows.add_column(0, "shard", pa.array([2, 0], pa.int32()))
    writer.commit([writer.write(iter([placed]))])
    assert {row["key"]: row["shard"] for row in read(tmp_path)[0]} == {b"k": 2, b"l": 0}
    outside = rows.add_column(0, "shard", pa.array([2, SHARDS], pa.int32()))
    with pytest.raises(StateRowError, match="is of no shard from 0 to 2"):
        writer.write(iter([outside]))


def test_tasks_that_share_a_shard_make_no_state(tmp_path: Path) -> None:
    writer = StateWriter.begin(options_of(StoreType.HEADERS_KV, tmp_path), ROW_SCHEMA, False)
    rows = seeded_rows(StoreType.HEADERS_KV)
    with pytest.raises(ShardOverlapError, match=r"write_initial_state\(\)") as raised:
        writer.commit([writer.write(iter([batch_of(part)])) for part in (rows[::2], rows[1::2])])
    assert raised.value.shards == [0, 1, 2]
    assert read_metadata(DurableLocation(tmp_path)) is None
    writer.abort([None])
    assert read_metadata(DurableLocation(tmp_path)) is None


def test_a_task_that_ends_a_state_may_be_tried_again(tmp_path: Path) -> None:
    writer = StateWriter.begin(options_of(StoreType.HEADERS_KV, tmp_path), ROW_SCHEMA, False)
    said = [pickle.dumps(writer.write(iter([batch_of([BASE])])).shards)]
    assert [complete_state(writer.made, said) for _ in range(2)] == [{"store": 1}] * 2
    assert [row["key"] for row in read(tmp_path)[0]] == [b"k"]


def test_a_state_is_made_in_an_empty_location_only(tmp_path: Path, written_state: Path) -> None:
    with pytest.raises(TargetNotEmptyError):
        write(StoreType.HEADERS_KV, written_state, [BASE])
    with pytest.raises(DataSourceOptionError, match=r"'mode'.*can't be overwrite"):
        StateWriter.begin(options_of(StoreType.HEADERS_KV, tmp_path), ROW_SCHEMA, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ({"value": "binary", "timestamp_ms": "long"}, "'key': is missing"),
        ({**ROW_TYPES, "key": "string"}, "'key': is string, not binary; cast it"),
        ({"key": "binary", "value": "binary"}, "'timestamp_ms': is missing"),
        ({**ROW_TYPES, "topic": "string"}, "'topic': is not one of"),
        ({**ROW_TYPES, "headers": MapType(StringType(), BinaryType())}, "'headers': is map"),
    ],
)
def test_columns_must_be_those_of_entries(columns: dict[str, Any], problem: str, tmp_path: Path) -> None:
    with pytest.raises(InputSchemaError, match=problem):
        StateWriter.begin(options_of(StoreType.HEADERS_KV, tmp_path), schema_of(**columns), False)
    assert list(tmp_path.iterdir()) == []
