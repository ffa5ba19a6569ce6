"""Ten million keys in 8 shards: what a batch of updates costs, how fast a shard opens, and how fast it is restored.

The shards are worked on by as many processes as there are cores, as Spark's tasks would be, through the same code: open
at a commit pointer, read and write, commit. `--keys N` takes another number.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from on_record import on_record
from statestore import RecoveryOptions
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.records.header_bytes import encode_headers
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import encode_value_timestamp_headers
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardedState

SHARDS = 8
UPDATES = 100_000
ROUNDS = 5
VALUE_BYTES = 100
LOADED_AT_ONCE = 125_000
HEADERS = encode_headers([("trace", b"t" * 20), ("tenant", b"n" * 20), ("schema", b"s" * 20)])
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)


def sharded_state(home: Path, local: str, **options: Any) -> ShardedState:
    """Return the state in `home`, with local copies in the directory `local` of it."""
    recovery = RecoveryOptions(**options)
    location = DurableLocation(home / "state")
    return on_record(ShardedState("scale", location, (TOTALS,), LocalDirectory(home / local), recovery=recovery))


def put_batch(state: ShardedState, pointer: CommitPointer, numbers: Iterator[int], *, read: bool) -> CommitPointer:
    """Run one batch on a shard that writes these keys, and reads them first if asked to."""
    context = TaskRecordContext()
    with state.open(pointer) as shard:
        store = shard.stores["totals"]
        for number in numbers:
            key = b"key-%012d" % number
            if read:
                assert store.bytes.get(key) is not None
            stored = encode_value_timestamp_headers((b"%d." % number) * (VALUE_BYTES // 10), pointer.version, HEADERS)
            store.bytes.put(key, stored)
            store.changelog.append(key, stored, context)
        return shard.commit().pointer


def wait_for_uploads() -> None:
    """Return when no snapshot is being uploaded in this process."""
    for thread in threading.enumerate():
        if thread.name.startswith("statestore-snapshot"):
            thread.join()


def load(home: Path, keys: int, shard: int) -> str:
    """Fill a shard and have a snapshot of it made; return its pointer."""
    state = sharded_state(home, "local", snapshot_every_deltas=1_000_000, snapshot_every_bytes=1 << 50)
    pointer = state.pointer(shard, None)
    for start in range(0, keys, LOADED_AT_ONCE):
        numbers = range(start, min(keys, start + LOADED_AT_ONCE))
        pointer = put_batch(state, pointer, iter(numbers), read=False)
    state = sharded_state(home, "local", snapshot_every_deltas=1, snapshot_budget_ms=600_000)
    for _ in range(2):
        pointer = put_batch(state, pointer, iter([0]), read=True)
        wait_for_uploads()
    return pointer.to_json()


def update(home: Path, keys: int, count: int, shard: int, recorded: str) -> str:
    """Run a batch of updates, keys drawn evenly; return the pointer after it."""
    state = sharded_state(home, "local")
    pointer = state.pointer(shard, recorded)
    draw = random.Random(pointer.version)
    return put_batch(state, pointer, (draw.randrange(keys) for _ in range(count)), read=True).to_json()


def open_only(home: Path, shard: int, recorded: str) -> float:
    """Return the seconds that it takes to open a shard whose copy is up to date."""
    state = sharded_state(home, "local")
    pointer = state.pointer(shard, recorded)
    with state.open(pointer):
        pass
    started_s = time.perf_counter()
    with state.open(pointer):
        return time.perf_counter() - started_s


def restore(home: Path, shard: int, recorded: str) -> tuple[float, int]:
    """Return the seconds that a shard takes to open without a local copy, and the bytes of its snapshot."""
    state = sharded_state(home, "restored")
    pointer = state.pointer(shard, recorded)
    size_bytes = read_manifest(state.location, pointer, pointer.snapshots[-1]).size_bytes
    started_s = time.perf_counter()
    with state.open(pointer) as batch:
        seconds = time.perf_counter() - started_s
        assert batch.stores["totals"].bytes.get(b"key-%012d" % 0) is not None
    return seconds, size_bytes


def on_all_shards(
    pool: ProcessPoolExecutor, work: Callable[..., Any], *arguments: list[Any]
) -> tuple[list[Any], float]:
    """Run `work` for each shard; return what it gave, and the seconds that all took together."""
    started_s = time.perf_counter()
    results = list(pool.map(work, range(SHARDS), *arguments))
    return results, time.perf_counter() - started_s


def run(home: Path, keys: int, processes: int) -> None:
    """Load, update, open and restore, and print the table."""
    per_shard = keys // SHARDS
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        pointers, seconds = on_all_shards(pool, partial(load, home, per_shard))
        print(f"{per_shard * SHARDS:,} keys in {SHARDS} shards, {processes} processes; loaded in {seconds:.0f} s")
        times = []
        for _ in range(ROUNDS):
            pointers, seconds = on_all_shards(pool, partial(update, home, per_shard, UPDATES // SHARDS), pointers)
            times.append(seconds)
        print(f"batch of {UPDATES:,} updates: best {min(times):.2f} s, median {statistics.median(times):.2f} s")
        on_all_shards(pool, partial(open_only, home), pointers)
        opened, _ = on_all_shards(pool, partial(open_only, home), pointers)
        print(f"open of a shard: median {statistics.median(opened) * 1e3:.1f} ms, slowest {max(opened) * 1e3:.1f} ms")
        restored, seconds = on_all_shards(pool, partial(restore, home), pointers)
    total_mb = sum(size_bytes for _, size_bytes in restored) / 1e6
    slowest_s = max(took for took, _ in restored)
    print(f"restore of all shards, local copies lost: {total_mb:,.0f} MB of snapshots, and the deltas since")
    print(f"  {seconds:.1f} s, {total_mb / seconds:.0f} MB/s; slowest shard {slowest_s:.1f} s")


def main() -> None:
    """Run it in a temporary directory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--directory", help="where to work; a temporary directory if not given")
    chosen = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="statestore-scale-", dir=chosen.directory))
    try:
        run(home, chosen.keys, os.cpu_count() or 1)
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
