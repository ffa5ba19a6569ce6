"""What the data source reads of stores, without Spark around it: rows become state and the same rows again."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
)
from pyspark.sql.types import StructType

from statestore.bytestore.kinds.store_spec import StoreSpec, StoreType
from statestore.bytestore.protocol import ByteStore
from statestore.errors import DataSourceOptionError
from statestore.recovery.commit.pointer import initial_pointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from statestore.recovery.shard_batch import ShardedState
from statestore.spark.datasource.read_as import ReadAs
from statestore.spark.datasource.row_filter import Condition, RowFilter, condition_of
from statestore.spark.datasource.source import FilteringReader, HeaderStateDataSource
from statestore.spark.datasource.store_scan import entry_columns
from tests.support.spark.store_rows import SHARDS, Row, comparable, read, rows_of_numbers, seeded_rows, write


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[StoreType, Path]:
    home = tmp_path_factory.mktemp("states")
    for kind in StoreType:
        write(kind, home / kind.value, seeded_rows(kind))
    return {kind: home / kind.value for kind in StoreType}


@pytest.mark.parametrize("kind", list(StoreType))
def test_rows_become_state_and_the_same_rows_again(kind: StoreType, states: dict[StoreType, Path]) -> None:
    rows, partitions = read(states[kind])
    assert comparable(rows) == comparable(seeded_rows(kind))
    assert partitions == SHARDS
    assert {row["shard"] for row in rows} == set(range(SHARDS))


def holds(asked: Filter, row: Row) -> bool | None:
    """Return what SQL says of a filter: None is unknown."""
    if isinstance(asked, Not):
        inner = holds(asked.child, row)
        return None if inner is None else not inner
    value = row[asked.attribute[0]]  # type: ignore[attr-defined]
    if isinstance(asked, IsNull):
        return value is None
    if isinstance(asked, IsNotNull):
        return value is not None
    if isinstance(asked, EqualNullSafe):
        return bool(value == asked.value)
    if value is None:
        return None
    if isinstance(asked, In):
        return True if value in asked.value else None if None in asked.value else False
    compared = asked.value  # type: ignore[attr-defined]
    return {
        EqualTo: value == compared,
        LessThan: value < compared,
        LessThanOrEqual: value <= compared,
        GreaterThan: value > compared,
        GreaterThanOrEqual: value >= compared,
    }[type(asked)]


COMPARISONS = (EqualTo, EqualNullSafe, LessThan, LessThanOrEqual, GreaterThan, GreaterThanOrEqual)


def filters_on(column: str, rng: random.Random, rows: list[Row]) -> list[Filter]:
    """Return one filter of each sort on a column."""
    values = [row[column] for row in rows if row[column] is not None] or [7]
    made: list[Filter] = [kind((column,), rng.choice(values)) for kind in COMPARISONS]
    made += [In((column,), tuple(rng.choices(values, k=3))), In((column,), (rng.choice(values), None))]
    made += [IsNull((column,)), IsNotNull((column,)), EqualNullSafe((column,), None)]
    return [*made, *map(Not, made)]


@contextmanager
def opened(location: Path, *indexed: str) -> Iterator[list[tuple[StoreSpec, ByteStore]]]:
    """Hand out the store in each shard of a state that no query has started on, with an index of these headers."""
    durable = DurableLocation(location)
    metadata = read_metadata(durable)
    assert metadata is not None
    with ExitStack() as closing:
        directory = closing.enter_context(TemporaryDirectory())
        spec = replace(metadata.stores[0], indexed_headers=indexed)
        state = ShardedState(metadata.state_id, durable, (spec,), LocalDirectory(directory))
        pointers = [initial_pointer(durable, metadata.state_id, shard) for shard in range(metadata.shards)]
        batches = [closing.enter_context(state.open(pointer)) for pointer in pointers]
        yield [(spec, batch.stores["store"].bytes) for batch in batches]


def selected(
    stores: list[tuple[StoreSpec, ByteStore]], filters: Sequence[Filter], header: tuple[str, bytes] | None = None
) -> list[Row]:
    conditions = [condition_of(each) for each in filters]
    selection = RowFilter(tuple(condition for condition in conditions if condition is not None), header)
    assert len(selection.conditions) == len(filters)
    return [
        row
        for spec, store in stores
        for columns in entry_columns(spec, store, selection, with_headers=True)
        for row in pa.table(columns).to_pylist()
    ]


@pytest.mark.parametrize("kind", list(StoreType))
def test_filters_select_exactly_what_sql_selects(kind: StoreType, states: dict[StoreType, Path]) -> None:
    rng = random.Random(f"filters of {kind.value}")
    with opened(states[kind]) as stores:
        rows = selected(stores, [])
        by_column = [filters_on(column, rng, rows) for column in ("key", "start_ms", "end_ms", "timestamp_ms")]
        alone = [[each] for filters in by_column for each in filters]
        together = [[rng.choice(filters) for filters in rng.sample(by_column, 2)] for _ in range(80)]
        for filters in (*alone, *together):
            expected = [row for row in rows if all(holds(each, row) is True for each in filters)]
            assert comparable(selected(stores, filters)) == comparable(expected), filters
    assert comparable(rows) == comparable(seeded_rows(kind))


@pytest.mark.parametrize("kind", [kind for kind in StoreType if kind.store_format.has_headers])
def test_a_header_selects_rows_by_an_index_or_without(kind: StoreType, states: dict[StoreType, Path]) -> None:
    all_rows, _ = read(states[kind])
    first = EqualTo(("key",), all_rows[0]["key"])
    for given, value in (("h=x", b"x"), ("h=0x", b""), ("h=text:y", b"y"), ("none=x", None)):
        expected = [row for row in all_rows if {"key": "h", "value": value} in row["headers"] and value is not None]
        assert comparable(read(states[kind], header=given)[0]) == comparable(expected)
        of_first = [row for row in expected if holds(first, row)]
        assert comparable(read(states[kind], [first], header=given)[0]) == comparable(of_first)
        for indexed in ((), ("h",)):
            with opened(states[kind], *indexed) as stores:
                found = selected(stores, [], (given.partition("=")[0], b"x" if value is None else value))
            assert comparable(found) == comparable(expected)
    with pytest.raises(DataSourceOptionError, match=r"'header'.*must be KEY=VALUE"):
        read(states[kind], header="h")
    with pytest.raises(DataSourceOptionError, match="'store', which has no headers"):
        read(states[StoreType.KV], header="h=x")


def test_filters_reach_the_shards(states: dict[StoreType, Path]) -> None:
    filters: list[Filter] = [In(("key",), (b"a", b"\xff")), GreaterThan(("start_ms",), 20_000), LessThan(("shard",), 2)]
    all_rows, _ = read(states[StoreType.HEADERS_WINDOW])
    expected = [row for row in all_rows if all(holds(each, row) is True for each in filters)]
    for trust in ("false", "true"):
        assert (
            comparable(read(states[StoreType.HEADERS_WINDOW], filters, trustKeys=trust)[0])
            == comparable(expected)
            != []
        )


def test_only_shards_that_can_have_it_are_read(states: dict[StoreType, Path]) -> None:
    key = EqualTo(("key",), b"a")
    assert read(states[StoreType.HEADERS_KV], [key])[1] == SHARDS, "a store's keys need not be those of records"
    assert read(states[StoreType.HEADERS_KV], [key], trustKeys="true")[1] == 1
    assert read(states[StoreType.HEADERS_KV], [In(("shard",), (0, 2, 9))])[1] == 2
    assert read(states[StoreType.HEADERS_KV], [GreaterThan(("shard",), 5)]) == ([], 0)
    assert list(FilteringReader.read(_reader(states), InputPartition(None))) == []


def _reader(states: dict[StoreType, Path]) -> FilteringReader:
    source = HeaderStateDataSource({"path": str(states[StoreType.HEADERS_KV]), "pushFilters": "true"})
    reader = source.reader(StructType())
    assert isinstance(reader, FilteringReader)
    return reader


def test_filters_that_are_not_known_stay_with_spark(states: dict[StoreType, Path]) -> None:
    unknown = [
        StringContains(("key",), "a"),
        EqualTo(("value",), b"x"),
        EqualTo(("key",), "text"),
        EqualTo(("headers", "key"), "h"),
        In(("start_ms",), (1, 2.5)),
        Not(EqualTo(("version",), 1)),
    ]
    known = EqualTo(("key",), b"a")
    assert _reader(states).pushFilters([*unknown, known]) == unknown


def test_what_there_is_no_need_to_look_at_is_said_by_filters() -> None:
    def selection(*filters: Filter) -> RowFilter:
        conditions = [condition_of(each) for each in filters]
        return RowFilter(tuple(each for each in conditions if each is not None))

    asked = selection(In(("key",), (b"b", b"a", None)), Not(EqualTo(("key",), b"b")), GreaterThan(("start_ms",), 5))
    assert asked.keys() == [b"a"]
    assert asked.time_bounds("start_ms") == (5, 2**63 - 1)
    assert selection(GreaterThan(("key",), b"a"), LessThan(("key",), b"c")).key_bounds() == (b"a", b"c")
    assert selection(In(("end_ms",), (7, 3))).time_bounds("end_ms") == (3, 7)
    assert selection(LessThan(("end_ms",), 7), EqualTo(("end_ms",), 5)).time_bounds("end_ms") == (5, 5)
    assert selection(LessThan(("end_ms",), 7)).time_bounds("end_ms") == (-(2**63), 7)
    assert selection(Not(LessThan(("end_ms",), 3))).time_bounds("end_ms") == (-(2**63), 2**63 - 1)
    assert selection(Not(EqualTo(("key",), b"b"))).keys() is None


def test_a_null_that_is_listed_may_be_any_value() -> None:
    listed = Condition("start_ms", In, [1, None])
    column = pa.array([1, 2, None], pa.int64())
    assert listed.mask(column).to_pylist() == [True, None, None]
    assert replace(listed, negated=True).mask(column).to_pylist() == [False, None, None]
    assert Condition("start_ms", In, [1], negated=True).mask(column).to_pylist() == [False, True, None]


def test_without_headers_there_is_no_such_column(states: dict[StoreType, Path]) -> None:
    source = HeaderStateDataSource({"path": str(states[StoreType.HEADERS_KV]), "includeHeaders": "false"})
    reader = source.reader(StructType())
    columns = {name for part in reader.partitions() for batch in reader.read(part) for name in batch.schema.names}
    assert columns == {"shard", "version", "key", "value", "timestamp_ms", "start_ms", "end_ms"}
    assert "headers" not in source.schema()
    assert "headers" in HeaderStateDataSource({"path": "x"}).schema()


@pytest.mark.parametrize("kind", [StoreType.HEADERS_KV, StoreType.TS_WINDOW, StoreType.SESSION, StoreType.VERSIONED])
def test_keys_that_are_read_as_numbers_are_found_by_numbers(kind: StoreType, tmp_path: Path) -> None:
    write(kind, tmp_path, rows_of_numbers(kind))
    rows, partitions = read(tmp_path, [In(("key",), (-300, 7))], keyAs="int64", trustKeys="true")
    assert sorted((row["key"], row["value"]) for row in rows) == [(-300, b"no. -300"), (7, b"no. 7")]
    assert partitions <= 2


@pytest.mark.parametrize(
    ("read_as", "asked", "expected"),
    [
        ("string", EqualTo(("key",), "ada"), b"ada"),
        ("int32", EqualTo(("key",), -1), b"\xff" * 4),
        ("int32", EqualTo(("key",), 2**31), None),
        ("string", GreaterThan(("key",), "a"), None),
        ("double", EqualTo(("key",), 0.0), None),
        ("bytes", EqualTo(("key",), b"a"), b"a"),
        ("bytes", EqualTo(("key",), "a"), None),
    ],
)
def test_filters_on_keys_compare_bytes_or_are_left_to_spark(read_as: str, asked: Filter, expected: Any) -> None:
    condition = condition_of(asked, ReadAs(key=read_as))
    assert (None if condition is None else condition.value) == expected
    assert condition_of(IsNotNull(("key",)), ReadAs(key=read_as)) is not None
