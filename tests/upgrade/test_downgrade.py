"""`downgrade`: stores without headers, as Kafka Streams rebuilds them from the changelog of one with headers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreType
from statestore.errors import StoreFormatError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from tests.support.golden.kafka_streams import load_fixture
from tests.support.java.reader import ReadRequest, read_with_kafka_streams
from tests.support.recovery.rescaling import States
from tests.support.tools.migrations import documents_of, said_of, to_newest, tree
from tests.support.tools.runs import document_in
from upgrade_tools.cli.app import main
from upgrade_tools.errors import MigrationRefusedError
from upgrade_tools.migration.migrate import downgrade, migrate
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import StateOptions

OLDER = {
    "headers-kv": StoreType.TS_KV,
    "headers-kv-from-ts": StoreType.TS_KV,
    "headers-session": StoreType.SESSION,
    "headers-window": StoreType.TS_WINDOW,
    "headers-window-dup": StoreType.TS_WINDOW_DUP,
    "ts-kv": StoreType.KV,
    "ts-window": StoreType.WINDOW,
}
"""Golden directories, and what is made of each; Kafka Streams itself wrote them."""


def older_format(kind: StoreType) -> TargetFormat:
    return TargetFormat.TIMESTAMPED if kind.value.startswith("ts-") else TargetFormat.PLAIN


def without(entries: list[dict[str, Any]], kind: StoreType) -> list[dict[str, Any]]:
    """The entries, of which a store of `kind` has no headers, and if it is plain no timestamps."""
    lost = {"headers"} if kind.value.startswith("ts-") else {"headers", "timestamp"}
    return [{name: value for name, value in entry.items() if name not in lost} for entry in entries]


@pytest.fixture(scope="module")
def downgraded(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = {}
    for name, kind in OLDER.items():
        fixture = load_fixture(name)
        task, target = (tmp_path_factory.mktemp(name) / "golden" / "0_0" for _ in range(2))
        fixture.unpack(task.parents[1])
        before = tree(task)
        said = {None: said_of(fixture, StoreType(fixture.fixture["kind"]))}
        report = downgrade(MigrationRequest(str(task), str(target), older_format(kind), store_options=said))
        assert tree(task) == before
        (store,) = report.stores
        assert (store.migrated, store.entries) == (kind, len(fixture.logical["entries"]))
        made[name] = target
    return made


@pytest.mark.usefixtures("java")
def test_kafka_streams_opens_them_as_stores_of_the_older_format(downgraded: dict[str, Path]) -> None:
    readable = {
        name: kind for name, kind in OLDER.items() if kind is not StoreType.TS_WINDOW_DUP
    }  # its reader has no name
    answers = read_with_kafka_streams([ReadRequest(downgraded[name], kind.value) for name, kind in readable.items()])
    for (name, kind), answer in zip(readable.items(), answers, strict=True):
        logical = load_fixture(name).logical
        assert answer["entries"] == without(logical["entries"], kind), name
        assert answer["committedOffset"] == logical["committedOffset"], name
        assert answer["pointReadsThatDiffer"] == [], name


@pytest.mark.parametrize("name", OLDER)
def test_entries_keep_what_the_older_format_has_room_for(name: str, downgraded: dict[str, Path]) -> None:
    kind = OLDER[name]
    options = said_of(load_fixture(name), kind)
    assert documents_of(downgraded[name], options) == without(load_fixture(name).logical["entries"], kind)


def test_what_was_downgraded_is_upgraded_again(downgraded: dict[str, Path], tmp_path: Path) -> None:
    request = to_newest(load_fixture("ts-kv"), downgraded["headers-kv"], tmp_path / "0_0")
    migrate(request)
    entries = documents_of(tmp_path / "0_0", StateOptions(kind=StoreType.HEADERS_KV))
    assert entries == [{**entry, "headers": []} for entry in load_fixture("headers-kv").logical["entries"]]


def test_a_store_of_a_location_loses_its_headers_in_a_new_one(
    states: States, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = str(states.home / "old"), str(states.home / "new")
    command = ["downgrade", source, target, "--pointers", f"{states.home}/pointers", "--json"]
    command += ["--store", "headed-versions", "--store", "sessions"]
    assert main([*command, "--to", "plain"]) == 0
    report = document_in(capsys.readouterr().out)
    changed = {
        store["name"]: (store["from"], store["to"]) for store in report["stores"] if store["from"] != store["to"]
    }
    assert changed == {
        "headed-versions": ("headers-versioned", "versioned"),
        "sessions": ("headers-session", "session"),
    }
    old = open_state(source, StateOptions(pointers=list(states.pointers.values())))
    made = open_state(target)
    metadata = read_metadata(DurableLocation(target))
    assert metadata is not None
    assert metadata.shards == 3
    for shard in range(3):
        with old.open(shard, old.specs()) as before, made.open(shard, made.specs()) as after:
            assert before.keys() == after.keys(), "a query goes on with all of them"
            for name, store in after.items():
                found, was = list(store.bytes.range(None, None)), list(before[name].bytes.range(None, None))
                assert [key for key, _ in found] == [key for key, _ in was]
                sizes = [sum(len(value) for _, value in pairs) for pairs in (found, was)]
                assert sizes[0] < sizes[1] if name in changed and found else found == was


def test_what_is_no_downgrade_is_refused(tmp_path: Path) -> None:
    fixture = load_fixture("ts-kv")
    task = fixture.unpack(tmp_path)
    before = tree(task)
    for request, message in [
        (MigrationRequest(str(task), None, TargetFormat.PLAIN), "can't be downgraded in place"),
        (MigrationRequest(str(task), str(tmp_path / "new"), TargetFormat.HEADERS), "or to headers"),
        (
            MigrationRequest(str(task), str(tmp_path / "new"), TargetFormat.TIMESTAMPED, stores=["store"]),
            "is not an older format",
        ),
    ]:
        with pytest.raises(MigrationRefusedError, match=message):
            downgrade(request)
    assert tree(task) == before
    assert not (tmp_path / "new").exists()


def test_the_store_itself_still_refuses_the_older_format(tmp_path: Path) -> None:
    fixture = load_fixture("headers-kv")
    task = fixture.unpack(tmp_path)
    target = tmp_path / "new" / "0_0"
    spec = open_state(str(task), StateOptions(kind=StoreType.TS_KV)).found_stores()[0]
    assert spec.kinds == (StoreType.HEADERS_KV,)
    downgrade(MigrationRequest(str(task), str(target), TargetFormat.TIMESTAMPED, TargetLayout.KAFKA_STREAMS))
    made = open_state(str(target))
    with TaskDirectory(target, "golden") as directory:
        store = directory.open_store(made.the_spec())
        assert len(list(store.range(None, None))) == len(fixture.logical["entries"])
    with (
        TaskDirectory(task, "golden") as directory,
        pytest.raises(StoreFormatError, match="upgrade-tools downgrade DIR TARGET --to timestamped"),
    ):
        directory.open_store(made.the_spec())
