"""One simulation of the sink: queries of Spark that write to Kafka, who starts them, and what a consumer must see.

What is real: how a run begins, what it plans, and what a task does: `WriterRun`, `write_partition`, `look_at_partition`
and `Transaction`, unchanged. Kafka is `broker`. Spark is checkpoints, drivers, tasks and attempts, as in
`tests.simulation.spark`: a batch is planned once, before it runs, in the log of its checkpoint; attempts that were
overtaken, and those of drivers that died, go on.

A query reads a log that grows, and puts out for each batch and key one record, which says what of the log it stands
for. So batches of other plans have the same counts, and what a consumer sees tells whether each record of the input is
in it, once and in order: that is the oracle, and it knows neither markers nor digests.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch
from uuid import UUID

import pyarrow as pa

from statestore.errors import KafkaSinkError
from statestore.errors.run import MarkerTopicError
from statestore.spark.kafka_sink import run as run_module
from statestore.spark.kafka_sink import transaction as transaction_module
from statestore.spark.kafka_sink.markers import OF_PLAN, MarkerTopic
from statestore.spark.kafka_sink.partition import (
    BatchPlan,
    PartitionWritten,
    Writer,
    look_at_partition,
    write_partition,
)
from statestore.spark.kafka_sink.run import WriterRun
from tests.simulation.decisions import DRIVER, TASK, Decisions, DrawnDecisions, Effect, WrittenDecisions
from tests.simulation.scheduler import Process, Scheduler
from tests.simulation.sink.broker import SimulatedBroker, SimulatedCluster
from tests.simulation.sink.plan import NAMES, SinkPlan, SinkStep
from tests.simulation.world import Result

_MARKERS: Final = "markers"
_KEPT: Final = 100
"""How many plans a checkpoint keeps, as Spark does by default."""
_SLOW: Final = (None, None, "kafka.init", "kafka.send", "kafka.commit", "kafka.ends", "kafka.read", "task", "broker")
_FOCUSES: Final = ("kafka.init", "kafka.send", "kafka.commit", "kafka.ends", "kafka.read", "task.rows", "broker.end")


class AnotherDriverError(KafkaSinkError):
    """Another driver has written the log of this checkpoint."""


@dataclass(frozen=True)
class Settings:
    """How a driver divides rows, and whether it is told plans: what has to stay in a batch that was begun."""

    partitions: int
    turn: int
    told: bool
    grows: int = 0


@dataclass
class Batch:
    """What Spark has planned: the input up to `end`, exclusive."""

    name: str
    start: int
    end: int


@dataclass
class Line:
    """One copy of a query's checkpoint."""

    query: int
    planned: list[Batch] = field(default_factory=list)
    committed: int = 0

    def copy(self, back: int) -> Line:
        """Return a copy as of so many batches before; what was planned after it is not in it."""
        kept = max(0, self.committed - back)
        return Line(self.query, self.planned[:kept], kept)


class SinkWorld:
    """Everything that is there."""

    def __init__(self, plan: SinkPlan, scheduler: Scheduler) -> None:
        self.plan = plan
        self.scheduler = scheduler
        self.rng = random.Random(f"input {plan.seed}")
        topics = {_MARKERS: plan.marker_partitions, **{f"output{number}": 2 for number in range(len(NAMES))}}
        self.broker = SimulatedBroker(scheduler, topics, _MARKERS)
        self.cluster = SimulatedCluster("simulated", broker=self.broker)
        self.lines = [Line(query) for query in range(len(NAMES))]
        self.drivers: list[SinkDriver] = []
        self.written_with: dict[str, Settings] = {}
        """By batch, the settings under which a part of it was committed."""
        self.batches = 0
        scheduler.on_kill = self._on_kill
        self.broker.on_committed = self._on_committed

    def _on_kill(self, process: Process) -> None:
        for attempt in process.memory.get("attempts", ()):
            attempt.end(None)

    def _on_committed(self, process: Process) -> None:
        for attempt in process.memory.get("attempts", ()):
            self.written_with.setdefault(attempt.task.batch.name, attempt.task.settings)

    def input_of(self, key: int, batch: Batch) -> list[int]:
        """Return which records of the input a batch has of a key."""
        return [number for number in range(batch.start, batch.end) if number % self.plan.keys == key]

    def new_batch(self, line: Line) -> Batch:
        """Plan what a batch reads: some of what is there by now."""
        self.batches += 1
        start = line.planned[-1].end if line.planned else 0
        return Batch(f"batch{self.batches}", start, start + self.rng.choice((0, 1, 2, 3, 3)))

    # What operators do.

    def operate(self) -> None:
        """Go through the story; then see that what was left can be finished, and is right."""
        for step in self.plan.story:
            self.scheduler.op("operator", step.describe())
            if step.do == "rest":
                self.scheduler.rest(step.amount)
            elif step.do == "copy":
                self.lines.append(self.line(step.checkpoint).copy(step.amount))
            else:
                self._run(step)
        self.scheduler.decisions.calm = True
        own = self.scheduler.current
        self.scheduler.wait(lambda: all(actor.done for actor in self.scheduler.actors if actor is not own))
        # What processes that died have left open takes its time.
        self.scheduler.now_ns += 2 * self.plan.timeout_ms * 10**6
        self.broker.time_out(all_late=True)
        self.check("in the end")
        for query in range(len(NAMES)):
            self._finish(query)

    def line(self, number: int) -> Line:
        return self.lines[number] if number < len(self.lines) else self.lines[0]

    def _run(self, step: SinkStep) -> None:
        settings = Settings(step.partitions, step.turn, step.told, step.grows)
        for _ in range(step.amount):
            driver = self._start(self.line(step.checkpoint), step.batches, settings)
            if not step.wait:
                return
            self.scheduler.wait(lambda driver=driver: driver.done or driver.process.dead)
            if driver.done and driver.failure is None:
                return

    def _start(self, line: Line, batches: int, settings: Settings) -> SinkDriver:
        self.drivers.append(SinkDriver(self, f"driver{len(self.drivers)}", line, batches, settings))
        return self.drivers[-1]

    def _finish(self, query: int) -> None:
        """Have the line go on that has written last, which nothing may keep from it."""
        seen = self.seen(query)
        there = max((number for numbers in seen.values() for number in numbers), default=-1) + 1
        lines = [line for line in self.lines if line.query == query and self._is_of(line, query)]
        if not lines:
            return
        line = max(lines, key=lambda line: (line.planned[-1].end if line.planned else 0, line.committed))
        for _ in range(2):
            left = line.planned[line.committed :]
            settings = self.written_with.get(left[0].name) if left else None
            driver = self._start(line, 1, settings or Settings(2, 0, True))
            self.scheduler.wait(lambda driver=driver: driver.done)
            if driver.failure is not None:
                self.scheduler.fail(
                    f"{driver.name} can't finish {NAMES[query]}, of which {there} is there: {driver.failure!r}"
                )
            self.check(f"after {driver.name}")

    def _is_of(self, line: Line, query: int) -> bool:
        """Return whether all that is there of a query was planned in a line."""
        names = {batch.name for batch in line.planned}
        return all(name in names for name, _, _ in self.records(query))

    # What a consumer sees.

    def records(self, query: int) -> list[tuple[str, int, list[int]]]:
        """Return the records that count: of which plan, key, and what of the input they stand for."""
        found = []
        for partition in range(2):
            for entry in self.broker.committed((f"output{query}", partition)):
                assert entry.value is not None
                name, key, *numbers = entry.value.decode().split()
                found.append((name, int(key), [int(number) for number in numbers]))
        return found

    def seen(self, query: int) -> dict[int, list[int]]:
        """Return by key what of the input a consumer of a query's output has seen, in its order."""
        seen: dict[int, list[int]] = {}
        for _, key, numbers in self.records(query):
            seen.setdefault(key, []).extend(numbers)
        return seen

    def check(self, when: str) -> None:
        """Fail unless each record of the input is in the output once and in order, as far as there is output."""
        for query, names in enumerate(NAMES):
            for key, numbers in self.seen(query).items():
                expected = [key + self.plan.keys * number for number in range(len(numbers))]
                if numbers != expected:
                    what = "doubled" if len({*numbers}) < len(numbers) else "lost or in another order"
                    self.scheduler.fail(f"{what} {when}: {names} has {numbers} of key {key}")

    def check_committed(self, line: Line, batch: Batch, who: str) -> None:
        """Fail unless all that Spark takes for written is."""
        self.check(f"when {who} committed")
        seen = self.seen(line.query)
        for key in range(self.plan.keys):
            missing = {*self.input_of(key, batch)} - {*seen.get(key, ())}
            if missing:
                self.scheduler.fail(f"lost when {who} committed: {sorted(missing)} of key {key}")


class SinkDriver:
    """One start of a query."""

    def __init__(self, world: SinkWorld, name: str, line: Line, batches: int, settings: Settings) -> None:
        self.world = world
        self.name = name
        self.line = line
        self.settings = settings
        self.process = Process(name)
        self.process.memory["query"] = line.query
        self.done = False
        self.failure: BaseException | None = None
        self._batches = batches
        world.scheduler.spawn(name, self.process, self._run)

    def _run(self) -> None:
        try:
            self._query()
        except KafkaSinkError as failure:
            self.failure = failure
        self.done = True

    def _query(self) -> None:
        world = self.world
        query, writer_name = NAMES[self.line.query]
        topic = MarkerTopic(world.cluster, _MARKERS, world.plan.marker_partitions)
        writer = Writer(topic, query, writer_name, "sink", world.plan.timeout_ms)
        run: WriterRun | None = None
        for _ in range(self._batches):
            number = self.line.committed
            if number == len(self.line.planned):
                self.line.planned.append(world.new_batch(self.line))
            batch = self.line.planned[number]
            world.scheduler.op("spark.plan", f"batch {number}", DRIVER[:1])
            if run is None:
                run = WriterRun(writer, self.settings.partitions)
            plan = run.plan(number, self.settings.partitions, self._planned)
            if plan.is_repeat:
                for partition in range(plan.partitions):
                    look_at_partition(plan, partition, self.rows(batch, partition, self.settings))
            run.note(plan, self._write(plan, batch))
            world.scheduler.op("spark.commit", f"batch {number}", DRIVER[:1])
            if self.line.committed != number or self.line.planned[number] is not batch:
                raise AnotherDriverError(f"batch {number} is committed already")
            self.line.committed += 1
            world.check_committed(self.line, batch, self.name)
            self.settings = replace(self.settings, partitions=self.settings.partitions + self.settings.grows)

    def _planned(self, number: int) -> str | None:
        """Return what Spark tells of what it has planned, as long as it keeps it."""
        planned = self.line.planned
        is_kept = self.settings.told and len(planned) - _KEPT <= number < len(planned)
        return OF_PLAN + planned[number].name if is_kept else None

    def rows(self, batch: Batch, partition: int, settings: Settings) -> Iterator[pa.RecordBatch | None]:
        """Yield the rows of a partition, one at a time, and their end."""
        for key in range(self.world.plan.keys):
            numbers = self.world.input_of(key, batch)
            if (key + settings.turn) % settings.partitions == partition and numbers:
                text = " ".join(map(str, (batch.name, key, *numbers)))
                row = {"topic": f"output{self.line.query}", "key": b"%d" % key, "value": text.encode()}
                yield pa.RecordBatch.from_pylist([{**row, "partition": key % 2}])
        yield None

    def _write(self, plan: BatchPlan, batch: Batch) -> list[PartitionWritten]:
        scheduler = self.world.scheduler
        tasks = [SinkTask(self, plan, batch, partition) for partition in range(plan.partitions)]
        for task in tasks:
            task.attempt()
        while not all(task.written for task in tasks):
            effect = scheduler.op("spark.wait", batch.name, DRIVER)
            if effect is Effect.DRIVER_DIES:
                scheduler.kill(self.process)
            if effect is Effect.SPECULATE:
                slow = next((task for task in tasks if task.running == 1 and task.written is None), None)
                if slow is not None:
                    slow.attempt()
            for task in tasks:
                if task.written is None and task.running == 0:
                    if len(task.failures) >= self.world.plan.task_failures:
                        raise task.failures[-1]
                    task.attempt()
            ended = sum(task.ended for task in tasks)
            if not all(task.written for task in tasks):
                scheduler.wait(lambda ended=ended: sum(task.ended for task in tasks) > ended)
        return [task.written for task in tasks if task.written is not None]


class SinkTask:
    """One partition of a batch, and its attempts."""

    def __init__(self, driver: SinkDriver, plan: BatchPlan, batch: Batch, partition: int) -> None:
        self.driver = driver
        self.settings = driver.settings
        self.plan = plan
        self.batch = batch
        self.partition = partition
        self.attempts = self.running = self.ended = 0
        self.failures: list[KafkaSinkError] = []
        self.written: PartitionWritten | None = None

    def attempt(self) -> None:
        """Start one more, in a process of its own."""
        self.attempts += 1
        self.running += 1
        name = f"{self.driver.name}.{self.batch.name}.p{self.partition}.a{self.attempts}"
        process = Process(name)
        process.memory["query"] = self.driver.line.query
        process.memory["attempts"] = [Attempt(self)]
        self.driver.world.scheduler.spawn(name, process, process.memory["attempts"][0].run)


class Attempt:
    """One attempt of a task."""

    def __init__(self, task: SinkTask) -> None:
        self.task = task
        self.has_ended = False

    def run(self) -> None:
        """Do the task."""
        task, driver = self.task, self.task.driver
        try:
            driver.world.scheduler.op("task.rows", f"partition {task.partition}", TASK)
            written = write_partition(task.plan, task.partition, self._rows())
        except KafkaSinkError as failure:
            self.end(failure)
        else:
            self.end(written)

    def _rows(self) -> Iterator[pa.RecordBatch | None]:
        task = self.task
        for part in task.driver.rows(task.batch, task.partition, task.settings):
            task.driver.world.scheduler.op("task.rows", f"partition {task.partition}", TASK)
            yield part

    def end(self, how: PartitionWritten | KafkaSinkError | None) -> None:
        """Tell the driver how it ended; None: its process died."""
        task = self.task
        if self.has_ended:
            return
        self.has_ended = True
        task.running -= 1
        task.ended += 1
        if isinstance(how, MarkerTopicError):
            task.driver.world.scheduler.fail(f"says that markers are lost, which none is: {how}")
        if isinstance(how, PartitionWritten):
            task.written = task.written or how
        else:
            task.failures.append(how or WorkerDiedError())


class WorkerDiedError(KafkaSinkError):
    """The process of a task's last attempt died."""


class _Inline:
    """What stands for a pool of threads: actors are threads already."""

    def __init__(self, *_: Any) -> None: ...

    def __enter__(self) -> _Inline:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def map(self, function: Callable[[Any], Any], items: Any) -> Iterator[Any]:
        return map(function, items)


@contextmanager
def _substituted(scheduler: Scheduler) -> Iterator[None]:
    """Take clocks and names from the simulation."""
    named = random.Random("names")
    clock = SimpleNamespace(monotonic=lambda: scheduler.now_ns / 1e9)
    with ExitStack() as patches:
        patches.enter_context(patch.object(transaction_module, "time", clock))
        patches.enter_context(patch.object(run_module, "ThreadPoolExecutor", _Inline))
        patches.enter_context(patch.object(run_module, "uuid4", lambda: UUID(int=named.getrandbits(128))))
        yield


def simulate(plan: SinkPlan, *, keep_trace: bool = False) -> Result:
    """Run a plan: with the decisions that it has, or with drawn ones."""
    decisions: Decisions
    if plan.decisions is None:
        decisions = DrawnDecisions(plan.seed, slow=_SLOW, focuses=_FOCUSES)
    else:
        decisions = WrittenDecisions(plan.decisions)
    scheduler = Scheduler(decisions, keep_trace=keep_trace)
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        world = SinkWorld(plan, scheduler)
        with _substituted(scheduler):
            scheduler.run("operator", Process("operator"), world.operate)
    finally:
        logging.disable(disabled)
    commits = sum(line.committed for line in world.lines)
    made = replace(plan, decisions=tuple(decisions.taken))
    return Result(made, scheduler.problem, scheduler.operations, commits, trace=scheduler.trace or [])  # type: ignore[arg-type]
