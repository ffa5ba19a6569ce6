"""The command `rollback`: the state of an earlier batch as a new state, the old one unchanged."""

import pytest

from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import read_metadata
from tests.support.recovery.rescaling import KEYS, States
from tests.support.tools.runs import document_in
from upgrade_tools.cli.app import main


def test_the_state_is_that_of_the_earlier_batch(rated_states: States, capsys: pytest.CaptureFixture[str]) -> None:
    then, pointers = rated_states.contents(), dict(rated_states.pointers)
    rated_states.put_everywhere({key: 500 + number for number, key in enumerate(KEYS)})
    now = rated_states.contents()
    assert now != then
    command = [
        "rollback",
        str(rated_states.home / "old"),
        str(rated_states.home / "new"),
        "--pointers",
        str(rated_states.home / "pointers"),
    ]
    assert main([*command, "--dry-run"]) == 0
    assert "dry run, nothing was written" in capsys.readouterr().out
    assert not (rated_states.home / "new").exists()
    assert main([*command, "--json"]) == 0
    made = rated_states.opened()
    document = document_in(capsys.readouterr().out)
    assert (document["stateId"], document["fromShards"], document["shards"]) == (made.metadata.state_id, 3, 3)
    assert {store["name"]: sum(store["entries"]) for store in document["stores"]}["plain"] == len(KEYS)
    assert made.contents() == then
    assert rated_states.contents() == now, "the old state is as it was"
    metadata = read_metadata(DurableLocation(rated_states.home / "new"))
    assert metadata is not None
    assert (metadata.routing, metadata.topology) == (rated_states.metadata.routing, rated_states.metadata.topology)
    for shard, pointer in pointers.items():
        begun = made.pointer(shard)
        assert begun.stream_time_ms == pointer.stream_time_ms
        assert begun.store_times_ms == pointer.store_times_ms


def test_a_version_that_is_gone_is_named(rated_states: States, capsys: pytest.CaptureFixture[str]) -> None:
    gone = rated_states.pointers[1].deltas[0].name
    (rated_states.home / "old" / gone).unlink()
    assert (
        main(
            [
                "rollback",
                str(rated_states.home / "old"),
                str(rated_states.home / "new"),
                "--pointers",
                str(rated_states.home / "pointers"),
            ]
        )
        == 5
    )
    assert gone in capsys.readouterr().err
    assert read_metadata(DurableLocation(rated_states.home / "new")) is None


def test_which_version_must_be_said(rated_states: States, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["rollback", str(rated_states.home / "old"), str(rated_states.home / "new")]
    for wrong in (
        [],
        ["--checkpoint", "c"],
        ["--pointers", "p", "--batch-id", "1"],
        ["--pointers", "p", "--checkpoint", "c"],
    ):
        assert main([*command, *wrong]) == 2
        assert "give --checkpoint with --batch-id" in capsys.readouterr().err
    (rated_states.home / "one").write_text(rated_states.pointers[0].to_json())
    assert main([*command, "--pointers", f"{rated_states.home}/one"]) == 2
    assert "no commit pointer of shard 1 is given" in capsys.readouterr().err
