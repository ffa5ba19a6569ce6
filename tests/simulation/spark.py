"""Spark, as far as state depends on it: checkpoints, drivers, tasks with their attempts, and what decides what counts.

    checkpoint   a query id; what each batch reads, written before it runs; which batches are committed; and for each
                 batch and shard the pointer of the attempt that wrote it last, counted or not
    driver       one start of the query: runs batch after batch, each as one task per shard
    attempt      opens the shard at the pointer of the batch before, processes, commits, and writes its pointer

An attempt that another one has overtaken goes on, and so do those of a driver that died. In Spark's first format of
checkpoints the pointers of all of them replace what is there for that batch, as the files of its state stores do; in
the second one the commit of a batch says whose pointers count. Logs of a checkpoint are written by one driver only:
another one at work on the same checkpoint finds that out at the next batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from statestore.errors import StateStoreError
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.shard_files import parse_delta_name
from statestore.recovery.metadata.agreement import claim
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata, new_state_id, routing_numbers
from statestore.recovery.shard_batch import ShardedState
from tests.simulation.decisions import DRIVER, TASK, Effect
from tests.simulation.machines import SimulatedLocalDirectory
from tests.simulation.scheduler import Actor, Process
from tests.simulation.workload import Held

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle
    from tests.simulation.world import Site, World

FAILURE = (StateStoreError, OSError)


class ConcurrentDriversError(StateStoreError):
    """Another driver has written the log of this checkpoint."""


@dataclass
class Checkpoint:
    """One copy of a query's checkpoint. `history` of a copy begins with what it was copied from."""

    name: str
    query_id: str
    site: Site
    """Which location its query is on."""
    began: int = 0
    """How many batches came before its first one, in the query whose state it goes on with."""
    planned: list[str] = field(default_factory=list)
    """What each batch reads."""
    committed: int = 0
    pointers: dict[tuple[int, int], str] = field(default_factory=dict)
    """By shard and number of batch."""
    committers: dict[tuple[int, int], str] = field(default_factory=dict)
    """The pointers of the attempts that counted, which others may have replaced since."""
    outputs: dict[tuple[int, int], Any] = field(default_factory=dict)
    """What the sink got, by shard and number of batch."""
    too_old: bool = False
    """Whether it was already behind what is retained when it was copied."""

    def copy(self, name: str, committed: int) -> Checkpoint:
        """Return a copy as of a batch; what was planned after it is not in it."""
        kept = {at: text for at, text in self.pointers.items() if at[1] <= committed}
        planned, committers = self.planned[:committed], dict(self.committers)
        outputs = {at: put for at, put in self.outputs.items() if at[1] <= committed}
        return Checkpoint(name, self.query_id, self.site, self.began, planned, committed, kept, committers, outputs)

    def history(self, shard: int) -> list[tuple[str, Any]]:
        """Return the batches that were committed, and what each has put out of a shard."""
        return [(self.planned[number - 1], self.outputs[shard, number]) for number in range(1, self.committed + 1)]

    def is_mixed(self, shard: int) -> bool:
        """Return whether the pointer of a batch was replaced by that of an attempt of another run."""
        return any(
            at[0] == shard and _epoch(text) != _epoch(self.pointers.get(at, text))
            for at, text in self.committers.items()
        )

    def recorded(self, shard: int, batch: int) -> str | None:
        """Return the pointer of a shard after a batch, None if nothing was recorded up to it."""
        return self.pointers.get((shard, batch))

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
    """One shard of a batch."""

    shard: int
    attempts: int = 0
    running: int = 0
    ended: int = 0
    failures: int = 0
    succeeded: bool = False
    error: BaseException | None = None
    pointer: str | None = None
    """That of the attempt that counts."""
    outputs: Any = None
    """What that one has put out."""


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


def topology(changes: int) -> tuple[dict[str, Any], ...]:
    """Return the nodes of the query after so many changes."""
    added = (f"p{number}" for number in range(changes))
    return (
        {"name": "source", "type": "source"},
        *({"name": name, "type": "processor", "parents": ["source"]} for name in ("p", *added)),
    )


class Driver:
    """One start of a query."""

    def __init__(self, world: World, number: int, start: Start) -> None:
        self.world = world
        self.start = start
        self.site = start.checkpoint.site
        self.name = f"driver{number}"
        self.process = Process(self.name)
        self.run_id = ""
        self.batch = 0
        """The batch that is under way."""
        self.done = False
        self.failure: BaseException | None = None
        self.state: ShardedState | None = None
        self.actor: Actor = world.scheduler.spawn(self.name, self.process, self._run)

    @property
    def oracle(self) -> Oracle:
        return self.site.oracle

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
        location = self.site.location()
        asked = StateMetadata(
            new_state_id(),
            start.shards or self.site.shards,
            "key",
            routing_numbers(start.shards or self.site.shards, 1),
            world.workload.specs,
            topology(start.topology),
        )
        recorded_before = self.oracle.recorded_generation
        try:
            metadata = agree_on_metadata(location, asked, accept_topology_change=start.accept_change)
        except FAILURE as failure:
            self.oracle.judge_start(self, failure)
            raise
        self.oracle.started(self, metadata, recorded_before)
        self.run_id = new_state_id()
        self.state = ShardedState(
            metadata.state_id,
            location,
            metadata.stores,
            LocalDirectory("/nowhere"),
            world.workload.in_memory,
            world.plan.recovery(),
            self.run_id,
            start.accept_older,
            metadata.initial_state,
        )
        self.oracle.runs[self.run_id] = self
        for _ in range(start.batches):
            self._batch()

    def _batch(self) -> None:
        checkpoint, scheduler = self.start.checkpoint, self.world.scheduler
        number = self.batch = checkpoint.committed + 1
        batch = checkpoint.plan(number)
        scheduler.op("spark.plan", f"batch {number}", DRIVER[:1])
        tasks = [Task(shard) for shard in range(self.site.shards)]
        for task in tasks:
            self._attempt(task, number, batch)
        while not all(task.succeeded for task in tasks):
            effect = scheduler.op("spark.wait", f"batch {number}", DRIVER)
            if effect is Effect.DRIVER_DIES:
                scheduler.kill(self.process)
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
        scheduler.op("spark.commit", f"batch {number}", DRIVER[:1])
        if checkpoint.committed != number - 1:
            raise ConcurrentDriversError(f"batch {number} of {checkpoint.name} is committed already")
        checkpoint.committed = number
        for task in tasks:
            assert task.pointer is not None
            checkpoint.outputs[task.shard, number] = task.outputs
            if self.world.plan.overwrites:
                checkpoint.committers[task.shard, number] = task.pointer
            else:
                checkpoint.pointers[task.shard, number] = task.pointer
        self.oracle.batch_committed(self, number)

    def _attempt(self, task: Task, number: int, batch: str) -> None:
        task.attempts += 1
        task.running += 1
        name = f"{self.name}.b{number}.s{task.shard}.a{task.attempts}"
        machine = self.world.machine_for(name)
        process = machine.free_process()
        attempt = Attempt(self, task, number, batch, name, process)
        process.busy = attempt
        attempt.actor = self.world.scheduler.spawn(name, process, attempt.run)
        attempt.watch()


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
    actor: Actor = field(init=False)

    def __post_init__(self) -> None:
        self.records = self.driver.world.workload.records(self.batch, self.task.shard, self.driver.site.shards)
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
            task.succeeded = True
        else:
            task.failures += 1
            task.error = error if isinstance(error, FAILURE) else WorkerDiedError(str(error))

    def run(self) -> None:
        """Do the task."""
        try:
            self._do()
        except FAILURE as failure:
            self.driver.oracle.judge(self, failure)
            self._end(failure)
        else:
            self._end(None)
        self.process.busy = None
        self.process.memory["attempts"].remove(self)

    def _do(self) -> None:
        driver, world, process = self.driver, self.driver.world, self.process
        checkpoint, shard = driver.start.checkpoint, self.task.shard
        memory = process.memory
        site, oracle = driver.site, driver.oracle
        if site.path not in memory:
            memory[site.path] = site.location()
            memory.setdefault("local", SimulatedLocalDirectory(world.scheduler, process))
            memory.setdefault("claimed", set())
        assert driver.state is not None
        state = replace(driver.state, location=memory[site.path], local=memory["local"])
        if checkpoint.query_id not in memory["claimed"]:
            claim(state.location, checkpoint.query_id)
            memory["claimed"].add(checkpoint.query_id)
            oracle.claimed(checkpoint.query_id)
        world.scheduler.op("spark.read", f"batch {self.number - 1}", TASK)
        pointer = state.pointer(shard, checkpoint.recorded(shard, self.number - 1))
        self.pointer = pointer
        with state.open(pointer) as batch:
            with world.scheduler.silence():
                oracle.check_content(self.name, pointer, batch)
            inner = {name: store.bytes for name, store in batch.stores.items()}
            changelogs = {name: store.changelog for name, store in batch.stores.items()}
            held = Held(inner, pointer.stream_time_ms, pointer.store_times_ms, changelogs)
            end, outputs = world.workload.run(held, self.batch, (shard, site.shards), self.variant, memory)
            world.scheduler.op("task.processed", "", TASK)
            self.fenced_by = oracle.taken_over(self)
            self.built_past = oracle.built_past(self)
            committed = batch.commit(end).pointer
        oracle.made(self, pointer, committed)
        world.scheduler.op("spark.write", f"batch {self.number}", TASK)
        if not self.task.succeeded:
            self.task.pointer = committed.to_json()
            self.task.outputs = outputs
        if world.plan.overwrites:
            checkpoint.pointers[shard, self.number] = committed.to_json()


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
