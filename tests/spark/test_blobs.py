"""Pack, blobs and unpack without a session: placement, order, spilling, and bytes that stay as they are."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructField, StructType

from statestore.bytestore.write_sets.spilling import SpillSpace
from statestore.errors import InputSchemaError
from statestore.errors.run import FutureTimestampError, InputHeadersError, InvalidTimestampError, NullKeyError
from statestore.format.keys.partitioner import partition_column
from statestore.format.records.header_bytes import encode_headers, parse_count
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.headers.topic_columns import sink_batch
from statestore.spark.shards.blobs import BlobSpool, by_shard, encode_blob, release_buffers
from statestore.spark.shards.pack import Pack, unpack
from statestore.spark.shards.record_order import records_in_order
from statestore.spark.shards.schema import HEADERS, check_column_type
from tests.support.recovery.spilling import SMALL

SHARDS = 3
ROUTING = (11, 5, 8)
TIMESTAMP = pa.timestamp("us", "UTC")
Position = tuple[str, int, int]


def rows(positions: list[Position], **columns: Any) -> pa.RecordBatch:
    count = len(positions)
    topics, partitions, offsets = zip(*positions, strict=True) if positions else ((), (), ())
    made = {
        "key": pa.array([b"%d" % offset for offset in offsets], pa.binary()),
        "value": pa.array([b"v"] * count, pa.binary()),
        "topic": pa.array(topics, pa.string()),
        "partition": pa.array(partitions, pa.int32()),
        "offset": pa.array(offsets, pa.int64()),
        "timestamp": pa.array([1_700_000_000_123_999] * count, pa.int64()).cast(TIMESTAMP),
        "headers": pa.array([[{"key": "h", "value": b"%d" % offset}] for offset in offsets], HEADERS_TYPE),
        **columns,
    }
    return pa.record_batch(made)


def array_of(**fields: DataType) -> ArrayType:
    return ArrayType(StructType([StructField(name, type_) for name, type_ in fields.items()]))


def packed(*batches: pa.RecordBatch, shard_by: str = "key") -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for row in Pack(SHARDS, shard_by, ROUTING)(iter(batches)):
        for route, blob in zip(row.column("route").to_pylist(), row.column("blob").to_pylist(), strict=True):
            found.setdefault(ROUTING.index(route), []).append(blob)
    return found


def test_records_arrive_as_they_were_in_the_shard_of_their_key() -> None:
    batch = rows([("in", 0, offset) for offset in range(50)])
    shards = packed(batch)
    placed = partition_column(batch.column("key"), SHARDS).tolist()
    seen = []
    for shard, blobs in shards.items():
        for topic, partition, offset, timestamp_ms, key, value, header_bytes in records_in_order(blobs):
            assert placed[offset] == shard
            assert (topic, partition, timestamp_ms) == ("in", 0, 1_700_000_000_123)
            assert (key, value) == (b"%d" % offset, b"v")
            assert header_bytes == encode_headers([("h", b"%d" % offset)])
            seen.append(offset)
    assert sorted(seen) == list(range(50))


def test_placement_by_partition() -> None:
    positions = [("in", partition, 0) for partition in range(7)]
    shards = packed(rows(positions, key=pa.nulls(7, pa.binary())), shard_by="partition")
    placed = {shard: [record[1] for record in records_in_order(blobs)] for shard, blobs in shards.items()}
    assert placed == {0: [0, 3, 6], 1: [1, 4], 2: [2, 5]}


POSITIONS = st.lists(
    st.tuples(st.sampled_from(["a", "b"]), st.integers(0, 2), st.integers(0, 60)), unique=True, max_size=40
)


@given(POSITIONS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_however_rows_are_cut_and_shuffled_a_shard_sees_them_in_order(
    positions: list[Position], cuts: int, random: Any
) -> None:
    # Spark may split a partition between tasks, and hands blobs over in any order.
    tasks = [positions[start::cuts] for start in range(cuts)]
    blobs: dict[int, list[bytes]] = {}
    for task in tasks:
        for shard, made in packed(*(rows(task[at : at + 4]) for at in range(0, len(task), 4))).items():
            blobs.setdefault(shard, []).extend(made)
    seen = []
    for made in blobs.values():
        random.shuffle(made)
        order = [record[:3] for record in records_in_order(made)]
        assert order == sorted(order)
        seen.extend(order)
    assert sorted(seen) == sorted(positions)


def test_many_records_make_several_blobs_and_lose_nothing() -> None:
    value = b"x" * 1000
    batches = [
        rows([("in", 0, offset) for offset in range(start, start + 1000)], value=pa.array([value] * 1000, pa.binary()))
        for start in range(0, 6000, 1000)
    ]
    shards = packed(*batches)
    assert all(len(blobs) > 1 for blobs in shards.values())
    assert all(len(blob) < 3 << 20 for blobs in shards.values() for blob in blobs)
    offsets = sorted(record[2] for blobs in shards.values() for record in records_in_order(blobs))
    assert offsets == list(range(6000))


def test_blobs_of_large_records_have_few_megabytes() -> None:
    values = [bytes(size) for size in [500_000] * 8 + [3 << 20] + [500_000] * 8]
    batch = rows([("in", 0, n) for n in range(17)], value=pa.array(values, pa.binary()))
    blobs = packed(batch, shard_by="partition")[0]
    assert [len(blob) for blob in blobs if len(blob) > 2 << 20] == [pytest.approx(3 << 20, rel=0.2)]
    assert [record[2] for record in records_in_order(blobs)] == list(range(17))


def test_what_waits_keeps_nothing_else_of_its_batch() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(32):
            # All but the last record are of one partition, and full blobs of them are gone at once.
            positions = [("in", 0, 4 * number + n) for n in range(3)] + [("in", 1, number)]
            yield rows(positions, value=pa.array([bytes(1 << 20)] * 3 + [b"small"], pa.binary()))
            held.append(pa.total_allocated_bytes() - before)

    held: list[int] = []
    before = pa.total_allocated_bytes()
    for _ in Pack(2, "partition", (4, 7))(batches()):
        pass
    assert len(held) == 32
    assert held[-1] < held[1] + (4 << 20)


def test_empty_batches_and_no_batches_make_no_blobs() -> None:
    assert packed() == {}
    assert packed(rows([])) == {}


def test_no_rows_are_in_no_shard_and_others_stay_in_order() -> None:
    rows = pa.record_batch([pa.array([0, 1, 2, 3, 4])], ["row"])
    assert list(by_shard(rows.slice(0, 0), np.array([], np.int64))) == []
    found = {shard: each.column("row").to_pylist() for shard, each in by_shard(rows, np.array([7, 2, 7, 2, 9]))}
    assert found == {2: [1, 3], 7: [0, 2], 9: [4]}


def test_sparks_other_arrow_types_are_taken_too() -> None:
    strict = pa.struct([pa.field("key", pa.large_string(), nullable=False), pa.field("value", pa.large_binary())])
    batch = rows(
        [("in", 0, 0)],
        key=pa.array([b"k"], pa.large_binary()),
        topic=pa.array(["in"], pa.large_string()),
        headers=pa.array([[{"key": "h", "value": None}]], pa.list_(strict)),
    )
    [blobs] = packed(batch).values()
    [record] = records_in_order(blobs)
    assert record[4] == b"k"
    assert record[6] == encode_headers([("h", None)])


def test_null_headers_are_no_headers() -> None:
    [blobs] = packed(rows([("in", 0, 0)], headers=pa.nulls(1, HEADERS_TYPE))).values()
    assert [record[6] for record in records_in_order(blobs)] == [b""]


@pytest.mark.parametrize("timestamp", [None, -1, -1_000_000])
def test_bad_timestamps_are_named(timestamp: int | None) -> None:
    column = pa.array([5, timestamp, 6], pa.int64()).cast(TIMESTAMP)
    with pytest.raises(InvalidTimestampError, match="in-2 at offset 7"):
        packed(rows([("in", 2, 6), ("in", 2, 7), ("in", 2, 8)], timestamp=column))


def test_null_keys_are_named_and_a_null_offset_too() -> None:
    with pytest.raises(NullKeyError, match="in-0 at offset 1 has a null key"):
        packed(rows([("in", 0, 0), ("in", 0, 1)], key=pa.array([b"k", None], pa.binary())))
    with pytest.raises(InputSchemaError, match="'offset': holds null"):
        packed(rows([("in", 0, 0)], offset=pa.nulls(1, pa.int64())))


def test_output_becomes_rows_of_the_kafka_sinks_shape_without_a_scalar_parse() -> None:
    header_bytes = encode_headers([("h", b""), ("h", None), ("ä", b"1")])
    before = parse_count()
    blob = encode_blob([sink_batch(["a", "b"], [1, 2], [b"k", None], [b"v", None], [header_bytes, b""])])
    [found] = unpack(iter([pa.record_batch([[blob]], ["blob"])]))
    assert parse_count() == before
    assert found.schema.field("timestamp").type == TIMESTAMP
    first, second = found.to_pylist()
    assert [(h["key"], h["value"]) for h in first["headers"]] == [("h", b""), ("h", None), ("ä", b"1")]
    assert (first["topic"], first["key"], first["value"]) == ("a", b"k", b"v")
    assert (second["topic"], second["key"], second["value"], second["headers"]) == ("b", None, None, [])


BLOBS = [encode_blob([pa.record_batch([pa.array([number] * (500 + number))], ["n"])]) for number in range(5)]


def test_a_spool_beyond_its_memory_gives_back_the_same_blobs(tmp_path: Path) -> None:
    with SpillSpace(tmp_path / "spill-0", SMALL) as space, BlobSpool(space, "input", 2 * len(BLOBS[1])) as spool:
        for _ in range(2):  # it can be filled again
            for blob in BLOBS:
                spool.add(blob)
            assert [bytes(memoryview(blob)) for blob in spool.blobs] == BLOBS
            on_disk = sum(path.stat().st_size for path in space.directory.iterdir())
            assert sum(map(len, BLOBS[2:])) <= on_disk < sum(map(len, BLOBS[1:]))
            assert space.size_bytes == 0, "what is spilled of writes"
            spool.clear()
            assert list(space.directory.iterdir()) == []
    assert not (tmp_path / "spill-0").exists()


def test_a_spool_within_its_memory_makes_no_directory(tmp_path: Path) -> None:
    with SpillSpace(tmp_path / "spill-0", SMALL) as space, BlobSpool(space, "input", 1 << 20) as spool:
        spool.add(BLOBS[0])
        assert spool.blobs == BLOBS[:1]
        assert not space.directory.exists()


YEAR_MS = 365 * 24 * 3600 * 1000


def test_milliseconds_that_were_taken_for_seconds_are_refused() -> None:
    now_us = int(time.time() * 1_000_000)
    positions = [("in", 0, 4), ("in", 0, 5)]
    batch = rows(positions, timestamp=pa.array([now_us, now_us * 1000], pa.int64()).cast(TIMESTAMP))
    with pytest.raises(
        FutureTimestampError, match=r"in-0 at offset 5 .*the year \d\d,\d{3}, more than 365 days.*"
    ) as caught:
        list(Pack(SHARDS, "key", ROUTING, max_timestamp_ahead_ms=YEAR_MS)(iter([batch])))
    assert "timestamp_millis()" in str(caught.value)
    assert caught.value.timestamp_ms == now_us
    assert sum(map(len, packed(batch).values())) == 2  # without a bound


def test_a_bound_of_the_clock_is_what_was_asked_for() -> None:
    soon_us = (int(time.time()) + 3600) * 1_000_000
    batch = rows([("in", 0, 4)], timestamp=pa.array([soon_us], pa.int64()).cast(TIMESTAMP))
    assert list(Pack(SHARDS, "key", ROUTING, max_timestamp_ahead_ms=2 * 3600 * 1000)(iter([batch])))
    with pytest.raises(FutureTimestampError, match="more than 5000 ms ahead"):
        list(Pack(SHARDS, "key", ROUTING, max_timestamp_ahead_ms=5000)(iter([batch])))


@pytest.mark.parametrize(("header", "problem"), [({"key": None, "value": b"x"}, "has a null key"), (None, "is null")])
def test_a_header_that_is_none_says_which_record_has_it(header: Any, problem: str) -> None:
    headers = pa.array([[{"key": "a", "value": b"b"}], [{"key": "a", "value": None}, header], None], HEADERS_TYPE)
    batch = rows([("in", 3, offset) for offset in range(7, 10)], headers=headers)
    with pytest.raises(InputHeadersError, match=rf"in-3 at offset 8: its header 1 {problem}\. .*filter\(headers"):
        packed(batch)


@pytest.mark.parametrize(
    ("found", "remedy"),
    [
        (MapType(StringType(), BinaryType()), "a map can't keep.*map_entries"),
        (array_of(key=StringType(), value=StringType()), r"cast\(headers as array<struct<key:string,value:binary>>\)"),
        (array_of(value=BinaryType(), key=StringType()), "swap the fields"),
        (array_of(key=StringType()), "needs a value.*cast\\(null as binary\\)"),
        (StringType(), "an empty array of that type"),
        (ArrayType(StringType()), "an empty array of that type"),
    ],
)
def test_headers_of_another_type_are_called_what_they_are(found: DataType, remedy: str) -> None:
    with pytest.raises(InputSchemaError, match=f"not array<struct.*{remedy}") as caught:
        check_column_type(StructField("headers", found), HEADERS)
    assert ("map" in str(caught.value)) == isinstance(found, MapType)


def test_what_is_freed_goes_back_to_the_operating_system() -> None:
    freed = [b"x" * 50_000 for _ in range(1_000)]
    last = b"x" * 50_000  # what lies before something in use goes back only when asked for
    freed.clear()
    held_kb = anonymous_kb()
    release_buffers()
    assert anonymous_kb() < held_kb - 40_000
    assert last


def anonymous_kb() -> int:
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:"))
