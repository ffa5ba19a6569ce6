"""The order in which a state's versions are put into another one, so that no put has one expire that is to stay.

What is put as one delta lets expire what ended before its latest version by the retention or more. So the latest of all
that is put comes first: what is there when a delta is applied ended after all that it lets expire.

A shard's versions up to its stream time did not expire by that, so they are one part. Later ones are there if the state
was rescaled before: stream time is then the earliest of those that its shards had. They are put in more parts before.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from statestore.recovery.making.logical_writes import LogicalWrite


class Part(NamedTuple):
    """Those versions of a shard that begin after `after_ms`, and at `up_to_ms` at the latest; None is no limit."""

    shard: int
    after_ms: int | None = None
    up_to_ms: int | None = None

    def of(self, writes: list[LogicalWrite]) -> list[LogicalWrite]:
        """Return which of some versions belong to the part."""
        after_ms, up_to_ms = self.after_ms, self.up_to_ms
        if after_ms is None and up_to_ms is None:
            return writes
        return [
            write
            for write in writes
            if write.timestamp_ms is not None
            and (after_ms is None or write.timestamp_ms > after_ms)
            and (up_to_ms is None or write.timestamp_ms <= up_to_ms)
        ]


def parts(
    shard: int, stream_time_ms: int, retention_ms: int, versions: Iterable[list[LogicalWrite]]
) -> list[tuple[int, Part]]:
    """Return the parts of a shard's versions, each with its latest time; they are as `logical_writes` yields them."""
    latest_ms = stream_time_ms
    ended: dict[int, int] = {}
    """Of the versions after stream time, by when they ended, in steps of the retention: when the last of them began."""
    step_ms = max(1, retention_ms)
    before: LogicalWrite | None = None

    def end(began: LogicalWrite, end_ms: int) -> None:
        began_ms = began.timestamp_ms or 0
        if began_ms > stream_time_ms:
            ended[end_ms // step_ms] = max(began_ms, ended.get(end_ms // step_ms, began_ms))

    for writes in versions:
        for write in writes:
            time_ms = write.timestamp_ms or 0
            latest_ms = max(latest_ms, time_ms)
            if write.stored is None:
                end(write, time_ms)  # the segment of its own time has it
            if before is not None and before.key == write.key and before.stored is not None:
                end(before, time_ms)
            before = write
    if latest_ms == stream_time_ms:
        return [(stream_time_ms, Part(shard))]
    cuts_ms = [latest_ms]
    while expiring := [began for at, began in ended.items() if at * step_ms < cuts_ms[-1] - retention_ms]:
        cuts_ms.append(max(expiring))
    limits = zip(cuts_ms, [*cuts_ms[1:], stream_time_ms], strict=True)
    ahead = [(up_to_ms, Part(shard, after_ms, up_to_ms)) for up_to_ms, after_ms in limits]
    return [*ahead, (stream_time_ms, Part(shard, None, stream_time_ms))]
