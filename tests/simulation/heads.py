"""Heads in the simulation: a listener is told of batches, at once, a batch late, or never.

It is in the driver, or in a client of Spark Connect: then each head is published by a task, which remembers nothing.

After each head: what a reader finds is what one checkpoint has of one batch, which Spark has committed, and not of a
run that another one, which has published, has gone on without.
"""

from __future__ import annotations

import zlib
from functools import partial
from typing import TYPE_CHECKING

from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import Head, newest_head
from statestore.recovery.heads.publishing import HeadPublisher, ShardCommit, identity
from statestore.recovery.making.rescale import where_it_began
from statestore.recovery.metadata.state_metadata import StateMetadata

if TYPE_CHECKING:
    from tests.simulation.spark import Checkpoint, Driver, Task
    from tests.simulation.world import Site

_LOST, _LATE = 0, 1


class DriverHeads:
    """Publishes the heads of one stage of a driver's query."""

    def __init__(self, driver: Driver, site: Site, metadata: StateMetadata) -> None:
        self.driver = driver
        self.site = site
        self.state_id = metadata.state_id
        self.new_publisher = partial(
            HeadPublisher,
            site.location(),
            metadata.state_id,
            site.shards,
            partial(where_it_began, site.location(), metadata),
            query=driver.start.checkpoint.query_id,
            run=driver.run_id,
            recorded=self._recorded,
        )
        self.publisher = self.new_publisher()
        self.is_remote = zlib.crc32(f"{driver.name} {site.root}".encode()) % 2 == 0
        self.waiting: list[tuple[int, list[ShardCommit]]] = []
        """Batches of which the listener is to be told, with their calls."""
        self.without_head: list[tuple[int, list[ShardCommit]]] = []
        """Those of which a client tells the next task."""

    def _recorded(self, batch: int) -> list[CommitPointer]:
        """Return what the checkpoint has after a batch, for some drivers; others can't read it."""
        if zlib.crc32(f"{self.site.root} {self.driver.name}".encode()) % 4 < 2:
            return []
        recorded = self.driver.start.checkpoint.recorded[self.site]
        found = (recorded.pointer(shard, batch + 1) for shard in range(self.site.shards))
        return [CommitPointer.from_json(text) for text in found if text is not None]

    def committed(self, number: int, tasks: tuple[Task, ...]) -> None:
        """Have the listener be told of a batch that Spark has committed."""
        fate = zlib.crc32(f"{self.driver.name} {self.site.root} {number}".encode()) % 8
        if fate == _LOST:
            return
        calls = []
        for attempt in (attempt for task in tasks for attempt in task.counted):
            # In the first format of checkpoints a shard without a call may have what an attempt that lost has written.
            is_seen = self.driver.world.plan.overwrites or attempt.committed != attempt.pointer.to_json()
            if is_seen:
                calls.append(ShardCommit(attempt.committed, identity(attempt.pointer)))
        self.waiting.append((number, calls))
        if fate != _LATE:
            self.deliver()

    def deliver(self) -> None:
        """Tell the listener."""
        with self.driver.world.scheduler.silence():
            while self.waiting:
                told = [self.waiting.pop(0)]
                if self.is_remote:
                    self.publisher = self.new_publisher()
                    told = [*self.without_head, *told]
                # Spark counts batches from 0.
                heads = [self.publisher.take(number - 1, calls) for number, calls in told]
                self.without_head = told if heads[-1] is None else []
                if heads[-1] is not None:
                    self._check()

    def _check(self) -> None:
        site, run = self.site, self.driver.run_id
        head = newest_head(site.location(), self.state_id)
        if head is None:
            self._fail("published a head, and there is none")
            return
        if not any(_is_of(head, checkpoint, site) for checkpoint in site.checkpoints):
            self._fail(f"has published what no checkpoint has: {head}")
        last = site.oracle.last_committer
        if head.run == run and last is not None and last.run_id != run and last.run_id in site.published:
            self._fail(f"has published batch {head.batch} over what {last.name} has, which has gone on")
        site.published.add(head.run)
        if site.reader is not None:
            site.reader.told(head)

    def _fail(self, problem: str) -> None:
        self.driver.world.scheduler.fail(f"{self.driver.name}: {problem}")


def _is_of(head: Head, checkpoint: Checkpoint, site: Site) -> bool:
    """Return whether a checkpoint has these pointers as those of a batch that is committed."""
    number = head.batch + 1
    recorded = checkpoint.recorded[site]
    return (
        checkpoint.query_id == head.query
        and number <= checkpoint.committed
        and all(
            pointer.to_json()
            in (recorded.pointer(pointer.shard, number), recorded.committers.get((pointer.shard, number)))
            for pointer in head.pointers
        )
    )
