"""A query under faults without Spark: batches of changes on a shard, committed one after the other by this process.

It fails as a whole and is started again as a whole, so every attempt counts. Quick, for tests of the harness itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardedState
from statestore.testing.faults import FaultEnvironment
from statestore.testing.faults.runner import Contents
from tests.support.recovery import on_record
from tests.support.recovery.shards import TOTALS, LoggedBatch, stored

Changes = dict[bytes, "bytes | None"]


class FoldQuery:
    """Writes seeded changes to one store; `pointer` is the last commit, as Spark would keep it."""

    def __init__(self, environment: FaultEnvironment) -> None:
        self.environment = environment
        self.pointer = CommitPointer("state-1", 0)
        self.waiting: list[Changes] = []
        self.model: dict[bytes, bytes] = {}
        self._rng = random.Random(environment.plan.seed)
        location = DurableLocation(environment.state_directory)
        on_record(ShardedState("state-1", location, (TOTALS,), environment.local_dir))

    def add_batch(self, number: int) -> None:
        changes: Changes = {
            f"key-{self._rng.randrange(8)}".encode(): self._rng.choice((None, self._rng.randbytes(40)))
            for _ in range(6)
        }
        changes[b"batch"] = str(number).encode()
        self.waiting.append(changes)
        for key, value in changes.items():
            self.model.pop(key, None)
            if value is not None:
                self.model[key] = value

    def run(self) -> None:
        while self.waiting:
            with self._open(self.environment.state_location, self.environment.local_dir) as batch:
                for key, value in self.waiting[0].items():
                    batch.stores["totals"].get(key)
                    batch.stores["totals"].put(key, None if value is None else stored(value))
                committed = batch.commit()
            self.pointer = committed
            del self.waiting[0]

    def expected(self) -> Contents:
        return {"totals": {key: stored(value) for key, value in self.model.items()}}

    def found(self) -> Contents:
        local = LocalDirectory(self.environment.home / "found")
        with self._open(DurableLocation(self.environment.state_directory), local) as batch:
            return {"totals": dict(batch.stores["totals"].range(None, None))}

    @contextmanager
    def _open(self, location: DurableLocation, local: LocalDirectory) -> Iterator[Any]:
        with ShardedState("state-1", location, (TOTALS,), local).open(self.pointer) as batch:
            yield LoggedBatch(batch, TaskRecordContext())
