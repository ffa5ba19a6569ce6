"""Timers that Spark calls a shard back by: one at a time, and Spark warns of one that is deleted twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from statestore.spark.drivers import StateOfShards


class Timers:
    """The timers of one shard, as Spark's handle has them: it warns of one that is not there."""

    def __init__(self, *times_ms: int) -> None:
        self.times_ms = set(times_ms)

    def listTimers(self) -> list[int]:
        return sorted(self.times_ms)

    def deleteTimer(self, time_ms: int) -> None:
        self.times_ms.remove(time_ms)

    def registerTimer(self, time_ms: int) -> None:
        assert time_ms not in self.times_ms
        self.times_ms.add(time_ms)


@pytest.fixture
def shards() -> Callable[[Timers], Any]:
    return lambda timers: StateOfShards(None, timers, None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "wake_up_ms", "fired_ms", "after"),
    [
        ((), 10, None, {10}),
        ((10,), 10, None, {10}),
        ((5,), 10, None, {10}),  # due, and called for records: a batch calls no shard twice
        ((5,), None, None, set()),
        ((5,), 10, 5, {10}),
        ((5,), None, 5, set()),
    ],
)
def test_one_timer_is_left_and_none_is_deleted_twice(
    shards: Callable[[Timers], Any],
    before: tuple[int, ...],
    wake_up_ms: int | None,
    fired_ms: int | None,
    after: set[int],
) -> None:
    timers = Timers(*before)
    shards(timers)._wake_up_at(wake_up_ms, fired_ms)
    if fired_ms is not None:
        timers.deleteTimer(fired_ms)  # as Spark's worker does behind handleExpiredTimer
    assert timers.times_ms == after
