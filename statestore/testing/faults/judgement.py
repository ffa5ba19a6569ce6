"""Says whether a plan explains that a query failed: only the errors that are due count."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from statestore.testing.faults.fault import Effect, FileKind, Point
from statestore.testing.faults.injector import POWER_OFF, fault_text
from statestore.testing.faults.journal import Firing
from statestore.testing.faults.plan import FaultPlan

_DIED: Final = re.compile(
    r"Python worker exited unexpectedly|Python worker process has terminated|EOFException|Connection reset"
    r"|Broken pipe|SocketException|ClosedChannelException"
)
_NEVER_BEGAN: Final = re.compile(r"Python worker failed to connect back")
"""Spark gives a new worker seconds to start, and a busy machine takes longer. It is no work of any plan."""


def _ours(errors: str) -> re.Pattern[str]:
    """Return what finds one of these errors of ours, as it is or as what user code failed with."""
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


def is_explained(plan: FaultPlan, firings: Iterable[Firing], failure: str) -> bool:
    """Return whether one of the faults that struck since the query's start is why it failed, or a worker never began.

    `failure` is the text of what it raised, with the traceback of the task.
    """
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
    # Without its metadata a location looks new. The query finds out that it is not before it writes over anything.
    return FileKind.of(name) is FileKind.METADATA and _OTHER_STATE.search(failure) is not None
