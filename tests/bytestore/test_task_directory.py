"""Task directories of Kafka Streams: read, changed and left as it would itself; offsets, refusals and crashes."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind
from statestore.bytestore.protocol import ByteStore
from statestore.errors import StoreError, StoreFormatError
from statestore.errors.state import LocalStateLockedError, StoreClosedError, UnknownColumnFamilyError, UnknownEntryError
from tests.support.golden.kafka_streams import FIXTURES, dump_task_directory, facts, load_fixture
from tests.support.golden.task_directories import APPLICATION, as_json, families, logical_entries, spec_of, tree

OLD = [name for name in FIXTURES if name.startswith("old-")]
HALF_UPGRADED = [name for name in FIXTURES if "-from-" in name]
CHANGELOG = b"golden-store-changelog-0".hex()
STATUS, POSITION = b"status".hex(), b"position".hex()
OPENED = re.compile(r"directory (?P<name>\S+) opened as (?P<kind>\S+)$")
OPENINGS = [(match["name"], match["kind"]) for fact in facts() if (match := OPENED.match(fact))]


def unpacked(name: str, home: Path) -> Path:
    return load_fixture(name).unpack(home)


@pytest.mark.parametrize("name", FIXTURES)
def test_a_golden_directory_holds_what_kafka_streams_reads_in_it(name: str, tmp_path: Path) -> None:
    fixture = load_fixture(name)
    task, logical, spec = fixture.unpack(tmp_path), fixture.logical, spec_of(fixture.fixture["kind"])
    for _ in range(2):
        with TaskDirectory(task, APPLICATION) as directory:
            store = directory.open_store(spec)
            pairs = list(store.range(None, None))
            assert list(store.range(None, None, reverse=True)) == pairs[::-1]
            if spec.kind is StoreKind.VERSIONED:
                # What its rows mean is the business of versioned_rows.
                assert [[key.hex(), value.hex()] for key, value in pairs] == fixture.raw[0]["columnFamilies"][0][
                    "entries"
                ]
            else:
                assert logical_entries(spec, store) == logical["entries"]
            assert directory.changelog_offset("store") == logical["committedOffset"]
            assert as_json(directory.position("store")) == logical["position"]
            assert directory.was_closed_cleanly("store")


@pytest.mark.parametrize("name", [name for name in FIXTURES if name not in OLD])
def test_a_directory_that_was_opened_and_closed_is_as_kafka_streams_left_it(name: str, tmp_path: Path) -> None:
    task = unpacked(name, tmp_path)
    before = tree(task)
    with TaskDirectory(task, APPLICATION) as directory:
        directory.open_store(spec_of(load_fixture(name).fixture["kind"]))
    assert dump_task_directory(task) == load_fixture(name).raw
    assert tree(task) == before


@pytest.mark.parametrize("name", OLD)
def test_offsets_move_from_files_into_every_database(name: str, tmp_path: Path) -> None:
    task = unpacked(name, tmp_path)
    with TaskDirectory(task, APPLICATION) as directory:
        directory.open_store(spec_of(load_fixture(name).fixture["kind"]))
        assert not (task / ".checkpoint").exists()
        assert (task / "store.position").exists()
    wanted = load_fixture("versioned" if name == "old-versioned" else "headers-kv").raw[0]["columnFamilies"]
    (position,) = [dict(f["entries"])[POSITION] for f in wanted if f["name"] == "offsets"]
    if name != "old-versioned":
        position = position.replace("000000000000000d", "000000000000000b", 1)
    for database in families(task).values():
        assert database["offsets"] == {CHANGELOG: f"{11:016x}", POSITION: position, STATUS: "0" * 16}


def test_the_checkpoint_file_stays_for_the_stores_that_are_still_in_it(tmp_path: Path) -> None:
    task = unpacked("old-kv", tmp_path)
    (task / ".checkpoint").write_text(
        "0\n3\ngolden-other-changelog 0 5\ngolden-store-changelog 0 11\ngolden-x-changelog 1 7\n"
    )
    with TaskDirectory(task, APPLICATION) as directory:
        directory.open_store(spec_of("headers-kv"))
        directory.open_store(spec_of("window", "other"))
        assert (directory.changelog_offset("store"), directory.changelog_offset("other")) == (11, 5)
    assert (task / ".checkpoint").read_text() == "0\n1\ngolden-x-changelog 1 7\n"
    with TaskDirectory(task, APPLICATION, 1) as directory:
        directory.open_store(spec_of("kv", "x"))
        assert directory.changelog_offset("x") == 7
    assert not (task / ".checkpoint").exists()
    assert families(task)["rocksdb/x"]["offsets"][b"golden-x-changelog-1".hex()] == f"{7:016x}"


def test_a_checkpoint_file_counts_more_than_the_database_and_a_position_file_adds_to_it(tmp_path: Path) -> None:
    task = unpacked("headers-kv", tmp_path)
    (task / ".checkpoint").write_text("0\n1\ngolden-store-changelog 0 3\n")
    (task / "store.position").write_text("0\n3\nin 0 5\nin 1 9\nother 0 1\n")
    with TaskDirectory(task, APPLICATION) as directory:
        directory.open_store(spec_of("headers-kv"))
        assert directory.changelog_offset("store") == 3
        assert directory.position("store") == {"in": {0: 13, 1: 9}, "other": {0: 1}}


@pytest.mark.parametrize("file", [".checkpoint", "store.position"])
@pytest.mark.parametrize("content", [b"0\n1\n", b"0\n0\n" + b"\n" * 17_000_000], ids=["cut", "huge"])
def test_a_damaged_offset_file_is_an_error_before_anything_is_changed(
    file: str, content: bytes, tmp_path: Path
) -> None:
    task = unpacked("old-kv", tmp_path)
    (task / file).write_bytes(content)
    with (
        TaskDirectory(task, APPLICATION) as directory,
        pytest.raises(StoreError, match=f"{file} is damaged .* Restore it from a backup, or delete it"),
    ):
        directory.open_store(spec_of("headers-kv"))
    assert dump_task_directory(task) == load_fixture("old-kv").raw


@pytest.mark.parametrize("kind", ["headers-kv", "versioned", "headers-window"])
def test_what_was_committed_counts_until_the_next_commit(kind: str, tmp_path: Path) -> None:
    spec = spec_of(kind)
    key = segment_prefix(3) + b"k" * 20
    with TaskDirectory(tmp_path / "task", APPLICATION) as directory:
        store = directory.open_store(spec)
        assert (directory.changelog_offset("store"), directory.position("store")) == (None, {})
        assert directory.was_closed_cleanly("store")
        store.put(key, b"1")
        position = {"in": {0: 8}}
        directory.commit("store", 7, position)
        position["in"][0] = 0
        store.put(segment_prefix(4) + key, b"2")
        assert directory.position("store") == {"in": {0: 8}}
    for database in families(tmp_path / "task").values():
        assert set(database["offsets"]) == {CHANGELOG, POSITION, STATUS}
        assert database["offsets"][CHANGELOG] == f"{7:016x}"
    with TaskDirectory(tmp_path / "task", APPLICATION) as directory:
        directory.open_store(spec).put(key, b"3")
        assert directory.changelog_offset("store") == 7
        assert directory.position("store") == ({} if kind == "versioned" else {"in": {0: 8}})
        directory.commit("store", None, {})
        assert (directory.changelog_offset("store"), directory.position("store")) == (None, {})
    for database in families(tmp_path / "task").values():
        assert database["offsets"] == {CHANGELOG: f"{2**64 - 4:x}", POSITION: "00" * 40, STATUS: "00" * 8}


def test_the_latest_segment_says_the_offset_and_all_of_them_the_position(tmp_path: Path) -> None:
    task = unpacked("headers-window", tmp_path)
    for start, offset, position in ((120000, 50, {"in": {0: 40, 1: 2}}), (240000, 9, {"in": {0: 3}, "more": {0: 0}})):
        lone = tmp_path / str(start)
        (lone / "store").mkdir(parents=True)
        shutil.move(task / "store" / f"store.{start}", lone / "store")
        with TaskDirectory(lone, APPLICATION) as directory:
            directory.open_store(spec_of("headers-window"))
            directory.commit("store", offset, position)
        shutil.move(lone / "store" / f"store.{start}", task / "store")
    with TaskDirectory(task, APPLICATION) as directory:
        directory.open_store(spec_of("headers-window"))
        assert directory.changelog_offset("store") == 9
        assert directory.position("store") == {"in": {0: 40, 1: 2}, "more": {0: 0}}


@pytest.mark.parametrize("offset", [-1, -4, 2**63])
def test_what_is_no_offset_is_not_committed(offset: int, tmp_path: Path) -> None:
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        directory.open_store(spec_of("kv"))
        with pytest.raises(ValueError, match="not an offset"):
            directory.commit("store", offset, {})
        with pytest.raises(ValueError, match="not a partition and an offset"):
            directory.commit("store", 1, {"in": {0: 2**63}})
        assert directory.changelog_offset("store") is None


def test_a_damaged_offsets_family_is_an_error_and_takes_nothing_with_it(tmp_path: Path) -> None:
    task = unpacked("kv", tmp_path)
    database = RocksDBDatabase(str(task / "rocksdb" / "store"), [])
    database.write({"offsets": [(b"position", b"\0\0")]})
    database.close()
    before = families(task)
    with TaskDirectory(task, APPLICATION) as directory, pytest.raises(StoreError, match=r"'offsets' in .* is damaged"):
        directory.open_store(spec_of("headers-kv"))
    assert families(task) == before


def test_a_block_that_raises_does_not_close_cleanly(tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with TaskDirectory(tmp_path, APPLICATION) as directory:
            directory.open_store(spec_of("kv")).put(b"k", b"v")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    for cleanly in (False, True):
        with TaskDirectory(tmp_path, APPLICATION) as directory:
            assert directory.open_store(spec_of("kv")).get(b"k") == b"v"
            assert directory.was_closed_cleanly("store") is cleanly


def test_stores_and_locks_end_with_the_directory(tmp_path: Path) -> None:
    directory = TaskDirectory(tmp_path, APPLICATION)
    stores = [directory.open_store(spec_of(kind, kind)) for kind in ("kv", "window", "versioned")]
    stores[1].put(segment_prefix(0) + b"k", b"v")
    scans = [store.range(None, None) for store in stores]
    with pytest.raises(ValueError, match=r"'kv' .* is open already"):
        directory.open_store(spec_of("kv", "kv"))
    with pytest.raises(ValueError, match=r"'none' .* is not open; open are \['kv', 'versioned', 'window'\]"):
        directory.commit("none", 1, {})
    with TaskDirectory(tmp_path, APPLICATION) as second:
        for kind in ("kv", "window"):
            with pytest.raises(LocalStateLockedError):
                second.open_store(spec_of(kind, kind))
    directory.close()
    directory.close()
    assert [list(scan) for scan in scans] == [[], [], []]
    for store in stores:
        assert not store.is_open
        with pytest.raises(StoreClosedError):
            store.get(segment_prefix(7))
    with TaskDirectory(tmp_path, APPLICATION) as second:
        assert len(list(second.open_store(spec_of("window", "window")).range(None, None))) == 1


def touch_all(store: ByteStore) -> None:
    # Entries move while the scan that found them goes on.
    for key, value in store.range(None, None):
        assert store.get(key) == value


@pytest.mark.parametrize("name", [*HALF_UPGRADED, "old-kv", "old-ts-window", "old-session", "old-window"])
def test_an_upgrade_ends_when_every_entry_was_read(name: str, tmp_path: Path) -> None:
    fixture = load_fixture(name)
    task, spec = fixture.unpack(tmp_path), spec_of(fixture.fixture["kind"])
    with TaskDirectory(task, APPLICATION) as directory:
        touch_all(directory.open_store(spec))
    for database in families(task).values():
        # Plain data's family stays, and is empty; that of timestamped data is gone.
        assert (len(database), database["default"]) == (3, {})
    with TaskDirectory(task, APPLICATION) as directory:
        assert logical_entries(spec, directory.open_store(spec)) == fixture.logical["entries"]


def test_older_segment_names_are_changed_when_opened(tmp_path: Path) -> None:
    (fact,) = [fact for name, fact in facts().items() if name.startswith("older segment directory names")]
    task = unpacked("headers-window", tmp_path)
    for older, newer in zip(fact["before"], fact["after"][:1] + fact["after"][2:] + fact["after"][1:2], strict=True):
        (task / "store" / newer).rename(task / "store" / older)
    assert sorted(path.name for path in (task / "store").iterdir()) == fact["before"]
    with TaskDirectory(task, APPLICATION) as directory:
        store = directory.open_store(spec_of("headers-window"))
        assert logical_entries(spec_of("headers-window"), store) == load_fixture("headers-window").logical["entries"]
    assert sorted(path.name for path in (task / "store").iterdir()) == fact["after"]


@pytest.mark.parametrize(("name", "kind"), OPENINGS)
def test_what_kafka_streams_refuses_is_refused_and_left_as_it_was(name: str, kind: str, tmp_path: Path) -> None:
    task = unpacked(name, tmp_path)
    before = tree(task)
    with TaskDirectory(task, APPLICATION) as directory:
        if "error" not in facts()[f"directory {name} opened as {kind}"]["result"]:
            directory.open_store(spec_of(kind))
            return
        with pytest.raises(StoreFormatError, match=r"recorded as.*(downgrade DIR.*--store store|Finish the upgrade)"):
            directory.open_store(spec_of(kind))
    assert dump_task_directory(task) == load_fixture(name).raw
    assert tree(task) == before
    with TaskDirectory(task, APPLICATION) as directory:
        directory.open_store(spec_of(load_fixture(name).fixture["kind"]))


def test_a_segment_that_can_not_be_opened_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    task = unpacked("ts-window", tmp_path)
    (task / "store" / "store.120000").rename(task / "store" / "store:120000")
    database = RocksDBDatabase(str(task / "store" / "store.240000"), [])
    database.write({"default": [(b"plain key with its suffix", b"plain")]})
    database.close()
    before, names = families(task), tree(task)
    with TaskDirectory(task, APPLICATION) as directory:
        with pytest.raises(StoreFormatError, match=r"'store.240000': .* at the same time"):
            directory.open_store(spec_of("headers-window"))
        assert (families(task), tree(task)) == (before, names)
        directory.open_store(spec_of("ts-window"))


@pytest.mark.parametrize(("name", "database"), [("headers-kv", "rocksdb/store"), ("window", "store/store.180000")])
def test_an_unknown_column_family_is_refused(name: str, database: str, tmp_path: Path) -> None:
    task = unpacked(name, tmp_path)
    RocksDBDatabase(str(task / database), ["foo"]).close()
    before = families(task)
    with TaskDirectory(task, APPLICATION) as directory, pytest.raises(UnknownColumnFamilyError) as raised:
        directory.open_store(spec_of(name))
    assert raised.value.store == ("store" if name == "headers-kv" else "store.180000")
    assert (raised.value.unknown, raised.value.path) == (["foo"], str(task / database))
    assert str(raised.value).endswith("or delete the local state and restore it from the changelog")
    assert families(task) == before


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("x/", "is not a segment's directory"),
        (".DS_Store", "is not a segment's directory"),
        ("store.300000", "is not a segment's directory"),
        ("store.-60000/", "is not a segment's directory"),
        ("store.0300000/", "is not a segment's directory"),
        ("store.9223372036854775808/", "is not a segment's directory"),
        ("store-196912312359/", "is not a segment's directory"),
        ("store-197013010000/", "is not a segment's directory"),
        ("store_300000/", "is not a segment's directory"),
        ("store.300001/", "begins at 300001 ms, where no segment of 60000 ms begins"),
        ("store:120000/", "is of the same segment as store.120000"),
    ],
)
def test_a_stray_entry_among_the_segments_is_refused(entry: str, problem: str, tmp_path: Path) -> None:
    task = unpacked("window", tmp_path)
    path = task / "store" / entry.removesuffix("/")
    path.mkdir() if entry.endswith("/") else path.touch()
    with TaskDirectory(task, APPLICATION) as directory, pytest.raises(UnknownEntryError, match=problem) as raised:
        directory.open_store(spec_of("window"))
    assert raised.value.path == str(path)
    assert dump_task_directory(task) == load_fixture("window").raw


def test_a_file_in_place_of_the_segments_is_refused(tmp_path: Path) -> None:
    (tmp_path / "store").touch()
    with (
        TaskDirectory(tmp_path, APPLICATION) as directory,
        pytest.raises(UnknownEntryError, match="is not a segment's"),
    ):
        directory.open_store(spec_of("window"))


KILLED = """
import os, signal, sys
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from tests.support.golden.task_directories import spec_of

directory = TaskDirectory(sys.argv[1], "golden")
plain = directory.open_store(spec_of("kv", "plain"))
windows = directory.open_store(spec_of("headers-window", "windows"))
for number in range(1000):
    plain.put(b"%d" % number, b"value")
    windows.put(segment_prefix(number % 3) + b"%d" % number, b"value")
directory.commit("plain", 999, {"in": {0: 5}})
directory.commit("windows", 1999, {"in": {0: 5}})
plain.put(b"later", b"too")
windows.put(segment_prefix(7) + b"later", b"too")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], env={**os.environ, **paths}, check=False)
    assert done.returncode == -signal.SIGKILL
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        plain = directory.open_store(spec_of("kv", "plain"))
        windows = directory.open_store(spec_of("headers-window", "windows"))
        assert len(list(plain.range(None, None))) == len(list(windows.range(None, None))) == 1001
        assert (plain.get(b"later"), windows.get(segment_prefix(7) + b"later")) == (b"too", b"too")
        for store, offset in (("plain", 999), ("windows", 1999)):
            assert not directory.was_closed_cleanly(store)
            assert directory.changelog_offset(store) == offset
            assert directory.position(store) == {"in": {0: 5}}
    with TaskDirectory(tmp_path, APPLICATION) as directory:
        directory.open_store(spec_of("kv", "plain"))
        assert directory.was_closed_cleanly("plain")
