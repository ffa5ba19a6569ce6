"""What a query under faults runs in: the faulty parts that it is handed, and what strikes between its starts."""

from __future__ import annotations

import logging
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from statestore.errors.harness import QueryHungError
from statestore.middleware import IngestedRecord
from statestore.recovery.location.durable_location import DurableLocation
from statestore.testing.faults.damage import damage_local, rot
from statestore.testing.faults.disk import FaultyLocation, lose_unsynced
from statestore.testing.faults.fault import Effect, Fault, FileKind, Point
from statestore.testing.faults.injector import DISARMED, POWER_OFF, Injector
from statestore.testing.faults.journal import FaultJournal
from statestore.testing.faults.local_state import FaultyLocalDirectory
from statestore.testing.faults.plan import FaultPlan

_LOG = logging.getLogger(__name__)
_UNSYNCED_LOCAL_FILES = ("statestore.marker", "plan.json", "result.json", "digests.json")
"""Files beside the local copies that are written without being synced, most of them."""
_Rows = TypeVar("_Rows")


class RunningQuery(Protocol):
    """A streaming query of Spark, as far as it is needed here."""

    def awaitTermination(self, timeout: int | None = None) -> bool | None:
        """Wait for the end; return whether it came in time."""
        ...

    def stop(self) -> None:
        """Stop it."""
        ...


class FaultyIngest:
    """A function that returns an incoming record unchanged unless a fault strikes. Picklable."""

    def __init__(self, injector: Injector) -> None:
        self._injector = injector

    def __call__(self, record: IngestedRecord) -> IngestedRecord:
        """Return the record, unless a fault strikes."""
        with self._injector.at(Point.RECORD, f"{record.topic}-{record.partition}@{record.offset}"):
            return record


class FaultEnvironment:
    """The directory, location, local state, hooks and time limit of one query under a fault plan.

    `home` must be an empty directory on a local disk. Subclass it to hand out parts of your own.
    """

    def __init__(self, plan: FaultPlan, home: Path, *, timeout_s: int = 120) -> None:
        self.plan = plan
        self.home = home
        self.timeout_s = timeout_s
        self.journal = FaultJournal(home / "journal")
        self.injector = Injector(plan, self.journal)
        self.state_directory = home / "state"
        self.local_directory = home / "local"
        self.checkpoint = home / "checkpoint"
        self.state_location: DurableLocation = self.make_location()
        self.local_dir = self.make_local_directory()
        self.ingest = FaultyIngest(self.injector)
        self.goes_back = False
        """Whether the query has been set back to an older checkpoint."""
        self._saved = home / "older-checkpoint"

    def make_location(self) -> DurableLocation:
        """Return the durable location that the query is handed."""
        return FaultyLocation(self.state_directory, self.injector)

    def make_local_directory(self) -> FaultyLocalDirectory:
        """Return the local directory that the query is handed."""
        return FaultyLocalDirectory(self.local_directory, self.injector)

    def stateful_options(self) -> dict[str, Any]:
        """Return what `stateful()` is to be called with, so that faults can strike."""
        options: dict[str, Any] = {
            "state_location": self.state_location,
            "local_dir": self.local_dir,
            "interceptors": self.ingest,
        }
        if self.goes_back:
            options["accept_older_checkpoint"] = True
        return options

    def sink(self, write: Callable[[_Rows, int], None]) -> Callable[[_Rows, int], None]:
        """Return `write`, a function for foreachBatch, with faults: it must tolerate being called again."""

        def struck(rows: _Rows, batch_id: int) -> None:
            with self.injector.at(Point.SINK, f"batch {batch_id}"):
                write(rows, batch_id)

        return struck

    def wait_for(self, query: RunningQuery) -> None:
        """Wait for the end of a query. Raises what it failed with, and QueryHungError if it takes too long."""
        try:
            if not query.awaitTermination(self.timeout_s):
                raise QueryHungError(timeout_s=self.timeout_s)
        finally:
            query.stop()

    def disarm(self) -> None:
        """Let no fault strike any more."""
        self.journal.set(DISARMED)

    def before_run(self) -> None:
        """Switch the power on again if it is off, and drop what was not synced before."""
        if self.journal.is_set(POWER_OFF):
            struck = [self.plan.faults[firing.fault] for firing in self.journal.fired()]
            for fault in struck:
                if fault.effect is Effect.POWER_LOSS:
                    self._lose_unsynced(fault.amount)
            self.journal.clear(POWER_OFF)

    def save_checkpoint(self) -> None:
        """Copy the checkpoint if the plan has a fault that goes back to it."""
        if any(fault.effect is Effect.OLDER_CHECKPOINT for fault in self.plan.faults) and self.checkpoint.exists():
            shutil.rmtree(self._saved, ignore_errors=True)
            shutil.copytree(self.checkpoint, self._saved)

    def after_run(self, number: int) -> None:
        """Strike with the faults that the plan has after the run `number`, counted from 1, while nothing runs."""
        for index, fault in enumerate(self.plan.faults):
            if fault.point is Point.BETWEEN_RUNS and fault.occurrence == number:
                done = self._strike_between_runs(fault)
                if done is not None:
                    self.injector.note(index, done)
                    _LOG.info("between runs: %s", done)

    def _strike_between_runs(self, fault: Fault) -> str | None:
        """Strike, and return what was done; None if there was nothing to strike at."""
        if fault.effect is Effect.LOSE_LOCAL:
            shutil.rmtree(self.local_directory, ignore_errors=True)
            return "lost the local directory"
        if fault.effect is Effect.DAMAGE_LOCAL:
            return damage_local(self.local_directory, fault.amount)
        if fault.effect is Effect.POWER_LOSS:
            return self._lose_unsynced(fault.amount)
        if fault.effect is Effect.ROT:
            return self._rot(fault)
        if fault.effect is Effect.OLDER_CHECKPOINT and self._saved.exists():
            shutil.rmtree(self.checkpoint)
            shutil.copytree(self._saved, self.checkpoint)
            self.goes_back = True
            return "went back to the checkpoint before the last run"
        return None

    def _lose_unsynced(self, seed: int) -> str:
        lost = lose_unsynced(self.journal, seed)
        rng = random.Random(seed)
        for file in sorted(self.local_directory.rglob("*")):
            if file.name in _UNSYNCED_LOCAL_FILES and rng.random() < 0.5:
                content = file.read_bytes()
                file.write_bytes(content[: rng.choice((0, len(content) // 2))])
                lost.append(f"content of {file}")
        return f"lost power, and with it: {', '.join(lost) or 'nothing'}"

    def _rot(self, fault: Fault) -> str | None:
        files = sorted(
            path.relative_to(self.state_directory).as_posix()
            for path in self.state_directory.rglob("*")
            if path.is_file() and not path.name.endswith(".partial")
        )
        files = [name for name in files if fault.kind in (FileKind.ANY, FileKind.of(name))]
        if not files:
            return None
        return rot(self.journal, self.state_directory, random.Random(fault.amount).choice(files), fault.amount)
