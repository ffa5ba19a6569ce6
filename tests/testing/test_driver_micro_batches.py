"""Micro-batches in the test driver: processed in order, committed together, and forgotten together."""

from __future__ import annotations

from typing import Any

import pytest

from statestore import BatchProcessor, ConsumerRecord, ProcessorContext, Record, RecordColumns, Topology
from statestore.errors import ProcessorError
from statestore.errors.run import UnknownTopicError
from statestore.testing import TestRecord, TopologyTestDriver
from tests.support.driver_topologies import KINDS, TEXT, chain, input_of, look_up, output_of, with_global_store


class Sizes(BatchProcessor):
    """Forwards each batch with its size for a value."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process_batch(self, records: RecordColumns) -> None:
        text = f"{len(records)} from {records.offset[0]}"
        self.context.forward_batch(records.take([0]).with_columns(value=records.key.take([0]).cast("string")))
        self.context.forward(Record("size", text, 0))


def sizes() -> Topology:
    topology = Topology()
    topology.add_source("in", "in", key_serde=TEXT, value_serde=TEXT)
    topology.add_processor("sizes", Sizes, ["in"])
    topology.add_sink("out", "out", ["sizes"])
    return topology


def test_a_batch_processor_gets_all_of_it() -> None:
    with TopologyTestDriver(sizes()) as driver:
        topic = input_of(driver, start_timestamp_ms=10, auto_advance_ms=5)
        topic.pipe_input("a", "1")
        topic.pipe_micro_batch([TestRecord("b", "2"), TestRecord("c", "3", 4), TestRecord("d", None)])
        topic.pipe_micro_batch([])
        out = [(one.key, one.value, one.timestamp_ms) for one in output_of(driver).read_records_to_list()]
        assert out == [("a", "a", 10), ("size", "1 from 0", 0), ("b", "b", 15), ("size", "3 from 1", 0)]
        assert driver.metrics()["process-total"] == 4
        assert driver.metrics()["commit-total"] == 4, "with the driver's start, and the batch of nothing"


def test_a_batch_that_fails_leaves_nothing_behind() -> None:
    def fail_at_three(context: ProcessorContext, record: Record[Any, Any]) -> None:
        context.state_store("s").put_value(record.key, record.value)
        context.forward(record)
        if record.value == "3":
            raise ValueError("no")

    with TopologyTestDriver(chain(fail_at_three, KINDS["headers-kv"].persistent("s"))) as driver:
        topic = input_of(driver)
        topic.pipe_micro_batch([TestRecord("k", "1", 1), TestRecord("l", "2", 1)])
        with pytest.raises(ProcessorError, match="on record in-0 at offset 3"):
            topic.pipe_micro_batch([TestRecord("k", "2", 1), TestRecord("m", "3", 1)])
        driver.restart()
        store = driver.get_timestamped_key_value_store_with_headers("s")
        with store.all() as entries:
            assert [(key, held.value) for key, held in entries] == [("k", "1"), ("l", "2")]
        assert [one.value for one in output_of(driver).read_records_to_list()] == ["1", "2"]


def test_what_it_leads_to_comes_after_all_of_it() -> None:
    def again(context: ProcessorContext, record: Record[Any, Any]) -> None:
        if record.value != "again":
            context.forward(record.with_value("again"), "back")
        context.forward(record, "out")

    topology = chain(again)
    topology.add_sink("back", "in", ["p"])
    with TopologyTestDriver(topology) as driver:
        input_of(driver).pipe_micro_batch([TestRecord("k", "1", 1), TestRecord("l", "2", 1)])
        assert output_of(driver).read_values_to_list() == ["1", "2", "again", "again"]


def test_a_global_topic_takes_them_too() -> None:
    with TopologyTestDriver(with_global_store(look_up)) as driver:
        input_of(driver, "global").pipe_micro_batch([TestRecord("k", "1", 1), TestRecord("l", "2", 1)])
        input_of(driver).pipe_micro_batch([TestRecord("k", "x", 1), TestRecord("l", "y", 1)])
        assert output_of(driver).read_values_to_list() == ["1", "2"]


def test_a_hook_may_leave_some_or_none() -> None:
    def without_twos(record: ConsumerRecord[Any, Any]) -> ConsumerRecord[Any, Any] | None:
        return None if record.value == b"2" else record

    with TopologyTestDriver(sizes(), interceptors=without_twos) as driver:
        topic = input_of(driver)
        topic.pipe_micro_batch([TestRecord("a", "2", 1)])
        topic.pipe_micro_batch([TestRecord("a", "2", 1), TestRecord("b", "1", 1)])
        assert output_of(driver).read_values_to_list() == ["b", "1 from 2"]


def test_a_topic_that_nobody_reads_is_refused() -> None:
    with TopologyTestDriver(sizes()) as driver, pytest.raises(UnknownTopicError):
        input_of(driver, "other").pipe_micro_batch([TestRecord("a", "2", 1)])
