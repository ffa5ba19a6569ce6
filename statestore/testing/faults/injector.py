"""Makes the faults of a plan happen: every faulty part asks here before and after what it does."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from statestore.errors.harness import InjectedFaultError
from statestore.testing.faults.fault import Effect, Fault, FileKind, Point
from statestore.testing.faults.journal import FaultJournal, Firing
from statestore.testing.faults.plan import FaultPlan

DISARMED = "disarmed"
POWER_OFF = "power-off"
FIRED = "fired"
_KILLS = (Effect.KILL_BEFORE, Effect.KILL_AFTER)
_BEFORE = (Effect.ERROR_BEFORE, Effect.KILL_BEFORE)
_AFTER = (Effect.ERROR_AFTER, Effect.KILL_AFTER)

MakeError = Callable[[str], Exception]
"""Makes the error that an operation fails with, of the fault in words."""


def fault_text(index: int) -> str:
    """Return the words that mark an error as coming from the fault with this number."""
    return f"injected fault {index}"


class Injector:
    """Strikes with the faults of a plan. Picklable; all copies count together. Made by the driver of the query."""

    def __init__(self, plan: FaultPlan, journal: FaultJournal) -> None:
        self.plan = plan
        self.journal = journal
        self._driver_pid = os.getpid()

    @contextmanager
    def at(
        self, point: Point, where: str = "", *, error: MakeError = InjectedFaultError, name: str = ""
    ) -> Iterator[Fault | None]:
        """Strike around an operation, and yield the fault that strikes: the caller applies it to data.

        `name` is the file's, if the operation is on one. `error` makes what is raised.
        """
        if self.journal.is_set(POWER_OFF):
            self._die(error(f"{POWER_OFF}: no operation works until the next start"))
        struck = self._strike(point, FileKind.of(name) if name else FileKind.OTHER, name or where)
        if struck is None:
            yield None
            return
        index, fault = struck
        text = f"{fault_text(index)}: {fault.describe()}"
        if fault.effect is Effect.DELAY:
            time.sleep(fault.amount / 1000)
        elif fault.effect is Effect.POWER_LOSS:
            self.journal.set(POWER_OFF)
            self._die(error(f"{POWER_OFF}: {text}"))
        elif fault.effect in _BEFORE:
            self._fail(fault, error(text))
        yield fault
        if fault.effect in _AFTER:
            self._fail(fault, error(text))

    def text(self, fault: Fault) -> str:
        """Return the words that an error of this fault must have."""
        return f"{fault_text(self.plan.faults.index(fault))}: {fault.describe()}"

    def note(self, index: int, at: str) -> None:
        """Note that a fault struck."""
        self.journal.note(FIRED, Firing(index, at))

    def _strike(self, point: Point, kind: FileKind, at: str) -> tuple[int, Fault] | None:
        if self.journal.is_set(DISARMED):
            return None
        struck = None
        for index, fault in enumerate(self.plan.faults):
            if not fault.strikes_at(point, kind):
                continue
            occurrence = self.journal.count(f"fault-{index}")
            if struck is None and fault.occurrence <= occurrence < fault.occurrence + fault.times:
                struck = index, fault
        if struck is not None:
            self.note(struck[0], at)
        return struck

    def _fail(self, fault: Fault, error: Exception) -> NoReturn:
        if fault.effect in _KILLS:
            self._die(error)
        raise error

    def _die(self, error: Exception) -> NoReturn:
        """Kill this process, but raise in the driver, which runs the whole soak."""
        if os.getpid() != self._driver_pid:
            os.kill(os.getpid(), signal.SIGKILL)
        raise error
