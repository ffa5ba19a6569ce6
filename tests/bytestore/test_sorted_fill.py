"""Entries in the order of their keys become tables that RocksDB takes as they are, and go on after the last one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.engines.table_files import SortedFill
from statestore.bytestore.protocol import Pair
from statestore.errors import StoreError

FAMILY = "entries"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[RocksDBDatabase]:
    opened = RocksDBDatabase(str(tmp_path / "db"), [FAMILY], compacting=False)
    yield opened
    opened.close()


def sorted_pairs(count: int) -> list[Pair]:
    randomly = random.Random(3)
    keys = {randomly.randbytes(randomly.randrange(0, 12)) for _ in range(count)}
    return [(key, randomly.randbytes(randomly.randrange(0, 40))) for key in sorted(keys)]


def test_what_was_put_is_there_after_it_was_closed(database: RocksDBDatabase, tmp_path: Path) -> None:
    pairs = sorted_pairs(5_000)
    steps: list[int] = []
    fill = SortedFill(database, FAMILY)
    assert fill.last_key is None
    assert fill.put_all(iter(pairs), steps.append) == len(pairs)
    assert sum(steps) == len(pairs)
    assert fill.last_key == pairs[-1][0]
    database.close()
    again = RocksDBDatabase(str(tmp_path / "db"), [], compacting=False)
    try:
        assert list(again.family(FAMILY).range(None, None)) == pairs
        assert again.family(FAMILY).get(pairs[17][0]) == pairs[17][1]
        assert list(again.family("default").range(None, None)) == []
    finally:
        again.close()


def test_it_goes_on_after_the_last_table(database: RocksDBDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [(b"%06d" % number, b"v") for number in range(25_000)]
    monkeypatch.setattr(SortedFill, "table_bytes", 1)

    def cut_off() -> Iterator[Pair]:
        yield from pairs[:21_000]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SortedFill(database, FAMILY).put_all(cut_off())
    fill = SortedFill(database, FAMILY)
    assert fill.last_key == pairs[19_999][0], "two tables of a step each, and nothing of the third"
    assert fill.put_all(pairs[20_000:]) == 5_000
    assert list(database.family(FAMILY).range(None, None)) == pairs


def test_nothing_to_put_makes_no_table(database: RocksDBDatabase) -> None:
    fill = SortedFill(database, FAMILY)
    assert fill.put_all([]) == 0
    assert fill.last_key is None


def test_entries_out_of_order_are_refused(database: RocksDBDatabase) -> None:
    with pytest.raises(StoreError, match="order"):
        SortedFill(database, FAMILY).put_all([(b"b", b""), (b"a", b"")])
    assert list(database.family(FAMILY).range(None, None)) == []
