"""Where a migration may write: not into its source, not among other people's files, and not two at once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.errors import TargetNotEmptyError
from statestore.errors.new_state import DirectoryInUseError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import MAX_SHARDS, read_metadata
from tests.support.golden.kafka_streams import load_fixture
from tests.support.tools.migrations import documents_of, tree
from upgrade_tools.cli.app import main
from upgrade_tools.cli.exit_codes import ExitCode, exit_code_of
from upgrade_tools.errors import MigrationRefusedError
from upgrade_tools.migration.migrate import migrate
from upgrade_tools.migration.planning.request import MigrationRequest, TargetFormat, TargetLayout
from upgrade_tools.states.state import StateOptions


@pytest.fixture
def task(tmp_path: Path) -> Path:
    return load_fixture("ts-kv").unpack(tmp_path)


def request(source: Path, target: Path | str, layout: TargetLayout, **more: Any) -> MigrationRequest:
    return MigrationRequest(str(source), str(target), TargetFormat.HEADERS, layout, **more)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize(
    ("source", "target", "layout"),
    [
        ("golden/0_0", "golden/0_0", TargetLayout.LOCATION),
        ("golden", "golden", TargetLayout.LOCATION),
        ("golden/0_0", "golden", TargetLayout.LOCATION),
        ("golden/0_0", "link/new", TargetLayout.LOCATION),
        ("golden/0_0", "golden/0_0/x", TargetLayout.KAFKA_STREAMS),
        ("golden", "golden/0_0/x", TargetLayout.KAFKA_STREAMS),
        ("link", "golden", TargetLayout.KAFKA_STREAMS),
    ],
)
def test_nothing_is_made_in_its_source_or_around_it(
    task: Path, tmp_path: Path, source: str, target: str, layout: TargetLayout, dry_run: bool
) -> None:
    (tmp_path / "link").symlink_to(task)
    before = tree(tmp_path)
    with pytest.raises(MigrationRefusedError, match="nothing in common with the source") as raised:
        migrate(request(tmp_path / source, tmp_path / target, layout, dry_run=dry_run))
    assert exit_code_of(raised.value) is ExitCode.USAGE
    assert tree(tmp_path) == before
    assert {path.name for path in tmp_path.iterdir()} == {"golden", "link"}


def test_a_place_beside_the_source_is_none_in_it(task: Path, tmp_path: Path) -> None:
    migrate(request(task, tmp_path / "golden" / "0_00", TargetLayout.LOCATION))
    made = tmp_path / "golden" / "0_00"
    with pytest.raises(MigrationRefusedError, match="nothing in common"):
        migrate(MigrationRequest(str(made), f"{made.as_uri()}/newer"))
    assert read_metadata(DurableLocation(made)) is not None


@pytest.mark.parametrize("name", ["mine", "deep/down/mine", ".hidden/mine"])
def test_other_peoples_files_are_left_alone_at_any_depth(task: Path, tmp_path: Path, name: str) -> None:
    mine = tmp_path / "target" / name
    mine.parent.mkdir(parents=True)
    mine.write_text("mine")
    for dry_run in (True, False):
        with pytest.raises(TargetNotEmptyError, match=name):
            migrate(request(task, tmp_path / "target", TargetLayout.LOCATION, dry_run=dry_run))
    assert [path for path in (tmp_path / "target").rglob("*") if path.is_file()] == [mine]


def test_directories_without_files_are_an_empty_target(task: Path, tmp_path: Path) -> None:
    (tmp_path / "target" / "deep" / "down").mkdir(parents=True)
    (tmp_path / "target" / "lost+found").mkdir()
    (tmp_path / "target" / "lost+found" / "#12").write_text("the disk's")
    assert migrate(request(task, tmp_path / "target", TargetLayout.LOCATION)).entries == 7


def test_two_migrations_to_one_location_do_not_meet(task: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    asked = request(task, tmp_path / "target", TargetLayout.LOCATION)
    refused = []

    def meanwhile(done: int, total: int) -> None:
        before = tree(tmp_path / "target")
        for target in (tmp_path / "target", tmp_path / "link"):
            with pytest.raises(DirectoryInUseError) as raised:
                migrate(request(task, target, TargetLayout.LOCATION))
            refused.append(exit_code_of(raised.value))
        assert tree(tmp_path / "target") == before

    assert migrate(asked, meanwhile).entries == 7
    assert refused
    assert set(refused) == {ExitCode.IN_USE}
    with pytest.raises(TargetNotEmptyError, match="a state"):
        migrate(asked)


def test_a_state_has_so_many_shards_at_most(task: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, new = str(tmp_path / "rows.jsonl"), str(tmp_path / "new")
    assert main(["export", str(task), rows]) == ExitCode.OK
    shards = ["--shards", str(MAX_SHARDS + 1)]
    for command in (
        ["migrate", str(task), new, "--layout", "location", "--missing-are-empty", *shards],
        ["migrate", str(task), new, "--layout", "location", "--missing-are-empty", "--dry-run", *shards],
        ["import", rows, new, *shards],
    ):
        assert main(command) == ExitCode.USAGE
        assert "100,000 are the most" in capsys.readouterr().err
    (tmp_path / "golden" / "0_0").rename(tmp_path / "golden" / "0_99999999999")
    assert main(["migrate", str(tmp_path / "golden"), new, "--layout", "location"]) == ExitCode.USAGE
    assert not (tmp_path / "new").exists()


def test_the_tasks_of_several_subtopologies_are_moved_together(tmp_path: Path) -> None:
    source, apart = tmp_path / "golden", tmp_path / "part-1" / "golden"
    for number in range(2):
        load_fixture("ts-kv").unpack(tmp_path).rename(source / f"{number}_0-")
    for number in range(2):
        (source / f"{number}_0-").rename(source / f"{number}_0")
        target = tmp_path / f"part-{number}" / "golden"
        migrate(request(source, target, TargetLayout.KAFKA_STREAMS, subtopology=number))
    (apart / "1_0").rename(tmp_path / "part-0" / "golden" / "1_0")
    for number in range(2):
        said = StateOptions(subtopology=number, store="store")
        assert len(documents_of(tmp_path / "part-0" / "golden", said)) == 7
