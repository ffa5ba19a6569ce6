"""The offline commands on a state with snapshots: what is garbage, and what is damaged."""

from pathlib import Path

import pytest

from shards import TOTALS, Shard, stored, wait_for_uploads
from statestore.recovery.metadata import StateMetadata, settle_metadata
from statestore.recovery.options import RecoveryOptions
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.snapshot import read_manifest
from upgrade_tools.cli import main


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    options = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000)
    made = Shard(tmp_path, recovery=options)
    settle_metadata(made.state.location, StateMetadata("state-1", 1, "key", (0,), (TOTALS,), ()))
    return made


@pytest.fixture
def pointer(shard: Shard) -> CommitPointer:
    """Make a state at version 20, with an attempt that did not count, and write its pointer to a file."""
    pointer = shard.start()
    for number in range(20):
        pointer = shard.batch(pointer, {b"k": stored(b"%d" % number), b"%d" % number: stored(b"v")})
        if number == 3:
            failed = shard.batch(pointer, {b"k": stored(b"failed")})
            (shard.home / "failed").write_text(failed.head)
    wait_for_uploads()
    (shard.home / "pointers").write_text(pointer.to_json() + "\n")
    return pointer


def files(shard: Shard) -> set[str]:
    root = shard.home / "state"
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}


def test_garbage_is_listed_with_reasons_and_removed_only_if_asked_to(
    shard: Shard, pointer: CommitPointer, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["gc", str(shard.home / "state"), "--pointers", str(shard.home / "pointers")]
    before = files(shard)
    assert main([*arguments, "--retained-versions", "5"]) == 0
    out = capsys.readouterr().out
    assert files(shard) == before, "a list changes nothing"
    assert (shard.home / "failed").read_text() in out
    assert "no retained version needs deltas up to" in out
    assert "nothing was, give --remove" in out
    assert main([*arguments, "--retained-versions", "5", "--remove"]) == 0
    capsys.readouterr()
    assert (shard.home / "failed").read_text() not in files(shard)
    assert len(files(shard)) < len(before)
    assert main([*arguments, "--retained-versions", "5"]) == 0
    assert "0 files, 0.0 MB" in capsys.readouterr().out
    assert main(["verify", *arguments[1:]]) == 0
    assert shard.content(pointer)[b"k"] == stored(b"19")


def test_pointers_of_another_state_are_refused(
    shard: Shard, pointer: CommitPointer, capsys: pytest.CaptureFixture[str]
) -> None:
    (shard.home / "pointers").write_text(pointer.to_json().replace("state-1", "state-9"))
    assert main(["gc", str(shard.home / "state"), "--pointers", str(shard.home / "pointers"), "--remove"]) == 1
    assert "state-9" in capsys.readouterr().err
    assert main(["gc", str(shard.home / "state"), "--pointers", str(shard.home / "nothing")]) == 1
    assert "can't be read" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["table", "manifest", "delta"])
def test_verify_names_what_a_pointer_needs_and_is_damaged(
    shard: Shard, pointer: CommitPointer, what: str, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = pointer.snapshots[-1]
    table = read_manifest(shard.state.location, pointer, newest).files[-1].durable
    name = {"table": table.name, "manifest": newest.manifest.name, "delta": pointer.deltas[0].name}[what]
    path = shard.home / "state" / name
    path.write_bytes(path.read_bytes()[:-1])
    arguments = ["verify", str(shard.home / "state"), "--pointers", str(shard.home / "pointers")]
    assert main(arguments) == 1
    out = capsys.readouterr().out
    assert name in out
    assert "1 damaged" in out or what != "table"
