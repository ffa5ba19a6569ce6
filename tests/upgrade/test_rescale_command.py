"""The command `rescale`, on states that were really written."""

import io
import json
from pathlib import Path

import pytest

from statestore import Serdes
from statestore.errors.new_state import StatePointersError
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import METADATA_NAME, agree_on_metadata, read_metadata
from statestore.view import StateView
from tests.support.golden.kafka_streams import load_fixture
from tests.support.recovery.rescaling import KEYS, States, every_kind
from tests.support.tools.runs import document_in
from upgrade_tools.cli.app import main


def command(states: States, *more: str, shards: str = "5") -> list[str]:
    home = states.home
    return [
        "rescale",
        str(home / "old"),
        str(home / "new"),
        "--shards",
        shards,
        "--pointers",
        f"{home}/pointers",
        *more,
    ]


def test_a_state_is_rescaled_and_what_was_made_is_printed(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(states)) == 0
    out, err = capsys.readouterr()
    assert "3 shards to 5: state " in out
    assert "checked" in out
    assert "shard 4: " in out
    assert "reading: 3 of 3 shards" in err
    assert "checking: 5 of 5 shards" in err
    assert sorted(e for s in states.opened().contents() for e in s["headed"]) == sorted(
        e for s in states.contents() for e in s["headed"]
    )


def test_pointers_can_come_on_stdin(states: States, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO((states.home / "pointers").read_text() + "\n"))
    assert main([*command(states)[:-1], "-"]) == 0
    assert states.opened().metadata.shards == 5


def test_a_dry_run_writes_nothing(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(states, "--dry-run")) == 0
    assert "dry run, nothing was written" in capsys.readouterr().out
    assert not (states.home / "new").exists()


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (lambda lines: lines[:2], "no commit pointer of shard 2 is given, but there is the delta"),
        (lambda lines: [*lines, lines[0]], "there are two pointers of shard 0"),
        (lambda lines: [], "none of the commit pointers given is of state state-old"),
        (lambda lines: ["nonsense"], "is not one of ours"),
        (
            lambda lines: [json.dumps({**json.loads(line), "state_id": "another"}) for line in lines],
            "none of the commit",
        ),
        (lambda lines: [json.dumps({**json.loads(lines[0]), "shard": 9})], "shard 9, but there are only 3"),
    ],
)
def test_pointers_that_are_not_those_of_the_state_are_refused(
    states: States, capsys: pytest.CaptureFixture[str], lines: object, problem: str
) -> None:
    file = states.home / "pointers"
    file.write_text("\n".join(lines(sorted(file.read_text().splitlines(), key=lambda line: json.loads(line)["shard"]))))
    # A line that is none is damage, everything else is to be given in another way.
    assert main(command(states)) == (5 if "one of ours" in problem else 2)
    assert problem in capsys.readouterr().err
    assert read_metadata(DurableLocation(states.home / "new")) is None


def test_what_is_not_there_is_said(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    (states.home / "old" / METADATA_NAME).unlink()
    assert main(command(states)) == 4
    assert METADATA_NAME in capsys.readouterr().err
    (states.home / "pointers").unlink()
    agree_on_metadata(states.location, states.metadata)
    assert main(command(states)) == 2
    assert "the commit pointers can't be read" in capsys.readouterr().err


@pytest.mark.parametrize("wrong", [[], ["--shards", "0", "--pointers", "p"], ["--shards", "x", "--pointers", "p"]])
def test_wrong_usage(wrong: list[str]) -> None:
    assert main(["rescale", "a", "b", *wrong]) == 2


def test_one_shard_needs_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = States(tmp_path, every_kind(), 1)
    made.put_everywhere(dict.fromkeys(KEYS, 50))
    (tmp_path / "pointers").write_text(made.pointer(0).to_json())
    assert main(command(made, shards="2")) == 1
    assert "--trust-keys" in capsys.readouterr().err
    assert main(command(made, "--trust-keys", shards="2")) == 0


def test_what_a_tool_has_made_needs_no_pointers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, made, rescaled = load_fixture("headers-kv").unpack(tmp_path), tmp_path / "made", tmp_path / "rescaled"
    assert main(["migrate", str(task), str(made), "--layout", "location", "--kind", "headers-kv"]) == 0
    capsys.readouterr()
    assert main(["gc", str(made), "--json"]) == 0
    assert document_in(capsys.readouterr().out) == {"path": str(made), "removed": False, "sizeBytes": 0, "files": []}
    assert main(["rescale", str(made), str(rescaled), "--shards", "2", "--trust-keys", "--json"]) == 0
    document = document_in(capsys.readouterr().out)
    (store,) = document["stores"]
    assert (document["source"], document["target"]) == (str(made), str(rescaled))
    assert (document["fromShards"], document["shards"], len(store["entries"])) == (1, 2, 2)
    assert sum(store["entries"]) == document["entries"] > 0
    assert main(["verify", str(task), str(rescaled), "--kind", "headers-kv"]) == 0


def test_what_is_committed_must_be_said_of_a_query_s_state(states: States, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(states)[:-2]) == 2
    assert "Name it with --checkpoint" in capsys.readouterr().err
    assert main(command(states)) == 0
    made = states.opened()
    old, new, pointers = str(states.location), str(made.location), f"{states.home}/pointers"
    assert main(["verify", old, new, "--pointers", pointers]) == 0
    with StateView(new) as view:
        assert (
            view.store("plain", key_serde=Serdes.string(), value_serde=Serdes.string()).get(KEYS[0]) == f"{KEYS[0]}@50"
        )
    made.put_everywhere({KEYS[0]: 60})
    assert main(["verify", old, new, "--pointers", pointers]) == 2
    with pytest.raises(StatePointersError):
        StateView(new)
