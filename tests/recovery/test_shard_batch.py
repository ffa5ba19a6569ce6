"""From pointer to pointer: commits, attempts that did not count, restores, damage."""

import shutil
from dataclasses import fields, replace
from pathlib import Path

import pyarrow as pa
import pytest

from statestore.errors.state import (
    CommitPointerError,
    DurableFileCorruptedError,
    DurableFileMissingError,
    LocalStateCorruptedError,
    LocationMismatchError,
)
from statestore.format.records.header_bytes import encode_headers
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.figures import CommitFigures
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd, RecordedPunctuation
from statestore.recovery.shard_batch import ShardBatch
from tests.support.recovery.shards import TOTALS, Shard, stored


def three_batches(shard: Shard) -> CommitPointer:
    pointer = shard.batch(shard.start(), {b"a": stored(b"1"), b"b": stored(b"2")})
    pointer = shard.batch(pointer, {b"a": stored(b"3"), b"b": None})
    return shard.batch(pointer, {b"c": stored(b"4", 6, encode_headers([("h", None), ("h", b"")]))})


EXPECTED = {b"a": stored(b"3"), b"c": stored(b"4", 6, encode_headers([("h", None), ("h", b"")]))}


def test_committed_batches_add_up(shard: Shard) -> None:
    pointer = three_batches(shard)
    assert pointer.version == 3
    assert shard.content(pointer) == EXPECTED


def test_a_pointer_survives_its_json(shard: Shard) -> None:
    pointer = three_batches(shard)
    assert CommitPointer.from_json(pointer.to_json()) == pointer


def test_a_lost_local_copy_is_rebuilt(shard: Shard) -> None:
    pointer = three_batches(shard)
    shutil.rmtree(shard.home / "local")
    assert shard.content(pointer) == EXPECTED


def test_a_batch_without_writes_makes_no_version(shard: Shard) -> None:
    pointer = three_batches(shard)
    after = shard.batch(pointer, {})
    assert after == pointer
    assert len(list((shard.home / "state/shards/0000/deltas").glob("*.arrow"))) == 3


def test_an_attempt_that_spark_did_not_commit_leaves_no_trace(shard: Shard) -> None:
    pointer = three_batches(shard)
    shard.batch(pointer, {b"a": stored(b"wrong"), b"z": stored(b"wrong")})
    assert shard.content(pointer) == EXPECTED
    again = shard.batch(pointer, {b"a": stored(b"right")})
    assert shard.content(again) == {**EXPECTED, b"a": stored(b"right")}


def test_a_batch_that_fails_leaves_no_trace(shard: Shard) -> None:
    pointer = three_batches(shard)

    def fail(batch: object) -> None:
        batch.stores["totals"].put(b"a", stored(b"wrong"))
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        shard.run(pointer, fail)
    assert shard.content(pointer) == EXPECTED


def test_an_older_pointer_gets_the_older_state(shard: Shard) -> None:
    first = shard.batch(shard.start(), {b"a": stored(b"1")})
    second = shard.batch(first, {b"a": stored(b"2")})
    assert shard.content(second) == {b"a": stored(b"2")}
    assert shard.content(first) == {b"a": stored(b"1")}
    other = shard.batch(first, {b"b": stored(b"3")})
    assert shard.content(other) == {b"a": stored(b"1"), b"b": stored(b"3")}
    assert shard.content(shard.start()) == {}


def test_two_attempts_at_once_do_not_wait_for_each_other(shard: Shard) -> None:
    pointer = three_batches(shard)
    with shard.open(pointer) as zombie:
        zombie.stores["totals"].put(b"a", stored(b"zombie"))
        retried = shard.batch(pointer, {b"a": stored(b"retry")})
        late = zombie.commit()
    assert late.head != retried.head
    assert shard.content(retried)[b"a"] == stored(b"retry")


def test_the_copy_is_reused_not_rebuilt(shard: Shard) -> None:
    pointer = three_batches(shard)
    shard.content(pointer)
    shard.delta_file(pointer, 0).unlink()
    assert shard.content(pointer) == EXPECTED, "a copy at this version needs no delta"


def check_damage_is_found(shard: Shard, pointer: CommitPointer, file: Path, damaged: list[bytes | None]) -> None:
    """Check that a restore stops at a delta that holds any of these instead, or is not there, until it is as it was."""
    content = file.read_bytes()
    for wrong in damaged:
        shutil.rmtree(shard.home / "local", ignore_errors=True)
        if wrong is None:
            file.unlink()
        else:
            file.write_bytes(wrong)
        with pytest.raises(DurableFileMissingError if wrong is None else DurableFileCorruptedError, match=file.name):
            shard.content(pointer)
    file.write_bytes(content)
    assert shard.content(pointer) == EXPECTED


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_missing_delta_is_named(shard: Shard, index: int) -> None:
    pointer = three_batches(shard)
    check_damage_is_found(shard, pointer, shard.delta_file(pointer, index), [None])


def test_every_flipped_bit_and_cut_of_a_delta_is_found(shard: Shard) -> None:
    pointer = three_batches(shard)
    file = shard.delta_file(pointer)
    content = file.read_bytes()
    damaged: list[bytes | None] = [content[:-1], content[: len(content) // 2], b"", content + b"\0"]
    for position in range(0, len(content), 97):
        flipped = bytearray(content)
        flipped[position] ^= 1 << (position % 8)
        damaged.append(bytes(flipped))
    check_damage_is_found(shard, pointer, file, damaged)


def test_a_damaged_local_copy_is_rebuilt_at_the_next_open(shard: Shard) -> None:
    pointer = three_batches(shard)
    shard.content(pointer)
    for table in shard.copy.glob("*.sst"):
        table.write_bytes(table.read_bytes()[:50])
    assert shard.content(pointer) == EXPECTED


def test_damage_that_shows_during_a_batch_fails_it_once(shard: Shard) -> None:
    many = {b"%06d" % number: stored(b"v" * 100) for number in range(3_000)}
    pointer = shard.batch(shard.start(), many)
    assert shard.content(pointer) == many
    table = max(shard.copy.glob("*.sst"), key=lambda file: file.stat().st_size)
    content = bytearray(table.read_bytes())
    content[100_000] ^= 1
    table.write_bytes(content)
    with pytest.raises(LocalStateCorruptedError, match="rebuilt"):
        shard.content(pointer)
    assert shard.content(pointer) == many


def test_a_copy_with_a_foreign_marker_is_rebuilt(shard: Shard) -> None:
    pointer = three_batches(shard)
    shard.content(pointer)
    other = Shard(shard.home / "other")
    elsewhere = other.batch(other.start(), {b"x": stored(b"other")})
    other.content(elsewhere)
    shutil.rmtree(shard.copy)
    shutil.copytree(other.copy, shard.copy)
    assert shard.content(pointer) == EXPECTED


def test_a_pointer_of_another_state_or_shard_is_refused(shard: Shard) -> None:
    pointer = three_batches(shard)
    foreign = CommitPointer("other-state", 0, pointer.version, pointer.deltas)
    with pytest.raises(LocationMismatchError, match=r"other-state.*state_location"):
        shard.state.pointer(0, foreign.to_json())
    with pytest.raises(CommitPointerError, match="shard 0"):
        shard.state.pointer(1, pointer.to_json())


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format":99}', "null", '{"format":1,"deltas":[[1]]}'])
def test_nonsense_in_sparks_state_is_refused(text: str) -> None:
    with pytest.raises(CommitPointerError):
        CommitPointer.from_json(text)


def test_a_tombstone_carries_the_deleting_record(shard: Shard) -> None:
    pointer = shard.batch(shard.start(), {b"a": stored(b"1")})
    context = TaskRecordContext()
    context.timestamp_ms = 77
    context.headers.add("why", b"deleted")
    with shard.open(pointer, context) as batch:
        batch.stores["totals"].put(b"a", None)
        deleted = batch.commit()
    with pa.ipc.open_file(shard.delta_file(deleted)) as reader:
        assert reader.read_all().to_pylist() == [
            {
                "store": "totals",
                "key": b"a",
                "value": None,
                "timestamp": 77,
                "header_bytes": encode_headers([("why", b"deleted")]),
            }
        ]
    assert shard.content(deleted) == {}


def test_two_stores_share_one_delta_and_stay_apart(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    shard.state = replace(shard.state, stores=(TOTALS, replace(TOTALS, name="counts")))

    def write(batch: object) -> CommitPointer:
        batch.stores["totals"].put(b"k", stored(b"total"))
        batch.stores["counts"].put(b"k", stored(b"count"))
        return batch.commit()

    pointer = shard.run(shard.start(), write)
    assert len(pointer.deltas) == 1
    shutil.rmtree(tmp_path / "local")
    found = shard.run(pointer, lambda batch: (batch.stores["totals"].get(b"k"), batch.stores["counts"].get(b"k")))
    assert found == (stored(b"total"), stored(b"count"))


def test_what_a_batch_leaves_goes_into_its_commit(shard: Shard) -> None:
    punctuations = {"node": (RecordedPunctuation("wall_clock", 10, None, 20),)}
    with shard.state.open(shard.start()) as batch:
        left = batch.commit(BatchEnd(3, 70, {"windows": 60}, punctuations, {"windows": 50, "joined": 1})).pointer
    assert (left.version, left.skipped_records, left.stream_time_ms) == (0, 3, 70)
    assert (left.store_times_ms, left.punctuations) == ({"windows": 60}, punctuations)
    assert left.processor_metadata == {"windows": 50, "joined": 1}
    with shard.state.open(left) as batch:
        following = batch.commit(BatchEnd(2, 80, {"sessions": 5}, processor_metadata={"windows": -7})).pointer
    assert following == replace(
        left,
        skipped_records=5,
        stream_time_ms=80,
        store_times_ms={"windows": 60, "sessions": 5},
        processor_metadata={"windows": -7, "joined": 1},
    )


def test_nothing_is_said_of_a_batch_but_in_its_commit() -> None:
    """So a batch has only what it was opened with, and `commit` returns what came of it."""
    assert {field.name for field in fields(ShardBatch)} == {"state", "pointer", "stores", "delta", "copy"}
    assert all(kind.__dataclass_params__.frozen for kind in (ShardBatch, BatchEnd, CommitFigures))
