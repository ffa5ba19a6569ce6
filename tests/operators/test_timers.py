"""Timers: in order of time, one for each key and time."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.operators.state_handle import Timers, timer_store

KEYS = st.lists(st.sampled_from([0, 1, 107, 116, 255]), max_size=3).map(bytes)
TIMES = st.integers(0, 5) | st.sampled_from([2**32, 2**63 - 1])


def some_timers() -> Timers:
    return Timers(timer_store("timers").build(WriteSet(MemoryByteStore("timers"))))


@given(changes=st.lists(st.tuples(st.booleans(), KEYS, TIMES), max_size=20), now_ms=TIMES)
def test_timers_are_a_set_of_times_and_keys(changes: list[tuple[bool, bytes, int]], now_ms: int) -> None:
    timers, model = some_timers(), set[tuple[int, bytes]]()
    for register, key, time_ms in changes:
        if register:
            timers.register(key, time_ms)
            model.add((time_ms, key))
        else:
            assert timers.delete(key, time_ms) is ((time_ms, key) in model)
            model.discard((time_ms, key))
    assert list(timers.due(now_ms)) == sorted(timer for timer in model if timer[0] <= now_ms)
    for key in {key for _, key, _ in changes}:
        assert list(timers.of_key(key)) == sorted(time_ms for time_ms, other in model if other == key)


def test_what_is_due_is_seen_as_it_was_at_the_call() -> None:
    timers = some_timers()
    timers.register(b"k", 1)
    due = timers.due(10)
    first = next(due)
    timers.register(b"k", 2)
    assert (first, list(due)) == ((1, b"k"), [])


def test_no_timer_is_due_before_the_first_record() -> None:
    timers = some_timers()
    timers.register(b"k", 0)
    assert list(timers.due(-1)) == []
    assert list(timers.due(0)) == [(0, b"k")]


def test_times_that_are_none() -> None:
    timers = some_timers()
    for time_ms in (-1, 2**63):
        with pytest.raises(ValueError, match="the time of a timer must be 0 or more"):
            timers.register(b"k", time_ms)
    with pytest.raises(TypeError):
        timers.register(b"k", 1.5)  # type: ignore[arg-type]
    timers.register(b"k", np.int64(7))  # type: ignore[arg-type]
    assert list(timers.of_key(b"k")) == [7]
