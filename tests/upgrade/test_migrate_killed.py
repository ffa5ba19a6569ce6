"""A migration that is killed leaves the old or the new, never half of it; and the same command goes on from there."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.engines.rocksdb import list_families
from statestore.bytestore.engines.table_files import SortedFill
from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.segments import segment_prefix
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.keys.window_key import encode_window_key
from statestore.format.values.store_format import StoreFormat
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from tests.support.tools.killed_migrations import Killer
from tests.support.tools.migrations import entry_documents
from upgrade_tools.cli.printing.entry_documents import Document
from upgrade_tools.errors import UnknownLayoutError
from upgrade_tools.migration.migrate import migrate
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat
from upgrade_tools.states.detection import open_state

INTERVAL_MS, WINDOW_MS = 60_000, 10_000
VISITS = StoreSpec("visits", StoreKind.WINDOW, StoreFormat.TIMESTAMPED, 10 * INTERVAL_MS, INTERVAL_MS, WINDOW_MS)
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)
SAID = {"window_size_ms": WINDOW_MS, "retention_ms": 10 * INTERVAL_MS, "segment_interval_ms": INTERVAL_MS}
HEADED = [replace(spec, format=StoreFormat.TIMESTAMPED_WITH_HEADERS) for spec in (TOTALS, VISITS)]
TASKS = ("0_0", "0_1")
PUBLISHING = 18
"""About how many file operations two tasks take to come into their places."""
KILLS = 2
"""At how many places each migration is killed: seeded, so that all runs of the test are the same."""


@pytest.fixture(scope="module")
def killer() -> Iterator[Killer]:
    with Killer() as killer:
        yield killer


@pytest.fixture(scope="module")
def application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An application's directory with two tasks, each with two stores; the windows are in two segments."""
    return make_application(tmp_path_factory.mktemp("application") / "shop", TOTALS, VISITS)


@pytest.fixture(scope="module")
def plain_application(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in plain stores, as Kafka Streams leaves them: without a record of what they are."""
    specs = [replace(spec, format=StoreFormat.PLAIN) for spec in (TOTALS, VISITS)]
    home = make_application(tmp_path_factory.mktemp("plain") / "shop", *specs)
    records = list(home.rglob("statestore.store.json"))
    assert len(records) == 2 * 3
    for record in records:
        record.unlink()
    return home


def make_application(home: Path, totals_spec: StoreSpec, visits_spec: StoreSpec) -> Path:
    """Write an application's directory with two tasks and some random entries in each."""
    randomly = random.Random(5)
    for partition in range(2):
        with TaskDirectory(home / f"0_{partition}", "shop", partition) as task:
            totals, visits = task.open_store(totals_spec), task.open_store(visits_spec)
            for _ in range(randomly.randrange(30, 60)):
                stamp = randomly.randrange(2**40).to_bytes(8, "big")
                totals.put(randomly.randbytes(randomly.randrange(1, 9)), stamp + randomly.randbytes(9))
                segment_id = randomly.randrange(2)
                key = encode_window_key(
                    randomly.randbytes(3), segment_id * INTERVAL_MS + randomly.randrange(6) * 10_000
                )
                visits.put(segment_prefix(segment_id) + key, stamp + b"visit")
            task.commit("totals", 70 + partition, {"orders": {partition: 3}})
            task.commit("visits", 90 + partition, {"orders": {partition: 3}})
    return home


def headed(path: Path) -> list[list[Document]]:
    """All entries of both stores, read as stores with headers, of each partition; whatever format they are in."""
    state = open_state(str(path))
    found = []
    for part in state.parts:
        with state.open(part, HEADED) as stores:
            found.append([entry for spec in HEADED for entry in entry_documents(stores[spec.name])])
    return found


def formats(application: Path) -> list[str]:
    """Which format the tasks of a directory have; raises if one is neither."""
    found = []
    for partition in range(2):
        families = {
            family
            for current in (application / f"0_{partition}").rglob("CURRENT")
            for family in list_families(str(current.parent))
        }
        found.append("new" if "keyValueWithTimestampAndHeaders" in families else "old")
        assert families - {"default", "offsets"} in (
            {"keyValueWithTimestampAndHeaders"},
            {"keyValueWithTimestamp"},
            set(),
        ), families
    return found


def kill_points(operations: int, seed: int) -> list[int]:
    """The last three, where things are put in their place, and others from everywhere."""
    last = set(range(max(1, operations - 2), operations + 1))
    return sorted(last | set(random.Random(seed).sample(range(1, operations), KILLS)))


def test_in_place_there_is_the_old_or_the_new_and_the_same_command_goes_on(
    killer: Killer, application: Path, tmp_path: Path
) -> None:
    expected = headed(application)
    request: dict[str, Any] = {"to": "headers", "store_options": SAID}
    home = tmp_path / "whole" / "shop"
    shutil.copytree(application, home)
    operations = killer.run(home, source=str(home), **request)
    assert operations is not None
    assert formats(home) == ["new", "new"]
    for kill_at in kill_points(operations, 1):
        home = tmp_path / str(kill_at) / "shop"
        shutil.copytree(application, home)
        assert killer.run(home, kill_at, source=str(home), **request) is None
        formats(home)
        assert headed(home) == expected, f"after a kill at {kill_at} of {operations}"
        assert killer.run(home, source=str(home), **request) is not None
        assert formats(home) == ["new", "new"]
        assert headed(home) == expected
        left = {path.name for path in home.iterdir()} - {".lock"}
        assert left == {"0_0", "0_1", "0_0.before-migration", "0_1.before-migration"}, kill_at
        assert not list(home.rglob("statestore.migration.json*"))


def test_stores_whose_kind_must_be_said_go_on_too(killer: Killer, plain_application: Path, tmp_path: Path) -> None:
    """What was said is no longer what the tasks that are in their place are."""
    expected = headed(plain_application)
    said = {option: value for option, value in SAID.items() if option != "segment_interval_ms"}
    request: dict[str, Any] = {"to": "headers", "through_timestamped": True, "store_options": said}
    request["kinds"] = {"totals": "kv", "visits": "window"}
    home = tmp_path / "whole" / "shop"
    shutil.copytree(plain_application, home)
    operations = killer.run(home, source=str(home), **request)
    assert operations is not None
    seen = set()
    for kill_at in range(operations - PUBLISHING, operations + 1, 5):
        home = tmp_path / str(kill_at) / "shop"
        shutil.copytree(plain_application, home)
        assert killer.run(home, kill_at, source=str(home), **request) is None
        seen.add(tuple(formats(home)))
        assert killer.run(home, source=str(home), **request) is not None, f"after a kill at {kill_at} of {operations}"
        assert formats(home) == ["new", "new"]
        assert headed(home) == expected
        assert {path.name for path in home.glob("0_*")} == {*TASKS, *(f"{task}.before-migration" for task in TASKS)}
        assert not list(home.rglob("statestore.migration.json*"))
    assert seen >= {("new", "old"), ("new", "new")}


def test_a_copy_is_there_as_a_whole_or_not_at_all(killer: Killer, application: Path, tmp_path: Path) -> None:
    expected = headed(application)
    request: dict[str, Any] = {"source": str(application), "to": "headers", "store_options": SAID}
    operations = killer.run(tmp_path, target=str(tmp_path / "whole" / "shop"), **request)
    assert operations is not None
    for kill_at in kill_points(operations, 2):
        target = tmp_path / str(kill_at) / "shop"
        assert killer.run(tmp_path, kill_at, target=str(target), **request) is None
        if target.exists():
            assert headed(target) == expected, kill_at
        if not target.exists() or list(target.rglob("statestore.migration.json")):
            assert killer.run(tmp_path, target=str(target), **request) is not None
        assert headed(target) == expected
        assert formats(target) == ["new", "new"]
        assert {path.name for path in target.parent.iterdir()} <= {"shop", "shop.migrating.lock"}, kill_at


def test_a_location_is_a_state_once_it_is_whole(killer: Killer, application: Path, tmp_path: Path) -> None:
    expected = headed(application)
    request: dict[str, Any] = {"source": str(application), "to": "headers", "layout": "location", "store_options": SAID}
    request["shard_by"] = "partition"
    operations = killer.run(tmp_path, target=str(tmp_path / "whole"), **request)
    assert operations is not None
    for kill_at in kill_points(operations, 3):
        target = tmp_path / str(kill_at)
        assert killer.run(tmp_path, kill_at, target=str(target), **request) is None
        if read_metadata(DurableLocation(target)) is None:
            with pytest.raises(UnknownLayoutError):
                open_state(str(target))
        else:
            assert in_any_order(headed(target)) == in_any_order(expected), kill_at
        if (target / "unfinished.json").exists() or not (target / "statestore.json").exists():
            assert killer.run(tmp_path, target=str(target), **request) is not None
        assert in_any_order(headed(target)) == in_any_order(expected), kill_at
        assert not (target / "unfinished.json").exists()


def in_any_order(parts: list[list[Document]]) -> list[list[Document]]:
    return [sorted(entries, key=str) for entries in parts]


def test_a_database_that_was_being_filled_goes_on_after_its_last_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with TaskDirectory(tmp_path / "shop" / "0_0", "shop") as task:
        task.open_store(TOTALS).write((b"%06d" % number, bytes(8) + b"v") for number in range(25_000))
    request = MigrationRequest(str(tmp_path / "shop" / "0_0"), to=TargetFormat.HEADERS)
    monkeypatch.setattr(SortedFill, "table_bytes", 1)

    def interrupt(done: int, total: int) -> None:
        if done > 20_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(request, interrupt)
    steps = []
    report = migrate(request, lambda done, total: steps.append(done))
    assert report.entries == 25_000
    assert steps[-1] == 5_000 + 25_000, "what was left is written, and all of it is compared"


def interrupted_after(steps: int, request: MigrationRequest) -> None:
    """Begin a migration, and end it as Ctrl-C does after so many entries were written or compared."""

    def interrupt(done: int, total: int) -> None:
        if done > steps:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(request, interrupt)


@pytest.fixture
def windows(tmp_path: Path) -> Path:
    """A task with ten windows in each of two segments."""
    path = tmp_path / "shop" / "0_0"
    with TaskDirectory(path, "shop") as task:
        store = task.open_store(VISITS)
        for segment_id in range(2):
            for number in range(10):
                key = encode_window_key(b"%d" % number, segment_id * INTERVAL_MS)
                store.put(segment_prefix(segment_id) + key, bytes(8) + b"v")
    return path


def tables(database: Path) -> dict[str, int]:
    """The tables of a database, each with its inode, which another file of that name would not have."""
    found = {path.name: path.stat().st_ino for path in database.glob("*.sst")}
    assert found
    return found


def test_databases_that_are_verified_are_not_done_again(windows: Path) -> None:
    request = MigrationRequest(str(windows), to=TargetFormat.HEADERS)
    interrupted_after(25, request)
    workspace = windows.with_name("0_0.migrating")
    written = tables(workspace / "visits" / "visits.0")
    assert migrate(request).entries == 20
    assert tables(windows / "visits" / "visits.0") == written


def test_what_was_begun_of_a_source_that_has_changed_does_not_count(windows: Path) -> None:
    request = MigrationRequest(str(windows), to=TargetFormat.HEADERS)
    interrupted_after(25, request)
    late = segment_prefix(0) + encode_window_key(b"late", 0)
    with TaskDirectory(windows, "shop") as task:
        task.open_store(VISITS).put(late, bytes(8) + b"v")
    assert migrate(request).entries == 21
    with TaskDirectory(windows, "shop") as task:
        assert task.open_store(HEADED[1]).get(late) == bytes(9) + b"v"
