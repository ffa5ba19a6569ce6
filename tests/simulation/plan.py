"""Plans: what is simulated, as plain data that prints as JSON. One is drawn from each seed.

The story is what operators do: start a query, start it twice, copy its checkpoint, go back, lose a machine. What
happens in between stands in `decisions`; a plan that was drawn has none, they are drawn and written down as it runs.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Final

from statestore.recovery.snapshots.options import RecoveryOptions
from tests.simulation.decisions import Decision, plan_fields, plan_json

MIDDLEWARE: Final = ("middleware",)
"""In place of stores: those that interceptors keep their state in, and what comes out of them."""

READING: Final = 0.25
"""How many of all plans have a reader, which takes time."""


@dataclass(frozen=True)
class Step:
    """One thing that an operator does."""

    do: str
    """"run", "change", "copy", "foreign", "reshard", "rescale", "begin", "lose", "power" or "rest"."""
    checkpoint: int = 0
    batches: int = 0
    """How many are run; how many before the last one a rescaling goes back."""
    accept: bool = False
    wait: bool = True
    """Whether the operator waits for the end of the run, and starts it again if it failed."""
    amount: int = 0
    """How many batches a copy goes back; which machine; how long a rest is; what seeds a loss of power;
    to how many shards."""
    target: int = 0
    """Which location a state is rescaled to, or a new query begins on; 0 is where the first one is."""

    def describe(self) -> str:
        """Return the step in words."""
        if self.do in ("run", "change", "foreign", "reshard"):
            accepted = ", accepting an older checkpoint" if self.accept else ""
            waited = "" if self.wait else ", not waiting for it"
            return f"{self.do} checkpoint {self.checkpoint} for {self.batches} batches{accepted}{waited}"
        waited = "" if self.wait else ", not waiting for it"
        if self.do == "rescale":
            back = f", {self.batches} back," if self.batches else ""
            return (
                f"rescale checkpoint {self.checkpoint}{back} to {self.amount} shards at location {self.target}{waited}"
            )
        if self.do == "begin":
            return f"begin at location {self.target} for {self.batches} batches{waited}"
        return f"{self.do} {self.amount}" if self.do != "copy" else f"copy {self.checkpoint}, {self.amount} back"


@dataclass(frozen=True)
class Plan:
    """One simulation."""

    seed: int
    shards: int
    stores: tuple[str, ...]
    location: str
    """"objects", "hdfs" or "disk"."""
    machines: int
    snapshot_every: int
    retained: int
    task_failures: int
    overwrites: bool
    """Whether attempts that were overtaken replace pointers: Spark's first format of checkpoints, not its second."""
    story: tuple[Step, ...]
    engine: str = "simulated"
    varies: bool = False
    """Whether each attempt makes something else of a batch, as what reads clocks or other systems does."""
    by_hash: bool = False
    """Whether records are placed by the hash of their keys, as those must be whose state is rescaled."""
    keys: int = 3
    """How many keys there are, of those that are not placed by their hash: with one, all meet at it."""
    later_shards: tuple[int, ...] = ()
    """How many shards each stage has behind the first one; of the others all hold for the first."""
    reads: bool = False
    """Whether somebody reads what heads say; stores have an index of headers then."""
    decisions: tuple[Decision, ...] | None = None

    @property
    def stages(self) -> int:
        """How many stages the query has."""
        return 1 + len(self.later_shards)

    def recovery(self) -> RecoveryOptions:
        """Return the options that queries are started with."""
        return RecoveryOptions(
            snapshot_every_deltas=self.snapshot_every, snapshot_budget_ms=1000, retained_versions=self.retained
        )

    @classmethod
    def draw(cls, seed: int, engine: str = "simulated") -> Plan:
        """Return the plan of a seed: always the same one."""
        rng = random.Random(f"plan {seed}")
        # What snapshots and garbage collection do wrong shows after many versions.
        is_rescaled = rng.random() < 0.08
        is_long = not is_rescaled and rng.random() < 0.28
        stores = tuple(
            sorted(rng.sample(("totals", "prices", "quotes", "windows", "sessions"), rng.choice((1, 2, 2, 3))))
        )
        # Drawn apart, so that all else of a seed is as it was before there were any.
        has_middleware = not is_rescaled and random.Random(f"middleware {seed}").random() < 0.06
        drawn = cls(
            seed,
            rng.choice((1, 2, 3)) if is_rescaled else 1 if is_long else rng.choice((1, 1, 1, 2)),
            stores,
            rng.choice(("objects", "objects", "hdfs", "disk")),
            rng.choice((1, 1, 2, 3)),
            rng.choice((1, 2, 2)) if is_long else rng.choice((1, 2, 2, 3, 100)),
            rng.choice((1, 1, 2, 3)),
            rng.choice((1, 2, 4)),
            rng.random() < 0.5,
            _rescale_story(rng) if is_rescaled else draw_story(rng, is_long),
            engine,
            rng.random() < 0.4,
            is_rescaled,
            rng.choice((1, 3, 3)),
        )
        drawn = replace(drawn, reads=random.Random(f"reader {seed}").random() < READING)
        return replace(drawn, stores=MIDDLEWARE, varies=False) if has_middleware else drawn

    @property
    def content(self) -> str:
        """What the plan does, without its seed."""
        return replace(self, seed=0).to_json()

    def to_json(self) -> str:
        """Return the plan as one line of JSON."""
        return plan_json(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Plan:
        """Return what `to_json` gave."""
        fields = plan_fields(text)
        for name in ("stores", "later_shards"):
            fields[name] = tuple(fields.get(name, ()))
        fields["story"] = tuple(Step(**step) for step in fields["story"])
        return cls(**fields)

    def describe(self) -> str:
        """Return the plan in words, a line for each step."""
        lines = [
            f"{self.shards} shards of {', '.join(self.stores)} on {self.location}; {self.machines} machines; "
            f"a snapshot every {self.snapshot_every} deltas; {self.retained} versions retained; "
            f"{self.task_failures} attempts",
            *(f"  {step.describe()}" for step in self.story),
        ]
        for made in self.decisions or ():
            lines.append(f"  {made.describe()}")
        return "\n".join(lines)

    def simpler(self) -> Iterator[Plan]:
        """Yield plans with one thing less."""
        for number, step in enumerate(self.story):
            simpler = []
            if step.batches > 1:
                simpler += [replace(step, batches=1), replace(step, batches=step.batches - 1)]
            if step.accept:
                simpler.append(replace(step, accept=False))
            if not step.wait:
                simpler.append(replace(step, wait=True))
            for other in simpler:
                yield replace(self, story=(*self.story[:number], other, *self.story[number + 1 :]))
        for name, value in (("shards", 1), ("machines", 1), ("location", "objects"), ("overwrites", False)):
            if getattr(self, name) != value:
                yield replace(self, **{name: value})  # type: ignore[arg-type]
        for store in self.stores if len(self.stores) > 1 else ():
            yield replace(self, stores=tuple(name for name in self.stores if name != store))
        if self.snapshot_every < 100:
            yield replace(self, snapshot_every=100)


def _rescale_story(rng: random.Random) -> tuple[Step, ...]:
    """Return a story of queries whose states are rescaled, while they go on, by several at once, again and again."""
    steps = [Step("run", 0, rng.choice((1, 2, 3, 5)), wait=rng.random() < 0.9)]
    checkpoints, targets = 1, 0
    for _ in range(rng.choice((1, 1, 2))):
        of, targets = rng.randrange(checkpoints), targets + 1
        to = targets
        if rng.random() < 0.3:  # the query goes on meanwhile
            steps.append(Step("run", of, rng.choice((1, 2, 4)), wait=False))
        for number in range(rng.choice((1, 1, 1, 2, 2, 3))):
            if number and rng.random() < 0.3:
                targets += 1
            to = rng.randint(max(1, to - number), targets)
            back, shards = rng.choice((0, 0, 0, 0, 1, 2)), rng.choice((1, 2, 3, 4))
            steps.append(Step("rescale", of, back, wait=rng.random() < 0.5, amount=shards, target=to))
            if rng.random() < 0.2:
                steps.append(Step("power" if rng.random() < 0.5 else "lose", amount=rng.randrange(999)))
        if rng.random() < 0.9:
            steps.append(Step("begin", 0, rng.choice((1, 2, 3)), wait=rng.random() < 0.8, target=to))
            checkpoints += 1
        if rng.random() < 0.3:
            steps.append(Step("run", rng.randrange(checkpoints), rng.choice((1, 2)), rng.random() < 0.1))
        if rng.random() < 0.15:
            steps.append(Step("copy", rng.randrange(checkpoints), amount=rng.choice((0, 1, 1, 2))))
            steps.append(Step("run", checkpoints, rng.choice((1, 2)), rng.random() < 0.6))
            checkpoints += 1
    return tuple(steps)


def draw_story(rng: random.Random, is_long: bool) -> tuple[Step, ...]:
    """Return a story of queries on one state."""

    def batches() -> int:
        return rng.choice((3, 5, 8, 12) if is_long else (1, 2, 2, 3, 4, 5))

    steps: list[Step] = []
    checkpoints = 1
    if rng.random() < 0.15:  # two first starts at once, of one query or of two
        steps.append(Step("run", 0, batches(), wait=False))
        if rng.random() < 0.5:
            steps.append(Step("foreign", 0, batches(), wait=False))
            checkpoints += 1
        else:
            steps.append(Step("run", 0, batches()))
    else:
        steps.append(Step("run", 0, batches(), wait=rng.random() < 0.8))
    if rng.random() < 0.1:
        # Who goes back, while what it goes back from is still at work: on batches, uploads, garbage.
        steps.append(Step("run", 0, batches(), wait=False))
        steps.append(Step("rest", amount=rng.choice((10, 50, 200, 400))))
        steps.append(Step("copy", 0, amount=rng.choice((0, 1, 1, 2, 3, 5))))
        steps.append(Step("run", checkpoints, batches(), rng.random() < 0.6, rng.random() < 0.8))
        checkpoints += 1
    for _ in range(rng.choice((0, 1, 1, 2, 3, 4))):
        do = rng.choices(
            ("again", "copy", "older", "foreign", "reshard", "change", "lose", "power", "rest"),
            (6, 3, 4, 1, 1, 2, 2, 2, 2),
        )[0]
        wait = rng.random() < 0.75
        if do == "again":
            steps.append(Step("run", rng.randrange(checkpoints), batches(), rng.random() < 0.15, wait))
        elif do in ("copy", "older"):
            # A copy that is not behind, or an older one: accepted, or by mistake.
            steps.append(
                Step("copy", rng.randrange(checkpoints), amount=0 if do == "copy" else rng.choice((1, 1, 2, 3, 5)))
            )
            steps.append(Step("run", checkpoints, batches(), do == "older" and rng.random() < 0.7, wait))
            checkpoints += 1
        elif do in ("foreign", "reshard", "change"):
            steps.append(Step(do, 0, 1, wait=wait))
            checkpoints += do == "foreign"
        elif do == "lose":
            steps.append(Step("lose", amount=rng.randrange(3)))
        elif do == "power":
            steps.append(Step("power", amount=rng.randrange(999)))
        else:
            steps.append(Step("rest", amount=rng.choice((10, 50, 200))))
    return tuple(steps)
