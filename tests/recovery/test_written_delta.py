"""A delta that this machine wrote is not fetched again, and what is kept of it is never taken for another."""

import logging
import os
import pickle
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from statestore.bytestore.engines.memory_budget import MIN_TASK_BYTES, MemoryBudget
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from tests.support.recovery.renaming import Renaming
from tests.support.recovery.shards import Shard, stored


class Recorded(Renaming):
    """Knows what was read of deltas."""

    def read(self, name: str, max_bytes: int) -> pa.Buffer | None:
        self.__dict__.setdefault("fetched", []).append(name)
        return super().read(name, max_bytes)

    def fetch(self, name: str, path: str | os.PathLike[str], max_bytes: int) -> bool:
        self.__dict__.setdefault("fetched", []).append(name)
        return super().fetch(name, path, max_bytes)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path, kind=Recorded)


def deltas_fetched(shard: Shard) -> list[str]:
    return [name for name in shard.state.location.__dict__.pop("fetched", []) if "/deltas/" in name]


def kept(shard: Shard) -> Path:
    return shard.copy.parent / "written-delta.arrow"


def filled(shard: Shard) -> CommitPointer:
    pointer = shard.batch(shard.start(), {b"a": stored(b"1"), b"b": stored(b"1")})
    pointer = shard.batch(pointer, {b"a": stored(b"2")})
    deltas_fetched(shard)
    return pointer


AT_THE_END = {b"a": stored(b"2"), b"b": stored(b"1")}


def test_the_next_batch_reads_what_this_machine_kept(shard: Shard) -> None:
    pointer = filled(shard)
    assert shard.content(pointer) == AT_THE_END
    assert deltas_fetched(shard) == []
    assert kept(shard).read_bytes() == shard.delta_file(pointer).read_bytes()


def test_one_that_spilled_is_moved(tmp_path: Path) -> None:
    shard = Shard(tmp_path, kind=Recorded)
    local = LocalDirectory(tmp_path / "local", memory=MemoryBudget(MIN_TASK_BYTES))
    shard.state = replace(shard.state, local=local)
    many = {b"%06d" % number: stored(os.urandom(1_000)) for number in range(12_000)}
    pointer = shard.batch(shard.start(), many)
    assert pointer.deltas[0].size_bytes > 8 << 20, "more than is read at once"
    deltas_fetched(shard)
    assert shard.content(pointer) == many
    assert deltas_fetched(shard) == []


@pytest.mark.parametrize("damage", ["missing", "cut", "flipped", "another", "directory"])
def test_anything_else_that_is_there_is_not_used(shard: Shard, damage: str) -> None:
    pointer = filled(shard)
    content = bytearray(kept(shard).read_bytes())
    kept(shard).unlink()
    if damage == "directory":
        kept(shard).mkdir()
    elif damage != "missing":
        content[len(content) // 2] ^= damage == "flipped"
        other = shard.delta_file(pointer, 0).read_bytes()
        kept(shard).write_bytes({"cut": content[:-1], "another": other}.get(damage, content))
    assert shard.content(pointer) == AT_THE_END
    assert deltas_fetched(shard) == [pointer.deltas[-1].name]


def test_an_attempt_that_lost_leaves_one_that_nobody_takes(shard: Shard) -> None:
    pointer = filled(shard)
    won = shard.batch(pointer, {b"a": stored(b"won")})
    shard.batch(pointer, {b"a": stored(b"lost")})
    deltas_fetched(shard)
    assert shard.content(won)[b"a"] == stored(b"won")
    assert deltas_fetched(shard) == [won.deltas[-1].name]


def test_one_that_can_not_be_kept_costs_no_batch(shard: Shard, caplog: pytest.LogCaptureFixture) -> None:
    pointer = filled(shard)
    kept(shard).unlink()
    kept(shard).mkdir()
    with caplog.at_level(logging.WARNING):
        pointer = shard.batch(pointer, {b"a": stored(b"3")})
    assert f"can't be kept at {kept(shard)}" in caplog.text
    deltas_fetched(shard)
    assert shard.content(pointer)[b"a"] == stored(b"3")
    assert deltas_fetched(shard) == [pointer.deltas[-1].name]


def test_an_image_in_memory_is_caught_up_by_it(shard: Shard) -> None:
    shard.state = replace(shard.state, in_memory=frozenset(["totals"]))
    pointer = filled(shard)
    assert shard.content(pointer) == AT_THE_END
    assert deltas_fetched(shard) == []


def test_a_location_on_this_machine_is_read_itself(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    filled(shard)
    assert not kept(shard).exists()
    assert shard.state.location.is_local
    assert not pickle.loads(pickle.dumps(Renaming(tmp_path))).is_local
    assert DurableLocation(tmp_path.as_uri()).is_local
