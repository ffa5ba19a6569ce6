"""One simulation: the machines, the location, the checkpoints, and the operator who goes through the story."""

from __future__ import annotations

import logging
import random
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from statestore.errors import LocationBusyError, TargetNotEmptyError
from statestore.errors.state import DurableFileMissingError
from statestore.recovery.commit.pointer import CommitPointer, SnapshotRef
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.agreement import TURNS_DIRECTORY
from statestore.recovery.metadata.state_metadata import StateMetadata, read_metadata, stage_name
from statestore.recovery.shard_batch import ShardBatch, ShardedState
from tests.simulation.decisions import Decision, Decisions, DrawnDecisions, WrittenDecisions
from tests.simulation.disks import DiskNotes, SimulatedDisk
from tests.simulation.machines import Machine, SimulatedLocalDirectory
from tests.simulation.oracle import Oracle
from tests.simulation.plan import Plan, Step
from tests.simulation.reader import Reader
from tests.simulation.remote import ROOT, Remote, SimulatedLocalLocation, SimulatedLocation, Stored
from tests.simulation.rescaling import Rescaling
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.spark import Checkpoint, Driver, Start, ends_for_good
from tests.simulation.stages.workload import model_after
from tests.simulation.substitutes import substituted
from tests.simulation.workloads import workloads

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
    rescaled: int = 0
    """How many states of another number of shards were made."""
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
            for site in world.sites:
                if site.reader is not None:
                    site.reader.close()
    finally:
        logging.disable(disabled)
        shutil.rmtree(home)
    taken: tuple[Decision, ...] = tuple(decisions.taken)
    commits = sum(checkpoint.committed for checkpoint in world.checkpoints)
    made = replace(plan, decisions=taken)
    problem = None if scheduler.problem is None else scheduler.problem.replace(home, "")
    rescaled = sum(tool.report is not None for tool in world.rescalings)
    return Result(made, problem, scheduler.operations, commits, rescaled, scheduler.trace or [])


class Site:
    """The durable location of a state, the queries on it, and the rescalings to it. Stages of a query have one each."""

    def __init__(self, world: World, number: int, shards: int, stage: int = 0) -> None:
        self.world = world
        self.number = number
        self.workload = world.workloads[stage]
        self.prefix = f"{stage_name(stage)}." if len(world.workloads) > 1 else ""
        """What stands before the names of its shards."""
        self.stage = stage
        self.root = world.root(number) + (f"/{stage_name(stage)}" if self.prefix else "")
        self.shards = shards
        self.oracle = Oracle(world, self)
        self.initial: dict[int, CommitPointer] = {}
        """What shards start from, if the state was rescaled."""
        self.published: set[str] = set()
        """The runs whose heads were the newest."""
        self.reader = Reader(self) if world.plan.reads else None

    @property
    def checkpoints(self) -> list[Checkpoint]:
        return [checkpoint for checkpoint in self.world.checkpoints if self in checkpoint.sites]

    @property
    def drivers(self) -> list[Driver]:
        return [driver for driver in self.world.drivers if self in driver.sites]

    @property
    def rescalings(self) -> list[Rescaling]:
        """Those that make a state here."""
        return [tool for tool in self.world.rescalings if tool.target is self]

    @property
    def is_state(self) -> bool:
        """Whether there is a state."""
        with self.world.scheduler.silence():
            return read_metadata(self.location()) is not None

    def location(self) -> DurableLocation:
        """Return the durable location, as a process that opens it has it."""
        location = self.world.location(self.number)
        return location.below(stage_name(self.stage)) if self.prefix else location

    def committed_pointer(self, checkpoint: Checkpoint, shard: int, batch: int) -> CommitPointer:
        """Return the pointer that a checkpoint has of a shard after a batch."""
        recorded = checkpoint.recorded[self].pointer(shard, batch)
        if recorded is None:
            return self.initial.get(shard) or CommitPointer("", shard)
        return CommitPointer.from_json(recorded)


class World:
    """Everything that is there."""

    def __init__(self, plan: Plan, scheduler: Scheduler, home: Path) -> None:
        self.plan = plan
        self.scheduler = scheduler
        self.home = home
        self.workloads = workloads(plan)
        self.machines = [Machine(f"m{n}", home / "machines" / f"m{n}", plan.engine) for n in range(plan.machines)]
        self.stored = Stored()
        self.notes = DiskNotes()
        self.sites = [Site(self, 0, shards, stage) for stage, shards in enumerate((plan.shards, *plan.later_shards))]
        self.checkpoints: list[Checkpoint] = [Checkpoint("c0", "query-0", tuple(self.sites))]
        self.drivers: list[Driver] = []
        self.rescalings: list[Rescaling] = []
        self._spares = 0
        self.topology = 0
        scheduler.on_kill = self._on_kill
        self.stored.on_set = self.notes.on_named = self._on_written
        self.stored.on_removed = self.notes.on_removed = self._changed_by
        if plan.location == "disk":
            (home / ROOT).mkdir()

    def sites_of(self, number: int, shards: int = 1) -> list[Site]:
        """Return a query's location, that of each stage; one that was not named before is empty."""
        while self.sites[-1].number < number:
            new = self.sites[-1].number + 1
            self.sites += [Site(self, new, shards, stage) for stage in range(self.plan.stages)]
            if self.plan.location == "disk":
                (self.home / f"{ROOT}{new}").mkdir()
        return [site for site in self.sites if site.number == number]

    def root(self, number: int) -> str:
        """Return the directory of a query's state."""
        return f"{ROOT}{number or ''}" + ("/state" if self.plan.location == "disk" else "")

    def location(self, number: int) -> DurableLocation:
        """Return the location of a query's state, as a process that opens it has it."""
        if self.plan.location == "disk":
            disk = SimulatedDisk(self.scheduler, str(self.home), self.notes, self.power_off)
            return SimulatedLocalLocation(self.scheduler, str(self.home / self.root(number)), disk)
        renames = self.plan.location == "hdfs"
        return SimulatedLocation(Remote(self.scheduler, self.stored, self.root(number), renames=renames))

    def _changed_by(self, path: str) -> Site:
        """Return where a file is that is changed; fail if that may not be changed by who does it."""
        below = path.replace(str(self.home), "").lstrip("/")
        site = next(site for site in self.sites if below.startswith(f"{site.root}/"))
        actor = self.scheduler.current
        tool: Rescaling | None = None if actor is None else actor.process.memory.get("rescaling")
        if tool is not None and site is not tool.target:
            self.scheduler.fail(f"{tool.name} changes {path}, which is not in its target")
        return site

    def _on_written(self, path: str) -> None:
        site = self._changed_by(path)
        site.oracle.on_written(path.replace(str(self.home), "").lstrip("/").removeprefix(f"{site.root}/"))

    def machine_for(self, attempt: str) -> Machine:
        """Return the machine that an attempt runs on."""
        return self.machines[zlib.crc32(attempt.encode()) % len(self.machines)]

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
            self._run(Start(self._new_query(self.sites[0]), step.batches, topology=self.topology), step.wait)
        elif step.do == "rescale":
            self._rescale_stages(step)
        elif step.do == "begin":
            sites = self.sites_of(step.target)
            if len(sites) == 1 or all(site.is_state for site in sites):
                self._run(Start(self._new_query(sites[0]), step.batches, topology=self.topology), step.wait)
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

    def _rescale_stages(self, step: Step) -> None:
        """Rescale: of several stages one, and the others get as many shards as they had, as of the same batch."""
        targets, checkpoint = self.sites_of(step.target, step.amount), self._checkpoint(step.checkpoint)
        if len(targets) > 1 and not checkpoint.committed:
            return
        batch = max(1, checkpoint.committed - step.batches)
        for target in targets:
            is_other = target.stage == step.target % len(targets)
            shards = step.amount if is_other else checkpoint.sites[target.stage].shards
            self._rescale(checkpoint, batch, target, shards, step.wait)

    def _new_query(self, site: Site) -> Checkpoint:
        number = len(self.checkpoints)
        of = [tool.checkpoint for tool in site.rescalings]
        began = max((checkpoint.committed + checkpoint.began for checkpoint in of), default=0)
        sites = tuple(self.sites_of(site.number))
        self.checkpoints.append(Checkpoint(f"c{number}", f"query-{number}", sites, began))
        if len(sites) > 1 and site.rescalings:
            self.checkpoints[-1].model = model_after(site.rescalings[-1].checkpoint, site.rescalings[-1].batch)
        return self.checkpoints[-1]

    def _rescale(self, checkpoint: Checkpoint, batch: int, target: Site, shards: int, wait: bool) -> Rescaling | None:
        """Rescale, and do it again if it failed; return what did it last."""
        tool = None
        for _ in range(_RESTARTS):
            source = checkpoint.sites[target.stage]
            recorded = checkpoint.recorded[source]
            if source is target or not any(recorded.pointer(shard, batch) for shard in range(source.shards)):
                break  # there is nothing to rescale
            tool = Rescaling(self, checkpoint, batch, target, shards)
            self.rescalings.append(tool)
            if not wait:
                break
            self.scheduler.wait(lambda tool=tool: tool.ended)
            if tool.report is not None or isinstance(tool.failure, TargetNotEmptyError):
                break
            if isinstance(tool.failure, LocationBusyError):
                self._remove_turns(target)
        return tool

    def _remove_turns(self, target: Site) -> None:
        """Do what the error says, if all others have ended: remove what they have left."""
        if all(tool.ended for tool in target.rescalings):
            with self.scheduler.silence():
                location = target.location()
                location.delete_all(location.names(TURNS_DIRECTORY))

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
        for number in range(self.sites[-1].number + 1):
            sites = self.sites_of(number)
            for site in sites:
                if site.rescalings:
                    self._finish_rescaling(site)
            if sites[0].checkpoints:
                self._finish_queries(sites[0])

    def _finish_rescaling(self, site: Site) -> None:
        """See that without faults what rescalings have begun becomes a state, and that a query can go on from it."""
        if not site.is_state and not site.drivers:
            self._remove_turns(site)
            last = site.rescalings[-1]
            batch = last.checkpoint.committed if self.plan.stages == 1 else last.batch
            tool = self._rescale(last.checkpoint, batch, site, last.shards, wait=True)
            if tool is None or tool.report is None:
                if tool is not None and not isinstance(tool.failure, DurableFileMissingError):
                    self.scheduler.fail(f"the last rescaling, without faults, failed: {tool.failure!r}")
                return  # it was judged: the source is given up
        if not site.checkpoints and all(other.is_state for other in self.sites_of(site.number)):
            self._new_query(site)

    def _finish_queries(self, site: Site) -> None:
        last = site.oracle.last_committer
        checkpoint = site.checkpoints[0] if last is None else last.start.checkpoint
        before = {
            each: [each.committed_pointer(checkpoint, s, checkpoint.committed).version for s in range(each.shards)]
            for each in checkpoint.sites
        }
        driver = self._run(Start(checkpoint, 1, topology=self.topology, accept_change=True), wait=True)
        if type(driver.failure).__name__ == "CheckpointBehindError":
            # It was judged: another copy was at work.
            driver = self._run(replace(driver.start, accept_older=True), wait=True)
        if type(driver.failure).__name__ in ("DurableFileMissingError", "VersionCollectedError"):
            return  # it was judged: given up
        if driver.failure is not None or last is None or last.start.shards:
            if driver.failure is not None and last is not None and not last.start.shards:
                self.scheduler.fail(f"the last start, without faults, failed: {driver.failure!r}")
            return
        self._wait_for_all()
        for each, versions in before.items():
            self._check_retained(driver, each, versions)

    def _check_retained(self, driver: Driver, site: Site, before: list[int]) -> None:
        """Restore all that is retained, on machines that have nothing, in each way that there is."""
        checkpoint = driver.start.checkpoint
        for shard in range(site.shards):
            newest = (
                max(
                    site.committed_pointer(other, shard, other.committed).version
                    for other in site.checkpoints
                    if other is not checkpoint
                )
                if len(site.checkpoints) > 1
                else 0
            )
            least = max(before[shard], newest) - self.plan.retained
            back = site.oracle.went_back(shard, checkpoint)
            if back is not None:
                least = min(least, max(back, before[shard] - self.plan.retained))
            recorded = [checkpoint.recorded[site].pointer(shard, batch) for batch in range(1, checkpoint.committed + 1)]
            pointers = [CommitPointer.from_json(text) for text in dict.fromkeys(recorded) if text is not None]
            retained = [pointer for pointer in pointers if pointer.version >= least]
            # What is between the oldest and the newest needs nothing that neither of them needs.
            for pointer in [*retained[:1], *retained[1:][-1:]]:
                # With less than two snapshots, all that is needed of deltas is there too.
                for without in range(min(2, len(pointer.snapshots) + (pointer.base_version == 0))):
                    self._restore(driver, site, pointer, without)

    def _spare(self) -> tuple[Process, LocalDirectory]:
        """Return a process of a machine on which nothing is yet, and its local directory."""
        self._spares += 1
        name = f"spare{self._spares}"
        process = Machine(name, self.home / "machines" / name, self.plan.engine).free_process()
        return process, SimulatedLocalDirectory(self.scheduler, process)

    @contextmanager
    def opened_elsewhere(self, site: Site, metadata: StateMetadata, pointer: CommitPointer) -> Iterator[ShardBatch]:
        """Hand out a shard as it is restored on a machine on which nothing is yet."""
        _, local = self._spare()
        with ShardedState(metadata.state_id, site.location(), metadata.stores, local).open(pointer) as batch:
            yield batch

    def _restore(self, driver: Driver, site: Site, pointer: CommitPointer, without: int) -> None:
        from statestore.recovery.restore.restore import note_damaged_snapshot

        process, local = self._spare()
        state: ShardedState = replace(driver.states[site], location=site.location(), local=local)
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
                    site.oracle.check_content(who, pointer, batch)
                    if batch.copy is not None:
                        site.oracle.check_way(who, batch.copy.restored_from, way)
            except Exception as failure:
                site.oracle.unexplained(who, failure)

        actor = self.scheduler.spawn(process.machine.name, process, restore)
        self.scheduler.wait(lambda: actor.done)
