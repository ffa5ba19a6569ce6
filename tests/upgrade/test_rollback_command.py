"""The command `rollback`: the state of an earlier batch as a new state, the old one unchanged."""

from pathlib import Path

import pytest

from rescaling import KEYS, States, every_kind
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from tool_runs import document_in
from upgrade_tools.cli import main


def printed(pointers: dict[int, CommitPointer]) -> str:
    return "".join(f"{pointer.to_json()}\n" for pointer in pointers.values())


@pytest.fixture
def states(tmp_path: Path) -> States:
    """A state of two batches in each shard; home/then and home/now are its pointers after the first and the second."""
    made = States(tmp_path, every_kind(), 3)
    made.put_globally("eur", "1.1")
    made.put_everywhere({key: 50 + number for number, key in enumerate(KEYS)})
    (tmp_path / "then").write_text(printed(made.pointers))
    return made


def test_the_state_is_that_of_the_earlier_batch(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    then, pointers = states.contents(), dict(states.pointers)
    states.put_everywhere({key: 500 + number for number, key in enumerate(KEYS)})
    now = states.contents()
    assert now != then
    command = ["rollback", str(states.home / "old"), str(states.home / "new"), "--pointers", f"{states.home}/then"]
    assert main([*command, "--dry-run"]) == 0
    assert "dry run, nothing was written" in capsys.readouterr().out
    assert not (states.home / "new").exists()
    assert main([*command, "--json"]) == 0
    made = states.opened()
    document = document_in(capsys.readouterr().out)
    assert (document["stateId"], document["fromShards"], document["shards"]) == (made.metadata.state_id, 3, 3)
    assert {store["name"]: sum(store["entries"]) for store in document["stores"]}["plain"] == len(KEYS)
    assert made.contents() == then
    assert states.contents() == now, "the old state is as it was"
    metadata = read_metadata(DurableLocation(states.home / "new"))
    assert metadata is not None
    assert (metadata.routing, metadata.topology) == (states.metadata.routing, states.metadata.topology)
    for shard, pointer in pointers.items():
        begun = made.pointer(shard)
        assert begun.stream_time_ms == pointer.stream_time_ms
        assert begun.store_times_ms == pointer.store_times_ms


def test_a_version_that_is_gone_is_named(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    gone = states.pointers[1].deltas[0].name
    (states.home / "old" / gone).unlink()
    assert (
        main(["rollback", str(states.home / "old"), str(states.home / "new"), "--pointers", f"{states.home}/then"]) == 5
    )
    assert gone in capsys.readouterr().err
    assert read_metadata(DurableLocation(states.home / "new")) is None


def test_which_version_must_be_said(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["rollback", str(states.home / "old"), str(states.home / "new")]
    for wrong in (
        [],
        ["--checkpoint", "c"],
        ["--pointers", "p", "--batch-id", "1"],
        ["--pointers", "p", "--checkpoint", "c"],
    ):
        assert main([*command, *wrong]) == 2
        assert "say --checkpoint with --batch-id" in capsys.readouterr().err
    (states.home / "one").write_text(printed({0: states.pointers[0]}))
    assert main([*command, "--pointers", f"{states.home}/one"]) == 2
    assert "no commit pointer of shard 1 is given" in capsys.readouterr().err
