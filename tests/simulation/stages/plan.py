"""Plans of queries of two and three stages."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tests.simulation.plan import Plan, draw_story
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
        return cls(
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

    def simpler(self) -> Iterator[Plan]:
        """Yield plans with one thing less, of the same program."""
        yield from (plan for plan in super().simpler() if plan.stores == self.stores)
        for number, shards in enumerate(self.later_shards):
            if shards > 1:
                yield replace(self, later_shards=(*self.later_shards[:number], 1, *self.later_shards[number + 1 :]))
