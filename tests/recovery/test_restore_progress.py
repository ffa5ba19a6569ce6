"""What a listener is told of a restore, and what the restore came to."""

from __future__ import annotations

import logging

import pytest

from statestore.recovery.commit.figures import RestoreFigures
from statestore.recovery.restore.restore import RestoreProgress
from tests.support.recovery.restore_calls import RestoreCalls


def test_a_listener_is_told_of_each_store_from_start_to_end() -> None:
    told = RestoreCalls()
    progress = RestoreProgress(3, ["a", "b"], 2, 5, told)
    progress.count_restored("a", 4, 10)
    progress.count_restored("a", 5, 1)
    progress.count_restored("b", 5, 0)
    progress.end()
    assert told.calls == [
        ("start", 3, "a", 2, 5),
        ("start", 3, "b", 2, 5),
        ("batch", 3, "a", 4, 10),
        ("batch", 3, "a", 5, 1),
        ("batch", 3, "b", 5, 0),
        ("end", 3, "a", 11),
        ("end", 3, "b", 0),
    ]


def test_figures_are_there_at_the_end_with_bytes_of_snapshots_and_deltas() -> None:
    progress = RestoreProgress(0, ["a", "b"], 0, 1)
    progress.count_restored("a", 1, 10)
    progress.count_restored("b", 1, 5)
    progress.count_fetched(600, 1_000)
    progress.count_fetched(400, 1_000)
    progress.count_read(70)
    assert progress.figures == RestoreFigures()
    progress.end()
    assert progress.figures[:3] == (1, 15, 1_070)
    assert progress.figures.elapsed_ms >= 0


def test_the_log_is_told_every_few_seconds(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    now_s = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now_s)
    caplog.set_level(logging.INFO, "statestore")
    progress = RestoreProgress(7, ["a"], 0, 9)
    progress.count_restored("a", 1, 1)
    progress.count_fetched(10_000_000, 40_000_000)
    assert caplog.messages == []
    now_s += 5
    progress.count_fetched(10_000_000, 40_000_000)
    progress.count_restored("a", 2, 1)
    assert caplog.messages == ["shard 7: fetched 20 of 40 MB of its snapshot (50 %, 4 MB/s)"]
    now_s += 5
    progress.count_restored("a", 3, 1)
    assert caplog.messages[1:] == ["shard 7: restored up to version 3 of 9"]
