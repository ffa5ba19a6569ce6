"""A store half-way between two formats: what is there, what moves, what survives."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kinds.segments import LATEST_SEGMENT, segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, column_family
from statestore.bytestore.protocol import ByteStore, Change
from statestore.bytestore.upgrades import UpgradeProgress, UpgradingByteStore, open_store, upgradable
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.errors import StoreError, StoreFormatError
from statestore.errors.readable import key_digest
from statestore.errors.state import StoreClosedError
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import encode_value_timestamp
from statestore.format.values.versioned_row import encode_latest_row

OLDER, NEWER = "store:older", "store:newer"
SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None
SLICE = 500


def converted(key: bytes, value: bytes) -> bytes:
    return b"converted " + value


class Watched(RocksDBDatabase):
    """A database that remembers which families were written together."""

    def __init__(self, path: str, families: list[str], **options: bool) -> None:
        self.writes: list[set[str]] = []
        super().__init__(path, families, **options)

    def write(self, changes: Mapping[str, Iterable[Change]]) -> None:
        self.writes.append(set(changes))
        super().write(changes)


class Upgrade:
    """A database with an older and a newer family, and the store over both."""

    def __init__(self, home: str, legacy: Mapping[bytes, bytes], older: str = OLDER) -> None:
        self.path = home + "/db"
        self.older = older
        self.store: UpgradingByteStore
        self.database: Watched
        database = RocksDBDatabase(self.path, [older])
        database.family(older).write(legacy.items())
        database.close()
        self.open()

    def open(self) -> None:
        self.database = Watched(self.path, [self.older, NEWER])
        self.store = UpgradingByteStore(self.database, NEWER, self.older, converted, "store")

    def reopen(self) -> None:
        self.database.close()
        self.open()

    def legacy(self) -> dict[bytes, bytes]:
        """Return what is left in the older format."""
        return dict(self.database.family(self.older).range(None, None)) if self.older in self.database.families else {}

    def content(self) -> dict[bytes, bytes]:
        return dict(self.store.range(None, None))


@pytest.fixture
def upgrade() -> Iterator[Upgrade]:
    with TemporaryDirectory(dir=SCRATCH) as home:
        made = Upgrade(home, {b"a": b"1", b"b": b"2", b"c": b"3"})
        yield made
        made.database.close()


def test_get_converts_and_moves_in_one_write(upgrade: Upgrade) -> None:
    assert upgrade.store.get(b"b") == b"converted 2"
    assert upgrade.legacy() == {b"a": b"1", b"c": b"3"}
    assert upgrade.database.family(NEWER).get(b"b") == b"converted 2"
    assert upgrade.database.writes == [{OLDER, NEWER}]
    assert upgrade.store.get(b"b") == b"converted 2"
    assert upgrade.database.writes == [{OLDER, NEWER}]
    assert upgrade.store.get(b"absent") is None


def test_put_and_delete_clear_the_older_family_in_the_same_write(upgrade: Upgrade) -> None:
    upgrade.store.put(b"a", b"new")
    upgrade.store.put(b"b", None)
    assert upgrade.legacy() == {b"c": b"3"}
    assert upgrade.database.writes == [{OLDER, NEWER}] * 2
    assert upgrade.content() == {b"a": b"new", b"c": b"converted 3"}


def test_write_clears_the_older_family_and_applies_in_order(upgrade: Upgrade) -> None:
    upgrade.store.write([(b"a", b"x"), (b"a", None), (b"b", None), (b"b", b"y"), (b"d", b"z")])
    assert upgrade.database.writes == [{OLDER, NEWER}]
    assert upgrade.content() == {b"b": b"y", b"c": b"converted 3", b"d": b"z"}


def test_ranges_merge_both_families_and_move_nothing(upgrade: Upgrade) -> None:
    upgrade.store.put(b"aa", b"new")
    upgrade.store.put(b"c", b"newer")
    expected = [(b"a", b"converted 1"), (b"aa", b"new"), (b"b", b"converted 2"), (b"c", b"newer")]
    assert list(upgrade.store.range(None, None)) == expected
    assert list(upgrade.store.range(None, None, reverse=True)) == expected[::-1]
    assert list(upgrade.store.range(b"aa", b"b")) == expected[1:3]
    assert list(upgrade.store.range(b"aa", b"b", reverse=True)) == expected[2:0:-1]
    assert upgrade.legacy() == {b"a": b"1", b"b": b"2"}


def test_of_a_key_in_both_families_the_new_entry_alone_counts(upgrade: Upgrade) -> None:
    upgrade.database.family(NEWER).put(b"b", b"new")
    expected = [(b"a", b"converted 1"), (b"b", b"new"), (b"c", b"converted 3")]
    assert list(upgrade.store.range(None, None)) == expected
    assert list(upgrade.store.range(None, None, reverse=True)) == expected[::-1]
    assert upgrade.store.get(b"b") == b"new"
    assert upgrade.store.finish_upgrade() == UpgradeProgress(2, 0)
    assert list(upgrade.store.range(None, None)) == expected


def test_delete_below_deletes_in_both_families(upgrade: Upgrade) -> None:
    upgrade.store.put(b"aa", b"new")
    upgrade.store.put(b"bb", b"new")
    upgrade.store.delete_below(b"b")
    assert upgrade.content() == {b"b": b"converted 2", b"bb": b"new", b"c": b"converted 3"}
    assert upgrade.legacy() == {b"b": b"2", b"c": b"3"}
    upgrade.store.delete_below(b"d")
    assert OLDER not in upgrade.database.families
    assert upgrade.content() == {}


def test_iterators_see_both_families_as_of_the_call(upgrade: Upgrade) -> None:
    scans = [upgrade.store.range(None, None, reverse=reverse) for reverse in (False, True)]
    upgrade.store.get(b"a")
    upgrade.store.put(b"b", b"new")
    upgrade.store.put(b"c", None)
    expected = [(b"a", b"converted 1"), (b"b", b"converted 2"), (b"c", b"converted 3")]
    assert [sorted(scan) for scan in scans] == [expected, expected]


@pytest.mark.parametrize("read_before", [0, 1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_iterators_survive_the_drop_of_the_older_family(upgrade: Upgrade, reverse: bool, read_before: int) -> None:
    scan = upgrade.store.range(None, None, reverse=reverse)
    begun = [next(scan) for _ in range(read_before)]
    assert upgrade.store.finish_upgrade().is_finished
    assert OLDER not in upgrade.database.families
    expected = [(b"a", b"converted 1"), (b"b", b"converted 2"), (b"c", b"converted 3")]
    assert begun + list(scan) == (expected[::-1] if reverse else expected)


@pytest.mark.parametrize("last", ["get", "put", "delete", "write", "delete_below", "finish_upgrade"])
def test_the_older_family_goes_with_its_last_entry(upgrade: Upgrade, last: str) -> None:
    store = upgrade.store
    store.get(b"a")
    store.put(b"b", None)
    assert OLDER in upgrade.database.families
    {
        "get": lambda: store.get(b"c"),
        "put": lambda: store.put(b"c", b"new"),
        "delete": lambda: store.put(b"c", None),
        "write": lambda: store.write([(b"d", b"new"), (b"c", b"new")]),
        "delete_below": lambda: store.delete_below(b"d"),
        "finish_upgrade": lambda: store.finish_upgrade(budget_ms=0),
    }[last]()
    assert OLDER not in upgrade.database.families
    assert store.upgrade_progress().is_finished


def test_after_the_upgrade_nothing_touches_the_older_family() -> None:
    # `default` can't be dropped, so it is there to be touched.
    with TemporaryDirectory(dir=SCRATCH) as home:
        upgrade = Upgrade(home, {b"a": b"1"}, older="default")
        upgrade.store.get(b"a")
        assert "default" in upgrade.database.families
        del upgrade.database.writes[:]
        upgrade.store.put(b"a", b"2")
        upgrade.store.write([(b"b", b"3"), (b"c", None)])
        upgrade.store.delete_below(b"b")
        assert not any("default" in families for families in upgrade.database.writes)
        assert upgrade.content() == {b"b": b"3"}
        upgrade.database.close()


def test_a_store_with_nothing_to_upgrade_drops_the_older_family_at_once() -> None:
    with TemporaryDirectory(dir=SCRATCH) as home:
        upgrade = Upgrade(home, {})
        assert upgrade.database.families == ("default", NEWER)
        assert upgrade.store.upgrade_progress() == UpgradeProgress(0, 0)
        assert upgrade.store.finish_upgrade() == UpgradeProgress(0, 0)
        upgrade.database.close()


@pytest.fixture
def many() -> Iterator[Upgrade]:
    with TemporaryDirectory(dir=SCRATCH) as home:
        made = Upgrade(home, {b"%05d" % number: b"%d" % number for number in range(4 * SLICE)})
        yield made
        made.database.close()


def test_finish_upgrade_stops_when_its_budget_is_used_up(many: Upgrade) -> None:
    now_ms = 0

    def clock() -> float:
        nonlocal now_ms
        now_ms += 10
        return now_ms / 1000

    assert many.store.finish_upgrade(25, clock=clock).entries_moved == 3 * SLICE
    assert len(many.legacy()) == SLICE
    assert min(many.legacy()) == b"%05d" % (3 * SLICE)
    progress = many.store.finish_upgrade(None, clock=clock)
    assert (progress.entries_moved, progress.entries_left, progress.is_finished) == (4 * SLICE, 0, True)


def test_finish_upgrade_moves_one_slice_without_any_budget(many: Upgrade) -> None:
    before = many.content()
    moved = [many.store.finish_upgrade(budget_ms=0).entries_moved for _ in range(4)]
    assert moved == [SLICE, 2 * SLICE, 3 * SLICE, 4 * SLICE]
    assert many.store.upgrade_progress().is_finished
    assert many.content() == before


def test_progress_counts_what_reads_moved_too(upgrade: Upgrade) -> None:
    assert upgrade.store.upgrade_progress() == UpgradeProgress(0, 3)
    upgrade.store.get(b"b")
    upgrade.store.put(b"a", b"new")
    progress = upgrade.store.upgrade_progress()
    assert progress.entries_moved == 1
    assert progress.entries_left >= 1
    assert not progress.is_finished
    upgrade.store.get(b"c")
    assert upgrade.store.upgrade_progress() == UpgradeProgress(2, 0)


def test_an_upgrade_goes_on_where_it_was_after_a_restart(many: Upgrade) -> None:
    before = many.content()
    many.store.finish_upgrade(budget_ms=0)
    many.store.get(b"01999")
    many.reopen()
    assert many.store.upgrade_progress().entries_moved == 0
    assert len(many.legacy()) == 3 * SLICE - 1
    assert many.content() == before
    assert many.store.finish_upgrade() == UpgradeProgress(3 * SLICE - 1, 0)
    many.reopen()
    assert many.content() == before


def test_a_closed_store_refuses_everything(upgrade: Upgrade) -> None:
    scan = upgrade.store.range(None, None)
    next(scan)
    upgrade.store.close()
    upgrade.store.close()
    assert not upgrade.store.is_open
    assert list(scan) == []
    for use in (
        lambda: upgrade.store.get(b"a"),
        lambda: upgrade.store.put(b"a", b""),
        lambda: upgrade.store.write([(b"a", None)]),
        lambda: upgrade.store.delete_below(b"b"),
        lambda: upgrade.store.range(None, None),
        upgrade.store.approximate_num_entries,
        upgrade.store.approximate_size_bytes,
        upgrade.store.upgrade_progress,
        upgrade.store.finish_upgrade,
    ):
        with pytest.raises(StoreClosedError, match="store"):
            use()


def test_what_upgrades_is_found_below_layers(upgrade: Upgrade) -> None:
    assert upgradable(WriteSet(upgrade.store)) is upgrade.store
    assert upgradable(WriteSet(upgrade.database.family(NEWER))) is None


VERSIONED = StoreSpec("prices", StoreKind.VERSIONED, StoreFormat.WITH_HEADERS, 100, 50)
KEY_VALUE = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)


def opened(path: Path, spec: StoreSpec, legacy: Mapping[StoreFormat, Mapping[bytes, bytes]]) -> ByteStore:
    families = {known: column_family(spec, known) for known in (*legacy, spec.format)}
    database = RocksDBDatabase(str(path / "db"), list(families.values()))
    for known, entries in legacy.items():
        database.family(families[known]).write(entries.items())
    return open_store(database, spec, partial(column_family, spec), spec.name)


@pytest.mark.parametrize("use", ["get", "range", "finish_upgrade"])
@pytest.mark.parametrize("segment_id", [0, LATEST_SEGMENT])
def test_a_damaged_legacy_row_is_an_error_that_names_store_and_family(
    tmp_path: Path, segment_id: int, use: str
) -> None:
    damaged = segment_prefix(segment_id) + b"k"
    sound = segment_prefix(LATEST_SEGMENT) + b"a"
    rows = {sound: encode_latest_row(5, b"v"), damaged: b"short"}
    store = opened(tmp_path, VERSIONED, {StoreFormat.PLAIN: rows})
    with pytest.raises(StoreError, match=rf"prices.* {key_digest(damaged)} .*'prices:default'.*damaged") as raised:
        {
            "get": lambda: store.get(damaged),
            "range": lambda: list(store.range(None, None)),
            "finish_upgrade": lambda: store.finish_upgrade(),
        }[use]()
    assert raised.value.store == "prices"
    assert store.get(sound) == encode_latest_row(5, b"\x00v")


def test_the_newest_of_the_older_formats_is_upgraded_from(tmp_path: Path) -> None:
    timestamped = encode_value_timestamp(b"v", 5)
    assert timestamped is not None
    store = opened(tmp_path, KEY_VALUE, {StoreFormat.PLAIN: {}, StoreFormat.TIMESTAMPED: {b"k": timestamped}})
    assert store.get(b"k") == b"\x00" + timestamped


def test_two_older_formats_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError, match=r"timestamped and plain at the same time"):
        opened(tmp_path, KEY_VALUE, {StoreFormat.PLAIN: {b"a": b""}, StoreFormat.TIMESTAMPED: {b"b": b"12345678"}})


# Kills itself in the middle: as the parent asks, after so many slices and puts. What was put is said aloud.
VICTIM = """
import os, signal, sys
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.upgrades import UpgradingByteStore

path, steps = sys.argv[1], int(sys.argv[2])
database = RocksDBDatabase(path, ["store:older", "store:newer"], write_ahead_log=True)
store = UpgradingByteStore(database, "store:newer", "store:older", lambda key, value: b"converted " + value, "store")
for step in range(steps):
    store.get(b"%05d" % (1999 - step))
    store.put(b"%05d" % (1000 + step), b"put")
    store.put(b"%05d" % (1200 + step), None)
    if step % 2:
        store.finish_upgrade(budget_ms=0)
print("here", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("steps", [1, 4, 9])
def test_nothing_is_lost_by_a_process_that_is_killed(many: Upgrade, steps: int) -> None:
    expected = many.content()
    many.database.close()
    for step in range(steps):
        expected[b"%05d" % (1000 + step)] = b"put"
        del expected[b"%05d" % (1200 + step)]
    victim = subprocess.run(
        [sys.executable, "-c", VICTIM, many.path, str(steps)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert (victim.returncode, victim.stdout) == (-signal.SIGKILL, "here\n"), victim.stderr
    many.open()
    assert many.content() == expected
    assert not set(many.legacy()) & set(dict(many.database.family(NEWER).range(None, None)))
    assert many.store.finish_upgrade().is_finished
    assert many.content() == expected
