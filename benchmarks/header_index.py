"""What an index of one header costs and gains: puts with their deltas applied, and lookups beside a scan.

    python -m benchmarks.header_index [ENTRIES]

Both shards take the same puts, one of them with an index. A put's time is that of the calling thread, from the open
shard to the next batch that has applied its delta. Prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from on_record import on_record
from statestore import Headers, Serdes, Stores, Topology, ValueTimestampHeaders
from statestore.processor.context import TaskRecordContext
from statestore.processor.task_stores import flush_stores, shard_stores
from statestore.recovery.commit.pointer_fields import BatchEnd
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardedState

BATCHES = 10
LOOKUPS = 200
BYTES = Serdes.bytes()
BUILDER = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("totals"), BYTES, BYTES
)


class Shard:
    """A shard of one store, with an index of these headers."""

    def __init__(self, home: Path, *indexed: str) -> None:
        self.topology = Topology()
        self.topology.add_state_store(BUILDER.with_header_index(*indexed) if indexed else BUILDER)
        location, local = DurableLocation(home / "state"), LocalDirectory(home / "local")
        self.state = on_record(ShardedState("state", location, self.topology.store_specs(), local))
        self.pointer = self.state.pointer(0, None)

    def batch(self, use: Callable[[Any], None]) -> float:
        """Run `use` in a batch, and return the seconds up to its commit, what came before applied."""
        began = time.thread_time()
        with self.state.open(self.pointer) as batch:
            stores = shard_stores(self.topology, batch, TaskRecordContext())
            use(stores["totals"])
            self.pointer = batch.commit(BatchEnd(store_times_ms=flush_stores(stores))).pointer
            return time.thread_time() - began


def entry(random: Random, keys: int) -> tuple[bytes, ValueTimestampHeaders[bytes]]:
    """Return a key and a value of 100 bytes with three headers."""
    headers = Headers(
        [("tenant", b"%d" % random.randrange(100)), ("trace-id", b"%032x" % random.getrandbits(128)), ("schema", b"7")]
    )
    headers.to_bytes()
    return b"key-%07d" % random.randrange(keys), ValueTimestampHeaders(b"v" * 100, 5, headers)


def measure(home: Path, entries: int) -> dict[str, float]:
    """Return the figures of a store of about so many entries."""
    shards = {"plain": Shard(home / "plain"), "indexed": Shard(home / "indexed", "trace-id")}
    seconds = dict.fromkeys(shards, 0.0)
    random = Random(1)
    for _ in range(BATCHES):
        content = [entry(random, entries) for _ in range(entries // BATCHES)]
        for name, shard in shards.items():
            seconds[name] += shard.batch(lambda store, content=content: store.put_all(content))  # type: ignore[misc]
    for name, shard in shards.items():
        seconds[name] += shard.batch(lambda store: None)
    figures = {f"put_{name}_us": spent / entries * 1e6 for name, spent in seconds.items()}
    wanted = [held.headers.last_header("trace-id").value for _, held in content[:LOOKUPS]]

    def look(store: Any) -> None:
        began = time.perf_counter()
        found = [list(store.by_header("trace-id", value)) for value in wanted]
        figures["lookup_ms"] = (time.perf_counter() - began) / len(wanted) * 1e3
        began = time.perf_counter()
        scanned = [key for key, held in store.all() if held.headers.last_header("trace-id").value == wanted[-1]]
        figures["scan_ms"] = (time.perf_counter() - began) * 1e3
        assert [key for key, _ in found[-1]] == scanned

    shards["indexed"].batch(look)
    return figures


if __name__ == "__main__":
    with TemporaryDirectory() as directory:
        found = measure(Path(directory), int(sys.argv[1]) if sys.argv[1:] else 1_000_000)
    print(json.dumps({name: round(figure, 3) for name, figure in found.items()}, indent=2))
