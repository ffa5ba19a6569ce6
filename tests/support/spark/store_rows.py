"""Rows of stores of every kind: made, written as state by the data source's own writer, and read again, without Spark.

Whatever Spark would pickle on the way is pickled here, too.
"""

from __future__ import annotations

import pickle
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import ArrayType, StructType

from statestore import Serdes
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, StoreType
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.spark.datasource.source import FilteringReader, HeaderStateDataSource
from statestore.spark.datasource.writer import StateWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

Row = dict[str, Any]
SIZE_MS = 1_000
INTERVAL_MS = 2_000
LATEST_MS = 60_000
RETENTION_MS = 70_000
SHARDS = 3
NUMBERS = [-(2**63), -300, -1, 0, 7, 2**40]
ENTRY_COLUMNS = ("key", "value", "timestamp_ms", "headers", "start_ms", "end_ms")


def spec_of(kind: StoreType) -> StoreSpec:
    store_kind = kind.store_kind
    times = (RETENTION_MS, INTERVAL_MS) if store_kind.is_segmented else (None, None)
    size_ms = SIZE_MS if store_kind is StoreKind.WINDOW else None
    return StoreSpec("store", store_kind, kind.store_format, *times, size_ms, kind.retain_duplicates)


def options_of(kind: StoreType, location: Path, **other: Any) -> dict[str, str]:
    spec = spec_of(kind)
    options: dict[str, Any] = {"path": location, "store": "store", "kind": kind.value, "shards": SHARDS, **other}
    if spec.kind.is_segmented:
        options |= {"retentionMs": spec.retention_ms, "segmentIntervalMs": spec.segment_interval_ms}
    if spec.kind is StoreKind.WINDOW:
        options["windowSizeMs"] = SIZE_MS
    return {name: str(value) for name, value in options.items()}


def seeded_rows(kind: StoreType, keys: int = 25) -> list[Row]:
    """Return rows of a store, in order of key and start; keys of which some begin like others, and an empty one."""
    rng = random.Random(kind.value)
    spec = spec_of(kind)
    rows: list[Row] = []
    for number in range(keys):
        key = bytes(rng.choice(b"\x00a\xff") for _ in range(number % 5))
        times = sorted(rng.sample(range(0, LATEST_MS, 500), 8)) if spec.kind.is_segmented else [0]
        for number, (start_ms, next_ms) in enumerate(zip(times, [*times[1:], None], strict=True)):
            end_ms = {
                StoreKind.KEY_VALUE: None,
                StoreKind.WINDOW: start_ms + SIZE_MS,
                StoreKind.SESSION: start_ms + rng.choice((0, 700, 9_000)),
                # Some are followed at once, some are deleted before.
                StoreKind.VERSIONED: next_ms if next_ms is None else rng.choice((next_ms, next_ms - 1)),
            }[spec.kind]
            headers = [("h", rng.choice((None, b"", b"x"))) for _ in range(rng.randrange(3))]
            rows.append(
                {
                    "key": key,
                    "value": rng.randbytes(number),
                    "timestamp_ms": rng.randrange(-1, LATEST_MS) if spec.format.has_timestamp else None,
                    "headers": headers if spec.format.has_headers else None,
                    "start_ms": start_ms if spec.kind.is_segmented else None,
                    "end_ms": end_ms,
                }
            )
    # The empty key and others come several times: a store has one entry of each place, the last one.
    by_place = {(row["key"], row["start_ms"], row["end_ms"]): row for row in rows}
    if spec.kind is StoreKind.VERSIONED:
        by_place = {place: row for place, row in by_place.items() if row in rows_of_first_with_key(rows)}
    kept = list(by_place.values())
    if spec.retain_duplicates:
        kept += [{**row, "value": row["value"] + b"again"} for row in kept[::3]]
    return sorted(kept, key=lambda row: (row["key"], row["start_ms"] or 0))


def rows_of_first_with_key(rows: list[Row]) -> list[Row]:
    kept: list[Row] = []
    for row in rows:
        last = next((other for other in reversed(kept) if other["key"] == row["key"]), None)
        if last is None or (last["end_ms"] is not None and last["end_ms"] <= row["start_ms"]):
            kept.append(row)
    return kept


HEADERS = ArrayType(StructType().add("key", "string").add("value", "binary"))


def rows_of_numbers(kind: StoreType) -> list[Row]:
    """Return rows whose keys are numbers, and whose values are them as text."""
    first = seeded_rows(kind)[0]
    keys = sorted((Serdes.int64().serialize(number), f"no. {number}".encode()) for number in NUMBERS)
    return [{**first, "key": key, "value": value} for key, value in keys]


def schema_of(**columns: Any) -> StructType:
    """Return a schema; to parse one as text would take a Spark session."""
    schema = StructType()
    for name, type_ in columns.items():
        schema.add(name, type_)
    return schema


ROW_TYPES: dict[str, Any] = {
    "key": "binary",
    "value": "binary",
    "timestamp_ms": "long",
    "headers": HEADERS,
    "start_ms": "long",
    "end_ms": "long",
}
ROW_SCHEMA = schema_of(**ROW_TYPES)


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    types = (pa.binary(), pa.binary(), pa.int64(), HEADERS_TYPE, pa.int64(), pa.int64())
    columns = [pa.array([row[name] for row in rows], type_) for name, type_ in zip(ENTRY_COLUMNS, types, strict=True)]
    return pa.record_batch(columns, names=list(ENTRY_COLUMNS))


def write(kind: StoreType, location: Path, rows: list[Row], **other: Any) -> None:
    writer = HeaderStateDataSource(options_of(kind, location, **other)).writer(ROW_SCHEMA, False)
    assert isinstance(writer, StateWriter)
    batches = [batch_of(rows[start : start + 40]) for start in range(0, len(rows), 40)]
    writer.commit([pickle.loads(pickle.dumps(writer)).write(iter(batches))])


def read(location: Path, filters: list[Filter] | None = None, **options: str) -> tuple[list[Row], int]:
    """Return what a read gives, after filters were pushed down if there are any, and how many partitions it took."""
    pushed = {} if filters is None else {"pushFilters": "true"}
    reader = HeaderStateDataSource({"path": str(location), **pushed, **options}).reader(StructType())
    assert isinstance(reader, FilteringReader) == (filters is not None)
    if isinstance(reader, FilteringReader):
        assert list(reader.pushFilters(filters or [])) == []
    partitions = reader.partitions()
    on_executor = pickle.loads(pickle.dumps(reader))
    rows = [row for each in partitions for batch in on_executor.read(each) for row in batch.to_pylist()]
    return rows, len(partitions)


def comparable(rows: list[Row]) -> list[tuple[Any, ...]]:
    def header_pairs(row: Row) -> list[tuple[str, bytes | None]] | None:
        if row["headers"] is None:
            return None
        return [(each["key"], each["value"]) if isinstance(each, dict) else each for each in row["headers"]]

    found = [tuple(header_pairs(row) if name == "headers" else row[name] for name in ENTRY_COLUMNS) for row in rows]
    return sorted(found, key=repr)
