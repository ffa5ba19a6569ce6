"""What the commit pointers of a state's shards say beside what is in the stores, for shards of another number.

Why each is what it is: ADR 7, and ADR 24 for processor metadata.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.commit.processor_metadata import COUNT_PREFIX
from statestore.recovery.commit.punctuations import RecordedPunctuation


def carry_over(
    old: Sequence[CommitPointer], state_id: str, deltas: Sequence[Sequence[DurableFile]]
) -> list[CommitPointer]:
    """Return the initial pointers of shards that have these deltas, made from all of the old state's pointers.

    With as many shards as there were, each goes on from its own.
    """
    if len(old) == len(deltas):
        return [
            replace(pointer, state_id=state_id, version=len(files), snapshots=(), deltas=tuple(files))
            for pointer, files in zip(old, deltas, strict=True)
        ]
    template = CommitPointer(
        state_id,
        0,
        stream_time_ms=max(pointer.stream_time_ms for pointer in old),
        store_times_ms=store_times(old),
        punctuations=punctuations(old),
        processor_metadata=processor_metadata(old),
    )
    skipped_records = sum(pointer.skipped_records for pointer in old)
    return [
        replace(
            template,
            shard=shard,
            version=len(files),
            deltas=tuple(files),
            skipped_records=0 if shard else skipped_records,
        )
        for shard, files in enumerate(deltas)
    ]


def store_times(old: Sequence[CommitPointer]) -> dict[str, int]:
    """Return the stream time of each segmented store: the earliest of those shards that have put something into it.

    A later one would have entries of the other shards expire that are live there.
    """
    times: dict[str, int] = {}
    for pointer in old:
        for store, time_ms in pointer.store_times_ms.items():
            if time_ms >= 0:
                times[store] = min(times.get(store, time_ms), time_ms)
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
    still to come. A name that one of these shards lacks is left out: there it was earlier than any number. Counts are
    left out, too: of what a new shard holds, they say nothing.
    """
    used = [each for each in old if each.version or each.stream_time_ms >= 0 or each.processor_metadata]
    names = used[0].processor_metadata if used else ()
    return {
        name: min(pointer.processor_metadata[name] for pointer in used)
        for name in names
        if not name.startswith(COUNT_PREFIX) and all(name in pointer.processor_metadata for pointer in used)
    }


def _earliest(one: RecordedPunctuation, other: RecordedPunctuation) -> RecordedPunctuation:
    if one[:3] != other[:3]:
        return one
    times_ms = [schedule.next_ms for schedule in (one, other) if schedule.next_ms is not None]
    return one._replace(next_ms=min(times_ms, default=None))
