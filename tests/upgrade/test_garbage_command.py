"""The command `gc` on a state with snapshots."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery.shards import Shard, stored, wait_for_uploads
from tests.support.tools.runs import document_in
from upgrade_tools.cli.app import main


@pytest.fixture
def pointer(shard: Shard) -> CommitPointer:
    """Make a state at version 23, with an attempt that did not count, and write its pointer to a file.

    The last version is that of a run that retains only 5 versions. It has removed what version 22 does not need, that
    is up to version 9; version 23 needs nothing up to 12.
    """
    pointer = shard.start()
    for number in range(23):
        if number == 22:
            wait_for_uploads()
            options = RecoveryOptions(snapshot_every_deltas=1000, retained_versions=5)
            shard.state = replace(shard.state, run="run2", recovery=options)
        pointer = shard.batch(pointer, {b"k": stored(b"%d" % number), b"%d" % number: stored(b"v")})
        if number == 9:
            failed = shard.batch(pointer, {b"k": stored(b"failed")})
            (shard.home / "failed").write_text(failed.head)
    wait_for_uploads()
    (shard.home / "pointers").write_text(pointer.to_json() + "\n")
    return pointer


def test_garbage_is_listed_with_reasons_and_removed_only_if_asked_to(
    shard: Shard, pointer: CommitPointer, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["gc", str(shard.home / "state"), "--pointers", str(shard.home / "pointers")]
    before = shard.files()
    assert main([*arguments, "--retained-versions", "5"]) == 0
    out = capsys.readouterr().out
    assert shard.files() == before, "a list changes nothing"
    assert (shard.home / "failed").read_text() in out
    assert "no retained version needs deltas up to" in out
    assert "nothing was, give --remove" in out
    assert main([*arguments, "--retained-versions", "5", "--remove", "--json"]) == 0
    document = document_in(capsys.readouterr().out)
    assert document["removed"]
    assert {file["name"] for file in document["files"]} == before - shard.files()
    assert document["sizeBytes"] == sum(file["sizeBytes"] for file in document["files"])
    assert (shard.home / "failed").read_text() not in shard.files()
    assert len(shard.files()) < len(before)
    assert main([*arguments, "--retained-versions", "5"]) == 0
    assert "0 files, 0.0 MB" in capsys.readouterr().out
    assert main(["verify", *arguments[1:]]) == 0
    assert shard.content(pointer)[b"k"] == stored(b"22")


def test_pointers_of_another_state_are_refused(
    shard: Shard, pointer: CommitPointer, capsys: pytest.CaptureFixture[str]
) -> None:
    (shard.home / "pointers").write_text(pointer.to_json().replace("state-1", "state-9"))
    assert main(["gc", str(shard.home / "state"), "--pointers", str(shard.home / "pointers"), "--remove"]) == 1
    assert "state-9" in capsys.readouterr().err
    assert main(["gc", str(shard.home / "state"), "--pointers", str(shard.home / "nothing")]) == 2
    assert "can't be read" in capsys.readouterr().err


def collect(shard: Shard, pointer: CommitPointer, *options: str) -> int:
    (shard.home / "pointers").write_text(pointer.to_json() + "\n")
    return main(["gc", str(shard.home / "state"), "--pointers", str(shard.home / "pointers"), "--remove", *options])


def later_run(shard: Shard, name: str = "run3") -> None:
    shard.state = replace(shard.state, run=name, accept_older_checkpoint=True)


def test_what_the_query_retains_stays_however_little_is_asked_for(
    shard: Shard, pointer: CommitPointer, capsys: pytest.CaptureFixture[str]
) -> None:
    before = shard.files()
    later_run(shard)
    shard.state = replace(shard.state, recovery=RecoveryOptions(retained_versions=1000))
    restarted = shard.batch(pointer, {b"k": stored(b"on")})
    assert collect(shard, restarted, "--retained-versions", "1") == 0
    assert "0 files, 0.0 MB removed" in capsys.readouterr().out
    assert before < shard.files()
    assert collect(shard, pointer, "--retained-versions", "1") == 0
    assert "0 files, 0.0 MB removed" in capsys.readouterr().out, "what a later run retains counts too"


def test_pointers_that_a_later_run_has_given_up_are_refused(
    shard: Shard, pointer: CommitPointer, capsys: pytest.CaptureFixture[str]
) -> None:
    older = CommitPointer("state-1", 0)
    later_run(shard)
    back = shard.batch(older, {b"k": stored(b"back")})
    before = shard.files()
    assert collect(shard, pointer, "--retained-versions", "1") == 1
    assert "at version 23, is outdated: run run3" in capsys.readouterr().err
    assert shard.files() == before
    assert collect(shard, back) == 0
    assert shard.content(back) == {b"k": stored(b"back")}
    later_run(shard, "run4")
    on = shard.batch(back, {b"k": stored(b"on")})
    assert collect(shard, pointer) == 1, "nor by the fence after that"
    assert "run3" in capsys.readouterr().err
    assert collect(shard, on) == 0


def test_pointers_are_refused_if_it_is_not_known_where_a_later_run_went_on_from(
    shard: Shard, pointer: CommitPointer, capsys: pytest.CaptureFixture[str]
) -> None:
    deltas = shard.home / "state/shards/0000/deltas"
    fence = {"format": 1, "run": "x", "version": pointer.version, "host": "h", "time_ms": 5}
    (deltas / "00000003-x.fence").write_bytes(b"cut")
    assert collect(shard, pointer, "--retained-versions", "1") == 1
    assert "run x (its fence can't be read)" in capsys.readouterr().err
    (deltas / "00000003-x.fence").rename(deltas / "00000004-x.fence")
    (deltas / "00000004-x.fence").write_text(json.dumps(fence))
    assert collect(shard, pointer, "--retained-versions", "1") == 1
    assert "the fences of some later runs are gone" in capsys.readouterr().err
    (deltas / "00000003-y.fence").write_text(json.dumps(fence))
    assert collect(shard, pointer, "--retained-versions", "1") == 0
    assert shard.content(pointer)[b"k"] == stored(b"22")


def test_pointers_of_before_a_run_that_went_on_are_refused_and_those_of_the_run_itself_are_not(
    shard: Shard, pointer: CommitPointer, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = pointer
    for _ in range(3):
        newer = shard.batch(newer, {b"k": stored(b"while the query runs")})
    assert collect(shard, pointer) == 0
    assert shard.content(newer)[b"k"] == stored(b"while the query runs")
    later_run(shard)
    on = shard.batch(newer, {b"k": stored(b"on")})
    assert collect(shard, newer) == 0, "the batch may be one that is not committed yet"
    on = shard.batch(on, {b"k": stored(b"on and on")})
    assert collect(shard, newer) == 1
    assert "a later run has committed version 27" in capsys.readouterr().err
    assert collect(shard, on) == 0


def test_where_there_is_no_state_there_is_no_garbage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "pointers").write_text("")
    assert main(["gc", str(tmp_path / "nowhere"), "--pointers", str(tmp_path / "pointers")]) == 4
    assert "no state that the tools can read" in capsys.readouterr().err
