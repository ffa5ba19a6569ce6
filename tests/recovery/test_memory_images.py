"""The images of in-memory stores that a process keeps: a bound in bytes, and content that stays what it was."""

from dataclasses import replace

import pytest

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local import local_copy
from statestore.recovery.local.local_directory import LocalDirectory
from tests.support.recovery.shards import LoggedBatch, Shard, stored
from tests.support.recovery.spilling import SMALL

MIB = 1 << 20
SHARDS = 8


@pytest.fixture(autouse=True)
def no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_copy, "_images", type(local_copy._images)())


def run(shard: Shard, pointer: CommitPointer, values: dict[bytes, bytes | None]) -> CommitPointer:
    with shard.state.open(pointer) as batch:
        LoggedBatch(batch, TaskRecordContext()).stores["totals"].write(values.items())
        return batch.commit().pointer


def test_the_images_that_a_process_keeps_are_bounded_by_bytes(shard: Shard) -> None:
    local = LocalDirectory(shard.home / "local", memory=SMALL)
    shard.state = replace(shard.state, local=local, in_memory=frozenset(["totals"]))
    value = stored(bytes(MIB))
    pointers = []
    for number in range(SHARDS):
        # 3 MiB each, 24 of all.
        start = replace(shard.start(), shard=number)
        pointers.append(run(shard, start, {b"%d" % key: value for key in range(3)}))
        pointers[-1] = run(shard, pointers[-1], {b"own": stored(b"%d" % number)})
    kept = local_copy._images
    assert sum(image.database.held_bytes for image in kept.values()) <= SMALL.kept_images_bytes == 8 * MIB
    assert [shard_number for _, shard_number in kept] == [SHARDS - 2, SHARDS - 1], "the last used ones"
    for number, pointer in enumerate(pointers):
        with shard.state.open(pointer) as batch:
            found = dict(batch.stores["totals"].bytes.range(None, None))
            assert found == {b"0": value, b"1": value, b"2": value, b"own": stored(b"%d" % number)}


def test_one_that_is_larger_than_the_bound_is_kept_until_another_is_used(shard: Shard) -> None:
    local = LocalDirectory(shard.home / "local", memory=SMALL)
    shard.state = replace(shard.state, local=local, in_memory=frozenset(["totals"]))
    large = run(shard, shard.start(), {b"%d" % key: stored(bytes(MIB)) for key in range(10)})
    run(shard, large, {b"x": stored(b"y")})
    assert [number for _, number in local_copy._images] == [0]
    run(shard, shard.state.pointer(1, None), {b"x": stored(b"y")})
    assert [number for _, number in local_copy._images] == [1]


def test_a_store_knows_what_it_holds_through_every_kind_of_write() -> None:
    store = MemoryByteStore("s")
    of_nothing = store.held_bytes
    for number in range(100):
        store.put(b"%03d" % number, bytes(number))
    expected = MemoryByteStore("s")
    for number in range(50, 100, 2):
        expected.put(b"%03d" % number, b"other")
    store.write([(b"%03d" % number, None if number % 2 else b"other") for number in range(100)])
    store.put(b"none", None)
    store.delete_below(b"050")
    assert (store.held_bytes, dict(store.range(None, None))) == (expected.held_bytes, dict(expected.range(None, None)))
    store.delete_below(b"999")
    assert store.held_bytes == of_nothing == 0
