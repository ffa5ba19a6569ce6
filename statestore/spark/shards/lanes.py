"""Lanes: records that a stage of a query hands on, because they are for a stage behind it or for the query's sink.

All that comes out of a stage goes into the next one, as Spark has one way through a query. So beside what a stage
processes there are blobs of two more kinds, which its shard calls yield as they are. Their schema says which:

    lane := "later"   records on their way to a stage behind this one
          | "out"     what sinks were sent
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from statestore.format.binary_columns import Integers
from statestore.format.keys.partitioner import partition_column
from statestore.processor.stages import TopologyStage
from statestore.spark.shards.blobs import INPUT

LATER: Final = "later"
OUT: Final = "out"
_LANE: Final = b"lane"
_OFFSET_BITS: Final = 32


def lane_of(schema: pa.Schema) -> str | None:
    """Return the lane of a blob with this schema; None if it is to be processed, or was put out by a stage."""
    lane = (schema.metadata or {}).get(_LANE)
    return None if lane is None else lane.decode()


def schema_of(lane: str | None) -> pa.Schema:
    """Return the schema of blobs of a lane."""
    return INPUT if lane is None else INPUT.with_metadata({_LANE: lane.encode()})


@dataclass(frozen=True)
class Lanes:
    """Says of records where they go from the door of a stage. Travels to the executors."""

    reads: frozenset[str] | None
    later: frozenset[str]
    repartition_topics: frozenset[str]

    @classmethod
    def of(cls, stage: TopologyStage) -> Lanes:
        """Return those of a stage."""
        return cls(stage.reads, stage.later, frozenset(stage.topology.repartition_topics))

    def of_input(self, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yield records of topics by lane: None is for this stage, and a topic may be for several."""
        if not self.later:
            yield None, batch
            return
        is_later = is_of_topics(batch, self.later)
        is_own = np.invert(is_later) if self.reads is None else is_of_topics(batch, self.reads) | np.invert(is_later)
        yield from _parts(batch, {None: is_own, LATER: is_later})

    def of_passed(self, lane: str | None, batch: pa.RecordBatch) -> Iterator[tuple[str | None, pa.RecordBatch]]:
        """Yield what came out of the stage before by lane; `lane` is the one that it came in."""
        if lane == OUT:
            yield OUT, batch
            return
        is_out = np.zeros(batch.num_rows, np.bool_)
        if lane is None:
            is_out = np.invert(is_of_topics(batch, self.repartition_topics))
        own = self.reads or frozenset()
        is_own, is_later = is_of_topics(batch, own), is_of_topics(batch, self.later)
        yield from _parts(batch, {OUT: is_out, None: is_own & ~is_out, LATER: is_later & ~is_out})


def shards_by_key(keys: pa.Array, shards: int, partitions: pa.Array | None = None) -> Integers:
    """Return the shard of each key; of records without one it is that of their partition, or the first."""
    found: Integers = partition_column(keys.fill_null(b""), shards).astype(np.int64)
    if keys.null_count:
        without = keys.is_null().to_numpy(zero_copy_only=False)
        found[without] = 0 if partitions is None else partitions.to_numpy()[without] % shards
    return found


class Placing:
    """Gives what a shard puts out a place in the topics between stages: by shard, in the order in which it was put out.

    Offsets rise from batch to batch of a query, and are the same if a batch is run again: 32 bits have the id of the
    batch, 32 what was put out before.
    """

    def __init__(self, shard: int, batch_id: int) -> None:
        self._shard = shard
        self._next = batch_id << _OFFSET_BITS

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch of SINK_COLUMNS as one of SOURCE_COLUMNS."""
        count = batch.num_rows
        places = {
            "partition": pa.array(np.full(count, self._shard, np.int32)),
            "offset": pa.array(np.arange(self._next, self._next + count, dtype=np.int64)),
        }
        self._next += count
        columns = [places[name] if name in places else batch.column(name) for name in INPUT.names]
        return pa.record_batch(columns, schema=INPUT)


def is_of_topics(batch: pa.RecordBatch, topics: Iterable[str]) -> Integers:
    """Return of each row of a batch of SOURCE_COLUMNS whether it is of one of these topics."""
    column = batch.column("topic")
    named = pc.is_in(column.dictionary, pa.array(sorted(topics), pa.string())).to_numpy(zero_copy_only=False)
    found: Integers = named[column.indices.to_numpy()]
    return found


def _parts(batch: pa.RecordBatch, rows: dict[str | None, Integers]) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    for lane, chosen in rows.items():
        if chosen.all():
            yield lane, batch
        elif chosen.any():
            yield lane, batch.filter(pa.array(chosen))
