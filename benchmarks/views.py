"""How fast a view reads a committed state, beside bare rocksdict on the same copy.

`python benchmarks/views.py` (part of `make bench`). One shard of ENTRIES entries, with 100 random bytes and 3 headers
each: about 100 MB on the disk, with snapshots. A view opens it with nothing there, and again on its copy; gets random
keys; and goes on by deltas of CHANGES changes each. The best of several counts.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from scale import wait_for_uploads
from statestore import Headers, Serdes, Stores
from statestore.recovery.commit.pointer import CommitPointer
from statestore.recovery.heads.head import Head, write_head
from statestore.recovery.local.local_directory import LocalDirectory
from statestore.recovery.location.durable_location import DurableLocation
from statestore.recovery.metadata.state_metadata import METADATA_NAME, metadata_of_stores
from statestore.recovery.shard_batch import ShardedState
from statestore.recovery.snapshots.options import RecoveryOptions
from statestore.view import StateView
from turns import best, mean_us, seconds

RESULTS = Path(__file__).parent / "results" / "views.json"
ENTRIES = 700_000
BATCHES = 7
CHANGES = 1_000
READ = 2_000
ROUNDS = 5
TARGETS = {"open, nothing there (s)": 2.0, "get (us)": 30.0, "refresh (ms)": 20.0}
HEADERS = Headers([("trace-id", b"0123456789abcdef"), ("source", b"sensor-eu-west"), ("schema-id", b"schema-0042")])
BUILDER = Stores.timestamped_key_value_store_with_headers_builder(
    Stores.persistent_timestamped_key_value_store_with_headers("s"), Serdes.bytes(), Serdes.bytes()
)


class State:
    """A state of one shard, whose batches put entries."""

    def __init__(self, home: str) -> None:
        self.location = DurableLocation(f"{home}/state")
        made = metadata_of_stores([BUILDER.spec], 1, "key")
        metadata = replace(made, topology=({"name": "p", "stores": ["s"]},), initial_state=False)
        self.location.write(METADATA_NAME, metadata.to_json().encode())
        recovery = RecoveryOptions(snapshot_every_deltas=3, snapshot_budget_ms=60_000)
        local = LocalDirectory(f"{home}/local")
        self._state = ShardedState(metadata.state_id, self.location, metadata.stores, local, recovery=recovery)
        self._pointer = CommitPointer(metadata.state_id, 0)
        self._batch = 0
        self._random = random.Random(1)

    def put(self, numbers: Sequence[int]) -> None:
        """Put entries, commit, publish a head."""
        with self._state.open(self._pointer) as batch:
            inner = batch.stores["s"]
            store = BUILDER.build(inner.bytes, changelog=inner.changelog)
            for number in numbers:
                value = self._random.randbytes(100)
                store.put_value(key_of(number), value, timestamp_ms=1_700_000_000_000, headers=HEADERS)
            self._pointer = batch.commit().pointer
        wait_for_uploads()
        head = Head(self._pointer.state_id, "query", "run", self._batch, 0, (self._pointer,))
        write_head(self.location, 1, head)
        self._batch += 1

    def change(self) -> None:
        """Put some of its entries anew."""
        self.put(self._random.sample(range(ENTRIES), CHANGES))


def key_of(number: int) -> bytes:
    """Return the key of an entry."""
    return b"%016d" % number


def open_s(state: State, local_dir: str) -> float:
    """Return seconds until a view has read one key."""
    started = time.perf_counter()
    with StateView(state.location, local_dir=local_dir) as view:
        if view.store("s").get(key_of(1)) is None:
            raise AssertionError("there is no such entry")
        return time.perf_counter() - started


def gets_us(view: StateView) -> dict[str, float]:
    """Return microseconds a get, of the view and of bare rocksdict on its copy."""
    store, bare = view.store("s"), view.shard(0).stores["s"].bytes
    family = bare._family  # type: ignore[attr-defined]  # what a user of rocksdict would hold
    keys = [key_of(number) for number in random.Random(2).sample(range(ENTRIES), READ)]

    def all_of(get: object) -> float:
        return mean_us(lambda: [get(key) for key in keys], READ)  # type: ignore[operator]

    return best({"get (us)": lambda: all_of(store.get), "bare rocksdict (us)": lambda: all_of(family.get)}, ROUNDS)


def refresh_ms(state: State, view: StateView) -> float:
    """Return milliseconds in which a view goes on by a delta."""
    state.change()
    return seconds(view.refresh) * 1e3


def main() -> int:
    """Measure, print, write the results file."""
    with tempfile.TemporaryDirectory(prefix="statestore-bench-") as home:
        state = State(home)
        for batch in range(BATCHES):
            state.put(range(batch * ENTRIES // BATCHES, (batch + 1) * ENTRIES // BATCHES))
        state.change()
        fresh = (f"{home}/fresh-{number}" for number in range(ROUNDS))
        open_s(state, f"{home}/kept")
        size_bytes = sum(path.stat().st_size for path in Path(home, "kept").rglob("*.sst"))
        found = best(
            {
                "open, nothing there (s)": lambda: open_s(state, next(fresh)),
                "open, copy there (s)": lambda: open_s(state, f"{home}/kept"),
            },
            ROUNDS,
        )
        with StateView(state.location, local_dir=f"{home}/kept") as view:
            found |= gets_us(view)
            found |= best({"refresh (ms)": lambda: refresh_ms(state, view)}, ROUNDS)
    print(f"== A view of a shard of {size_bytes / 1e6:.0f} MB, deltas of {CHANGES:,} changes, best of {ROUNDS}")
    for name, figure in found.items():
        target = TARGETS.get(name)
        met = "" if target is None else f"   target {target:g}: {'met' if figure <= target else 'NOT MET'}"
        print(f"   {name:26}{figure:10.3f}{met}")
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps({"size_bytes": size_bytes, **found}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
