"""One simulation: the machines, the location, the checkpoints, and the operator who goes through the story."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import zlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from statestore.recovery.commit.pointer import CommitPointer, SnapshotRef
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location import DurableLocation
from statestore.recovery.shard_batch import ShardedState
from tests.simulation.decisions import Decision, Decisions, DrawnDecisions, WrittenDecisions
from tests.simulation.disks import DiskNotes, SimulatedDisk
from tests.simulation.machines import Machine, SimulatedLocalDirectory
from tests.simulation.oracle import Oracle
from tests.simulation.plan import Plan, Step
from tests.simulation.remote import ROOT, Remote, SimulatedLocalLocation, SimulatedLocation, Stored
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.spark import Checkpoint, Driver, Start, ends_for_good
from tests.simulation.substitutes import substituted
from tests.simulation.workload import Workload

SCRATCH = "/dev/shm" if Path("/dev/shm").is_dir() else None
_RESTARTS = 4


@dataclass
class Result:
    """What came of a plan. `problem` of None: nothing was lost, nothing wrong, every refusal had its reason."""

    plan: Plan
    """With the decisions that were taken."""
    problem: str | None
    steps: int
    commits: int
    trace: list[str] = field(default_factory=list)


def simulate(plan: Plan, *, keep_trace: bool = False) -> Result:
    """Run a plan: with the decisions that it has, or with drawn ones."""
    decisions: Decisions
    decisions = DrawnDecisions(plan.seed) if plan.decisions is None else WrittenDecisions(plan.decisions)
    scheduler = Scheduler(decisions, keep_trace=keep_trace)
    home = tempfile.mkdtemp(prefix="simulation-", dir=SCRATCH)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # it warns of what is done to it, thousands of times
    try:
        world = World(plan, scheduler, Path(home))
        with substituted(scheduler, plan.seed, f"{home}/machines", world.power_off_here):
            scheduler.run("operator", Process("operator"), world.operate)
    finally:
        logging.disable(disabled)
        shutil.rmtree(home)
    taken: tuple[Decision, ...] = tuple(decisions.taken)
    commits = sum(checkpoint.committed for checkpoint in world.checkpoints)
    made = Plan(**{**plan.__dict__, "decisions": taken})
    problem = None if scheduler.problem is None else scheduler.problem.replace(home, "")
    return Result(made, problem, scheduler.operations, commits, scheduler.trace or [])


class World:
    """Everything that is there."""

    def __init__(self, plan: Plan, scheduler: Scheduler, home: Path) -> None:
        self.plan = plan
        self.scheduler = scheduler
        self.home = home
        self.workload = Workload(plan.seed, plan.stores)
        self.machines = [Machine(f"m{n}", home / "machines" / f"m{n}", plan.engine) for n in range(plan.machines)]
        self.stored = Stored()
        self.notes = DiskNotes()
        self.checkpoints: list[Checkpoint] = [Checkpoint("c0", "query-0")]
        self.drivers: list[Driver] = []
        self.oracle = Oracle(self)
        self._spares = 0
        self.topology = 0
        (home / "location").mkdir()
        scheduler.on_kill = self._on_kill
        self.stored.on_set = lambda path: self.oracle.on_written(path.removeprefix(f"{ROOT}/"))
        self.notes.on_named = self.oracle.on_written

    def location(self) -> DurableLocation:
        """Return the durable location, as a process that opens it has it."""
        if self.plan.location == "disk":
            disk = SimulatedDisk(self.scheduler, str(self.home), self.notes, self.power_off)
            return SimulatedLocalLocation(self.scheduler, str(self.home / "location" / "state"), disk)
        return SimulatedLocation(Remote(self.scheduler, self.stored, renames=self.plan.location == "hdfs"))

    def machine_for(self, attempt: str) -> Machine:
        """Return the machine that an attempt runs on."""
        return self.machines[zlib.crc32(attempt.encode()) % len(self.machines)]

    def committed_pointer(self, checkpoint: Checkpoint, shard: int, batch: int) -> CommitPointer:
        """Return the pointer that a checkpoint has of a shard after a batch."""
        recorded = checkpoint.recorded(shard, batch)
        return CommitPointer("", shard) if recorded is None else CommitPointer.from_json(recorded)

    # What happens to machines.

    def power_off_here(self, seed: int) -> None:
        """Switch off the machine of the actor that runs; it is back at once, without what was not synced."""
        actor = self.scheduler.current
        assert actor is not None
        machine: Machine = actor.process.machine
        self._switch_off([machine], actor.process, seed)
        self.scheduler.kill(actor.process)

    def power_off(self, seed: int) -> None:
        """Switch off everything: the location is on a disk of the machine that all runs on."""
        actor = self.scheduler.current
        assert actor is not None
        drivers = [driver.process for driver in self.drivers]
        self._switch_off(self.machines, actor.process, seed, drivers)
        with self.scheduler.silence():
            self.notes.lose(random.Random(seed))
        if actor.name != "operator":
            self.scheduler.kill(actor.process)

    def _switch_off(
        self, machines: list[Machine], own: Process, seed: int, others: list[Process] | None = None
    ) -> None:
        for machine in machines:
            for process in [*machine.processes, *(others or ())]:
                if process is not own and not process.dead:
                    self.scheduler.kill(process)
        with self.scheduler.silence():
            for machine in machines:
                machine.lose_unsynced(seed)

    def _on_kill(self, process: Process) -> None:
        for attempt in process.memory.get("attempts", ()):
            attempt.died()
        for database in process.memory.get("databases", ()):
            database.die()

    # What operators do.

    def operate(self) -> None:
        """Go through the story, then see that all is there."""
        for step in self.plan.story:
            self._do(step)
        self.scheduler.decisions.calm = True
        self._wait_for_all()
        self._finish()

    def _wait_for_all(self) -> None:
        own = self.scheduler.current
        self.scheduler.wait(lambda: all(actor.done for actor in self.scheduler.actors if actor is not own))

    def _do(self, step: Step) -> None:
        scheduler = self.scheduler
        scheduler.op("operator", step.describe())
        if step.do == "run":
            start = Start(self._checkpoint(step.checkpoint), step.batches, step.accept, topology=self.topology)
            self._run(start, step.wait)
        elif step.do == "change":
            self.topology += 1
            start = Start(self._checkpoint(step.checkpoint), step.batches, topology=self.topology, accept_change=True)
            self._run(start, step.wait)
        elif step.do == "foreign":
            self.checkpoints.append(Checkpoint(f"c{len(self.checkpoints)}", f"query-{len(self.checkpoints)}"))
            self._run(Start(self.checkpoints[-1], step.batches, topology=self.topology), step.wait)
        elif step.do == "reshard":
            self._run(Start(self._checkpoint(step.checkpoint), step.batches, shards=self.plan.shards + 1), step.wait)
        elif step.do == "copy":
            of = self._checkpoint(step.checkpoint)
            copy = of.copy(f"c{len(self.checkpoints)}", max(0, of.committed - step.amount))
            copy.too_old = of.too_old or step.amount > self.plan.retained
            self.checkpoints.append(copy)
        elif step.do == "rest":
            scheduler.rest(step.amount)
        else:
            machine = self.machines[step.amount % len(self.machines)]
            for process in machine.processes:
                if not process.dead:
                    scheduler.kill(process)
            with scheduler.silence():
                if step.do == "lose":
                    machine.lose_all()
                else:
                    machine.lose_unsynced(step.amount)

    def _checkpoint(self, number: int) -> Checkpoint:
        return self.checkpoints[number % len(self.checkpoints)]

    def _run(self, start: Start, wait: bool) -> Driver:
        wanted = start.checkpoint.committed + start.batches
        for _ in range(_RESTARTS):
            driver = Driver(self, len(self.drivers), start)
            self.drivers.append(driver)
            if not wait:
                break
            self.scheduler.wait(lambda driver=driver: driver.ended)
            if (driver.done and driver.failure is None) or ends_for_good(driver.failure):
                break
            left = wanted - start.checkpoint.committed
            if left <= 0:
                break
            start = replace(start, batches=left)
        return driver

    # What must be true in the end.

    def _finish(self) -> None:
        last = self.oracle.last_committer
        checkpoint = self.checkpoints[0] if last is None else last.start.checkpoint
        before = [self.committed_pointer(checkpoint, s, checkpoint.committed).version for s in range(self.plan.shards)]
        driver = self._run(Start(checkpoint, 1, topology=self.topology, accept_change=True), wait=True)
        if type(driver.failure).__name__ in ("CheckpointBehindError", "CheckpointAbandonedError"):
            # It was judged: another copy was at work.
            driver = self._run(replace(driver.start, accept_older=True), wait=True)
        if type(driver.failure).__name__ in ("DurableFileMissingError", "VersionCollectedError"):
            return  # it was judged: given up
        if driver.failure is not None or last is None or last.start.shards:
            if driver.failure is not None and last is not None and not last.start.shards:
                self.scheduler.fail(f"the last start, without faults, failed: {driver.failure!r}")
            return
        self._wait_for_all()
        self._check_retained(driver, before)

    def _check_retained(self, driver: Driver, before: list[int]) -> None:
        """Restore all that is retained, on machines that have nothing, in each way that there is."""
        checkpoint = driver.start.checkpoint
        for shard in range(self.plan.shards):
            newest = (
                max(
                    self.committed_pointer(other, shard, other.committed).version
                    for other in self.checkpoints
                    if other is not checkpoint
                )
                if len(self.checkpoints) > 1
                else 0
            )
            least = max(before[shard], newest) - self.plan.retained
            back = self.oracle.went_back(shard, checkpoint)
            if back is not None:
                least = min(least, max(back, before[shard] - self.plan.retained))
            recorded = [checkpoint.recorded(shard, batch) for batch in range(1, checkpoint.committed + 1)]
            pointers = [CommitPointer.from_json(text) for text in dict.fromkeys(recorded) if text is not None]
            retained = [pointer for pointer in pointers if pointer.version >= least]
            # What is between the oldest and the newest needs nothing that neither of them needs.
            for pointer in [*retained[:1], *retained[1:][-1:]]:
                # With less than two snapshots, all that is needed of deltas is there too.
                for without in range(min(2, len(pointer.snapshots) + (pointer.base_version == 0))):
                    self._restore(driver, pointer, without)

    def _restore(self, driver: Driver, pointer: CommitPointer, without: int) -> None:
        from statestore.recovery.restore.from_snapshots import note_damaged_snapshot

        assert driver.state is not None
        self._spares += 1
        name = f"spare{self._spares}"
        machine = Machine(name, self.home / "machines" / name, self.plan.engine)
        process = machine.free_process()
        local: LocalDirectory = SimulatedLocalDirectory(self.scheduler, process)
        state: ShardedState = replace(driver.state, location=self.location(), local=local)
        ways: list[SnapshotRef | None] = [*reversed(pointer.snapshots[-2:]), None]
        way = ways[without]
        who = f"restoring shard {pointer.shard} at version {pointer.version} on an empty machine, way {without}"

        def restore() -> None:
            with self.scheduler.silence():
                if way is not None:
                    shard_dir = local.shard(pointer.state_id, pointer.shard)
                    shard_dir.mkdir(parents=True)
                    for snapshot in pointer.snapshots[len(pointer.snapshots) - without :]:
                        note_damaged_snapshot(shard_dir, snapshot.manifest.name)
            try:
                # Before nothing at all, a snapshot is tried that is said to be damaged.
                with state.open(replace(pointer, snapshots=()) if way is None else pointer) as batch:
                    self.oracle.check_content(who, pointer, batch)
                    if batch.copy is not None:
                        self.oracle.check_way(who, batch.copy.restored_from, way)
            except Exception as failure:
                self.oracle._unexplained(who, failure)

        actor = self.scheduler.spawn(name, process, restore)
        self.scheduler.wait(lambda: actor.done)
