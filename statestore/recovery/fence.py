"""Fences: which run of a query may write to a shard.

A run is one start of a query. Before it first writes to a shard it leaves a fence there, one epoch above the last: the
run with the highest fence is the one that goes on, every other one stops at its next commit. So a driver that was given
up and its executors, a query that was started twice from one checkpoint, and a second operator on the same location
are found out. None of them can do harm before that: what an attempt writes has a name of its own.

A fence also says from which version its run went on. What runs before it wrote beyond that was given up.

A delta of version n + 2 proves that version n + 1 was committed: it was written on top of it. That is how an attempt
learns that its batch was committed without it, and a run that its checkpoint is behind.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from statestore.errors import AttemptOutdatedError, CheckpointBehindError, LocationError, RunFencedError
from statestore.recovery.json_fields import MALFORMED, whole_number
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.shard_files import (
    MAX_EPOCH,
    FenceName,
    Written,
    delta_directory,
    fence_name,
    parse_delta_name,
    parse_fence_name,
)

FENCE_FORMAT = 1


class Fence(NamedTuple):
    """What a fence says: the run's place among the runs, and the version of the shard that it went on from."""

    epoch: int
    run: str
    from_version: int | None
    """None if the fence can't be read."""
    host: str = "an unknown host"
    """Where it was written, for the operator."""
    time_ms: int = 0
    """When it was written, for the operator: nothing depends on it."""
    retained_versions: int | None = None
    """How many versions before the last one the run keeps; None if it is not recorded."""

    def describe(self) -> str:
        """Return the fence in words."""
        if self.from_version is None:
            return f"run {self.run} (its fence can't be read)"
        started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.time_ms / 1000))
        return f"run {self.run} (on {self.host}, {started}, from version {self.from_version})"


class Abandoned:
    """Which files were written by runs that a later one took over from, beyond where it went on from.

    Any later one counts, not only the next: it may have gone back further. A fence that can't be read gives up nothing.
    """

    def __init__(self, fences: Iterable[Fence]) -> None:
        self._from_versions = [(fence.epoch, fence.from_version) for fence in fences if fence.from_version is not None]

    def __contains__(self, written: Written) -> bool:
        return any(
            epoch > written.epoch and written.version > from_version for epoch, from_version in self._from_versions
        )


def read_fences(location: DurableLocation, names: Iterable[str]) -> list[Fence]:
    """Return the fences among the names, lowest epoch first. One that can't be read has no `from_version`."""
    fences = []
    for name in names:
        parsed = parse_fence_name(name)
        if parsed is not None:
            fences.append(_read_fence(location, name, parsed))
    return sorted(fences)


def _read_fence(location: DurableLocation, name: str, parsed: FenceName) -> Fence:
    data = location.read(name)
    try:
        fields = json.loads(b"" if data is None else data.to_pybytes())
        retained_versions = fields.get("retained_versions")
        return Fence(
            *parsed,
            whole_number(fields["version"], 0),
            str(fields["host"]),
            whole_number(fields["time_ms"], 0),
            None if retained_versions is None else whole_number(retained_versions, 1),
        )
    except MALFORMED:
        # It still fences. What it gave up is not known, so nothing is: a stale checkpoint must not pass for current.
        return Fence(*parsed, None)


@dataclass(frozen=True)
class RunFences:
    """Leaves and checks the fences of one run, shard by shard. `run` is letters and digits, at most 64.

    `retained_versions` is recorded for the tools that remove garbage; None records nothing.
    """

    location: DurableLocation
    run: str
    accept_older_checkpoint: bool = False
    retained_versions: int | None = None

    def hold(self, pointer: CommitPointer) -> int:
        """Return the run's epoch in the shard, before a commit on top of `pointer`; leave a fence if there is none.

        Raises RunFencedError if another run has taken over, AttemptOutdatedError if another attempt's commit has
        been built on, CheckpointBehindError if the location has commits that the checkpoint does not know, and
        LocationError if there is no epoch left.
        """
        names = self.location.names(delta_directory(pointer.shard))
        fences = sorted(fence for name in names if (fence := parse_fence_name(name)) is not None)
        mine = [fence.epoch for fence in fences if fence.run == self.run]
        if not mine:
            return self._enter(pointer, names, self._next_epoch(pointer.shard, fences))
        epoch = mine[-1]
        if fences[-1] > FenceName(epoch, self.run):
            newest = read_fences(self.location, names)[-1]
            raise RunFencedError(str(self.location), shard=pointer.shard, run=self.run, by=newest.describe())
        for name in names:
            written = parse_delta_name(name)
            if written is not None and written.epoch == epoch and written.version > pointer.version + 1:
                raise AttemptOutdatedError(
                    str(self.location), shard=pointer.shard, version=pointer.version, found=written.version
                )
        return epoch

    def _next_epoch(self, shard: int, fences: list[FenceName]) -> int:
        if not fences:
            return 1
        if fences[-1].epoch >= MAX_EPOCH:
            # A name with more digits would not be known for a fence, and so fence nobody.
            raise LocationError(
                str(self.location),
                f"{fence_name(shard, fences[-1])} has the last epoch that there is, so no run can take over from it. "
                "Epochs are counted one by one, so this is no fence of ours: see who has put it there, and remove it",
            )
        return fences[-1].epoch + 1

    def _enter(self, pointer: CommitPointer, names: list[str], epoch: int) -> int:
        fences = read_fences(self.location, names)
        abandoned = Abandoned(fences)
        deltas = (written for name in names if (written := parse_delta_name(name)) is not None)
        beyond = [written for written in deltas if written.version > pointer.version + 1 and written not in abandoned]
        if beyond and not self.accept_older_checkpoint:
            newest = max(beyond)
            writers = [fence.describe() for fence in fences if fence.epoch == newest.epoch]
            raise CheckpointBehindError(
                str(self.location),
                shard=pointer.shard,
                version=pointer.version,
                found=newest.version - 1,
                writer=writers[0] if writers else "a run before there were fences",
            )
        fence = {
            "format": FENCE_FORMAT,
            "run": self.run,
            "version": pointer.version,
            "host": socket.gethostname(),
            "time_ms": time.time_ns() // 1_000_000,
            "retained_versions": self.retained_versions,
        }
        name = fence_name(pointer.shard, FenceName(epoch, self.run))
        self.location.write(name, json.dumps(fence).encode())
        return epoch
