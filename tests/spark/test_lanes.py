"""What becomes of records at the door of a stage: a model says it for each, whatever the stage reads."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from statestore import Processor, ProcessorContext, Record, Serdes, Topology
from statestore.format.keys.partitioner import partition_column
from statestore.headers.topic_columns import SINK_COLUMNS, SourceFields, sink_batch, source_batch, source_records
from statestore.spark.shards.blobs import BlobWriter, schema_of_blob
from statestore.spark.shards.lanes import LATER, OUT, Lanes, Placing, lane_of, schema_of, shards_by_key
from tests.support.staged import StagedRun

TOPICS = ("own", "later", "both", "other", "own-repartition", "later-repartition")
REPARTITION = frozenset(topic for topic in TOPICS if topic.endswith("repartition"))
MIDDLE = Lanes(
    frozenset({"own", "both", "own-repartition"}), frozenset({"later", "both", "later-repartition"}), REPARTITION
)
topics = st.lists(st.sampled_from(TOPICS), min_size=1)


def records(names: list[str]) -> list[SourceFields]:
    return [(topic, 0, offset, offset, b"k", b"v", b"\0") for offset, topic in enumerate(names)]


def by_lane(parts: object) -> dict[str | None, list[SourceFields]]:
    return {lane: list(source_records(batch)) for lane, batch in parts}  # type: ignore[attr-defined]


@given(topics)
def test_records_of_topics_are_for_each_stage_that_reads_them(names: list[str]) -> None:
    rows = records(names)
    found = by_lane(MIDDLE.of_input(source_batch(rows)))
    later = [row for row in rows if row[0] in MIDDLE.later]
    # What nobody reads is for the first stage, which says that it is not known.
    own = [row for row in rows if row[0] in ("own", "both", "own-repartition") or row not in later]
    assert found == {lane: part for lane, part in ((None, own), (LATER, later)) if part}


@given(topics, st.sampled_from((None, LATER, OUT)))
def test_what_a_stage_puts_out_is_for_one_behind_it_only_through_a_repartition_topic(
    names: list[str], lane: str | None
) -> None:
    rows = records(names)
    found = by_lane(MIDDLE.of_passed(lane, source_batch(rows)))
    expected: dict[str | None, list[SourceFields]] = {None: [], LATER: [], OUT: []}
    for row in rows:
        topic = row[0]
        if lane == OUT or (lane is None and topic not in REPARTITION):
            expected[OUT].append(row)
            continue
        for reader, read in ((None, MIDDLE.reads or ()), (LATER, MIDDLE.later)):
            if topic in read:
                expected[reader].append(row)
    assert found == {each: part for each, part in expected.items() if part}


def test_the_lane_of_a_blob_is_in_its_schema() -> None:
    for lane in (None, LATER, OUT):
        blob = BlobWriter(schema_of(lane))
        blob.write(source_batch(records(["own"])).replace_schema_metadata(schema_of(lane).metadata))
        assert lane_of(schema_of_blob(blob.finish())) == lane
    assert lane_of(SINK_COLUMNS) is None


def test_places_rise_from_batch_to_batch_and_are_the_same_again() -> None:
    sent = sink_batch(["a-repartition"] * 3, [1, 2, 3], [b"k"] * 3, [None] * 3, [b"\0"] * 3)

    def offsets(batch_id: int) -> list[int]:
        place = Placing(2, batch_id)
        placed = [place(sent), place(sent.slice(1))]
        assert {row[1] for batch in placed for row in source_records(batch)} == {2}
        return [row[2] for batch in placed for row in source_records(batch)]

    first, second = offsets(4), offsets(5)
    assert first == offsets(4)
    assert [*first, *second] == sorted({*first, *second})


class TellsOffset(Processor):
    def init(self, context: ProcessorContext) -> None:
        self._context = context

    def process(self, record: Record) -> None:
        metadata = self._context.record_metadata
        assert metadata is not None
        self._context.forward(record.with_value(metadata.offset))


def test_offsets_rise_behind_a_stage_without_stores(tmp_path: Path) -> None:
    """As in word count: the version of such a stage's state never rises."""
    topology, serdes = Topology(), {"key_serde": Serdes.bytes(), "value_serde": Serdes.bytes()}
    topology.add_source("source", "own", **serdes)
    topology.add_repartition("own-repartition", "sent", "taken", ["source"], **serdes)
    topology.add_processor("tells", TellsOffset, ["taken"])
    topology.add_sink("sink", "out", ["tells"], key_serde=Serdes.bytes(), value_serde=Serdes.int64())
    run = StagedRun(topology, 1, tmp_path)
    offsets = [int.from_bytes(record[3] or b"") for _ in range(3) for record in run.run(records(["own", "own"]))]
    assert offsets == sorted({*offsets})
    assert len(offsets) == 6


@given(st.lists(st.binary() | st.none(), min_size=1), st.integers(1, 9))
def test_records_go_by_key_and_those_without_one_to_the_first_shard(keys: list[bytes | None], shards: int) -> None:
    found = shards_by_key(pa.array(keys, pa.binary()), shards)
    partitions = pa.array(range(len(keys)), pa.int32())
    at_the_door = shards_by_key(pa.array(keys, pa.binary()), shards, partitions).tolist()
    assert at_the_door == [
        number % shards if key is None else shard
        for number, (key, shard) in enumerate(zip(keys, found.tolist(), strict=True))
    ]
    for key, shard in zip(keys, found.tolist(), strict=True):
        assert shard == (0 if key is None else partition_column(pa.array([key], pa.binary()), shards)[0])
