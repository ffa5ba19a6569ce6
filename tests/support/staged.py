"""Runs a program in stages and shards as a query does, but for Spark: packing, shuffling, shard calls."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from statestore import Topology
from statestore.headers.topic_columns import SinkFields, SourceFields, sink_records, source_batch
from statestore.interception.failures import FailureHandling
from statestore.processor.stages import stages_of
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import stage_name
from statestore.recovery.shard_batch import ShardedState
from statestore.spark.shards.blobs import BLOB, OUTPUT, decode_blob
from statestore.spark.shards.lanes import Lanes
from statestore.spark.shards.pack import Pack, rows_of
from statestore.spark.shards.shard_call import ShardCall
from tests.support.recovery import on_record

_INPUT_MEMORY_BYTES = 1 << 20


class StagedRun:
    """A program's stages, each with a state of its own in `home`; the pointers that Spark would keep are held here."""

    def __init__(self, topology: Topology, shards: int, home: Path) -> None:
        self.calls: list[ShardCall] = []
        self._packs: list[Pack] = []
        self._pointers: dict[tuple[int, int], str] = {}
        self._batch_id = 0
        stages = stages_of(topology)
        routing = tuple(range(shards))
        for number, stage in enumerate(stages):
            part = stage.topology
            location = DurableLocation(home / stage_name(number))
            local = LocalDirectory(home / "local")
            in_memory = part.in_memory_stores()
            state = on_record(ShardedState(f"state-{number}", location, part.store_specs(), local, in_memory))
            is_last = number == len(stages) - 1
            call = ShardCall(
                part,
                state,
                routing,
                FailureHandling(),
                _INPUT_MEMORY_BYTES,
                hands_on=True,
                is_last=is_last,
                copied=stage.copied,
            )
            self.calls.append(call)
            global_topics = tuple(part.global_stores.values())
            self._packs.append(
                Pack(shards, "key", routing, global_topics, lanes=Lanes.of(stage), follows_stage=number > 0)
            )

    def run(self, records: Iterable[SourceFields]) -> list[SinkFields]:
        """Process a micro-batch, and return what the sinks were sent, those of a shard in their order."""
        rows = rows_of(source_batch(records))
        put_out: list[bytes] = []
        for number, pack in enumerate(self._packs):
            shuffled: dict[int, list[bytes]] = defaultdict(list)
            for packed in pack(iter((rows,))):
                for route, blob in zip(*(column.to_pylist() for column in packed.columns), strict=True):
                    shuffled[route].append(blob)
            put_out = [blob for route in sorted(shuffled) for blob in self._call(number, route, shuffled[route])]
            rows = pa.record_batch([pa.array(put_out, pa.binary())], names=[BLOB])
        self._batch_id += 1
        batches = [batch.select(OUTPUT.names) for blob in put_out for batch in decode_blob(blob)]
        return [record for batch in batches for record in sink_records(batch)]

    def _call(self, number: int, route: int, blobs: list[bytes]) -> list[bytes]:
        running = self.calls[number].run(route, blobs, self._pointers.get((number, route)), "query", self._batch_id, 0)
        put_out = []
        while True:
            try:
                put_out.append(next(running))
            except StopIteration as end:
                self._pointers[number, route] = end.value.pointer
                return put_out
