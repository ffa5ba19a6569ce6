"""Several streams that share an aggregate do in columns what they do record by record."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from statestore import BatchProcessor, Serdes
from statestore.bytestore.engines.memory import MemoryByteStore
from statestore.bytestore.write_sets.write_set import WriteSet
from statestore.dsl.materialized import Materialized
from statestore.dsl.streams_builder import StreamsBuilder
from statestore.errors import ProcessorError
from statestore.format.records.header_bytes import encode_headers
from statestore.headers.topic_columns import SourceFields, source_batch
from statestore.processor.context import TaskRecordContext
from statestore.processor.task import Task
from statestore.processor.task_stores import StoreBacking, build_stores
from statestore.recovery.commit.changelog import batch_changelog

TEXT, INT64, JSON = Serdes.string(), Serdes.int64(), Serdes.json()
VALUES = {"texts": TEXT, "numbers": INT64}


def added(key: str, value: Any, there: list[Any]) -> list[Any] | None:
    """Deletes, changes what it gets, and fails."""
    if value == "bad":
        raise ValueError("this one")
    there.append((key, value))
    return None if len(there) == 4 or value == 0 else there


def task_of(*, in_columns: bool, is_cached: bool) -> tuple[Task, Any]:
    builder = StreamsBuilder(in_columns=in_columns)
    texts, numbers = (builder.stream(name, key_serde=TEXT, value_serde=serde) for name, serde in VALUES.items())
    kept = Materialized.as_("kept").with_store_in_memory().with_value_serde(JSON)
    both = texts.group_by_key().cogroup(added).cogroup(numbers.group_by_key(), added)
    table = both.aggregate(list, materialized=kept.with_caching_enabled() if is_cached else kept, headers="append")
    table.to_stream().to("out")
    table.changes().map_values(lambda change: f"{change.old} -> {change.new}", value_serde=TEXT).to("changes")
    topology, context = builder.build(), TaskRecordContext(system_time_ms=1_000)
    made = [node.supplier() for name, node in topology.processors.items() if name.startswith("COGROUP")]
    assert [isinstance(each, BatchProcessor) for each in made] == [in_columns] * 3
    log = batch_changelog(topology.store_builders["kept"].spec)
    stores = build_stores(topology, context, lambda name: StoreBacking(WriteSet(MemoryByteStore(name)), log))
    return Task(topology, 0, stores, context), log


def ran(batches: list[list[SourceFields]], *, in_columns: bool, is_cached: bool) -> dict[str, Any]:
    """What they put out to each topic, log, count, and fail with."""
    task, log = task_of(in_columns=in_columns, is_cached=is_cached)
    found: dict[str, Any] = {"out": [], "changes": [], "tables": []}
    for batch in batches:
        numbered = [(topic, 0, number, *rest) for number, (topic, _, _, *rest) in enumerate(batch)]
        try:
            task.process_batch(source_batch(numbered))
        except ProcessorError as error:
            return {"error": str(error)}
        task.end_batch(1_000)
        last = {key: value for topic, _, key, value, _ in task.outputs if topic == "out"}
        found["tables"].append({key: value for key, value in last.items() if value is not None})
    for output in task.outputs:
        found[output[0]].append(output[1:])
    return {**found, "logged": log.records(), "left": task.leave()}


@st.composite
def records(draw: st.DrawFn) -> SourceFields:
    topic = draw(st.sampled_from(["texts", "texts", "numbers"]))
    value = draw(st.none() | (st.sampled_from([*"abcabcabc", "bad"]) if topic == "texts" else st.integers(0, 2)))
    key = draw(st.sampled_from([None, b"k", b"l"]))
    headers = encode_headers([("h", bytes([draw(st.integers(0, 2))]))])
    return topic, 0, 0, draw(st.integers(0, 9)), key, None if value is None else VALUES[topic].serialize(value), headers


@pytest.mark.parametrize("is_cached", [False, True])
@settings(max_examples=60, deadline=None)
@given(batches=st.lists(st.lists(records(), min_size=1, max_size=12), min_size=1, max_size=3))
def test_columns_do_what_records_do(is_cached: bool, batches: list[list[SourceFields]]) -> None:
    by_records = ran(batches, in_columns=False, is_cached=is_cached)
    if is_cached and "error" not in by_records:
        assert by_records["tables"] == ran(batches, in_columns=False, is_cached=False)["tables"]
        assert len(by_records["out"]) <= 2 * len(batches)  # there are two keys
    assert ran(batches, in_columns=True, is_cached=is_cached) == by_records
