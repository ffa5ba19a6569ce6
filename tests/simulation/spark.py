"""Spark, as far as state depends on it: checkpoints, drivers, tasks with their attempts, and what decides what counts.

    checkpoint   a query id; what each batch reads, written before it runs; which batches are committed; and for each
                 batch, stage and shard the pointer of the attempt that wrote it last, counted or not
    driver       one start of the query: runs batch after batch, each as one task per shard, stage after stage
    attempt      opens the shard at the pointer of the batch before, processes, commits, and writes its pointer

An attempt that another one has overtaken goes on, and so do those of a driver that died. In Spark's first format of
checkpoints the pointers of all of them replace what is there for that batch, as the files of its state stores do; in
the second one the commit of a batch says whose pointers count. What a stage hands to the next one comes from the
attempt that was done first; if that is lost, the task is run again, and another attempt counts. Logs of a checkpoint
are written by one driver only: another one at work on the same checkpoint finds that out at the next batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from statestore.errors import StateStoreError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.shard_files import parse_delta_name
from statestore.recovery.metadata.agreement import claim
from statestore.recovery.metadata.state_metadata import (
    StateMetadata,
    agree_on_metadata,
    agree_on_states,
    new_state_id,
    refuse_other_stages,
    routing_numbers,
)
from statestore.recovery.shard_batch import CommittedBatch, ShardBatch, ShardedState
from tests.simulation.decisions import DRIVER, LATER_DRIVER, TASK, Effect
from tests.simulation.heads import DriverHeads
from tests.simulation.machines import SimulatedLocalDirectory
from tests.simulation.scheduler import Actor, Process

if TYPE_CHECKING:
    from tests.simulation.world import Site, World

FAILURE = (StateStoreError, OSError)


class ConcurrentDriversError(StateStoreError):
    """Another driver has written the log of this checkpoint."""


@dataclass
class Recorded:
    """What a checkpoint has of the state of one stage, by shard and number of batch."""

    pointers: dict[tuple[int, int], str] = field(default_factory=dict)
    committers: dict[tuple[int, int], str] = field(default_factory=dict)
    """The pointers of the attempts that counted, which others may have replaced since."""
    outputs: dict[tuple[int, int], Any] = field(default_factory=dict)
    """What those attempts have put out."""

    def copy(self, committed: int) -> Recorded:
        """Return what is there as of a batch."""
        kept = {at: text for at, text in self.pointers.items() if at[1] <= committed}
        outputs = {at: put for at, put in self.outputs.items() if at[1] <= committed}
        return Recorded(kept, dict(self.committers), outputs)

    def is_mixed(self, shard: int) -> bool:
        """Return whether the pointer of a batch was replaced by that of an attempt of another run."""
        return any(
            at[0] == shard and _epoch(text) != _epoch(self.pointers.get(at, text))
            for at, text in self.committers.items()
        )

    def pointer(self, shard: int, batch: int) -> str | None:
        """Return the pointer of a shard after a batch, None if nothing was recorded up to it."""
        return self.pointers.get((shard, batch))


@dataclass
class Checkpoint:
    """One copy of a query's checkpoint. `history` of a copy begins with what it was copied from."""

    name: str
    query_id: str
    sites: tuple[Site, ...]
    """The locations of the states of its query, one for each stage."""
    began: int = 0
    """How many batches came before its first one, in the query whose state it goes on with."""
    planned: list[str] = field(default_factory=list)
    """What each batch reads."""
    committed: int = 0
    recorded: dict[Site, Recorded] = field(default_factory=dict)
    model: Any = None
    """What the program had made of all that came before its first batch, of several stages."""
    too_old: bool = False
    """Whether it was already behind what is retained when it was copied."""

    def __post_init__(self) -> None:
        self.recorded = self.recorded or {site: Recorded() for site in self.sites}

    @property
    def site(self) -> Site:
        """The location of the first stage's state."""
        return self.sites[0]

    def copy(self, name: str, committed: int) -> Checkpoint:
        """Return a copy as of a batch; what was planned after it is not in it."""
        recorded = {site: there.copy(committed) for site, there in self.recorded.items()}
        return Checkpoint(
            name, self.query_id, self.sites, self.began, self.planned[:committed], committed, recorded, self.model
        )

    def history(self, site: Site, shard: int) -> list[tuple[str, Any]]:
        """Return the batches that were committed, and what each has put out of a shard."""
        outputs = self.recorded[site].outputs
        return [(self.planned[number - 1], outputs[shard, number]) for number in range(1, self.committed + 1)]

    def plan(self, batch: int) -> str:
        """Return what a batch reads; it is decided when it first runs, and then stays."""
        if len(self.planned) < batch:
            self.planned.append(f"{self.name}:{batch + self.began}")
        return self.planned[batch - 1]


def _epoch(pointer: str) -> int | None:
    made = parse_delta_name(CommitPointer.from_json(pointer).head)
    return None if made is None else made.epoch


@dataclass
class Task:
    """One shard of a stage of a batch."""

    site: Site
    shard: int
    above: tuple[Task, ...] = ()
    """All tasks of the stage before."""
    attempts: int = 0
    running: int = 0
    ended: int = 0
    failures: int = 0
    winner: Attempt | None = None
    """The attempt that counts."""
    counted: list[Attempt] = field(default_factory=list)
    """All that counted, until what they handed on was lost."""
    error: BaseException | None = None

    @property
    def succeeded(self) -> bool:
        return self.winner is not None


@dataclass
class Start:
    """How a query is started."""

    checkpoint: Checkpoint
    batches: int
    accept_older: bool = False
    shards: int = 0
    """0 are those of the plan."""
    topology: int = 0
    """How often the topology was changed before."""
    accept_change: bool = False


def topology(nodes: tuple[dict[str, Any], ...], changes: int) -> tuple[dict[str, Any], ...]:
    """Return the nodes of the query after so many changes."""
    added = ({"name": f"p{number}", "type": "processor", "parents": [nodes[0]["name"]]} for number in range(changes))
    return (*nodes, *added)


class Driver:
    """One start of a query."""

    def __init__(self, world: World, number: int, start: Start) -> None:
        self.world = world
        self.start = start
        self.sites = start.checkpoint.sites
        self.name = f"driver{number}"
        self.process = Process(self.name)
        self.run_id = ""
        self.batch = 0
        """The batch that is under way."""
        self.done = False
        self.failure: BaseException | None = None
        self.states: dict[Site, ShardedState] = {}
        self.routing: dict[Site, tuple[int, ...]] = {}
        self.heads: dict[Site, DriverHeads] = {}
        self.changes: dict[Site, StateMetadata] = {}
        """What only the owner of a location may record."""
        self.actor: Actor = world.scheduler.spawn(self.name, self.process, self._run)

    @property
    def ended(self) -> bool:
        return self.done or self.process.dead

    def _run(self) -> None:
        try:
            self._query()
        except FAILURE as failure:
            self.failure = failure
        self.done = True

    def _query(self) -> None:
        world, start = self.world, self.start
        asked = [(site.location(), self._asked(site)) for site in self.sites]
        recorded_before = [site.oracle.recorded_generation for site in self.sites]
        try:
            if len(self.sites) > 1:
                refuse_other_stages(world.location(self.sites[0].number), len(self.sites))
            agreed = agree_on_states(asked, accept_topology_change=start.accept_change, is_owner=False)
        except FAILURE as failure:
            self.sites[0].oracle.judge_start(self, failure)
            raise
        for site, metadata, before in zip(self.sites, agreed, recorded_before, strict=True):
            site.oracle.started(self, metadata, before)
        self.run_id = new_state_id()
        for site, (location, _), metadata in zip(self.sites, asked, agreed, strict=True):
            self.routing[site] = metadata.routing
            if not metadata.is_recorded:
                self.changes[site] = metadata
            self.states[site] = ShardedState(
                metadata.state_id,
                location,
                metadata.stores,
                LocalDirectory("/nowhere"),
                site.workload.in_memory,
                world.plan.recovery(),
                self.run_id,
                start.accept_older,
                metadata.initial_state,
            )
            site.oracle.runs[self.run_id] = self
            self.heads[site] = DriverHeads(self, site, metadata)
        for _ in range(start.batches):
            self._batch()
        for heads in self.heads.values():
            heads.deliver()

    def _asked(self, site: Site) -> StateMetadata:
        shards = self.start.shards or site.shards
        return StateMetadata(
            new_state_id(),
            shards,
            "key",
            routing_numbers(shards, 1),
            site.workload.specs,
            topology(site.workload.nodes, self.start.topology),
        )

    def _batch(self) -> None:
        checkpoint, scheduler = self.start.checkpoint, self.world.scheduler
        number = self.batch = checkpoint.committed + 1
        batch = checkpoint.plan(number)
        scheduler.op("spark.plan", f"batch {number}", DRIVER[:1])
        for heads in self.heads.values():
            heads.deliver()
        stages: list[tuple[Task, ...]] = [()]
        for site in self.sites:
            stages.append(tuple(Task(site, shard, stages[-1]) for shard in range(site.shards)))
            self._stage(stages[-1], number, batch)
        scheduler.op("spark.commit", f"batch {number}", DRIVER[:1])
        if checkpoint.committed != number - 1:
            raise ConcurrentDriversError(f"batch {number} of {checkpoint.name} is committed already")
        checkpoint.committed = number
        for task in (task for tasks in stages for task in tasks):
            assert task.winner is not None
            recorded = checkpoint.recorded[task.site]
            recorded.outputs[task.shard, number] = task.winner.outputs
            if self.world.plan.overwrites:
                recorded.committers[task.shard, number] = task.winner.committed
            else:
                recorded.pointers[task.shard, number] = task.winner.committed
        for site, tasks in zip(self.sites, stages[1:], strict=True):
            site.oracle.batch_committed(self, number)
            self.heads[site].committed(number, tasks)

    def _stage(self, tasks: tuple[Task, ...], number: int, batch: str) -> None:
        """Run tasks until each has succeeded."""
        scheduler = self.world.scheduler
        effects = LATER_DRIVER if tasks[0].above and not self.world.plan.varies else DRIVER
        for task in tasks:
            if not task.succeeded:
                self._attempt(task, number, batch)
        while not all(task.succeeded for task in tasks):
            effect = scheduler.op("spark.wait", f"batch {number}", effects)
            if effect is Effect.DRIVER_DIES:
                scheduler.kill(self.process)
            if effect is Effect.FETCH_FAILED:
                self._run_again(tasks[0].above, number, batch)
            if effect is Effect.SPECULATE:
                slow = next((task for task in tasks if task.running == 1 and not task.succeeded), None)
                if slow is not None:
                    self._attempt(slow, number, batch)
            for task in tasks:
                if task.succeeded or task.running:
                    continue
                if task.failures >= self.world.plan.task_failures:
                    assert task.error is not None
                    raise task.error
                self._attempt(task, number, batch)
            ended = sum(task.ended for task in tasks)
            if not all(task.succeeded for task in tasks):
                scheduler.wait(lambda ended=ended: sum(task.ended for task in tasks) > ended)

    def _run_again(self, tasks: tuple[Task, ...], number: int, batch: str) -> None:
        """Lose what one task has handed on, and run it again, while those that have fetched it already go on."""
        lost = tasks[number % len(tasks)]
        lost.winner, lost.failures = None, 0
        self._stage(tasks, number, batch)

    def _attempt(self, task: Task, number: int, batch: str) -> None:
        task.attempts += 1
        task.running += 1
        name = f"{self.name}.b{number}.{task.site.prefix}s{task.shard}.a{task.attempts}"
        machine = self.world.machine_for(name)
        process = machine.free_process()
        attempt = Attempt(self, task, number, batch, name, process)
        process.busy = attempt
        attempt.actor = self.world.scheduler.spawn(name, process, attempt.run)
        attempt.watch()


@dataclass(frozen=True)
class WatchedState(ShardedState):
    """A state of which an attempt is told when a shard of it was opened, and is about to be committed."""

    attempt: Attempt | None = None

    @contextmanager
    def open(self, pointer: CommitPointer, space: Any = None) -> Iterator[ShardBatch]:
        assert self.attempt is not None
        with super().open(pointer, space) as batch:
            self.attempt.opened(batch)
            yield WatchedBatch(**vars(batch))


class WatchedBatch(ShardBatch):
    """A batch of it."""

    def commit(self, *arguments: Any) -> CommittedBatch:
        assert isinstance(self.state, WatchedState)
        assert self.state.attempt is not None
        self.state.attempt.committing()
        return super().commit(*arguments)


@dataclass(eq=False, repr=False)
class Attempt:
    """One attempt of a task, in a Python worker of an executor."""

    driver: Driver
    task: Task
    number: int
    batch: str
    name: str
    process: Process
    ended: bool = False
    fenced_by: str | None = None
    """Which run had taken over when it was about to commit."""
    built_past: bool = False
    """Whether others of its own run had built on another attempt's commit by then."""
    committed: str = ""
    """The pointer that it has come to."""
    outputs: Any = None
    actor: Actor = field(init=False)
    pointer: CommitPointer = field(init=False)
    """Where it begins."""

    def __post_init__(self) -> None:
        self.site = self.task.site
        self.fetched = [task.winner for task in self.task.above]
        self.records = self.site.workload.records(self.batch, self.task.shard, self.site.shards)
        self.variant = self.name if self.driver.world.plan.varies else ""

    def watch(self) -> None:
        """Have the driver learn of the death of the process."""
        self.process.memory.setdefault("attempts", []).append(self)

    def died(self) -> None:
        """Note that the process died."""
        if not self.ended:
            self._end(RuntimeError("the Python worker died"))

    def _end(self, error: BaseException | None) -> None:
        self.ended = True
        task = self.task
        task.running -= 1
        task.ended += 1
        if error is None:
            if task.winner is None:
                task.winner = self
                task.counted.append(self)
        else:
            task.failures += 1
            task.error = error if isinstance(error, FAILURE) else WorkerDiedError(str(error))

    def run(self) -> None:
        """Do the task."""
        try:
            self._do()
        except FAILURE as failure:
            self.site.oracle.judge(self, failure)
            self._end(failure)
        else:
            self._end(None)
        self.process.busy = None
        self.process.memory["attempts"].remove(self)

    def _do(self) -> None:
        driver, site, shard = self.driver, self.site, self.task.shard
        recorded, scheduler, memory = (
            driver.start.checkpoint.recorded[site],
            driver.world.scheduler,
            self.process.memory,
        )
        if site.root not in memory:
            memory[site.root] = site.location()
            memory.setdefault("local", SimulatedLocalDirectory(scheduler, self.process))
            memory.setdefault("claimed", set())
        held = replace(driver.states[site], location=memory[site.root], local=memory["local"])
        state = WatchedState(**vars(held), attempt=self)
        changed = driver.changes.get(site)
        claimed = str(state.location), driver.start.checkpoint.query_id, "" if changed is None else state.run
        if claimed not in memory["claimed"]:
            claim(state.location, claimed[1])
            if changed is not None:
                agree_on_metadata(state.location, changed, accept_topology_change=driver.start.accept_change)
            memory["claimed"].add(claimed)
            site.oracle.claimed(claimed[1])
        scheduler.op("spark.read", f"batch {self.number - 1}", TASK)
        self.pointer = state.pointer(shard, recorded.pointer(shard, self.number - 1))
        committed, outputs = site.workload.do(self, state)
        site.oracle.made(self, self.pointer, committed)
        scheduler.op("spark.write", f"batch {self.number}", TASK)
        self.committed, self.outputs = committed.to_json(), outputs
        if driver.world.plan.overwrites:
            recorded.pointers[shard, self.number] = self.committed

    def opened(self, batch: ShardBatch) -> None:
        """See what a shard holds that was opened."""
        with self.driver.world.scheduler.silence():
            self.site.oracle.check_content(self.name, batch.pointer, batch)

    def committing(self) -> None:
        """Look around before a commit."""
        self.driver.world.scheduler.op("task.processed", "", TASK)
        self.fenced_by = self.site.oracle.taken_over(self)
        self.built_past = self.site.oracle.built_past(self)


class WorkerDiedError(StateStoreError):
    """The process of a task's last attempt died."""


def ends_for_good(failure: BaseException | None) -> bool:
    """Return whether it makes no sense to start a query again that ended so."""
    return failure is not None and type(failure).__name__ in (
        "CheckpointBehindError",
        "VersionCollectedError",
        "RunFencedError",
        "LocationInUseError",
        "ShardCountChangedError",
        "TopologyChangedError",
        "LocationMismatchError",
        "DurableFileMissingError",
        "StateUnfinishedError",
    )
