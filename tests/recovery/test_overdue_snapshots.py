"""Snapshots that fail for ever: it is told loudly, and then the query stops, until one is made."""

from __future__ import annotations

import dataclasses
import logging
from pathlib import Path

import pytest

from statestore.errors.state import SnapshotOverdueError
from statestore.recovery.commit.figures import CommitFigures
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.recovery.test_snapshots import NoRoomForSnapshots, content_after
from tests.support.recovery.shards import Shard, stored, wait_for_uploads

LIMITED = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=0, warn_after_deltas=6, stop_after_deltas=10)


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """Return a shard for whose snapshots there is no room while there is a file `full`."""
    made = Shard(tmp_path, recovery=LIMITED)
    made.state = dataclasses.replace(made.state, location=NoRoomForSnapshots(tmp_path / "state"))
    (tmp_path / "full").touch()
    return made


def run(shard: Shard, pointer: CommitPointer, number: int) -> tuple[CommitPointer, CommitFigures]:
    value = stored(b"%d" % number, number)
    with shard.open(pointer) as batch:
        batch.stores["totals"].write([(b"last", value), (b"key-%04d" % number, value)])
        return batch.commit_batch()


def run_to(shard: Shard, pointer: CommitPointer, last: int) -> CommitPointer:
    for number in range(pointer.version + 1, last + 1):
        pointer, _ = run(shard, pointer, number)
        wait_for_uploads()
    return pointer


def test_that_it_is_overdue_is_told_and_counted(shard: Shard, caplog: pytest.LogCaptureFixture) -> None:
    pointer, overdue = shard.start(), []
    for number in range(1, 11):
        pointer, figures = run(shard, pointer, number)
        wait_for_uploads()
        overdue.append(figures.snapshot.overdue)
    assert overdue == [0] * 5 + [1] * 5
    told = [record.getMessage() for record in caplog.records if "without a snapshot" in record.getMessage()]
    assert [message.partition(" of ")[0] for message in told] == ["shard 0: 6 deltas", "shard 0: 9 deltas"]
    assert "no room for snapshots" in told[0]
    assert "the query stops after 10" in told[0]


def test_a_query_without_snapshots_stops_until_one_can_be_made(shard: Shard, caplog: pytest.LogCaptureFixture) -> None:
    pointer = run_to(shard, shard.start(), 10)
    for _ in range(2):
        with pytest.raises(SnapshotOverdueError, match="no room for snapshots") as stopped:
            run(shard, pointer, 11)
    error = stopped.value
    assert (error.shard, error.deltas, error.limit) == (0, 11, 10)
    assert error.size_bytes > 11 * 1_000
    assert error.since.startswith("version 1, written 2")
    assert "stop_after_deltas" in str(error)
    (shard.home / "full").unlink()
    caplog.clear()
    pointer, figures = run(shard, pointer, 11)
    assert "Waiting for the one that is under way" in caplog.text, "a slow upload slows batches down, and no more"
    assert [made.version for made in pointer.snapshots] == [3], "the one that was waiting all the time"
    assert (figures.snapshot.finished, figures.snapshot.overdue) == (1, 1), "8 deltas since"
    assert shard.content(pointer) == content_after(11)
    pointer = run_to(shard, pointer, 15)
    assert len(pointer.deltas_since_snapshot) <= 6


def test_without_a_limit_it_goes_on(shard: Shard, caplog: pytest.LogCaptureFixture) -> None:
    unlimited = dataclasses.replace(LIMITED, warn_after_deltas=0, stop_after_deltas=0)
    shard.state = dataclasses.replace(shard.state, recovery=unlimited)
    with caplog.at_level(logging.WARNING):
        pointer = run_to(shard, shard.start(), 13)
    assert len(pointer.deltas) == 13
    assert "without a snapshot" not in caplog.text


def test_what_is_not_given_follows_from_when_snapshots_are_due() -> None:
    options = RecoveryOptions(snapshot_every_deltas=7)
    assert options.most_deltas == 700
    assert [options.is_overdue(deltas) for deltas in (27, 28, 1_000)] == [False, True, True]
    assert RecoveryOptions(stop_after_deltas=0).most_deltas is None
    assert not RecoveryOptions(warn_after_deltas=0).is_overdue(10**9)
