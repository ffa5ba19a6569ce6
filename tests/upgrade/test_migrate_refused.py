"""What is no migration, and what can't be migrated: one sentence, the next step, and the source as it was."""

from __future__ import annotations

import errno
import fcntl
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from statestore import Serdes
from statestore.bytestore.engines.table_files import SortedFill
from statestore.bytestore.kafka_streams.layout import segments_directory
from statestore.bytestore.kinds.store_spec import StoreType
from statestore.dsl import BufferConfig, EmitStrategy, Materialized, StreamsBuilder, Suppressed, TimeWindows
from statestore.errors import StateStoreError, StoreFormatError
from statestore.errors.new_state import DirectoryDamagedError, DirectoryInUseError, DirectoryNotAccessibleError
from statestore.errors.state import (
    LocalDiskFullError,
    LocalStateCorruptedError,
    LocalStateLockedError,
    UnknownColumnFamilyError,
)
from tests.support.golden.kafka_streams import load_fixture
from tests.support.recovery.rescaling import States
from tests.support.tools.lock_holders import database_opened_elsewhere, file_locked_elsewhere
from tests.support.tools.migrations import documents_of, said_of, to_newest, tree
from upgrade_tools.cli.exit_codes import ExitCode, exit_code_of
from upgrade_tools.errors import (
    MigrationCheckError,
    MigrationRefusedError,
    NoRoomError,
    StoreNotFoundError,
    UnknownKindError,
    UnknownLayoutError,
)
from upgrade_tools.migration.locks import exclude_applications, lock_workspace
from upgrade_tools.migration.migrate import migrate
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout
from upgrade_tools.migration.publishing import write_errors
from upgrade_tools.states.state import StateOptions


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return load_fixture("kv").unpack(tmp_path / "source")


def refused(task: Path, error: type[StateStoreError], **request: Any) -> StateStoreError:
    """The error that a migration ends with, in place if no target is said; nothing of it is left."""
    before = tree(task.parent)
    with pytest.raises(error) as raised:
        migrate(MigrationRequest(str(task), **request))
    assert tree(task.parent) == before
    assert {path.name for path in task.parent.iterdir()} <= {task.name, ".lock", "global"}
    return raised.value


PLAIN = {"store_options": {None: StateOptions(kind=StoreType.KV)}}


def test_plain_goes_to_headers_step_by_step(plain: Path) -> None:
    error = refused(plain, MigrationRefusedError, to=TargetFormat.HEADERS, **PLAIN)
    assert f"`migrate {plain} --to timestamped`" in str(error)
    assert f"`migrate {plain} --to headers`" in str(error)
    assert "--through-timestamped" in str(error)
    migrate(MigrationRequest(str(plain), to=TargetFormat.TIMESTAMPED, discard_backup=True, **PLAIN))
    migrate(MigrationRequest(str(plain), to=TargetFormat.HEADERS, discard_backup=True))
    entries = documents_of(plain, StateOptions())
    assert {entry["timestamp"] for entry in entries} == {-1}
    assert [entry["value"] for entry in entries] == [e["value"] for e in load_fixture("kv").logical["entries"]]


@pytest.mark.parametrize("layout", TargetLayout)
def test_unknown_timestamps_can_be_given(plain: Path, tmp_path: Path, layout: TargetLayout) -> None:
    target = tmp_path / "target" / "0_0"
    migrate(
        MigrationRequest(
            str(plain),
            str(target),
            to=TargetFormat.HEADERS,
            layout=layout,
            through_timestamped=True,
            timestamp_ms=1_700_000_000_000,
            **PLAIN,
        )
    )
    assert {entry["timestamp"] for entry in documents_of(target, StateOptions())} == {1_700_000_000_000}


def test_known_timestamps_stay_as_they_are(tmp_path: Path) -> None:
    fixture = load_fixture("headers-kv-from-plain")
    task = fixture.unpack(tmp_path / "source")
    migrate(to_newest(fixture, task, timestamp_ms=5))
    stamped = [
        {**entry, "timestamp": 5 if entry["timestamp"] == -1 else entry["timestamp"]} for entry in expected(fixture)
    ]
    assert documents_of(task, said_of(fixture)) == stamped
    assert stamped != expected(fixture)


def expected(fixture: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fixture.logical["entries"]
    return found


@pytest.mark.parametrize(
    ("name", "to"), [("headers-kv", "timestamped"), ("headers-kv", "plain"), ("ts-window", "plain")]
)
def test_a_newer_format_does_not_become_an_older_one(tmp_path: Path, name: str, to: str) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path)
    error = refused(task, MigrationRefusedError, to=TargetFormat(to), store_options={None: said_of(fixture)})
    assert "downgrade" in str(error)
    assert exit_code_of(error) is ExitCode.USAGE


def test_no_kafka_streams_has_versions_with_headers(tmp_path: Path) -> None:
    fixture = load_fixture("versioned")
    task = fixture.unpack(tmp_path / "source")
    said = {None: said_of(fixture)}
    error = refused(task, MigrationRefusedError, to=TargetFormat.HEADERS, stores=["store"], store_options=said)
    assert "--layout location" in str(error)
    location = str(tmp_path / "location")
    migrate(MigrationRequest(str(task), location, TargetFormat.HEADERS, TargetLayout.LOCATION, ["store"], said))
    found = documents_of(Path(location), StateOptions())
    assert found[0]["versions"][0]["headers"] == []
    back = MigrationRequest(location, str(tmp_path / "back"), layout=TargetLayout.KAFKA_STREAMS)
    with pytest.raises(MigrationRefusedError, match="no Kafka Streams has a versioned store with headers"):
        migrate(back)
    assert not (tmp_path / "back").exists()


def test_sessions_have_no_timestamps(tmp_path: Path) -> None:
    fixture = load_fixture("session")
    task = fixture.unpack(tmp_path)
    said = {None: said_of(fixture)}
    error = refused(task, MigrationRefusedError, to=TargetFormat.TIMESTAMPED, stores=["store"], store_options=said)
    assert "has no timestamped format" in str(error)
    assert migrate(MigrationRequest(str(task), to=TargetFormat.TIMESTAMPED, store_options=said)).parts == (), (
        "not named, kept"
    )


def test_what_the_files_do_not_tell_must_be_said(plain: Path, tmp_path: Path) -> None:
    assert "--kind" in str(refused(plain, UnknownKindError, to=TargetFormat.TIMESTAMPED))
    window = load_fixture("window")
    task = window.unpack(tmp_path / "window")
    said = {None: StateOptions(kind=StoreType.WINDOW, window_size_ms=10_000)}
    target = str(tmp_path / "location")
    error = refused(task, UnknownKindError, target=target, layout=TargetLayout.LOCATION, store_options=said)
    assert "--retention-ms" in str(error)


@pytest.mark.parametrize(
    ("name", "kind", "error"),
    [
        ("kv", StoreType.TS_KV, StoreFormatError),
        ("kv", StoreType.HEADERS_KV, StoreFormatError),
        ("ts-kv", StoreType.KV, StoreFormatError),
        ("window", StoreType.VERSIONED, StoreFormatError),
        ("window-dup", StoreType.WINDOW, StoreFormatError),
        ("headers-session", StoreType.HEADERS_WINDOW, StoreFormatError),
    ],
)
def test_another_kind_than_was_said_is_refused(
    tmp_path: Path, name: str, kind: StoreType, error: type[StateStoreError]
) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path)
    found = refused(
        task, error, to=TargetFormat.HEADERS, through_timestamped=True, store_options={None: said_of(fixture, kind)}
    )
    assert exit_code_of(found) is ExitCode.UNKNOWN_LAYOUT


def test_a_store_that_is_not_there_is_refused(plain: Path) -> None:
    error = refused(plain, StoreNotFoundError, to=TargetFormat.TIMESTAMPED, stores=["other"], **PLAIN)
    assert "store" in str(error)


def test_a_database_that_is_open_elsewhere_is_left_alone(plain: Path) -> None:
    with database_opened_elsewhere(plain / "rocksdb" / "store") as said:
        assert said == "held"
        error = refused(plain, DirectoryInUseError, to=TargetFormat.TIMESTAMPED, **PLAIN)
    assert exit_code_of(error) is ExitCode.IN_USE


def test_a_running_application_is_left_alone(plain: Path, tmp_path: Path) -> None:
    with file_locked_elsewhere(plain.parent / ".lock") as said:
        assert said == "held"
        for target in (None, str(tmp_path / "target" / "0_0")):
            refused(plain, DirectoryInUseError, to=TargetFormat.TIMESTAMPED, target=target, **PLAIN)


def test_no_application_starts_meanwhile(plain: Path) -> None:
    with database_opened_elsewhere(plain / "rocksdb" / "store"):
        pass  # makes the lock file, as any opening does
    with exclude_applications([plain], create=True):
        with database_opened_elsewhere(plain / "rocksdb" / "store") as said:
            assert said == LocalStateLockedError.__name__
        with file_locked_elsewhere(plain.parent / ".lock") as said:
            assert said == BlockingIOError.__name__
    with database_opened_elsewhere(plain / "rocksdb" / "store") as said:
        assert said == "held"


def test_a_directory_that_lacks_a_table_is_damaged(tmp_path: Path) -> None:
    fixture = load_fixture("ts-kv")
    task = fixture.unpack(tmp_path)
    next((task / "rocksdb" / "store").glob("*.sst")).unlink()
    error = refused(task, StateStoreError, to=TargetFormat.HEADERS)
    assert isinstance(error, DirectoryDamagedError | LocalStateCorruptedError)
    assert exit_code_of(error) is ExitCode.DAMAGED


def test_a_stranger_among_the_segments_is_refused(tmp_path: Path) -> None:
    fixture = load_fixture("ts-window")
    task = fixture.unpack(tmp_path)
    (segments_directory(task, "store") / "backup").mkdir()
    error = refused(task, StateStoreError, to=TargetFormat.HEADERS, store_options={None: said_of(fixture)})
    assert exit_code_of(error) is ExitCode.UNKNOWN_LAYOUT


def test_a_family_that_no_such_store_has_is_refused(tmp_path: Path) -> None:
    fixture = load_fixture("headers-session")
    task = fixture.unpack(tmp_path)
    said = {None: said_of(fixture, StoreType.SESSION)}
    target = str(tmp_path / "target" / "0_0")
    error = refused(task, StateStoreError, to=TargetFormat.HEADERS, store_options=said, target=target)
    assert isinstance(error, UnknownColumnFamilyError | StoreFormatError)
    done = migrate(MigrationRequest(str(task), to=TargetFormat.HEADERS, store_options=said))
    assert done.parts == (), "in place it is what the same command makes of such a store"


def test_what_is_no_state_is_refused(tmp_path: Path) -> None:
    (tmp_path / "home" / "0_0").mkdir(parents=True)
    (tmp_path / "home" / "0_0" / "note.txt").write_text("not a store")
    assert exit_code_of(refused(tmp_path / "home" / "0_0", UnknownLayoutError)) is ExitCode.UNKNOWN_LAYOUT


def test_a_target_that_is_taken_is_refused(plain: Path, tmp_path: Path) -> None:
    target = tmp_path / "taken" / "0_0"
    target.mkdir(parents=True)
    (target / "note.txt").write_text("mine")
    error = refused(plain, MigrationRefusedError, target=str(target), to=TargetFormat.TIMESTAMPED, **PLAIN)
    assert "exists already" in str(error)
    assert [path.name for path in target.parent.rglob("*")] == ["0_0", "note.txt"]


def test_what_another_migration_has_begun_is_refused(plain: Path) -> None:
    begun = plain.with_name("0_0.migrating")
    begun.mkdir()
    (begun / "statestore.migration.json").write_text(
        '{"format": 1, "request": "another", "source": "x", "databases": {}, "verified": false}'
    )
    with pytest.raises(MigrationRefusedError, match="another migration has begun"):
        migrate(MigrationRequest(str(plain), to=TargetFormat.TIMESTAMPED, **PLAIN))
    (begun / "statestore.migration.json").write_text("{")
    with pytest.raises(DirectoryDamagedError, match="can't be read"):
        migrate(MigrationRequest(str(plain), to=TargetFormat.TIMESTAMPED, **PLAIN))
    (begun / "statestore.migration.json").rename(begun / "mine")
    with pytest.raises(MigrationRefusedError, match="is in the way"):
        migrate(MigrationRequest(str(plain), to=TargetFormat.TIMESTAMPED, **PLAIN))
    assert (begun / "mine").exists()


def test_a_second_migration_needs_the_place_of_the_backup(plain: Path) -> None:
    migrate(MigrationRequest(str(plain), to=TargetFormat.TIMESTAMPED, **PLAIN))
    again = MigrationRequest(str(plain), to=TargetFormat.HEADERS)
    with pytest.raises(MigrationRefusedError, match="--discard-backup"):
        migrate(again)
    migrate(MigrationRequest(str(plain), to=TargetFormat.HEADERS, discard_backup=True))
    assert [path.name for path in plain.parent.iterdir()] == ["0_0"]


def test_a_full_disk_is_noticed_before_anything_is_written(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = type("Usage", (), {"free": 1})
    monkeypatch.setattr("shutil.disk_usage", lambda path: full)
    for dry_run in (True, False):
        error = refused(plain, NoRoomError, to=TargetFormat.TIMESTAMPED, dry_run=dry_run, **PLAIN)
        assert exit_code_of(error) is ExitCode.FOUND_PROBLEMS


def test_what_a_disk_says_becomes_an_error_of_the_tool(tmp_path: Path) -> None:
    with pytest.raises(NoRoomError, match="Make room and run this again"), write_errors(tmp_path / "x"):
        raise OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(NoRoomError, match="more bytes are needed"), write_errors(tmp_path / "x"):
        raise LocalDiskFullError("store", path="x", cause="no space")
    with pytest.raises(DirectoryNotAccessibleError), write_errors(tmp_path / "x"):
        raise OSError(errno.EROFS, "Read-only file system")


def test_a_link_to_a_task_leads_to_the_task(plain: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(plain)
    migrate(MigrationRequest(str(tmp_path / "link"), to=TargetFormat.TIMESTAMPED, **PLAIN))
    assert (tmp_path / "link").is_symlink()
    assert {path.name for path in plain.parent.iterdir()} == {"0_0", "0_0.before-migration"}
    assert len(documents_of(tmp_path / "link", StateOptions())) == 7


def test_without_permission_it_says_so(plain: Path) -> None:
    """In a process that has no rights, as tests may run as one that has all of them."""
    program = (
        "import os, sys\n"
        "from upgrade_tools.cli.app import main\n"
        "main(['migrate', sys.argv[1] + '/nothing'])  # imports what is imported late\n"
        "if os.getuid() == 0: os.setuid(65534)\n"
        "sys.exit(main(['migrate', sys.argv[1], '--to', 'timestamped', '--kind', 'kv']))\n"
    )
    before = tree(plain)
    plain.chmod(0o500)
    database = plain / "rocksdb"
    database.chmod(0o000)
    try:
        done = subprocess.run(
            [sys.executable, "-c", program, str(plain)], capture_output=True, text=True, check=False, timeout=120
        )
    finally:
        database.chmod(0o755)
        plain.chmod(0o755)
    assert done.returncode == ExitCode.NO_ACCESS, done.stderr
    assert "Traceback" not in done.stderr
    assert "can't be accessed" in done.stderr
    assert tree(plain) == before


@pytest.mark.parametrize("wrong", ["lost", "changed", "added"])
def test_what_does_not_read_back_never_counts(
    plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    put_all = SortedFill.put_all

    def badly(self: SortedFill, pairs: Any, on_entries: Any = None) -> int:
        written = list(pairs)
        if wrong == "lost":
            del written[3]
        elif wrong == "changed":
            written[3] = (written[3][0], b"x" + written[3][1])
        else:
            written.append((written[-1][0] + b"\xff", b"x"))
        return put_all(self, written, on_entries)

    monkeypatch.setattr(SortedFill, "put_all", badly)
    error = refused(plain, MigrationCheckError, to=TargetFormat.TIMESTAMPED, **PLAIN)
    assert exit_code_of(error) is ExitCode.DAMAGED
    target = tmp_path / "target" / "0_0"
    refused(plain, MigrationCheckError, target=str(target), to=TargetFormat.TIMESTAMPED, **PLAIN)
    assert list(target.parent.iterdir()) == []


def test_a_lock_file_is_removed_only_by_who_has_it_alone(plain: Path) -> None:
    lock = plain.parent / ".lock"
    with exclude_applications([plain], create=True):
        other = ExitStack()
        other.enter_context(exclude_applications([plain], create=True))
    assert lock.exists(), "the other one keeps applications away by it"
    with other, file_locked_elsewhere(lock) as said:
        assert said == BlockingIOError.__name__
    lock.unlink()
    with exclude_applications([plain], create=True):
        assert lock.exists()
    assert not lock.exists()


def test_a_lock_on_a_file_that_was_removed_is_none(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another migration ends, and removes its lock file, just after this one has opened that."""
    workspace = plain.with_name("0_0.migrating")
    lock = workspace.with_name("0_0.migrating.lock")
    lock.touch()
    flock = fcntl.flock

    def late(descriptor: int, operation: int) -> None:
        monkeypatch.undo()
        lock.unlink()
        flock(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", late)
    with lock_workspace(workspace):
        with pytest.raises(DirectoryInUseError), lock_workspace(workspace):
            pass
        assert lock.exists()
    assert not lock.exists()


def test_two_migrations_of_one_task_do_not_meet(plain: Path) -> None:
    with (
        lock_workspace(plain.with_name("0_0.migrating")),
        pytest.raises(DirectoryInUseError, match=r"0_0\.migrating\.lock"),
    ):
        migrate(MigrationRequest(str(plain), to=TargetFormat.TIMESTAMPED, **PLAIN))
    assert [path.name for path in plain.parent.iterdir()] == ["0_0"]


def test_what_is_held_back_goes_to_kafka_streams_by_its_changelog_alone(tmp_path: Path) -> None:
    """Kafka Streams has windows that are put out as they close in order of time, and suppressed tables in memory."""
    builder = StreamsBuilder()
    texts = builder.stream("in", key_serde=Serdes.string(), value_serde=Serdes.string()).group_by_key()
    closing = texts.windowed_by(TimeWindows.of_size_with_no_grace(10)).emit_strategy(EmitStrategy.on_window_close())
    closing.count(materialized=Materialized.as_("minutes"))
    slow = Suppressed.until_time_limit(10, BufferConfig.unbounded()).with_name("slow")
    texts.count(materialized=Materialized.as_("counts")).suppress(slow).to_stream().to("out")
    states = States(tmp_path, builder.build(), 1)
    states.run(0, lambda _: None)
    request = {"layout": TargetLayout.KAFKA_STREAMS, "pointers": [*states.pointers.values()]}
    for stores in (["minutes"], ["counts", "slow-store"], []):
        with pytest.raises(MigrationRefusedError, match=r"is held back or put out once.*`changelog emit`"):
            migrate(MigrationRequest(str(tmp_path / "old"), str(tmp_path / "made/shop"), stores=stores, **request))
    migrate(MigrationRequest(str(tmp_path / "old"), str(tmp_path / "made/shop"), stores=["counts"], **request))
