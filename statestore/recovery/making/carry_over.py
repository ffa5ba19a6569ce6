"""What commit pointers say beside the stores, carried over to another number of shards.

For the reasons see ADR 7, ADR 24 for processor metadata, and ADR 31 for late records.
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

    `versioned` names the stores of versions. If the number of shards stays, each goes on from its own. Raises
    NewStateError for more earlier numbers of shards than a pointer holds.
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
    """Return the pointers of the old shards whose keys a new one may have: a key's shard is a number modulo shards."""
    apart = gcd(len(old), shards)
    return [pointer for pointer in old if (pointer.shard - shard) % apart == 0]


def store_times(old: Sequence[CommitPointer], versioned: Collection[str] = ()) -> dict[str, int]:
    """Return the stream time of each segmented store: the earliest of the shards.

    A later one would let entries of other shards expire that are live there, or are still to come. For stores of
    versions, only shards that have put something count; other stores have no time if one of the shards has none.
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
    """Return when each schedule is due next: when it is due first in any of the shards, so that none is missed.

    It is cancelled only if all shards that have it have cancelled it. If shards know different schedules, as some were
    not called since the topology was changed, those of the shard with the latest time count.
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

    With a time that is too early a processor takes or emits something once more; with one that is too late it drops
    what is still to come. A name that one of these shards lacks is left out: there it was earlier than any number. A
    time that a node has seen must be in all shards: one that was not in use has seen nothing. Counts are left out, as
    they do not apply to new shards.
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
