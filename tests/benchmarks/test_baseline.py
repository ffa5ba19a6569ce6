"""What given ratios come to beside a baseline: verdicts, their table, second measurements, and a file that is none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.baseline import ATTEMPTS, RENEW, Baseline, BaselineError, Comparison, Ratios, Verdict, table

COMMITTED = Path(__file__).parents[2] / "benchmarks" / "baseline.json"
BASELINE = Baseline({"call": 10.0, "scan": 2.0}, "2026-11-22", "3.11.7")


class Measurements:
    """Figures to be found, one set an attempt, and what was asked for."""

    def __init__(self, *found: Ratios) -> None:
        self._found = iter(found)
        self.asked: list[Sequence[str] | None] = []

    def __call__(self, names: Sequence[str] | None) -> Ratios:
        self.asked.append(names)
        return {name: ratio for name, ratio in next(self._found).items() if names is None or name in names}


@pytest.mark.parametrize(
    ("recorded", "found", "verdict", "fails"),
    [
        (10.0, 10.0, Verdict.KEPT, False),
        (10.0, 12.0, Verdict.KEPT, False),
        (10.0, 12.1, Verdict.LOST, True),
        (10.0, 8.5, Verdict.KEPT, False),
        (10.0, 8.0, Verdict.BETTER, False),
        (10.0, None, Verdict.NOT_FOUND, True),
        (None, 10.0, Verdict.NOT_RECORDED, True),
    ],
)
def test_a_ratio_is_kept_or_lost_or_not_there(
    recorded: float | None, found: float | None, verdict: Verdict, fails: bool
) -> None:
    comparison = Comparison("call", recorded, found)
    assert comparison.verdict is verdict
    assert comparison.verdict.is_failure is fails


def test_the_table_says_which_ratio_recorded_found_and_allowed() -> None:
    lines = table(BASELINE.compare({"call": 15.0, "put": 3.0})).splitlines()
    assert [line.split(maxsplit=4) for line in lines] == [
        ["ratio", "recorded", "found", "allowed"],
        ["call", "10", "15", "12", "LOST"],
        ["scan", "2", "-", "2.4", Verdict.NOT_FOUND.value],
        ["put", "-", "3", "-", Verdict.NOT_RECORDED.value],
    ]


def test_what_is_kept_is_measured_once() -> None:
    measure = Measurements({"call": 11.0, "scan": 2.0})
    assert BASELINE.check(measure) == [Comparison("call", 10.0, 11.0), Comparison("scan", 2.0, 2.0)]
    assert measure.asked == [None]


def test_what_seems_lost_is_measured_again_alone() -> None:
    measure = Measurements({"call": 15.0, "scan": 2.0}, {"call": 11.0, "scan": 9.0})
    assert [each.verdict for each in BASELINE.check(measure)] == [Verdict.KEPT, Verdict.KEPT]
    assert measure.asked == [None, ["call"]]


def test_a_loss_is_found_every_time_and_the_least_is_said() -> None:
    measure = Measurements({"call": 15.0, "scan": 2.0}, {"call": 13.0}, {"call": 14.0})
    assert BASELINE.check(measure)[0] == Comparison("call", 10.0, 13.0)
    assert measure.asked == [None, ["call"], ["call"]]
    assert len(measure.asked) == ATTEMPTS == 3


def test_what_is_not_there_is_not_measured_again() -> None:
    measure = Measurements({"scan": 2.0, "put": 3.0})
    assert [each.verdict for each in BASELINE.check(measure)] == [
        Verdict.NOT_FOUND,
        Verdict.KEPT,
        Verdict.NOT_RECORDED,
    ]
    assert measure.asked == [None]


def test_a_baseline_is_read_as_it_was_written_and_says_how_to_renew_it(tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    Baseline({"call": 10.00049, "scan": 0.0421}, "2026-11-22", "3.11.7").write(path)
    assert Baseline.read(path) == Baseline({"call": 10.0, "scan": 0.0421}, "2026-11-22", "3.11.7")
    assert json.loads(path.read_text())["renew"] == RENEW


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (None, "it is missing"),
        ("", "JSONDecodeError"),
        ("[]", "TypeError"),
        ('{"recorded": "2026-11-22", "python": "3.11.7"}', "'ratios'"),
        ('{"ratios": [1], "recorded": "2026-11-22", "python": "3.11.7"}', "AttributeError"),
        ('{"ratios": {"call": "10"}, "recorded": "2026-11-22", "python": "3.11.7"}', "TypeError"),
        ('{"ratios": {"call": 0}, "recorded": "2026-11-22", "python": "3.11.7"}', "not a positive number"),
        ('{"ratios": {"call": NaN}, "recorded": "2026-11-22", "python": "3.11.7"}', "not a positive number"),
        ('{"ratios": {}, "recorded": 20261122, "python": "3.11.7"}', "not text"),
        ('{"ratios": {}, "recorded": "2026-11-22", "python": null}', "not text"),
    ],
)
def test_a_file_that_is_no_baseline_says_what_to_do(tmp_path: Path, text: str | None, reason: str) -> None:
    path = tmp_path / "baseline.json"
    if text is not None:
        path.write_text(text)
    with pytest.raises(BaselineError) as raised:
        Baseline.read(path)
    message = str(raised.value)
    assert reason in message
    assert str(path) in message
    assert RENEW in message


@pytest.mark.slow
def test_the_check_fails_at_once_without_a_baseline(tmp_path: Path) -> None:
    command = [sys.executable, str(COMMITTED.with_name("check.py")), "--baseline", str(tmp_path / "none.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "none.json can't be used: it is missing" in done.stderr
    assert RENEW in done.stderr


def test_the_committed_baseline_can_be_read() -> None:
    assert len(Baseline.read(COMMITTED).ratios) > 10
