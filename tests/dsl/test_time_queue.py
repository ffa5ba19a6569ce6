"""A queue by time does what a sorted set does, over batches, however little of it is read at once."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from statestore import Serdes, Stores
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.dsl.processors import time_queue
from statestore.dsl.processors.time_queue import TimeQueue

PLACES = st.tuples(st.integers(0, 6), st.sampled_from([b"", b"a", b"b", b"aa"]))
STEPS = st.one_of(
    st.tuples(st.just("put"), PLACES),
    st.tuples(st.just("remove"), PLACES),
    st.tuples(st.just("take"), st.integers(0, 7)),
    st.tuples(st.just("take some"), st.integers(0, 4)),
    st.tuples(st.just("next batch"), st.none()),
)


class Shard:
    """What a queue asks of its context: a store, and numbers that are committed with a batch."""

    def __init__(self) -> None:
        builder = Stores.key_value_store_builder(
            Stores.in_memory_key_value_store("queue"), Serdes.bytes(), Serdes.bytes()
        )
        self._store = builder.build(MemoryByteStore("queue"))
        self._numbers: dict[str, int] = {}

    def state_store(self, name: str) -> Any:
        return self._store

    def processor_metadata(self, name: str) -> int | None:
        return self._numbers.get(name)

    def set_processor_metadata(self, name: str, number: int) -> None:
        self._numbers[name] = number


@given(steps=st.lists(STEPS, max_size=60), at_once=st.integers(1, 4), at_most=st.integers(1, 6))
def test_it_does_what_a_sorted_set_does(steps: list[tuple[str, Any]], at_once: int, at_most: int) -> None:
    with patch.object(time_queue, "_READ_AT_ONCE", at_once), patch.object(time_queue, "_HELD_AT_MOST", at_most):
        shard: Any = Shard()
        queue, model = TimeQueue(shard, "queue"), set[tuple[int, bytes]]()
        assert queue.is_unknown
        for step, argument in steps:
            if step == "put":
                queue.put(*argument)
                model.add(argument)
            elif step == "remove":
                queue.remove(*argument)
                model.discard(argument)
            elif step == "take":
                taken = list(queue.take(lambda time_ms, end_ms=argument: time_ms < end_ms))
                assert taken == sorted(each for each in model if each[0] < argument)
                model -= {*taken}
            elif step == "take some":
                left = [argument]
                taken = []
                for each in queue.take(lambda time_ms, left=left: left[0] > 0):
                    left[0] -= 1
                    taken.append(each)
                assert taken == sorted(model)[:argument]
                model -= {*taken}
            else:
                queue.record()
                queue = TimeQueue(shard, "queue")
                assert not queue.is_unknown
            assert all(queue.first_ms <= time_ms for time_ms, _ in model)
