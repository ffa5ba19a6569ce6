"""What only RocksDB can get wrong: locks, damage on disk, several families, leaked iterators."""

from pathlib import Path

import pytest

from statestore.bytestore.engines.rocksdb import RocksDBDatabase, list_families
from statestore.errors.state import LocalStateCorruptedError, LocalStateLockedError

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


def test_an_open_starts_no_threads_to_open_tables(path: Path) -> None:
    # Threads come and go: what RocksDB was told is what it has written down.
    (options,) = path.glob("OPTIONS-*")
    assert "max_file_opening_threads=1\n" in options.read_text()


def test_a_close_can_wait_until_tables_are_merged(tmp_path: Path) -> None:
    for number in range(8):
        database = RocksDBDatabase(str(tmp_path / "db"), [FAMILY])
        database.write({FAMILY: [(b"%06d" % key, b"%d" % number * 1_000) for key in range(2_000 + number)]})
        tables = len(list((tmp_path / "db").glob("*.sst")))
        assert tables == number, "each opening leaves a table"
        # Merging takes longer than a close does, which ends it.
        database.close(compacted=True)
    assert len(list((tmp_path / "db").glob("*.sst"))) == 1
    database = RocksDBDatabase(str(tmp_path / "db"), [FAMILY])
    assert [value[:1] for _, value in database.family(FAMILY).range(b"001999", None)] == [b"7"] * 8
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
    with pytest.raises(LocalStateCorruptedError, match=r"totals.*checksum"):
        store.range_many([(key, key) for key, _ in ENTRIES])
    database.close()


def test_damage_in_the_first_block_is_not_an_empty_store(path: Path) -> None:
    flip_bit(table_file(path), 100)
    database = RocksDBDatabase(str(path), [FAMILY])
    with pytest.raises(LocalStateCorruptedError):
        list(database.family(FAMILY).range(None, None))
    database.close()


def test_a_scan_that_finds_nothing_looks_where_it_was_to_begin_and_nowhere_else(path: Path) -> None:
    flip_bit(table_file(path), 100)
    database = RocksDBDatabase(str(path), [FAMILY])
    store = database.family(FAMILY)
    first, last = ENTRIES[0][0], ENTRIES[-1][0]
    assert list(store.range(last + b"\0", None)) == []
    assert store.range_many([(last + b"\0", last + b"\1")]) == [[]]
    with pytest.raises(LocalStateCorruptedError):
        list(store.range(first, first))
    with pytest.raises(LocalStateCorruptedError):
        store.range_many([(first, first)])
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


def test_families_that_are_there_are_opened_too(path: Path) -> None:
    database = RocksDBDatabase(str(path), ["other:family"])
    assert database.families == ("default", "other:family", FAMILY)
    assert list_families(str(path)) == database.families
    assert list_families(str(path.with_name("nothing"))) == ()
    database.close()


def test_scans_outlive_a_dropped_family_and_end_with_the_database(path: Path) -> None:
    database = RocksDBDatabase(str(path), ["doomed"])
    database.family("doomed").write([(b"a", b"1"), (b"b", b"2"), (b"c", b"3")])
    scan = database.family("doomed").range(None, None)
    assert next(scan) == (b"a", b"1")
    database.drop_family("doomed")
    assert next(scan) == (b"b", b"2")
    assert "doomed" not in database.families
    database.close()
    assert list(scan) == []
    RocksDBDatabase(str(path), []).close()
    assert "doomed" not in list_families(str(path))


def test_delete_below_in_several_families_at_once(path: Path) -> None:
    database = RocksDBDatabase(str(path), ["one", "two"])
    for name in ("one", "two", FAMILY):
        database.family(name).write([(b"a", b"1"), (b"b", b"2")])
    database.delete_below(["one", "two"], b"b")
    left = {name: [key for key, _ in database.family(name).range(None, None)] for name in ("one", "two")}
    assert left == {"one": [b"b"], "two": [b"b"]}
    assert database.family(FAMILY).get(b"a") == b"1"
    database.close()


def test_a_scan_that_deletes_what_it_finds_ends_well(path: Path) -> None:
    database = RocksDBDatabase(str(path), [FAMILY])
    store = database.family(FAMILY)
    for reverse in (False, True):
        store.write(ENTRIES)
        found = []
        for key, value in store.range(None, None, reverse=reverse):
            store.put(key, None)
            found.append((key, value))
        assert found == (ENTRIES[::-1] if reverse else ENTRIES)
        assert list(store.range(None, None)) == []
    database.close()
