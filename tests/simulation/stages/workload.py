"""What a stage of the simulated query does: packing, shard calls and lanes are real, what Spark carries is simulated.

A task hands to each shard of the next stage the blobs that its own shard put out. Who fetches them may get those of the
tasks in any order.
"""

from __future__ import annotations

import random
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from statestore.bytestore.kinds.store_spec import StoreSpec
from statestore.headers.topic_columns import sink_records, source_batch, source_records
from statestore.interception.failures import FailureHandling
from statestore.processor.stages import TopologyStage
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.shard_batch import ShardedState
from statestore.spark.shards.blobs import BLOB, OUTPUT, decode_blob, schema_of_blob
from statestore.spark.shards.lanes import Lanes, lane_of
from statestore.spark.shards.pack import Pack, rows_of
from statestore.spark.shards.shard_call import ShardCall
from tests.simulation.plan import Plan
from tests.simulation.stages.program import GROUPS, Model, given, shown, stages
from tests.simulation.workload import BATCH_MS, Content, Workload, batch_number, differences

if TYPE_CHECKING:
    from tests.simulation.rescaling import Rescaling
    from tests.simulation.spark import Attempt, Checkpoint

_MEMORY_BYTES = 1 << 20


class Sent(NamedTuple):
    """A record that a stage sent to a repartition topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


class Outputs(NamedTuple):
    """What an attempt has come to."""

    began: Model
    """What the program had made of all that came before the query began."""
    model: Model
    """What it has made by now, as far as the attempt knows of it."""
    sent: tuple[Sent, ...]
    packed: Mapping[int, Sequence[bytes]]
    """Blobs for shards of the next stage."""
    put_out: tuple[tuple[str, bytes, int | None], ...] = ()
    """What sinks were sent, of the last stage."""


@dataclass
class StagedReference:
    """What a shard of a stage must hold after a chain of batches, of those that changed anything."""

    content: Mapping[str, Mapping[bytes, int]]
    chain: tuple[str, ...] = ()
    times_ms: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class StagedWorkload(Workload):
    """One stage of a program."""

    number: int = 0
    known: dict[Any, Any] = field(default_factory=dict)
    """What attempts have come to, by what they had to do."""

    @property
    def always_writes(self) -> bool:
        return False

    @property
    def stage(self) -> TopologyStage:
        return stages(self.stores, in_memory=self.keeps_in_memory)[self.number]

    @property
    def keeps_in_memory(self) -> bool:
        """Whether the stores are in memory."""
        return self.seed % 4 == 0

    @property
    def is_last(self) -> bool:
        return self.number == len(stages(self.stores)) - 1

    @property
    def specs(self) -> tuple[StoreSpec, ...]:
        return tuple(self.stage.topology.store_specs())

    @property
    def in_memory(self) -> frozenset[str]:
        return self.stage.topology.in_memory_stores()

    def records(self, batch: str, shard: int, shards: int) -> list[Any]:
        return []  # whether there are any is not known before the stage above is done

    def reference(self, shard: int, shards: int) -> StagedReference:  # type: ignore[override]
        return StagedReference(self.content(Model(), shard, shards))

    def after(self, before: StagedReference, attempt: Attempt) -> StagedReference:  # type: ignore[override]
        content = self.content(self._model(attempt), attempt.task.shard, attempt.site.shards)
        return StagedReference(content, (*before.chain, attempt.batch))

    def shown(self, content: Content, times_ms: Mapping[str, int]) -> Mapping[str, Mapping[bytes, Any]]:
        return {name: shown(name, pairs) for name, pairs in content.items()}

    @property
    def nodes(self) -> tuple[dict[str, Any], ...]:
        return tuple(self.stage.topology.to_json())

    def adopted(  # type: ignore[override]
        self, pointer: CommitPointer, shards: int, found: Mapping[str, Mapping[bytes, Any]]
    ) -> StagedReference:
        return StagedReference(found, ("rescaled",) * pointer.version, pointer.store_times_ms)

    def rescaled_differences(self, tool: Rescaling, shard: int, found: Content, times_ms: Mapping[str, int]) -> Any:
        model = model_after(tool.checkpoint, tool.batch)
        return differences(self.content(model, shard, tool.shards), self.shown(found, times_ms))

    def rescaled_entries(self, tool: Rescaling, name: str, told: tuple[int, ...]) -> tuple[int, ...]:
        if name == GROUPS:  # sums of 0 may be kept
            return told
        model = model_after(tool.checkpoint, tool.batch)
        return tuple(len(self.content(model, shard, tool.shards)[name]) for shard in range(tool.shards))

    def do(self, attempt: Attempt, state: ShardedState) -> tuple[CommitPointer, Outputs]:
        site, shard, driver = attempt.site, attempt.task.shard, attempt.driver
        reference = site.oracle.reference(attempt.pointer)
        before = self.content(_before(attempt), shard, site.shards)
        if reference is not None and reference.content != before:
            driver.world.scheduler.fail(
                f"stages apart: {attempt.name} begins with {reference.content}, and the batches before it made {before}"
            )
        blobs = list(self._fetched(attempt))
        if not blobs:  # Spark does not call it
            return attempt.pointer, Outputs(*self._models(attempt), (), {})
        call = ShardCall(
            self.stage.topology,
            state,
            driver.routing[site],
            FailureHandling(),
            _MEMORY_BYTES,
            hands_on=True,
            is_last=self.is_last,
            copied=self.stage.copied,
        )
        checkpoint, batch_id = driver.start.checkpoint, attempt.number - 1
        recorded = checkpoint.recorded[site].pointer(shard, batch_id)
        now_ms = BATCH_MS * batch_number(attempt.batch)
        running = call.run(call.routing[shard], blobs, recorded, checkpoint.query_id, batch_id, now_ms)
        put_out: list[bytes] = []
        while True:
            try:
                put_out.append(next(running))
            except StopIteration as end:
                pointer = CommitPointer.from_json(end.value.pointer)
                outputs = self._outputs(attempt, put_out)
                self._compare(attempt, pointer, outputs)
                return pointer, outputs

    def _outputs(self, attempt: Attempt, blobs: Sequence[bytes]) -> Outputs:
        models = self._models(attempt)
        if self.is_last:
            batches = [batch.select(OUTPUT.names) for blob in blobs for batch in decode_blob(blob)]
            records = [record for batch in batches for record in sink_records(batch)]
            put_out = tuple((topic, key or b"", _number(value)) for topic, _, key, value, _ in records)
            return Outputs(*models, (), {}, put_out)
        topics = self.stage.topology.repartition_topics
        own = [blob for blob in blobs if lane_of(schema_of_blob(blob)) is None]
        records = [record for blob in own for batch in decode_blob(blob) for record in source_records(batch)]
        sent = tuple(Sent(*record[:3], *record[4:6]) for record in records if record[0] in topics)
        rows = pa.record_batch([pa.array(blobs, pa.binary())], names=[BLOB])
        shards = attempt.driver.sites[self.number + 1].shards
        return Outputs(*models, sent, _packed(self.stores, self.number + 1, shards, rows))

    def _compare(self, attempt: Attempt, pointer: CommitPointer, outputs: Outputs) -> None:
        """Fail unless an attempt has come to the same as those before it, that had the same to do."""
        # What goes past a stage comes in any order.
        put_out = sorted(outputs.put_out, key=repr)
        made = outputs.sent, put_out, pointer.version, pointer.stream_time_ms, pointer.processor_metadata
        to_do = attempt.batch, attempt.task.shard, tuple(self._added(attempt).items())
        again = self.known.setdefault(to_do, made)
        if again != made:
            attempt.driver.world.scheduler.fail(
                f"not the same again: {attempt.name} came to {made}, and the one before it to {again}"
            )

    def _fetched(self, attempt: Attempt) -> Iterator[bytes]:
        """Yield the blobs for an attempt."""
        if self.number:
            winners = list(attempt.fetched)
            random.Random(attempt.name).shuffle(winners)
            for winner in winners:
                assert winner is not None
                yield from winner.outputs.packed.get(attempt.task.shard, ())
            return
        shard, shards = attempt.task.shard, attempt.site.shards
        came = given(self.seed, self.stores, self.keys, attempt.batch)
        if not came:
            return
        added = self._added(attempt)[shard]
        rows = rows_of(source_batch(each.fields(added if each.topic == "in" else 0) for each in came))
        yield from _packed(self.stores, 0, shards, rows).get(shard, ())

    def _added(self, attempt: Attempt) -> dict[int, int]:
        """Return what the attempts of the first stage, whose shards are known to this one, add to values."""
        attempts = [attempt]
        while attempts[0].fetched:
            attempts = attempts[0].fetched  # type: ignore[assignment]
        return {each.task.shard: zlib.crc32(each.variant.encode()) % 1000 for each in attempts}

    def _models(self, attempt: Attempt) -> tuple[Model, Model]:
        return model_after(attempt.driver.start.checkpoint, 0), self._model(attempt)

    def _model(self, attempt: Attempt) -> Model:
        """Return what the program has made of all that came after the batch of an attempt, where that can know it."""
        came = given(self.seed, self.stores, self.keys, attempt.batch)
        return _before(attempt).after(came, self._added(attempt), self.stores, attempt.driver.sites[0].shards)

    def content(self, model: Model, shard: int, shards: int) -> dict[str, dict[bytes, int]]:
        """Return what a shard of so many must hold."""
        return model.content([spec.name for spec in self.specs], shard, shards)

    def problem(self, shard: int, shards: int, history: Sequence[tuple[str, Outputs]]) -> str | None:
        """Return what is wrong with what batches have sent and put out."""
        last: dict[str, tuple[int, str]] = {}
        for batch, outputs in history:
            for topic, partition, offset, _, _ in outputs.sent:
                if topic in last and offset <= last[topic][0]:
                    return f"offset {offset} of {topic} in {batch} comes after {last[topic]}"
                if partition != shard:
                    return f"partition {partition} of {topic} in {batch} is that of shard {shard}"
                last[topic] = offset, batch
        if not self.is_last:
            return None
        put_out = [record for _, outputs in history for record in outputs.put_out]
        return history[-1][1].model.wrong_output(put_out, history[0][1].began, shard, shards)


def staged_workloads(plan: Plan) -> Iterator[StagedWorkload]:
    """Yield what each stage of a plan's query does."""
    for number in range(plan.stages):
        yield StagedWorkload(plan.seed, plan.stores, keys=plan.keys, number=number)


def model_after(checkpoint: Checkpoint, batch: int) -> Model:
    """Return what the program has made of all that came by the end of a batch."""
    if batch == 0:
        return checkpoint.model or Model()
    model: Model = checkpoint.recorded[checkpoint.sites[-1]].outputs[0, batch].model
    return model


def _before(attempt: Attempt) -> Model:
    return model_after(attempt.driver.start.checkpoint, attempt.number - 1)


def _packed(stores: tuple[str, ...], number: int, shards: int, rows: pa.RecordBatch) -> dict[int, list[bytes]]:
    """Return the blobs that rows of the source, or a stage's blobs, become at the door of a stage, by its shards."""
    pack = Pack(shards, "key", tuple(range(shards)), lanes=Lanes.of(stages(stores)[number]), follows_stage=number > 0)
    found: dict[int, list[bytes]] = defaultdict(list)
    for packed in pack(iter((rows,))):
        for shard, blob in zip(*(column.to_pylist() for column in packed.columns), strict=True):
            found[shard].append(blob)
    return found


def _number(value: bytes | None) -> int | None:
    return None if value is None else int.from_bytes(value, "big", signed=True)
