"""Which batches get a head, and which runs may publish one, without Spark: a test says what Spark has committed."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from statestore.errors import RecoveryError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import (
    HEADS_DIRECTORY,
    Head,
    head_names,
    newest_head,
    newest_heads,
    write_head,
)
from statestore.recovery.heads.publishing import HeadPublisher, ShardCommit
from statestore.recovery.location.durable_files import partial_name
from statestore.recovery.location.durable_json import from_durable_json, to_durable_json
from statestore.recovery.location.durable_location import DurableLocation
from tests.support.recovery.head_runs import SHARDS, STATE, Run, after, head_files
from tests.support.recovery.interleavings import Interleavings


@pytest.fixture
def location(tmp_path: Path) -> DurableLocation:
    return DurableLocation(tmp_path)


def test_shards_that_are_not_called_keep_their_pointers(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    for shards in ((0,), (1,), (), (0, 1)):
        assert run.publish(*shards) is not None
        assert run.is_newest
    assert len(head_files(location)) == 2, "older ones are collected"


def test_a_batch_is_published_once(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    calls = run.commit(0)
    assert run.publisher.take(0, calls) is not None
    assert run.publisher.take(0, calls) is None


def test_after_a_lost_event_each_shard_must_be_called(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    run.publish(0, 1)
    run.commit(1)
    assert run.publish(0) is None, "what shard 1 has is not known"
    assert not run.is_newest
    assert run.publish(1) is not None
    assert run.is_newest


def test_a_pointer_that_was_not_gone_on_from_is_not_trusted(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    run.publish(0, 1)
    run.state[0] = after(CommitPointer(STATE, 0), 1)  # of the attempt that Spark did not count
    assert run.publish(0) is None
    assert run.publish(1) is not None
    assert run.is_newest


def test_of_two_pointers_of_a_shard_neither_is_published(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    calls = run.commit(0, 1)
    again = ShardCommit(after(CommitPointer(STATE, 0), 1).to_json(), calls[0].went_on_from)
    assert run.publisher.take(0, [*calls, again]) is None
    assert run.publish(1) is None
    assert run.publish(0) is not None
    assert run.is_newest


def test_a_restart_goes_on_from_the_head(location: DurableLocation) -> None:
    first = Run(location, "a", 1)
    first.publish(0, 1)
    location.write(partial_name(head_files(location)[0]), b"of a driver that was killed")
    second = Run(location, "b", 2, first)
    assert second.publish(0) is not None
    assert second.is_newest
    assert len(head_files(location)) == 1, "the head of the run before is collected"


def test_the_head_of_another_copy_of_the_checkpoint_is_not_gone_on_from(location: DurableLocation) -> None:
    first = Run(location, "a", 1)
    first.publish(0, 1)
    copy = Run(location, "b", 2, first)
    first.publish(1)
    copy.commit(1)  # by a driver that has died
    third = Run(location, "c", 3, copy)
    assert third.publish(0) is None, "shard 1 may be that of another checkpoint"
    assert third.publish(1) is not None
    assert third.is_newest


@pytest.mark.parametrize("has_published", [True, False])
def test_a_restart_waits_until_each_shard_was_called(location: DurableLocation, has_published: bool) -> None:
    """With a head of the last batch, because a call that went on from what that batch left alone proves nothing."""
    first = Run(location, "a", 1)
    first.publish(0, 1)
    (first.publish if has_published else first.commit)(1)
    second = Run(location, "b", 2, first)
    assert second.publish(0) is None
    assert second.publish(1) is not None
    assert second.is_newest


@pytest.mark.parametrize("has_published", [True, False])
def test_a_restart_publishes_at_once_where_the_checkpoint_can_be_asked(
    location: DurableLocation, has_published: bool
) -> None:
    first = Run(location, "a", 1)
    first.publish(0, 1)
    (first.publish if has_published else first.commit)(1)
    asked = []

    def checkpoint(batch: int) -> list[CommitPointer]:
        asked.append(batch)
        return list(first.state)

    second = Run(location, "b", 2, first, checkpoint=checkpoint)
    for shard in (0, 1, 0):
        assert second.publish(shard) is not None
        assert second.is_newest
    assert asked == [1]


def test_shards_that_the_checkpoint_does_not_have_are_where_they_began(location: DurableLocation) -> None:
    first = Run(location, "a", 1)
    first.commit(1)
    second = Run(location, "b", 2, first, checkpoint=lambda batch: [first.state[1]])
    assert second.publish(1) is not None
    assert second.is_newest


def test_what_the_checkpoint_has_is_not_trusted_if_a_call_went_on_from_something_else(
    location: DurableLocation,
) -> None:
    first = Run(location, "a", 1)
    first.commit(0, 1)
    wrong = [after(pointer, 1) for pointer in first.state]
    second = Run(location, "b", 2, first, checkpoint=lambda batch: wrong)
    assert second.publish(0) is None
    assert second.publish(1) is not None
    assert second.is_newest


@pytest.mark.parametrize("has_published", [True, False])
def test_a_driver_that_was_given_up_does_not_publish_over_its_successor(
    location: DurableLocation, has_published: bool
) -> None:
    zombie = Run(location, "z", 1)
    calls = zombie.commit(0, 1)
    if has_published:
        zombie.publisher.take(0, calls)
    successor = Run(location, "b", 2, zombie)
    assert successor.publish(0, 1) is not None
    zombie.publisher.take(zombie.batch, calls)
    zombie.publish(1)
    zombie.publish(1)
    assert successor.is_newest


def test_nor_does_one_whose_successor_has_changed_nothing(location: DurableLocation) -> None:
    zombie = Run(location, "z", 1)
    calls = zombie.commit(0, 1)
    write_head(location, 1, Head(STATE, "query", "b", 1, 0, tuple(zombie.state)))
    assert zombie.publisher.take(0, calls) is None


def test_an_older_checkpoint_takes_the_head_back_in_words(
    location: DurableLocation, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(location, "a", 1)
    run.publish(0, 1)
    older = Run(location, "b", 2, run)
    run.publish(0, 1)
    run.publish(0, 1)
    assert older.publish(0) is None, "the head that is there is not of the batch before"
    with caplog.at_level(logging.WARNING):
        assert older.publish(1) is not None
    assert older.is_newest
    assert "the head goes back: from batch 2 of query query" in caplog.text
    run.publish(0, 1)
    assert older.is_newest, "the run that was given up has a lower order"


class Raced(DurableLocation):
    """A location where another run publishes just before a head is written."""

    others: Any = None

    def write(self, name: str, data: Any) -> None:
        """Write a file; let the others go first."""
        if self.others is not None:
            others, self.others = self.others, None
            others()
        super().write(name, data)


def test_of_two_runs_that_take_one_order_the_later_one_publishes(tmp_path: Path) -> None:
    raced = Raced(tmp_path)
    zombie = Run(raced, "z", 1)
    calls = zombie.commit(0, 1)
    successor = Run(DurableLocation(tmp_path), "b", 2, zombie)
    successor.publisher = HeadPublisher(
        successor.location, STATE, SHARDS, lambda shard: zombie.state[shard], query="query", run="b"
    )
    successor.batch = -1
    raced.others = lambda: successor.publish(0, 1)
    assert zombie.publisher.take(0, calls) is None
    assert successor.is_newest
    assert len(head_files(raced)) == 1


def test_a_damaged_head_is_refused_in_words_and_published_over(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    run.publish(0, 1)
    (name,) = head_files(location)
    path = Path(location.path(name).removeprefix("file://"))
    path.write_bytes(path.read_bytes().replace(b'"batch": 0', b'"batch": 9'))
    with pytest.raises(RecoveryError, match=r"is not a readable head \(its fields have the checksum"):
        newest_head(location, STATE)
    second = Run(location, "b", 2, run)
    assert second.publish(0, 1) is not None
    assert second.is_newest


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("format", 2, "it has format 2, this release knows 1"),
        ("state_id", "../other", "can't be part of a path"),
        ("batch", -1, "is not a whole number from 0"),
        ("pointers", [CommitPointer(STATE, 1).to_json()], "not those of the shards"),
        ("pointers", [CommitPointer("other", 0).to_json()], "not those of the shards"),
        ("pointers", ["{"], "is not one of ours"),
        ("changed", [0], r"it names changed shards \(0,\), and has 0 shards"),
    ],
)
def test_wrong_fields_are_refused(field: str, value: object, problem: str) -> None:
    fields = from_durable_json(Head(STATE, "query", "a", 0, 0, ()).to_json())
    with pytest.raises(RecoveryError, match=problem):
        Head.from_json(to_durable_json({**fields, field: value}).encode(), "where")


def test_a_head_without_a_checksum_is_refused() -> None:
    content = Head(STATE, "query", "a", 0, 0, ()).to_json().replace(b"digest", b"digesu")
    with pytest.raises(RecoveryError, match="it has no checksum"):
        Head.from_json(content, "where")


def test_what_was_given_up_stays_the_head_until_all_of_it_has_changed(location: DurableLocation) -> None:
    first = Run(location, "a", 1)
    first.publish(0, 1)
    older = Run(location, "c", 3, first)
    second = Run(location, "b", 2, first)
    second.publish(0, 1)
    older.publish(0)
    assert second.is_newest, "shard 1 may be that of a run which was given up"
    older.publish(1)
    assert older.is_newest


def test_heads_of_stages_are_of_one_batch(tmp_path: Path) -> None:
    stages = [Run(DurableLocation(tmp_path / name), "a", 1) for name in ("stage-0", "stage-1")]
    states = [(stage.location, STATE) for stage in stages]
    assert newest_heads(states) is None
    for _ in range(2):
        for stage in stages:
            stage.publish(0, 1)
    stages[0].publish(0)
    heads = newest_heads(states)
    assert heads is not None
    assert [(head.batch, head.pointers[0].version) for head in heads] == [(1, 2), (1, 2)]
    stages[0].publish(0)
    assert newest_heads(states) is None, "the first stage's head of that batch is gone"


def test_names_that_are_no_heads_do_not_count(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    run.publish(0, 1)
    for name in ("99999999-000000000000-a.json.0123.partial", "999999999-000000000000-a.json", "notes"):
        location.write(f"{HEADS_DIRECTORY}/{name}", b"{}")
    assert run.is_newest


def test_the_head_of_a_state_that_was_here_before_does_not_count(location: DurableLocation) -> None:
    write_head(location, 7, Head("before", "query", "z", 100, 0, ()))
    assert newest_head(location, STATE) is None
    run = Run(location, "a", 1)
    assert run.publish(0, 1) is not None
    assert run.is_newest


def test_a_publisher_for_each_batch_goes_on_from_the_head_of_its_run(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    for shards in ((0,), (1,), (), (0, 1), (0,)):
        run.renew()
        assert run.publish(*shards) is not None
        assert run.is_newest
    assert [name[:15] for name in head_files(location)] == ["heads/00000001-"] * 2


def test_a_publisher_that_is_made_again_for_a_batch_changes_nothing(location: DurableLocation) -> None:
    run = Run(location, "a", 1)
    calls = run.commit(0, 1)
    run.publisher.take(0, calls)
    run.renew()
    assert run.publisher.take(0, calls) is None
    assert run.publish(0) is not None
    assert run.is_newest


def test_nor_does_a_publisher_for_each_batch_publish_over_a_successor(location: DurableLocation) -> None:
    zombie = Run(location, "z", 1)
    zombie.publish(0, 1)
    successor = Run(location, "b", 2, zombie)
    successor.publish(0, 1)
    zombie.renew()
    zombie.publish(0, 1)
    assert zombie.publish(0, 1) is None
    assert successor.is_newest


def test_a_head_whose_publisher_has_not_looked_once_more_yields_to_a_successor(location: DurableLocation) -> None:
    zombie = Run(location, "z", 1)
    zombie.commit(0, 1)
    successor = Run(location, "b", 2, zombie)
    successor.commit(0, 1)
    zombie.commit(0, 1)
    for run in (successor, zombie):  # both have looked before either has written
        write_head(location, 1, Head(STATE, "query", run.name, run.batch, 0, tuple(run.state)))
    zombie.renew()
    assert zombie.publish(0) is None
    assert successor.is_newest
    assert successor.publish(0) is not None
    assert successor.is_newest
    assert not any(name.endswith("-z.json") for name in head_files(location))


def publishes(name: str, epoch: int, batch: int) -> Callable[[DurableLocation], bool]:
    """Return the task of a run that publishes its first head, of this batch."""

    def task(location: DurableLocation) -> bool:
        run = Run(location, name, epoch)
        run.batch = batch - 1
        return run.publish(0, 1) is not None

    return task


@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize("batches", [(0, 0), (5, 3), (3, 5)])
def test_once_the_later_run_has_published_its_head_is_the_newest(names: str, batches: tuple[int, int]) -> None:
    """In every order of their requests, and wherever the run that was given up is killed."""
    zombie, successor = names
    tasks = [publishes(zombie, 1, batches[0]), publishes(successor, 2, batches[1])]
    ends = set()
    for state in Interleavings(tasks).states():
        published = head_names(name for name, _ in state.files)
        if state.ended[1] is not None and state.ended[1].value:
            assert published[-1].run == successor
        if all(state.ended):
            ends.add(tuple(end.value for end in state.ended if end is not None))
    assert {(True, True), (False, True)} <= ends
