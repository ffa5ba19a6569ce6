"""A write set that goes to disk: reads through all its layers, who spills when, the directory, a full disk."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.protocol import ByteStore
from statestore.bytestore.upgrades import UpgradingByteStore, upgradable
from statestore.bytestore.write_sets.spilling import ENTRY_BYTES, SpillingWriteSet, SpillSpace
from statestore.errors.state import StoreClosedError
from tests.support.recovery.spilling import run_on_small_disk, small_space

LIMIT_BYTES = 50 * (ENTRY_BYTES + 10)


@pytest.fixture
def space(tmp_path: Path) -> Iterator[SpillSpace]:
    with small_space(tmp_path / "copy-0.spill", LIMIT_BYTES) as space:
        yield space


@pytest.fixture
def committed() -> ByteStore:
    store = MemoryDatabase(["store"]).family("store")
    store.write([(b"a", b"committed"), (b"b", b"committed"), (b"c", b"committed"), (b"d", b"committed")])
    return store


@pytest.fixture
def layered(space: SpillSpace, committed: ByteStore) -> SpillingWriteSet:
    """a and b are as committed, but b deleted on disk; c was changed on disk, and again in memory; e is on disk."""
    store = SpillingWriteSet(committed, space)
    store.write([(b"b", None), (b"c", b"spilled"), (b"e", b""), (b"f", b"spilled")])
    store.spill()
    store.write([(b"c", b"pending"), (b"f", None), (b"g", b"pending")])
    return store


CONTENT = [(b"a", b"committed"), (b"c", b"pending"), (b"d", b"committed"), (b"e", b""), (b"g", b"pending")]


def content(store: ByteStore) -> list[tuple[bytes, bytes]]:
    return list(store.range(None, None))


def test_reads_go_through_all_layers(layered: SpillingWriteSet, committed: ByteStore) -> None:
    assert content(layered) == CONTENT
    assert list(layered.range(b"b", b"f", reverse=True)) == CONTENT[3:0:-1]
    assert {key: layered.get(key) for key in (b"a", b"b", b"c", b"e", b"f", b"x")} == {
        b"a": b"committed",
        b"b": None,
        b"c": b"pending",
        b"e": b"",
        b"f": None,
        b"x": None,
    }
    assert committed.get(b"b") == b"committed", "what is committed is never written to"


def test_a_second_spill_goes_over_the_first(layered: SpillingWriteSet) -> None:
    layered.spill()
    assert (layered.changes, content(layered)) == ({}, CONTENT)


@pytest.mark.parametrize("held", [True, False])
def test_many_changes_at_once_spill_on_the_way(space: SpillSpace, committed: ByteStore, held: bool) -> None:
    store, changes = SpillingWriteSet(committed, space), [(b"%05d" % number, b"put") for number in range(20_000)]
    store.write(changes if held else iter(changes))
    assert content(store)[:-4] == changes
    assert space.pending.spills > 1


def test_all_changes_are_applied_and_stay(layered: SpillingWriteSet, committed: ByteStore) -> None:
    layered.apply_to(committed)
    assert content(committed) == CONTENT
    assert layered.is_changed
    assert content(layered) == CONTENT


def test_clear_shows_what_is_committed(layered: SpillingWriteSet, committed: ByteStore) -> None:
    layered.delete_below(b"b")
    layered.spill()
    layered.clear()
    assert not layered.is_changed
    assert content(layered) == content(committed)
    layered.put(b"z", b"1")
    layered.spill()
    assert layered.is_changed
    assert content(layered) == [*content(committed), (b"z", b"1")]


def test_delete_below_reaches_every_layer(layered: SpillingWriteSet, committed: ByteStore) -> None:
    layered.delete_below(b"e")
    assert content(layered) == CONTENT[3:]
    layered.put(b"a", b"again")
    layered.spill()
    assert content(layered) == [(b"a", b"again"), *CONTENT[3:]]
    assert layered.get(b"c") is None
    layered.apply_to(committed)
    assert content(committed) == [(b"a", b"again"), *CONTENT[3:]]


def test_a_scan_sees_the_store_as_of_the_call(layered: SpillingWriteSet) -> None:
    scan, backwards = layered.range(None, None), layered.range(None, None, reverse=True)
    assert next(scan) == CONTENT[0]
    layered.write([(b"c", None), (b"d", b"later")])
    layered.spill()
    layered.delete_below(b"g")
    assert list(scan) == CONTENT[1:]
    assert list(backwards) == CONTENT[::-1]


def test_entries_are_counted_over_all_layers(layered: SpillingWriteSet, committed: ByteStore) -> None:
    estimate = layered.approximate_num_entries()
    assert len(CONTENT) <= estimate <= len(CONTENT) + 3, "overwritten keys may count twice"


def test_a_closed_write_set_refuses_all_and_ends_its_scans(layered: SpillingWriteSet) -> None:
    scan = layered.range(None, None)
    next(scan)
    layered.close()
    layered.close()
    for use in (lambda: layered.get(b"a"), lambda: layered.put(b"a", b"1"), lambda: layered.range(None, None)):
        with pytest.raises(StoreClosedError):
            use()
    assert list(scan) == []


def test_what_upgrades_is_found_below_what_was_spilled(space: SpillSpace) -> None:
    database = MemoryDatabase(["older", "newer"])
    database.family("older").put(b"a", b"1")
    upgrading = UpgradingByteStore(database, "newer", "older", lambda key, value: value + b"!", "store")
    store = SpillingWriteSet(upgrading, space)
    store.put(b"b", b"2")
    store.spill()
    assert upgradable(store) is upgrading
    assert content(store) == [(b"a", b"1!"), (b"b", b"2")]


def test_stores_spill_together_when_they_hold_too_much(space: SpillSpace) -> None:
    database = MemoryDatabase(["one", "two"])
    one, two = (SpillingWriteSet(database.family(name), space) for name in ("one", "two"))
    two.put(b"k", b"two")
    for number in range(200):
        one.put(b"%04d" % number, b"v" * 6)
        assert one.held_bytes() + two.held_bytes() <= LIMIT_BYTES + ENTRY_BYTES + 10
    assert space.pending.spills >= 3
    assert two.changes == {}, "it spilled too: what its changelog shares with it is set free only then"
    assert [key for key, _ in one.range(None, None)] == [b"%04d" % number for number in range(200)]
    assert content(two) == [(b"k", b"two")]


def test_a_key_that_is_written_again_and_again_does_not_spill(space: SpillSpace, committed: ByteStore) -> None:
    store = SpillingWriteSet(committed, space)
    for number in range(1_000):
        store.put(b"hot", b"%06d" % number)
    assert (space.pending.spills, store.get(b"hot")) == (0, b"000999")
    assert not space.directory.exists()


def test_values_that_grow_are_counted(space: SpillSpace, committed: ByteStore) -> None:
    store = SpillingWriteSet(committed, space)
    for size in range(0, 2 * LIMIT_BYTES, LIMIT_BYTES // 10):
        store.put(b"list", b"v" * size)
    assert space.pending.spills >= 1


def test_the_directory_goes_with_the_space_even_after_a_failure(tmp_path: Path, committed: ByteStore) -> None:
    directory = tmp_path / "copy-0.spill"

    def fail() -> None:
        with small_space(directory, LIMIT_BYTES) as space:
            store = SpillingWriteSet(committed, space)
            store.put(b"k", b"v")
            store.spill()
            next(store.range(None, None))
            assert space.size_bytes > 0
            raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        fail()
    assert not directory.exists()


def test_what_a_killed_process_left_is_removed(tmp_path: Path, committed: ByteStore) -> None:
    directory = tmp_path / "copy-0.spill"
    (directory / "writes").mkdir(parents=True)
    (directory / "writes" / "CURRENT").write_text("nonsense")
    with small_space(directory, LIMIT_BYTES) as space:
        assert not directory.exists()
        store = SpillingWriteSet(committed, space)
        store.put(b"z", b"v")
        store.spill()
        assert store.get(b"z") == b"v"
    assert not directory.exists()


FILL = """
import sys
from pathlib import Path
from tests.support.recovery.spilling import small_space
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.bytestore.write_sets.spilling import SpillingWriteSet
from statestore.errors.state import LocalDiskFullError

directory = Path(sys.argv[1], "copy-0.spill")
with small_space(directory, 1_000_000) as space:
    store = SpillingWriteSet(MemoryDatabase(["store"]).family("store"), space)
    try:
        for number in range(100_000):
            store.put(b"%09d" % number, b"v" * 1_000)
    except LocalDiskFullError as full:
        print(full.path == str(directory / "writes"), full)
    store.close()
print("left:", list(Path(sys.argv[1]).iterdir()))
"""


def test_a_full_disk_is_named_and_given_back(tmp_path: Path) -> None:
    printed = run_on_small_disk(tmp_path / "disk", 24 << 20, FILL)
    assert printed.startswith("True store")
    assert "there is no space left for" in printed
    assert "local_dir on a larger disk" in printed
    assert printed.endswith("left: []\n")
