"""What the pointers of new shards carry over from those of the old ones, beside what is in stores: ADR 7."""

from __future__ import annotations

import pytest

from statestore.errors import NewStateError
from statestore.recovery.commit.pointer import CommitPointer, DurableFile, SnapshotRef
from statestore.recovery.commit.pointer_fields import (
    MAX_EARLIER,
    SHARD_CLOCK,
    BatchEnd,
    EarlierShards,
    RecordedPunctuation,
)
from statestore.recovery.making.carry_over import carry_over, processor_metadata, punctuations, store_times

DELTA = DurableFile("shards/0003/deltas/x.arrow", 7, "00")


def test_pointers_carry_over_what_is_not_in_stores() -> None:
    old = [
        CommitPointer("s", 0, skipped_records=2, stream_time_ms=50, store_times_ms={"w": 40, "v": -1}),
        CommitPointer("s", 1, skipped_records=3, stream_time_ms=90, store_times_ms={"w": 80, "v": 7}),
        CommitPointer("s", 2),
    ]
    files = [(DELTA,), ()]
    first, second = carry_over(old, "new", files)
    assert (first.state_id, first.shard, first.version, first.deltas) == ("new", 0, 1, files[0])
    assert (second.shard, second.version, second.deltas) == (1, 0, ())
    assert (first.skipped_records, second.skipped_records) == (5, 0)
    assert first.stream_time_ms == second.stream_time_ms == -1, "the third one has seen nothing yet"
    assert first.store_times_ms == second.store_times_ms == {}
    assert seen_by(first) == {0: {"": 50, "w": 40}, 1: {"": 90, "w": 80, "v": 7}}
    versions = carry_over(old, "new", files, versioned={"v"})
    assert [pointer.store_times_ms for pointer in versions] == [{"v": 7}] * 2
    assert seen_by(versions[0]) == {0: {"": 50, "w": 40}, 1: {"": 90, "w": 80}}
    first, second = carry_over(old[:2], "new", [(), (), ()])[:2]
    assert first.stream_time_ms == second.stream_time_ms == 50
    assert first.store_times_ms == second.store_times_ms == {"w": 40}
    assert seen_by(first) == {1: {"": 90, "w": 80, "v": 7}}


def seen_by(pointer: CommitPointer) -> dict[int, dict[str, int]]:
    """Return what is known of the only earlier number of shards, by shard and name."""
    (earlier,) = pointer.earlier
    return {shard: {clock.name: time_ms for clock, time_ms in times.items()} for shard, times in earlier.seen.items()}


def test_a_new_shard_begins_with_the_times_of_those_whose_keys_it_can_have() -> None:
    old = [CommitPointer("s", shard, stream_time_ms=10 * (shard + 1)) for shard in range(4)]
    halves = carry_over(old, "new", [()] * 2)
    assert [pointer.stream_time_ms for pointer in halves] == [10, 20]
    assert [seen_by(pointer) for pointer in halves] == [{2: {"": 30}}, {3: {"": 40}}]
    doubled = carry_over(old, "new", [()] * 8)
    assert [pointer.stream_time_ms for pointer in doubled] == [10, 20, 30, 40] * 2
    assert all(pointer.earlier == () for pointer in doubled)
    sixths = carry_over(old, "new", [()] * 6, shard_by="partition")
    assert [seen_by(pointer) for pointer in sixths[:2]] == [{2: {"": 30}}, {3: {"": 40}}]
    assert {each.by for pointer in sixths for each in pointer.earlier} == {"partition"}


def test_what_was_seen_is_known_over_several_rescalings_until_the_shard_has_seen_as_much() -> None:
    old = [
        CommitPointer("s", 0, stream_time_ms=30, processor_metadata={"w-observed-stream-time": 30, "emitted": 7}),
        CommitPointer("s", 1, stream_time_ms=90, processor_metadata={"w-observed-stream-time": 80, "emitted": 70}),
    ]
    (one,) = carry_over(old, "new", [()])
    assert seen_by(one) == {1: {"": 90, "w-observed-stream-time": 80}}
    assert one.processor_metadata == {"w-observed-stream-time": 30, "emitted": 7}
    three = carry_over([one], "new", [()] * 3)
    assert all(pointer.earlier == one.earlier for pointer in three)
    (again,) = carry_over(three, "newest", [()])
    assert again.earlier == one.earlier
    later = one.advance(None, BatchEnd(stream_time_ms=85, processor_metadata={"w-observed-stream-time": 85}))
    assert seen_by(later) == {1: {"": 90}}
    assert CommitPointer.from_json(later.to_json()) == later
    latest = later.advance(None, BatchEnd(stream_time_ms=90))
    assert latest.earlier == ()


def test_more_numbers_of_shards_than_a_pointer_holds_are_refused() -> None:
    earlier = tuple(
        EarlierShards(number, "key", {0: {SHARD_CLOCK: 100 + number}}) for number in range(3, 3 + MAX_EARLIER)
    )
    old = [CommitPointer("s", 0, stream_time_ms=1, earlier=earlier), CommitPointer("s", 1, stream_time_ms=200)]
    with pytest.raises(NewStateError, match="let the query run"):
        carry_over(old, "new", [()])
    same = carry_over(old, "new", [(), ()])
    assert same[0].earlier == earlier


def schedule(next_ms: int | None, interval_ms: int = 10) -> RecordedPunctuation:
    return RecordedPunctuation("stream-time", interval_ms, None, next_ms)


def test_a_schedule_is_due_when_it_first_is_and_cancelled_if_it_is_everywhere() -> None:
    old = [
        CommitPointer("s", 0, stream_time_ms=5, punctuations={"p": (schedule(30), schedule(None), schedule(None))}),
        CommitPointer("s", 1, stream_time_ms=9, punctuations={"p": (schedule(20), schedule(70), schedule(None))}),
        CommitPointer("s", 2),
    ]
    assert punctuations(old) == {"p": (schedule(20), schedule(70), schedule(None))}


def test_of_different_schedules_those_of_the_latest_shard_count() -> None:
    old = [
        CommitPointer("s", 0, stream_time_ms=5, punctuations={"p": (schedule(1, 99),), "only-here": (schedule(4),)}),
        CommitPointer("s", 1, stream_time_ms=9, punctuations={"p": (schedule(20), schedule(70))}),
    ]
    assert punctuations(old) == {"p": (schedule(20), schedule(70)), "only-here": (schedule(4),)}


def test_the_earliest_time_counts_so_that_nothing_live_expires() -> None:
    old = [CommitPointer("s", shard, store_times_ms={"w": time_ms}) for shard, time_ms in enumerate((80, 0, 40, -1))]
    assert store_times(old[:3]) == {"w": 0}
    assert store_times(old) == {}, "of keys of the last one, anything may still come"
    assert store_times(old, {"w"}) == {"w": 0}
    assert store_times(old[3:], {"w"}) == {}, "nothing was put into it yet"


def test_with_as_many_shards_each_goes_on_from_its_own() -> None:
    snapshot = SnapshotRef(1, DELTA, "d", 1)
    old = [
        CommitPointer("s", 0, 9, (DELTA,), 2, 50, {"w": 40}, {"p": (schedule(30),)}, (snapshot,), {"w": 20}),
        CommitPointer("s", 1, 4, (), 3, 90, {"w": 80}, {"p": (schedule(20),)}, (), {"w": 90}),
    ]
    first, second = carry_over(old, "new", [(DELTA, DELTA), ()])
    assert first == CommitPointer("new", 0, 2, (DELTA, DELTA), 2, 50, {"w": 40}, {"p": (schedule(30),)}, (), {"w": 20})
    assert second == CommitPointer("new", 1, 0, (), 3, 90, {"w": 80}, {"p": (schedule(20),)}, (), {"w": 90})


def test_the_lowest_metadata_counts_so_that_nothing_still_to_come_is_dropped() -> None:
    old = [
        CommitPointer("s", 0, stream_time_ms=90, processor_metadata={"emitted": 80, "negative": -3}),
        CommitPointer("s", 1, processor_metadata={"negative": -(2**63), "emitted": 60}),
        CommitPointer("s", 2),
    ]
    pointers = carry_over(old, "new", [()] * 2)
    assert [pointer.processor_metadata for pointer in pointers] == [{"emitted": 60, "negative": -(2**63)}] * 2


def test_counts_are_those_of_a_shard_and_no_other_one() -> None:
    old = [CommitPointer("s", 0, version=1, processor_metadata={"#buffer-records": 5, "buffer": 5})]
    assert [pointer.processor_metadata for pointer in carry_over(old, "new", [()] * 2)] == [{"buffer": 5}] * 2
    assert carry_over(old, "new", [()])[0].processor_metadata == {"#buffer-records": 5, "buffer": 5}


@pytest.mark.parametrize(
    "behind",
    [
        CommitPointer("s", 1, version=1),
        CommitPointer("s", 1, stream_time_ms=0),
        CommitPointer("s", 1, processor_metadata={"other": 1}),
    ],
)
def test_metadata_that_a_shard_in_use_lacks_is_of_no_use_to_its_keys(behind: CommitPointer) -> None:
    ahead = CommitPointer("s", 0, version=3, stream_time_ms=90, processor_metadata={"emitted": 80})
    assert processor_metadata([ahead, behind]) == processor_metadata([behind, ahead]) == {}
    assert processor_metadata([CommitPointer("s", 0), CommitPointer("s", 1)]) == {}


def test_skipped_records_are_counted_once() -> None:
    old = [CommitPointer("s", shard, skipped_records=shard + 1) for shard in range(3)]
    assert [pointer.skipped_records for pointer in carry_over(old, "new", [()] * 5)] == [6, 0, 0, 0, 0]
