"""Runs of a query that publish heads, without Spark: a test says what Spark has committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from statestore.recovery.commit.pointer import CommitPointer, DurableFile
from statestore.recovery.heads.figures import HeadFigures
from statestore.recovery.heads.head import HEADS_DIRECTORY, Head, newest_head
from statestore.recovery.heads.publishing import HeadPublisher, ShardCommit, identity
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import new_delta_name

STATE = "state"
SHARDS = 2


def after(pointer: CommitPointer, epoch: int) -> CommitPointer:
    """Return the pointer after one more batch, which the run of this epoch has written."""
    name = new_delta_name(pointer.shard, pointer.version + 1, epoch, f"r{epoch}")
    delta = DurableFile(name, 10, "0" * 32)
    return replace(pointer, version=pointer.version + 1, deltas=(*pointer.deltas, delta))


def head_files(location: DurableLocation) -> list[str]:
    """Return the names of the heads that are there."""
    return location.names(HEADS_DIRECTORY)


class Run:
    """A run of a query: what Spark's state has, and the publisher that is told of it."""

    def __init__(
        self,
        location: DurableLocation,
        name: str,
        epoch: int,
        start: Run | None = None,
        query: str = "query",
        checkpoint: Callable[[int], list[CommitPointer]] | None = None,
    ) -> None:
        self.checkpoint = checkpoint
        self.name = name
        self.query = query
        self.epoch = epoch
        self.state = [CommitPointer(STATE, shard) for shard in range(SHARDS)] if start is None else list(start.state)
        self.batch = -1 if start is None else start.batch
        self.location = location
        self.renew()

    def renew(self) -> None:
        """Have a publisher that remembers nothing, as on a server of Spark Connect, where each batch has one."""
        self.publisher = HeadPublisher(
            self.location,
            STATE,
            SHARDS,
            lambda shard: CommitPointer(STATE, shard),
            query=self.query,
            run=self.name,
            recorded=self.checkpoint,
        )

    def commit(self, *shards: int) -> list[ShardCommit]:
        """Have Spark commit a batch that changes these shards; return what the driver is to be told."""
        self.batch += 1
        calls = []
        for shard in shards:
            given, self.state[shard] = self.state[shard], after(self.state[shard], self.epoch)
            calls.append(ShardCommit(self.state[shard].to_json(), identity(given)))
        return calls

    def publish(self, *shards: int, figures: HeadFigures | None = None) -> Head | None:
        """Commit a batch, and tell the publisher."""
        calls = self.commit(*shards)
        return self.publisher.take(self.batch, calls, figures)

    @property
    def is_newest(self) -> bool:
        """Whether the head says what Spark has committed by this run."""
        head = newest_head(self.location, STATE)
        return head is not None and (head.batch, list(head.pointers)) == (self.batch, self.state)
