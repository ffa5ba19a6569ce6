"""A snapshot on its way: when a pointer can name it, and what a process that goes on with it finds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from statestore.errors import FormatError
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef
from statestore.recovery.location.shard_files import new_delta_name, new_snapshot_name
from statestore.recovery.snapshots.planned import PlannedSnapshot, UploadPlan

DELTAS = tuple(DurableFile(new_delta_name(0, version, 1), version, "00") for version in (2, 3, 4, 5))


def snapshot(version: int, delta: str) -> SnapshotRef:
    return SnapshotRef(
        version, DurableFile(f"{new_snapshot_name(0, version, 1)}/manifest.json", 1, "00"), delta, version
    )


SNAPSHOTS = (snapshot(1, new_delta_name(0, 1, 1)), snapshot(2, DELTAS[0].name))
POINTER = CommitPointer("s", 0, 5, DELTAS, snapshots=SNAPSHOTS)
PLAN = UploadPlan(
    "copy-0",
    "s",
    0,
    4,
    DELTAS[2].name,
    POINTER.snapshots[-1].manifest.name,
    new_snapshot_name(0, 4, 1),
    {"totals": 1},
    {"CURRENT": 4},
)


def test_a_plan_of_an_earlier_version_of_the_same_history_fits() -> None:
    assert PLAN.fits(POINTER)
    assert replace(PLAN, base=None).fits(POINTER)
    assert replace(PLAN, base=POINTER.snapshots[0].manifest.name).fits(POINTER), "the last but one is retained, too"


@pytest.mark.parametrize(
    "plan",
    [
        replace(PLAN, state_id="t"),
        replace(PLAN, shard=1),
        replace(PLAN, version=2, delta=POINTER.snapshots[-1].delta, directory=new_snapshot_name(0, 2, 1)),
        replace(PLAN, version=6, delta=new_delta_name(0, 6, 1), directory=new_snapshot_name(0, 6, 1)),
        replace(PLAN, delta=new_delta_name(0, 4, 1)),  # another attempt made this version
        replace(PLAN, base="shards/0000/snapshots/gone/manifest.json"),
        replace(PLAN, directory=new_snapshot_name(1, 4, 1)),
        replace(PLAN, directory=new_snapshot_name(0, 5, 1)),
        replace(PLAN, directory="shards/0000/snapshots/mine"),
    ],
    ids=["state", "shard", "not newer", "not committed", "delta", "base", "of a shard", "of a version", "name"],
)
def test_a_plan_that_a_pointer_can_not_name_does_not_fit(plan: UploadPlan) -> None:
    assert not plan.fits(POINTER)


def make_checkpoint(directory: str) -> None:
    Path(directory).mkdir()
    (Path(directory) / "CURRENT").write_bytes(b"1234")
    (Path(directory) / "1.sst").write_bytes(b"table")


@pytest.fixture
def planned(tmp_path: Path) -> PlannedSnapshot:
    made = PlannedSnapshot(tmp_path)
    made.begin(POINTER, 7, "copy-0", make_checkpoint, {"totals": 1})
    return made


def test_what_was_begun_is_found_by_another_process(planned: PlannedSnapshot, tmp_path: Path) -> None:
    plan = PlannedSnapshot(tmp_path).plan()
    assert plan is not None
    assert (plan.version, plan.delta, plan.base) == (5, DELTAS[-1].name, POINTER.snapshots[-1].manifest.name)
    assert plan.files == {"1.sst": 5, "CURRENT": 4}
    assert plan.fits(POINTER)
    planned.check_complete(plan)
    assert planned.result() is None
    planned.clear()
    assert (planned.is_there, planned.plan(), list(tmp_path.glob("snapshot*"))) == (False, None, [])


def test_a_checkpoint_that_lacks_something_is_not_complete(planned: PlannedSnapshot) -> None:
    plan = planned.plan()
    assert plan is not None
    (planned.checkpoint / "1.sst").write_bytes(b"tabl")
    with pytest.raises(FormatError, match="checkpoint"):
        planned.check_complete(plan)


def test_a_damaged_file_is_no_plan_and_no_result(planned: PlannedSnapshot, tmp_path: Path) -> None:
    planned.finish(DurableFile("m", 1, "00"))
    assert planned.result() == DurableFile("m", 1, "00")
    for file, read in (("plan.json", planned.plan), ("result.json", planned.result)):
        path = tmp_path / "snapshot" / file
        path.write_bytes(path.read_bytes().replace(b"0", b"1"))
        with pytest.raises(FormatError):
            read()


def test_an_upload_goes_on_behind_the_last_whole_line(planned: PlannedSnapshot, tmp_path: Path) -> None:
    files = [DurableFile("a", 1, "00"), DurableFile("b", 2, "11")]
    assert list(planned.uploads()) == []
    for file in files:
        planned.note_upload(file)
    progress = tmp_path / "snapshot" / "uploaded.jsonl"
    assert list(planned.uploads()) == files
    progress.write_bytes(progress.read_bytes()[:-5])
    assert list(planned.uploads()) == files[:1]


def test_checksums_are_known_as_long_as_a_table_is_the_same(planned: PlannedSnapshot, tmp_path: Path) -> None:
    plan = planned.plan()
    assert plan is not None
    honest = planned.table_digests(plan)
    assert list(honest) == ["1.sst"]
    planned.save_digests({"1.sst": "kept"})
    assert planned.table_digests(plan) == {"1.sst": "kept"}
    (planned.checkpoint / "1.sst").write_bytes(b"other table")
    assert planned.table_digests(plan) not in ({"1.sst": "kept"}, honest)
    (tmp_path / "digests.json").write_bytes(b"damaged")
    (planned.checkpoint / "1.sst").write_bytes(b"table")
    assert planned.table_digests(plan) == honest, "all is hashed anew"


def test_failures_are_counted_once_and_the_last_is_told(planned: PlannedSnapshot) -> None:
    assert (planned.take_failures(), planned.last_failure()) == (0, None)
    planned.note_failure("first")
    planned.note_failure("second" + "!" * 5_000)
    planned.note_problem("third")
    assert [planned.take_failures(), planned.take_failures()] == [2, 0]
    told = planned.last_failure()
    assert told is not None
    assert told.endswith("UTC: third")
