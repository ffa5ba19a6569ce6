"""The soak: plan after plan, what it prints, what it leaves, and its exit code."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import pytest

from statestore.testing.faults.runner import Contents, MakeQuery
from statestore.testing.soak import main, soak
from tests.support.soak.fold_query import FoldQuery


class LosesSeedThree(FoldQuery):
    """Loses a key of its results, under one seed."""

    def found(self) -> Contents:
        found = super().found()
        return found if self.environment.plan.seed != 3 else {"totals": {**found["totals"], b"batch": b"wrong"}}


def honest_queries() -> AbstractContextManager[MakeQuery]:
    return nullcontext(FoldQuery)


def losing_queries() -> AbstractContextManager[MakeQuery]:
    return nullcontext(LosesSeedThree)


def test_a_plan_that_fails_is_printed_with_its_seed_and_left_to_look_at(tmp_path: Path) -> None:
    printed, report = io.StringIO(), io.StringIO()
    summary = soak(LosesSeedThree, runs=4, seed=1, directory=tmp_path, report=report, out=printed)
    text = printed.getvalue()
    assert "FAILED: seed 3\n" in text
    assert "again: make soak RUNS=1 SEED=3" in text
    assert '"seed": 3' in text
    assert "totals b'batch': expected" in text
    assert [path.name for path in tmp_path.iterdir()] == ["seed-3"]
    lines = [json.loads(line) for line in report.getvalue().splitlines()]
    assert [(line["seed"], line["problem"] is None) for line in lines] == [(1, True), (2, True), (3, False), (4, True)]
    assert "4 of 4 plans, 1 failed" in text
    assert "4 plans, 4 distinct" in summary.text()
    assert "seeds that failed: 3" in summary.text()


@pytest.mark.parametrize(("queries", "code"), [("honest_queries", 0), ("losing_queries", 1)])
def test_the_exit_code_says_whether_one_failed(queries: str, code: int, tmp_path: Path) -> None:
    # Found by the name of this file: that is how a user names a query of their own.
    search = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-m", "statestore.testing.soak", "--query", f"{Path(__file__).stem}:{queries}"]
    done = subprocess.run(
        [*command, "--runs", "2", "--seed", "3", "--directory", str(tmp_path), "--report", str(tmp_path / "report")],
        env={**os.environ, "PYTHONPATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "2 plans, 2 distinct" in done.stdout
    assert ("FAILED: seed 3" in done.stdout) == bool(code)
    assert len((tmp_path / "report").read_text().splitlines()) == 2


def test_a_query_that_can_not_be_found_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        main(["--query", "no_such_module:queries", "--directory", str(tmp_path)])
