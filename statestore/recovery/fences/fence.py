"""Fences: which run of a query may write to a shard, and what it went on from.

A run is one start of a query. Before it first writes to a shard it leaves a fence there, one epoch above the last: the
run with the highest fence goes on, every other one stops at its next commit. That stops a driver that was given up and
its executors, a query that was started twice from one checkpoint, and a second operator on the same location. None of
them can do harm before: each attempt writes under names of its own.

A fence also names the delta that its run went on from, see `history`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import NamedTuple

from statestore.errors.state import DurableFileCorruptedError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.location.durable_json import MAX_NOTE_BYTES, from_durable_json, to_durable_json
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import FenceName, Written, fence_name, parse_delta_name, parse_fence_name

FENCE_FORMAT = 1


class Fence(NamedTuple):
    """What a fence says: the run's place among the runs, and the version of the shard that it went on from."""

    epoch: int
    run: str
    from_version: int | None
    """None if the fence can't be read."""
    host: str = "an unknown host"
    """Where it was written, for people."""
    time_ms: int = 0
    """When it was written, for people: nothing depends on it."""
    retained_versions: int | None = None
    """How many versions before the last one the run keeps; None if it is not recorded."""
    head: str | None = None
    """The delta that the run went on from, "" for version 0; None if it is not recorded, or the fence can't be read."""
    went_back: bool | None = None
    """Whether it gave up what was known to be committed; None if it is not recorded, or can't be read."""

    @property
    def head_epoch(self) -> int | None:
        """The epoch that made `head`; None if there is no such delta, or it is not recorded."""
        written = parse_delta_name(self.head or "")
        return None if written is None else written.epoch

    @property
    def gives_up(self) -> bool:
        """Whether it gave up earlier runs that went on from its version; assumed of fences that do not record it."""
        return self.from_version is not None and self.went_back is not False

    def describe(self) -> str:
        """Return the fence in words."""
        if self.from_version is None:
            return f"run {self.run} (its fence can't be read)"
        started = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.time_ms / 1000))
        return f"run {self.run} (on {self.host}, {started}, from version {self.from_version})"


def read_fences(location: DurableLocation, names: Iterable[str], known: dict[str, Fence] | None = None) -> list[Fence]:
    """Return the fences among the names, lowest epoch first; `known` has those read before, and gets the others."""
    fences = {} if known is None else known
    parsed = {name: found for name in names if (found := parse_fence_name(name)) is not None}
    for name, found in parsed.items():
        if name not in fences:
            fences[name] = _read_fence(location, name, found)
    return sorted(fences[name] for name in parsed)


def _read_fence(location: DurableLocation, name: str, parsed: FenceName) -> Fence:
    try:
        fields = from_durable_json(location.read(name, MAX_NOTE_BYTES))
        retained_versions = fields.get("retained_versions")
        retained = None if retained_versions is None else whole_number(retained_versions, 1)
        version, time_ms = whole_number(fields["version"], 0), whole_number(fields["time_ms"], 0)
        fence = Fence(*parsed, version, str(fields["host"]), time_ms, retained)
        if fields.get("head") is None:
            return fence  # not all releases recorded it
        head, went_back = str(fields["head"]), fields["went_back"]
        written = parse_delta_name(head) or Written(0, 0)
        if written.version != version or (version > 0 and written.epoch >= fence.epoch):
            raise ValueError(f"no run went on from {head!r} at version {version}")
        if type(went_back) is not bool:
            raise ValueError(f"{went_back!r} does not say whether it went back")
        return fence._replace(head=head, went_back=went_back)
    except (*MALFORMED, DurableFileCorruptedError):
        # It still fences, but does not tell what it gave up: a stale checkpoint must not pass for current.
        return Fence(*parsed, None)


def write_fence(location: DurableLocation, shard: int, fence: Fence) -> None:
    """Leave a fence in a shard."""
    fields = {
        "format": FENCE_FORMAT,
        "run": fence.run,
        "version": fence.from_version,
        "head": fence.head,
        "went_back": fence.went_back,
        "host": fence.host,
        "time_ms": fence.time_ms,
        "retained_versions": fence.retained_versions,
    }
    location.write(fence_name(shard, FenceName(fence.epoch, fence.run)), to_durable_json(fields).encode())
