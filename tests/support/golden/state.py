"""Writes tests/golden/state-N: a state location as the formats of pointers and deltas were, and Spark's pointers.

Run once for each format, never again for one that was released: `python -m tests.support.golden.state DIRECTORY`.
state-1 was written by the release before windows, sessions and versions; what it holds stands in its test. state-4 has
snapshots: `python -m tests.support.golden.state DIRECTORY snapshots`. state-5 has fences that name what their runs went
on from, and what a collection announces that was broken off: `python -m tests.support.golden.state DIRECTORY lines`.
state-6 has deltas with the bytes of headers: `python -m tests.support.golden.state DIRECTORY header-bytes`. state-7 has
two runs of one epoch, and deltas whose names say which of them has written:
`python -m tests.support.golden.state DIRECTORY writers`. state-8 has checksums in its metadata and its fence. state-9
has processor metadata in its pointers: `python -m tests.support.golden.state DIRECTORY metadata`.
"""

import json
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

from statestore import (
    AggregationWithHeaders,
    Headers,
    Serdes,
    Stores,
    ValueAndTimestamp,
    ValueTimestampHeaders,
    Windowed,
)
from statestore.errors import CheckpointBehindError, RunFencedError
from statestore.processor.context import TaskRecordContext
from statestore.processor.task_stores import flush_stores, shard_stores
from statestore.processor.topology import Topology
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.location.shard_files import new_collection_name
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery import on_record
from tests.support.recovery.raced_fences import RacedFences

STRING = Serdes.string()
BUILDERS = (
    Stores.key_value_store_builder(Stores.persistent_key_value_store("plain"), STRING, STRING),
    Stores.timestamped_key_value_store_builder(Stores.persistent_timestamped_key_value_store("timed"), STRING, STRING),
    Stores.timestamped_key_value_store_with_headers_builder(Stores.in_memory_key_value_store("headed"), STRING, STRING),
    Stores.timestamped_window_store_with_headers_builder(
        Stores.persistent_timestamped_window_store_with_headers("windows", 100, 10, True, 50), STRING, STRING
    ),
    Stores.session_store_with_headers_builder(
        Stores.persistent_session_store_with_headers("sessions", 100, 50), STRING, STRING
    ),
    Stores.versioned_key_value_store_builder(
        Stores.persistent_versioned_key_value_store("versions", 100, 50), STRING, STRING
    ),
    Stores.versioned_key_value_store_with_headers_builder(
        Stores.persistent_versioned_key_value_store_with_headers("headed-versions", 100, 50), STRING, STRING
    ),
)
HEADERS = Headers([("trace", b"\x00\xff"), ("trace", None), ("ä", b"")])


LENIENT = (b"\x02\x82\x00a\x02b", b"\x02\x02a\x02b behind the last one", b"\x00")
"""Header bytes that Kafka reads as `a=b`, twice, and as none, and would write shorter."""


def topology() -> Topology:
    """Return a topology with all builders' stores."""
    made = Topology()
    for builder in BUILDERS:
        made.add_state_store(builder)
    return made


def sharded_state(home: Path, recovery: RecoveryOptions | None = None) -> ShardedState:
    """Return the state in `home`, of which shard 0 is used."""
    made = topology()
    location = DurableLocation(home / "state")
    state = ShardedState(
        "state-2",
        location,
        made.store_specs(),
        LocalDirectory(home / "local"),
        made.in_memory_stores(),
        recovery or RecoveryOptions(),
        "golden",
    )
    return on_record(state)


def first_batch(stores: dict) -> None:
    """Put something into every store."""
    stores["plain"].put("a", "1")
    stores["plain"].put("b", "2")
    stores["timed"].put("a", ValueAndTimestamp("1", 5))
    stores["headed"].put("a", ValueTimestampHeaders("1", 5, HEADERS))
    stores["windows"].put("a", ValueTimestampHeaders("old", 3, HEADERS), 0)
    stores["windows"].put("a", ValueTimestampHeaders("first", 12, HEADERS), 60)
    stores["windows"].put("a", ValueTimestampHeaders("second", 13, Headers()), 60)
    stores["sessions"].put(Windowed("a", 10, 20), AggregationWithHeaders("old", HEADERS))
    stores["sessions"].put(Windowed("a", 70, 80), AggregationWithHeaders("s", HEADERS))
    for name in ("versions", "headed-versions"):
        stores[name].put("a", "v10", 10)
        stores[name].put("a", "v60", 60)
        stores[name].put("a", None, 90)
        stores[name].put("b", "latest", 95)


def second_batch(stores: dict) -> None:
    """Delete, let segments expire, come too late."""
    stores["plain"].put("b", None)
    stores["windows"].put("a", ValueTimestampHeaders("new", 14, Headers()), 160)
    stores["windows"].put("a", ValueTimestampHeaders("late", 14, Headers()), 10)
    stores["sessions"].remove(Windowed("a", 70, 80))
    stores["sessions"].put(Windowed("b", 150, 175), AggregationWithHeaders("t", Headers()))
    stores["versions"].put("a", "v75", 75)
    stores["versions"].put("a", "v180", 180)
    stores["versions"].put("a", "late", 70)
    stores["headed-versions"].put("a", "v180", 180, HEADERS)


def run_batch(
    state: ShardedState, pointer: CommitPointer, operations: object, metadata: Mapping[str, int] = MappingProxyType({})
) -> CommitPointer:
    """Return the pointer after a batch of these operations, for a record with timestamp 7 and a header."""
    context = TaskRecordContext()
    context.timestamp_ms = 7
    context.headers.add("why", b"record")
    with state.open(pointer) as batch:
        stores = shard_stores(topology(), batch, context)
        operations(stores)
        end = BatchEnd(stream_time_ms=7, store_times_ms=flush_stores(stores), processor_metadata=metadata)
        return batch.commit(end).pointer


def later_batch(stores: dict) -> None:
    """Change one entry, so that there is a version more."""
    stores["plain"].put("a", "1")


def batch_of_lenient_headers(stores: dict) -> None:
    """Put headers whose bytes have a shorter form into a store of each kind that has headers, and delete one."""
    for number, header_bytes in enumerate(LENIENT):
        headers, key = Headers.from_bytes(header_bytes), f"lenient {number}"
        stores["headed"].put(key, ValueTimestampHeaders("1", 5, headers))
        stores["windows"].put(key, ValueTimestampHeaders("1", 12, headers), 60)
        stores["sessions"].put(Windowed(key, 70, 80), AggregationWithHeaders("s", headers))
        stores["headed-versions"].put(key, "v", 95, headers)
    stores["headed"].put("a", None)


def write_lines(home: Path) -> None:
    """Write three versions of a run, two of one that went back to the first, one of its restart; and the pointers."""
    state = sharded_state(home)
    nodes = ({"type": "source", "name": "in", "topics": None},)
    agree_on_metadata(state.location, StateMetadata("state-2", 1, "key", (0,), state.stores, nodes))
    pointers = [state.pointer(0, None)]
    for run, at, versions in (("first", 0, 3), ("back", 1, 2), ("restart", 5, 1)):
        running = replace(state, run=run, accept_older_checkpoint=run == "back", local=LocalDirectory(home / run))
        pointer = pointers[at]
        for _ in range(versions):
            pointer = run_batch(running, pointer, later_batch)
            pointers.append(pointer)
    state.location.write(new_collection_name(0, 1, 1), b"")
    recorded = [json.loads(pointer.to_json()) for pointer in pointers[1:]]
    (home / "pointers.json").write_text(json.dumps(recorded, indent=1) + "\n")


class RacedLocation(RacedFences, DurableLocation):
    """A location whose fences are raced."""


def write_writers(home: Path) -> None:
    """Write two versions of a run, and one of a restart whose epoch a run has taken too that was behind."""
    location = RacedLocation(home / "state")
    state = replace(sharded_state(home), location=location)
    nodes = ({"type": "source", "name": "in", "topics": None},)
    agree_on_metadata(location, StateMetadata("state-2", 1, "key", (0,), state.stores, nodes))
    pointers = [state.pointer(0, None)]

    def commit(run: str, at: CommitPointer) -> CommitPointer:
        return run_batch(replace(state, run=run, local=LocalDirectory(home / run)), at, later_batch)

    for _ in range(2):
        pointers.append(commit("first", pointers[-1]))
    location.before_fence = lambda: pointers.append(commit("restart", pointers[2]))
    with suppress(CheckpointBehindError, RunFencedError):
        commit("slow", pointers[1])
    recorded = [json.loads(pointer.to_json()) for pointer in pointers[1:]]
    (home / "pointers.json").write_text(json.dumps(recorded, indent=1) + "\n")


def write_metadata(home: Path) -> None:
    """Write two versions, and a pointer more of a batch that set nothing but processor metadata."""
    state = sharded_state(home)
    nodes = ({"type": "source", "name": "in", "topics": None},)
    agree_on_metadata(state.location, StateMetadata("state-2", 1, "key", (0,), state.stores, nodes))
    pointers = [state.pointer(0, None)]
    for operations, metadata in (
        (first_batch, {"windows": 60, "näme": -(2**63)}),
        (second_batch, {"windows": 160, "last": 2**63 - 1}),
        (lambda stores: None, {"windows": 170}),
    ):
        pointers.append(run_batch(state, pointers[-1], operations, metadata))
    recorded = [json.loads(pointer.to_json()) for pointer in pointers[1:]]
    (home / "pointers.json").write_text(json.dumps(recorded, indent=1) + "\n")


def main(home: Path, *, snapshots: bool, header_bytes: bool) -> None:
    """Write the first two batches of shard 0, with snapshots some more, and the pointers after each.

    For `header_bytes` the second one is another.
    """
    state = sharded_state(
        home, RecoveryOptions(snapshot_every_deltas=2 if snapshots else 50, snapshot_budget_ms=60_000)
    )
    nodes = ({"type": "source", "name": "in", "topics": None},)
    agree_on_metadata(state.location, StateMetadata("state-2", 1, "key", (0,), state.stores, nodes))
    pointers = [state.pointer(0, None)]
    second = batch_of_lenient_headers if header_bytes else second_batch
    for operations in (first_batch, second, *([later_batch] * 4 if snapshots else [])):
        pointers.append(run_batch(state, pointers[-1], operations))
    recorded = [json.loads(pointer.to_json()) for pointer in pointers[1:]]
    (home / "pointers.json").write_text(json.dumps(recorded, indent=1) + "\n")


if __name__ == "__main__":
    if "lines" in sys.argv[2:]:
        write_lines(Path(sys.argv[1]))
    elif "writers" in sys.argv[2:]:
        write_writers(Path(sys.argv[1]))
    elif "metadata" in sys.argv[2:]:
        write_metadata(Path(sys.argv[1]))
    else:
        main(Path(sys.argv[1]), snapshots="snapshots" in sys.argv[2:], header_bytes="header-bytes" in sys.argv[2:])
