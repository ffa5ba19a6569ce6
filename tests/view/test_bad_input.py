"""What a view says of locations, heads and files that are not as they should be; and that it goes on where it can."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from statestore.errors import LocationError, RecoveryError, StoreError, VersionCollectedError
from statestore.errors.new_state import StatePointersError
from statestore.format.keys.partitioner import partition_of
from statestore.recovery.heads.head import HeadName
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.view import StateView
from tests.support.recovery.shards import wait_for_uploads
from tests.support.view.counts import AS_COUNTS, COUNTS, put
from tests.support.view.written_state import WrittenState

A, B = "a", next(key for key in "bcdef" if partition_of(key.encode(), 2) != partition_of(b"a", 2))


@pytest.fixture
def state(tmp_path: Path) -> WrittenState:
    made = WrittenState(tmp_path, COUNTS)
    made.batch(put(**{A: 1, B: 2}))
    return made


def test_no_store_no_head_no_state_no_stage(state: WrittenState, tmp_path: Path) -> None:
    with StateView(state.location) as view, pytest.raises(StoreError, match="no such store; it has \\['counts'\\]"):
        view.store("other")
    with pytest.raises(LocationError, match="holds no state"):
        StateView(tmp_path / "elsewhere")
    with pytest.raises(LocationError, match="stage-1: holds no state"):
        StateView(state.location, stage=1)
    with pytest.raises(StatePointersError, match="there is no head of state"):
        StateView(WrittenState(tmp_path / "other", COUNTS).location)
    with pytest.raises(ValueError, match="max_open_shards"):
        StateView(state.location, max_open_shards=0)
    with StateView(state.location) as view, pytest.raises(ValueError, match="shard must be 0 to 1, not 2"):
        view.shard(2)
    with pytest.raises(ValueError, match="key_of names stores"):
        StateView(state.location, key_of={"other": bytes})


def test_a_location_that_vanishes_leaves_the_view_at_its_batch(state: WrittenState) -> None:
    place, away = state.home / "state", state.home / "away"
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS)
        assert counts.get(A) == 1
        state.batch(put(**{A: 3, B: 4}))
        place.rename(away)
        with pytest.raises(LocationError, match="holds no state"):
            view.refresh()
        assert (view.batch, counts.get(A)) == (0, 1)
        with pytest.raises(RecoveryError, match="is missing"):
            counts.get(B)
        away.rename(place)
        assert counts.get(B) == 2, "still of that batch"
        assert view.refresh()
        assert (view.batch, counts.get(A), counts.get(B)) == (1, 3, 4)


def test_nothing_goes_on_unless_every_delta_can_be_read(state: WrittenState, monkeypatch: pytest.MonkeyPatch) -> None:
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS)
        assert (counts.get(A), counts.get(B)) == (1, 2)
        state.batch(put(**{A: 3, B: 4}))
        last, read = state.pointers[1].deltas[-1].name, view.location.read

        def fails(name: str, max_bytes: int) -> object:
            if name == last:
                raise LocationError(str(view.location), "is away")
            return read(name, max_bytes)

        monkeypatch.setattr(view.location, "read", fails)
        with pytest.raises(LocationError, match="is away"):
            view.refresh()
        assert (view.batch, counts.get(A), counts.get(B)) == (0, 1, 2)
        monkeypatch.undo()
        assert view.refresh()
        assert (view.batch, counts.get(A), counts.get(B)) == (1, 3, 4)


def test_a_delta_that_is_damaged_costs_its_shard_alone(state: WrittenState) -> None:
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS)
        assert (counts.get(A), counts.get(B)) == (1, 2)
        state.batch(put(**{A: 3, B: 4}))
        shard = partition_of(A.encode(), 2)
        path = state.home / "state" / state.pointers[shard].deltas[-1].name
        whole = path.read_bytes()
        path.write_bytes(whole[:-8] + bytes(8))
        assert view.refresh()
        assert counts.get(B) == 4
        with pytest.raises(RecoveryError, match="has the checksum"):
            counts.get(A)
        path.write_bytes(whole)
        assert counts.get(A) == 3


def test_a_version_that_was_collected_is_mended_by_refresh(tmp_path: Path) -> None:
    recovery = RecoveryOptions(snapshot_every_deltas=1, retained_versions=1, snapshot_budget_ms=60_000)
    state = WrittenState(tmp_path, COUNTS, recovery=recovery)
    state.batch(put(**{A: 1, B: 2}))
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS)
        for count in range(8):
            state.batch(put(**{A: count, B: count}))
            wait_for_uploads()
        with pytest.raises(VersionCollectedError, match=r"at batch 0: .* Call refresh\(\)"):
            counts.get(A)
        assert view.refresh()
        assert (counts.get(A), counts.get(B)) == (7, 7)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text[: len(text) // 2], "is not a readable head"),
        (lambda text: text.replace(b'"batch": 1', b'"batch": 2'), "is not a readable head"),
        (lambda text: b'{"format": 2, "digest": ""}', "is not a readable head"),
    ],
)
def test_a_head_that_cant_be_read_leaves_the_view_at_its_batch(state: WrittenState, damage: object, said: str) -> None:
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS)
        head = state.batch(put(**{A: 3}))
        path = state.home / "state" / HeadName(1, head.batch, head.run).file
        path.write_bytes(damage(path.read_bytes()))  # type: ignore[operator]
        with pytest.raises(RecoveryError, match=said):
            view.refresh()
        assert (view.batch, counts.get(A)) == (0, 1)
        state.batch(put(**{A: 5}))
        assert view.refresh()
        assert (view.batch, counts.get(A)) == (2, 5)


def test_another_state_in_the_place_of_this_one(state: WrittenState) -> None:
    with StateView(state.location) as view:
        counts = view.store("counts", **AS_COUNTS)
        assert counts.get(A) == 1
        shutil.rmtree(state.home / "state")
        shutil.rmtree(state.home / "local")
        other = WrittenState(state.home, COUNTS)
        with pytest.raises(LocationError, match=f"holds state {other.metadata.state_id} now.*open a new view"):
            view.refresh()
        assert counts.get(A) == 1


def test_a_damaged_copy_is_rebuilt(state: WrittenState) -> None:
    with StateView(state.location, local_dir=state.home / "views") as view:
        assert len([*view.store("counts", **AS_COUNTS).all()]) == 2
    with StateView(state.location, local_dir=state.home / "views") as view:
        counts = view.store("counts", **AS_COUNTS)
        view.shard(0), view.shard(1)
        for table in (state.home / "views").rglob("*.sst"):
            with open(table, "r+b") as file:
                file.write(bytes(16))
        for key in (A, B):
            with pytest.raises(StoreError, match="is damaged"):
                counts.get(key)
        assert [counts.get(key) for key in (A, B)] == [1, 2]
