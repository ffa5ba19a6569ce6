"""Publishes heads, given the shard calls of each batch that Spark has committed.

A batch has calls of some shards only; the others keep their pointers. So a run knows what is committed in all shards if
it knew that for the batch before. Each call says from which pointer it went on: one that is not the known one shows
that something was missed. Then nothing is published until each shard was called.

Where a run does not know the batch before, as at its start, it takes the newest head's pointers if a call went on from
a delta of the head's batch: then the run's checkpoint has this batch. The batch's number proves nothing, as two copies
of a checkpoint may run. Otherwise Spark's checkpoint is asked, if it can be: that takes a job.

A run takes the order above the highest if no later run has committed, which epochs in the names of deltas tell. It asks
for it with its head under a name that no reader takes, and lists once more: of two runs that ask for one order, at
least one sees the other. A publisher may be made for one batch: it goes on from the head that its run has published.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import NamedTuple

from statestore.errors import RecoveryError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.fences.run_fences import head_of
from statestore.recovery.heads.figures import HeadFigures
from statestore.recovery.heads.head import (
    ASKED,
    HEADS_DIRECTORY,
    MAX_ORDER,
    PUBLISHED,
    Head,
    HeadName,
    head_names,
    newest_head,
    read_head,
    write_head,
)
from statestore.recovery.location.durable_files import is_partial, whole_name
from statestore.recovery.location.durable_json import digest
from statestore.recovery.location.durable_location import DurableLocation

_LOG = logging.getLogger(__name__)
_KEPT = 2
"""Heads of a run that stay: the last one, and the one before, which somebody may be reading."""


class ShardCommit(NamedTuple):
    """What a shard call has committed, and what it went on from."""

    pointer: str
    """As JSON."""
    went_on_from: str
    """`identity` of the pointer that it was given."""


def identity(pointer: CommitPointer) -> str:
    """Return a short text that no other pointer has."""
    return digest(pointer.to_json().encode())


@dataclass
class HeadPublisher:
    """Publishes the heads of one run of a query in one state. Not for several threads."""

    location: DurableLocation
    state_id: str
    shards: int
    began: Callable[[int], CommitPointer]
    """Returns the pointer that a shard starts from for which Spark has none."""
    _: KW_ONLY
    query: str
    run: str
    recorded: Callable[[int], list[CommitPointer]] | None = None
    """Returns all pointers of the state that the checkpoint has after a batch; none if it can't be read."""
    _batch: int = field(default=-1, init=False)
    _known: dict[int, CommitPointer] = field(default_factory=dict, init=False)
    _figures: HeadFigures = field(default_factory=HeadFigures, init=False)
    _order: int | None = field(default=None, init=False)
    _published: list[HeadName] = field(default_factory=list, init=False)

    def take(self, batch: int, calls: Iterable[ShardCommit], figures: HeadFigures | None = None) -> Head | None:
        """Return the head that was published of a committed batch, None if it is not known in full, or not the newest.

        `figures` are the batch's, if they are known. Raises RecoveryError and LocationError.
        """
        if self._batch == -1:
            self._go_on(batch)
        if batch <= self._batch:
            return None  # it was reported before
        calls = list(calls)
        known = self._known if batch == self._batch + 1 and self._known else self._before(batch, calls)
        self._batch, self._known = batch, {}
        self._known = self._after(known, calls)
        self._figures = self._figures.then(figures or HeadFigures())
        if len(self._known) < self.shards:
            return None
        pointers = tuple(self._known[shard] for shard in range(self.shards))
        changed = tuple(shard for shard in sorted(known) if known[shard].head != pointers[shard].head)
        now_ms = time.time_ns() // 1_000_000
        head = Head(self.state_id, self.query, self.run, batch, now_ms, pointers, changed, self._figures)
        return head if self._publish(head) else None

    def _go_on(self, batch: int) -> None:
        """Take over what the newest head tells of the batches before, if it is of this query, or of this run."""
        head = self._newest()
        if head is None or head.query != self.query:
            return
        self._figures = head.figures.before(batch)
        if head.run == self.run:
            self._batch, self._known = head.batch, {pointer.shard: pointer for pointer in head.pointers}

    def _before(self, batch: int, calls: Iterable[ShardCommit]) -> dict[int, CommitPointer]:
        """Return the pointers before a batch, from the newest head or from the checkpoint; none if neither tells."""
        if batch == 0:
            return {shard: self.began(shard) for shard in range(self.shards)}
        head = self._newest()
        if head is not None and (head.query, head.batch) == (self.query, batch - 1):
            written = {identity(head.pointers[shard]) for shard in head.changed}
            if not written.isdisjoint(call.went_on_from for call in calls):
                return {pointer.shard: pointer for pointer in head.pointers}
        found = [] if self.recorded is None else self.recorded(batch - 1)
        if not found:
            return {}
        return {shard: self.began(shard) for shard in range(self.shards)} | {each.shard: each for each in found}

    def _newest(self) -> Head | None:
        try:
            return newest_head(self.location, self.state_id)
        except RecoveryError as damaged:
            _LOG.warning("%s", damaged)
            return None

    def _after(self, known: Mapping[int, CommitPointer], calls: Iterable[ShardCommit]) -> dict[int, CommitPointer]:
        """Return the pointers after these calls, without shards whose calls committed different ones."""
        found: dict[int, dict[str, CommitPointer]] = {}
        is_continued = True
        for call in calls:
            pointer = CommitPointer.from_json(call.pointer)
            shard = pointer.shard
            found.setdefault(shard, {})[call.pointer] = pointer
            is_continued &= shard not in known or identity(known[shard]) == call.went_on_from
        if not is_continued:
            _LOG.info("%s: a commit was missed; the next head comes once each shard was called", self.location)
        pointers = dict(known) if is_continued else {}
        for shard, texts in found.items():
            pointers.pop(shard, None)
            if len(texts) == 1:
                pointers[shard] = next(iter(texts.values()))
        return pointers

    def _publish(self, head: Head) -> bool:
        names: list[HeadName] = []
        if self._order is None:
            names = self._names()
            own = [name for name in names if name.run == self.run]
            rivals = _rivals(names, own[-1]) if own else names
            if own and not rivals:
                self._order, self._published = own[-1].order, own
            elif own:  # it was stopped before it looked once more
                self.location.delete_all(name.file for name in own)
                names = rivals
        if self._order is not None:
            self._published.append(write_head(self.location, self._order, head))
            self.location.delete_all(name.file for name in self._published[:-_KEPT])
            del self._published[:-_KEPT]
            return True
        while (order := self._order_over(names, head)) is not None:
            asked = write_head(self.location, order, head, ASKED)
            names = self._names()
            others = _rivals(names, asked)
            if not others:
                self._order, self._published = order, [write_head(self.location, order, head)]
                self.location.delete_all(name.file for name in names if name.order < order or name.suffix == ASKED)
                self._delete_partial(order)
                return True
            self.location.delete(asked.file)
            names = others
        return False

    def _delete_partial(self, order: int) -> None:
        """Delete what killed publishers of lower orders have left."""
        partial = [name for name in self.location.names(HEADS_DIRECTORY) if is_partial(name)]
        orders = ((name, head_names([whole_name(name)], (PUBLISHED, ASKED))) for name in partial)
        self.location.delete_all(name for name, of in orders if of and of[0].order < order)

    def _names(self) -> list[HeadName]:
        return head_names(self.location.names(HEADS_DIRECTORY), (PUBLISHED, ASKED))

    def _order_over(self, names: list[HeadName], head: Head) -> int | None:
        """Return the order by which a head comes after these; None if one of them is of a later run or batch."""
        if not names:
            return 1
        try:
            newest = read_head(self.location, names[-1])
            if newest is None:
                return None  # another one was published meanwhile, which the next batch looks at
        except RecoveryError as damaged:
            _LOG.warning("%s", damaged)
            newest = None
        if newest is not None and newest.state_id != self.state_id:
            newest = None  # of an earlier state in this location
        if newest is not None and not _comes_after(head, newest):
            _LOG.info("%s: no head of %s: there is one of %s", self.location, head.describe(), newest.describe())
            return None
        if names[-1].order >= MAX_ORDER:
            _LOG.warning("%s: no more heads: %s has the highest possible order", self.location, names[-1].file)
            return None
        if newest is not None and newest.batch >= head.batch:
            text = "%s: the head goes back: from %s to %s"
            _LOG.warning(text, self.location, newest.describe(), head.describe())
        return names[-1].order + 1


def _rivals(names: Iterable[HeadName], mine: HeadName) -> list[HeadName]:
    """Return the heads of other runs with the order of this one, or a later one."""
    return [name for name in names if name.order >= mine.order and name.run != mine.run]


def _comes_after(head: Head, other: Head) -> bool:
    """Return whether a head may replace that of another run: that run has committed nothing later.

    The run that entered a shard later has a higher epoch there, in the names of its deltas. Runs with the same epochs
    in all shards stand on the same commits: then the later batch counts.
    """
    own, others = ([head_of(pointer) for pointer in each.pointers] for each in (head, other))
    if len(own) != len(others):
        return True
    epochs = [(mine.epoch, theirs.epoch) for mine, theirs in zip(own, others, strict=True)]
    if any(mine < theirs for mine, theirs in epochs):
        return False
    if any(mine > theirs for mine, theirs in epochs):
        return True
    is_ahead = all(mine.version >= theirs.version for mine, theirs in zip(own, others, strict=True))
    return is_ahead and head.batch > other.batch
