"""Processor metadata: numbers that processors of a shard keep from batch to batch, and what may be kept so."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest

from statestore import BatchProcessor, Processor, ProcessorContext, PunctuationType, Record, Serdes, Stores, Topology
from statestore.errors import ProcessorError, TopologyError
from statestore.errors.run import ProcessorMetadataError
from statestore.headers.record_columns import RecordColumns
from statestore.headers.topic_columns import SourceFields, source_batch
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.testing import TestInputTopic, TopologyTestDriver
from tests.support.spark.task_batches import TaskBatches

BYTES = Serdes.bytes()


def record(timestamp_ms: int, value: bytes = b"v", offset: int = 0) -> SourceFields:
    return ("in", 0, offset, timestamp_ms, b"k", value, b"")


class Latest(Processor):
    """Keeps the latest time that it has seen, and fails on what says so; `seen` is what each `init` found."""

    seen: ClassVar[list[int | None]] = []

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.seen.append(context.processor_metadata("latest"))

    def process(self, record: Record[Any, Any]) -> None:
        known = self.context.processor_metadata("latest")
        self.context.set_processor_metadata("latest", max(record.timestamp_ms, -1 if known is None else known))
        if record.value == b"fail":
            raise OSError("as asked")


class LatestOfBatch(BatchProcessor):
    """Does the same with columns."""

    seen = Latest.seen

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.seen.append(context.processor_metadata("latest"))

    def process_batch(self, records: RecordColumns) -> None:
        known = self.context.processor_metadata("latest")
        self.context.set_processor_metadata(
            "latest", max([-1 if known is None else known, *records.timestamp_ms.to_pylist()])
        )
        if b"fail" in records.value.to_pylist():
            raise OSError("as asked")


@pytest.fixture(autouse=True)
def seen() -> list[int | None]:
    Latest.seen.clear()
    return Latest.seen


def topology(*processors: Callable[[], Processor]) -> Topology:
    made = Topology()
    made.add_source("in", "in", key_serde=BYTES, value_serde=BYTES)
    for number, processor in enumerate(processors):
        made.add_processor(f"p{number}", processor, ["in"])
    return made


def asking(ask: Callable[[ProcessorContext], Any]) -> Callable[[], Processor]:
    class Asking(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context

        def process(self, record: Record[Any, Any]) -> None:
            ask(self.context)

    return Asking


def outcome_of(ask: Callable[[ProcessorContext], Any], metadata: dict[str, int] | None = None) -> dict[str, int]:
    """Return what a processor has changed that does this to its context."""
    task = Task(topology(asking(ask)), 0, {}, TaskRecordContext(), processor_metadata=metadata)
    task.process([record(1)])
    return dict(task.leave().processor_metadata)


@pytest.mark.parametrize("processor", [Latest, LatestOfBatch])
def test_what_was_set_is_there_in_the_next_batch_and_after_a_restart(
    tmp_path: Path, seen: list[int | None], processor: type[Processor]
) -> None:
    shard = TaskBatches(tmp_path, topology(processor))
    shard.run(record(5), record(9), record(7))
    assert (shard.pointer.version, shard.pointer.processor_metadata) == (0, {"latest": 9}), "there is no store"
    shard.lose_disk()
    shard.run(record(20))
    shard.run()
    assert shard.pointer.processor_metadata == {"latest": 20}
    assert seen == [None, 9, 20]


@pytest.mark.parametrize("processor", [Latest, LatestOfBatch])
def test_a_batch_that_does_not_count_has_set_nothing(
    tmp_path: Path, seen: list[int | None], processor: type[Processor]
) -> None:
    shard = TaskBatches(tmp_path, topology(processor))
    shard.run(record(5))
    shard.run(record(9), commits=False)
    with pytest.raises(ProcessorError, match="as asked"):
        shard.run(record(11), record(12, b"fail"))
    shard.run(record(7))
    assert seen == [None, 5, 5, 5]
    assert shard.pointer.processor_metadata == {"latest": 7}


def test_all_nodes_share_the_names_and_each_batch_adds_to_them() -> None:
    found: list[int | None] = []
    first = asking(lambda context: context.set_processor_metadata("s", -(2**63)))
    second = asking(lambda context: found.append(context.processor_metadata("s")))
    task = Task(topology(first, second), 0, {}, TaskRecordContext(), processor_metadata={"other": 1, "s": 5})
    task.process([record(1)])
    assert found == [-(2**63)]
    assert task.leave().processor_metadata == {"s": -(2**63)}, "what is as before is not said again"


def test_it_can_be_set_from_init_to_close_and_by_a_punctuator(tmp_path: Path) -> None:
    class Everywhere(Processor):
        def init(self, context: ProcessorContext) -> None:
            self.context = context
            context.set_processor_metadata("init", 1)
            context.schedule(
                10, PunctuationType.STREAM_TIME, lambda now_ms: context.set_processor_metadata("due", now_ms)
            )

        def process(self, record: Record[Any, Any]) -> None:
            pass

        def finish_batch(self) -> None:
            self.context.set_processor_metadata("finish_batch", 2)

        def close(self) -> None:
            self.context.set_processor_metadata("close", 3)

    shard = TaskBatches(tmp_path, topology(Everywhere))
    shard.run(record(30))
    expected = {"init": 1, "due": 30, "finish_batch": 2, "close": 3}
    assert shard.pointer.processor_metadata == expected
    with TopologyTestDriver(topology(Everywhere), state_dir=tmp_path) as driver:
        input_of(driver).pipe_input(b"k", b"v", timestamp_ms=30)
    found: list[list[int | None]] = []
    with TopologyTestDriver(
        topology(asking(lambda context: found.append([context.processor_metadata(name) for name in expected]))),
        state_dir=tmp_path,
    ) as driver:
        input_of(driver).pipe_input(b"k", b"v", timestamp_ms=40)
    assert found == [[1, 30, 2, 3]]


@pytest.mark.parametrize(
    ("key", "value", "error", "problem"),
    [
        (7, 1, TypeError, "got 7 and 1"),
        ("s", 1.0, TypeError, "got 's' and 1.0"),
        ("s", True, TypeError, "got 's' and True"),
        ("s", None, TypeError, "got 's' and None"),
        ("", 1, ValueError, "1 to 249 bytes"),
        ("ä" * 125, 1, ValueError, "1 to 249 bytes"),
        ("\ud800", 1, ValueError, "surrogates not allowed"),
        ("s", 2**63, ValueError, "'s': 9223372036854775808 is not a whole number"),
        ("s", -(2**63) - 1, ValueError, "'s': -9223372036854775809 is not a whole number"),
    ],
    ids=ascii,
)
def test_what_can_not_be_recorded_can_not_be_set(key: Any, value: Any, error: type[Exception], problem: str) -> None:
    with pytest.raises(ProcessorError, match=problem) as failure:
        outcome_of(lambda context: context.set_processor_metadata(key, value))
    assert isinstance(failure.value.__cause__, error)


def test_a_shard_has_room_for_so_many_names() -> None:
    full = {f"s{number}": number for number in range(999)}
    assert outcome_of(lambda context: context.set_processor_metadata("more", 1), full) == {"more": 1}
    full["more"] = 1
    assert outcome_of(lambda context: context.set_processor_metadata("s7", 8), full) == {"s7": 8}
    with pytest.raises(ProcessorError, match="the shard has 1,000 names, and no room for more") as failure:
        outcome_of(lambda context: context.set_processor_metadata("one more", 1), full)
    cause = failure.value.__cause__
    assert isinstance(cause, ProcessorMetadataError)
    assert (cause.node, cause.name, cause.limit) == ("p0", "one more", 1_000)


@pytest.mark.parametrize(
    "ask",
    [lambda context: context.processor_metadata("s"), lambda context: context.set_processor_metadata("s", 1)],
    ids=["get", "set"],
)
def test_the_processor_of_a_global_store_has_none(ask: Callable[[ProcessorContext], Any]) -> None:
    made = topology(Latest)
    store = Stores.key_value_store_builder(Stores.in_memory_key_value_store("g"), BYTES, BYTES)
    made.add_global_store(
        store.with_logging_disabled(), "gs", "global", "gp", asking(ask), key_serde=BYTES, value_serde=BYTES
    )
    with (
        TopologyTestDriver(made) as driver,
        pytest.raises(ProcessorError, match="'gp' feeds a global store, which belongs to no shard") as failure,
    ):
        driver.create_input_topic("global", key_serde=BYTES, value_serde=BYTES).pipe_input(b"k", b"v")
    assert isinstance(failure.value.__cause__, TopologyError)


def input_of(driver: TopologyTestDriver) -> TestInputTopic[Any, Any]:
    return driver.create_input_topic("in", key_serde=BYTES, value_serde=BYTES)


@pytest.mark.parametrize("processor", [Latest, LatestOfBatch])
def test_a_driver_keeps_it_with_its_progress(
    tmp_path: Path, seen: list[int | None], processor: type[Processor]
) -> None:
    with TopologyTestDriver(topology(processor), state_dir=tmp_path) as driver:
        input_of(driver).pipe_input(b"k", b"v", timestamp_ms=5)
        driver.restart()
        input_of(driver).pipe_input(b"k", b"v", timestamp_ms=9)
    with TopologyTestDriver(topology(processor), state_dir=tmp_path) as driver:
        assert seen == [None, 5, 9]
        input_of(driver).pipe_input(b"k", b"v", timestamp_ms=11)
        with pytest.raises(ProcessorError, match="as asked"):
            input_of(driver).pipe_input(b"k", b"fail", timestamp_ms=20)
        driver.restart()
        assert seen == [None, 5, 9, 11], "the record that failed has set nothing"
    TopologyTestDriver(topology(processor), state_dir=tmp_path).close()
    assert seen[-1] == 11
    shutil.rmtree(tmp_path)
    TopologyTestDriver(topology(processor), state_dir=tmp_path).close()
    assert seen[-1] is None


def test_columns_and_records_of_one_batch_share_it(seen: list[int | None]) -> None:
    made = topology(LatestOfBatch, Latest)
    task = Task(made, 0, {}, TaskRecordContext(), processor_metadata={"latest": 3})
    task.process_batch(source_batch([record(8), record(4)]))
    assert (seen, task.leave().processor_metadata) == ([3, 3], {"latest": 8})
