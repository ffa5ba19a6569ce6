"""Plans of queries of two and three stages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.simulation.plan import Plan, Step, draw_story
from tests.simulation.stages.program import STORES, stages


@dataclass(frozen=True)
class StagedPlan(Plan):
    """As any plan, of a query of several stages."""

    @classmethod
    def draw(cls, seed: int, engine: str = "simulated") -> StagedPlan:
        """Return the plan of a seed: always the same one."""
        rng = random.Random(f"stages {seed}")
        stores = rng.choice((*STORES, STORES[-1]))
        overwrites = rng.random() < 0.5
        drawn = cls(
            seed,
            rng.choice((1, 2, 2, 3)),
            stores,
            rng.choice(("objects", "objects", "hdfs", "disk")),
            rng.choice((1, 2, 3)),
            rng.choice((1, 2, 3, 100)),
            rng.choice((1, 2, 3)),
            rng.choice((1, 2, 4)),
            overwrites,
            draw_story(rng, is_long=False),
            engine,
            # Where pointers are replaced, a stage's state may be another one than that the next stage has heard of.
            varies=not overwrites and rng.random() < 0.5,
            keys=rng.choice((2, 4, 8)),
            later_shards=tuple(rng.choice((1, 2, 3)) for _ in stages(stores)[1:]),
        )
        kind = rng.random()
        if kind < 0.12:
            return replace(drawn, story=_rescale_story(rng))
        if kind < 0.2:  # what snapshots and garbage collection do wrong shows after many versions
            ones = (1,) * len(drawn.later_shards)
            story = draw_story(rng, is_long=True)
            return replace(drawn, shards=1, later_shards=ones, snapshot_every=rng.choice((1, 2)), story=story)
        return drawn

    def simpler(self) -> Iterator[Plan]:
        """Yield plans with one thing less, of the same program."""
        yield from (plan for plan in super().simpler() if plan.stores == self.stores)
        for number, shards in enumerate(self.later_shards):
            if shards > 1:
                yield replace(self, later_shards=(*self.later_shards[:number], 1, *self.later_shards[number + 1 :]))


def _rescale_story(rng: random.Random) -> tuple[Step, ...]:
    """Return a story of queries whose states are rescaled, all stages as of one batch, while the query may go on."""
    steps = [Step("run", 0, rng.choice((1, 2, 3)))]
    for target in range(1, rng.choice((2, 2, 3))):
        if rng.random() < 0.3:
            steps.append(Step("run", target - 1, rng.choice((1, 2)), wait=False))
        back, shards = rng.choice((0, 0, 1)), rng.choice((1, 2, 3, 4))
        steps.append(Step("rescale", target - 1, back, amount=shards, target=target))
        if rng.random() < 0.3:
            steps.append(Step(rng.choice(("power", "lose")), amount=rng.randrange(999)))
        steps.append(Step("begin", 0, rng.choice((1, 2, 3)), wait=rng.random() < 0.8, target=target))
    return tuple(steps)
