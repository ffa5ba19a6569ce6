"""Processors and stores that users put into programs: what `test_against_kafka` can't see of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from statestore.dsl import Materialized, StreamsBuilder, TimeWindows, time_windowed_serde
from statestore.errors import ProcessorError, TopologyError
from statestore.format.serde import Serdes
from statestore.headers.record_columns import RecordColumns
from statestore.processor.context import ProcessorContext
from statestore.processor.processor import BatchProcessor, Processor
from statestore.processor.punctuation import PunctuationType
from statestore.processor.record import Record
from statestore.stores.stores import Stores
from statestore.testing import TopologyTestDriver

TEXT, INT64 = Serdes.string(), Serdes.int64()


def numbers(name: str) -> Any:
    return Stores.key_value_store_builder(Stores.in_memory_key_value_store(name), TEXT, INT64)


class Looks(Processor):
    """Sends on what a store has of a key."""

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: ProcessorContext) -> None:
        self._context, self._held = context, context.state_store(self._store)

    def process(self, record: Record[Any, Any]) -> None:
        held = self._held.get(record.key)
        self._context.forward(record.with_value(str(getattr(held, "value", held))))


class Keeps(Processor):
    """Puts values into a store."""

    def __init__(self, store: str) -> None:
        self._store = store

    def init(self, context: ProcessorContext) -> None:
        self._held = context.state_store(self._store)

    def process(self, record: Record[Any, Any]) -> None:
        self._held.put(record.key, record.value)


class Renames(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        self._context.forward(record.with_key("other"))


class Repeats(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record[Any, Any]) -> None:
        self._context.forward(record.with_value(2 * record.value))


class ForwardsLater(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._forward = context.forward
        context.schedule(1, PunctuationType.STREAM_TIME, lambda time_ms: self._forward(Record("a", "x", time_ms)))

    def process(self, record: Record[Any, Any]) -> None:
        """Leave it out."""


class InColumns(BatchProcessor):
    def process_batch(self, records: RecordColumns) -> None:
        """Leave them out."""


def looked_up(builder: StreamsBuilder, store: str, topic: str) -> list[Any]:
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic(topic, key_serde=TEXT, value_serde=INT64).pipe_input("a", 7)
        driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT).pipe_input("a", "")
        return driver.create_output_topic("out", key_serde=TEXT, value_serde=TEXT).read_values_to_list()


def test_a_processor_reads_what_every_shard_has() -> None:
    builder = StreamsBuilder()
    kept = partial(Keeps, "known")
    builder.add_global_store(numbers("known"), "facts", kept, key_serde=TEXT, value_serde=INT64)
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.process_values(partial(Looks, "known"), value_serde=TEXT).to("out")
    assert looked_up(builder, "known", "facts") == ["7"]


def test_a_processor_reads_a_table() -> None:
    builder = StreamsBuilder()
    builder.table("facts", key_serde=TEXT, value_serde=INT64, materialized=Materialized.as_("known"))
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    stream.process(partial(Looks, "known"), "known", key_serde=TEXT, value_serde=TEXT).to("out")
    assert looked_up(builder, "known", "facts") == ["7"]


def test_what_a_processor_sends_on_is_divided_anew() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    changed = stream.process(Renames, key_serde=TEXT, value_serde=TEXT)
    kept = stream.process_values(Renames, value_serde=TEXT)
    assert kept.group_by_key().count() is not None
    assert builder.build().repartition_topics == set()
    changed.group_by_key(name="renamed").count()
    assert builder.build().repartition_topics == {"renamed-repartition"}


@pytest.mark.parametrize("supplier", [Renames, ForwardsLater])
def test_values_are_processed_with_the_keys_that_they_have(supplier: type[Processor]) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).process_values(supplier, value_serde=TEXT).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        source = driver.create_input_topic("in", key_serde=TEXT, value_serde=TEXT)
        with pytest.raises(ProcessorError, match="may only forward in process"):
            source.pipe_input("a", "x")


def test_a_key_that_is_no_number_is_the_one_that_came() -> None:
    builder, double = StreamsBuilder(), Serdes.double()
    builder.stream("in", key_serde=double, value_serde=TEXT).process_values(Repeats, value_serde=TEXT).to("out")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", key_serde=double, value_serde=TEXT).pipe_input(float("nan"), "x")
        assert driver.create_output_topic("out", key_serde=double, value_serde=TEXT).read_values_to_list() == ["xx"]


def test_values_are_not_processed_in_columns() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key_serde=TEXT, value_serde=TEXT).process_values(InColumns)
    with pytest.raises(TopologyError, match="takes no BatchProcessor"), TopologyTestDriver(builder.build()):
        pass


def test_keys_of_stores_behind_windows_are_known_to_have_them() -> None:
    builder, windowed = StreamsBuilder(), time_windowed_serde(TEXT, 10)
    supplier = Stores.in_memory_key_value_store("own")
    builder.add_state_store(Stores.key_value_store_builder(supplier, windowed, INT64))
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    counts = stream.group_by_key().windowed_by(TimeWindows.of_size_with_no_grace(10)).count().to_stream()
    counts.process_values(partial(Keeps, "own"), "own", name="keeping")
    assert builder.build().processors["keeping"].entry_keys == {"own": "windowed"}


def test_what_is_not_there_or_there_twice_is_refused() -> None:
    builder = StreamsBuilder()
    stream = builder.stream("in", key_serde=TEXT, value_serde=TEXT)
    assert builder.stream(["in"], key_serde=TEXT, value_serde=TEXT) is stream
    with pytest.raises(TopologyError, match="reads the same topics with other serdes"):
        builder.stream("in", key_serde=TEXT, value_serde=INT64)
    builder.add_state_store(numbers("own"))
    with pytest.raises(TopologyError, match="already is a state store 'own'"):
        builder.add_state_store(numbers("own"))
    stream.process(partial(Looks, "nowhere"), "nowhere")
    with pytest.raises(TopologyError, match="'nowhere' can't be attached"):
        builder.build()
