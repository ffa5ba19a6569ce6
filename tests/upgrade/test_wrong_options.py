"""Values of options and arguments that can't be meant: each command ends with 2 at once, and nothing was written."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.golden.kafka_streams import load_fixture
from tests.support.tools.runs import Tools
from upgrade_tools.cli.checking import diff, verify

TOO_LARGE = str(2**63)
RESTORE = ("changelog", "restore", "b", "new", "--application-id", "a", "--store")
TO_STATE = ("changelog", "to-state", "b", "new", "--application-id", "a", "--store")


@pytest.fixture
def tools(tools: Tools, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tools:
    monkeypatch.chdir(tmp_path)
    return tools


def refused(tools: Tools, arguments: Sequence[str], said: str, home: Path) -> bool:
    """Whether a command is wrong usage, says why, and has left nothing in the empty directory that it was called in."""
    ended = tools(*arguments)
    words = " ".join(ended.err.replace("│", " ").split())
    return (ended.code, said in words, list(home.iterdir())) == (2, True, [])


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", ""],
        ["scan", ""],
        ["get", "", "key"],
        ["verify", ""],
        ["verify", "there", ""],
        ["diff", "there", ""],
        ["inspect-delta", ""],
        ["migrate", "", "--to", "headers"],
        ["migrate", "there/0_0", "", "--to", "headers"],
        ["downgrade", "there", "", "--to", "plain"],
        ["finish-upgrade", ""],
        ["export", "there", "", "--format", "jsonl"],
        ["import", __file__, "", "--format", "jsonl"],
        ["rollback", "", "new", "--pointers", "p"],
        ["rollback", "there", "", "--pointers", "p"],
        ["gc", ""],
        ["rescale", "", "new", "--shards", "2"],
        ["rescale", "there", "", "--shards", "2"],
        ["changelog", "restore", "nobody:9", "", "--application-id", "a", "--store", "s:kv"],
        ["changelog", "to-state", "nobody:9", "", "--application-id", "a", "--store", "s:kv"],
        ["changelog", "emit", "", "nobody:9", "--application-id", "a"],
        ["scan", "there", "--checkpoint", ""],
        ["scan", "there", "--work-dir", ""],
        ["diff", "there", "there", "--other-checkpoint", ""],
    ],
)
def test_an_empty_path_is_refused(arguments: list[str], tmp_path: Path, tools: Tools) -> None:
    assert refused(tools, arguments, "it is empty", tmp_path)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["scan", "there", "--application-id", "a/b"], "illegal name 'a/b'"),
        (["migrate", "there", "new", "--application-id", ""], "illegal name ''"),
        (["scan", "there", "--window-size-ms", TOO_LARGE], "--window-size-ms"),
        (["export", "there", "new", "--retention-ms", TOO_LARGE], "--retention-ms"),
        (["diff", "there", "there", "--segment-interval-ms", TOO_LARGE], "--segment-interval-ms"),
        (["migrate", "there", "new", "--timestamp-ms", TOO_LARGE], "--timestamp-ms"),
        (["migrate", "there", "new", "--store", f"s:window:window-size-ms={TOO_LARGE}"], "window-size-ms must be"),
        (["migrate", "there", "new", "--store", f"s:window:retention-ms={TOO_LARGE}"], "retention-ms must be"),
        (["migrate", "there", "new", "--store", "s:window:segment-interval-ms=0"], "1 or more, got 0"),
        (["migrate", "there", "new", "--store", "s:window:retention-ms=1,retention-ms=2"], "once"),
        (["migrate", "there", "new", "--store", f"s:window:retention-ms={'9' * 5000}"], "retention-ms must be"),
        ([*RESTORE, f"s:session:retention-ms={'9' * 5000}"], "retention-ms must be"),
        ([*RESTORE, "s:session:segment-interval-ms=0,retention-ms=1"], "1 or more, got 0"),
        ([*TO_STATE, "s:headers-kv", "--expiry-header", "other"], "there is no store 'other'"),
        (
            [*TO_STATE, "s:window:window-size-ms=1,retention-ms=1", "--expiry-header", "s"],
            "nothing of store 's' expires",
        ),
        (["scan", "there", "--live-at", "-1"], "--live-at"),
        (["inspect", "there", "--sample", TOO_LARGE], "--sample"),
        (["scan", "there", "--limit", TOO_LARGE], "--limit"),
        (["diff", "there", "there", "--limit", TOO_LARGE], "--limit"),
        (["inspect-delta", "there", "--limit", TOO_LARGE], "--limit"),
    ],
)
def test_a_value_out_of_range_is_refused(arguments: list[str], said: str, tmp_path: Path, tools: Tools) -> None:
    assert refused(tools, arguments, said, tmp_path)


def test_diff_takes_what_verify_takes(tmp_path: Path, tools: Tools) -> None:
    assert set(inspect.signature(verify).parameters) <= set(inspect.signature(diff).parameters)
    task = load_fixture("versioned").unpack(tmp_path)
    assert tools("diff", task, task, "--kind", "versioned", "--segment-interval-ms", "60000").code == 0
