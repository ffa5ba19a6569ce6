"""How a budget is divided, and that a database keeps to its share."""

import pickle
import time
from pathlib import Path

import pytest

from statestore.bytestore.engines.memory_budget import MIN_TASK_BYTES, DatabaseMemory, MemoryBudget
from statestore.bytestore.engines.rocksdb import RocksDBDatabase

MIB = 1 << 20


def shares(budget: MemoryBudget) -> list[int]:
    return [
        budget.pending_bytes,
        *(part for memory in (budget.database, budget.spill_database) for part in vars(memory).values()),
    ]


@pytest.mark.parametrize(("memory_bytes", "tasks"), [(MIN_TASK_BYTES, 1), (1 << 30, 4), (10**9, 7)])
def test_the_shares_of_all_tasks_are_within_the_budget(memory_bytes: int, tasks: int) -> None:
    budget = MemoryBudget(memory_bytes, tasks)
    assert all(share > 0 for share in shares(budget))
    assert sum(shares(budget)) * tasks <= memory_bytes
    assert pickle.loads(pickle.dumps(budget)) == budget


@pytest.mark.parametrize(("memory_bytes", "tasks"), [(MIN_TASK_BYTES - 1, 1), (4 * MIN_TASK_BYTES, 5)])
def test_too_little_for_a_task_is_refused(memory_bytes: int, tasks: int) -> None:
    with pytest.raises(ValueError, match=f"^{memory_bytes} bytes of memory for .* at least {MIN_TASK_BYTES * tasks}"):
        MemoryBudget(memory_bytes, tasks)


def test_no_tasks_are_refused() -> None:
    with pytest.raises(ValueError, match="concurrent_tasks"):
        MemoryBudget(1 << 30, 0)


def test_many_families_together_are_flushed_at_their_share(tmp_path: Path) -> None:
    families = [f"store:{number}" for number in range(8)]
    bounded = RocksDBDatabase(str(tmp_path / "bounded"), families, memory=DatabaseMemory(4 * MIB, MIB))
    free = RocksDBDatabase(str(tmp_path / "free"), families)
    # 1 MiB in each family, which alone is less than any of them flushes at.
    for chunk in range(80):
        changes = [(b"%06d" % (chunk * 100 + number), b"v" * 1_000) for number in range(100)]
        for database in (bounded, free):
            database.family(families[chunk % 8]).write(changes)
    deadline = time.monotonic() + 60
    while not list((tmp_path / "bounded").glob("*.sst")):
        assert time.monotonic() < deadline, "nothing was flushed"
        time.sleep(0.01)
    assert not list((tmp_path / "free").glob("*.sst"))
    assert sum(1 for name in families for _ in bounded.family(name).range(None, None)) == 8_000
    bounded.close()
    free.close()


def test_a_write_that_would_wait_is_written_all_the_same(tmp_path: Path) -> None:
    database = RocksDBDatabase(str(tmp_path / "db"), ["store:x"], memory=DatabaseMemory(MIB, MIB))
    store = database.family("store:x")
    # Far faster than they are flushed.
    for chunk in range(60):
        store.write([(b"%06d" % (chunk * 500 + number), b"v" * 1_000) for number in range(500)])
        store.put(b"put", b"%d" % chunk)
    assert sum(1 for _ in store.range(None, None)) == 30_001
    assert store.get(b"put") == b"59"
    database.close()
