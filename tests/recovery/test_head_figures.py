"""What heads tell people of batches and shards, and the format of heads with all that they have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from statestore.errors import RecoveryError
from statestore.recovery.commit.figures import SizeFigures
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.heads.figures import MAX_RECENT, HeadFigures, LastCall, RecentBatch
from statestore.recovery.heads.head import Head, newest_head, write_head
from statestore.recovery.location.durable_json import from_durable_json, to_durable_json
from statestore.recovery.location.durable_location import DurableLocation
from tests.support.recovery.head_runs import STATE, Run

GOLDEN = Path(__file__).parents[1] / "golden" / "head-1"


@pytest.fixture
def location(tmp_path: Path) -> DurableLocation:
    return DurableLocation(tmp_path)


def figures_of(batch: int, *shards: int) -> HeadFigures:
    """Return the figures of a batch that has called these shards."""
    recent = RecentBatch(batch, 1_000 + batch, 200, 10 * len(shards), 99, {"open_ms": 1, "process_ms": 2})
    return HeadFigures(
        (recent,), {shard: LastCall(batch, 3, {"counts": SizeFigures(7 + batch, 8, 9)}) for shard in shards}
    )


def batches(head: Head | None) -> list[int]:
    assert head is not None
    return [each.batch for each in head.figures.recent]


def test_a_head_has_the_latest_batches_and_each_shards_last_call(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    run.publish(0, 1, figures=figures_of(0, 0, 1))
    run.publish(1, figures=figures_of(1, 1))
    head = newest_head(location, STATE)
    assert head is not None
    assert head.figures.recent == (*figures_of(0, 0, 1).recent, *figures_of(1, 1).recent)
    assert {shard: call.batch for shard, call in head.figures.calls.items()} == {0: 0, 1: 1}
    assert head.figures.calls[1].sizes == {"counts": SizeFigures(8, 8, 9)}


def test_no_more_batches_are_kept_than_are_looked_at(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    for batch in range(MAX_RECENT + 5):
        run.publish(0, figures=figures_of(batch, 0))
    assert batches(newest_head(location, STATE)) == list(range(5, MAX_RECENT + 5))


def test_a_batch_without_figures_has_a_head(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    run.publish(0, figures=figures_of(0, 0))
    assert batches(run.publish(0)) == [0]
    assert run.is_newest


@pytest.mark.parametrize("is_renewed", [False, True])
def test_a_run_goes_on_with_what_the_querys_head_has(location: DurableLocation, is_renewed: bool) -> None:
    first = Run(location, "a", 1)
    first.publish(0, 1, figures=figures_of(0, 0, 1))
    second = first if is_renewed else Run(location, "b", 2, first)
    second.renew()
    head = second.publish(0, figures=figures_of(1, 0))
    assert batches(head) == [0, 1]
    assert head is not None
    assert head.figures.calls[1].batch == 0


def test_batches_that_were_given_up_are_left_out(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    run.publish(0, 1, figures=figures_of(0, 0, 1))
    older = Run(location, "b", 2, run)
    run.publish(0, 1, figures=figures_of(1, 0, 1))
    run.publish(1, figures=figures_of(2, 1))
    head = older.publish(0, 1, figures=figures_of(1, 0))
    assert batches(head) == [0, 1]
    assert head is not None
    assert {shard: call.batch for shard, call in head.figures.calls.items()} == {0: 1}


def test_another_querys_batches_are_left_out(location: DurableLocation) -> None:
    first = Run(location, "a", 1)
    first.publish(0, 1, figures=figures_of(0, 0, 1))
    other = Run(location, "b", 2, first, query="other")
    assert batches(other.publish(0, 1, figures=figures_of(1, 0, 1))) == [1]


@pytest.mark.parametrize(
    "fields",
    [
        {"recent": [{"batch": 0}]},
        {"recent": [{**figures_of(0).to_fields()["recent"][0], "records": -1}]},
        {"recent": [{**figures_of(0).to_fields()["recent"][0], "times": {"open_ms": 0.5}}]},
        {"calls": {"0": {"batch": 0, "duration_ms": 1, "sizes": {"counts": [1, 2, 3, 4]}}}},
        {"calls": {"-1": {"batch": 0, "duration_ms": 1, "sizes": {}}}},
        {"calls": []},
    ],
)
def test_wrong_figures_are_refused(fields: dict[str, Any]) -> None:
    found = from_durable_json(Head(STATE, "query", "a", 0, 0, ()).to_json())
    with pytest.raises(RecoveryError, match="is not a readable head"):
        Head.from_json(to_durable_json({**found, **fields}).encode(), "where")


def golden_heads() -> list[tuple[int, Head]]:
    """Return the heads of the golden location with their orders; `write_head` has made its files."""
    state_id = "1f0c3b5a7d9e4f60817263544536271a"
    names = (
        "000000000001-00000001-6b86b273ff34fce19d6b804eff5a3f57",
        "000000000002-00000001-6b86b273ff34fce1d4735e3a265e16ee",
        "000000000003-00000002-4e07408562bedb8b60ce05c1decfe3ad",
    )
    deltas = tuple(
        DurableFile(f"shards/0000/deltas/{name}.arrow", 1_000 + number, f"0123456789abcdef0123456789abcde{number}")
        for number, name in enumerate(names, 1)
    )
    first = CommitPointer(
        state_id,
        0,
        version=3,
        deltas=deltas,
        skipped_records=1,
        stream_time_ms=1_699_999_999_000,
        store_times_ms={"sessions": 1_699_999_998_000},
    )
    pointers = first, CommitPointer(state_id, 1)
    recent = (
        RecentBatch(40, 1_699_999_997_000, 310, 20, 2_003, {"open_ms": 12, "process_ms": 5, "commit_ms": 7}),
        RecentBatch(41, 1_700_000_000_000, 290, 10, 1_003, {"open_ms": 2, "process_ms": 4, "commit_ms": 6}),
    )
    calls = {
        0: LastCall(41, 12, {"sessions": SizeFigures(100, 2_048, 512), "totals": SizeFigures(7, 640, 0)}),
        1: LastCall(40, 3, {}),
    }
    query, lower, higher = (
        "2f0c3b5a-7d9e-4f60-8172-635445362710",
        "4f0c3b5a-7d9e-4f60-8172-635445362712",
        "3f0c3b5a-7d9e-4f60-8172-635445362711",
    )
    return [
        (1, Head(state_id, query, lower, 57, 1_699_999_990_000, pointers)),
        (2, Head(state_id, query, higher, 41, 1_700_000_000_000, pointers, (0,), HeadFigures(recent, calls))),
    ]


def test_golden(tmp_path: Path) -> None:
    made = DurableLocation(tmp_path)
    for order, head in golden_heads():
        file = write_head(made, order, head).file
        assert (tmp_path / file).read_bytes() == (GOLDEN / file).read_bytes()
    newest = golden_heads()[-1][1]
    assert newest_head(DurableLocation(GOLDEN), newest.state_id) == newest
