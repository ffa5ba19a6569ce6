"""Starts of queries and tools that make states, at once on one location, in every order of their operations."""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from statestore.errors import LocationBusyError, NewStateError, TargetNotEmptyError, TopologyChangedError
from statestore.errors.state import LocationMismatchError, StateUnfinishedError
from statestore.recovery.location.durable_json import from_durable_json, to_durable_json
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.new_state import NewState
from statestore.recovery.metadata import agreement
from statestore.recovery.metadata.agreement import turn
from statestore.recovery.metadata.state_metadata import (
    METADATA_NAME,
    StateMetadata,
    agree_on_metadata,
    agree_on_states,
    read_metadata,
)
from tests.support.recovery import MAX_BYTES
from tests.support.recovery.interleavings import Interleavings
from tests.support.recovery.shards import TOTALS, Shard, stored

TOPOLOGY = ({"type": "source", "name": "in", "topics": None},)
GOLDEN = Path(__file__).parents[1] / "golden" / "agreement-1"
ASKED = StateMetadata("id", 1, "key", (0,), (TOTALS,), TOPOLOGY)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "_TRIES", 1)
    # Not of the process: threads of other tests may wait meanwhile.
    monkeypatch.setattr(agreement, "time", SimpleNamespace(sleep=lambda _: None, time_ns=time.time_ns))


def starter(number: int) -> Callable[[DurableLocation], str]:
    return lambda location: agree_on_metadata(location, replace(ASKED, state_id=f"started-{number}")).state_id


def maker(number: int) -> Callable[[DurableLocation], str]:
    def make(location: DurableLocation) -> str:
        made = replace(ASKED, state_id=f"made-{number}", topology=(), initial_state=True)
        NewState.claim(location, made, "something").complete([])
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
            ends.add(tuple("error" if end.error else end.value for end in state.ended))
    return count, ends


def test_two_first_starts_at_once_go_on_as_one_state() -> None:
    count, ends = reached([starter(0), starter(1)])
    assert {("started-0", "started-0"), ("started-1", "started-1")} <= ends
    assert count > 300


@pytest.mark.parametrize(("askers", "tries"), [(2, 2), (3, 1)])
def test_all_that_ask_at_once_agree_on_one(monkeypatch: pytest.MonkeyPatch, askers: int, tries: int) -> None:
    monkeypatch.setattr(agreement, "_TRIES", tries)

    def asks(content: bytes) -> Callable[[DurableLocation], bytes | None]:
        return lambda location: agreement.agree(location, 0, content, lambda: False)

    agreed: set[bytes] = set()
    for state in Interleavings([asks(b"%d" % number) for number in range(askers)]).states():
        values = {end.value for end in state.ended if end is not None and end.error is None}
        assert len(values) <= 1, values
        agreed |= values
    assert agreed == {b"%d" % number for number in range(askers)}


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
        return lambda location: str(agree_on_metadata(location, asked).routing)

    for state in Interleavings([start(asked) for asked in routings], files).states():
        taken = {end.value for end in state.ended if end is not None and end.error is None}
        assert len(taken) <= 1, "Spark finds each shard under the group key that is recorded"


@pytest.mark.parametrize("forgotten", [0, 1])
def test_a_stage_that_a_tool_has_not_made_is_missed(forgotten: int, tmp_path: Path) -> None:
    """With the others as they were before, it would begin empty, and nobody would be told."""
    locations = [DurableLocation(tmp_path / f"stage-{number}") for number in range(2)]
    maker(1)(locations[1 - forgotten])
    asked = [(location, ASKED) for location in locations]
    with pytest.raises(
        TopologyChangedError, match=f"made the state of stage-{1 - forgotten}, and none of stage-{forgotten}"
    ):
        agree_on_states(asked, accept_topology_change=["gone"])
    assert read_metadata(locations[forgotten]) is None
    agreed = agree_on_states(asked, accept_topology_change=True)
    assert [each.initial_state for each in agreed] == [number != forgotten for number in range(2)]
    assert agree_on_states(asked) == agreed


def test_a_stage_without_stores_needs_no_tool(tmp_path: Path) -> None:
    locations = [DurableLocation(tmp_path / f"stage-{number}") for number in range(2)]
    maker(1)(locations[1])
    agreed = agree_on_states([(locations[0], replace(ASKED, stores=())), (locations[1], ASKED)])
    assert [each.initial_state for each in agreed] == [False, True]


@pytest.mark.parametrize("task", [starter, maker])
def test_a_start_that_died_at_any_moment_hinders_no_other(task: Callable[[int], Callable]) -> None:
    """After a start: always. After a tool that died, the same tool or a start says what is there."""
    for left in Interleavings([task(0)]).states():
        files = dict(left.files)
        (after,) = (state for state in Interleavings([starter(1)], files).states() if all(state.ended))
        (end,) = after.ended
        assert end is not None
        if end.error is not None:
            assert task is maker
            assert isinstance(end.error, StateUnfinishedError)
            assert METADATA_NAME not in files


def test_a_tool_that_died_in_its_turn_is_named(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN, tmp_path, dirs_exist_ok=True)
    location = DurableLocation(tmp_path)
    (left,) = location.names("making")
    with pytest.raises(
        LocationBusyError, match=f"what makes a state .process 7 on golden, since 2026-.*{left}"
    ) as busy:
        NewState.claim(location, ASKED, "something")
    assert busy.value.file.endswith(left)
    assert location.names("making") == [left]
    location.write(left, b"cut")
    with pytest.raises(LocationBusyError, match="its file does not name"):
        NewState.claim(location, ASKED, "something")
    location.delete(left)
    with pytest.raises(TargetNotEmptyError, match="starting/00000000-00000003-accepted"):
        NewState.claim(location, ASKED, "something")
    assert agree_on_metadata(location, ASKED).state_id == "golden", "what was accepted before may have been agreed on"
    assert len(location.names("starting")) == 4, "a start that is slow may record it again"
    with pytest.raises(TargetNotEmptyError):
        NewState.claim(location, ASKED, "something")


_DIES_IN_ITS_TURN = """
import os, sys
from statestore import DurableLocation
from statestore.recovery.metadata.agreement import turn

with turn(DurableLocation(sys.argv[1]), "what dies"):
    os._exit(7)
"""


def test_who_finds_another_in_its_turn_waits_between_tries_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []
    monkeypatch.setattr(agreement, "_TRIES", 3)
    monkeypatch.setattr(agreement.time, "sleep", waits.append)
    location = DurableLocation(tmp_path)
    with turn(location, "one"), pytest.raises(LocationBusyError), turn(location, "the other"):
        pass
    assert len(waits) == 2


def test_a_tool_that_died_in_its_turn_is_followed_by_the_next_on_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    location = DurableLocation(tmp_path)
    assert subprocess.run([sys.executable, "-c", _DIES_IN_ITS_TURN, str(tmp_path)], check=False).returncode == 7
    (left,) = location.names("making")
    fields = from_durable_json(location.read(left, MAX_BYTES))
    with turn(location, "the next"):
        assert location.names("making") != [left]
    monkeypatch.setattr("statestore.recovery.metadata.agreement._TRIES", 1)
    here = fields["process"].rpartition("/")[0].rpartition("/")[0]
    alive = f"{here}/{os.getpid()}/{_started()}"
    for process, pid in (
        (alive, os.getpid()),
        (f"elsewhere{fields['process']}", fields["pid"]),
        ("", fields["pid"]),
        (fields["process"], "none"),
    ):
        location.write(left, to_durable_json({**fields, "process": process, "pid": pid}).encode())
        with pytest.raises(LocationBusyError), turn(location, "the next"):
            pass
    # The number was given to another process since.
    location.write(left, to_durable_json({**fields, "process": f"{alive}0", "pid": os.getpid()}).encode())
    with turn(location, "the next"):
        pass
    assert location.names("making") == []


def _started() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]


def test_what_a_slow_start_has_taken_back_is_found_by_the_next(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN.with_name("agreement-2"), tmp_path, dirs_exist_ok=True)
    location = DurableLocation(tmp_path)
    taken_back = read_metadata(location)
    assert taken_back is not None
    changed = replace(taken_back, topology=(*TOPOLOGY, {**TOPOLOGY[0], "name": "more"}), generation=1)
    assert agree_on_metadata(location, replace(changed, state_id="other")) == changed == read_metadata(location)
    with pytest.raises(TopologyChangedError):
        agree_on_metadata(location, taken_back)


def test_agreements_of_long_ago_are_forgotten(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path)
    for number in range(20):
        location.write(f"starting/{number:08d}-00000001-promised-{'a' * 32}.{'b' * 32}.partial", b"of a killed one")
        asked = replace(ASKED, topology=({**TOPOLOGY[0], "name": f"source-{number}"},))
        assert agree_on_metadata(location, asked, accept_topology_change=True).generation == number
    assert {name.split("/")[1].split("-")[0] for name in location.names("starting")} == {
        f"{generation:08d}" for generation in range(4, 20)
    }


def test_what_another_start_has_left_is_no_hindrance_once_the_state_is_there(tmp_path: Path) -> None:
    location = DurableLocation(tmp_path)
    agree_on_metadata(location, ASKED)
    location.write("starting/abc", b"")
    assert agree_on_metadata(location, replace(ASKED, state_id="other")) == ASKED
    assert read_metadata(location) == ASKED


def test_a_run_does_not_enter_what_has_become_another_state(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    agree_on_metadata(shard.state.location, replace(ASKED, state_id="other"))
    with pytest.raises(LocationMismatchError, match="holds state other"):
        shard.batch(shard.start(), {b"k": stored(b"1")})
    assert not list((tmp_path / "state").rglob("*.fence"))


def test_a_run_that_was_planned_with_a_dropped_store_does_not_enter(tmp_path: Path) -> None:
    shard = Shard(tmp_path)
    both = replace(ASKED, state_id=shard.state.state_id, stores=(TOTALS, replace(TOTALS, name="kept")))
    agree_on_metadata(shard.state.location, both)
    agree_on_metadata(shard.state.location, replace(both, stores=both.stores[1:]), accept_topology_change=["totals"])
    with pytest.raises(TopologyChangedError, match="store 'totals' was dropped, and is back"):
        shard.batch(shard.start(), {b"k": stored(b"1")})
    assert not list((tmp_path / "state").rglob("*.fence"))
