"""Directories that can't be read, or not as asked: a sentence, the next step, an exit code, and nothing is changed."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from statestore.bytestore.engines.rocksdb import RocksDBDatabase
from statestore.recovery.metadata.state_metadata import METADATA_NAME, StateMetadata, agree_on_metadata
from tests.support.golden.kafka_streams import load_fixture
from tests.support.recovery.shards import TOTALS, Shard, stored
from tests.support.tools.runs import Ended, Tools, everything_below

DATABASE = "rocksdb/store"
NOBODY = 65_534
TOPOLOGY = ({"type": "source", "name": "in", "topics": None},)


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return load_fixture("headers-kv").unpack(tmp_path / "source")


def run_all(tools: Tools, where: Path | str, kind: str = "headers-kv", *, inspect: bool = True) -> list[Ended]:
    """Run every command that only looks, and see that what is there was not touched."""
    source = Path(where).parent
    before = everything_below(source) if source.is_dir() else {}
    options = ["--kind", kind, *(["--window-size-ms", "10"] if "window" in kind else [])]
    ended = [
        tools("scan", *options, where),
        tools("get", *options, where, "key"),
        tools("verify", *options, where),
        tools("diff", *options, where, where),
    ]
    if inspect:
        ended.append(tools("inspect", where))
    assert (everything_below(source) if source.is_dir() else {}) == before
    return ended


def all_end_with(code: int, ended: list[Ended], *said: str) -> int:
    """See that commands end with a code and an error that says all of this; return how many there were."""
    for one in ended:
        assert (one.code, one.out) == (code, ""), one
        assert one.err.startswith("error: "), one
        assert one.err.count("\n") == 1, "one sentence or two, on a line"
        for text in said:
            assert text in one.err, one
    return len(ended)


def test_a_store_in_order_of_time_is_not_read_as_windows_or_sessions(tmp_path: Path, tools: Tools) -> None:
    """What Kafka Streams 4.3.1 has left of windows and sessions that it puts out when they close, and of a buffer."""
    with tarfile.open(Path(__file__).parents[1] / "golden" / "in-order-of-time.tar.xz") as archive:
        archive.extractall(tmp_path / "source", filter="data")
    task = tmp_path / "source/shop/0_0"
    for store, kind in (("minutes", "window"), ("visits", "session"), ("priced-Buffer", "window")):
        said = ["--store", store, "--kind", kind, "--window-size-ms", "10000", task]
        ended = [tools("scan", *said), tools("verify", *said), tools("export", *said, tmp_path / "rows.jsonl")]
        retention = ["--layout", "location", "--retention-ms", "610001"]
        ended.append(tools("migrate", *said, tmp_path / f"made-{store}", *retention))
        assert all_end_with(4, ended, "a store in order of time", "`changelog to-state`") == 4
    assert not [*tmp_path.rglob("statestore.json"), *tmp_path.rglob("rows*")]


HOLD_DATABASE = """
import sys
from statestore.bytestore.engines.rocksdb import RocksDBDatabase
database = RocksDBDatabase(sys.argv[1], [])
print("ready", flush=True)
sys.stdin.read()
"""
HOLD_LOCK = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def other_process(program: str, argument: Path) -> Iterator[None]:
    """Have another process hold something until the block ends."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", program, str(argument)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield
        process.communicate(b"")


def test_a_database_that_an_application_has_open(task: Path, tools: Tools) -> None:
    with other_process(HOLD_DATABASE, task / DATABASE):
        assert all_end_with(3, run_all(tools, task), "is in use", "LOCK", "Stop it")
    assert tools("scan", "--kind", "headers-kv", task).code == 0


def test_an_application_s_directory_that_is_locked(task: Path, tools: Tools) -> None:
    lock = task.parent / ".lock"
    with other_process(HOLD_LOCK, lock):
        assert all_end_with(3, run_all(tools, task), "is in use", ".lock")
        assert tools("scan", "--kind", "headers-kv", task.parent).code == 3
    assert tools("scan", "--kind", "headers-kv", task).code == 0


def test_a_local_copy_that_a_task_has_open(tmp_path: Path, tools: Tools) -> None:
    shard = Shard(tmp_path)
    shard.batch(shard.batch(shard.start(), {b"k": stored(b"v")}), {b"k": stored(b"v")})
    with other_process(HOLD_DATABASE, shard.copy):
        # RocksDB's own files are others by now than those that the copy was closed with.
        assert {ended.code for ended in run_all(tools, shard.copy)} <= {3, 5}


def empty(path: Path) -> None:
    path.mkdir()


def a_file(path: Path) -> None:
    path.write_text("no directory")


def strange(path: Path) -> None:
    path.mkdir()
    (path / "notes.txt").write_text("?")
    (path / "photos").mkdir()


def strange_names(path: Path) -> None:
    path.mkdir()
    os.mkdir(os.path.join(os.fsencode(path), b"\xff\xfe"))


def a_database(path: Path) -> None:
    """The database's own directory, not the task's that it is in."""
    shutil.copytree(load_fixture("headers-kv").unpack(path.with_name("whole")) / DATABASE, path)


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda path: None, "found: nothing"),
        (empty, "found: nothing"),
        (a_file, "found: a file"),
        (strange, "2 entries (notes.txt, photos)"),
        (strange_names, r"1 entries (\xff\xfe)"),
        (a_database, "entries (0000"),
    ],
    ids=["nothing", "empty", "a file", "strange", "strange names", "a database"],
)
def test_what_is_no_state(make: Callable[[Path], None], found: str, tmp_path: Path, tools: Tools) -> None:
    make(tmp_path / "it")
    assert all_end_with(4, run_all(tools, tmp_path / "it"), found, "Name a task directory of Kafka Streams")


def test_a_location_that_does_not_exist(tmp_path: Path, tools: Tools) -> None:
    assert all_end_with(4, run_all(tools, (tmp_path / "nowhere").as_uri()), "found: nothing")
    assert all_end_with(6, run_all(tools, "gopher://host/state"), "never tested")


def remove_current(database: Path) -> None:
    (database / "CURRENT").unlink()


def remove_manifest(database: Path) -> None:
    next(database.glob("MANIFEST-*")).unlink()


def remove_table(database: Path) -> None:
    max(database.glob("*.sst")).unlink()


def cut_table(database: Path) -> None:
    table = max(database.glob("*.sst"))
    table.write_bytes(table.read_bytes()[:-10])


def empty_table(database: Path) -> None:
    max(database.glob("*.sst")).write_bytes(b"")


def cut_manifest(database: Path) -> None:
    manifest = next(database.glob("MANIFEST-*"))
    manifest.write_bytes(manifest.read_bytes()[:-40])


def empty_manifest(database: Path) -> None:
    next(database.glob("MANIFEST-*")).write_bytes(b"")


@pytest.mark.parametrize(
    "damage",
    [remove_current, remove_manifest, remove_table, cut_table, empty_table, cut_manifest, empty_manifest],
    ids=lambda damage: damage.__name__,
)
def test_what_was_copied_in_part(damage: Callable[[Path], None], task: Path, tools: Tools) -> None:
    damage(task / DATABASE)
    ended = run_all(tools, task)
    verified = ended.pop(2)
    assert all_end_with(5, ended, "is damaged, or was copied", str(task), "Copy all of it again")
    assert verified.code in (1, 5), "1 if it could name all that is damaged, 5 if it could not begin"
    assert str(task) in verified.out + verified.err


def test_a_segment_that_was_copied_in_part(tmp_path: Path, tools: Tools) -> None:
    task = load_fixture("window").unpack(tmp_path / "source")
    cut_manifest(task / "store/store.120000")
    ended = run_all(tools, task, "window")
    assert [one.code for one in ended] == [5, 5, 1, 5, 5]
    assert all("store.120000" in one.out + one.err for one in ended)


def test_a_local_copy_that_is_not_what_it_was_closed_as(tmp_path: Path, tools: Tools) -> None:
    shard = Shard(tmp_path)
    shard.batch(shard.batch(shard.start(), {b"k": stored(b"v")}), {b"k": stored(b"v")})
    cut_manifest(shard.copy)
    assert all_end_with(5, run_all(tools, shard.copy), "its files are not those that it was closed with")
    (shard.copy / "statestore.marker").write_bytes(b"{")
    assert all_end_with(5, run_all(tools, shard.copy), "is not one")


def test_a_location_whose_metadata_is_damaged(tmp_path: Path, tools: Tools) -> None:
    location = tmp_path / "state"  # all that is beside it is looked at, too
    location.mkdir()
    (location / METADATA_NAME).write_bytes(b"{")
    assert all_end_with(5, run_all(tools, location), METADATA_NAME, "is not readable state metadata")


def test_plain_and_timestamped_data_is_no_upgrade_to_headers(tmp_path: Path, tools: Tools) -> None:
    task = load_fixture("ts-kv-from-plain").unpack(tmp_path / "source")
    assert all_end_with(
        4, run_all(tools, task, inspect=False), "at the same time", "Finish the upgrade to timestamped first"
    )


def test_a_column_family_that_no_store_has(task: Path, tools: Tools) -> None:
    RocksDBDatabase(str(task / DATABASE), ["windowKeyValueWithHeaders"], compacting=False).close()
    assert all_end_with(4, run_all(tools, task, inspect=False), "windowKeyValueWithHeaders")
    assert "has unknown column families" in tools("inspect", task).out


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("headers-kv", "kv", "the command downgrade rebuilds it as an older one"),
        ("headers-kv", "ts-kv", "the command downgrade rebuilds it as an older one"),
        ("headers-kv", "headers-window", "Give its kind with --kind"),
        ("headers-window", "window", "the command downgrade rebuilds it as an older one"),
        ("headers-session", "session", "the command downgrade rebuilds it as an older one"),
        ("headers-session", "headers-window", "Give its kind with --kind"),
        ("kv", "window", "kv or versioned"),
    ],
)
def test_another_kind_than_it_is(name: str, kind: str, said: str, tmp_path: Path, tools: Tools) -> None:
    task = load_fixture(name).unpack(tmp_path / "source")
    assert all_end_with(4, run_all(tools, task, kind, inspect=False), said)


def test_another_kind_than_is_recorded(tmp_path: Path, tools: Tools) -> None:
    shard = Shard(tmp_path)
    agree_on_metadata(shard.state.location, StateMetadata("state-1", 1, "key", (0,), (TOTALS,), TOPOLOGY))
    pointer = shard.batch(shard.start(), {b"k": stored(b"v")})
    (tmp_path / "pointers").write_text(shard.batch(pointer, {b"k": stored(b"v")}).to_json())
    location = [tmp_path / "state", "--pointers", tmp_path / "pointers"]
    for kind in ("kv", "headers-session"):
        assert all_end_with(4, run_all(tools, shard.copy, kind, inspect=False), "recorded")
        assert all_end_with(
            4, [tools("scan", "--kind", kind, *location), tools("verify", "--kind", kind, *location)], "recorded"
        )


def test_a_stranger_among_segments(tmp_path: Path, tools: Tools) -> None:
    task = load_fixture("window").unpack(tmp_path / "source")
    (task / "store/notes.txt").write_text("?")
    assert all_end_with(4, run_all(tools, task, "window", inspect=False), "notes.txt", "Move it away")


@pytest.fixture
def readable() -> Iterator[Path]:
    """A directory that every user can get to, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as home:
        os.chmod(home, 0o755)
        yield load_fixture("headers-kv").unpack(Path(home))


@contextmanager
def as_nobody() -> Iterator[None]:
    """Be a user who can't read everything; the tests may be run by one already."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("what", [".", "rocksdb", DATABASE, f"{DATABASE}/CURRENT", "table", "manifest"])
def test_what_this_user_may_not_read(what: str, readable: Path, tools: Tools) -> None:
    patterns = {"table": f"{DATABASE}/*.sst", "manifest": f"{DATABASE}/MANIFEST-*"}
    path = next(readable.glob(patterns[what])) if what in patterns else readable / what
    tools("inspect", readable)  # what has to be imported is imported now
    before = everything_below(readable)
    path.chmod(0)
    with as_nobody():
        ended = [
            tools("scan", "--kind", "headers-kv", readable),
            tools("get", "--kind", "headers-kv", readable, "key"),
            tools("diff", "--kind", "headers-kv", readable, readable),
            tools("verify", "--kind", "headers-kv", readable),
            tools("inspect", readable),
        ]
    assert all_end_with(6, ended, "Permission denied", "Run this as the user")
    path.chmod(before[str(path.relative_to(readable))][0] & 0o777)
    assert everything_below(readable) == before


def test_a_location_that_this_user_may_not_read(readable: Path, tools: Tools) -> None:
    state = readable.parent / "state"
    state.mkdir()
    (state / METADATA_NAME).write_text("{}")
    (state / METADATA_NAME).chmod(0)
    with as_nobody():
        assert all_end_with(
            6, [tools("scan", state), tools("inspect", state), tools("verify", state)], "Permission denied"
        )


def test_links_are_followed_and_lead_nowhere_else(task: Path, tmp_path: Path, tools: Tools) -> None:
    expected = tools("scan", "--kind", "headers-kv", task).out
    linked = tmp_path / "linked" / "0_0"
    (linked / "rocksdb").mkdir(parents=True)
    (linked / DATABASE).symlink_to(task / DATABASE)
    (task / DATABASE / "loop").symlink_to(".")
    (task / DATABASE / "nowhere").symlink_to("/no/such/file")
    (task / "rocksdb/loop").symlink_to("..")
    (tmp_path / "link").symlink_to(linked)
    os.mkfifo(task / DATABASE / "pipe")
    for where in (task, linked, tmp_path / "link"):
        ended = tools("scan", "--kind", "headers-kv", "--store", "store", where)
        assert (ended.code, ended.out) == (0, expected), where


def test_names_that_are_not_text(task: Path, tmp_path: Path, tools: Tools) -> None:
    expected = tools("scan", "--kind", "headers-kv", task).out
    strange = Path(os.fsdecode(b"\xff parent"))
    task.parent.rename(tmp_path / strange)
    os.mkdir(os.path.join(os.fsencode(tmp_path / strange / "0_0/rocksdb"), b"\xfe"))
    os.mkdir(os.path.join(os.fsencode(tmp_path / strange / "0_0"), b"\xfd"))
    found = tools("scan", "--kind", "headers-kv", tmp_path / strange / "0_0")
    assert (found.code, found.out) == (0, expected)
    assert r"\udcff parent" in tools("inspect", tmp_path / strange / "0_0").out
    assert tools("inspect", "--json", tmp_path / strange / "0_0").document["path"] == str(tmp_path / strange / "0_0")
    nothing = tools("scan", tmp_path / strange / "0_1")
    assert (nothing.code, "found: nothing" in nothing.err) == (4, True)


def test_a_directory_to_work_in_that_is_not_there(task: Path, tmp_path: Path, tools: Tools) -> None:
    ended = tools("scan", "--kind", "headers-kv", "--work-dir", tmp_path / "nowhere", task)
    assert all_end_with(6, [ended], "nowhere", "is not a directory")


def test_entries_that_are_none_of_the_kind_that_was_said(tmp_path: Path, tools: Tools) -> None:
    task = load_fixture("kv").unpack(tmp_path / "source")
    scan = tools("scan", "--json", "--kind", "versioned", task)
    assert scan.code == 5
    for text in (str(task), "reading store (versioned)", "give that with --kind", "verify lists"):
        assert text in scan.err
    verified = tools("verify", "--kind", "versioned", task)
    assert (verified.code, "DAMAGED store: rocksdb/store, default: the entry" in verified.out) == (1, True)


def test_entries_that_are_none_of_their_family(task: Path, tools: Tools) -> None:
    database = RocksDBDatabase(str(task / DATABASE), [], compacting=False)
    database.family("keyValueWithTimestampAndHeaders").put(b"\x00", b"\x7f")
    database.close()
    ended = [tools("inspect", task), tools("scan", task), tools("get", task, "0x00")]
    assert all_end_with(5, ended, "store (", "verify lists")
