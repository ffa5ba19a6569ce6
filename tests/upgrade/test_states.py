"""States as tools see them: what files tell of stores, and what is said where they do not tell."""

from pathlib import Path

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, StoreType
from statestore.format.values.store_format import StoreFormat
from tests.support.golden.kafka_streams import load_fixture
from upgrade_tools.errors import UnknownKindError
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import StateOptions


def test_an_application_s_id_is_that_of_the_store_s_own_changelog(tmp_path: Path) -> None:
    specs = [StoreSpec(name, StoreKind.KEY_VALUE, StoreFormat.PLAIN) for name in ("b", "a-b")]
    task = tmp_path / "not the id" / "0_2"
    with TaskDirectory(task, "the-app", 2) as directory:
        for number, spec in enumerate(specs):
            directory.open_store(spec).put(b"k", b"v")
            directory.commit(spec.name, 40 + number, {})
    for name, offset in (("b", 40), ("a-b", 41)):
        state = open_state(str(task), StateOptions(store=name, kind=StoreType.KV))
        with state.open(2, state.specs()) as stores:
            assert stores[name].changelog_offset == offset
    both = open_state(str(task))
    with both.open(2, both.specs()) as stores:
        assert {name: store.changelog_offset for name, store in stores.items()} == {"b": 40, "a-b": 41}
    (task / ".checkpoint").write_text("0\n2\nthe-app-a-b-changelog 2 50\nthe-app-b-changelog 2 60\n")
    state = open_state(str(task), StateOptions(store="b"))
    with state.open(2, state.specs()) as stores:
        assert stores["b"].changelog_offset == 60, "what an older release left in a file counts more"


def test_what_one_part_tells_of_a_store_counts_for_all(tmp_path: Path) -> None:
    fixture = load_fixture("kv")
    first = fixture.unpack(tmp_path)
    load_fixture("ts-kv").unpack(tmp_path / "again").rename(first.with_name("0_1"))
    load_fixture("headers-kv-from-ts").unpack(tmp_path / "yet").rename(first.with_name("0_2"))
    (found,) = open_state(str(first.parent)).found_stores()
    assert found.kinds == (StoreType.HEADERS_KV,)
    assert open_state(str(first)).found_stores()[0].kinds == (StoreType.KV, StoreType.VERSIONED)


def test_what_is_recorded_need_not_be_said(tmp_path: Path) -> None:
    spec = StoreSpec("windows", StoreKind.WINDOW, StoreFormat.TIMESTAMPED, 1_000, 500, 10, retain_duplicates=True)
    with TaskDirectory(tmp_path / "app/0_0", "app") as directory:
        directory.open_store(spec).put(bytes(8) + b"k" + bytes(12), bytes(9))
    state = open_state(str(tmp_path / "app/0_0"))
    assert state.specs() == [spec]
    (tmp_path / "app/0_0/windows/windows.0/statestore.store.json").unlink()
    with pytest.raises(UnknownKindError, match="ts-window, ts-window-dup"):
        open_state(str(tmp_path / "app/0_0")).specs()


def test_a_segment_s_directory_may_have_the_name_of_an_older_release(tmp_path: Path) -> None:
    task = load_fixture("window").unpack(tmp_path)
    (task / "store/store.120000").rename(task / "store/store-197001010002")
    (task / "store/store.180000").rename(task / "store/store:180000")
    state = open_state(str(task), StateOptions(kind=StoreType.WINDOW, window_size_ms=10_000))
    assert sorted(database.segment_start_ms or 0 for database in state.databases(0)) == [120_000, 180_000, 240_000]
    with state.open(0, state.specs()) as stores:
        entries = list(stores["store"].bytes.range(None, None))
    assert len(entries) == len(load_fixture("window").logical["entries"])
    assert (task / "store/store:180000").is_dir(), "renamed in the view alone"


def test_whoever_asks_is_told_about_how_much_there_is_in_a_part(tmp_path: Path) -> None:
    state = open_state(str(load_fixture("headers-kv").unpack(tmp_path)))
    told: list[int] = []
    state.on_open = told.append
    with state.open(0, state.specs()) as stores:
        entries = len(list(stores["store"].bytes.range(None, None)))
    assert len(told) == 1
    assert 0 < told[0] <= 2 * entries, "RocksDB's estimate"
