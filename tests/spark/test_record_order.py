"""The order of a shard's records: the earliest next record of all partitions, as a plain merge would find it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from statestore.headers.topic_columns import SourceFields, source_records
from statestore.spark.shards.blobs import INPUT, encode_blob
from statestore.spark.shards.record_order import batches_in_order, records_in_order

Place = tuple[str, int]


def blob(records: list[SourceFields], cuts: int = 1) -> bytes:
    """Records that are sorted by position, as a blob of several record batches."""
    size = -(-len(records) // cuts)
    batches = []
    for start in range(0, len(records), size):
        columns = list(zip(*records[start : start + size], strict=True))
        topic = pa.array(columns[0], pa.string()).dictionary_encode()
        rest = [pa.array(column, kind.type) for column, kind in zip(columns[1:], list(INPUT)[1:], strict=True)]
        batches.append(pa.record_batch([topic, *rest], schema=INPUT))
    return encode_blob(batches)


def record(place: Place, offset: int, timestamp_ms: int, value: bytes | None = None) -> SourceFields:
    return (*place, offset, timestamp_ms, b"k", b"%d" % offset if value is None else value, b"")


def merged_one_by_one(partitions: dict[Place, list[SourceFields]]) -> list[SourceFields]:
    """Take the earliest head, of equal ones that of the first partition, until nothing is left."""
    waiting = {place: list(records) for place, records in partitions.items() if records}
    taken = []
    while waiting:
        place = min(waiting, key=lambda place: (waiting[place][0][3], place))
        taken.append(waiting[place].pop(0))
        if not waiting[place]:
            del waiting[place]
    return taken


PARTITIONS = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 2)),
    st.lists(st.integers(0, 30), min_size=1, max_size=25),
    min_size=1,
    max_size=5,
)


def of_times(times: dict[Place, list[int]]) -> dict[Place, list[SourceFields]]:
    return {place: [record(place, n, time) for n, time in enumerate(found)] for place, found in times.items()}


@given(PARTITIONS, st.integers(1, 4), st.integers(1, 7), st.integers(1, 12), st.randoms(use_true_random=False))
@example({("a", 0): [5] * 9, ("b", 0): [5] * 9}, 1, 2, 2, None)
@example({("a", 0): [9, 1, 2, 3], ("a", 1): [2, 10, 10]}, 2, 1, 1, None)
def test_it_is_the_order_of_a_merge_however_records_are_cut(
    times: dict[Place, list[int]], tasks: int, at_once: int, bytes_at_once: int, random: Any
) -> None:
    partitions = of_times(times)
    everything = sorted(record for records in partitions.values() for record in records)
    blobs = [blob(everything[start::tasks], cuts=2) for start in range(tasks) if everything[start::tasks]]
    if random is not None:
        random.shuffle(blobs)
    batches = list(batches_in_order(blobs, max_rows=at_once, max_bytes=bytes_at_once))
    assert [record for batch in batches for record in source_records(batch)] == merged_one_by_one(partitions)
    assert all(batch.num_rows <= at_once for batch in batches)


def test_a_late_record_holds_back_nothing_but_its_own_partition() -> None:
    partitions = of_times({("a", 0): [10, 30, 20], ("a", 1): [15, 25, 40]})
    found = [(record[1], record[3]) for record in records_in_order([blob(part) for part in partitions.values()])]
    assert found == [(0, 10), (1, 15), (1, 25), (0, 30), (0, 20), (1, 40)]


def test_topics_that_come_first_are_merged_among_themselves_before_all_others() -> None:
    partitions = of_times({("a", 0): [1, 2], ("g", 0): [50, 70], ("h", 0): [60]})
    blobs = [blob(records) for records in partitions.values()]
    found = [(record[0], record[3]) for record in records_in_order(blobs, frozenset(["g", "h"]))]
    assert found == [("g", 50), ("h", 60), ("g", 70), ("a", 1), ("a", 2)]


def test_nothing_is_nothing() -> None:
    assert list(records_in_order([])) == []
    assert list(records_in_order([encode_blob([blob_of_nothing()])])) == []


def blob_of_nothing() -> pa.RecordBatch:
    return pa.record_batch([pa.array([], column.type) for column in INPUT], schema=INPUT)


def test_more_records_than_are_taken_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    partitions = of_times({("a", n): list(range(n, 30_000 + n, 3)) for n in range(3)})
    found = [record[3] for record in records_in_order([blob(records, cuts=3) for records in partitions.values()])]
    assert found == list(range(30_000))


MIB = 1 << 20


@pytest.mark.parametrize("places", [[("a", 0), ("a", 1)], [("a", 0), ("a", 0)]], ids=["merged", "overlapping"])
def test_records_are_never_put_together_in_more_than_a_few_megabytes(places: list[Place]) -> None:
    # One Arrow array of them would hold 64 MiB here, and with more than 2 GiB there is none.
    value = bytes(MIB)
    blobs = [
        blob([record(place, 2 * n + half, n, value) for n in range(32)], cuts=2) for half, place in enumerate(places)
    ]
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        records = 0
        for *_, found, _ in records_in_order(blobs):
            records += 1
            assert found == value
            assert pa.total_allocated_bytes() - before < 8 * MIB
        assert tracemalloc.get_traced_memory()[1] < 16 * MIB
    finally:
        tracemalloc.stop()
    assert records == 64


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.binary(max_size=1)), max_size=12), st.randoms())
def test_records_of_one_offset_come_in_one_order_whatever_the_shuffle_does(
    found: list[tuple[int, int, bytes]], random: Any
) -> None:
    place = ("a", 0)
    records = [record(place, offset, timestamp_ms, value) for offset, timestamp_ms, value in found]
    shuffled = random.sample(records, len(records))
    taken = []
    for tasks, some in enumerate((records, shuffled), 1):
        # Of equal positions, a task has its records in any order.
        parts = [sorted(some[start::tasks], key=lambda each: each[2]) for start in range(tasks)]
        taken.append(list(records_in_order([blob(part) for part in parts if part])))
    assert taken[0] == taken[1] == sorted(records, key=lambda each: each[2:])
