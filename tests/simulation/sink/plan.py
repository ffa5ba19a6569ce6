"""Plans of the sink: what operators do with queries that write to Kafka, as plain data; one is drawn from each seed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from tests.simulation.decisions import Decision, plan_fields, plan_json

NAMES = (("a-b", ""), ("a", "b"))
"""Of the queries and their writers."""


@dataclass(frozen=True)
class SinkStep:
    """One thing that an operator does."""

    do: str
    """"run", "copy" or "rest"."""
    checkpoint: int = 0
    batches: int = 0
    partitions: int = 1
    turn: int = 0
    """By how many partitions rows are moved: other code, or a shuffle that divides them otherwise."""
    grows: int = 0
    """How many partitions more each batch has than the one before."""
    told: bool = True
    """Whether Spark tells what it has planned."""
    wait: bool = True
    amount: int = 0
    """How many batches a copy goes back; how long a rest is; how often a query is started until it does not fail."""

    def describe(self) -> str:
        """Return the step in words."""
        if self.do != "run":
            return f"{self.do} {self.amount}" + (f" back, of {self.checkpoint}" if self.do == "copy" else "")
        more = f", {self.grows} more each time" if self.grows else ""
        how = f"{self.partitions} partitions{more}, moved by {self.turn}" + ("" if self.told else ", plans not told")
        waited = "" if self.wait else ", not waiting for it"
        return f"run checkpoint {self.checkpoint} for {self.batches} batches: {how}{waited}"


@dataclass(frozen=True)
class SinkPlan:
    """One simulation of the sink."""

    seed: int
    keys: int
    marker_partitions: int
    task_failures: int
    timeout_ms: int
    """Of transactions."""
    story: tuple[SinkStep, ...]
    decisions: tuple[Decision, ...] | None = None

    @classmethod
    def draw(cls, seed: int, engine: str = "simulated") -> SinkPlan:
        """Return the plan of a seed: always the same one."""
        rng = random.Random(f"plan of the sink {seed}")
        keys = rng.choice((1, 2, 3))
        return cls(
            seed,
            keys,
            rng.choice((1, 2, 3)),
            rng.choice((1, 2, 4)),
            rng.choice((10_000, 100_000, 10_000_000)),
            tuple(_story(rng, keys)),
        )

    def to_json(self) -> str:
        """Return the plan as one line of JSON."""
        return plan_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SinkPlan:
        """Return what `to_json` gave."""
        fields = plan_fields(text)
        fields["story"] = tuple(SinkStep(**step) for step in fields["story"])
        return cls(**fields)

    def describe(self) -> str:
        """Return the plan in words, a line for each step."""
        lines = [
            f"{self.keys} keys; {self.marker_partitions} partitions of markers; {self.task_failures} attempts; "
            f"transactions of {self.timeout_ms} ms",
            *(f"  {step.describe()}" for step in self.story),
            *(f"  {made.describe()}" for made in self.decisions or ()),
        ]
        return "\n".join(lines)

    def simpler(self) -> Iterator[SinkPlan]:
        """Yield plans with one thing less."""
        for number, step in enumerate(self.story):
            for name, value in (
                ("batches", 1),
                ("partitions", 1),
                ("turn", 0),
                ("grows", 0),
                ("told", True),
                ("wait", True),
            ):
                if getattr(step, name) not in (0, value):
                    other: SinkStep = replace(step, **{name: value})  # type: ignore[arg-type]
                    yield replace(self, story=(*self.story[:number], other, *self.story[number + 1 :]))
        for name in ("keys", "marker_partitions", "task_failures"):
            if getattr(self, name) > 1:
                yield replace(self, **{name: 1})  # type: ignore[arg-type]


def _story(rng: random.Random, keys: int) -> Iterator[SinkStep]:
    """Yield steps. Checkpoint 0 and 1 are of two queries; each copy is one more.

    Who is not told plans can't tell two copies of a checkpoint apart that both go on: there the last copy alone does.
    Who is told them compares counts: there rows are moved only if that changes some.
    """
    partitions, turn, told = rng.choice((1, 2, 3, 4)), 0, rng.random() < 0.8
    is_mixed = not told and rng.random() < 0.4
    queries = rng.choice((1, 1, 2)) if told or is_mixed else 1
    checkpoints = [*range(queries)]
    made = len(NAMES)

    def run(checkpoint: int) -> SinkStep:
        waits = rng.random() < 0.7 or not (told or is_mixed)
        grows = rng.choice((0, 0, 0, 1))
        starts = rng.choice((1, 1, 5))
        return SinkStep("run", checkpoint, rng.choice((1, 1, 2, 3)), partitions, turn, grows, told, waits, starts)

    for checkpoint in checkpoints:
        yield run(checkpoint)
    for _ in range(rng.choice((1, 2, 3, 4))):
        do = rng.choices(("again", "older", "settings", "rest"), (4, 0 if is_mixed else 4, 3, 1))[0]
        if do == "rest":
            yield SinkStep("rest", amount=rng.choice((5, 30, 150)))
            continue
        if do == "older":
            yield SinkStep("copy", rng.choice(checkpoints), amount=rng.choice((0, 1, 1, 1, 2, 3)))
            checkpoints = [*(checkpoints if told else ()), made]
            made += 1
            yield run(checkpoints[-1])
            continue
        if do == "settings":
            partitions = rng.choice((1, 2, 3, 4)) if rng.random() < 0.5 else partitions
            turn = rng.choice((0, 1, 2)) if keys == 1 or not (told or is_mixed) else 0
            told = not told if is_mixed and rng.random() < 0.5 else told
        yield run(rng.choice(checkpoints))
