"""What a task leaves when its batch is over: one value, for the commit."""

from __future__ import annotations

from typing import Any

import pytest

from statestore import Processor, ProcessorContext, PunctuationType, Record, Serdes, Stores, Topology
from statestore.bytestore.engines.memory import MemoryDatabase
from statestore.errors import ProcessorError
from statestore.interception.failures import FailureHandling
from statestore.processor.context import TaskRecordContext
from statestore.processor.punctuation import Cancellable
from statestore.processor.task import Task
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.recovery.commit.changelog import EveryWrite
from statestore.recovery.commit.pointer_fields import BatchEnd, RecordedPunctuation


class Keeping(Processor):
    """Keeps what comes in a window, and one more window when it is closed; there it cancels its schedule, too."""

    schedule: Cancellable

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.schedule = context.schedule(10, PunctuationType.STREAM_TIME, lambda now_ms: None)

    def process(self, record: Record[Any, Any]) -> None:
        self.context.state_store("windows").put(record.key, record.value, record.timestamp_ms)

    def close(self) -> None:
        self.schedule.cancel()
        self.context.state_store("windows").put(b"last", 0, 100)


class Failing(Keeping):
    """Fails in close()."""

    def close(self) -> None:
        raise OSError("no")


def task_of(processor: type[Processor]) -> tuple[Task, EveryWrite]:
    windows = Stores.window_store_builder(
        Stores.in_memory_window_store("windows", 1_000, 10), Serdes.bytes(), Serdes.int64()
    ).with_caching_enabled()
    plain = Stores.key_value_store_builder(Stores.in_memory_key_value_store("plain"), Serdes.bytes(), Serdes.int64())
    topology = Topology()
    topology.add_source("in", key_serde=Serdes.bytes(), value_serde=Serdes.int64())
    topology.add_processor("p", processor, ["in"])
    topology.add_state_store(windows, "p").add_state_store(plain, "p")
    context, changelog = TaskRecordContext(), EveryWrite(windows.spec)
    database = MemoryDatabase(["windows", "plain"])
    stores = build_stores(
        topology,
        context,
        lambda name: StoreBacking(database.family(name), changelog if name == "windows" else EveryWrite(plain.spec)),
    )
    return Task(topology, 0, stores, context, handling=FailureHandling(deserialization="continue")), changelog


def test_a_task_leaves_what_its_commit_takes() -> None:
    task, changelog = task_of(Keeping)
    value = Serdes.int64().serialize(1)
    task.process([("in", 0, 0, 25, b"k", value, b""), ("in", 0, 1, 7, b"k", b"short", b"")])
    assert changelog.records() == [], "the cache holds it back"
    assert task.leave() == BatchEnd(
        skipped_records=1,
        stream_time_ms=25,
        store_times_ms={"windows": 100},
        punctuations={"p": (RecordedPunctuation(PunctuationType.STREAM_TIME.value, 10, None, 30),)},
    )
    assert len(changelog.records()) == 2, "what close() wrote is flushed, too"


def test_a_task_that_can_not_be_closed_leaves_nothing() -> None:
    task, changelog = task_of(Failing)
    task.process([("in", 0, 0, 25, b"k", Serdes.int64().serialize(1), b"")])
    with pytest.raises(ProcessorError, match=r"in close\(\)"):
        task.leave()
    assert changelog.records() == []
