"""Decisions: what makes one run of a plan differ from another. Drawn from a seed once, written down, and replayed.

A decision belongs to an operation of an actor: by the actor's name, the place, such as the write of a delta, and how
often the actor has been there. So it is still about the same operation when decisions before it are left out, which is
what shrinking does, and when other operations were added to the code since it was written down.
"""

from __future__ import annotations

import json
import random
from enum import Enum
from typing import Any, NamedTuple


class Effect(str, Enum):
    """What is decided at an operation."""

    PAUSE = "pause"
    """Others go on, for so many operations."""
    KILL = "kill"
    """The process dies before it."""
    KILL_AFTER = "kill after"
    ERROR = "error"
    """It fails once, and nothing was done; an object store's client tries again."""
    LOST = "lost response"
    """It is done, and fails; an object store's client tries again."""
    OUTAGE = "outage"
    """It fails for longer than the client tries."""
    REFUSED = "refused"
    """It fails in a way that no client tries again."""
    POWER = "power loss"
    """The machine goes off, and what was not synced is lost, or some of it. `amount` seeds what."""
    NO_SPACE = "no space"
    CORRUPT = "corrupt"
    """The engine reports damage."""
    FLUSH = "flush"
    """The engine brings a family to disk, as it does when its memory is full."""
    SPECULATE = "speculate"
    """Another attempt of a task is started beside the one that runs."""
    DRIVER_DIES = "driver dies"
    """The driver dies and its executors go on, as long as they can."""
    IMPATIENT = "impatient"
    """A wait with a time limit ends before what it waits for."""
    FETCH_FAILED = "fetch failed"
    """What a task has handed to the next stage is lost, and it is run again."""


LOCATION_READ = (Effect.ERROR, Effect.OUTAGE, Effect.REFUSED, Effect.KILL)
LOCATION_WRITE = (*LOCATION_READ, Effect.LOST, Effect.KILL_AFTER)
DISK = (Effect.REFUSED, Effect.NO_SPACE, Effect.KILL, Effect.KILL_AFTER, Effect.POWER)
LOCAL_FILE = (Effect.KILL, Effect.NO_SPACE, Effect.POWER)
DB_OPEN = (Effect.KILL, Effect.CORRUPT, Effect.NO_SPACE)
DB_WRITE = (Effect.KILL, Effect.FLUSH, Effect.FLUSH, Effect.CORRUPT, Effect.NO_SPACE)
DB_CLOSE = (Effect.KILL, Effect.KILL_AFTER, Effect.CORRUPT, Effect.NO_SPACE)
DB_CHECKPOINT = (Effect.KILL, Effect.KILL_AFTER, Effect.NO_SPACE)
TASK = (Effect.KILL,)
DRIVER = (Effect.DRIVER_DIES, Effect.SPECULATE, Effect.SPECULATE, Effect.SPECULATE)
LATER_DRIVER = (*DRIVER, Effect.FETCH_FAILED)
"""In a stage behind another one."""
JOIN = (Effect.IMPATIENT, Effect.IMPATIENT)

_STRUCTURAL = (Effect.SPECULATE, Effect.FLUSH, Effect.IMPATIENT, Effect.FETCH_FAILED)
"""Not faults: they happen all the time."""


_FOCUSES = (
    "of fence",
    "of claim",
    "of delta",
    "of snapshot file",
    "of manifest",
    "of metadata",
    "of other file",
    "location.list",
    "location.delete",
    "local.open statestore.marker",
    "spark.write",
)
"""Parts of the names of places."""
_SLOW = (None, None, "location.write", "location.list", "db.close", "spark.write", "location")
"""What they begin with."""


class Decision(NamedTuple):
    """What was decided when an actor was at a place for the time `occurrence`, counted from 1."""

    actor: str
    place: str
    occurrence: int
    effect: Effect
    amount: int = 0

    @classmethod
    def from_row(cls, row: list[Any]) -> Decision:
        """Return what `to_row` gave."""
        actor, place, occurrence, effect, amount = row
        return cls(actor, place, occurrence, Effect(effect), amount)

    def to_row(self) -> list[Any]:
        """Return the decision as JSON can have it."""
        return [*self[:3], self.effect.value, self.amount]

    def describe(self) -> str:
        """Return the decision in words."""
        amount = f" {self.amount}" if self.amount else ""
        return f"{self.effect.value}{amount} at {self.actor} {self.place} #{self.occurrence}"


def plan_json(fields: dict[str, Any]) -> str:
    """Return the fields of a plan, its decisions among them, as one line of JSON."""
    if fields["decisions"] is not None:
        fields = {**fields, "decisions": [decision.to_row() for decision in fields["decisions"]]}
    return json.dumps(fields)


def plan_fields(text: str) -> dict[str, Any]:
    """Return the fields that `plan_json` gave; tuples other than decisions are lists."""
    fields: dict[str, Any] = json.loads(text)
    if fields.get("decisions") is not None:
        fields["decisions"] = tuple(map(Decision.from_row, fields["decisions"]))
    return fields


class Decisions:
    """The decisions of one run."""

    taken: list[Decision]
    calm = False
    """Whether nothing is decided any more."""

    def at(
        self, actor: str, place: str, occurrence: int, effects: tuple[Effect, ...]
    ) -> tuple[Effect, int] | None:  # pragma: no cover
        raise NotImplementedError


class DrawnDecisions(Decisions):
    """Decisions drawn from a seed, with rates of their own for each plan: some plans are quiet, some are storms."""

    def __init__(self, seed: int, *, slow: tuple[str | None, ...] = _SLOW, focuses: tuple[str, ...] = _FOCUSES) -> None:
        """Draw what kind of plan it is: `slow` and `focuses` are places, or parts of them, where a plan may pause."""
        self._rng = rng = random.Random(f"decisions {seed}")
        self.taken = []
        self._pause = rng.choice((0, 0.003, 0.01, 0.03, 0.08, 0.2))
        self._fault = rng.choice((0, 0.001, 0.003, 0.006, 0.012, 0.03))
        self._structural = rng.choice((0.02, 0.1, 0.3))
        # Swarm: of the effects that there are, a plan knows some.
        self._weights = {effect: rng.choice((0, 0, 1, 1, 3)) for effect in Effect if effect is not Effect.FETCH_FAILED}
        # Drawn apart, so that all else of a seed is as it was before there were stages.
        self._weights[Effect.FETCH_FAILED] = random.Random(f"fetch {seed}").choice((0, 1, 1))
        # Some plans pause at one kind of operation only, for long: that is what a zombie is.
        self._slow = rng.choice(slow)
        self._patience = rng.choice((3, 30, 300, 1500))
        # And some at one kind of file, whoever it is: between a look and a write others come in.
        self._focus = rng.choice(focuses) if rng.random() < 0.4 else None
        self._focus_rate = rng.choice((0.1, 0.3, 0.6))

    def at(self, actor: str, place: str, occurrence: int, effects: tuple[Effect, ...]) -> tuple[Effect, int] | None:
        if self.calm:
            return None
        rng = self._rng
        if self._focus is not None and self._focus in place and rng.random() < self._focus_rate:
            return self._note(
                Decision(actor, place, occurrence, Effect.PAUSE, 1 + int(rng.expovariate(1.0) * self._patience))
            )
        drawn = rng.random()
        if drawn < self._pause:
            if self._slow is None or place.startswith(self._slow):
                return self._note(
                    Decision(actor, place, occurrence, Effect.PAUSE, 1 + int(rng.expovariate(1.0) * self._patience))
                )
            return None
        if drawn > 1 - self._fault and effects:
            return self._draw(actor, place, occurrence, [effect for effect in effects if effect not in _STRUCTURAL])
        if drawn < self._pause + self._structural and effects:
            return self._draw(actor, place, occurrence, [effect for effect in effects if effect in _STRUCTURAL])
        return None

    def _draw(self, actor: str, place: str, occurrence: int, effects: list[Effect]) -> tuple[Effect, int] | None:
        weights = [self._weights[effect] for effect in effects]
        if not any(weights):
            return None
        effect = self._rng.choices(effects, weights)[0]
        amount = self._rng.randint(1, 999) if effect is Effect.POWER else 0
        return self._note(Decision(actor, place, occurrence, effect, amount))

    def _note(self, made: Decision) -> tuple[Effect, int]:
        self.taken.append(made)
        return made.effect, made.amount


class WrittenDecisions(Decisions):
    """Decisions that were written down."""

    def __init__(self, decisions: tuple[Decision, ...]) -> None:
        self._decided = {made[:3]: made for made in decisions}
        self.taken = []

    def at(self, actor: str, place: str, occurrence: int, effects: tuple[Effect, ...]) -> tuple[Effect, int] | None:
        made = self._decided.get((actor, place, occurrence))
        if made is None or self.calm or (made.effect is not Effect.PAUSE and made.effect not in effects):
            return None
        self.taken.append(made)
        return made.effect, made.amount
