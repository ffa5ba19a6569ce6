"""Values of 1 MiB on every path: time, and how much memory the process takes at its peak.

`python benchmarks/large_values.py [STORE ...]` (part of `make bench`). A batch of VALUES records through the shard
call, into a store of each kind and out again; then what is done with such a state. Each step is a process of its own,
under a memory budget of a fourth of the values. Values do not compress.

`input` is more than one Arrow array can hold: 2.4 GiB of two partitions in one batch, put in order and passed through.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa

from memory import MIB, watched
from statestore import AggregationWithHeaders, Processor, ProcessorContext, Record, Serdes, Stores, Topology, Windowed
from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.format.records.header_columns import HEADERS_TYPE
from statestore.interception.failures import FailureHandling
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.making.rescale import rescale
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata, new_state_id, read_metadata
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.spark.datasource.change_feed import ChangeScan, ShardChanges
from statestore.spark.datasource.store_scan import StoreScan
from statestore.spark.shards.pack import Pack, unpack
from statestore.spark.shards.shard_call import ShardCall
from upgrade_tools.migration.migrate import migrate
from upgrade_tools.migration.planning.request import MigrationRequest, TargetLayout
from upgrade_tools.rows.exchange import ImportOptions, export_state, import_state
from upgrade_tools.rows.files import FileFormat
from upgrade_tools.states.detection import open_state
from upgrade_tools.states.state import StateOptions

RESULTS: Final = Path(__file__).parent / "results" / "large_values.json"
BUDGET_BYTES: Final = 64 * MIB
VALUES: Final = 4 * BUDGET_BYTES // MIB
INPUT_VALUES: Final = 2_400
SPARKS_BATCH_BYTES: Final = 64 * MIB
"""spark.sql.execution.arrow.maxBytesPerBatch: what Spark hands to Python at once."""
STORE: Final = "values"
FOREVER_MS: Final = 10**12
BYTES: Final = (Serdes.bytes(), Serdes.bytes())


class Keeping(Processor):
    """Writes each value into its store and forwards it."""

    def init(self, context: ProcessorContext) -> None:
        """Take the store, if there is one."""
        self.context = context

    def process(self, record: Record[bytes, bytes]) -> None:
        """Write and forward."""
        self.write(record)
        self.context.forward(record)

    def write(self, record: Record[bytes, bytes]) -> None:
        """Write nothing."""


class KeepingByKey(Keeping):
    """Keeps it by its key."""

    def write(self, record: Record[bytes, bytes]) -> None:
        """Write it."""
        self.context.state_store(STORE).put_value(record.key, record.value)


class KeepingPlain(Keeping):
    """Keeps it by its key, in a store without timestamps."""

    def write(self, record: Record[bytes, bytes]) -> None:
        """Write it."""
        self.context.state_store(STORE).put(record.key, record.value)


class KeepingWindows(Keeping):
    """Keeps it as a window."""

    def write(self, record: Record[bytes, bytes]) -> None:
        """Write it."""
        self.context.state_store(STORE).put_value(record.key, record.value, record.timestamp_ms)


class KeepingSessions(Keeping):
    """Keeps it as a session."""

    def write(self, record: Record[bytes, bytes]) -> None:
        """Write it."""
        session = Windowed(record.key, record.timestamp_ms, record.timestamp_ms)
        self.context.state_store(STORE).put(session, AggregationWithHeaders(record.value, record.headers))


class KeepingVersions(Keeping):
    """Keeps it as a version of one of ten keys."""

    def write(self, record: Record[bytes, bytes]) -> None:
        """Write it."""
        store = self.context.state_store(STORE)
        store.put(record.key[-1:], record.value, record.timestamp_ms, record.headers)


KINDS: Final[dict[str, tuple[type[Keeping], Callable[[], Any]]]] = {
    "key-value with headers": (
        KeepingByKey,
        lambda: Stores.timestamped_key_value_store_with_headers_builder(
            Stores.persistent_timestamped_key_value_store_with_headers(STORE), *BYTES
        ),
    ),
    "plain key-value": (
        KeepingPlain,
        lambda: Stores.key_value_store_builder(Stores.persistent_key_value_store(STORE), *BYTES),
    ),
    "window": (
        KeepingWindows,
        lambda: Stores.timestamped_window_store_with_headers_builder(
            Stores.persistent_timestamped_window_store_with_headers(STORE, FOREVER_MS, 1_000), *BYTES
        ),
    ),
    "session": (
        KeepingSessions,
        lambda: Stores.session_store_with_headers_builder(
            Stores.persistent_session_store_with_headers(STORE, FOREVER_MS), *BYTES
        ),
    ),
    "versioned": (
        KeepingVersions,
        lambda: Stores.versioned_key_value_store_with_headers_builder(
            Stores.persistent_versioned_key_value_store_with_headers(STORE, FOREVER_MS), *BYTES
        ),
    ),
    "in memory": (
        KeepingByKey,
        lambda: Stores.timestamped_key_value_store_with_headers_builder(
            Stores.in_memory_key_value_store(STORE), *BYTES
        ),
    ),
}


def topology(kind: str | None) -> Topology:
    """Return source -> keeping -> sink, with a store of that kind or none."""
    made = Topology()
    made.add_source("in", key_serde=BYTES[0], value_serde=BYTES[1])
    processor, builder = KINDS[kind] if kind else (Keeping, None)
    made.add_processor("keep", processor, ["in"])
    if builder is not None:
        made.add_state_store(builder(), "keep")
    made.add_sink("out", "out", ["keep"], key_serde=BYTES[0], value_serde=BYTES[1])
    return made


class Home:
    """A directory with the state of one kind of store, for all of its steps."""

    def __init__(self, path: Path, kind: str | None) -> None:
        self.path = path
        self.kind = kind
        self.topology = topology(kind)
        self.location = DurableLocation(path / "state")
        self._pointer = path / "pointer.json"

    @property
    def metadata(self) -> StateMetadata:
        """The state's, made if there is none."""
        asked = StateMetadata(
            new_state_id(), 1, "key", (1,), self.topology.store_specs(), self.topology.to_json(), False
        )
        return read_metadata(self.location) or agree_on_metadata(self.location, asked)

    def state(self, recovery: RecoveryOptions | None = None) -> ShardedState:
        """Return what opens the shard, under the budget."""
        metadata = self.metadata
        local = LocalDirectory(self.path / "local", memory=MemoryBudget(BUDGET_BYTES))
        in_memory = self.topology.in_memory_stores()
        options = recovery or RecoveryOptions()
        return ShardedState(metadata.state_id, self.location, metadata.stores, local, in_memory, options)

    @property
    def recorded(self) -> str | None:
        """The commit pointer that Spark would hold."""
        return self._pointer.read_text() if self._pointer.exists() else None

    @property
    def pointer(self) -> CommitPointer:
        """It, read."""
        return CommitPointer.from_json(self.recorded or "")

    def call(self, blobs: Iterator[bytes], recovery: RecoveryOptions | None = None) -> int:
        """Run a batch, and read its output as Spark would; return how many records it put out."""
        call = ShardCall(self.topology, self.state(recovery), (1,), FailureHandling(), BUDGET_BYTES)
        run, count = call.run(1, blobs, self.recorded, "query", 0, 0), 0
        while True:
            try:
                blob = next(run)
            except StopIteration as end:
                self._pointer.write_text(end.value.pointer)
                return count
            count += sum(rows.num_rows for rows in unpack(iter([pa.record_batch([[blob]], ["blob"])])))


def rows(count: int) -> Iterator[pa.RecordBatch]:
    """Yield records of two partitions as Spark hands them over, in the shape of its Kafka source."""
    random_bytes, each = random.Random(1).randbytes, SPARKS_BATCH_BYTES // MIB
    for first in range(0, count, each):
        numbers = range(first, min(first + each, count))
        yield _rows(numbers, count, pa.py_buffer(random_bytes(len(numbers) * MIB)))


def _rows(numbers: range, count: int, random_bytes: pa.Buffer) -> pa.RecordBatch:
    starts = np.arange(len(numbers) + 1, dtype=np.int32) * MIB
    return pa.record_batch(
        {
            "key": pa.array([b"%08d" % number for number in numbers], pa.binary()),
            "value": pa.Array.from_buffers(pa.binary(), len(numbers), [None, pa.py_buffer(starts), random_bytes]),
            "topic": pa.array(["in"] * len(numbers)),
            "partition": pa.array([number * 2 // count for number in numbers], pa.int32()),
            "offset": pa.array(numbers, pa.int64()),
            "timestamp": pa.array([number % (count // 2) * 1_000 for number in numbers], pa.int64()).cast(
                pa.timestamp("us", "UTC")
            ),
            "headers": pa.array([[{"key": "trace", "value": b"%d" % number}] for number in numbers], HEADERS_TYPE),
        }
    )


def pack(home: Home, count: int = VALUES) -> None:
    """What is done before the shuffle; the blobs wait in files, as Spark's do."""
    (home.path / "blobs").mkdir()
    for number, row in enumerate(Pack(1, "key", (1,))(rows(count))):
        (home.path / "blobs" / f"{number:06d}").write_bytes(row.column("blob")[0].as_py())


def blobs(home: Home) -> Iterator[bytes]:
    """Yield what Spark brings to the shard call."""
    for path in sorted((home.path / "blobs").iterdir()):
        yield path.read_bytes()


def expect(found: int, wanted: int = VALUES) -> None:
    """Raise AssertionError unless all values came."""
    if found != wanted:
        raise AssertionError(f"{found} values came, not {wanted}")


def batch(home: Home) -> None:
    """A batch that writes all values, which is more than memory may hold."""
    expect(home.call(blobs(home)))


def next_batch(home: Home) -> None:
    """A batch without records, which applies that delta to the local copy."""
    expect(home.call(iter(())), 0)


def restore(home: Home) -> None:
    """The local copy from nothing."""
    shutil.rmtree(home.path / "local")
    next_batch(home)


def snapshot(home: Home) -> None:
    """Three batches of one record: they begin a snapshot, wait for it and name it."""
    options = RecoveryOptions(snapshot_every_deltas=1, snapshot_budget_ms=600_000)
    for _ in range(3):
        expect(home.call(islice(blobs(home), 1), options), 1)
    if not home.pointer.snapshots:
        raise AssertionError("no snapshot was made")


def read_store(home: Home) -> None:
    """What `read_store` and the data source do for a shard."""
    scan = StoreScan(home.location, home.metadata, home.metadata.stores[0])
    expect(sum(batch.num_rows for batch in scan.read(home.pointer)))


def changes(home: Home) -> None:
    """What the change feed does for a shard."""
    scan = ChangeScan(home.location, home.metadata, home.metadata.stores[0])
    pointer = home.pointer
    asked = ShardChanges(0, pointer.base_version + 1, pointer.deltas, None)
    found = sum(batch.num_rows for batch in scan.read(asked))
    if found < VALUES:
        raise AssertionError(f"{found} changes came")


def export(home: Home, file_format: FileFormat = FileFormat.PARQUET) -> None:
    """`upgrade-tools export`."""
    state = open_state(str(home.path / "state"), StateOptions(pointers=[home.pointer]))
    rows = export_state(state, home.path / f"rows.{file_format.value}", file_format, lambda _: None).rows
    expect(rows[STORE])


def import_rows(home: Home) -> None:
    """`upgrade-tools import`, and its check."""
    target = DurableLocation(home.path / "imported")
    found = import_state(
        home.path / "rows.parquet", FileFormat.PARQUET, target, ImportOptions(shards=2), lambda *_: None
    )
    expect(found.rows[STORE])


def rescaled(home: Home) -> None:
    """`upgrade-tools rescale`, and its check."""
    target = DurableLocation(home.path / "rescaled")
    rescale(home.location, target, shards=2, pointers=[home.pointer], key_of={}, trust_keys=True)


def migrated(home: Home) -> None:
    """`upgrade-tools migrate` from the location to Kafka Streams' layout, and its check."""
    source, target = str(home.path / "state"), str(home.path / "application")
    migrate(
        MigrationRequest(source, target, layout=TargetLayout.KAFKA_STREAMS, application_id="a", pointers=[home.pointer])
    )


def pack_large_input(home: Home) -> None:
    """What is done before the shuffle with more than 2 GiB."""
    pack(home, INPUT_VALUES)


def large_input(home: Home) -> None:
    """A batch of more than 2 GiB through a topology without a store."""
    expect(home.call(blobs(home)), INPUT_VALUES)


STEPS: Final[dict[str, Callable[[Home], None]]] = {
    "pack input": pack_large_input,
    "input": large_input,
    "pack": pack,
    "batch": batch,
    "next batch": next_batch,
    "restore": restore,
    "read_store": read_store,
    "change feed": changes,
    "export": export,
    "import": import_rows,
    "rescale": rescaled,
    "migrate": migrated,
    "snapshot": snapshot,
}
OF_NO_STORE: Final = ("pack input", "input")
OF_EVERY_STORE: Final = ("pack", "batch", "next batch", "restore", "read_store", "export", "import")
OF_ONE_STORE: Final = (*OF_EVERY_STORE, "change feed", "rescale", "migrate", "snapshot")
"""What does not look at the kind is measured once."""


def run_step(step: str, home: Home) -> dict[str, float]:
    """Run one step in this process; return its figures."""
    with watched() as figures:
        STEPS[step](home)
    return figures


def measured(asked: list[str]) -> Iterator[tuple[str, str, dict[str, float]]]:
    """Yield the figures of each step on each kind of store, and print them."""
    print(f"== {VALUES} values of 1 MiB, budget {BUDGET_BYTES / MIB:.0f} MiB")
    for kind in asked or ("none", *KINDS):
        with tempfile.TemporaryDirectory(prefix="statestore-bench-") as home:
            steps = OF_EVERY_STORE if kind in KINDS else OF_NO_STORE
            for step in OF_ONE_STORE if kind == next(iter(KINDS)) else steps:
                command = [sys.executable, __file__, "--step", step, home, kind]
                figures = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
                print(
                    f"   {kind:24}{step:12}{figures['seconds']:7.1f} s"
                    f"{figures['anonymous_peak_mib']:8.0f} MiB at the peak,"
                    f"{figures['anonymous_before_mib']:5.0f} before",
                    flush=True,
                )
                yield kind, step, figures


def main() -> int:
    """Measure, print, write the results file; with --step, run the step that the arguments say."""
    if sys.argv[1:2] == ["--step"]:
        step, home, kind = sys.argv[2:]
        print(json.dumps(run_step(step, Home(Path(home), kind if kind in KINDS else None))))
        return 0
    found = [{"store": kind, "step": step, **figures} for kind, step, figures in measured(sys.argv[1:])]
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"values": VALUES, "budget_bytes": BUDGET_BYTES, "steps": found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
