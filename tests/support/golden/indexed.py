"""Writes tests/golden/indexed-1: a state with an index of headers, in the format of its metadata and its family.

Run once for each format, never again for one that was released: `python -m tests.support.golden.indexed DIRECTORY`.
In it are `statestore.json`, deltas, a snapshot whose files have the index, and `pointer.json`.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from statestore import Headers, Serdes, StoreBuilder, Stores, Topology, ValueTimestampHeaders
from statestore.processor.context import TaskRecordContext
from statestore.processor.task_stores import flush_stores, shard_stores
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import StateMetadata, agree_on_metadata
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from tests.support.recovery import on_record
from tests.support.recovery.shards import wait_for_uploads

STRING = Serdes.string()
NAMES = ("trace-id", "tenant")
LONG = b"0123456789" * 7
TOTALS = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("totals"), STRING, STRING
)
WINDOWS = Stores.timestamped_window_store_with_headers_builder(
    Stores.persistent_timestamped_window_store_with_headers("windows", 60, 10, False, 30), STRING, STRING
)


def indexed(builder: StoreBuilder[Any]) -> StoreBuilder[Any]:
    return builder.with_header_index(*NAMES)


class GoldenState:
    """The state in a directory, with an index of both stores."""

    def __init__(self, home: Path) -> None:
        self.topology = Topology()
        for builder in map(indexed, (TOTALS, WINDOWS)):
            self.topology.add_state_store(builder)
        self.location = DurableLocation(home / "state")
        recovery = RecoveryOptions(snapshot_every_deltas=2)
        specs, local = self.topology.store_specs(), LocalDirectory(home / "local")
        self.state = on_record(ShardedState("indexed-1", self.location, specs, local, recovery=recovery))
        self.pointer: CommitPointer | None = None

    def batch(self, use: Callable[[dict[str, Any], Any], None]) -> None:
        """Run `use` on the stores and the batch, and commit."""
        with self.state.open(self.pointer or self.state.pointer(0, None)) as batch:
            stores = shard_stores(self.topology, batch, TaskRecordContext())
            use(stores, batch)
            self.pointer = batch.commit(BatchEnd(store_times_ms=flush_stores(stores))).pointer
        wait_for_uploads()


def held(*headers: tuple[str, bytes | None]) -> ValueTimestampHeaders[str]:
    return ValueTimestampHeaders("v", 5, Headers(headers))


def put(stores: dict[str, Any], _: Any) -> None:
    """Put what the index is made of."""
    stores["totals"].put("a", held(("tenant", b"red"), ("trace-id", LONG), ("other", b"1")))
    stores["totals"].put("b", held(("tenant", b"red"), ("tenant", b""), ("tenant", None)))
    stores["windows"].put("a", held(("tenant", b"red")), 20)
    stores["windows"].put("a", held(("tenant", b"red")), 40)


def main(directory: Path) -> None:
    """Write the state."""
    with tempfile.TemporaryDirectory() as home:
        golden = GoldenState(Path(home))
        metadata = StateMetadata("indexed-1", 1, "key", (0,), golden.state.stores, ())
        agree_on_metadata(golden.location, metadata)
        golden.batch(put)
        for _ in range(3):  # one begins the snapshot, another one names it
            golden.batch(lambda stores, _: stores["totals"].put("c", held()))
        assert golden.pointer is not None
        assert golden.pointer.snapshots
        shutil.copytree(Path(home, "state"), directory)
        (directory / "pointer.json").write_text(json.dumps(json.loads(golden.pointer.to_json()), indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
