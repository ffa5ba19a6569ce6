"""Fences, and the history that they tell: which run of a query made which version of a shard.

A run is one start of a query. Before it first writes to a shard it leaves a fence there, one epoch above the last: the
run with the highest fence goes on, every other one stops at its next commit. That stops a driver that was given up and
its executors, a query that was started twice from one checkpoint, and a second operator on the same location. None of
them can do harm before: each attempt writes under names of its own.

Each run went on from one delta, which its fence names, and made all versions after that by itself. So the walk back
from a run, from fence to fence, gives one owner for each version: the line that the run stands on. What other runs made
of these versions was given up.

The walk ends early at a fence that is gone, can't be read, or was written by a release that did not record its delta.
Older versions are judged by their numbers: only what a later run did not go on from was given up.

A version is known to be committed if a run went on from it, or if there is a delta of the next version: that was built
on it.

Two runs that enter at once may leave fences of one epoch, of which at most one writes. The names of its deltas say
which; the other one has made nothing, and shows only that what it went on from was committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from statestore.errors.readable import utc_text
from statestore.errors.state import DurableFileCorruptedError
from statestore.format.json_fields import MALFORMED, whole_number
from statestore.recovery.location.durable_json import MAX_NOTE_BYTES, from_durable_json, to_durable_json
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import (
    FenceName,
    Written,
    fence_name,
    parse_delta_name,
    parse_delta_writer,
    parse_fence_name,
    writer_of,
)

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
        return f"run {self.run} (on {self.host}, {utc_text(self.time_ms)}, from version {self.from_version})"


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


EPOCH_BEFORE_FENCES = 0


class Behind(NamedTuple):
    """A pointer is behind what was committed on its own line: up to `version`, by the run of `epoch`."""

    version: int
    epoch: int


class Abandoned(NamedTuple):
    """A pointer is not on the line that went on; `since` is the last version that both share, `by` gave it up."""

    since: int
    by: Fence | None
    """None if no remaining fence tells."""


class Line:
    """The history that one run stands on: a fence for each run in it, newest first, as far as known."""

    def __init__(
        self, fences: Sequence[Fence], open_at: int | None, earlier: Sequence[Fence], *, has_made: bool = True
    ) -> None:
        self.fences = fences
        self.has_made = has_made
        """Whether the run may have made versions of its own; if not, those of its epoch are another run's."""
        self.open_at = open_at
        """The highest epoch that can have made what is older than the fences tell; None if nothing is older."""
        self._earlier = earlier

    @property
    def turns(self) -> set[int]:
        """The versions after which another run may have gone on."""
        return {_begin(fence) for fence in (*self.fences, *self._earlier)}

    def holds(self, written: Written) -> bool:
        """Return whether this version of this epoch is on the line, as far as is known."""
        if written.version == 0:
            return True
        for fence in self.fences:
            if written.version > _begin(fence):
                return written.epoch == fence.epoch and (self.has_made or fence is not self.fences[0])
        if self.open_at is None or written.epoch > self.open_at:
            return False
        return not any(fence.epoch > written.epoch and written.version > _begin(fence) for fence in self._earlier)

    def proven(self, deltas: Iterable[Written]) -> Written:
        """Return the last version that is known to be committed on the line, and the run that made it, if known."""
        versions = {_begin(fence): self.open_at or EPOCH_BEFORE_FENCES for fence in self.fences}
        versions.update((written.version - 1, written.epoch) for written in deltas if self.holds(written))
        newest = max(versions, default=0)
        makers = (fence.epoch for fence in self.fences if newest > _begin(fence))
        return Written(newest, next(makers, versions.get(newest, EPOCH_BEFORE_FENCES)))

    def last_shared_version(self, other: Line, version: int) -> int:
        """Return the last version up to `version`, which this line has, that both lines have from the same run."""
        newest = version
        makers = [(fence.epoch, _begin(fence)) for fence in self.fences]
        for epoch, begin in [*makers, (self.open_at or EPOCH_BEFORE_FENCES, 0)]:
            candidates = {newest, *self.turns, *other.turns}
            shared = [end for end in candidates if begin < end <= newest and other.holds(Written(end, epoch))]
            if shared:
                return max(shared)
            newest = min(newest, begin)
        return 0


class Tip(NamedTuple):
    """A run, and the line that ends with it."""

    fence: Fence | None
    """None if it is gone, or there are several of its epoch and nothing says which of them has written."""
    line: Line
    has_written: bool
    was_refused: bool = False
    """Whether another run of its epoch has written: then this one was fenced or refused, and has given up nothing."""


class Histories:
    """The lines of a shard, from its fences and the names of the deltas that are known."""

    def __init__(self, fences: Iterable[Fence], names: Iterable[str] = ()) -> None:
        self._by_epoch: dict[int, list[Fence]] = {}
        for fence in sorted(fences):
            self._by_epoch.setdefault(fence.epoch, []).append(fence)
        heads = (fence.head or "" for fences in self._by_epoch.values() for fence in fences)
        self._writers: dict[int, set[str]] = {}
        for name in (*names, *heads):
            written, writer = parse_delta_name(name), parse_delta_writer(name)
            if written is not None and writer is not None:
                self._writers.setdefault(written.epoch, set()).add(writer)

    def line(self, epoch: int, origin: str | None = None) -> Line:
        """Return the line that the run of an epoch stands on; `origin` is the delta that it went on from, if known."""
        tip = self.fence(epoch, origin)
        return self._line_from([], epoch) if tip is None else self._line_of(tip)

    def _line_of(self, tip: Fence, *, has_made: bool = True) -> Line:
        ancestors: list[Fence] = []
        fence: Fence | None = tip
        epoch = tip.epoch
        while fence is not None and fence.from_version is not None:
            ancestors.append(fence)
            if fence.head is None:
                return self._line_from(ancestors, epoch - 1, has_made=has_made)
            if fence.head_epoch is None:
                return Line(ancestors, None, (), has_made=has_made)
            epoch = fence.head_epoch
            fence = self.fence(epoch)
        return self._line_from(ancestors, epoch, has_made=has_made)

    def _line_from(self, ancestors: Sequence[Fence], open_at: int, *, has_made: bool = True) -> Line:
        readable = (fence for fences in self._by_epoch.values() for fence in fences if fence.from_version is not None)
        return Line(ancestors, open_at, [fence for fence in readable if fence.epoch <= open_at], has_made=has_made)

    @property
    def current(self) -> Line:
        """The line of the newest run."""
        return self.line(max(self._by_epoch, default=EPOCH_BEFORE_FENCES))

    def fence(self, epoch: int, origin: str | None = None) -> Fence | None:
        """Return the fence of an epoch: of several the writer's, else, if none says, one that went on from `origin`."""
        found = self._by_epoch.get(epoch, [])
        if len(found) > 1:
            wrote = self._fences_of_writers(epoch)
            found = wrote or [fence for fence in found if origin is None or fence.head == origin]
        return found[-1] if len({(fence.from_version, fence.head) for fence in found}) == 1 else None

    def _fences_of_writers(self, epoch: int) -> list[Fence]:
        writers = self._writers.get(epoch, ())
        return [fence for fence in self._by_epoch.get(epoch, []) if writer_of(fence.run) in writers]

    def _tips(self, epoch: int, deltas: Sequence[Written]) -> Iterator[Tip]:
        fences, wrote = self._by_epoch.get(epoch, []), self._fences_of_writers(epoch)
        has_written = any(delta.epoch == epoch for delta in deltas)
        if len(fences) < 2 or (has_written and len(wrote) != 1):
            yield Tip(self.fence(epoch), self.line(epoch), has_written)
            return
        for fence in fences:
            if fence in wrote:
                yield Tip(fence, self.line(epoch), has_written)
            elif fence.from_version is not None:
                yield Tip(fence, self._line_of(fence, has_made=False), False, was_refused=bool(wrote))

    def judge(self, head: Written, deltas: Sequence[Written], origin: str | None = None) -> Behind | Abandoned | None:
        """Return what keeps a run from going on from the delta `head`, unless it accepts to go back; None if nothing.

        The lines of later runs are looked at, newest first, and then that of `head` itself. A run that went on from
        `head` or before it in the usual way, and of which nothing is known to be committed, decides nothing: it may
        have crashed, or not have seen a commit that was on its way. Nor does one that went back and wrote nothing: it
        may have been refused for files that are gone.

        `origin` is the delta that the run went on from that made `head`, "" for version 0; None if it is not known.
        """
        own = self.line(head.epoch, origin)
        later = {epoch for epoch in (*self._by_epoch, *(delta.epoch for delta in deltas)) if epoch > head.epoch}
        tips = (tip for epoch in sorted(later, reverse=True) for tip in self._tips(epoch, deltas))
        for tip, line, has_written, was_refused in tips:
            proven = line.proven(deltas)
            if line.holds(head):
                if proven.version > head.version:
                    return Behind(*proven)
                if tip is not None and tip.gives_up and (has_written or tip.went_back is None):
                    return None
                continue
            if was_refused:
                continue
            since = own.last_shared_version(line, head.version)
            has_gone_back = tip is not None and tip.went_back is True and has_written
            if proven.version > since or has_gone_back:
                # The oldest of them took over; those after it may be restarts.
                return Abandoned(since, next((f for f in reversed(line.fences) if f.epoch > head.epoch), tip))
        proven = own.proven(deltas)
        return Behind(*proven) if proven.version > head.version else None


def _begin(fence: Fence) -> int:
    return fence.from_version or 0
