"""`finish-upgrade` moves what a lazy upgrade has left in the families of older formats; all else stays as it is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.bytestore.upgrades import upgradable
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.stored_value import join_stored
from tests.support.golden.kafka_streams import dump_task_directory, load_fixture
from tests.support.tools.migrations import documents_of, said_of, tree
from upgrade_tools.errors import MigrationRefusedError
from upgrade_tools.migration import places as places_module
from upgrade_tools.migration.migrate import finish_upgrade
from upgrade_tools.migration.planning.request import MigrationRequest
from upgrade_tools.states.state import StateOptions

HALF_UPGRADED = [
    "headers-kv-from-plain",
    "headers-kv-from-ts",
    "headers-session-from-plain",
    "headers-window-from-plain",
    "headers-window-from-ts",
    "ts-kv-from-plain",
]
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)
HEADED = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)
OTHER = StoreSpec("other", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)


@pytest.mark.parametrize("name", HALF_UPGRADED)
def test_nothing_is_left_in_an_older_format(name: str, tmp_path: Path) -> None:
    fixture = load_fixture(name)
    task = fixture.unpack(tmp_path)
    before = tree(task)
    report = finish_upgrade(MigrationRequest(str(task), store_options={None: said_of(fixture)}))
    assert documents_of(task, said_of(fixture)) == fixture.logical["entries"]
    inhabited = {
        family["name"]
        for database in dump_task_directory(task)
        for family in database["columnFamilies"]
        if family["entries"]
    }
    assert len(inhabited - {"offsets"}) == 1
    (store,) = report.stores
    assert store.kind is store.migrated
    assert store.entries == len(fixture.logical["entries"])
    (backup,) = report.backups
    assert tree(Path(backup)) == before


def test_tasks_and_stores_that_lack_nothing_are_not_written_anew(tmp_path: Path) -> None:
    application = tmp_path / "shop"
    for partition in range(2):
        with TaskDirectory(application / f"0_{partition}", "shop", partition) as task:
            for spec in (TOTALS, OTHER):
                task.open_store(spec).put(b"old", join_stored(spec.format, b"1", 5, b""))
                task.commit(spec.name, 3, {"orders": {partition: 9}})
    with TaskDirectory(application / "0_1", "shop", 1) as task:
        store = task.open_store(HEADED)
        store.put(b"new", join_stored(HEADED.format, b"2", 6, b""))
        upgrade = upgradable(store)
        assert upgrade is not None
    untouched = tree(application / "0_0")
    tables = {path.name: path.read_bytes() for path in (application / "0_1" / "rocksdb" / "other").glob("*.sst")}
    assert tables
    dry = finish_upgrade(MigrationRequest(str(application), stores=["totals"], dry_run=True))
    assert dry.parts == (0, 1), "as a store with headers, that of the other task is one to be upgraded, too"
    report = finish_upgrade(MigrationRequest(str(application / "0_1")))
    assert report.parts == (1,)
    assert tree(application / "0_0") == untouched
    found = documents_of(application / "0_1", StateOptions(store="totals"), part=1)
    assert [(entry["key"], entry["timestamp"], entry["headers"]) for entry in found] == [
        (b"new".hex(), 6, []),
        (b"old".hex(), 5, []),
    ]
    with TaskDirectory(application / "0_1", "shop", 1) as task:
        assert upgradable(task.open_store(HEADED)) is None
        task.open_store(OTHER)
        assert [task.changelog_offset(name) for name in ("totals", "other")] == [3, 3]
        assert task.position("totals") == {"orders": {1: 9}}
        assert task.was_closed_cleanly("totals")
    done = tree(application / "0_1")
    rest = finish_upgrade(MigrationRequest(str(application), stores=["totals"]))
    assert rest.parts == (0,)
    assert tree(application / "0_1") == done


def test_a_store_that_was_not_asked_for_comes_along_as_it_is(tmp_path: Path) -> None:
    fixture = load_fixture("old-ts-kv")
    task = fixture.unpack(tmp_path)
    with TaskDirectory(task, "golden") as opened:
        opened.open_store(OTHER).put(b"k", join_stored(OTHER.format, b"v", 5, b""))
    (task / ".checkpoint").write_text("0\n2\ngolden-store-changelog 0 11\ngolden-third-changelog 0 12\n")
    with TaskDirectory(task, "golden") as opened:
        store = opened.open_store(StoreSpec("store", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS))
        store.put(b"new", join_stored(StoreFormat.TIMESTAMPED_WITH_HEADERS, b"v", 5, b""))
    before = {path.name: path.stat().st_ino for path in (task / "rocksdb" / "other").glob("*.sst")}
    finish_upgrade(MigrationRequest(str(task), stores=["store"]))
    after = {path.name: path.stat().st_ino for path in (task / "rocksdb" / "other").glob("*.sst")}
    assert after == before, "tables of other stores are linked, not copied"
    assert "golden-third-changelog 0 12" in (task / ".checkpoint").read_text()
    assert [entry["key"] for entry in documents_of(task, StateOptions(store="other"))] == [b"k".hex()]


def test_without_an_exchange_in_one_step_two_renames_do_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a filesystem that has none; killed between the two, the next run does the second one."""
    fixture = load_fixture("headers-kv-from-ts")
    task = fixture.unpack(tmp_path)
    request = MigrationRequest(str(task))
    monkeypatch.setattr(places_module, "exchange", lambda one, other: False)
    renames = []
    really_rename = os.rename

    def rename(source: Path, target: Path) -> None:
        renames.append(target)
        if len(renames) == 2:
            raise KeyboardInterrupt
        really_rename(source, target)

    monkeypatch.setattr("os.rename", rename)
    with pytest.raises(KeyboardInterrupt):
        finish_upgrade(request)
    monkeypatch.undo()
    assert not task.exists()
    finish_upgrade(request)
    assert documents_of(task, StateOptions(kind=said_of(fixture).kind)) == fixture.logical["entries"]
    assert {path.name for path in task.parent.iterdir()} == {"0_0", "0_0.before-migration"}


def test_other_layouts_are_explained(tmp_path: Path) -> None:
    with pytest.raises(MigrationRefusedError, match="migrate LOCATION NEW_LOCATION"):
        finish_upgrade(MigrationRequest(str(Path(__file__).parents[1] / "golden" / "tool-made-1")))
