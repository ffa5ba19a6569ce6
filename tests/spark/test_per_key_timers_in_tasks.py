"""Timers of processors that are handed a key's rows, on both clocks, through failures and restarts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from statestore import ExpiredTimer, Headers, KeyContext, Serdes, StatefulProcessorHandle
from statestore.spark import HeaderStatefulProcessor
from tests.support.spark.per_key_processors import Doing, record, run, topology_of, values
from tests.support.spark.task_batches import TaskBatches


class Reminding(HeaderStatefulProcessor):
    """Sets timers at the times that a row's value lists, and yields when they fire, with what is left."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle

    def handle_input_rows(self, key: Any, rows: Iterator[pd.DataFrame], context: KeyContext) -> Iterator[pd.DataFrame]:
        for frame in rows:
            for times_ms in frame["value"]:
                for time_ms in times_ms:
                    if time_ms < 0:
                        self.handle.delete_timer(-time_ms)
                    else:
                        self.handle.register_timer(time_ms)
        return iter(())

    def handle_expired_timer(
        self, key: Any, context: KeyContext, expired_timer: ExpiredTimer
    ) -> Iterator[pd.DataFrame]:
        assert context.record_metadata is None
        yield pd.DataFrame({"value": [[expired_timer.expiry_time_ms, list(self.handle.list_timers())]]})


def test_timers_by_stream_time_fire_in_order_of_time(tmp_path: Path) -> None:
    batches = TaskBatches(tmp_path, topology_of(Reminding, time_mode="event_time"))
    assert batches.run(record("b", [30, 10, 20, 99], timestamp_ms=5), record("a", [20, 98, -98], timestamp_ms=4)) == []
    outputs = batches.run(record("c", [], timestamp_ms=20))
    assert outputs == [
        ("out", 10, b"b", b"[10,[20,30,99]]", b""),
        ("out", 20, b"a", b"[20,[]]", b""),
        ("out", 20, b"b", b"[20,[30,99]]", b""),
    ]
    assert values(batches.run(record("c", [], timestamp_ms=98))) == [[30, [99]]]


@pytest.mark.parametrize("time_mode", ["event_time", "processing_time"])
def test_timers_fire_once_whatever_fails_and_is_lost(tmp_path: Path, time_mode: str) -> None:
    batches = TaskBatches(tmp_path, topology_of(Reminding, time_mode=time_mode, timer_resolution_ms=10))
    batches.run(record("a", [100], timestamp_ms=1), now_ms=0)
    later = record("z", [], timestamp_ms=100)
    assert values(batches.run(later, now_ms=100, commits=False)) == [[100, []]]
    batches.lose_disk()
    assert values(batches.run(record("z", [], timestamp_ms=99), now_ms=99)) == []
    assert values(batches.run(later, now_ms=100)) == [[100, []]]
    batches.lose_disk()
    assert batches.run(record("z", [], timestamp_ms=500), now_ms=500) == []
    assert batches.content("per-key-timers") == []


def test_timers_by_the_wall_clock_fire_without_records_at_the_resolution(tmp_path: Path) -> None:
    batches = TaskBatches(tmp_path, topology_of(Reminding, time_mode="processing_time", timer_resolution_ms=50))
    batches.run(record("a", [110], timestamp_ms=10**6), now_ms=0)
    assert batches.run(now_ms=100) == []
    assert batches.run(now_ms=149) == []
    assert values(batches.run(now_ms=150)) == [[110, []]]


def test_a_timer_that_a_timer_sets_for_the_past_waits_for_the_next_batch(tmp_path: Path) -> None:
    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        self.handle.register_timer(10)
        return iter(())

    def timer(self: Any, key: str, context: KeyContext, timer: ExpiredTimer) -> Any:
        self.handle.register_timer(timer.expiry_time_ms + 1)
        yield pd.DataFrame({"value": [timer.expiry_time_ms]})

    batches = TaskBatches(tmp_path, topology_of(Doing(rows, timer), time_mode="event_time"))
    assert values(batches.run(record("a", 0, timestamp_ms=50))) == [10]
    assert [values(batches.run()) for _ in range(3)] == [[11], [12], [13]]


def test_a_timer_that_another_one_deletes_does_not_fire(tmp_path: Path) -> None:
    def timer(self: Any, key: str, context: KeyContext, timer: ExpiredTimer) -> Any:
        self.handle.delete_timer(20)
        yield pd.DataFrame({"value": [timer.expiry_time_ms]})

    class Deleting(Reminding):
        handle_expired_timer = timer

    outputs = run(tmp_path, Deleting, record("a", [10, 20, 30], timestamp_ms=50), time_mode="event_time")
    assert values(outputs) == [10, 30]


def test_states_in_timers_are_written_at_the_timers_time(tmp_path: Path) -> None:
    def on_init(self: Any, handle: StatefulProcessorHandle) -> None:
        self.state = handle.get_value_state("state", Serdes.int64())

    def rows(self: Any, key: str, rows: Iterator[pd.DataFrame], context: KeyContext) -> Any:
        self.handle.register_timer(10)
        return iter(())

    def timer(self: Any, key: str, context: KeyContext, timer: ExpiredTimer) -> Any:
        assert context.current_stream_time_ms == 50
        self.state.update(1)
        return iter(())

    batches = TaskBatches(tmp_path, topology_of(Doing(rows, timer, on_init), time_mode="event_time"))
    batches.run(record("a", 0, timestamp_ms=50))
    held = batches.look("state", lambda store: store.get(b"a"))
    assert (held.value, held.timestamp_ms, held.headers) == (1, 10, Headers())
