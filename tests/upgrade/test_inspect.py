"""The offline commands, on a state that was really written."""

from pathlib import Path

import pytest

from shards import TOTALS, Shard, stored
from statestore.format.header_bytes import encode_headers
from statestore.recovery.metadata import StateMetadata, settle_metadata
from upgrade_tools.cli import main


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    made = Shard(tmp_path)
    settle_metadata(made.state.location, StateMetadata("state-1", 1, "key", (0,), (TOTALS,), ()))
    return made


def test_a_delta_is_shown_with_its_records(shard: Shard, capsys: pytest.CaptureFixture[str]) -> None:
    headers = encode_headers([("trace", b"abc"), ("trace", None)])
    pointer = shard.batch(shard.start(), {b"k": stored(b"\x00\x01", 7, headers), b"gone": None})
    assert main(["inspect-delta", str(shard.delta_file(pointer))]) == 0
    out = capsys.readouterr().out
    assert "state state-1, shard 0, makes version 1, 2 records" in out
    assert "totals  k -> 0x0001  timestamp 7  trace=abc  trace=null" in out
    assert "totals  gone -> tombstone" in out
    assert main(["inspect-delta", "--limit", "1", str(shard.delta_file(pointer))]) == 0
    assert "1 more" in capsys.readouterr().out


def test_a_sound_location_verifies(shard: Shard, capsys: pytest.CaptureFixture[str]) -> None:
    first = shard.batch(shard.start(), {b"k": stored(b"1")})
    shard.batch(first, {b"k": stored(b"2")})
    assert main(["verify", str(shard.home / "state")]) == 0
    out = capsys.readouterr().out
    assert "totals (key-value store, timestamped with headers)" in out
    assert "shard 0: 2 deltas, versions 1 to 2, 0 snapshots" in out
    assert "all files can be read" in out


@pytest.mark.parametrize("damage", ["cut", "nonsense", "foreign", "missing"])
def test_damage_is_named_and_fails(shard: Shard, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    first = shard.batch(shard.start(), {b"k": stored(b"1")})
    shard.batch(first, {b"k": stored(b"2")})
    file = shard.delta_file(first)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-10])
    elif damage == "nonsense":
        file.write_bytes(b"nonsense")
    elif damage == "missing":
        file.unlink()
    else:
        other = Shard(shard.home / "other")
        object.__setattr__(other.state, "state_id", "another")
        file.write_bytes(other.delta_file(other.batch(other.start(), {b"x": stored(b"1")})).read_bytes())
    assert main(["verify", str(shard.home / "state")]) == 1
    out = capsys.readouterr().out
    assert "DAMAGED" in out
    assert "no delta makes version 1" in out if damage == "missing" else file.name in out


def test_what_is_not_there_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(tmp_path / "nowhere")]) == 1
    assert main(["inspect-delta", str(tmp_path / "nothing.arrow")]) == 1
    errors = capsys.readouterr().err
    assert "statestore.json" in errors
    assert "nothing.arrow" in errors
    with pytest.raises(SystemExit) as wrong_usage:
        main(["no-such-command"])
    assert wrong_usage.value.code == 2
