"""What the commit pointers of a state's shards say beside what is in the stores, for shards of another number.

Why each is what it is: ADR 7, ADR 24 for processor metadata, and ADR 31 for what is late.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from math import gcd

from statestore.bytestore.kinds.segments import NO_STREAM_TIME
from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.commit.pointer_fields import (
    COUNT_PREFIX,
    TIME_SUFFIX,
    EarlierShards,
    RecordedPunctuation,
    beyond,
    joined,
)


def carry_over(
    old: Sequence[CommitPointer],
    state_id: str,
    deltas: Sequence[Sequence[DurableFile]],
    shard_by: str = "key",
    versioned: Collection[str] = (),
) -> list[CommitPointer]:
    """Return the initial pointers of shards that have these deltas, made from all of the old state's pointers.

    `versioned` names the stores of versions. With as many shards as there were, each goes on from its own. Raises
    NewStateError if more is known of earlier numbers of shards than a pointer holds.
    """
    if len(old) == len(deltas):
        return [
            replace(pointer, state_id=state_id, version=len(files), snapshots=(), deltas=tuple(files))
            for pointer, files in zip(old, deltas, strict=True)
        ]
    skipped_records = sum(pointer.skipped_records for pointer in old)
    made = []
    for shard, files in enumerate(deltas):
        sources = sources_of(shard, old, len(deltas))
        begun = CommitPointer(
            state_id,
            shard,
            version=len(files),
            deltas=tuple(files),
            skipped_records=0 if shard else skipped_records,
            stream_time_ms=min(pointer.stream_time_ms for pointer in sources),
            store_times_ms=store_times(sources, versioned),
            punctuations=punctuations(sources),
            processor_metadata=processor_metadata(sources),
        )
        before = [each for source in sources for each in source.earlier]
        own = EarlierShards(len(old), shard_by, {source.shard: source.seen for source in sources})
        made.append(replace(begun, earlier=beyond(joined([*before, own]), begun.seen)))
    return made


def sources_of(shard: int, old: Sequence[CommitPointer], shards: int) -> list[CommitPointer]:
    """Return the pointers of old shards that a new one has keys of: a key's shard is some number modulo shards."""
    apart = gcd(len(old), shards)
    return [pointer for pointer in old if (pointer.shard - shard) % apart == 0]


def store_times(old: Sequence[CommitPointer], versioned: Collection[str] = ()) -> dict[str, int]:
    """Return the stream time of each segmented store: the earliest of the shards.

    A later one would have entries of the other shards expire that are live there, or that are still to come. Those
    shards alone count that have put something into it, of stores of versions; of others, it has none if one has not.
    """
    names = {name for pointer in old for name in pointer.store_times_ms}
    times: dict[str, int] = {}
    for name in sorted(names):
        found = [pointer.store_times_ms.get(name, NO_STREAM_TIME) for pointer in old]
        put = [time_ms for time_ms in found if time_ms >= 0]
        if put and (name in versioned or len(put) == len(old)):
            times[name] = min(put)
    return times


def punctuations(old: Sequence[CommitPointer]) -> dict[str, tuple[RecordedPunctuation, ...]]:
    """Return when each schedule is due next: when it first is in one of the shards, so that none is missed.

    It is cancelled only if it is in all shards that have it. Where shards know different schedules, as some were not
    called since the topology was changed, those count that have seen the latest time.
    """
    merged: dict[str, tuple[RecordedPunctuation, ...]] = {}
    for pointer in sorted(old, key=lambda pointer: pointer.stream_time_ms, reverse=True):
        for node, schedules in pointer.punctuations.items():
            known = merged.setdefault(node, tuple(schedules))
            merged[node] = tuple(
                _earliest(known[number], schedules[number]) if number < len(schedules) else known[number]
                for number in range(len(known))
            )
    return merged


def processor_metadata(old: Sequence[CommitPointer]) -> dict[str, int]:
    """Return the numbers of processors: the lowest of each name, of the shards that were in use.

    A time that is too early has a processor take or emit something once more, one that is too late has it drop what is
    still to come. A name that one of these shards lacks is left out: there it was earlier than any number. What a node
    has seen counts of all shards: one that was not in use has seen nothing. Counts are left out, too: of what a new
    shard holds, they say nothing.
    """
    used = [each for each in old if each.version or each.stream_time_ms >= 0 or each.processor_metadata]
    names = used[0].processor_metadata if used else ()
    return {
        name: min(pointer.processor_metadata[name] for pointer in used)
        for name in names
        if not name.startswith(COUNT_PREFIX)
        and all(name in pointer.processor_metadata for pointer in (old if name.endswith(TIME_SUFFIX) else used))
    }


def _earliest(one: RecordedPunctuation, other: RecordedPunctuation) -> RecordedPunctuation:
    if one[:3] != other[:3]:
        return one
    times_ms = [schedule.next_ms for schedule in (one, other) if schedule.next_ms is not None]
    return one._replace(next_ms=min(times_ms, default=None))
