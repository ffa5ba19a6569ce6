"""The commands `migrate` and `finish-upgrade` as scripts use them: JSON, exit codes, and words that name stores."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from statestore.bytestore.kafka_streams.task_directory import TaskDirectory
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec, StoreType
from statestore.format.values.store_format import StoreFormat
from tests.support.golden.kafka_streams import load_fixture
from tests.support.tools.migrations import tree
from tests.support.tools.runs import document_in
from upgrade_tools.cli.app import main
from upgrade_tools.cli.exit_codes import ExitCode
from upgrade_tools.states.state import StateOptions
from upgrade_tools.states.store_argument import parse_stores


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return load_fixture("ts-kv").unpack(tmp_path / "streams")


def test_json_is_one_document_on_stdout(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(task), "--to", "headers", "--json"]) == ExitCode.OK
    document = document_in(capsys.readouterr().out)
    assert document["stores"] == [{"name": "store", "from": "ts-kv", "to": "headers-kv", "entries": 7}]
    assert document["backups"] == [f"{task}.before-migration"]
    assert (document["layout"], document["parts"], document["entries"]) == ("kafka-streams", [0], 7)
    assert document["dryRun"] is False


@pytest.mark.parametrize("layout", ["kafka-streams", "location"])
def test_a_dry_run_counts_and_writes_nothing(
    task: Path, layout: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(task.parent)
    target = tmp_path / "target" / "0_0"
    command = ["migrate", str(task), str(target), "--to", "headers", "--layout", layout, "--dry-run", "--json"]
    assert main(command) == ExitCode.OK
    document = document_in(capsys.readouterr().out)
    assert document["dryRun"] is True
    assert document["stores"][0]["entries"] == 7
    entries = load_fixture("ts-kv").logical["entries"]
    size = sum(len(entry["key"]) // 2 + len(entry["value"]) // 2 + 9 for entry in entries)
    assert document["sizeBytes"] == size
    assert document["neededBytes"] > size
    assert document["freeBytes"] > document["neededBytes"]
    assert tree(task.parent) == before
    assert not target.parent.exists()


def test_a_person_is_told_what_became_of_it(task: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", str(task), "--to", "headers"]) == ExitCode.OK
    out = capsys.readouterr().out
    assert "verified entry by entry" in out
    assert f"what was there before: {task}.before-migration" in out
    assert main(["finish-upgrade", str(task)]) == ExitCode.OK
    assert "no entry is left in an older format" in capsys.readouterr().err


def interrupted(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_a_store_that_was_not_closed_cleanly_is_named(
    task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from statestore.bytestore.kafka_streams.task_directory import TaskDirectory\n"
        "from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec\n"
        "from statestore.format.values.store_format import StoreFormat\n"
        "task = TaskDirectory(Path(sys.argv[1]), 'golden')\n"
        "task.open_store(StoreSpec('store', StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED)).put(b'late', bytes(9))\n"
        "os._exit(0)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(task)], check=True, timeout=60)
    to_location = ["migrate", str(task), str(tmp_path / "location"), "--layout", "location", "--json"]
    with monkeypatch.context() as patched:
        patched.setattr("statestore.recovery.making.new_state.NewState.complete", interrupted)
        patched.setattr("upgrade_tools.migration.places.TargetPlace.publish", interrupted)
        for command in (to_location, ["migrate", str(task), "--to", "headers"]):
            assert main(command) == ExitCode.INTERRUPTED
    anew = ["migrate", str(task), str(tmp_path / "anew"), "--layout", "location"]
    for command in (
        anew,
        [*to_location, "--dry-run"],
        to_location,
        ["migrate", str(task), "--to", "headers", "--dry-run"],
    ):
        capsys.readouterr()
        assert main(command) == ExitCode.OK
        assert "store store of task 0 was not closed cleanly" in "".join(capsys.readouterr())
    assert main(["migrate", str(task), "--to", "headers", "--json"]) == ExitCode.OK
    document = document_in(capsys.readouterr().out)
    assert document["entries"] == 8
    assert "was not closed cleanly" in document["notes"][0]
    with TaskDirectory(task, "golden") as opened:
        opened.open_store(StoreSpec("store", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS))
        assert not opened.was_closed_cleanly("store")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--to", "plain"], ExitCode.USAGE, "downgrade"),
        (["--to", "newest"], ExitCode.USAGE, "newest"),
        (["--to", "headers", "--store", "store:kind"], ExitCode.USAGE, "store:kind"),
        (["--to", "headers", "--store", "store:ts-kv:size=1"], ExitCode.USAGE, "size=1"),
        (["--to", "headers", "--store", "store", "--store", "store"], ExitCode.USAGE, "named twice"),
        (["--to", "headers", "--changelog-offsets", "/nowhere"], ExitCode.USAGE, "can't be read as offsets"),
        (["--to", "headers", "--kind", "kv"], ExitCode.UNKNOWN_LAYOUT, "timestamped"),
        (["--layout", "location"], ExitCode.USAGE, "name a TARGET"),
    ],
)
def test_wrong_usage_ends_with_its_exit_code(
    task: Path, arguments: list[str], code: ExitCode, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = tree(task.parent)
    assert main(["migrate", str(task), *arguments]) == code
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert tree(task.parent) == before


@pytest.mark.parametrize(
    "offsets", ['{"t": {"0": 3.7}}', '{"t": {"0": "3"}}', '{"t": {"0": -1}}', '{"t": {"-1": 3}}', '{"t": 3}', "[]"]
)
def test_offsets_are_whole_numbers(
    task: Path, tmp_path: Path, offsets: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "offsets.json").write_text(offsets)
    before = tree(task.parent)
    assert main(["migrate", str(task), "--changelog-offsets", str(tmp_path / "offsets.json")]) == ExitCode.USAGE
    assert "can't be read as offsets" in " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert tree(task.parent) == before


def test_an_argument_says_of_a_store_what_its_files_do_not() -> None:
    otherwise = StateOptions(retention_ms=9)
    found = parse_stores(["a", "b:window:window-size-ms=5", "c::retention-ms=7"])
    assert [(argument.name, argument.says_more) for argument in found] == [("a", False), ("b", True), ("c", True)]
    assert [argument.options(otherwise) for argument in found] == [
        otherwise,
        StateOptions(kind=StoreType.WINDOW, window_size_ms=5, retention_ms=9),
        StateOptions(retention_ms=7),
    ]


@pytest.mark.parametrize("more", [["--dry-run"], []])
def test_offsets_that_no_store_takes_are_a_mistake(
    task: Path, tmp_path: Path, more: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    offsets, location = tmp_path / "offsets.json", str(tmp_path / "location")
    assert main(["migrate", str(task), location, "--layout", "location"]) == ExitCode.OK
    before = tree(tmp_path)
    again = str(tmp_path / "again" / "shop")
    to_directory = ["migrate", location, again, "--layout", "kafka-streams", "--changelog-offsets", str(offsets), *more]
    to_location = ["migrate", str(task), str(tmp_path / "new"), "--layout", "location"]
    for wrong, said, command in (
        ({"shop-stroe-changelog": {"0": 5}}, "their changelogs are shop-store-changelog", to_directory),
        ({"shop-store-changelog": {"0": 5, "1": 6}}, "shop-store-changelog, partition 1", to_directory),
        ({"other-store-changelog": {"0": 5}}, "--application-id", to_directory),
        ({"golden-store-changelog": {"0": 5}}, "none, as in any state location", [*to_location, *to_directory[5:]]),
    ):
        offsets.write_text(json.dumps(wrong))
        assert main(command) == ExitCode.USAGE
        assert said in capsys.readouterr().err
    offsets.unlink()
    assert tree(tmp_path) == before
    offsets.write_text(json.dumps({"other-store-changelog": {"0": 5}}))
    assert main([*to_directory, "--application-id", "other"]) == ExitCode.OK
    offsets.write_text(json.dumps({"golden-store-changelog": {"0": 5}}))
    assert main(["migrate", str(task), "--to", "headers", *to_directory[5:]]) == ExitCode.OK, "its files name it so"
