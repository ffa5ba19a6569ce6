"""Each line of the protocol that is broken on purpose is noticed by a plan: `make mutations`.

Whoever writes such a line anew writes its mutation anew, too. So `make test` does not run this.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from tests.simulation import event_time
from tests.simulation.mutations import MUTATIONS, OF_EVENT_TIME, Mutation, mutated, mutations_of
from tests.simulation.plan import Plan
from tests.simulation.simulations import PLANS, simulate

HERE = Path(__file__).parent
FOUND_BY = {
    "what old shards had seen is not known": 1,
    "what shards had seen before the last rescaling is not known": 70,
    "a new shard begins with the latest stream time": 24,
    "a new shard begins with the latest time of nodes": 1,
    "a shard that has seen nothing has no say": 19,
    "what is known of old shards goes with the first batch": 29,
}
"""The seed whose story notices each mutation of event time."""


@pytest.mark.parametrize("path", sorted((HERE / "plans/mutations").glob("*.json")), ids=lambda path: path.stem)
def test_a_protocol_that_is_broken_is_noticed(path: Path) -> None:
    plan = Plan.from_json(path.read_text())
    mutation = next(mutation for mutation in MUTATIONS if mutation.name.replace("'", "").replace(" ", "_") == path.stem)
    assert simulate(plan).problem is None
    with mutated(mutation):
        assert simulate(plan).problem is not None


@pytest.mark.parametrize("mutation", OF_EVENT_TIME, ids=lambda mutation: mutation.name)
def test_a_rule_of_event_time_that_is_broken_is_noticed(mutation: Mutation) -> None:
    seed = FOUND_BY[mutation.name]
    assert event_time.simulate(seed) is None
    with mutated(mutation):
        problem = event_time.simulate(seed)
    assert problem is not None
    assert "missing: " in problem


@pytest.mark.parametrize(
    ("of", "mutation"),
    [(of, mutation) for of in ("sink", "stages") for mutation in mutations_of(of)],
    ids=lambda given: given if isinstance(given, str) else given.name,
)
def test_a_sink_or_stages_that_are_broken_are_noticed(of: str, mutation: Mutation) -> None:
    path = HERE / of / "plans" / f"{mutation.name.replace(' ', '_')}.json"
    assert path.exists() is not bool(mutation.covered_by)
    if mutation.covered_by:
        with mutated(mutation):  # it is still a line of the code
            return
    plan = PLANS[of].from_json(path.read_text(encoding="utf-8"))
    assert simulate(plan).problem is None
    with mutated(mutation):
        assert simulate(plan).problem is not None


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_each_mutation_changes_the_code(mutation: Mutation) -> None:
    before = function_of(mutation)
    with mutated(mutation):
        changed = function_of(mutation)
        assert changed is not before
        assert code_of(changed) != code_of(before)
    assert function_of(mutation) is before


def function_of(mutation: Mutation) -> Any:
    *path, last = mutation.function.split(".")
    owner: Any = mutation.code
    for name in path:
        owner = getattr(owner, name)
    return inspect.getattr_static(owner, last)


def code_of(found: Any) -> tuple[Any, ...]:
    """Return what a function does, wherever it stands: its instructions, and what they refer to."""
    inner = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    code = inspect.unwrap(inner).__code__
    inside = tuple(const.co_code if hasattr(const, "co_code") else const for const in code.co_consts)
    return code.co_code, inside, code.co_names
