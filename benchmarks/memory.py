"""A batch whose state changes are five times the memory budget: time, and what the process takes.

`python benchmarks/memory.py` (part of `make bench`). Each step is a process of its own: a batch
that writes CHANGES keys into an empty shard, the next batch, which applies that delta to the local copy, and a batch
that restores the copy from nothing. With the small budget, and with one that nothing spills under.

RSS counts pages of mapped files, which the kernel takes back when it needs them; the anonymous part it can't.
"""

from __future__ import annotations

import json
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from on_record import on_record
from statestore.bytestore.engines.memory_budget import MemoryBudget
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.records.header_bytes import encode_headers
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import encode_value_timestamp_headers
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardBatch, ShardedState
from statestore.stores.layers.layer import ChangeLoggingLayer

RESULTS = Path(__file__).parent / "results" / "memory.json"
BUDGET_BYTES = 64 << 20
AMPLE_BYTES = 8 << 30
CHANGED_BYTES = 5 * BUDGET_BYTES
KEY_BYTES = 16
SPEC = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)
HEADER_BYTES = encode_headers([("trace-id", b"0123456789abcdef"), ("source", b"sensor-eu-west"), ("schema-id", b"42")])
STEPS = ("batch", "next batch", "restore")
MIB = 1 << 20


def stored(number: int) -> bytes:
    """Return a stored value of 100 bytes with 3 headers, no two alike."""
    value = encode_value_timestamp_headers(b"%0100d" % number, number, HEADER_BYTES)
    if value is None:
        raise AssertionError("a value that is not None has bytes")
    return value


CHANGES = CHANGED_BYTES // (KEY_BYTES + len(stored(0)))


def anonymous_bytes() -> int:
    """Return what this process holds in memory that is no part of a file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel does not say RssAnon")


@contextmanager
def watched() -> Iterator[dict[str, float]]:
    """Hand out figures that are complete when the block ends: seconds, and peaks in MiB."""
    figures: dict[str, float] = {"anonymous_before_mib": anonymous_bytes() / MIB}
    peak = 0
    done = threading.Event()

    def sample() -> None:
        nonlocal peak
        while not done.wait(0.01):
            peak = max(peak, anonymous_bytes())

    sampler = threading.Thread(target=sample)
    sampler.start()
    started = time.perf_counter()
    try:
        yield figures
    finally:
        figures["seconds"] = time.perf_counter() - started
        done.set()
        sampler.join()
    figures["anonymous_peak_mib"] = peak / MIB
    figures["rss_peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / MIB


def write_all(batch: ShardBatch) -> int:
    """Set every key, in no order; return the bytes that were spilled."""
    store = batch.stores[SPEC.name]
    put = ChangeLoggingLayer(store.bytes, store.spec, store.changelog, TaskRecordContext()).put
    for number in range(CHANGES):
        put(b"%016d" % (number * 7_919 % CHANGES), stored(number))
    return batch.delta.spilled_bytes


def write_one(batch: ShardBatch) -> int:
    """Set one key; check that the others are there."""
    store = batch.stores[SPEC.name]
    for number in (0, CHANGES // 2, CHANGES - 1):
        if store.bytes.get(b"%016d" % (number * 7_919 % CHANGES)) != stored(number):
            raise AssertionError(f"key {number} is not what it was set to")
    ChangeLoggingLayer(store.bytes, store.spec, store.changelog, TaskRecordContext()).put(b"one", stored(1))
    return batch.delta.spilled_bytes


def run_step(step: str, home: Path, memory_bytes: int) -> dict[str, Any]:
    """Run one step in this process; return its figures."""
    local = LocalDirectory(home / "local", memory=MemoryBudget(memory_bytes))
    state = on_record(ShardedState("benchmark", DurableLocation(home / "state"), (SPEC,), local))
    recorded = home / "pointer.json"
    pointer = state.pointer(0, recorded.read_text() if recorded.exists() else None)
    if step == "restore":
        shutil.rmtree(home / "local")
    with watched() as figures, state.open(pointer) as batch:
        figures["spilled_mib"] = (write_all if step == "batch" else write_one)(batch) / MIB
        following: CommitPointer = batch.commit().pointer
    if step == "batch":
        recorded.write_text(following.to_json())
        figures["delta_mib"] = following.deltas[-1].size_bytes / MIB
    return figures


def main() -> int:
    """Measure, print, write the results file; with arguments, run the step that they say."""
    if len(sys.argv) > 1:
        step, home, memory_bytes = sys.argv[1:]
        print(json.dumps(run_step(step, Path(home), int(memory_bytes))))
        return 0
    measured: dict[str, dict[str, Any]] = {}
    for name, memory_bytes in (("budget", BUDGET_BYTES), ("ample", AMPLE_BYTES)):
        with tempfile.TemporaryDirectory(prefix="statestore-bench-") as home:
            for step in STEPS:
                command = [sys.executable, __file__, step, home, str(memory_bytes)]
                done = subprocess.run(command, check=True, capture_output=True, text=True)
                measured[f"{name}, {step}"] = json.loads(done.stdout)
    print(
        f"== {CHANGES:,} changes, {CHANGED_BYTES / MIB:.0f} MiB of keys and values; budget {BUDGET_BYTES / MIB:.0f} MiB"
    )
    columns = ("seconds", "anonymous_before_mib", "anonymous_peak_mib", "rss_peak_mib", "spilled_mib", "delta_mib")
    print(f"   {'':20}" + "".join(f"{column:>22}" for column in columns))
    for name, figures in measured.items():
        print(f"   {name:20}" + "".join(f"{figures.get(column, 0):22.1f}" for column in columns))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(
        json.dumps({"changes": CHANGES, "changed_bytes": CHANGED_BYTES, "steps": measured}, indent=2) + "\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
