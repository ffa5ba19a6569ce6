"""A long run that overwrites the same keys: what stays on disk, and whether batches get slower.

One shard through its real state, batch after batch as a task does it: open, get and put, commit. Printed: the
time of batches, first against last, and the bytes of the state location against the live data and what retained
versions need. `--batches N` runs another number than 2,000.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from statestore import LocalDirectory, RecoveryOptions
from statestore.bytestore.store_spec import StoreKind, StoreSpec
from statestore.format.store_format import StoreFormat
from statestore.format.value_timestamp_headers import encode_value_timestamp_headers
from statestore.processor.context import TaskRecordContext
from statestore.recovery.location import DurableLocation
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshot import read_manifest

KEYS = 20_000
CHANGES = 2_000
VALUE_BYTES = 200
RETAINED = 100
WARM_UP = 100
TOTALS = StoreSpec("totals", StoreKind.KEY_VALUE, StoreFormat.TIMESTAMPED_WITH_HEADERS)


class LongRun:
    """Batches on one shard, each of which overwrites a tenth of the keys."""

    def __init__(self, home: Path) -> None:
        self.home = home
        location = DurableLocation(home / "state")
        options = RecoveryOptions(retained_versions=RETAINED)
        self.state = ShardedState("long-run", location, (TOTALS,), LocalDirectory(home / "local"), recovery=options)
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
            self.pointers.append(shard.commit())
        del self.pointers[: -RETAINED - 1]
        return time.perf_counter() - started_s

    def sizes(self) -> tuple[int, int, int]:
        """Return the bytes in the location, of the live data, and of all files that a retained version needs."""
        on_disk = sum(path.stat().st_size for path in (self.home / "state").rglob("*") if path.is_file())
        live = KEYS * (12 + VALUE_BYTES)
        needed = {}
        for pointer in self.pointers:
            needed.update({delta.name: delta.size_bytes for delta in pointer.deltas})
            for snapshot in pointer.snapshots[-2:]:
                for file in read_manifest(self.state.location, pointer, snapshot).files:
                    needed[file.durable.name] = file.durable.size_bytes
        return on_disk, live, sum(needed.values())


def quartile(times: list[float]) -> float:
    """Return the time that a quarter of the batches stayed below: other work on the machine only ever adds time."""
    return statistics.quantiles(times, n=4)[0]


def report(run: LongRun, times: list[float]) -> None:
    """Print what the run came to."""
    first, last = times[WARM_UP : 2 * WARM_UP], times[-WARM_UP:]
    on_disk, live, history = run.sizes()
    slower = quartile(last) / quartile(first)
    print(f"batches of {CHANGES} changes on {KEYS} keys: {len(times)}")
    print(f"first quartile of batches {WARM_UP}-{2 * WARM_UP}: {quartile(first) * 1e3:.1f} ms")
    print(f"first quartile of the last {WARM_UP}: {quartile(last) * 1e3:.1f} ms, {slower:.2f} of the first")
    mb = 1e6
    print(
        f"state location: {on_disk / mb:.1f} MB; live data {live / mb:.1f} MB, retained history {history / mb:.1f} MB"
    )
    print(f"state location / (2 x live data + retained history): {on_disk / (2 * live + history):.2f}")


def main() -> None:
    """Run the batches and print the report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=2_000)
    chosen = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="statestore-long-run-"))
    try:
        run = LongRun(home)
        report(run, [run.batch(number) for number in range(chosen.batches)])
    finally:
        shutil.rmtree(home)


if __name__ == "__main__":
    main()
