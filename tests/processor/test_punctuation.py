"""Punctuation: when schedules are due, that they go on in the next task, and what they are not allowed to do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from statestore import Processor, ProcessorContext, PunctuationType, Record, Serdes, Topology
from statestore.errors import ProcessorError, TopologyError
from statestore.headers.topic_columns import SourceFields
from statestore.processor.context import TaskRecordContext
from statestore.processor.punctuation import Cancellable
from statestore.processor.task import Task
from statestore.recovery.commit.pointer_fields import RecordedPunctuation, RecordedPunctuations

STREAM, WALL = PunctuationType.STREAM_TIME, PunctuationType.WALL_CLOCK_TIME
Init = Callable[[ProcessorContext], object]
Process = Callable[[ProcessorContext, Record[Any, Any]], object]


def record(timestamp_ms: int, offset: int = 0) -> SourceFields:
    return ("in", 0, offset, timestamp_ms, b"k", b"v", b"")


def topology(init: Init, process: Process = lambda context, record: None) -> Topology:
    class Scheduling(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context
            init(context)

        def process(self, record: Record[Any, Any]) -> None:
            process(self.context, record)

    made = Topology()
    made.add_source("in", key_serde=Serdes.bytes(), value_serde=Serdes.bytes())
    made.add_processor("p", Scheduling, ["in"])
    made.add_sink("out", "out", ["p"])
    return made


def task_of(
    made: Topology, recorded: RecordedPunctuations | None = None, *, stream_time_ms: int = -1, now_ms: int = 0
) -> Task:
    return Task(made, 0, {}, TaskRecordContext(stream_time_ms, now_ms), punctuations=recorded)


def fired(times_ms: list[int]) -> Callable[[int], None]:
    return times_ms.append


@pytest.mark.parametrize(
    ("start_ms", "times_ms", "expected_ms"),
    [
        (None, [0, 3, 9, 10, 15, 5, 35, 36, 40, 1000, 1001, 999, 1010], [0, 10, 35, 40, 1000, 1010]),
        (None, [7, 8, 10, 19, 21], [7, 10, 21]),
        (25, [7, 24, 25, 30, 35, 58, 65], [25, 35, 58, 65]),
    ],
)
def test_stream_time_fires_on_its_grid_and_once_for_missed_intervals(
    start_ms: int | None, times_ms: Sequence[int], expected_ms: Sequence[int]
) -> None:
    found: list[int] = []
    task = task_of(topology(lambda context: context.schedule(10, STREAM, fired(found), start_ms=start_ms)))
    for time_ms in times_ms:
        task.process([record(time_ms)])
    assert found == expected_ms
    assert task.punctuation_count == len(expected_ms)


@pytest.mark.parametrize(
    ("start_ms", "expected_ms"),
    [
        (None, [110, 120, 145, 150]),
        (104, [105, 114, 124, 145]),
        (100, [100, 110, 120, 145, 150]),
        (77, [107, 117, 145, 147]),
    ],
)
def test_the_wall_clock_fires_after_an_interval_or_on_the_grid_of_its_start(
    start_ms: int | None, expected_ms: Sequence[int]
) -> None:
    found: list[int] = []
    made = topology(lambda context: context.schedule(10, WALL, fired(found), start_ms=start_ms))
    task = task_of(made, now_ms=100)
    for now_ms in (100, 105, 107, 110, 114, 117, 120, 124, 145, 147, 150):
        task.advance_wall_clock(now_ms)
    assert found == expected_ms


def test_the_next_time_of_the_wall_clock_is_the_earliest_that_is_not_cancelled() -> None:
    cancellables: list[Cancellable] = []

    def init(context: ProcessorContext) -> None:
        cancellables.append(context.schedule(10, WALL, lambda now_ms: None))
        cancellables.append(context.schedule(25, WALL, lambda now_ms: None))

    task = task_of(topology(init), now_ms=100)
    assert task.next_wall_clock_ms == 110
    cancellables[0].cancel()
    assert task.next_wall_clock_ms == 125
    cancellables[1].cancel()
    assert task.next_wall_clock_ms is None
    assert (
        task_of(topology(lambda context: context.schedule(10, STREAM, lambda now_ms: None))).next_wall_clock_ms is None
    )


def test_schedules_go_on_in_the_next_task() -> None:
    found: list[tuple[str, int]] = []

    def init(context: ProcessorContext) -> None:
        context.schedule(10, STREAM, lambda now_ms: found.append(("stream", now_ms)))
        context.schedule(50, WALL, lambda now_ms: found.append(("wall", now_ms)))

    first = task_of(topology(init), now_ms=100)
    first.process([record(4)])
    recorded = first.punctuations()
    assert recorded == {
        "p": (RecordedPunctuation("stream-time", 10, None, 10), RecordedPunctuation("wall-clock-time", 50, None, 150))
    }
    second = task_of(topology(init), recorded, stream_time_ms=4, now_ms=140)
    second.process([record(5), record(9)])
    second.advance_wall_clock(140)
    assert found == [("stream", 4)]
    second.process([record(11)])
    second.advance_wall_clock(151)
    assert found == [("stream", 4), ("stream", 11), ("wall", 151)]
    assert second.punctuations()["p"][1].next_ms == 200


def test_what_was_cancelled_stays_cancelled_and_what_was_changed_is_new() -> None:
    found: list[int] = []
    held: list[Cancellable] = []

    def cancelling(context: ProcessorContext, record: Record[Any, Any]) -> None:
        held[-1].cancel()

    def scheduling(interval_ms: int) -> Init:
        return lambda context: held.append(context.schedule(interval_ms, STREAM, fired(found)))

    first = task_of(topology(scheduling(10), cancelling))
    first.process([record(4)])
    assert found == []
    recorded = first.punctuations()
    assert recorded["p"][0].next_ms is None
    second = task_of(topology(scheduling(10)), recorded)
    second.process([record(50)])
    assert found == []
    assert second.punctuations() == recorded
    task_of(topology(scheduling(11)), recorded).process([record(60)])
    assert found == [60]
    anchored = task_of(topology(lambda context: context.schedule(10, STREAM, fired(found), start_ms=3)), recorded)
    anchored.process([record(60)])
    assert found == [60, 60]
    assert anchored.punctuations() == {"p": (RecordedPunctuation("stream-time", 10, 3, 63),)}


def test_a_punctuator_can_cancel_itself() -> None:
    found: list[int] = []
    held: list[Cancellable] = []

    def once(now_ms: int) -> None:
        found.append(now_ms)
        held[0].cancel()

    task = task_of(topology(lambda context: held.append(context.schedule(1, STREAM, once))))
    task.process([record(5), record(6), record(7)])
    assert found == [5]


def test_schedules_of_one_time_fire_in_the_order_they_were_made() -> None:
    found: list[str] = []

    def init(context: ProcessorContext) -> None:
        for name in "abc":
            context.schedule(10, STREAM, lambda now_ms, name=name: found.append(name))

    task = task_of(topology(init))
    task.process([record(0), record(10), record(30)])
    assert found == list("abcabcabc")


def test_a_punctuator_has_no_record_and_its_time_for_a_timestamp() -> None:
    seen: list[Any] = []

    def init(context: ProcessorContext) -> None:
        def punctuate(now_ms: int) -> None:
            seen.append((context.record_metadata, context.current_timestamp_ms, len(context.current_headers)))
            context.forward(Record("tick", now_ms, 99))
            seen.append(context.current_timestamp_ms)

        context.schedule(10, STREAM, punctuate)

    task = task_of(topology(init))
    task.process([("in", 0, 3, 12, b"k", b"v", b"\x02\x02a\x02b")])
    assert seen == [(None, 12, 0), 12]
    assert task.outputs == [("out", 99, b"tick", (12).to_bytes(8, "big"), b"")]


@pytest.mark.parametrize("where", ["process", "punctuator"])
def test_schedules_are_made_in_init_only_so_none_can_go_on_for_ever(where: str) -> None:
    def again(context: ProcessorContext) -> None:
        context.schedule(1, STREAM, lambda now_ms: again(context))

    if where == "process":
        made = topology(lambda context: None, lambda context, record: again(context))
    else:
        made = topology(again)
    with pytest.raises(
        ProcessorError, match=r"node 'p' calls schedule\(\) outside of its init\(\).*for ever"
    ) as caught:
        task_of(made).process([record(1)])
    assert isinstance(caught.value.__cause__, TopologyError)


def test_an_error_of_a_punctuator_says_so() -> None:
    def failing(now_ms: int) -> None:
        raise KeyError("gone")

    task = task_of(topology(lambda context: context.schedule(10, STREAM, failing)))
    with pytest.raises(ProcessorError, match="node 'p' failed in a punctuation at 12 ms: KeyError: 'gone'") as caught:
        task.process([record(12)])
    assert (caught.value.node, caught.value.topic) == ("p", None)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0, STREAM, print), ValueError, "interval_ms must be a whole number, 1 or more, got 0"),
        ((1.5, STREAM, print), ValueError, "interval_ms must be a whole number"),
        ((True, STREAM, print), ValueError, "interval_ms must be a whole number"),
        ((1, "stream-time", print), TypeError, "must be a PunctuationType"),
        ((1, STREAM, None), TypeError, "punctuator must be a function"),
    ],
)
def test_arguments_that_make_no_schedule(arguments: tuple[Any, ...], error: type[Exception], message: str) -> None:
    with pytest.raises(ProcessorError, match=message) as caught:
        task_of(topology(lambda context: context.schedule(*arguments)))
    assert isinstance(caught.value.__cause__, error)


def test_a_start_before_time_began_is_refused() -> None:
    with pytest.raises(ProcessorError, match="start_ms must be a whole number, 0 or more"):
        task_of(topology(lambda context: context.schedule(1, WALL, print, start_ms=-1)))


LATEST_MS = 2**63 - 1


@pytest.mark.parametrize(
    ("interval_ms", "kind", "start_ms", "message"),
    [
        (2**63, STREAM, None, r"interval_ms must be at most 2\^63 - 1"),
        (1, STREAM, 2**63, r"start_ms must be at most 2\^63 - 1"),
        (LATEST_MS, WALL, None, r"would be due at .*, later than 2\^63 - 1"),
    ],
)
def test_a_schedule_is_of_times_that_there_are(
    interval_ms: int, kind: PunctuationType, start_ms: int | None, message: str
) -> None:
    with pytest.raises(ProcessorError, match=message):
        task_of(topology(lambda context: context.schedule(interval_ms, kind, print, start_ms=start_ms)), now_ms=5)


def test_a_schedule_that_no_time_is_left_for_is_over() -> None:
    """At the last time there is, every schedule fires once, is recorded as over, and is over in the next task."""
    found: list[int] = []
    made = topology(lambda context: context.schedule(10, STREAM, fired(found)))
    task = task_of(made)
    task.process([record(LATEST_MS)])
    assert found == [LATEST_MS]
    recorded = task.punctuations()
    assert [each.next_ms for each in recorded["p"]] == [None]
    task_of(made, recorded).process([record(LATEST_MS)])
    assert found == [LATEST_MS]


def test_a_task_without_schedules_knows_the_last_time_there_is() -> None:
    assert task_of(topology(lambda context: None)).process([record(LATEST_MS)]) == 1
