"""Runs batches of records through a topology on the real state of one shard: local copy, deltas and commit pointer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from statestore import Topology
from statestore.headers.topic_columns import SinkFields, SourceFields
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import shard_stores
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardBatch, ShardedState
from tests.support.recovery import on_record


class TaskBatches:
    """What a driver does for one shard, batch after batch. `pointer` is the last commit that counts."""

    def __init__(self, home: Path, topology: Topology) -> None:
        self.home = home
        self.topology = topology
        self.location = DurableLocation(home / "state")
        self.state_id = "state-1"
        self.pointer = self._state().pointer(0, None)
        self.changelogs: dict[str, list[Any]] = {}
        """What the last batch logged."""

    def run(self, *records: SourceFields, now_ms: int = 0, commits: bool = True) -> list[SinkFields]:
        """Run a batch; one that does not commit is forgotten, as when Spark drops an attempt."""
        with self._task(now_ms) as (task, batch, _):
            assert task.process(records) == len(records)
            task.end_batch(now_ms)
            end = task.leave()
            self.changelogs = {name: store.changelog.records() for name, store in batch.stores.items()}
            pointer = batch.commit(end).pointer
            if commits:
                self.pointer = pointer
            return list(task.outputs)

    def look(self, store: str, use: Callable[[Any], Any], *, now_ms: int = 0) -> Any:
        """Return what `use` makes of a store as a task has it."""
        with self._task(now_ms) as (_, _, stores):
            return use(stores[store])

    def content(self, store: str) -> list[tuple[bytes, bytes]]:
        """Return all that is stored, also what expired."""
        with self._state().open(self.pointer) as batch:
            return list(batch.stores[store].bytes.range(None, None))

    def lose_disk(self) -> None:
        """Delete the local copies: the next batch restores from the deltas."""
        shutil.rmtree(self.home / "local", ignore_errors=True)  # in-memory stores may have none

    def _state(self) -> ShardedState:
        in_memory = self.topology.in_memory_stores()
        local = LocalDirectory(self.home / "local")
        return on_record(ShardedState(self.state_id, self.location, self.topology.store_specs(), local, in_memory))

    @contextmanager
    def _task(self, now_ms: int) -> Iterator[tuple[Task, ShardBatch, Any]]:
        context = TaskRecordContext(self.pointer.stream_time_ms, now_ms)
        with self._state().open(self.pointer) as batch:
            stores = shard_stores(self.topology, batch, context)
            task = Task(
                self.topology,
                0,
                stores,
                context,
                punctuations=self.pointer.punctuations,
                processor_metadata=self.pointer.processor_metadata,
            )
            yield task, batch, stores
