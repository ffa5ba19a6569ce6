"""Lines of history: which run made which version of a shard.

Each run went on from one delta, which its fence names, and made all versions after that by itself. So from a run one
can walk back, from fence to fence, and has one owner for each version: the line that the run stands on. Whatever other
runs made of a version was given up, by whoever went on without it.

The walk ends early at a fence that is gone, can't be read, or was written by a release that did not record its delta.
What is older is judged by versions: given up is what any later run did not go on from, and nothing else.

Known to be committed is what a run went on from, and version n + 1 by a delta of version n + 2, which was built on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from statestore.recovery.fences.fence import Fence
from statestore.recovery.location.shard_files import Written

EPOCH_BEFORE_FENCES = 0


class Behind(NamedTuple):
    """A pointer is behind what was committed on its own line: up to `version`, by the run of `epoch`."""

    version: int
    epoch: int


class Abandoned(NamedTuple):
    """A pointer is not on the line that went on; `since` is the last version that both have, `by` gave it up."""

    since: int
    by: Fence | None
    """None if no fence that is left says it."""


class Line:
    """The history that one run stands on: a fence for each run that has part in it, newest first, as far as known."""

    def __init__(self, fences: Sequence[Fence], open_at: int | None, earlier: Sequence[Fence]) -> None:
        self.fences = fences
        self.open_at = open_at
        """Of what is older than the fences say, the highest epoch that can have made it; None if nothing is older."""
        self._earlier = earlier

    @property
    def turns(self) -> set[int]:
        """The versions after which another run may have gone on."""
        return {_begin(fence) for fence in (*self.fences, *self._earlier)}

    def holds(self, written: Written) -> bool:
        """Return whether the line has what a run of this epoch made of this version, as far as can be told."""
        if written.version == 0:
            return True
        for fence in self.fences:
            if written.version > _begin(fence):
                return written.epoch == fence.epoch
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
        """Return the last version up to `version`, which this line has, that the other one has from the same run."""
        newest = version
        makers = [(fence.epoch, _begin(fence)) for fence in self.fences]
        for epoch, begin in [*makers, (self.open_at or EPOCH_BEFORE_FENCES, 0)]:
            candidates = {newest, *self.turns, *other.turns}
            shared = [end for end in candidates if begin < end <= newest and other.holds(Written(end, epoch))]
            if shared:
                return max(shared)
            newest = min(newest, begin)
        return 0


class Histories:
    """The lines of a shard, from its fences."""

    def __init__(self, fences: Iterable[Fence]) -> None:
        self._by_epoch: dict[int, list[Fence]] = {}
        for fence in sorted(fences):
            self._by_epoch.setdefault(fence.epoch, []).append(fence)

    def line(self, epoch: int, origin: str | None = None) -> Line:
        """Return the line that the run of an epoch stands on; `origin` is the delta that it went on from, if known."""
        ancestors: list[Fence] = []
        while True:
            fence = self.fence(epoch, None if ancestors else origin)
            if fence is None or fence.from_version is None:
                break
            ancestors.append(fence)
            if fence.head is None:
                epoch -= 1
                break
            if fence.head_epoch is None:
                return Line(ancestors, None, ())
            epoch = fence.head_epoch
        readable = (fence for fences in self._by_epoch.values() for fence in fences if fence.from_version is not None)
        return Line(ancestors, epoch, [fence for fence in readable if fence.epoch <= epoch])

    @property
    def current(self) -> Line:
        """The line of the newest run."""
        return self.line(max(self._by_epoch, default=EPOCH_BEFORE_FENCES))

    def fence(self, epoch: int, origin: str | None = None) -> Fence | None:
        """Return the fence of an epoch, which one of several runs has written to that went on from `origin`.

        Two that entered at once may both have taken it, of which one writes. Without `origin` they must agree.
        """
        found = self._by_epoch.get(epoch, [])
        if len(found) > 1 and origin is not None:
            found = [fence for fence in found if fence.head == origin]
        return found[-1] if len({(fence.from_version, fence.head) for fence in found}) == 1 else None

    def judge(self, head: Written, deltas: Sequence[Written], origin: str | None = None) -> Behind | Abandoned | None:
        """Return why no run may go on from the delta `head` without saying that it goes back; None if it may.

        The lines of later runs are looked at, newest first, and then that of `head` itself. A run that went on from
        `head` or before it in the usual way, and of which nothing is known to be committed, decides nothing: it may
        have crashed, or not have seen a commit that was on its way. Nor does one that went back and wrote nothing: it
        may have been refused for files that are gone.

        `origin` is the delta that the run went on from that made `head`, "" for version 0; None if it is not known.
        """
        own = self.line(head.epoch, origin)
        later = {epoch for epoch in (*self._by_epoch, *(delta.epoch for delta in deltas)) if epoch > head.epoch}
        for epoch in sorted(later, reverse=True):
            line, tip = self.line(epoch), self.fence(epoch)
            has_written = any(delta.epoch == epoch for delta in deltas)
            proven = line.proven(deltas)
            if line.holds(head):
                if proven.version > head.version:
                    return Behind(*proven)
                if tip is not None and tip.gives_up and (has_written or tip.went_back is None):
                    return None
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
