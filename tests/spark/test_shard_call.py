"""The shard call alone, without Spark: what it is told of time, and what it tells."""

from __future__ import annotations

from pathlib import Path

import pytest

from statestore import Processor, ProcessorContext, PunctuationType, Serdes, Stores, Topology
from statestore.errors import TopologyError
from statestore.processor.task import OnDeserializationError
from statestore.recovery.location import DurableLocation
from statestore.recovery.pointer import CommitPointer
from statestore.recovery.shard_batch import ShardedState
from statestore.spark.shard_call import ShardCall, ShardResult

BYTES = Serdes.bytes()


class Reminding(Processor):
    """Writes the time into its store every ten milliseconds of the wall clock, if it is told to."""

    is_scheduled = True

    def init(self, context: ProcessorContext) -> None:
        self.times = context.state_store("times")
        if self.is_scheduled:
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.remind)

    def remind(self, now_ms: int) -> None:
        self.times.put(b"%d" % now_ms, b"")


def call(home: Path, *, wall_clock: bool = True) -> ShardCall:
    topology = Topology()
    topology.add_source("in", key_serde=BYTES, value_serde=BYTES)
    topology.add_processor("remind", Reminding, ["in"])
    topology.add_state_store(
        Stores.key_value_store_builder(Stores.persistent_key_value_store("times"), BYTES, BYTES), "remind"
    )
    state = ShardedState("state", DurableLocation(home / "state"), topology.store_specs(), str(home / "local"))
    return ShardCall(topology, state, (17,), OnDeserializationError.FAIL, 1 << 20, wall_clock=wall_clock)


def result_at(shard_call: ShardCall, recorded: str | None, now_ms: int) -> ShardResult:
    run = shard_call.run(17, [], recorded, "query", now_ms)
    with pytest.raises(StopIteration) as end:
        next(run)
    result: ShardResult = end.value.value
    return result


def times_in(shard_call: ShardCall, recorded: str) -> list[bytes]:
    with shard_call.state.open(CommitPointer.from_json(recorded)) as batch:
        return [key for key, _ in batch.stores["times"].bytes.range(None, None)]


def test_calls_without_records_go_on_with_the_schedule(tmp_path: Path) -> None:
    shard_call = call(tmp_path)
    first = result_at(shard_call, None, 100)
    assert first.wake_up_ms == 110
    early = result_at(shard_call, first.pointer, 105)
    assert (early.wake_up_ms, times_in(shard_call, early.pointer)) == (110, [])
    due = result_at(shard_call, early.pointer, 112)
    assert (due.wake_up_ms, times_in(shard_call, due.pointer)) == (120, [b"112"])


def test_an_attempt_that_did_not_count_changes_nothing(tmp_path: Path) -> None:
    shard_call = call(tmp_path)
    first = result_at(shard_call, None, 100)
    assert times_in(shard_call, result_at(shard_call, first.pointer, 115).pointer) == [b"115"]
    again = result_at(shard_call, first.pointer, 115)
    assert (again.wake_up_ms, times_in(shard_call, again.pointer)) == (120, [b"115"])
    assert times_in(shard_call, first.pointer) == []


def test_a_schedule_that_only_a_task_makes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"init\(\) must schedule the same every time"):
        list(call(tmp_path, wall_clock=False).run(17, [], None, "query", 100))


def test_without_a_schedule_nobody_is_called_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reminding, "is_scheduled", False)
    assert result_at(call(tmp_path), None, 100).wake_up_ms is None
