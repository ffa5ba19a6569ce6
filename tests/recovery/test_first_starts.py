"""Starts of queries and tools that make states, at once on one location, in every order of their operations."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from interleavings import Interleavings
from shards import TOTALS, Shard, stored
from statestore.errors import (
    LocationBusyError,
    LocationMismatchError,
    NewStateError,
    StateUnfinishedError,
    TargetNotEmptyError,
)
from statestore.recovery import turn as turns
from statestore.recovery.location import DurableLocation
from statestore.recovery.metadata import METADATA_NAME, StateMetadata, read_metadata, settle_metadata
from statestore.recovery.new_state import claim_target, complete_target
from statestore.recovery.pointer import CommitPointer

TOPOLOGY = ({"type": "source", "name": "in", "topics": None},)
GOLDEN = Path(__file__).parents[1] / "golden" / "starting-1"
ASKED = StateMetadata("id", 1, "key", (0,), (TOTALS,), TOPOLOGY)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_TRIES", 2)
    monkeypatch.setattr("time.sleep", lambda _: None)


def starter(number: int) -> Callable[[DurableLocation], str]:
    return lambda location: settle_metadata(location, replace(ASKED, state_id=f"started-{number}")).state_id


def maker(number: int) -> Callable[[DurableLocation], str]:
    def make(location: DurableLocation) -> str:
        made = replace(ASKED, state_id=f"made-{number}", topology=(), initial_state=True)
        claim_target(location, "something", made)
        complete_target(location, made, [CommitPointer(made.state_id, 0)])
        return made.state_id

    return make


def reached(tasks: list[Callable[[DurableLocation], str]], files: dict[str, bytes] | None = None) -> tuple[int, set]:
    """Return how many states tasks can reach, none of which goes on as another state than is recorded; and the ends."""
    count, ends = 0, set()
    for state in Interleavings(tasks, files).states():
        count += 1
        ids = {end.value for end in state.ended if end is not None and end.error is None}
        assert len(ids) <= 1, ids
        recorded = dict(state.files).get(METADATA_NAME)
        if ids:
            assert recorded is not None
            assert json.loads(recorded)["state_id"] in ids
        for end in state.ended:
            if end is not None and end.error is not None:
                assert isinstance(end.error, (LocationBusyError, StateUnfinishedError, NewStateError)), end.error
        if all(state.ended):
            assert not [name for name, _ in state.files if name.startswith("starting/")]
            ends.add(tuple("error" if end.error else end.value for end in state.ended))
    return count, ends


def test_two_first_starts_at_once_go_on_as_one_state() -> None:
    count, ends = reached([starter(0), starter(1)])
    assert {("started-0", "started-0"), ("started-1", "started-1")} <= ends
    assert count > 300


def test_three_first_starts_at_once_go_on_as_one_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "_TRIES", 1)
    count, ends = reached([starter(0), starter(1), starter(2)])
    assert {("started-0",) * 3, ("started-1",) * 3, ("started-2",) * 3} <= ends
    assert count > 1000


def test_a_first_start_beside_a_tool_that_makes_a_state() -> None:
    _, ends = reached([starter(0), maker(1)])
    assert {("started-0", "error"), ("error", "made-1"), ("made-1", "made-1")} <= ends


def test_two_tools_that_make_states_at_once() -> None:
    _, ends = reached([maker(0), maker(1)])
    assert {("made-0", "error"), ("error", "made-1")} <= ends


def test_starts_at_once_on_a_state_that_a_tool_made() -> None:
    made = replace(ASKED, state_id="made", topology=(), initial_state=True)
    files = {METADATA_NAME: made.to_json().encode()}
    routings = [replace(ASKED, routing=(number,)) for number in range(2)]

    def start(asked: StateMetadata) -> Callable[[DurableLocation], str]:
        return lambda location: str(settle_metadata(location, asked).routing)

    for state in Interleavings([start(asked) for asked in routings], files).states():
        taken = {end.value for end in state.ended if end is not None and end.error is None}
        assert len(taken) <= 1, "Spark finds each shard under the group key that is recorded"


def test_a_first_start_that_died_is_named(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    location = DurableLocation(tmp_path)
    (left,) = location.names("starting")
    with pytest.raises(
        LocationBusyError, match=f"the start of a query .process 7 on golden, since 2026-.*{left}"
    ) as busy:
        settle_metadata(location, ASKED)
    assert busy.value.file.endswith(left)
    with pytest.raises(LocationBusyError):
        claim_target(location, "something", ASKED)
    assert location.names("starting") == [left]
    location.write(left, b"cut")
    with pytest.raises(LocationBusyError, match="can't be told any more"):
        settle_metadata(location, ASKED)
    location.delete(left)
    assert settle_metadata(location, ASKED) == ASKED
    with pytest.raises(TargetNotEmptyError):
        claim_target(location, "something", ASKED)


def test_what_another_start_has_left_is_no_hindrance_once_the_state_is_there(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path)
    settle_metadata(location, ASKED)
    location.write("starting/abc", b"")
    assert settle_metadata(location, replace(ASKED, state_id="other")) == ASKED
    assert read_metadata(location) == ASKED


def test_a_run_does_not_enter_what_has_become_another_state(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    settle_metadata(shard.state.location, replace(ASKED, state_id="other"))
    with pytest.raises(LocationMismatchError, match="holds state other"):
        shard.batch(shard.start(), {b"k": stored(b"1")})
    assert not list((tmp_path / "state").rglob("*.fence"))
