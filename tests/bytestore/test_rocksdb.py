"""What only RocksDB can get wrong: locks, damage on disk, several families, leaked iterators."""

from pathlib import Path

import pytest

from statestore.bytestore.rocksdb import RocksDBDatabase
from statestore.errors import LocalStateCorruptedError, LocalStateLockedError, StateStoreError

FAMILY = "store:family"
ENTRIES = [(b"%06d" % number, b"v" * 200) for number in range(2_000)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "db"
    database = RocksDBDatabase(str(path), [FAMILY])
    database.write({FAMILY: ENTRIES})
    database.close()
    return path


def table_file(path: Path) -> Path:
    return max(path.glob("*.sst"), key=lambda file: file.stat().st_size)


def flip_bit(file: Path, position: int) -> None:
    content = bytearray(file.read_bytes())
    content[position] ^= 1
    file.write_bytes(content)


def test_what_was_written_is_there_after_a_reopen(path: Path) -> None:
    database = RocksDBDatabase(str(path), [FAMILY])
    assert list(database.family(FAMILY).range(None, None)) == ENTRIES
    database.close()


def test_families_are_written_together(path: Path) -> None:
    database = RocksDBDatabase(str(path), [FAMILY])
    database.write({FAMILY: [(b"x", b"1")], "default": [(b"x", b"2")]})
    database.close()
    database = RocksDBDatabase(str(path), [FAMILY])
    assert database.family(FAMILY).get(b"x") == b"1"
    assert database.family("default").get(b"x") == b"2"
    database.close()


def test_a_second_open_is_refused(path: Path) -> None:
    database = RocksDBDatabase(str(path), [FAMILY])
    with pytest.raises(LocalStateLockedError, match=str(path)):
        RocksDBDatabase(str(path), [FAMILY])
    database.close()


def test_a_scan_that_nobody_finished_does_not_keep_the_lock(path: Path) -> None:
    database = RocksDBDatabase(str(path), [FAMILY])
    started = database.family(FAMILY).range(None, None)
    next(started)
    waiting = database.family(FAMILY).range(None, None)
    database.close()
    RocksDBDatabase(str(path), [FAMILY]).close()
    assert list(waiting) == []


def test_a_flipped_bit_in_a_block_is_an_error_for_get_and_never_a_short_scan(path: Path) -> None:
    flip_bit(table_file(path), 100_000)
    database = RocksDBDatabase(str(path), [FAMILY])
    store = database.family(FAMILY, "totals")
    with pytest.raises(LocalStateCorruptedError, match=r"totals.*checksum"):
        [store.get(key) for key, _ in ENTRIES]
    for reverse in (False, True):
        with pytest.raises(LocalStateCorruptedError, match=r"totals.*checksum"):
            list(store.range(None, None, reverse=reverse))
    database.close()


def test_damage_in_the_first_block_is_not_an_empty_store(path: Path) -> None:
    flip_bit(table_file(path), 100)
    database = RocksDBDatabase(str(path), [FAMILY])
    with pytest.raises(LocalStateCorruptedError):
        list(database.family(FAMILY).range(None, None))
    database.close()


@pytest.mark.parametrize("damage", ["cut", "missing", "manifest"])
def test_a_damaged_database_does_not_open(path: Path, damage: str) -> None:
    file = table_file(path)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:1000])
    elif damage == "missing":
        file.unlink()
    else:
        next(path.glob("MANIFEST-*")).write_bytes(b"nonsense")
    with pytest.raises(LocalStateCorruptedError, match=str(path)):
        RocksDBDatabase(str(path), [FAMILY])


def test_an_unlisted_family_is_an_error(path: Path) -> None:
    with pytest.raises(StateStoreError, match=FAMILY):
        RocksDBDatabase(str(path), ["other:family"])
