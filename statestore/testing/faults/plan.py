"""Fault plans: which faults strike where and when in one run of a query. Plain data, which prints as JSON.

A fault strikes at a `Point`, an operation of the query on its durable location, its disk, its local databases, a record
or its sink. `occurrence` says at which of the times that the query gets there, counted from 1 over all processes.
"""

from __future__ import annotations

import json
import random
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from statestore.testing.faults.fault import UNTIL_IT_FAILS, Effect, Fault, FileKind, Point

# What can happen where, and how often a query of four micro-batches in two shards gets there. A fault that is drawn
# beyond what a query does never fires, and the soak counts such plans apart.
_FAILS: Final = (Effect.ERROR_BEFORE, Effect.ERROR_AFTER)
_DIES: Final = (Effect.KILL_BEFORE, Effect.KILL_AFTER)
_ANY: Final = (*_FAILS, *_DIES, Effect.DELAY)
_LONGEST_DELAY_MS: Final = 300
_WITH_AMOUNT: Final = {
    Effect.DELAY: _LONGEST_DELAY_MS,
    Effect.CORRUPT: 999,
    Effect.ROT: 2_999,
    Effect.DAMAGE_LOCAL: 2_999,
    Effect.POWER_LOSS: 999,
}


class _Place(NamedTuple):
    weight: int
    point: Point
    kind: FileKind
    effects: tuple[Effect, ...]
    last_occurrence: int
    restoring: bool = False
    """Whether a query only gets there after it has lost its local state."""


_PLACES: Final = (
    _Place(9, Point.WRITE, FileKind.DELTA, (*_ANY, Effect.ROT), 6),
    _Place(6, Point.READ, FileKind.DELTA, (*_ANY, Effect.CORRUPT), 5),
    _Place(2, Point.WRITE, FileKind.FENCE, _ANY, 2),
    _Place(3, Point.WRITE, FileKind.SNAPSHOT, (*_ANY, Effect.ROT), 12),
    _Place(2, Point.WRITE, FileKind.MANIFEST, (*_ANY, Effect.ROT), 2),
    _Place(3, Point.FETCH, FileKind.SNAPSHOT, (*_ANY, Effect.CORRUPT), 8, restoring=True),
    _Place(2, Point.READ, FileKind.MANIFEST, (*_ANY, Effect.CORRUPT), 2, restoring=True),
    _Place(1, Point.READ, FileKind.METADATA, (*_FAILS, Effect.CORRUPT), 1),
    _Place(1, Point.WRITE, FileKind.METADATA, (*_FAILS, Effect.ROT), 1),
    _Place(2, Point.LIST, FileKind.ANY, _ANY, 4),
    _Place(1, Point.DELETE, FileKind.ANY, _FAILS, 1),
    _Place(2, Point.CREATE_FILE, FileKind.ANY, (*_ANY, Effect.NO_SPACE, Effect.POWER_LOSS), 10),
    _Place(4, Point.APPEND, FileKind.DELTA, (*_ANY, Effect.NO_SPACE, Effect.POWER_LOSS), 6),
    _Place(3, Point.SYNC_FILE, FileKind.ANY, (*_ANY, Effect.POWER_LOSS), 10),
    _Place(4, Point.REPLACE, FileKind.DELTA, (*_ANY, Effect.POWER_LOSS), 6),
    _Place(3, Point.SYNC_DIRECTORY, FileKind.ANY, (*_ANY, Effect.POWER_LOSS), 10),
    _Place(5, Point.OPEN_DATABASE, FileKind.ANY, (*_ANY, Effect.NO_SPACE, Effect.CORRUPT), 7),
    _Place(5, Point.WRITE_DATABASE, FileKind.ANY, (*_ANY, Effect.NO_SPACE, Effect.CORRUPT), 20),
    _Place(4, Point.READ_DATABASE, FileKind.ANY, (*_ANY, Effect.CORRUPT), 60),
    _Place(5, Point.CLOSE_DATABASE, FileKind.ANY, (*_ANY, Effect.NO_SPACE, Effect.CORRUPT), 7),
    _Place(6, Point.RECORD, FileKind.ANY, _ANY, 40),
    _Place(4, Point.SINK, FileKind.ANY, _FAILS, 4),
)
_BETWEEN_RUNS: Final = (
    (Effect.LOSE_LOCAL, FileKind.ANY),
    (Effect.DAMAGE_LOCAL, FileKind.ANY),
    (Effect.DAMAGE_LOCAL, FileKind.ANY),
    (Effect.DAMAGE_LOCAL, FileKind.ANY),
    (Effect.POWER_LOSS, FileKind.ANY),
    (Effect.ROT, FileKind.DELTA),
    (Effect.ROT, FileKind.METADATA),
    (Effect.ROT, FileKind.SNAPSHOT),
    (Effect.ROT, FileKind.MANIFEST),
    (Effect.OLDER_CHECKPOINT, FileKind.ANY),
)
_RESTORED_FROM: Final = (FileKind.SNAPSHOT, FileKind.MANIFEST)
"""What a query only looks at after it has lost its local state."""
_PLACES_BETWEEN_RUNS: Final = 16
"""How many of the drawn faults are between runs, in the unit of the weights above, where there is a restart."""


@dataclass(frozen=True)
class FaultPlan:
    """The faults of one run of a query. `seed` is also that of the query's input.

    `runs` says how many micro-batches are added before each planned start of the query.
    """

    seed: int
    runs: tuple[int, ...]
    faults: tuple[Fault, ...]

    @classmethod
    def draw(cls, seed: int, *, batches: int = 4) -> FaultPlan:
        """Return the plan of a seed, for a query of so many micro-batches: always the same one."""
        if batches < 1:
            raise ValueError(f"a query has at least one micro-batch, not {batches}")
        rng = random.Random(seed)
        runs = _runs(rng, batches)
        count = rng.choice((1, 1, 2, 2, 3))
        return cls(seed, runs, tuple(fault for _ in range(count) for fault in _faults(rng, len(runs))))

    @property
    def content(self) -> str:
        """What the plan does, without its seed: two plans are distinct if this is."""
        return json.dumps({"runs": self.runs, "faults": [asdict(fault) for fault in self.faults]})

    def to_json(self) -> str:
        """Return the plan as one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> FaultPlan:
        """Return what `to_json` gave. Raises ValueError, KeyError or TypeError if it is not a plan."""
        fields: dict[str, Any] = json.loads(text)
        faults = tuple(
            Fault(
                Point(fault["point"]),
                Effect(fault["effect"]),
                int(fault["occurrence"]),
                int(fault["times"]),
                FileKind(fault["kind"]),
                int(fault["amount"]),
            )
            for fault in fields["faults"]
        )
        return cls(int(fields["seed"]), tuple(int(batches) for batches in fields["runs"]), faults)

    def describe(self) -> str:
        """Return the plan in words."""
        return f"batches {'+'.join(map(str, self.runs))}: {'; '.join(fault.describe() for fault in self.faults)}"


def _runs(rng: random.Random, batches: int) -> tuple[int, ...]:
    cuts = sorted(rng.sample(range(1, batches), min(batches - 1, rng.choice((0, 1, 1, 2)))))
    return tuple(end - start for start, end in zip([0, *cuts], [*cuts, batches], strict=True))


def _faults(rng: random.Random, runs: int) -> list[Fault]:
    """Draw a fault, with the loss of local state that the query needs to get to it."""
    places = [place for place in _PLACES if runs > 1 or not place.restoring]
    total = sum(place.weight for place in places)
    if runs > 1 and rng.randrange(total + _PLACES_BETWEEN_RUNS) >= total:
        effect, kind = rng.choice(_BETWEEN_RUNS)
        # The last restart, where there is the most to damage, or any.
        after_run = rng.choice((runs - 1, rng.randrange(1, runs)))
        fault = Fault(Point.BETWEEN_RUNS, effect, after_run, kind=kind, amount=_amount(rng, effect))
        return [fault, _loss(after_run)] if kind in _RESTORED_FROM else [fault]
    place = rng.choices(places, [place.weight for place in places])[0]
    effect = rng.choice(place.effects)
    occurrence = rng.randint(1, place.last_occurrence)
    fault = Fault(place.point, effect, occurrence, _times(rng, effect), place.kind, _amount(rng, effect))
    return [fault, _loss(runs - 1)] if place.restoring else [fault]


def _loss(after_run: int) -> Fault:
    return Fault(Point.BETWEEN_RUNS, Effect.LOSE_LOCAL, after_run)


def _times(rng: random.Random, effect: Effect) -> int:
    if effect in (Effect.DELAY, Effect.ROT, Effect.POWER_LOSS):
        return 1
    return rng.choice((1, 1, 1, 1, 2, UNTIL_IT_FAILS))


def _amount(rng: random.Random, effect: Effect) -> int:
    largest = _WITH_AMOUNT.get(effect)
    return 0 if largest is None else rng.randint(1, largest)
