"""Stories of rescaling under event time find nothing wrong, and find each mutation that is made for them."""

from __future__ import annotations

import pytest

from tests.simulation.event_time import simulate
from tests.simulation.mutations import OF_EVENT_TIME, Mutation, mutated

FOUND_BY = {
    "what old shards had seen is not known": 1,
    "what shards had seen before the last rescaling is not known": 70,
    "a new shard begins with the latest stream time": 24,
    "a new shard begins with the latest time of nodes": 1,
    "a shard that has seen nothing has no say": 19,
    "what is known of old shards goes with the first batch": 29,
}


@pytest.mark.parametrize("seed", sorted({23, *FOUND_BY.values()}))
def test_what_was_promised_comes(seed: int) -> None:
    """In 23, a session that had been ahead took its store so far that it hid what was still open."""
    assert simulate(seed) is None


@pytest.mark.parametrize("mutation", OF_EVENT_TIME, ids=lambda mutation: mutation.name)
def test_a_rule_that_is_broken_is_noticed(mutation: Mutation) -> None:
    with mutated(mutation):
        problem = simulate(FOUND_BY[mutation.name])
    assert problem is not None
    assert "missing: " in problem
