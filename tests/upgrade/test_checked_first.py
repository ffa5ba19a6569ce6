"""What can be known of arguments is said before Spark is started for a checkpoint, and before anything is read."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from statestore import DurableLocation
from statestore.recovery.metadata.state_metadata import METADATA_NAME, metadata_of_stores
from tests.support.tools.runs import Tools


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state location, beside a checkpoint; whoever starts another process fails the test."""

    def refuse(*arguments: Any, **options: Any) -> Any:
        raise AssertionError(f"{arguments} was started")

    monkeypatch.setattr(subprocess, "run", refuse)
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    DurableLocation(tmp_path / "state").write(METADATA_NAME, metadata_of_stores((), 1, "key").to_json().encode())
    (tmp_path / "taken.jsonl").write_text("mine")
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["export", "state", "out.csv", "--checkpoint", "checkpoint"], 2, "give --format parquet or jsonl"),
        (["export", "state", "taken.jsonl", "--checkpoint", "checkpoint"], 2, "taken.jsonl"),
        (["export", "state", "nowhere/out.jsonl", "--checkpoint", "checkpoint"], 6, "No such file or directory"),
        (["export", "nowhere", "out.jsonl", "--checkpoint", "checkpoint"], 4, "no statestore.json"),
        (["export", "state", "out.jsonl", "--checkpoint", "nowhere"], 2, "there is nothing at"),
        (["inspect", "state", "--checkpoint", "state"], 2, "there is no checkpoint at"),
        (["scan", "state", "--key", "0xzz", "--checkpoint", "checkpoint"], 2, "is not hex"),
        (["get", "state", "0xzz", "--checkpoint", "checkpoint"], 2, "is not hex"),
        (["rollback", "state", "state", "--checkpoint", "checkpoint", "--batch-id", "1"], 2, "Give an empty one"),
        (["rescale", "state", "state", "--shards", "2", "--checkpoint", "checkpoint"], 2, "Give an empty one"),
        (["import", "taken.jsonl", "state"], 2, "Give an empty one"),
        (["verify", "state", "--checkpoint", "checkpoint", "--work-dir", "nowhere"], 6, "it is not a directory"),
        (["verify", "state", "nowhere", "--checkpoint", "checkpoint"], 4, "nothing"),
        (["diff", "state", "state", "--checkpoint", "checkpoint", "--other-checkpoint", "nowhere"], 2, "nothing at"),
        (["verify", "state", "state", "--checkpoint", "checkpoint", "--other-checkpoint", "state"], 2, "no checkpoint"),
        (["diff", "state", "state", "--checkpoint", "checkpoint", "--other-pointers", "nowhere"], 2, "can't be read"),
    ],
)
def test_it_is_said_before_spark_is_started(
    tools: Tools, state: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(state)
    ended = tools(*arguments)
    assert said in " ".join(ended.err.replace("│", " ").split())
    assert ended.code == code


def test_the_version_is_told(tools: Tools) -> None:
    ended = tools("--version")
    assert (ended.code, version("statestore") in ended.out) == (0, True)
