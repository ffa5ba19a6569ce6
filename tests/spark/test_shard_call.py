"""The shard call alone, without Spark: what it is told of time, and what it tells."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

from statestore import (
    BatchProcessor,
    Processor,
    ProcessorContext,
    PunctuationType,
    Record,
    RecordColumns,
    Serdes,
    Stores,
    Topology,
)
from statestore.errors import ProcessorError, TopologyError
from statestore.errors.run import UnknownTopicError
from statestore.errors.state import LocalStateCorruptedError
from statestore.interception.failures import FailureHandling
from statestore.processor.processor import EitherWay
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardedState
from statestore.spark.drivers import in_frames
from statestore.spark.shards import shard_call as shard_call_module
from statestore.spark.shards.blobs import BLOB_BYTES, INPUT, decode_blob, encode_blob
from statestore.spark.shards.shard_call import ShardCall, ShardResult
from tests.support.processors import HoldingBack, Passing
from tests.support.recovery import on_record
from tests.support.recovery.spilling import run_on_small_disk

BYTES = Serdes.bytes()


class Reminding(Processor):
    """Writes the time into its store every ten milliseconds of the wall clock, if it is told to."""

    is_scheduled = True

    def init(self, context: ProcessorContext) -> None:
        self.times = context.state_store("times")
        if self.is_scheduled:
            context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.remind)

    def remind(self, now_ms: int) -> None:
        self.times.put(b"%d" % now_ms, b"")


def reminding(processor: type[Processor] = Reminding) -> Topology:
    topology = Topology()
    topology.add_source("in", key_serde=BYTES, value_serde=BYTES)
    topology.add_processor("remind", processor, ["in"])
    topology.add_state_store(
        Stores.key_value_store_builder(Stores.persistent_key_value_store("times"), BYTES, BYTES), "remind"
    )
    return topology


def call(
    home: Path, topology: Topology | None = None, *, wall_clock: bool = True, input_memory_bytes: int = 1 << 20
) -> ShardCall:
    topology = topology or reminding()
    state = ShardedState(
        "state", DurableLocation(home / "state"), topology.store_specs(), LocalDirectory(home / "local")
    )
    return ShardCall(topology, on_record(state), (17,), FailureHandling(), input_memory_bytes, wall_clock=wall_clock)


def run_at(
    shard_call: ShardCall, recorded: str | None, now_ms: int, blobs: Sequence[bytes] = ()
) -> tuple[list[list[bytes]], ShardResult]:
    """Run a batch; return the values in each output blob, and the result."""
    run, outputs = shard_call.run(17, blobs, recorded, "query", 0, now_ms), []
    while True:
        try:
            (batch,) = decode_blob(next(run))
        except StopIteration as end:
            return outputs, end.value
        outputs.append(batch.column("value").to_pylist())


def result_at(shard_call: ShardCall, recorded: str | None, now_ms: int) -> ShardResult:
    return run_at(shard_call, recorded, now_ms)[1]


def one_record() -> bytes:
    columns = [["in"], [0], [0], [5], [b"k"], [b"v"], [b""]]
    return encode_blob(
        [pa.record_batch([pa.array(each, kind.type) for each, kind in zip(columns, INPUT, strict=True)], schema=INPUT)]
    )


def times_in(shard_call: ShardCall, recorded: str) -> list[bytes]:
    with shard_call.state.open(CommitPointer.from_json(recorded)) as batch:
        return [key for key, _ in batch.stores["times"].bytes.range(None, None)]


def test_calls_without_records_go_on_with_the_schedule(tmp_path: Path) -> None:
    shard_call = call(tmp_path)
    first = result_at(shard_call, None, 100)
    assert first.wake_up_ms == 110
    early = result_at(shard_call, first.pointer, 105)
    assert (early.wake_up_ms, times_in(shard_call, early.pointer)) == (110, [])
    due = result_at(shard_call, early.pointer, 112)
    assert (due.wake_up_ms, times_in(shard_call, due.pointer)) == (120, [b"112"])


def test_an_attempt_that_did_not_count_changes_nothing(tmp_path: Path) -> None:
    shard_call = call(tmp_path)
    first = result_at(shard_call, None, 100)
    assert times_in(shard_call, result_at(shard_call, first.pointer, 115).pointer) == [b"115"]
    again = result_at(shard_call, first.pointer, 115)
    assert (again.wake_up_ms, times_in(shard_call, again.pointer)) == (120, [b"115"])
    assert times_in(shard_call, first.pointer) == []


class Calls(Reminding):
    """Counts the batches of its shard in processor metadata."""

    def init(self, context: ProcessorContext) -> None:
        before = context.processor_metadata("calls")
        context.set_processor_metadata("calls", 1 if before is None else before + 1)


def test_calls_go_on_from_what_processors_keep_beside_stores(tmp_path: Path) -> None:
    shard_call = call(tmp_path, reminding(Calls), wall_clock=False)
    pointers = [result_at(shard_call, None, 100).pointer]
    for at in (0, 0, 1):
        pointers.append(result_at(shard_call, pointers[at], 100).pointer)
    calls = [CommitPointer.from_json(pointer).processor_metadata["calls"] for pointer in pointers]
    assert calls == [1, 2, 2, 3], "the attempt that did not count is forgotten"


def test_a_schedule_that_only_a_task_makes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"schedule the same in every init\(\)"):
        list(call(tmp_path, wall_clock=False).run(17, [], None, "query", 0, 100))


def test_without_a_schedule_nobody_is_called_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reminding, "is_scheduled", False)
    assert result_at(call(tmp_path), None, 100).wake_up_ms is None


class Ticking(Processor):
    """Forwards the time every ten milliseconds of the wall clock; cancels that in close, as is usual in Kafka."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context
        self.schedule = context.schedule(10, PunctuationType.WALL_CLOCK_TIME, self.tick)

    def process(self, record: Record[bytes, bytes]) -> None:
        self.context.forward(record)

    def tick(self, now_ms: int) -> None:
        self.context.forward(Record(b"tick", b"%d" % now_ms, now_ms))

    def close(self) -> None:
        self.schedule.cancel()


def ticking(*, holding_back: bool) -> Topology:
    topology = Topology()
    topology.add_source("in", key_serde=BYTES, value_serde=BYTES)
    topology.add_processor("tick", Ticking, ["in"])
    topology.add_processor("below", HoldingBack if holding_back else Passing, ["tick"])
    topology.add_sink("out", "out", ["below"])
    return topology


@pytest.mark.parametrize("holding_back", [False, True])
def test_what_a_punctuator_sends_to_who_holds_back_is_finished_in_the_same_batch(
    tmp_path: Path, holding_back: bool
) -> None:
    shard_call = call(tmp_path, ticking(holding_back=holding_back))
    pointer, told = result_at(shard_call, None, 100).pointer, []
    for now_ms in (110, 115, 120, 131):
        outputs, result = run_at(shard_call, pointer, now_ms, [one_record()] if now_ms == 120 else [])
        pointer = result.pointer
        told.append(outputs)
    # The record of a batch comes before its punctuations. Cancelling in close() ends nothing but the batch.
    assert told == [[[b"110"]], [], [[b"v", b"120"]], [[b"131"]]]


def test_outputs_are_packed_as_they_come(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard_call_module, "_RECORDS_PER_OUTPUT_BLOB", 2)

    class Many(Passing):
        def process(self, record: Record[bytes, bytes]) -> None:
            for number in range(5):
                self.context.forward(record.with_value(b"%d" % number))

    topology = Topology()
    topology.add_source("in", key_serde=BYTES, value_serde=BYTES)
    topology.add_processor("many", Many, ["in"])
    topology.add_sink("out", "out", ["many"])
    outputs, _ = run_at(call(tmp_path, topology), None, 100, [one_record()])
    assert outputs == [[b"0", b"1"], [b"2", b"3"], [b"4"]]


class Failing(Reminding):
    """Fails as it is told to: in process, in close, or in both."""

    in_process: BaseException | None = None
    in_close: BaseException | None = None

    def process(self, record: Record[bytes, bytes]) -> None:
        if self.in_process is not None:
            raise self.in_process
        self.times.put(record.key, record.value)

    def close(self) -> None:
        if self.in_close is not None:
            raise self.in_close


DAMAGE = LocalStateCorruptedError("times", path="/x", cause="checksum mismatch")


@pytest.mark.parametrize(
    ("in_process", "in_close", "told", "copy_is_kept"),
    [
        (KeyError("p"), None, r"node 'remind' failed on record in-0 at offset 0: KeyError: 'p'", True),
        (None, KeyError("c"), r"node 'remind' failed in close\(\): KeyError: 'c'", True),
        (KeyError("p"), KeyError("c"), r"node 'remind' failed on record in-0 at offset 0: KeyError: 'p'", True),
        (DAMAGE, None, "checksum mismatch", False),
        (DAMAGE, KeyError("c"), "checksum mismatch", False),
        (None, DAMAGE, "checksum mismatch", False),
    ],
)
def test_the_first_failure_is_told_and_damage_costs_the_local_copy(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    in_process: BaseException | None,
    in_close: BaseException | None,
    told: str,
    copy_is_kept: bool,
) -> None:
    shard_call = call(tmp_path, reminding(Failing))
    _, first = run_at(shard_call, None, 100, [one_record()])
    monkeypatch.setattr(Failing, "in_process", in_process)
    monkeypatch.setattr(Failing, "in_close", in_close)
    with pytest.raises((ProcessorError, LocalStateCorruptedError), match=told):
        run_at(shard_call, first.pointer, 100, [one_record()])
    assert any(path.is_dir() for path in tmp_path.glob("local/*/*/copy-*")) is copy_is_kept
    monkeypatch.undo()
    _, again = run_at(shard_call, first.pointer, 100, [one_record()])
    assert times_in(shard_call, again.pointer) == [b"k"]


MIB = 1 << 20


def sending(sizes: Sequence[int]) -> Topology:
    """Sends a record of each size for each that comes."""

    class Sending(Passing):
        def process(self, record: Record[bytes, bytes]) -> None:
            for size in sizes:
                self.context.forward(Record(b"k", bytes(size), record.timestamp_ms))

    topology = Topology()
    topology.add_source("in", key_serde=BYTES, value_serde=BYTES)
    topology.add_processor("send", Sending, ["in"])
    topology.add_sink("out", "out", ["send"])
    return topology


@pytest.mark.parametrize(
    ("sizes", "blobs"),
    [
        ([1_250] * 419, [209, 209, 1]),
        ([1, BLOB_BYTES - 8, 2 * BLOB_BYTES, 1, 1], [2, 1, 2]),
        ([BLOB_BYTES // 4 - 1] * 4, [4]),
    ],
    ids=["of 1 KB", "one larger than a blob", "a full blob"],
)
def test_blobs_are_bounded_and_a_larger_record_goes_alone(tmp_path: Path, sizes: list[int], blobs: list[int]) -> None:
    outputs, _ = run_at(call(tmp_path, sending(sizes)), None, 100, [one_record()])
    assert [len(values) for values in outputs] == blobs
    assert [len(value) for values in outputs for value in values] == sizes


def test_output_that_comes_all_at_once_waits_on_disk(tmp_path: Path) -> None:
    shard_call = call(tmp_path, sending([MIB] * 64))
    spilled = tmp_path / "local/state/shard-0000/spill-0/output.blobs"
    found = largest = 0
    run = shard_call.run(17, [one_record()], None, "query", 0, 100)
    tracemalloc.start()
    try:
        for blob in run:
            found += sum(len(batch) for batch in decode_blob(blob))
            largest = max(largest, spilled.stat().st_size if spilled.exists() else 0)
        assert tracemalloc.get_traced_memory()[1] < 32 * MIB
    finally:
        tracemalloc.stop()
    assert found == 64
    assert 40 * MIB < largest < 64 * MIB
    assert not spilled.parent.exists()


def test_output_is_handed_out_when_a_blob_is_full(tmp_path: Path) -> None:
    shard_call = call(tmp_path, sending([MIB]))
    records = encode_blob(decode_blob(one_record()) * 40)
    peak = 0
    for _ in shard_call.run(17, [records], None, "query", 0, 100):
        peak = max(peak, *(file.stat().st_size for file in tmp_path.glob("local/**/output.blobs")), 0)
    assert peak == 0, "the records of a step together put out more than may wait in memory"


WITH_THIS_MODULE = f"""
import os
import sys
from pathlib import Path
sys.path.append({str(Path(__file__).parent)!r})
"""
INPUT_KILLED = f"""{WITH_THIS_MODULE}
from test_shard_call import call, one_record

def blobs():
    for _ in range(5):
        yield one_record()
    os.kill(os.getpid(), 9)

list(call(Path(sys.argv[1]), input_memory_bytes=0).run(17, blobs(), None, "query", 0, 100))
"""


def test_what_a_killed_worker_left_of_its_input_is_removed_by_the_next_batch(tmp_path: Path) -> None:
    search = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "TMPDIR": str(tmp_path / "tmp")}
    (tmp_path / "tmp").mkdir()
    killed = subprocess.run([sys.executable, "-c", INPUT_KILLED, str(tmp_path)], check=False, env=search)
    assert killed.returncode == -signal.SIGKILL
    assert list((tmp_path / "tmp").iterdir()) == [], "nobody would clean up there"
    shard_dir = tmp_path / "local" / "state" / "shard-0000"
    assert [path.name for path in (shard_dir / "spill-0").iterdir()] == ["input.blobs"]
    result_at(call(tmp_path), None, 100)
    assert not (shard_dir / "spill-0").exists()


INPUT_ON_FULL_DISK = f"""{WITH_THIS_MODULE}
from statestore.errors.state import LocalDiskFullError
from test_shard_call import call

try:
    blobs = (bytes(1 << 20) for _ in range(9))
    list(call(Path(sys.argv[1]), input_memory_bytes=0).run(17, blobs, None, "query", 0, 100))
except LocalDiskFullError as full:
    print(full.path, "|", full)
"""


def test_a_disk_that_input_fills_up_is_named(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    printed = run_on_small_disk(disk, 6 << 20, INPUT_ON_FULL_DISK)
    path, _, message = printed.partition(" | ")
    assert Path(path) == disk / "local/state/shard-0000/spill-0/input.blobs"
    assert "input_bytes" in message


class Took(Processor):
    """Says by which of the two ways a record came to it."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process(self, record: Record[bytes, bytes]) -> None:
        self.context.forward(record.with_value(b"alone"))


class TookColumns(BatchProcessor):
    """Likewise."""

    def init(self, context: ProcessorContext) -> None:
        self.context = context

    def process_batch(self, records: RecordColumns) -> None:
        said = pa.array([b"of %d" % len(records)] * len(records), pa.binary())
        self.context.forward_batch(records.with_columns(value=said))


def rows_of(topics: str, every_ms: int = 1) -> bytes:
    """A record of each topic, one in `every_ms`."""
    count = len(topics)
    offsets, keys = list(range(count)), [b"k"] * count
    times_ms = [offset * every_ms for offset in offsets]
    columns = [list(topics), [0] * count, offsets, times_ms, keys, keys, [b""] * count]
    return encode_blob(
        [pa.record_batch([pa.array(each, kind.type) for each, kind in zip(columns, INPUT, strict=True)], schema=INPUT)]
    )


class EachSecond(Processor):
    """Has something to do each second."""

    def init(self, context: ProcessorContext) -> None:
        super().init(context)
        context.schedule(1_000, PunctuationType.STREAM_TIME, lambda now_ms: None)


class TookBetween(EachSecond, Took):
    """Records by themselves, between what it does."""


class TookColumnsBetween(EachSecond, TookColumns):
    """Columns, between what it does."""


@pytest.mark.parametrize(("every_ms", "expected"), [(5, {b"of 200", b"of 1"}), (10, {b"alone"})])
def test_records_between_which_punctuators_often_run_go_one_by_one(
    tmp_path: Path, every_ms: int, expected: set[bytes]
) -> None:
    topology = Topology().add_source("a", ["a"], key_serde=BYTES, value_serde=BYTES)
    topology.add_processor("of-a", EitherWay(TookColumnsBetween, TookBetween), ["a"]).add_sink("out", "out", ["of-a"])
    shard_call = call(tmp_path, topology)
    pointer = result_at(shard_call, None, 100).pointer
    values, _ = run_at(shard_call, pointer, 200, [rows_of("a" * 1_001, every_ms)])
    assert {value for each in values for value in each} == expected


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ("a" * 200, {b"of 200"}),
        ("a" * 200 + "b" * 200, {b"of 200"}),
        ("ab" * 200, {b"alone"}),
        (("a" * 99 + "b") * 4, {b"alone"}),
    ],
)
def test_sources_that_alternate_go_by_record(tmp_path: Path, topics: str, expected: set[bytes]) -> None:
    topology = Topology()
    for topic in "ab":
        topology.add_source(topic, [topic], key_serde=BYTES, value_serde=BYTES)
        topology.add_processor(f"of-{topic}", EitherWay(TookColumns, Took), [topic])
        topology.add_sink(f"out-{topic}", "out", [f"of-{topic}"])
    count = len(topics)
    values, _ = run_at(call(tmp_path, topology), None, 100, [rows_of(topics)])
    assert (sum(map(len, values)), {value for each in values for value in each}) == (count, expected)


def test_a_record_of_an_unknown_topic_is_refused_beside_several_sources(tmp_path: Path) -> None:
    topology = Topology()
    for topic in "ab":
        topology.add_source(topic, [topic], key_serde=BYTES, value_serde=BYTES)
        topology.add_sink(f"out-{topic}", "out", [topic])
    with pytest.raises(UnknownTopicError, match="'c'"):
        run_at(call(tmp_path, topology), None, 100, [rows_of("abc")])


def test_a_batch_that_makes_few_objects_leaves_no_columns_behind(tmp_path: Path) -> None:
    topology = Topology().add_source("a", ["a"], key_serde=BYTES, value_serde=BYTES)
    topology.add_processor("of-a", TookColumns, ["a"]).add_sink("out", "out", ["of-a"])
    shard_call, blobs = call(tmp_path, topology), [rows_of("a" * 10_000)] * 2  # in two parts, or they are not copied
    pointer = run_at(shard_call, None, 100, blobs)[1].pointer
    gc.collect()
    before = pa.total_allocated_bytes()
    gc.disable()  # by itself Python collects after 100,000 objects in our workers
    try:
        assert sum(map(len, in_frames(shard_call.run(17, blobs, pointer, "query", 0, 200)))) > 0
    finally:
        gc.enable()
    assert pa.total_allocated_bytes() <= before
