"""Runs a query under a fault plan, restarts it as an operator would, and compares results with what was expected."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from statestore.errors.harness import QueryHungError
from statestore.testing.faults.damage import bring_back, rotten_files
from statestore.testing.faults.environment import FaultEnvironment
from statestore.testing.faults.fault import Effect, FileKind, Point
from statestore.testing.faults.injector import POWER_OFF, fault_text
from statestore.testing.faults.journal import Firing
from statestore.testing.faults.plan import FaultPlan

_SPARE_RESTARTS: Final = 12
_SHOWN_DIFFERENCES: Final = 5
_SHOWN_FAILURE_CHARS: Final = 6_000
_Result = TypeVar("_Result")

_DIED: Final = re.compile(
    r"Python worker exited unexpectedly|Python worker process has terminated|EOFException|Connection reset"
    r"|Broken pipe|SocketException|ClosedChannelException"
)
_NEVER_BEGAN: Final = re.compile(r"Python worker failed to connect back")
"""Spark gives a new worker seconds to start, and a busy machine takes longer. No plan causes that."""


def _ours(errors: str) -> re.Pattern[str]:
    """Return a pattern of these statestore errors, alone or as the cause of a ProcessorError."""
    return re.compile(rf"\bstatestore\.errors\.\w+\.(ProcessorError: .*\b)?({errors})Error: ")


_DUE: Final = {
    "location": _ours("Location|LocationNotWritable"),
    "disk": _ours("Location|LocationNotWritable"),
    "local": _ours("Store|LocalDiskFull|LocalStateCorrupted"),
    "record": _ours("InjectedFault"),
    "sink": _ours("InjectedFault"),
}
"""Which errors a failure at each kind of point must become."""
_DAMAGED: Final = _ours("DurableFileCorrupted|DurableFileMissing|SnapshotFormat")
_OTHER_STATE: Final = _ours("LocationMismatch")
_KILLS: Final = (Effect.KILL_BEFORE, Effect.KILL_AFTER)

Contents: TypeAlias = "Mapping[str, Mapping[Any, Any]]"
"""What is compared, by name: the output, and each store. Each is a mapping of keys to what they must have."""


class QueryUnderFaults(Protocol):
    """A query with its input, and what must come of it."""

    def add_batch(self, number: int) -> None:
        """Add the input of one more micro-batch, counted from 0."""
        ...

    def run(self) -> None:
        """Start the query, on its checkpoint if there is one, and wait until it has processed all input; or raise."""
        ...

    def expected(self) -> Contents:
        """Return what must come of all input, worked out without the code under test."""
        ...

    def found(self) -> Contents:
        """Return what came of it: the output, and the stores as they are read back from the durable location."""
        ...


MakeQuery: TypeAlias = "Callable[[FaultEnvironment], QueryUnderFaults]"
"""Makes the query that runs in an environment of faults."""


@dataclass
class PlanResult:
    """What came of one plan. `problem` of None: nothing was lost, nothing came twice, every error was the one due."""

    plan: FaultPlan
    problem: str | None = None
    fired: list[Firing] = field(default_factory=list)
    restarts: int = 0
    repairs: int = 0
    """How often damaged files were brought back from the backup, after the error that named one."""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return the result as JSON can hold it."""
        faults = [fault.describe() for fault in self.plan.faults]
        return {
            "seed": self.plan.seed,
            "runs": self.plan.runs,
            "faults": faults,
            "fired": [[faults[firing.fault], firing.at] for firing in self.fired],
            "restarts": self.restarts,
            "repairs": self.repairs,
            "seconds": round(self.seconds, 2),
            "problem": self.problem,
        }


def run_plan(
    plan: FaultPlan,
    make_query: MakeQuery,
    home: Path,
    *,
    make_environment: Callable[[FaultPlan, Path], FaultEnvironment] = FaultEnvironment,
) -> PlanResult:
    """Run the query that `make_query` makes under `plan`, in the empty directory `home`, and return what came of it."""
    started_s = time.monotonic()
    result = PlanResult(plan)
    environment = make_environment(plan, home)
    try:
        result.problem = _PlanRun(environment, make_query(environment), result).problem()
    except Exception:
        result.problem = f"the harness failed:\n{traceback.format_exc()}"
    result.fired = environment.journal.fired()
    result.seconds = time.monotonic() - started_s
    return result


class _UnexplainedError(Exception):
    """A failure that the plan does not explain."""


class _PlanRun:
    def __init__(self, environment: FaultEnvironment, query: QueryUnderFaults, result: PlanResult) -> None:
        self._environment = environment
        self._query = query
        self._result = result

    def problem(self) -> str | None:
        """Run the plan; return what is wrong, None if nothing is."""
        environment, query = self._environment, self._query
        added = 0
        try:
            for number, batches in enumerate(environment.plan.runs, start=1):
                for _ in range(batches):
                    query.add_batch(added)
                    added += 1
                environment.save_checkpoint()
                self._until_it_works(query.run)
                environment.after_run(number)
            environment.disarm()
            if environment.goes_back:
                self._until_it_works(query.run)
            found = self._until_it_works(query.found)
        except _UnexplainedError as failure:
            return str(failure)
        return differences(query.expected(), found)

    def _until_it_works(self, operation: Callable[[], _Result]) -> _Result:
        """Call, and call again after each failure that the plan explains, having done what the error asks for."""
        journal = self._environment.journal
        most = _SPARE_RESTARTS + sum(fault.times for fault in self._environment.plan.faults)
        for _ in range(most):
            self._environment.before_run()
            fired_before = len(journal.fired())
            try:
                return operation()
            except QueryHungError as hung:
                raise _UnexplainedError(f"hung: {hung}") from hung
            except Exception as failure:
                text = f"{failure}\n{traceback.format_exc()}"
                if any(names_damage(text, name) for name in rotten_files(journal)):
                    bring_back(journal, self._environment.state_directory)
                    self._result.repairs += 1
                elif not is_explained(self._environment.plan, journal.fired()[fired_before:], text):
                    raise _UnexplainedError(f"failed, and no fault explains it:\n{_shorten(text)}") from failure
                self._result.restarts += 1
        raise _UnexplainedError(f"still fails after {most} restarts")


def differences(expected: Contents, found: Contents) -> str | None:
    """Return how what was found differs from what was expected, in words; None if it does not."""
    lines = []
    for name in sorted({*expected, *found}):
        wanted, got = expected.get(name, {}), found.get(name, {})
        wrong = [key for key in (*wanted, *(key for key in got if key not in wanted)) if _differs(key, wanted, got)]
        lines += [
            f"{name} {key!r}: expected {wanted.get(key, 'nothing')!r}, found {got.get(key, 'nothing')!r}"
            for key in wrong[:_SHOWN_DIFFERENCES]
        ]
        if len(wrong) > _SHOWN_DIFFERENCES:
            lines.append(f"{name}: and {len(wrong) - _SHOWN_DIFFERENCES} more of {len(wanted)}")
    return "wrong results:\n" + "\n".join(lines) if lines else None


def _differs(key: Any, wanted: Mapping[Any, Any], got: Mapping[Any, Any]) -> bool:
    return key not in wanted or key not in got or wanted[key] != got[key]


def _shorten(text: str) -> str:
    if len(text) <= _SHOWN_FAILURE_CHARS:
        return text
    half = _SHOWN_FAILURE_CHARS // 2
    return f"{text[:half]}\n...\n{text[-half:]}"


def is_explained(plan: FaultPlan, firings: Iterable[Firing], failure: str) -> bool:
    """Return whether a fault in `firings` explains a failure with this text, or a worker never began."""
    return _NEVER_BEGAN.search(failure) is not None or any(_explains(plan, firing, failure) for firing in firings)


def _explains(plan: FaultPlan, firing: Firing, failure: str) -> bool:
    fault = plan.faults[firing.fault]
    if fault.effect is Effect.POWER_LOSS:
        return POWER_OFF in failure or _DIED.search(failure) is not None
    if fault.effect in _KILLS and _DIED.search(failure):
        return True
    if fault.effect is Effect.CORRUPT and fault.point in (Point.READ, Point.FETCH):
        return names_damage(failure, firing.at)
    due = _DUE[fault.point.value.partition(".")[0]]
    return fault_text(firing.fault) in failure and due.search(failure) is not None


def names_damage(failure: str, name: str) -> bool:
    """Return whether a failure is the error that is due for the damaged or missing durable file `name`."""
    if _DAMAGED.search(failure) and name in failure:
        return True
    # A location without metadata looks new. The query detects the old state before it overwrites anything.
    return FileKind.of(name) is FileKind.METADATA and _OTHER_STATE.search(failure) is not None
