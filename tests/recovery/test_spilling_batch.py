"""Batches that write more than they may hold in memory: committed, restored, and failed, like all others."""

import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from statestore import Headers, Serdes, Stores
from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.errors import LocalDirectoryError
from statestore.errors.state import SpilledDeltaCorruptedError
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import split_stored
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.changelog import ChangelogRecord
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.local.local_directory import LocalDirectory
from tests.support.recovery.shards import LoggedBatch, Shard, stored
from tests.support.recovery.spilling import SMALL, run_on_small_disk

VALUE = b"v" * 1_000
MANY = 3 * SMALL.pending_bytes // len(VALUE)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    shard = Shard(tmp_path)
    shard.state = replace(shard.state, local=LocalDirectory(tmp_path / "local", memory=SMALL))
    return shard


def write_many(batch: LoggedBatch) -> CommitPointer:
    put_many(batch)
    return batch.commit()


def put_many(batch: LoggedBatch) -> None:
    store = batch.stores["totals"]
    for number in range(MANY):
        store.put(b"%06d" % number, stored(VALUE, number))
    for number in range(0, MANY, 3):
        store.put(b"%06d" % number, stored(b"again", number))
    store.put(b"%06d" % 1, None)
    assert batch.batch.delta.spill_figures.size_bytes > SMALL.pending_bytes


def expected() -> dict[bytes, bytes]:
    content = {b"%06d" % number: stored(b"again" if number % 3 == 0 else VALUE, number) for number in range(MANY)}
    del content[b"%06d" % 1]
    return content


def test_it_is_committed_applied_and_restored(shard: Shard) -> None:
    pointer = shard.run(shard.start(), write_many)
    assert not [found for found in shard.copy.parent.glob("spill-*") if found.is_dir()]
    assert shard.content(pointer) == expected()
    shutil.rmtree(shard.home / "local")
    assert shard.content(pointer) == expected()


def test_b6_all_of_it_is_shown_before_anything_is_durable(shard: Shard) -> None:
    shown: dict[bytes, bytes | None] = {}

    def watch(name: str, records: Iterable[ChangelogRecord]) -> None:
        assert not list(shard.home.glob("state/**/*.arrow"))
        assert name == "totals"
        shown.update((record.key, record.value) for record in records)

    def write(batch: LoggedBatch) -> CommitPointer:
        put_many(batch)
        return batch.batch.commit(on_changelog=watch).pointer

    assert shard.content(shard.run(shard.start(), write)) == expected()
    put = {key: split_stored(StoreFormat.TIMESTAMPED_WITH_HEADERS, value).value for key, value in expected().items()}
    assert shown == {**put, b"%06d" % 1: None}


def test_b6_who_watches_can_end_a_batch(shard: Shard) -> None:
    def refuse(name: str, records: Iterable[ChangelogRecord]) -> None:
        raise RuntimeError(f"{name}: {len(list(records))}")

    def write(batch: LoggedBatch) -> None:
        batch.stores["totals"].put(b"k", stored(b"v"))
        batch.batch.commit(on_changelog=refuse)

    with pytest.raises(RuntimeError, match="totals: 1"):
        shard.run(shard.start(), write)
    assert not list(shard.home.glob("state/**/*.arrow"))


def test_one_that_fails_leaves_no_trace(shard: Shard) -> None:
    def fail(batch: LoggedBatch) -> None:
        write_many(batch)
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        shard.run(shard.start(), fail)
    assert not [found for found in shard.copy.parent.glob("spill-*") if found.is_dir()]
    assert shard.content(shard.start()) == {}


def test_a_processor_that_swallows_the_error_of_a_spill_cannot_commit(shard: Shard) -> None:
    spill = shard.copy.parent / "spill-0"
    swallowed: list[str] = []

    def write(batch: LoggedBatch) -> CommitPointer:
        spill.touch()  # where the directory is to be
        for number in range(MANY):
            try:
                batch.stores["totals"].put(b"%06d" % number, stored(VALUE))
            except LocalDirectoryError as error:
                swallowed.append(error.path)
                spill.unlink(missing_ok=True)
        return batch.commit()

    with pytest.raises(LocalDirectoryError, match=r"spill-0.*File exists"):
        shard.run(shard.start(), write)
    assert set(swallowed) == {str(spill)}
    assert len(swallowed) > 1, "the writes after it are told too"
    assert not list(shard.home.glob("state/**/*.arrow"))
    assert shard.content(shard.start()) == {}


def flip_a_bit(delta: Path) -> None:
    with open(delta, "r+b") as file:
        file.seek(100_000)
        byte = file.read(1)[0]
        file.seek(100_000)
        file.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("damage", [flip_a_bit, Path.unlink])
def test_a_delta_that_the_disk_did_not_keep_is_not_uploaded(shard: Shard, damage: Callable[[Path], None]) -> None:
    def write(batch: LoggedBatch) -> CommitPointer:
        put_many(batch)
        damage(shard.copy.parent / "spill-0" / "delta.arrow")
        return batch.commit()

    with pytest.raises(SpilledDeltaCorruptedError, match=r"shard 0.*spill-0/delta\.arrow") as caught:
        shard.run(shard.start(), write)
    assert caught.value.path.endswith("spill-0/delta.arrow")
    assert not list(shard.home.glob("state/**/*.arrow"))
    assert shard.content(shard.run(shard.start(), write_many)) == expected()


def test_versions_come_back_as_they_were_put(tmp_path: Path) -> None:
    builder = Stores.versioned_key_value_store_with_headers_builder(
        Stores.persistent_versioned_key_value_store_with_headers("versions", 100_000, 1_000),
        Serdes.bytes(),
        Serdes.bytes(),
    )
    shards = [Shard(tmp_path / name) for name in ("spilling", "holding")]
    found = []
    for shard, memory in zip(shards, (SMALL, MemoryBudget()), strict=True):
        shard.state = replace(
            shard.state, stores=(builder.spec,), local=LocalDirectory(shard.home / "local", memory=memory)
        )

        def put_all(batch: LoggedBatch) -> CommitPointer:
            inner = batch.batch.stores["versions"]
            store = builder.build(inner.bytes, changelog=inner.changelog, context=TaskRecordContext())
            for number in range(12_000):
                # Mostly forward, now and then back: what is put where depends on all that was put before.
                time_ms = number * 20 - (number % 7) * 3_000
                store.put(b"%02d" % (number % 50), b"%06d" % number + VALUE, max(0, time_ms), Headers())
            time_ms = max(n * 20 - (n % 7) * 3_000 for n in range(12_000))
            return batch.commit(BatchEnd(store_times_ms={"versions": time_ms}))

        pointer = shard.run(shard.start(), put_all)
        shutil.rmtree(shard.home / "local")
        found.append(shard.run(pointer, lambda batch: dict(batch.batch.stores["versions"].bytes.range(None, None))))
    assert found[0] == found[1]
    assert len(found[0]) > 50


FILL = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.support.recovery.shards import Shard, stored
from tests.support.recovery.spilling import SMALL
from statestore.errors.state import LocalDiskFullError
from statestore.recovery.local.local_directory import LocalDirectory

shard = Shard(Path(sys.argv[2]))
shard.state = replace(shard.state, local=LocalDirectory(Path(sys.argv[1], "local"), memory=SMALL))
pointer = shard.batch(shard.start(), {b"a": stored(b"1")})

def fill(batch):
    for number in range(200_000):
        batch.stores["totals"].put(b"%06d" % number, stored(b"v" * 1_000))

try:
    shard.run(pointer, fill)
except LocalDiskFullError as full:
    print(full.path.startswith(sys.argv[1]), len(list(Path(sys.argv[2]).glob("state/**/*.arrow"))))
left = [path for path in Path(sys.argv[1]).glob("**/spill-*") if path.is_dir()]
print(shard.content(pointer) == {b"a": stored(b"1")}, left)
"""


def test_a_disk_that_fills_up_fails_the_batch_and_nothing_else(tmp_path: Path) -> None:
    printed = run_on_small_disk(tmp_path / "disk", 40 << 20, FILL, str(tmp_path / "home"))
    assert printed == "True 1\nTrue []\n", "the disk is named; one delta is there, that of the batch before"
