"""Shrinks a plan that fails: leaves out what it can while the same kind of problem stays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.simulation.decisions import Decision, Effect
from tests.simulation.oracle import kind_of
from tests.simulation.simulations import AnyPlan, simulate
from tests.simulation.world import Result

_MAX_RUNS = 600


class Shrinking:
    """One plan on its way to become a small one."""

    def __init__(self, plan: AnyPlan, kind: str, max_runs: int = _MAX_RUNS) -> None:
        self.plan = plan
        self.kind = kind
        self.left = max_runs

    def run(self) -> AnyPlan:
        """Return the smallest plan that was found."""
        before = None
        while before != self.plan and self.left > 0:
            before = self.plan
            self._drop_steps()
            self._drop_decisions()
            self._try_all(lambda plan: plan.simpler())
            self._try_all(_shorter_pauses)
        return self.plan

    def _try(self, plan: AnyPlan) -> bool:
        """Go on with a plan if it fails as the one before did."""
        if self.left <= 0:
            return False
        self.left -= 1
        result: Result = simulate(plan)
        if result.problem is None or kind_of(result.problem) != self.kind:
            return False
        self.plan = result.plan  # without the decisions that nobody got to
        return True

    def _try_all(self, candidates: object) -> None:
        found = True
        while found:
            found = any(self._try(plan) for plan in candidates(self.plan))  # type: ignore[operator]

    def _drop_steps(self) -> None:
        number = len(self.plan.story) - 1
        while number >= 0:
            story = self.plan.story
            self._try(replace(self.plan, story=(*story[:number], *story[number + 1 :])))
            number -= 1

    def _drop_decisions(self) -> None:
        assert self.plan.decisions is not None
        size = max(1, len(self.plan.decisions) // 2)
        while size >= 1:
            begin = 0
            while begin < len(self.plan.decisions):
                decisions = self.plan.decisions
                kept: tuple[Decision, ...] = (*decisions[:begin], *decisions[begin + size :])
                if not self._try(replace(self.plan, decisions=kept)):
                    begin += size
            size //= 2


def _shorter_pauses(plan: AnyPlan) -> Iterator[AnyPlan]:
    assert plan.decisions is not None
    for number, made in enumerate(plan.decisions):
        if made.effect is Effect.PAUSE and made.amount > 1:
            for amount in (1, made.amount // 2):
                shorter = made._replace(amount=amount)
                yield replace(plan, decisions=(*plan.decisions[:number], shorter, *plan.decisions[number + 1 :]))


def shrink(plan: AnyPlan, problem: str, *, max_runs: int = _MAX_RUNS) -> AnyPlan:
    """Return a smaller plan, with its decisions, that has the same kind of problem."""
    return Shrinking(plan, kind_of(problem), max_runs).run()
