"""A long run that overwrites the same keys: what stays on disk, and whether batches get slower.

One shard through its real state, batch after batch as a task does it: open, get and put, commit. Printed: the
time of batches, first against last, and the bytes of the state location against the live data and what retained
versions need. `--batches N` runs another number than 2,000.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from on_record import on_record
from statestore import RecoveryOptions
from statestore.bytestore.kinds.store_spec import StoreKind, StoreSpec
from statestore.format.values.store_format import StoreFormat
from statestore.format.values.value_timestamp_headers import encode_value_timestamp_headers
from statestore.processor.context import TaskRecordContext
from statestore.recovery.commit.manifest import read_manifest
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.shard_batch import ShardedState

KEYS = 20_000
CHANGES = 2_000
VALUE_BYTES = 200
RETAINED = 100
WARM_UP = 100
SAMPLED_EVERY = 7  # meets every phase between two snapshots, which are made every 50
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)


class LongRun:
    """Batches on one shard, each of which overwrites a tenth of the keys."""

    def __init__(self, home: Path) -> None:
        self.home = home
        location = DurableLocation(home / "state")
        options = RecoveryOptions(retained_versions=RETAINED)
        local = LocalDirectory(home / "local")
        self.state = on_record(ShardedState("long-run", location, (TOTALS,), local, recovery=options))
        self.pointers = [self.state.pointer(0, None)]

    def batch(self, number: int) -> float:
        """Run one batch and return its seconds."""
        started_s = time.perf_counter()
        context = TaskRecordContext()
        with self.state.open(self.pointers[-1]) as shard:
            store = shard.stores["totals"]
            for index in range(CHANGES):
                key = b"key-%08d" % ((number * CHANGES + index) % KEYS)
                store.bytes.get(key)
                value = (b"%d:" % number).ljust(VALUE_BYTES, b"%x" % (index % 16))
                stored = encode_value_timestamp_headers(value, number, b"")
                store.bytes.put(key, stored)
                store.changelog.append(key, stored, context)
            self.pointers.append(shard.commit().pointer)
        del self.pointers[: -RETAINED - 1]
        return time.perf_counter() - started_s

    def sizes(self) -> tuple[int, int, int]:
        """Return the bytes in the location, of the live data, and of all files that a retained version needs."""
        on_disk = size_of(self.home / "state")
        live = KEYS * (12 + VALUE_BYTES)
        needed = {}
        for pointer in self.pointers:
            needed.update({delta.name: delta.size_bytes for delta in pointer.deltas})
            for snapshot in pointer.snapshots[-2:]:
                for file in read_manifest(self.state.location, pointer, snapshot).files:
                    needed[file.durable.name] = file.durable.size_bytes
        return on_disk, live, sum(needed.values())


def size_of(directory: Path) -> int:
    """Return the bytes of all files below a directory from which garbage is being removed meanwhile."""
    sizes = 0
    for parent, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                sizes += Path(parent, name).stat().st_size
    return sizes


def quartile(times: list[float]) -> float:
    """Return the time that a quarter of the batches stayed below: other work on the machine only ever adds time."""
    return statistics.quantiles(times, n=4)[0]


def report(times: list[float], fullest: tuple[int, int, int]) -> None:
    """Print what the run came to; `fullest` is what `sizes` returned when the location held most for what it must."""
    first, last = times[WARM_UP : 2 * WARM_UP], times[-WARM_UP:]
    on_disk, live, history = fullest
    slower = quartile(last) / quartile(first)
    print(f"batches of {CHANGES} changes on {KEYS} keys: {len(times)}")
    print(f"first quartile of batches {WARM_UP}-{2 * WARM_UP}: {quartile(first) * 1e3:.1f} ms")
    print(f"first quartile of the last {WARM_UP}: {quartile(last) * 1e3:.1f} ms, {slower:.2f} of the first")
    mb = 1e6
    print(f"live data {live / mb:.1f} MB, retained history {history / mb:.1f} MB")
    print(f"state location, at its fullest: {on_disk / mb:.1f} MB")
    print(f"state location / (2 x live data + retained history): {on_disk / (2 * live + history):.2f}")


def main() -> None:
    """Run the batches and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=2_000)
    chosen = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="statestore-long-run-"))
    try:
        run = LongRun(home)
        times, sampled = [], []
        for number in range(chosen.batches):
            times.append(run.batch(number))
            if number >= 2 * RETAINED and number % SAMPLED_EVERY == 0:
                sampled.append(run.sizes())
        report(times, max([*sampled, run.sizes()], key=lambda sizes: sizes[0] / (2 * sizes[1] + sizes[2])))
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
